"""Which layers: by name, by glob, or by type."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from benfourier.errors import LayerError
from benfourier.subjects.plan import Layer

Selector = str | type[nn.Module]
Selection = Selector | Sequence[Selector] | None


def select(layers: Sequence[Layer], selection: Selection, *, pass_through: bool) -> tuple[Layer, ...]:
    """Returns the layers that the selection names, in firing order.

    A layer named outright is taken even if it only passes numbers on.
    """
    heard = [layer for layer in layers if pass_through or not layer.pass_through]
    if selection is None:
        return tuple(heard)
    wanted: set[str] = set()
    many = isinstance(selection, Iterable) and not isinstance(selection, str | type)
    selectors: Any = selection if many else [selection]
    for selector in selectors:
        if not isinstance(selector, str | type):
            raise LayerError(f"layers holds {selector!r}; it must be names, globs or module types")
        named = [layer.name for layer in layers if layer.name == selector]
        found = named or [layer.name for layer in heard if _matches(layer, selector)]
        if not found:
            raise _nothing(selector, layers)
        wanted.update(found)
    if not wanted:
        raise LayerError("the selection of layers is empty; name at least one, or pass None for all")
    return tuple(layer for layer in layers if layer.name in wanted)


def _matches(layer: Layer, selector: Selector) -> bool:
    if isinstance(selector, type):
        return layer.module_type is not None and issubclass(layer.module_type, selector)
    if selector.startswith("type:"):
        return layer.kind == selector.removeprefix("type:")
    return fnmatchcase(layer.name, selector)


def _nothing(selector: Selector, layers: Sequence[Layer]) -> LayerError:
    names = [layer.name for layer in layers]
    if isinstance(selector, type) or selector.startswith("type:"):
        kinds = ", ".join(sorted({layer.kind for layer in layers}))
        return LayerError(f"no layer is of type {getattr(selector, '__name__', selector)}; this subject has {kinds}")
    near = get_close_matches(selector, names, n=3, cutoff=0.4)
    hint = f"; near matches: {', '.join(near)}" if near else ""
    return LayerError(
        f"layer {selector!r} not found{hint}; this subject has {len(names)} layers, "
        "list them with subject.layers(pass_through=True)"
    )
