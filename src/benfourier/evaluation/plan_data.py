"""The sources of a plan's file, and the groups that their classes are gathered in."""

from dataclasses import dataclass

from benfourier.data.groups import homes_of
from benfourier.errors import InputError
from benfourier.evaluation.plan_tables import Table

Members = dict[str, list[int | str]]


@dataclass(frozen=True)
class DataPlan:
    """Where the images come from; the fields are those of `Plan`."""

    source: str
    other: tuple[str, ...]
    credit: str
    groups: Members


def data_of(table: Table, protocols: tuple[str, ...]) -> DataPlan:
    """Returns the sources and groups, checked as far as they can be without looking at them."""
    source, credit, other = table.take("source", str), table.take("credit", str, ""), _texts(table, "other")
    if not source:
        table.refuse("source", "is empty; name a source, such as 'mnist-5k' or a folder")
    groups = _groups(table.table("groups")) if table.has("groups") else {}
    table.done()
    if "data-transfer" in protocols and not other:
        table.refuse("other", "is missing; data-transfer needs a second source with the same classes")
    return DataPlan(source, other, credit, groups)


def _texts(table: Table, key: str) -> tuple[str, ...]:
    """One text, or several in a list."""
    if not table.is_list(key):
        text = table.take(key, str, "")
        return (text,) if text else ()
    found = table.take(key, list)
    for place, text in enumerate(found):
        if not isinstance(text, str) or not text:
            table.refuse(f"{key}[{place}]", f"is {text!r}; it must be text")
    return tuple(found)


def _groups(table: Table) -> Members:
    """Two groups or more, of which no class is in two."""
    found: Members = {name: table.take(name, list) for name in table.left()}
    if len(found) < 2:
        table.refuse("", f"are {', '.join(found) or 'none'}; a network needs two classes or more")
    for name, members in found.items():
        if not members:
            table.refuse(name, "is empty; it must hold classes of the source")
        for place, member in enumerate(members):
            if type(member) not in (int, str):
                told = f'is {member!r}; it must be a class: its number, "7-24" for several, or its name'
                table.refuse(f"{name}[{place}]", told)
    try:
        homes_of(found)
    except InputError as error:
        table.refuse("", f"are not apart: {error}")
    return found
