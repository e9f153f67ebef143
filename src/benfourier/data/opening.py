"""One word, as on a command line, becomes a source: its kind is found by looking."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from benfourier.data.arrays import npz
from benfourier.data.embedded import EMBEDDED, embedded
from benfourier.data.folders import folder
from benfourier.data.labels import TABLE
from benfourier.data.official import CIFAR10_RECORD, cifar10, holds_official_files, mnist, svhn
from benfourier.data.source import Source
from benfourier.errors import InputError, OptionError

ALLOWED = (
    f"allowed: {', '.join(EMBEDDED)}; an .npz file; a folder with {TABLE} or one sub-folder per class; a file or "
    "folder of MNIST (idx, also .gz), CIFAR-10 (.bin) or SVHN (.mat); where there are parts, one of them "
    "after a colon, as in data.npz:test"
)


def open_source(
    text: str,
    *,
    classes: Sequence[str] | None = None,
    channels: int = 3,
    size: int | tuple[int, int] | None = None,
    resize: str = "exact",
) -> Source:
    """Returns the source that a word names: an embedded one, a file or a folder, found by looking at it.

    Args:
        text: "mnist-5k", "digits", or a path; ":test" at its end names a part, or the label column of a labels.csv.
        classes: for folders of images: names of the classes in the order of the labels.
        channels: for folders of images: 1 for grey, 3 for colour.
        size: for folders of images: height and width, or one number for both.
        resize: for folders of images: "exact", "shorter-side-crop" or "stretch".
    """
    if text in EMBEDDED:
        return embedded(text)
    path, part = path_and_part(text)
    if path.is_dir():
        kind = holds_official_files(path)
        if kind is not None:
            return _OFFICIAL[kind](path, part)
        if part is not None and not (path / TABLE).is_file():
            raise OptionError(f"{path}: part is {part!r}, but a folder of images has none; leave it out")
        return folder(path, column=part, classes=classes, channels=channels, size=size, resize=resize)
    kind = _kind(path)
    return npz(path, part) if kind == "npz" else _OFFICIAL[kind](path, part)


def path_and_part(text: str) -> tuple[Path, str | None]:
    """Returns a path that exists, and the word behind its last colon if that is no part of it."""
    path, (before, _, word) = Path(text), text.rpartition(":")
    with suppress(OSError, ValueError):  # of words that no file can be called
        if text and path.exists():
            return path, None
        if before and word.isidentifier() and Path(before).exists():
            return Path(before), word
    raise InputError(f"source {text!r} is neither an embedded one nor a file or folder that exists; {ALLOWED}")


def _kind(path: Path) -> str:
    """What a file is, by its first bytes, and for CIFAR-10, which has none of its own, by its length."""
    try:
        with path.open("rb") as file:
            start = file.read(6)
    except OSError as error:
        raise InputError(
            f"{path}: it cannot be opened ({error.strerror}); check the name and the permissions"
        ) from error
    for kind, begins in _BEGINNINGS.items():
        if start.startswith(begins):
            return kind
    if path.suffix == ".bin" or (start and path.stat().st_size % CIFAR10_RECORD == 0):
        return "cifar10"
    raise InputError(f"{path}: it begins with {start.hex(' ') or 'nothing'}, which is no known format; {ALLOWED}")


_OFFICIAL: dict[str, Callable[[Path, str | None], Source]] = {"mnist": mnist, "cifar10": cifar10, "svhn": svhn}
_BEGINNINGS: dict[str, tuple[bytes, ...]] = {
    "npz": (b"PK", b"\x93NUMPY"),
    "mnist": (b"\0\0\x08\x01", b"\0\0\x08\x03", b"\x1f\x8b"),
    "svhn": (b"MATLAB",),
}
