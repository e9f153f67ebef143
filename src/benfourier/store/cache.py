"""A cache on disk: arrays, each under the digest of everything that they depend on."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile

from benfourier.errors import StoreError
from benfourier.store import artifact
from benfourier.store.artifact import Arrays

KIND = "benfourier-cache"
SCHEMA = 1
VARIABLE = "BENFOURIER_CACHE"
OLD = 24 * 3600  # seconds; an older temporary file belongs to a run that was killed
ADVICE = f"give another folder, set {VARIABLE}, or go without a cache"


@dataclass(frozen=True)
class Cache:
    """Arrays in a folder, one file per key.

    Files appear as a whole or not at all, and a key always has the same content. So processes can share a folder; at
    worst two of them compute the same arrays.
    """

    folder: Path

    def path(self, key: str) -> Path:
        """Returns the path of a key's file, whether it exists or not."""
        return self.folder / key[:2] / f"{key}.safetensors"

    def get(self, key: str) -> Arrays | None:
        """Returns the arrays under a key; None if there is no file, or a damaged one."""
        try:
            manifest, arrays = artifact.read(self.path(key), KIND, SCHEMA)
        except StoreError:
            return None
        return arrays if manifest.get("key") == key else None

    def put(self, key: str, arrays: Arrays) -> None:
        """Stores arrays under a key."""
        path = self.path(key)
        try:
            path.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise StoreError(f"{path.parent}: this folder cannot be made ({error}); {ADVICE}") from error
        artifact.write(path, KIND, SCHEMA, {"key": key}, arrays)


def fetch(cache: Cache | None, key: str, make: Callable[[], Arrays]) -> tuple[Arrays, bool]:
    """Returns the arrays under a key, computed and stored if there are none; and whether they came from the cache."""
    arrays = None if cache is None else cache.get(key)
    if arrays is not None:
        return arrays, True
    arrays = make()
    if cache is not None:
        cache.put(key, arrays)
    return arrays, False


def open_cache(where: bool | str | PathLike[str]) -> Cache | None:
    """Returns the cache in a folder, made if it does not exist; False is no cache (None).

    True is $BENFOURIER_CACHE, or benfourier in $XDG_CACHE_HOME or ~/.cache, on every system.
    """
    if where is False:
        return None
    default = os.environ.get(VARIABLE) or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "benfourier")
    folder = Path(default if where is True else where)
    try:
        folder = folder.expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass  # the folder can be written to
        for path in folder.glob("??/.*.safetensors.*"):  # temporary files, some left behind by killed runs
            with suppress(FileNotFoundError):  # another process removed it
                if time.time() - path.stat().st_mtime > OLD:
                    path.unlink()
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        raise StoreError(f"{folder}: the cache cannot be written there ({error}); {ADVICE}") from error
    return Cache(folder.resolve())
