"""Feature squeezing: how far the posteriors move when detail is taken out of the image (Xu 2018, arXiv:1704.01155).

score(x) = max_s ‖p(x) − p(s(x))‖₁ over squeezers s: fewer bits per pixel, a median filter, non-local means.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benfourier.detectors.extractor import Extractor, RunningExtractor
from benfourier.detectors.method import FitData, Method, register_detector
from benfourier.errors import OptionError, check_whole
from benfourier.models.classifier import Classifier
from benfourier.models.forward import batch_size, observe
from benfourier.models.module import softmax
from benfourier.options import layer_names, number, whole

PATCH = 3  # side of the patches that non-local means compares
SEARCH = {32: 13, 224: 11}  # side of the square in which it looks for patches, up to that side of the image


@dataclass(frozen=True, eq=False)
class SqueezeDistances(RunningExtractor):
    """The largest L1 distance of the posteriors of an image to those of its squeezed forms."""

    squeezers: tuple[str, ...]
    bits: Annotated[int, check_whole]  # of a pixel
    strength: float  # of non-local means: distance of two patches at which their weight is 1/e, in 255ths of the range

    pixels_only: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]] = ("distance",)

    def extract(self, classifier: Classifier, images: Tensor, logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns (N, 1)."""
        low, high = classifier.bounds
        unit = (images.to(classifier.device) - low) / (high - low)
        squeezed = torch.cat([self._squeeze(name, unit) for name in self.squeezers]).clamp(0, 1) * (high - low) + low
        size = max(len(images), batch_size(classifier, images.shape[1:]))
        others = torch.cat([observe(classifier, part, []).logits for part in torch.split(squeezed, size)])
        moved = softmax(others).view(len(self.squeezers), *logits.shape) - softmax(logits)
        distances: Tensor = moved.abs().sum(2).amax(0)
        return distances.unsqueeze(1)

    def _squeeze(self, name: str, images: Tensor) -> Tensor:
        if name == "bits":
            return fewer_bits(images, self.bits)
        return median(images) if name == "median" else non_local_means(images, self.strength / 255)


def fewer_bits(images: Tensor, bits: int) -> Tensor:
    """Returns images in [0, 1] with that many bits per pixel."""
    most: int = 2**bits - 1
    return (images * most).round() / most


def median(images: Tensor) -> Tensor:
    """Returns the upper median of each pixel, its left and upper neighbours and the one between them."""
    padded = F.pad(images, (1, 0, 1, 0), mode="replicate")
    a, b, c, d = (padded[:, :, y : y + images.shape[2], x : x + images.shape[3]] for y in (0, 1) for x in (0, 1))
    return torch.maximum(
        torch.maximum(torch.minimum(a, b), torch.minimum(c, d)), torch.minimum(torch.maximum(a, b), torch.maximum(c, d))
    )


def non_local_means(images: Tensor, strength: float) -> Tensor:
    """Returns the mean of all pixels around, weighted by how like their patches are (Buades 2005)."""
    # Patches are compared over all channels together: exp(−d² / h²), d² the mean squared difference of two patches.
    total, weights = torch.zeros_like(images), torch.zeros_like(images[:, :1])
    for other in _shifted(images):
        squared = (other - images).square().mean(1, keepdim=True)
        patches = F.avg_pool2d(F.pad(squared, (PATCH // 2,) * 4, mode="reflect"), PATCH, stride=1)
        weight = (-patches / strength**2).exp()
        total, weights = total + weight * other, weights + weight
    return total / weights


def _shifted(images: Tensor) -> Iterator[Tensor]:
    """The images shifted to every place of the search window; borders are reflected."""
    height, width = images.shape[2:]
    side = next((side for most, side in SEARCH.items() if max(height, width) <= most), SEARCH[224])
    reach = min(side // 2, height - 1, width - 1)
    padded = F.pad(images, (reach,) * 4, mode="reflect")
    places = range(2 * reach + 1)
    return (padded[:, :, y : y + height, x : x + width] for y in places for x in places)


SQUEEZERS: Mapping[str, Callable[..., Tensor]] = {"bits": fewer_bits, "median": median, "non-local": non_local_means}


@register_detector
@dataclass(frozen=True, kw_only=True)
class FeatureSqueezing(Method):
    """The largest move of the posteriors under squeezers; needs no fit and no attacks.

    Args:
        squeezers: "bits", "median" and "non-local"; None for the authors' best: the first two for grey images, all
            three for colour.
        bits: of a pixel; None for the authors' 1 for grey images and 5 for colour.
        strength: of non-local means, for pixels from 0 to 255.
    """

    squeezers: tuple[str, ...] | None = layer_names()
    bits: int | None = whole(None, None, most=8)
    strength: float = number(2.0, above=0)

    id: ClassVar[str] = "feature-squeezing"
    extractors: ClassVar[tuple[type[Extractor], ...]] = (SqueezeDistances,)
    needs: ClassVar[frozenset[str]] = frozenset({"passes"})
    paper_head: ClassVar[str] = "plain"
    authors_head: ClassVar[str] = "plain"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.squeezers or ():
            if name not in SQUEEZERS:
                raise OptionError(f"squeezers hold {name!r}; allowed: {', '.join(SQUEEZERS)}", "squeezers")

    def fit_extractor(self, classifier: Classifier, data: FitData) -> SqueezeDistances:
        """Returns the squeezers: nothing is learned."""
        grey = data.examples.clean.shape[1] == 1
        squeezers = self.squeezers or (("bits", "median") if grey else tuple(SQUEEZERS))
        return SqueezeDistances(squeezers, self.bits or (1 if grey else 5), self.strength)
