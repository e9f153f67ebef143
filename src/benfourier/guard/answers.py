"""Logits and numbers of images, from one forward pass where the detector only listens."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benfourier.data.draws import names_by_content
from benfourier.detectors.detector import Detector
from benfourier.detectors.listening import finite, listen
from benfourier.detectors.method import Listening
from benfourier.errors import ImageError, ResponseError, check_whole
from benfourier.subjects.features import MEMORY, fitting_batch
from benfourier.subjects.subject import Subject

Images = Tensor | Sequence[Tensor]


@dataclass(frozen=True, eq=False)
class Answers:
    """What network and detector say of some images.

    Args:
        places: of the images among those given.
        logits: the network's, (n, classes).
        numbers: the detector's measure, float64 (n, D).
        scores: the detector's, float64 (n,); higher is more adversarial.
    """

    places: list[int]
    logits: Tensor
    numbers: Tensor
    scores: Tensor


def answers(detector: Detector, images: Sequence[Tensor], *, batch: int | None = None) -> Iterator[Answers]:
    """Yields the answers to checked images (C, H, W), batch by batch, those of one shape together."""
    size = None if batch is None else check_whole("batch", batch)
    groups: dict[object, list[int]] = {}
    for place, image in enumerate(images):
        groups.setdefault((image.shape, image.dtype, image.device), []).append(place)
    for places in groups.values():
        count = size or _fitting(detector.subject, images[places[0]])
        for start in range(0, len(places), count):
            chosen = places[start : start + count]
            yield _answered(detector, chosen, torch.stack([images[place] for place in chosen]))


def checked(subject: Subject, images: Images, first: int = 0) -> list[Tensor]:
    """Returns images one by one, each (C, H, W), or raises ImageError unless the subject takes them.

    Args:
        subject: says what its images look like.
        images: a tensor (N, C, H, W), one image (C, H, W), or several of any sizes.
        first: what the first one's place is called in messages.
    """
    if isinstance(images, Tensor) and images.ndim != 3:
        subject.check(images)
        return list(images.unbind())
    found = [images] if isinstance(images, Tensor) else _listed(images)
    for place, image in enumerate(found):
        try:
            if not isinstance(image, Tensor) or image.ndim != 3:
                told = f"shape {tuple(image.shape)}" if isinstance(image, Tensor) else type(image).__name__
                raise ImageError(f"it is of {told}; each image must be a floating tensor (C, H, W)")
            subject.check(image.unsqueeze(0))
        except ImageError as error:
            raise ImageError(f"image {first + place}: {error}") from error
    return found


def _listed(images: object) -> list[Tensor]:
    if not isinstance(images, Iterable) or isinstance(images, str | bytes):
        raise ImageError(f"images are {type(images).__name__}; they must be a tensor, or several tensors (C, H, W)")
    found = list(images)
    if not found:
        raise ImageError("there are no images; give at least one")
    return found


def _answered(detector: Detector, places: list[int], images: Tensor) -> Answers:
    subject, measure, ids = detector.subject, detector.measure, names_by_content(images)
    with torch.no_grad():
        if isinstance(measure, Listening):
            logits, (numbers,) = listen(subject, images, [measure], ids)
        else:
            logits, numbers = subject.logits(images), finite(measure.work(subject, images, ids), ids)
    bad = (logits.isnan() | logits.isposinf()).any(1).nonzero().flatten().tolist()
    if bad:
        raise ResponseError(
            f"the logits of image {places[bad[0]]} hold NaN or infinity; check the image and the network's weights"
        )
    return Answers(places, logits, numbers, detector.classifier.score(numbers))


def _fitting(subject: Subject, image: Tensor) -> int:
    return fitting_batch(subject.plan(tuple(image.shape)), MEMORY, subject.dtype.itemsize)
