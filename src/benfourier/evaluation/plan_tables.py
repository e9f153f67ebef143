"""Tables of a plan's file: values taken key by key, each complaint with the key's path."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, NoReturn

from benfourier.errors import BenfourierError, PlanError

WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "a table", list: "a list"}


class Table:
    """A table of a plan's file, of which keys are taken until none is left.

    Args:
        content: keys and values.
        path: of the table, such as "attacks[2]"; empty for the whole file.
        where: what to call the file.
    """

    def __init__(self, content: dict[str, Any], path: str, where: str) -> None:
        self._content, self._path, self._where = dict(content), path, where
        self._known: list[str] = []

    def path(self, key: str) -> str:
        """Returns the path of a key."""
        return f"{self._path}.{key}" if self._path else key

    def refuse(self, key: str, told: str) -> NoReturn:
        """Raises PlanError about a key; without a key, about the table."""
        place = self.path(key) if key else self._path
        raise PlanError(f"{self._where}: {place} {told}")

    def take(self, key: str, kind: type[Any], default: Any = ...) -> Any:
        """Returns the value of a key, or the default; without a default the key must be there."""
        self._known.append(key)
        if key not in self._content:
            if default is ...:
                self.refuse(key, f"is missing; it must be {WORDS[kind]}")
            return default
        value = self._content.pop(key)
        plain = type(value) is kind or (kind is float and type(value) is int)
        if not plain:
            self.refuse(key, f"is {value!r}; it must be {WORDS[kind]}")
        return value

    def whole(self, key: str, default: Any = ..., *, least: int = 1, most: int | None = None) -> Any:
        """Returns a whole number within limits."""
        value = self.take(key, int, default)
        if value is not None and not (least <= value and (most is None or value <= most)):
            to = "" if most is None else f" and at most {most}"
            self.refuse(key, f"is {value}; it must be a whole number of at least {least}{to}")
        return value

    def whole_or_not(self, key: str, default: bool, *, least: int, most: int) -> bool | int:
        """Returns true, false, or a whole number within limits."""
        value: bool | int = self.take(key, type(self._content.get(key)), default)
        if type(value) is not bool and not (type(value) is int and least <= value <= most):
            allowed = f"true, false, or a whole number of at least {least} and at most {most}"
            self.refuse(key, f"is {value!r}; it must be {allowed}")
        return value

    def word(self, key: str, allowed: Iterable[str], default: Any = ...) -> str:
        """Returns one of the allowed words."""
        value: str = self.take(key, str, default)
        self.word_of(key, value, allowed)
        return value

    def words(self, key: str, allowed: Iterable[str], default: list[str]) -> tuple[str, ...]:
        """Returns some of the allowed words, none twice."""
        found, known = self.take(key, list, default), list(allowed)
        for place, value in enumerate(found):
            self.word_of(f"{key}[{place}]", value, known)
            if value in found[:place]:
                self.refuse(f"{key}[{place}]", f"is {value!r} again; name each once")
        return tuple(found)

    def table(self, key: str, default: Any = ...) -> "Table":
        """Returns a table inside this one."""
        return Table(self.take(key, dict, default), self.path(key), self._where)

    def tables(self, key: str) -> list["Table"]:
        """Returns a list of tables, at least one."""
        found = self.take(key, list, [])
        if not found or not all(isinstance(entry, dict) for entry in found):
            self.refuse(key, f"is {found!r}; it must be one table or more, each under [[{key}]]")
        return [Table(entry, f"{self.path(key)}[{place}]", self._where) for place, entry in enumerate(found)]

    def rest(self) -> dict[str, Any]:
        """Returns all keys that were not taken: options of something, checked elsewhere."""
        left, self._content = self._content, {}
        return left

    def done(self) -> None:
        """Raises PlanError if a key is left."""
        for key in self._content:
            self.word_of(key, key, sorted(self._known), told="is no key of a plan")

    def retell(self, error: BenfourierError, given: Iterable[str]) -> NoReturn:
        """Raises PlanError with what another check said, and the path of the option that it spoke of."""
        told = str(error)
        unknown = re.search(r"has no option '([^']*)'|^(\w+) is no option", told)
        first = re.split(r" is | are ", told, maxsplit=1)[0]
        key = next(filter(None, unknown.groups())) if unknown else first if first in set(given) else ""
        place = self.path(key) if key else self._path
        said = told.removeprefix(key) if key == first else f": {told}"
        raise PlanError(f"{self._where}: {place}{said}") from error

    def word_of(self, key: str, value: object, allowed: Iterable[str], told: str | None = None) -> None:
        """Raises PlanError unless a value, or the key itself, is one of the allowed words."""
        words = list(allowed)
        if value not in words:
            near = get_close_matches(str(value), words, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            self.refuse(key, f"{told or f'is {value!r}'}; allowed: {', '.join(words)}{hint}")

    def has(self, key: str) -> bool:
        """True if a key is there and was not taken yet."""
        return key in self._content

    def is_list(self, key: str) -> bool:
        """True if a key is there, was not taken yet, and holds a list."""
        return isinstance(self._content.get(key), list)

    def left(self) -> list[str]:
        """Returns the keys that were not taken yet."""
        return list(self._content)
