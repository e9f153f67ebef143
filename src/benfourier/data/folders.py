"""Folders of image files as a source, labelled by sub-folder or by a labels.csv; files are read when asked for."""

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from benfourier.data.image_files import check_size, parse_rule, read_image, read_size
from benfourier.data.sources import MAX_CLASSES, Content, Source, check_ids
from benfourier.errors import ImageError, InputError, OptionError
from benfourier.store.artifact import FilePath, digest_of

TABLE = "labels.csv"
FILE_COLUMNS = ("file", "filename", "image", "path")
NAME_COLUMNS = ("class_name", "class", "name")
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")

Labels = tuple[tuple[str, ...], NDArray[np.int64], tuple[str, ...]]  # files, their labels, names of the classes


@dataclass(frozen=True, eq=False)
class FolderSource(Source):
    """A source whose images are files; the id of an image is its path below the folder."""

    folder: Path
    ids: tuple[str, ...]  # paths below the folder, with forward slashes
    labels: NDArray[np.int64]  # one per file
    classes: tuple[str, ...]  # names of the classes, in the order of the labels
    channels: int = 3  # 1 for grey, 3 for colour
    size: tuple[int, int] | None = None  # height and width; None if all files have the same
    resize: str = "exact"  # what becomes of files of another size, one of RESIZE_RULES

    def __post_init__(self) -> None:
        parse_rule(self.resize, self.size)
        if self.channels not in (1, 3):
            raise OptionError(f"channels is {self.channels!r}; allowed: 1 for grey, 3 for colour")
        check_ids(self.ids, len(self.labels), str(self.folder))
        object.__setattr__(self, "name", self.folder.resolve().name)

    @cached_property
    def image_size(self) -> tuple[int, int]:
        """Height and width of all images: as the size says, or the one that all headers state."""
        if self.size is not None:
            return self.size
        counts: Counter[tuple[int, int]] = Counter()
        for name in self.ids:
            with suppress(ImageError):  # such files are refused when they are read
                counts[read_size(self.folder / name)] += 1
        if len(counts) > 1:
            examples = ", ".join(f"{count} of {h}×{w}" for (h, w), count in counts.most_common(3))
            problem = f"its images have {len(counts)} sizes ({examples})"
            raise OptionError(f'{self.folder}: {problem}; give size=, and resize="shorter-side-crop" or "stretch"')
        if not counts:
            raise OptionError(f"{self.folder}: none of its {len(self)} files can be read as an image; look at them")
        return next(iter(counts))

    def _pixels(self, places: NDArray[np.intp]) -> NDArray[np.uint8]:
        pixels = np.empty((len(places), *self.image_size, self.channels), np.uint8)
        for row, place in enumerate(places):
            pixels[row] = read_image(self.folder / self.ids[place], self.channels, self.image_size, self.resize)
        return pixels

    def _content(self) -> Content:
        options = f"{self.channels} {self.size} {self.resize}"
        digests = []
        for name in self.ids:
            content = list[bytes]()  # stays empty for a file that cannot be opened
            with suppress(OSError):
                content.append((self.folder / name).read_bytes())
            digests.append(digest_of(content))
        return (options, *self.ids, "classes", *self.classes, self.labels, *digests)


def folder(
    path: FilePath,
    *,
    column: str | None = None,
    classes: Sequence[str] | None = None,
    channels: int = 3,
    size: int | tuple[int, int] | None = None,
    resize: str = "exact",
) -> FolderSource:
    """Returns the images below a folder that has a labels.csv, or one sub-folder per class.

    The column of labels.csv is by default "label", or the only one named "label..."; classes are by default those of
    labels.csv, or the sub-folders in order of name. One number as size stands for both sides.
    """
    where, sides = Path(path), check_size(size)
    if not where.is_dir():
        raise InputError(f"{where}: it is not a folder; give a folder of images")
    has_table = (where / TABLE).is_file()
    if column is not None and not has_table:
        raise OptionError(f"{where}: part or column {column!r} is named, but there is no {TABLE}; leave it out")
    labels = _by_table(where / TABLE, column, classes) if has_table else _by_folder(where, classes)
    return FolderSource(where, *labels, channels, sides, resize)


def _by_folder(folder: Path, classes: Sequence[str] | None) -> Labels:
    """Files with the name of the sub-folder as label; other and hidden files beside them are left alone."""
    folders = sorted(sub for sub in folder.iterdir() if sub.is_dir() and not sub.name.startswith("."))
    files = {file.relative_to(folder).as_posix(): sub.name for sub in folders for file in _visible_images(sub)}
    if not files:
        raise InputError(f"{folder}: it holds neither {TABLE} nor class folders with images; add one of them")
    names = tuple(classes or [sub.name for sub in folders])
    return tuple(files), _places(list(files.values()), names, folder), names


