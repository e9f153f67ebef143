"""Options of detectors and attacks: frozen fields with their checks beside them, and classes by id."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from benfourier.errors import OptionError, check_choice, check_number, check_switch, check_whole, near_word

Check = Callable[[str, Any], Any]  # name and value, to the value as it is stored


def number(default: Any = MISSING, *words: str | None, **bounds: float) -> Any:
    """Returns a field for a finite number within the bounds of `check_number`, or one of some words or None."""
    return _number_or_word(default, partial(check_number, **cast("Any", bounds)), words)


def whole(default: Any = MISSING, *words: str | None, least: int = 1, most: int | None = None) -> Any:
    """Returns a field for a whole number in a range, or one of some words or None."""
    return _number_or_word(default, partial(check_whole, least=least, most=most), words)


def _number_or_word(default: Any, check_value: Check, words: tuple[str | None, ...]) -> Any:
    def check(name: str, value: Any) -> Any:
        if any(value is each or (isinstance(value, str) and value == each) for each in words):
            return value
        try:
            return check_value(name, value)
        except OptionError as error:
            others = f", or one of {', '.join(map(repr, words))}" if words else ""
            raise OptionError(f"{error}{others}", name) from None

    return field(default=default, metadata={"check": check})


def word(default: str | None, *others: str | None) -> Any:
    """Returns a field for one of some words; None is allowed if it is among them."""
    allowed = (default, *others)

    def check(name: str, value: Any) -> Any:
        if not (value is None and None in allowed):
            check_choice(name, value, [each for each in allowed if each is not None])
        return value

    return field(default=default, metadata={"check": check})


def switch(default: bool) -> Any:
    """Returns a field for True or False."""
    return field(default=default, metadata={"check": check_switch})


def layer_names(default: Sequence[str] | None = None) -> Any:
    """Returns a field for a selection of layers: names, globs or "type:Conv2d" as a tuple of words; None for all."""

    def check(name: str, value: Any) -> tuple[str, ...] | None:
        if value is None:
            return None
        each = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
        words = tuple(str(word) if type(word) is int else word for word in each)  # parts of a Sequential are numbered
        if not words or not all(isinstance(word, str) for word in words):
            raise OptionError(f'{name} is {value!r}; it must be names, globs or "type:Conv2d", or None for all', name)
        return words

    return field(default=default, metadata={"check": check})


@dataclass(frozen=True, kw_only=True)
class CheckedOptions:
    """Base of records of options: every field is checked when an instance is made."""

    def __post_init__(self) -> None:
        for option in fields(self):
            # a subclass that changes a default alone has the check of its parent
            declared = [kind.__dict__.get("__dataclass_fields__", {}).get(option.name) for kind in type(self).__mro__]
            checks = [each.metadata["check"] for each in declared if each is not None and "check" in each.metadata]
            if checks:
                object.__setattr__(self, option.name, checks[0](option.name, getattr(self, option.name)))

    def as_dict(self) -> dict[str, Any]:
        """Returns every option by name, as JSON can hold it."""
        return {option.name: getattr(self, option.name) for option in fields(self)}


@dataclass(frozen=True, kw_only=True)
class Options(CheckedOptions):
    """Base of Method and Attack; their fields are the options."""

    id: ClassVar[str] = ""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    needs_variant: ClassVar[str] = ""  # what to add to the id if it alone is not enough

    @property
    def name(self) -> str:
        """The id by which a registry makes it again, together with `as_dict()`."""
        return self.id

    @classmethod
    def variant(cls, word: str, options: Mapping[str, Any]) -> Self:
        """Returns what the id "name:word" stands for; most classes have no variants."""
        raise OptionError(f"{cls.id} has no variant {word!r}; leave ':{word}' out")


T = TypeVar("T", bound=Options)


class Registry(Generic[T]):
    """Classes of options by id; what says what they are in error messages: "detector" or "attack"."""

    def __init__(self, what: str) -> None:
        self._what, self._classes = what, dict[str, type[T]]()

    def register(self, kind: type[T]) -> type[T]:
        """Adds a class, so that its id works wherever ids do; used as a decorator."""
        if not re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", kind.id):
            problem = f"{kind.__name__} has the id {kind.id!r}"
            raise OptionError(f'{problem}; give it one in kebab-case: id: ClassVar[str] = "my-{self._what}"')
        if self._classes.setdefault(kind.id, kind) is not kind:
            raise OptionError(f"the id {kind.id!r} belongs to {self._classes[kind.id].__name__}; choose another")
        return kind

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._classes))

    def __getitem__(self, name: str) -> type[T]:
        check_choice(self._what, name, self)
        return self._classes[name]

    def make(self, name: str, options: Mapping[str, Any], preset: str | None = None) -> T:
        """Returns the detector or attack of an id, "name" or "name:variant"; options win over those of a preset."""
        check_choice_type(self._what, name)
        name, _, variant = name.partition(":")
        kind = self[name]
        if variant:
            return kind.variant(variant, options)
        if kind.needs_variant:
            raise OptionError(f"{self._what} is {name!r}; {kind.needs_variant}")
        if preset is not None:
            check_choice(f"preset of {name}", preset, kind.presets)
            options = {**kind.presets[preset], **options}
        check_known_options(name, options, [option.name for option in fields(kind)])
        return kind(**options)


def check_choice_type(what: str, name: object) -> None:
    """Raises OptionError unless an id is text."""
    if not isinstance(name, str):
        raise OptionError(f"{what} is {name!r}; it must be an id as text; benfourier.catalogue() lists them")


def check_known_options(name: str, options: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises OptionError for the first option that a detector or attack does not have."""
    for option in options:
        if option not in known:
            allowed = ", ".join(sorted(known)) or "none"
            message = f"{name} has no option {option!r}; its options: {allowed}{near_word(option, known)}"
            raise OptionError(message, option)


def check_json(name: str, value: Any) -> Any:
    """Returns a value as it comes back from a file, tuples as lists and all keys text, or raises OptionError."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        advice = "use text, finite numbers, lists and mappings"
        raise OptionError(f"{name} cannot be written as JSON ({error}); {advice}") from error
