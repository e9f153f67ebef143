"""Records as JSON and back: arrays as base64 of little-endian float32, NaN and infinity as words."""

import base64
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from benfourier.errors import StoreError
from benfourier.store import records
from benfourier.store.records import Record

KINDS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in get_args(Record)}


def plain(value: Any) -> Any:
    """Returns a record, or what is in one, as JSON can hold it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray):
        return base64.b64encode(value.astype("<f4").tobytes()).decode()
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else str(float(value))
    return value.item() if isinstance(value, np.generic) else value


def record_of(content: Any) -> Record:
    """Returns the record that one line holds, or raises StoreError."""
    kind = content.get("record") if isinstance(content, dict) else None
    if kind not in KINDS:
        raise StoreError(f"it holds {kind!r}; known records: {', '.join(KINDS)}; it may be of a newer version")
    given = {key: value for key, value in content.items() if key != "record"}
    try:
        made: Record = _built(KINDS[kind], given)
    except (TypeError, ValueError, KeyError) as error:
        raise StoreError(f"it holds a damaged {kind} ({error}); remove the line, and run the plan again") from error
    return made


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind, vars(records))


def _built(hint: Any, value: Any) -> Any:
    """A value as its type says."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return None if value is None else _built(next(part for part in parts if part is not NoneType), value)
    if origin is np.ndarray:
        return np.frombuffer(base64.b64decode(value, validate=True), "<f4").copy()
    if is_dataclass(hint) and isinstance(hint, type):
        return hint(**{key: _built(_hints(hint)[key], part) for key, part in value.items()})
    if origin is tuple:
        each = [parts[0]] * len(value) if parts[-1] is Ellipsis else parts
        return tuple(_built(part, entry) for part, entry in zip(each, value, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: _built(parts[1], part) for key, part in value.items()}
    if hint is Any:
        return value
    if hint is float:
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise TypeError(f"{value!r} is no {hint.__name__}")
    return value
