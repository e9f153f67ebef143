"""Defense-GAN as a detector: how far an image is from what a generator can draw (Samangouei 2018, arXiv:1805.06605).

score(x) = min_r mean (G(z_r) − x)², each z_r found by gradient descent from a start of its own; G is trained on clean
images as a Wasserstein GAN with gradient penalty.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Self

import torch
from torch import Tensor

from benfourier.data.images import content_ids
from benfourier.data.seeds import image_generator
from benfourier.detectors.defense_gan.gan import LATENT, GanTraining, Generator, load_generator
from benfourier.detectors.extractor import Extractor, RunningExtractor
from benfourier.detectors.method import CleanImages, FitData, Method, register_detector
from benfourier.detectors.state import State
from benfourier.errors import check_whole
from benfourier.models.classifier import Classifier
from benfourier.options import number, whole

LATE, LESS = 0.8, 0.1  # from this share of the steps on the rate is multiplied
MEMORY = 256 * 2**20  # bytes that images drawn at once may take


@dataclass(frozen=True, eq=False)
class ReconstructionError(RunningExtractor):
    """Searches the range of a generator for the image that is nearest."""

    weights: Mapping[str, Tensor]  # of the generator, by name
    shape: tuple[int, ...]  # of the images, (C, H, W)
    iterations: int  # for which it was trained
    images: int  # clean ones that it was trained with
    critic_loss: float  # at the end of that
    width: Annotated[int, partial(check_whole, most=4096)]  # of the networks
    steps: Annotated[int, partial(check_whole, most=1_000_000)]  # of every descent
    restarts: Annotated[int, partial(check_whole, most=10_000)]  # descents per image
    lr: float  # rate of the descent
    momentum: float  # of the descent
    seed: int  # of the starts, which belong to an image's pixels

    pixels_only: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]] = ("reconstruction",)

    @classmethod
    def from_state(cls, classifier: Classifier, state: State, supplied: Mapping[str, Any]) -> Self:
        """Returns the extractor of a state, once its weights prove to be those of a generator."""
        extractor = super().from_state(classifier, state, supplied)
        assert all(bool(tensor.isfinite().all()) for tensor in extractor.network.state_dict().values())
        return extractor

    @cached_property
    def network(self) -> Generator:
        """The generator."""
        return load_generator(self.shape, self.width, self.weights)

    def extract(self, classifier: Classifier, images: Tensor, logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the least mean squared error of each image, (N, 1)."""
        draws = [image_generator(self.seed, name) for name in content_ids(images)]
        with torch.inference_mode(False), torch.no_grad():
            starts = torch.stack([torch.randn(self.restarts, LATENT, generator=draw) for draw in draws])
            network = self.network.to(classifier.device)
            targets = network.scaled(images.to(classifier.device), classifier.bounds)
            # images at once: what all stages of their drawings take, three times over, fits the memory
            size = max(1, MEMORY // (3 * 4 * network.entries * self.restarts))
            parts = zip(*(torch.split(rows, size) for rows in (targets, starts.to(targets))), strict=True)
            return torch.cat([self.search(*part).amin(1, keepdim=True) for part in parts])

    def search(self, targets: Tensor, starts: Tensor) -> Tensor:
        """Returns the mean squared error that each descent ends with, (N, restarts)."""
        # Targets (N, C, H, W) are scaled as the generator draws, starts (N, restarts, 128) times √128.
        latent, velocity = starts / math.sqrt(LATENT), torch.zeros_like(starts)
        for step in range(self.steps):
            rate = self.lr * (LESS if step >= LATE * self.steps else 1.0)
            with torch.enable_grad():
                leaf = latent.detach().requires_grad_()
                (gradient,) = torch.autograd.grad(self._errors(leaf, targets).sum(), leaf)
            velocity = self.momentum * velocity + gradient
            latent = latent - rate * velocity
        with torch.no_grad():
            return self._errors(latent, targets)

    def _errors(self, latent: Tensor, targets: Tensor) -> Tensor:
        drawn = self.network(latent.flatten(0, 1)).unflatten(0, latent.shape[:2])  # (N, restarts, C, H, W)
        errors: Tensor = (drawn - targets.unsqueeze(1)).square().mean((2, 3, 4))
        return errors


@register_detector
@dataclass(frozen=True, kw_only=True)
class DefenseGAN(Method):
    """A generator of clean images, and the search for the drawing that is most like an image."""

    iterations: int = whole(5000)  # of the training; the authors' have 200,000
    width: int = whole(64)  # of the networks: the authors' NET_DIM
    train_lr: float = number(1e-4, above=0)  # rate of the training
    search_steps: int = whole(200)  # of every descent
    restarts: int = whole(10)  # descents per image
    lr: float = number(10.0, above=0)  # rate of the descent, for errors that are means over pixels
    momentum: float = number(0.7, least=0, below=1)  # of the descent

    id: ClassVar[str] = "defense-gan"
    extractors: ClassVar[tuple[type[Extractor], ...]] = (ReconstructionError,)
    paper_head: ClassVar[str] = "plain"
    authors_head: ClassVar[str] = "plain"
    needs: ClassVar[frozenset[str]] = frozenset({"random", "gradients", "search"})
    clean_images: ClassVar[CleanImages] = "required"  # the generator is trained on them

    def prepare(self, classifier: Classifier, data: FitData) -> None:
        """Trains the generator, so that every fit finds it in data.work_dir."""
        if data.work_dir is not None and data.clean is not None:
            self._train(classifier, data)

    def fit_extractor(self, classifier: Classifier, data: FitData) -> ReconstructionError:
        """Returns the search in the range of a generator trained on the clean images."""
        training = self._train(classifier, data)
        weights = {name: tensor.detach().cpu() for name, tensor in training.generator.state_dict().items()}
        count, *shape = training.images.shape
        learned = (weights, tuple(shape), training.done, count, training.loss)
        return ReconstructionError(
            *learned, self.width, self.search_steps, self.restarts, self.lr, self.momentum, self.seed
        )

    def _train(self, classifier: Classifier, data: FitData) -> GanTraining:
        """The training, complete; it goes on from a checkpoint in the work folder if there is one."""
        assert data.clean is not None
        images = data.clean.images
        training = GanTraining(images, classifier.bounds, classifier.device, self.width, self.train_lr, self.seed)
        name = f"{training.digest(self.iterations)}.gan"  # searches of any length share a generator
        checkpoint = None if data.work_dir is None else data.work_dir / name
        training.run(self.iterations, checkpoint, show_progress=data.show_progress)
        return training
