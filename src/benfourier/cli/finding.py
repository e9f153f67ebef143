"""Image files that a command line names: files, folders, patterns, and what comes on standard input."""

import sys
from collections.abc import Iterable, Iterator
from glob import has_magic
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benfourier.data.reading import Refusal

STDIN = "-"


def found(paths: Iterable[Path], refusals: "list[Refusal]") -> Iterator[tuple[str, Path]]:
    """Yields names and files: as given, below folders in order of name, by pattern, and from standard input for `-`.

    Standard input holds names, one per line or with NUL between, or one image. A picture's file lasts until the next.
    """
    for path in paths:
        if str(path) == STDIN:
            yield from _piped(refusals)
        else:
            for file in _expanded(path, refusals):
                yield str(file), file


def _expanded(path: Path, refusals: "list[Refusal]") -> Iterator[Path]:
    """The files that one word stands for."""
    from benfourier.data.reading import Refusal

    try:
        yield from _matching(path, refusals)
    except (OSError, ValueError) as error:
        refusals.append(Refusal(str(path), f"this is no name of a file or folder ({error}); check it"))


def _matching(path: Path, refusals: "list[Refusal]") -> Iterator[Path]:
    from benfourier.data.reading import Refusal

    if path.is_dir():
        below = _below(path)
        if not below:
            refusals.append(Refusal(str(path), "there are no image files in this folder; check the name"))
        yield from below
    elif has_magic(str(path)) and not path.exists():
        matches = sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))))
        if not matches:
            refusals.append(Refusal(str(path), "no file has a name of this pattern; check it"))
        for match in matches:
            yield from _below(match) if match.is_dir() else [match]
    else:
        yield path


def _below(folder: Path) -> list[Path]:
    """The image files below a folder, hidden ones left out."""
    from benfourier.data.labels import SUFFIXES

    files = [file for file in sorted(folder.rglob("*")) if file.suffix.lower() in SUFFIXES and file.is_file()]
    return [file for file in files if not any(word.startswith(".") for word in file.relative_to(folder).parts)]


def _piped(refusals: "list[Refusal]") -> Iterator[tuple[str, Path]]:
    from benfourier.data.reading import Refusal

    content = sys.stdin.buffer.read()
    names = _names(content)
    if names is None:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "stdin"
            file.write_bytes(content)
            yield "standard input", file
        return
    if not names:
        refusals.append(Refusal("standard input", "it holds neither names of files nor an image; check what writes it"))
    for name in names:
        for file in _expanded(Path(name), refusals):
            yield str(file), file


def _names(content: bytes) -> list[str] | None:
    """The names in a text; None for an image: every format of images has bytes that are no text near its beginning."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    names = text.split("\0") if "\0" in text else text.splitlines()
    return [name for name in names if name]
