"""Whether anything that a machine is tested with was known to it."""

from collections.abc import Iterable

from torch import Tensor

from benfourier.data.draws import names_by_content
from benfourier.data.examples import Examples
from benfourier.errors import InputError


def check_apart(
    fitted: Examples, seen: frozenset[str], apart: frozenset[str], tested: Iterable[tuple[Iterable[str], Tensor]]
) -> None:
    """Raises InputError if images of the fit, of the tests and of the threshold are not apart.

    Args:
        fitted: what the machine was fitted to.
        seen: names by content of all benign images in its fit.
        apart: names by content of the clean images that set thresholds, and of misclassified ones.
        tested: source ids and images that it scores.
    """
    sources, twins = set(fitted.ids), {name for images in fitted.attacked.values() for name in names_by_content(images)}
    known = seen | twins
    _refuse(known & apart, "images that set thresholds or are misclassified", "were fitted to")
    for ids, images in tested:
        _refuse(sources & set(ids), "source images that are tested", "were fitted to")
        names = set(names_by_content(images))
        _refuse(names & known, "images that are tested", "were fitted to")
        _refuse(names & apart, "images that are tested", "set thresholds or are misclassified")


def _refuse(shared: Iterable[str], what: str, told: str) -> None:
    found = sorted(shared)
    if found:
        raise InputError(
            f"{len(found)} {what} {told} too, the first is {found[0]!r}; every figure would be too good: split the "
            "images by source"
        )
