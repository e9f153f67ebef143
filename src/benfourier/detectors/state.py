"""State of extractors and heads: nested mappings, split into JSON and arrays for a file, and joined again."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

State = dict[str, Any]  # tensors, numbers, words, None, and tuples and mappings of these
Arrays = dict[str, NDArray[Any]]
MARK = "$array"  # key of a mapping that stands for an array
PLAIN: tuple[type, ...] = (Tensor, str, bool, int, float)  # annotations whose values are checked

Record = TypeVar("Record")


def record_state(record: Any) -> State:
    """Returns the fields of a dataclass that a file holds; dataclasses among them become mappings."""

    def plain(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(plain, value))
        return record_state(value) if is_dataclass(value) else value

    return {name: plain(getattr(record, name)) for name in _declared(type(record))}


def record_from_state(kind: type[Record], state: Mapping[str, Any], **others: Any) -> Record:
    """Returns the dataclass of a state and of fields that no file holds."""
    # Raises ValueError unless every field of the state is there and of its type.
    declared, values = _declared(kind), dict(state)
    if declared.keys() != state.keys():
        raise ValueError(f"{kind.__name__} has the fields {', '.join(declared)}, the file {', '.join(state)}")
    for name, annotation in declared.items():
        value, inner = state[name], next(iter(get_args(annotation)), annotation)
        if isinstance(annotation, type) and is_dataclass(annotation):
            values[name] = record_from_state(annotation, value)
        elif isinstance(inner, type) and is_dataclass(inner):
            values[name] = tuple(record_from_state(inner, one) for one in value)
        elif annotation in PLAIN:
            allowed = (int, float) if annotation is float else annotation
            if not isinstance(value, allowed) or (isinstance(value, bool) and annotation is not bool):
                raise ValueError(f"{kind.__name__}.{name} is {type(value).__name__}; it must be {annotation.__name__}")
        if isinstance(value, Tensor) and value.is_floating_point() and not bool(value.isfinite().all()):
            raise ValueError(f"{kind.__name__}.{name} holds NaN or infinity")
    return kind(**values, **others)


def _declared(kind: Any) -> dict[str, Any]:
    """Types of the fields by name, without those that the class says are not in files."""
    others = getattr(kind, "not_in_files", ())
    return {field.name: field.type for field in fields(kind) if field.init and field.name not in others}


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
