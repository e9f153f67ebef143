"""State of extractors and heads: nested mappings, split into JSON and arrays for a file, and joined again.

The fields of an extractor or head declare what a file may hold: their types, and in `Annotated` an ArrayRule or a check
of errors.py, called with name and value. A file is checked against them when it is read.
"""

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar, get_args
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.models.device import float64_device

State = dict[str, Any]  # tensors, numbers, words, None, and tuples and mappings of these
Arrays = dict[str, NDArray[Any]]
MARK = "$array"  # key of a mapping that stands for an array
PLAIN: tuple[type, ...] = (Tensor, str, bool, int, float)  # annotations whose values are checked
LARGEST = 1e300  # a number; −infinity is written as −1e300

Record = TypeVar("Record")
# of each record by device; None stands for the record itself, which a value of its own would keep alive
_copies: WeakKeyDictionary[Any, dict[torch.device, Any]] = WeakKeyDictionary()


@dataclass(frozen=True)
class ArrayRule:
    """What a file may hold in the place of a tensor: `vectors: Annotated[Tensor, ArrayRule("S D")]`."""

    shape: str  # a letter or word for each dimension; one that stands in several fields of a record is one number
    other_shape: str | None = None  # that is allowed too
    dtype: torch.dtype | None = torch.float64  # None for any floating one
    above: float = -math.inf  # all entries are greater, and finite

    def check(self, name: str, value: Tensor, sizes: dict[str, int]) -> None:
        """Raises ValueError unless the tensor is such a one; adds the sizes of its dimensions to those known."""
        allowed = (self.shape,) if self.other_shape is None else (self.shape, self.other_shape)
        shapes = [shape.split() for shape in allowed if len(shape.split()) == value.ndim]
        if not shapes:
            raise ValueError(f"{name} has {value.ndim} dimensions; it must be ({self.shape})")
        for word, size in zip(shapes[0], value.shape, strict=True):
            if sizes.setdefault(word, size) != size:
                raise ValueError(f"{name} has shape {tuple(value.shape)}; ({self.shape}) with {sizes} is needed")
        if value.dtype != self.dtype and (self.dtype is not None or not value.is_floating_point()):
            raise ValueError(f"{name} is {value.dtype}; it must be {self.dtype or 'floating'}")
        if not bool((value.isfinite() & (value > self.above)).all()):
            raise ValueError(f"{name} holds NaN, infinity, or numbers that are not above {self.above:g}")


def record_state(record: Any) -> State:
    """Returns the fields of a dataclass that a file holds; dataclasses among them become mappings."""

    def plain(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(plain, value))
        return record_state(value) if is_dataclass(value) else value

    return {name: plain(getattr(record, name)) for name in _declared(type(record))}


def record_from_state(
    kind: type[Record], state: Mapping[str, Any], sizes: Mapping[str, int] | None = None, **others: Any
) -> Record:
    """Returns the dataclass of a state and of fields that no file holds; `sizes` are those known of its arrays."""
    # Raises ValueError unless every field of the state is there and as its field declares.
    declared, values, known = _declared(kind), dict(state), dict(sizes or {})
    if declared.keys() != state.keys():
        raise ValueError(f"{kind.__name__} has the fields {', '.join(declared)}, the file {', '.join(state)}")
    for name, annotation in declared.items():
        value, path = state[name], f"{kind.__name__}.{name}"
        rules = getattr(annotation, "__metadata__", ())
        plain = get_args(annotation)[0] if rules else annotation
        inner = next(iter(get_args(plain)), plain)
        if isinstance(plain, type) and is_dataclass(plain):
            values[name] = record_from_state(plain, value)
        elif isinstance(inner, type) and is_dataclass(inner):
            values[name] = tuple(record_from_state(inner, one) for one in value)
        elif plain in PLAIN:
            allowed = (int, float) if plain is float else plain
            if not isinstance(value, allowed) or (isinstance(value, bool) and plain is not bool):
                raise ValueError(f"{path} is {type(value).__name__}; it must be {plain.__name__}")
            if isinstance(value, int | float) and not abs(value) <= LARGEST:
                raise ValueError(f"{path} is {value}; it must be finite")
        for rule in rules:
            if isinstance(rule, ArrayRule):
                rule.check(path, value, known)
            else:
                rule(path, value)
    return kind(**values, **others)


def _declared(kind: Any) -> dict[str, Any]:
    """Types of the fields by name, without those that the class says are not in files."""
    others = getattr(kind, "not_in_files", ())
    return {field.name: field.type for field in fields(kind) if field.init and field.name not in others}


def on_device(record: Record, device: torch.device) -> Record:
    """Returns what a method learned with its tensors on a device; made once for each, the record itself if it can be.

    A device without float64 reduces activations only, and the CPU does the rest: there the record stays on the CPU.
    """
    copies = _copies.setdefault(record, {})
    if device not in copies:
        with torch.inference_mode(False):  # so that autograd takes the tensors later
            moved = _to_device(record, float64_device(device))
        copies[device] = None if moved is record else moved
    return record if copies[device] is None else copies[device]


def _to_device(value: Any, device: torch.device) -> Any:
    """A value of a state with the tensors in it on a device; the value itself if nothing is elsewhere."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        parts = tuple(_to_device(part, device) for part in value)
        return value if all(map(operator.is_, parts, value)) else parts
    if not is_dataclass(value):
        return value
    own = {name: getattr(value, name) for name in _declared(type(value))}
    moved = {name: _to_device(one, device) for name, one in own.items()}
    changed = {name: one for name, one in moved.items() if one is not own[name]}
    return replace(value, **changed) if changed else value  # type: ignore[type-var]


def split_state(state: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
    """Returns JSON with a mark in the place of every tensor, and the tensors as arrays named by their place."""
    arrays: Arrays = {}

    def plain(value: Any, place: str) -> Any:
        if isinstance(value, Tensor):
            arrays[place] = value.detach().cpu().contiguous().numpy()
            return {MARK: place}
        if isinstance(value, Mapping):
            if MARK in value or not all(isinstance(key, str) for key in value):
                raise ValueError(f"state {place} has keys that are not text, or {MARK!r}")
            return {key: plain(inner, f"{place}/{key}" if place else key) for key, inner in value.items()}
        if isinstance(value, tuple | list):
            return [plain(inner, f"{place}/{number}") for number, inner in enumerate(value)]
        return value

    return plain(state, ""), arrays


def join_state(plain: Any, arrays: Arrays) -> Any:
    """Returns a state from its two parts; lists become tuples. Raises ValueError for an array that is not there."""
    if isinstance(plain, dict):
        if MARK not in plain:
            return {key: join_state(value, arrays) for key, value in plain.items()}
        name = plain[MARK]
        if len(plain) > 1 or not isinstance(name, str) or name not in arrays:
            raise ValueError(f"array {name!r} is missing")
        return torch.from_numpy(np.array(arrays[name]))
    return tuple(join_state(value, arrays) for value in plain) if isinstance(plain, list) else plain
