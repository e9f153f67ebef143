"""Defense-GAN as a detector: how far an image is from what a generator can draw (Samangouei 2018, arXiv:1805.06605).

score(x) = min_r mean (G(z_r) − x)², each z_r found by gradient descent from a start of its own; G is trained on clean
images as a Wasserstein GAN with gradient penalty.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from benfourier.data.draws import generator, names_by_content
from benfourier.detectors.gan import LATENT, Generator, depths_of, sides_of
from benfourier.detectors.gan_training import Training
from benfourier.detectors.gan_weights import flat, restored
from benfourier.detectors.method import Lessons, Method, check_positive
from benfourier.errors import OptionError, check_whole
from benfourier.subjects.subject import Subject

LATE, LESS = 0.8, 0.1  # from this share of the steps on the rate is multiplied
MEMORY = 256 * 2**20  # bytes that images drawn at once may take


@dataclass(frozen=True, kw_only=True)
class DefenseGAN(Method):
    """A generator of clean images, and the search for the drawing that is most like an image.

    Args:
        iterations: of the training; the authors' have 200,000.
        width: of the networks: the authors' NET_DIM.
        train_lr: rate of the training.
        search_steps: of every descent.
        restarts: descents per image.
        lr: rate of the descent, for errors that are means over pixels.
        momentum: of the descent.
        checkpoint: file that the training writes and goes on from; no part of what the method is.
    """

    iterations: int = 5000
    width: int = 64
    train_lr: float = 1e-4
    search_steps: int = 200
    restarts: int = 10
    lr: float = 10.0
    momentum: float = 0.7
    checkpoint: str | None = field(default=None, compare=False)

    name: ClassVar[str] = "defense-gan"
    lasting: ClassVar[bool] = True
    clean: ClassVar[Literal["none", "optional", "needed"]] = "needed"
    own: ClassVar[str] = "plain"
    common: ClassVar[str] = "plain"
    needs = frozenset({"samples", "gradients", "searches"})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("iterations", "width", "search_steps", "restarts"):
            check_whole(name, getattr(self, name))
        check_positive("lr", self.lr)
        check_positive("train_lr", self.train_lr)
        if self.momentum != 0:
            check_positive("momentum", self.momentum)
        if self.momentum >= 1:
            raise OptionError(f"momentum is {self.momentum!r}; it must be below 1")

    def learn(self, subject: Subject, lessons: Lessons) -> "Projection":
        """Returns the search in the range of a generator trained on the clean images."""
        assert lessons.clean is not None
        images = lessons.clean.images
        training = Training(images, subject.bounds, subject.device, self.width, self.train_lr, self.seed)
        kept = None if self.checkpoint is None else Path(self.checkpoint)
        training.run(self.iterations, kept, show_progress=lessons.show_progress)
        return Projection(
            weights=flat(training.generator),
            shape=tuple(images.shape[1:]),
            iterations=training.done,
            images=len(images),
            critic_loss=training.loss,
            width=self.width,
            steps=self.search_steps,
            restarts=self.restarts,
            lr=self.lr,
            momentum=self.momentum,
            seed=self.seed,
        )

    def restore(self, subject: Subject, kept: Mapping[str, Any]) -> "Projection":
        """Returns the search with the generator that was kept."""
        return Projection(**{**kept, "shape": tuple(kept["shape"])})


@dataclass(frozen=True, eq=False)
class Projection:
    """Searches the range of a generator for what is most like an image.

    Args:
        weights: of the generator, in one row.
        shape: of the images, (C, H, W).
        iterations: for which it was trained.
        images: clean ones that it was trained with.
        critic_loss: at the end of that.
        width: of the networks.
        steps: of every descent.
        restarts: descents per image.
        lr: rate of the descent.
        momentum: of the descent.
        seed: of the starts, which belong to an image's pixels.
    """

    weights: Tensor
    shape: tuple[int, ...]
    iterations: int
    images: int
    critic_loss: float
    width: int
    steps: int
    restarts: int
    lr: float
    momentum: float
    seed: int
    network: Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", restored(self.shape, self.width, self.weights))

    def work(self, subject: Subject, images: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the least mean squared error of each image, (N, 1)."""
        draws = [generator(self.seed, name) for name in names_by_content(images)]
        with torch.inference_mode(False), torch.no_grad():
            starts = torch.stack([torch.randn(self.restarts, LATENT, generator=draw) for draw in draws])
            network = self.network.to(subject.device)
            wanted = network.scaled(images.to(subject.device), subject.bounds)
            parts = zip(*(torch.split(rows, self._batch()) for rows in (wanted, starts.to(wanted))), strict=True)
            return torch.cat([self.search(*part).amin(1, keepdim=True) for part in parts])

    def search(self, wanted: Tensor, starts: Tensor) -> Tensor:
        """Returns the mean squared error that each descent ends with, (N, restarts).

        Args:
            wanted: (N, C, H, W), scaled as the generator draws.
            starts: (N, restarts, 128), times √128.
        """
        latent, velocity = starts / math.sqrt(LATENT), torch.zeros_like(starts)
        for step in range(self.steps):
            rate = self.lr * (LESS if step >= LATE * self.steps else 1.0)
            with torch.enable_grad():
                leaf = latent.detach().requires_grad_()
                (slope,) = torch.autograd.grad(self._errors(leaf, wanted).sum(), leaf)
            velocity = self.momentum * velocity + slope
            latent = latent - rate * velocity
        with torch.no_grad():
            return self._errors(latent, wanted)

    def _errors(self, latent: Tensor, wanted: Tensor) -> Tensor:
        drawn = self.network(latent.flatten(0, 1)).unflatten(0, latent.shape[:2])  # (N, restarts, C, H, W)
        errors: Tensor = (drawn - wanted.unsqueeze(1)).square().mean((2, 3, 4))
        return errors

    def _batch(self) -> int:
        """Images at once: what all stages of their drawings take, three times over, fits the memory."""
        sides, depths = sides_of(self.shape), depths_of(self.shape, self.width)
        numbers = sum(h * w * depth for (h, w), depth in zip(sides, depths, strict=True))
        return max(1, MEMORY // (3 * 4 * numbers * self.restarts))
