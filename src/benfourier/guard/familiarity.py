"""How far the activations of an image are from those of images that the guard knows, whatever their class.

For each layer the squared Mahalanobis distance of the channel averages to their mean, over its median in clean images;
the score is the mean of the logarithms. The last hidden layer alone, as in most work on out-of-distribution images,
takes constant images for familiar; the layers together do not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
import torch
from torch import Tensor

from benfourier.detectors.mahalanobis import ChannelAverages, LayerGaussians, fit_gaussians
from benfourier.detectors.state import ArrayRule, State, record_from_state
from benfourier.errors import InputError
from benfourier.models.classifier import Classifier
from benfourier.models.forward import SOFTMAX, batch_slices, observe
from benfourier.models.layers import select_layers

LAYERS = 32  # at most, evenly spaced in firing order; with 8 a third of the constant images pass on ResNet-20
REFERENCES = 300  # clean images at most: the rank of the covariances, and with it the size of the file
LEAST = 10  # clean images at least


@dataclass(frozen=True, eq=False)
class Familiarity(ChannelAverages):
    """The distance of each layer's averages to those of clean images."""

    gaussians: tuple[LayerGaussians, ...]  # one per layer, of one class
    medians: Annotated[Tensor, ArrayRule("layers", above=0)]  # distance of held-out clean images

    @classmethod
    def from_state(cls, classifier: Classifier, state: State, supplied: Mapping[str, Any]) -> Self:
        """Returns what knows as many layers as it has Gaussians and medians."""
        if len(state["gaussians"]) != len(state["layers"]):
            raise ValueError(f"there are {len(state['layers'])} layers, and {len(state['gaussians'])} Gaussians")
        return record_from_state(cls, state, {"layers": len(state["layers"])})

    def join(self, values: Mapping[str, Tensor], logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the logarithm of each layer's distance over the median of clean images, (images, layers)."""
        pairs = zip(self.layers, self.gaussians, strict=True)
        distances = torch.cat([gaussian.distances(values[layer]) for layer, gaussian in pairs], 1)
        return (distances / self.medians).clamp(min=1e-6).log()


def fit_familiarity(
    classifier: Classifier, known: Sequence[Tensor], *, show_progress: bool | None = None
) -> Familiarity:
    """Returns what the layers of a network make of known clean images (C, H, W) of any sizes."""
    if len(known) < LEAST:
        raise InputError(
            f"there are {len(known)} clean images to tell familiar images by; give at least {LEAST}, beside those that "
            "set the threshold"
        )
    rows = _averages(classifier, known[:REFERENCES], show_progress)
    places = np.unique(np.linspace(0, len(rows) - 1, LAYERS).round().astype(int))
    names = tuple(list(rows)[place] for place in places)
    gaussians, medians = [], []
    for layer in (rows[name] for name in names):
        half, one = len(layer) // 2, torch.zeros(len(layer), dtype=torch.int64)  # all of one class
        # distances of the images that a Gaussian came from are too small: the median is that of the other half
        medians.append(fit_gaussians(layer[:half], one[:half], None).distances(layer[half:]).median())
        whole = fit_gaussians(layer, one, None)
        gaussians.append(replace(whole, residuals=whole.residuals[:0]))  # they serve images that are asked about again
    return Familiarity(names, tuple(gaussians), torch.stack(medians).clamp(min=1e-12))


def _averages(classifier: Classifier, images: Sequence[Tensor], show_progress: bool | None) -> dict[str, Tensor]:
    """The channel averages (N, C) of every layer that may count, in firing order; images of one shape share batches."""
    available = {layer.name: layer for layer in classifier.layer_list(tuple(images[0].shape)).layers}
    names = [layer.name for layer in select_layers(tuple(available.values()), None, pass_through=False)]
    # the soft-max says how sure the network is, not what the image is like; BatchNorm repeats the layer before it
    names = [name for name in names if name != SOFTMAX and "BatchNorm" not in available[name].kind] or names
    by_shape: dict[object, list[Tensor]] = {}
    for image in images:
        by_shape.setdefault(image.shape, []).append(image)
    parts = []
    with torch.no_grad():
        for same in map(torch.stack, by_shape.values()):
            for part in batch_slices(classifier, same, None, label="familiar images", show_progress=show_progress):
                parts.append(observe(classifier, same[part], [ChannelAverages(tuple(names))]).values[0])
    rows = {name: torch.cat([part[name] for part in parts]).cpu() for name in names}  # Gaussians are fitted there
    # masked heads have logits of -∞
    return {name: layer for name, layer in rows.items() if bool(layer.isfinite().all())}
