"""Examples with what they are called in tables: the data they come from, and the side of the split they are on."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from benfourier.data.examples import Examples
from benfourier.detectors.rows import parts_of
from benfourier.errors import InputError
from benfourier.store.digest import digest_of
from benfourier.subjects.subject import Subject
from benfourier.subjects.weights import digest_of_weights

CLEAN, NOISY = "clean", "noisy"
TRAIN, TEST, OUTSIDE = "train", "test", "out-of-sample"


@dataclass(frozen=True, eq=False)
class Part:
    """Examples on one side of a split.

    Args:
        source: label of the data.
        split: train, test or out-of-sample.
        examples: clean images with their twins.
    """

    source: str
    split: str
    examples: Examples

    def __post_init__(self) -> None:
        if not (self.source and self.split):
            raise InputError(f"a part has source {self.source!r} and split {self.split!r}; give both a name")


@dataclass(frozen=True, eq=False)
class Kind:
    """The images of one kind in a part: clean, noisy, or those on which an attack succeeded.

    Args:
        part: they belong to.
        name: clean, noisy or the label of an attack.
        images: float32 (N, C, H, W).
        ids: source image of each.
    """

    part: Part
    name: str
    images: Tensor
    ids: tuple[str, ...]

    @property
    def identity(self) -> str:
        """What made the images, as a digest: the ids, the seed and how the examples were made."""
        examples = self.part.examples
        made = json.dumps([examples.seed, examples.noise_level, dict(examples.options)], sort_keys=True)
        return digest_of((self.part.source, self.part.split, self.name, made, *self.ids))


def kinds_of(part: Part) -> Iterator[Kind]:
    """Yields clean and noisy images, and each attack's where it succeeded; an attack without success is left out."""
    for found in parts_of(part.examples):
        yield Kind(part, found.kind, found.images, found.ids)


def digest_of_network(subject: Subject) -> str:
    """Returns a digest of weights, structure and scaling, the same on every machine."""
    scaling = repr((subject.bounds, subject.mean, subject.std))
    return digest_of((digest_of_weights(subject.module), repr(subject.module), scaling))
