"""The images of a source, as a verb's options choose them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benfourier.errors import check_whole

if TYPE_CHECKING:
    from torch import Tensor

    from benfourier.data.funnel import Funnel
    from benfourier.data.reading import Refusal
    from benfourier.subjects.subject import Subject


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images as a subject takes them, with what belongs to them; how many fell, and which could not be read."""

    images: "Tensor"
    labels: "Tensor"
    ids: tuple[str, ...]
    funnel: "Funnel"
    refusals: "tuple[Refusal, ...]"


def pictures_of(subject: "Subject", data: str, limit: int | None, seed: int, *, strict: bool) -> Pictures:
    """Returns the images of a source; with a limit, that many, its classes in their shares.

    Args:
        subject: says which size, channels, classes and resize rule apply.
        data: names the source.
        limit: how many at most; None for all.
        seed: another seed chooses others.
        strict: refuse the whole source if one image cannot be read.
    """
    import torch

    from benfourier.data.funnel import Funnel
    from benfourier.data.opening import open_source
    from benfourier.data.reading import read
    from benfourier.data.splits import spread
    from benfourier.subjects.images import images

    source = open_source(
        data,
        classes=subject.classes,
        channels=subject.known_channels or 3,
        size=subject.height_width,
        resize=subject.resize,
    )
    funnel = Funnel(((f"in {source.name}", len(source)),))
    chosen = spread(source.ids, source.labels, seed=seed)
    if limit is not None:
        chosen = chosen[: check_whole("limit", limit)]
        funnel = funnel.then("chosen", len(chosen))
    reading = read(source, chosen, strict=strict)
    found = reading.images
    if reading.refusals:
        funnel = funnel.then("readable", len(found))
    taken = images(found.pixels, subject, layout="NHWC")
    return Pictures(taken, torch.from_numpy(found.labels), found.ids, funnel, reading.refusals)
