"""LID's network, trained on part of the embedded MNIST and kept in the cache, and the images it has not seen."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

import benfourier as bf
from benfourier.data.embedded import embedded
from benfourier.data.splits import split
from benfourier.store.cache import fetch, open_cache
from benfourier.store.digest import digest_of
from benfourier.subjects.naming import open_subject
from benfourier.subjects.recipe import Recipe
from benfourier.subjects.training import train
from benfourier.subjects.weights import fill, tensors_of

NETWORK, SOURCE = "lid-mnist", "mnist-5k"


@dataclass(frozen=True)
class Held:
    """A frozen subject in eval mode, held-out images that it classifies correctly, and those it learned from."""

    subject: bf.Subject
    images: Tensor
    labels: Tensor
    ids: tuple[str, ...]
    learned: Tensor
    learned_labels: Tensor

    def first(self, count: int) -> "Held":
        """Returns the same with fewer held-out images."""
        assert count <= len(self.images)
        return replace(self, images=self.images[:count], labels=self.labels[:count], ids=self.ids[:count])


def held_out_mnist(epochs: int, share: float) -> Held:
    """Returns the network trained for some epochs on all but a share of the images; trained once, kept in the cache."""
    source, recipe = embedded(SOURCE), Recipe(epochs=epochs, bf16=False)
    subject = _fresh()
    key = digest_of((bf.__version__, torch.__version__, repr(subject.module), source.digest, repr((recipe, share))))
    weights, _ = fetch(open_cache(True), key, lambda: _trained(recipe, share))
    fill(subject.module, {name: torch.from_numpy(array) for name, array in weights.items()}, "the cache")
    subject.module.eval().requires_grad_(False)
    learned, rows = split(source.ids, source.labels, {"learn": 1 - share, "held": share}, seed=recipe.seed).values()
    images, labels = _images(rows, subject), torch.from_numpy(source.labels[rows])
    right = (subject.logits(images).argmax(1) == labels).nonzero().flatten()
    ids = tuple(source.ids[rows[row]] for row in right.tolist())
    known = torch.from_numpy(source.labels[learned])
    return Held(subject, images[right], labels[right], ids, _images(learned, subject), known)


def _images(rows: np.ndarray, subject: bf.Subject) -> Tensor:
    found = bf.images(embedded(SOURCE).pixels(rows), subject)
    return found.clone(memory_format=torch.contiguous_format)


def _fresh() -> bf.Subject:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return open_subject(NETWORK)


def _trained(recipe: Recipe, share: float) -> dict[str, np.ndarray]:
    """The weights, learned from all but the held-out images."""
    subject = _fresh()
    train(subject, embedded(SOURCE), recipe=recipe, held_out=share)
    return {name: tensor.numpy() for name, tensor in tensors_of(subject.module).items()}