def image_files(folder: FilePath) -> list[Path]:
    """Returns the image files below a folder in order of name, hidden ones left out."""
    return [path for path in _visible_images(Path(folder)) if path.is_file()]


def _visible_images(folder: Path) -> list[Path]:
    """Paths below a folder that end as image files do, in order of name; nothing in them is hidden."""
    paths = sorted(path for path in folder.rglob("*.*") if path.name.lower().endswith(SUFFIXES))
    return [path for path in paths if not any(word.startswith(".") for word in path.relative_to(folder).parts)]


def _by_table(table: Path, column: str | None, classes: Sequence[str] | None) -> Labels:
    rows = table_rows(table)
    label_column = _label_column(list(rows[0]), column, table)
    files = table_files(table, rows)
    words = [row[label_column] for row in rows]
    if "" in words:
        raise InputError(f"{table}: line {words.index('') + 2} has no {label_column}; every image needs a label")
    if not all(word.removeprefix("-").isdecimal() for word in words):
        names = tuple(classes or sorted(set(words)))
        return files, _places(words, names, table), names
    for place, word in enumerate(words, 2):
        if not 0 <= int(word) < MAX_CLASSES:
            problem = f"line {place} has the label {word}"
            raise InputError(f"{table}: {problem}; labels count classes from 0, {MAX_CLASSES:,} at most")
    labels = np.array([int(word) for word in words], np.int64)
    names = tuple(classes or _names(labels, rows, table))
    if labels.max() >= len(names):
        raise InputError(f"{table}: label {labels.max()} is unknown; there are {len(names)} classes, from 0 on")
    return files, labels, names


def table_files(table: Path, rows: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Returns the files that the lines of a table name, as paths below its folder."""
    column = next((name for name in FILE_COLUMNS if name in rows[0]), None)
    if column is None:
        raise InputError(f"{table}: its columns are {', '.join(rows[0])}; one must be {' or '.join(FILE_COLUMNS)}")
    paths = [PurePosixPath(row[column].replace("\\", "/")) for row in rows]
    for place, path in enumerate(paths):
        if not path.parts or path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
            problem = f"line {place + 2} names the file {rows[place][column]!r}"
            raise InputError(f"{table}: {problem}; it must lie in the table's folder")
    return tuple(path.as_posix() for path in paths)


def table_rows(table: Path) -> list[dict[str, str]]:
    """Returns the lines of a table by column, without spaces around words."""
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{table}: it cannot be read as a table ({error}); save it as UTF-8 with commas") from error
    if not rows:
        raise InputError(f"{table}: it lists no files; its first line names the columns, such as file,label")
    for place, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise InputError(f"{table}: line {place} has not as many words as the first one; quote words with commas")
    return [{key.strip(): word.strip() for key, word in row.items()} for row in rows]


def _label_column(columns: Sequence[str], column: str | None, table: Path) -> str:
    likely = [name for name in columns if name.startswith("label")]
    if column is None and ("label" in likely or len(likely) == 1):
        return "label" if "label" in likely else likely[0]
    if column is None or column not in columns:
        problem = f"column is {column!r}" if column else "the column of the labels is not clear"
        example = f"{table.parent.name}:{(likely or columns)[0]}"
        allowed = f"its columns are {', '.join(columns)}"
        raise OptionError(f"{table}: {problem}; {allowed}; add one to the path, as in {example}")
    return column


def _names(labels: NDArray[np.int64], rows: Sequence[Mapping[str, str]], table: Path) -> tuple[str, ...]:
    """Names by label: from the column of names, and numbers for labels that do not occur."""
    names = list(map(str, range(int(labels.max()) + 1)))
    column = next((name for name in NAME_COLUMNS if name in rows[0]), None)
    if column is None:
        return tuple(names)
    known: dict[int, str] = {}
    for label, row in zip(labels.tolist(), rows, strict=True):
        if known.setdefault(label, row[column]) != row[column]:
            both = f"{known[label]!r} and {row[column]!r}"
            raise InputError(f"{table}: label {label} is called {both}; one label has one name")
        names[label] = row[column] or names[label]
    return tuple(names)


def _places(words: Sequence[str], classes: tuple[str, ...], where: Path) -> NDArray[np.int64]:
    """The place of each word among the classes."""
    places = {name: place for place, name in enumerate(classes)}
    unknown = sorted(set(words) - places.keys())
    if unknown:
        raise InputError(f"{where}: label {unknown[0]!r} is unknown; the classes are {', '.join(classes)}")
    return np.array([places[word] for word in words], np.int64)
