"""Example images that lie beside a ledger, as data inside the page."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benfourier.report.results import Results
from benfourier.store.records import Picture

PNG = b"\x89PNG\r\n\x1a\n"
LARGEST = 500_000  # bytes; the page stays one that a phone can open
KINDS = ("clean", "attacked", "perturbation")


@dataclass(frozen=True)
class Thumbnail:
    """A picture with its files read.

    Args:
        picture: what the ledger says of it.
        images: data addresses of clean, attacked and perturbation; empty where a file is missing or no small PNG.
    """

    picture: Picture
    images: tuple[str, ...]

    @property
    def shown(self) -> tuple[tuple[str, str, str], ...]:
        """Address, heading and words for those who cannot see it, of each image that could be read."""
        picture = self.picture
        heads = (picture.label, picture.fooled, f"difference ×{picture.magnified:g}")
        words = (
            f"clean image {picture.id}, seen as {picture.label}",
            f"the same under {picture.attack}, seen as {picture.fooled}",
            f"what {picture.attack} added, {picture.magnified:g} times magnified",
        )
        return tuple(each for each in zip(self.images, heads, words, strict=True) if each[0])


def thumbnails(results: Results, folder: Path) -> Iterator[Thumbnail]:
    """Yields the pictures of a ledger in that folder, in the order of their attacks."""
    for picture in sorted(
        results.pictures,
        key=lambda picture: results.attacks.index(picture.attack) if picture.attack in results.attacks else -1,
    ):
        yield Thumbnail(picture, tuple(_data(folder, name) for name in picture.files))


def _data(folder: Path, name: str) -> str:
    """A file as a data address; nothing if it is elsewhere than below the folder, missing, too large or no PNG."""
    path, home = (folder / name).resolve(), folder.resolve()
    if not path.is_relative_to(home) or not path.is_file() or path.stat().st_size > LARGEST:
        return ""
    content = path.read_bytes()
    return "data:image/png;base64," + base64.b64encode(content).decode() if content.startswith(PNG) else ""
