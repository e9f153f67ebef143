"""The odds are odd: how noise moves the logits, beside clean images of the same label (Roth 2019, arXiv:1902.04818).

g_yz(x) = E_η[(Z_z − Z_y)(x + η)] − (Z_z − Z_y)(x),  score(x) = max_{z≠y} mean_η-kind (g_yz(x) − μ_yz) / σ_yz,
y = argmax Z(x); μ and σ are of the fit's clean images with label y. Attacked images drift back towards their class.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from benfourier.data.images import content_ids
from benfourier.data.seeds import image_generator
from benfourier.detectors.extractor import Extractor, RunningExtractor
from benfourier.detectors.features import extract
from benfourier.detectors.method import FitData, Method, register_detector
from benfourier.detectors.state import ArrayRule
from benfourier.errors import OptionError, check_whole
from benfourier.models.classifier import Classifier
from benfourier.models.device import wide
from benfourier.models.forward import batch_size, observe
from benfourier.options import layer_names, whole

LEAST = 3  # images of a label that give it a mean and deviation of its own, as in the authors' code
KINDS = ("normal", "uniform", "sign")
# shares of the range of pixels: what the authors take on CIFAR-10
LEVELS = tuple(f"{kind} {level}" for level in (0.003, 0.005, 0.008) for kind in KINDS)


@dataclass(frozen=True, eq=False)
class NoiseShifts(RunningExtractor):
    """The label, and by how much each kind of noise moves every logit, the mean over draws: pixels decide them."""

    noise: tuple[str, ...]  # kind and level of each
    draws: Annotated[int, partial(check_whole, most=100_000)]  # of each kind
    seed: int  # of the draws, which belong to an image's pixels

    pixels_only: ClassVar[bool] = True

    def extract(self, classifier: Classifier, images: Tensor, logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns (N, 1 + kinds · classes)."""
        low, high = classifier.bounds
        size, rows, names = batch_size(classifier, images.shape[1:]), [], content_ids(images)
        for image, own, name in zip(images.to(classifier.device), logits, names, strict=True):
            draw = image_generator(self.seed, name)
            columns = [own.argmax().view(1).to(own.dtype)]
            for each in self.noise:
                kind, level = each.split()
                noisy = image + float(level) * (high - low) * _noise(kind, (self.draws, *image.shape), draw).to(image)
                parts = [observe(classifier, part, []).logits for part in torch.split(noisy.clamp(low, high), size)]
                columns.append(torch.cat(parts).mean(0) - own)
            rows.append(torch.cat(columns))
        return torch.stack(rows)


def _noise(kind: str, shape: tuple[int, ...], draw: torch.Generator) -> Tensor:
    if kind == "normal":
        return torch.randn(shape, generator=draw)
    uniform = 2 * torch.rand(shape, generator=draw) - 1
    return uniform if kind == "uniform" else uniform.sign()


@dataclass(frozen=True, eq=False)
class OddsScore(RunningExtractor):
    """The greatest mean deviation of the moves towards another class from those of clean images, one feature."""

    shifts: NoiseShifts
    mean: Annotated[Tensor, ArrayRule("label kinds classes")]  # of the moves of clean images, by label
    deviation: Annotated[Tensor, ArrayRule("label kinds classes", above=0)]  # of these

    names: ClassVar[tuple[str, ...]] = ("odds",)

    def extract(self, classifier: Classifier, images: Tensor, logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns (N, 1)."""
        return self.finish(wide(self.shifts.extract(classifier, images, logits, ids)), ids)

    def cacheable_parts(self) -> tuple[Extractor, ...]:
        """Returns the moves, which do not depend on the fit."""
        return (self.shifts,)

    def finish(self, features: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the score, (N, 1)."""
        labels, moves = _moves(features, len(self.shifts.noise))
        away = ((moves - self.mean[labels]) / self.deviation[labels]).mean(1)  # (N, classes)
        return away.scatter(1, labels.unsqueeze(1), -torch.inf).amax(1, keepdim=True)


def _moves(features: Tensor, kinds: int) -> tuple[Tensor, Tensor]:
    """Labels (N,), and g_yz of every kind of noise and class z, (N, kinds, classes)."""
    labels, shifts = features[:, 0].long(), features[:, 1:].reshape(len(features), kinds, -1)
    return labels, shifts - shifts.gather(2, labels.view(-1, 1, 1).expand(-1, kinds, 1))


@register_detector
@dataclass(frozen=True, kw_only=True)
class Odds(Method):
    """Moves of the logits under noise; fitted to clean images alone.

    Args:
        noise: kinds and levels, "normal 0.003", "uniform 0.005" or "sign 0.008", levels as shares of the range.
        draws: of each; the authors' have 256.
    """

    noise: tuple[str, ...] | None = layer_names(LEVELS)
    draws: int = whole(64)

    id: ClassVar[str] = "odds"
    extractors: ClassVar[tuple[type[Extractor], ...]] = (OddsScore,)
    needs: ClassVar[frozenset[str]] = frozenset({"passes", "random"})
    paper_head: ClassVar[str] = "plain"
    authors_head: ClassVar[str] = "plain"

    def __post_init__(self) -> None:
        super().__post_init__()
        for each in self.noise or ():
            kind, _, level = each.partition(" ")
            if kind not in KINDS or not _is_level(level):
                raise OptionError(f"noise holds {each!r}; it must be one of {', '.join(KINDS)} and a level", "noise")

    def fit_extractor(self, classifier: Classifier, data: FitData) -> OddsScore:
        """Returns means and deviations by label; a label of few images gets those of all."""
        clean, ids = data.examples.clean, data.examples.ids
        shifts = NoiseShifts(self.noise or LEVELS, self.draws, self.seed)
        if data.cache is not None:
            features = data.cache.features(shifts, clean, ids)
        else:
            (features,) = extract(classifier, [shifts], clean, ids, label="odds", show_progress=data.show_progress)
        labels, moves = _moves(features.cpu(), len(shifts.noise))
        means, deviations = [], []
        for label in range(moves.shape[2]):
            own = moves[labels == label]
            rows = own if len(own) >= LEAST else moves
            means.append(rows.mean(0))
            deviations.append(rows.std(0, correction=0))
        deviation = torch.stack(deviations)
        least = float(deviation.amax()) * 1e-6 or 1.0  # a label's move towards itself is 0 and never counts
        return OddsScore(shifts, torch.stack(means), deviation.clamp(min=least))


def _is_level(text: str) -> bool:
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False
