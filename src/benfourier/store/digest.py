"""Digests of contents: the same parts give the same text, on every machine."""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Part = str | bytes | NDArray[np.generic]


def digest_of(parts: Iterable[Part]) -> str:
    """Returns the SHA-256 of the parts in hexadecimal; where one part ends and the next begins counts too."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            total.update(f"{part.dtype.str}{part.shape}".encode())
            total.update(np.ascontiguousarray(part).data)
        else:
            content = part.encode() if isinstance(part, str) else part
            total.update(f"{len(content)}:".encode())
            total.update(content)
    return total.hexdigest()
