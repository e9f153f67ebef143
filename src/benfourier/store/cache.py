"""Results on disk, each under the digest of everything that it depends on."""

import os
import time
from collections.abc import Callable
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
OLD = 24 * 3600  # seconds; a temporary file as old as that belongs to a run that was killed
ADVICE = f"give another folder, set {VARIABLE}, or go without a cache"


@dataclass(frozen=True)
class Cache:
    """Arrays in a folder, one file per key.

    Files appear whole or not at all, and what is stored under a key is always the same, so that processes may share
    a folder: at worst two of them make the same thing.

    Args:
        folder: where the files lie.
    """

    folder: Path

    def path(self, key: str) -> Path:
        """Returns where a key's file is, or would be."""
        return self.folder / key[:2] / f"{key}.safetensors"

    def get(self, key: str) -> Arrays | None:
        """Returns what is stored under a key; None if there is nothing, or something damaged."""
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
    """Returns what is stored under a key, or makes and stores it; and whether it was stored."""
    found = None if cache is None else cache.get(key)
    if found is not None:
        return found, True
    made = make()
    if cache is not None:
        cache.put(key, made)
    return made, False


def open_cache(where: bool | str | PathLike[str]) -> Cache | None:
    """Returns the cache in a folder, which is made if need be; None if none is wanted.

    Args:
        where: a folder; True for the default one, False for no cache.
    """
    if where is False:
        return None
    folder = default_folder() if where is True else Path(where).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
        _sweep(folder)
    except OSError as error:
        raise StoreError(f"{folder}: the cache cannot be written there ({error}); {ADVICE}") from error
    return Cache(folder.resolve())


def default_folder() -> Path:
    """Returns $BENFOURIER_CACHE, or benfourier in $XDG_CACHE_HOME or ~/.cache, on every system."""
    own, shared = (os.environ.get(name) for name in (VARIABLE, "XDG_CACHE_HOME"))
    try:
        if own:
            return Path(own).expanduser()
        return (Path(shared) if shared else Path.home() / ".cache") / "benfourier"
    except RuntimeError as error:
        raise StoreError(f"there is no home folder to keep a cache in ({error}); {ADVICE}") from error


def _sweep(folder: Path) -> None:
    """Removes temporary files that killed runs left behind."""
    for left in folder.glob("??/.*.safetensors.*"):
        try:
            if time.time() - left.stat().st_mtime > OLD:
                left.unlink()
        except FileNotFoundError:
            continue  # another process swept it
