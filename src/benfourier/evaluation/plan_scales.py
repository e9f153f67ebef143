"""Scales of a plan: tables that are laid over it."""

from typing import Any

from benfourier.errors import PlanError


def laid_over(below: dict[str, Any], above: dict[str, Any], where: str, path: str = "") -> dict[str, Any]:
    """Returns tables joined key by key; entries of a list are reached by label, everything else is replaced.

    Args:
        below: a table of the plan.
        above: what is laid over it.
        where: what to call the file.
        path: of the table.
    """
    joined = dict(below)
    for key, value in above.items():
        under, place = joined.get(key), f"{path}.{key}".lstrip(".")
        if isinstance(value, dict) and isinstance(under, list):
            joined[key] = _entries(under, value, where, place)
        elif isinstance(value, dict) and isinstance(under, dict):
            joined[key] = laid_over(under, value, where, place)
        else:
            joined[key] = value
    return joined


def _entries(below: list[Any], above: dict[str, Any], where: str, path: str) -> list[Any]:
    """A table changes all entries of its label; with a name and a label that is not there yet it is one more entry."""
    joined = [dict(entry) if isinstance(entry, dict) else entry for entry in below]
    labels = [entry.get("label", entry.get("name")) if isinstance(entry, dict) else None for entry in below]
    for label, changes in above.items():
        if not isinstance(changes, dict):
            raise PlanError(f"{where}: {path}.{label} is {changes!r}; it must be a table of what changes in that entry")
        if label in labels:
            for entry in (entry for entry, known in zip(joined, labels, strict=True) if known == label):
                entry.update(changes)
        elif "name" in changes:
            joined.append({"label": label, **changes})
        else:
            allowed = ", ".join(dict.fromkeys(str(known) for known in labels if known is not None))
            told = f"is laid over an entry that is not there; labels: {allowed}; for one more entry, give its name"
            raise PlanError(f"{where}: {path}.{label} {told}")
    return joined
