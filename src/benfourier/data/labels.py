"""Which label each image file of a folder has: by a labels.csv, or by the sub-folder in which it lies."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from benfourier.data.source import CLASSES
from benfourier.errors import InputError, OptionError

TABLE = "labels.csv"
FILE_COLUMNS = ("file", "filename", "image", "path")
NAME_COLUMNS = ("class_name", "class", "name")
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True, eq=False)
class Labelled:
    """Files below a folder, with their labels and the names of the classes."""

    files: tuple[str, ...]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]


def labelled_files(folder: Path, column: str | None = None, classes: Sequence[str] | None = None) -> Labelled:
    """Returns the image files below a folder with their labels, in the order of labels.csv or of their names.

    Args:
        folder: holds labels.csv, or one sub-folder per class.
        column: the column of labels.csv that holds the labels; by default "label" or the only "label...".
        classes: names of the classes in the order of the labels; by default as labels.csv tells, or sorted.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: it is not a folder; give a folder of images")
    if (folder / TABLE).is_file():
        return _by_table(folder / TABLE, column, classes)
    if column is not None:
        raise OptionError(f"{folder}: column is {column!r}, but there is no {TABLE}; leave it out")
    return _by_folder(folder, classes)


def _by_folder(folder: Path, classes: Sequence[str] | None) -> Labelled:
    """Files with the name of the sub-folder as label; other files beside them are left alone."""
    homes = sorted(home for home in folder.iterdir() if home.is_dir() and not home.name.startswith("."))
    pairs = [(file.relative_to(folder).as_posix(), home.name) for home in homes for file in sorted(home.rglob("*.*"))]
    pairs = [pair for pair in pairs if _is_picture(pair[0])]
    if not pairs:
        raise InputError(f"{folder}: it holds neither {TABLE} nor class folders with images; add one of them")
    names = tuple(classes or [home.name for home in homes])
    files, labels = zip(*pairs, strict=True)
    return Labelled(files, _places(labels, names, folder), names)


def _is_picture(file: str) -> bool:
    """Whether a file's name is that of an image, and nothing in it is hidden."""
    return file.lower().endswith(SUFFIXES) and not any(word.startswith(".") for word in file.split("/"))


def _by_table(table: Path, column: str | None, classes: Sequence[str] | None) -> Labelled:
    rows = rows_of(table)
    columns = list(rows[0])
    label_column = _label_column(columns, column, table)
    files = files_of(table, rows)
    words = [row[label_column] for row in rows]
    if "" in words:
        raise InputError(f"{table}: line {words.index('') + 2} has no {label_column}; every image needs a label")
    if not all(word.removeprefix("-").isdecimal() for word in words):
        names = tuple(classes or sorted(set(words)))
        return Labelled(files, _places(words, names, table), names)
    for place, word in enumerate(words, 2):
        if not 0 <= int(word) < CLASSES:
            told = f"line {place} has the label {word}; labels count classes from 0, {CLASSES:,} at most"
            raise InputError(f"{table}: {told}")
    labels = np.array([int(word) for word in words], np.int64)
    names = tuple(classes or _names(labels, rows, columns, table))
    if labels.max() >= len(names):
        raise InputError(f"{table}: label {labels.max()} is unknown; there are {len(names)} classes, from 0 on")
    return Labelled(files, labels, names)


def files_of(table: Path, rows: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Returns the files that the lines of a table name, as paths below its folder."""
    column = next((name for name in FILE_COLUMNS if name in rows[0]), None)
    if column is None:
        raise InputError(f"{table}: its columns are {', '.join(rows[0])}; one must be {' or '.join(FILE_COLUMNS)}")
    return tuple(_inside(row[column], place, table) for place, row in enumerate(rows, 2))


def rows_of(table: Path) -> list[dict[str, str]]:
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
        told = f"column is {column!r}" if column else "the column of the labels is not clear"
        example = f"{table.parent.name}:{(likely or columns)[0]}"
        raise OptionError(
            f"{table}: {told}; its columns are {', '.join(columns)}; add one to the path, as in {example}"
        )
    return column


def _inside(file: str, place: int, table: Path) -> str:
    """The file as a path below the table's folder."""
    path = PurePosixPath(file.replace("\\", "/"))
    if not path.parts or path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
        raise InputError(f"{table}: line {place} names the file {file!r}; it must lie in the table's folder")
    return path.as_posix()


def _names(
    labels: NDArray[np.int64], rows: Sequence[Mapping[str, str]], columns: Sequence[str], table: Path
) -> tuple[str, ...]:
    """Names by label: from the column of names, and numbers for labels that do not occur."""
    names = list(map(str, range(int(labels.max()) + 1)))
    column = next((name for name in NAME_COLUMNS if name in columns), None)
    if column is None:
        return tuple(names)
    known: dict[int, str] = {}
    for label, row in zip(labels.tolist(), rows, strict=True):
        if known.setdefault(label, row[column]) != row[column]:
            told = f"label {label} is called {known[label]!r} and {row[column]!r}"
            raise InputError(f"{table}: {told}; one label has one name")
        names[label] = row[column] or names[label]
    return tuple(names)


def _places(words: Sequence[str], classes: tuple[str, ...], where: Path) -> NDArray[np.int64]:
    """The place of each word among the classes."""
    places = {name: place for place, name in enumerate(classes)}
    unknown = sorted(set(words) - places.keys())
    if unknown:
        raise InputError(f"{where}: label {unknown[0]!r} is unknown; the classes are {', '.join(classes)}")
    return np.array([places[word] for word in words], np.int64)
