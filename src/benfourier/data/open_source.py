"""Open a source by one word, as on a command line; its kind is read from the file or folder."""

import html
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from benfourier.data.folders import TABLE, folder, table_files, table_rows
from benfourier.data.formats import CIFAR10_RECORD, EMBEDDED, READERS, embedded, kind_of_folder, read_bytes
from benfourier.data.sources import Source
from benfourier.errors import InputError, OptionError

Credit = Callable[[str], str]  # from the id of an image to its credit
COLUMN = re.compile(r"\{(\w+)\}")
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
    """Returns the source that a word names: an embedded one, a file or a folder, by its content.

    Args:
        text: "mnist-5k", "digits", or a path; ":test" at its end names a part, or the label column of a labels.csv.
        classes: for folders of images: names of the classes in the order of the labels.
        channels: for folders of images: 1 for grey, 3 for colour.
        size: for folders of images: height and width, or one number for both.
        resize: for folders of images: "exact", "shorter-side-crop" or "stretch"; as for a Classifier.
    """
    if text in EMBEDDED:
        return embedded(text)
    path, part = split_path(text)
    kind = kind_of_folder(path) if path.is_dir() else _kind_of_file(path)
    if kind is not None:
        return READERS[kind](path, part)
    return folder(path, column=part, classes=classes, channels=channels, size=size, resize=resize)


def split_path(text: str) -> tuple[Path, str | None]:
    """Returns a path that exists, and the word behind its last colon unless that belongs to the path."""
    path, (before, _, word) = Path(text), text.rpartition(":")
    with suppress(OSError, ValueError):  # words that no file can be called
        if text and path.exists():
            return path, None
        if before and word.isidentifier() and Path(before).exists():
            return Path(before), word
    raise InputError(f"source {text!r} is neither an embedded one nor a file or folder that exists; {ALLOWED}")


def image_credits(source: str, text: str) -> Credit:
    """Returns a function from an image's id to its credit; empty for images that labels.csv does not list.

    A word in braces in the text, such as {author}, stands for a column of the source's labels.csv.
    """
    columns = COLUMN.findall(text)
    if not columns:
        return lambda _: text
    table = None if source in EMBEDDED else split_path(source)[0] / TABLE
    if table is None or not table.is_file():
        raise OptionError(f"credit is {text!r}, but {source} has no {TABLE} with {columns[0]!r}; leave the braces out")
    rows = table_rows(table)
    for column in columns:
        if column not in rows[0]:
            allowed = ", ".join(rows[0])
            raise OptionError(f"credit is {text!r}, but {column!r} is no column of {table}; allowed: {allowed}")
    by_file = dict(zip(table_files(table, rows), rows, strict=True))

    def credit(name: str) -> str:
        row = by_file.get(name)
        # tables from the web hold entities such as &#x27;
        return "" if row is None else COLUMN.sub(lambda match: html.unescape(row[match[1]]), text)

    return credit


def _kind_of_file(path: Path) -> str:
    """The reader of a file, by its first bytes, and for CIFAR-10, which has none of its own, by its length."""
    start = read_bytes(path, 6)
    for kind, signatures in _SIGNATURES.items():
        if start.startswith(signatures):
            return kind
    if path.suffix == ".bin" or (start and path.stat().st_size % CIFAR10_RECORD == 0):
        return "cifar10"
    raise InputError(f"{path}: it begins with {start.hex(' ') or 'nothing'}, which is no known format; {ALLOWED}")


_SIGNATURES: dict[str, tuple[bytes, ...]] = {
    "npz": (b"PK", b"\x93NUMPY"),
    "mnist": (b"\0\0\x08\x01", b"\0\0\x08\x03", b"\x1f\x8b"),
    "svhn": (b"MATLAB",),
}
