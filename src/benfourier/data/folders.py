"""Folders of image files as a source; files are read when they are asked for."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benfourier.data.files import read_image, read_size
from benfourier.data.labels import Labelled, labelled_files
from benfourier.data.resize import RULES, fit
from benfourier.data.source import check_unique, checked_indices
from benfourier.errors import ImageError, OptionError, check_choice, check_whole
from benfourier.store.digest import digest_of


@dataclass(frozen=True, eq=False)
class FolderSource:
    """A source whose images are files; the id of an image is its path below the folder.

    Args:
        folder: where the files lie.
        listed: which files, with which labels.
        channels: 1 for grey, 3 for colour.
        size: height and width; None if all files have the same.
        resize: what becomes of files of another size: "exact" refuses them, "shorter-side-crop" and "stretch" scale.
    """

    folder: Path
    listed: Labelled
    channels: int = 3
    size: tuple[int, int] | None = None
    resize: str = "exact"

    def __post_init__(self) -> None:
        check_choice("resize", self.resize, RULES)
        if self.channels not in (1, 3):
            raise OptionError(f"channels is {self.channels!r}; allowed: 1 for grey, 3 for colour")
        check_unique(self.ids, str(self.folder))

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def ids(self) -> tuple[str, ...]:
        """Paths below the folder, with forward slashes."""
        return self.listed.files

    @property
    def labels(self) -> NDArray[np.int64]:
        """One per image."""
        return self.listed.labels

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the labels."""
        return self.listed.classes

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of names, labels, options and the bytes of every file."""
        options = f"{self.channels} {self.size} {self.resize}"
        held = (_bytes(self.folder / file) for file in self.ids)
        return digest_of((options, *self.ids, "classes", *self.classes, self.labels, *map(digest_of, held)))

    @cached_property
    def height_width(self) -> tuple[int, int]:
        """The size of all images: the one given, or the one that all headers state."""
        if self.size is not None:
            return self.size
        counted = Counter(size for size in map(_stated_size, self._paths(range(len(self)))) if size)
        if len(counted) > 1:
            told = ", ".join(f"{count} of {h}×{w}" for (h, w), count in counted.most_common(3))
            raise OptionError(
                f"{self.folder}: its images have {len(counted)} sizes ({told}); "
                'give size=, and resize="shorter-side-crop" or "stretch"'
            )
        if not counted:
            raise OptionError(f"{self.folder}: none of its {len(self)} files can be read as an image; look at them")
        return next(iter(counted))

    def pixels(self, indices: ArrayLike) -> NDArray[np.uint8]:
        """Returns the images at some places, (n, H, W, C); raises ImageError with the name of the first bad file."""
        chosen = checked_indices(indices, len(self))
        found = np.empty((len(chosen), *self.height_width, self.channels), np.uint8)
        for place, path in enumerate(self._paths(chosen)):
            picture = read_image(path, self.channels)
            try:
                found[place] = fit(picture, self.height_width, self.resize)
            except ImageError as error:
                raise ImageError(f"{path}: {error}") from error
        return found

    def _paths(self, indices: Sequence[int] | NDArray[np.intp]) -> list[Path]:
        return [self.folder / self.ids[index] for index in indices]


def folder(
    path: str | PathLike[str],
    *,
    column: str | None = None,
    classes: Sequence[str] | None = None,
    channels: int = 3,
    size: int | tuple[int, int] | None = None,
    resize: str = "exact",
) -> FolderSource:
    """Returns the images below a folder that has a labels.csv, or one sub-folder per class.

    Args:
        path: the folder.
        column: the column of labels.csv that holds the labels; by default "label", or the only one named "label...".
        classes: names in the order of the labels; by default as labels.csv tells, or sub-folders in order of name.
        channels: 1 for grey, 3 for colour.
        size: height and width, or one number for both; None if all files have the same.
        resize: what becomes of files of another size: "exact" refuses them, "shorter-side-crop" and "stretch" scale.
    """
    where = Path(path)
    sides = (size, size) if isinstance(size, int) else size
    if sides is not None:
        if len(sides) != 2:
            raise OptionError(f"size is {size!r}; it must be one whole number, or height and width")
        sides = (check_whole("size", sides[0]), check_whole("size", sides[1]))
    return FolderSource(where, labelled_files(where, column, classes), channels, sides, resize)


def _stated_size(path: Path) -> tuple[int, int] | None:
    """The size in a file's header; None for files that will be refused when they are read."""
    try:
        return read_size(path)
    except ImageError:
        return None


def _bytes(path: Path) -> list[bytes]:
    """A file's content; nothing for a file that cannot be opened."""
    try:
        return [path.read_bytes()]
    except OSError:
        return []
