"""The kernel's bound on the layers of trained networks: biases, ReLU6, blank backgrounds, pooled maps."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from sklearn.datasets import load_sample_images
from torch import Tensor

import benfourier as bf
from benfourier.kernels import Backend, magnitudes
from benfourier.models.forward import observe

SHORT_ROW_ERROR = 2e-5  # of rows that are summed phasor by phasor, docs/features.md


@dataclass(frozen=True)
class ErrorOverBound:
    """Error of the numba kernel against the reference, as a share of the stated bound."""

    layers: tuple[str, ...]
    entries: int | None

    def reduce(self, layer: str, activation: Tensor) -> Tensor:
        count = activation[0].numel()
        read = count if self.entries is None else min(count, self.entries)
        bound = 0.05 * math.sqrt(math.pi / read) if read > 256 else SHORT_ROW_ERROR
        exact, fast = (magnitudes(activation, backend=backend, entries=self.entries) for backend in BACKENDS)
        return (fast - exact).abs().amax(1) / bound


BACKENDS: tuple[Backend, ...] = ("reference", "numba")


def photographs() -> tuple[bf.Classifier, Tensor]:
    """EfficientNet-Lite0 with ImageNet's weights, and scikit-learn's two photographs."""
    classifier = bf.open_classifier("efficientnet-lite0")
    pixels = [torch.from_numpy(picture.copy()).permute(2, 0, 1) / 255 for picture in load_sample_images().images]
    return classifier, torch.stack([picture[:, 100:324, 200:424] for picture in pixels])


def digits() -> tuple[bf.Classifier, Tensor]:
    """LID's network after an epoch on the embedded digits, and four of them."""
    classifier = bf.open_classifier("lid-mnist", seed=0)
    bf.train(classifier, "mnist-5k", options=bf.TrainingOptions(epochs=1, bf16=False), show_progress=False)
    return classifier, bf.read_labelled(classifier, "mnist-5k", limit=4).images


@pytest.mark.parametrize("network", [photographs, digits])
def test_every_layer_of_a_trained_network_stays_within_the_bound(
    network: Callable[[], tuple[bf.Classifier, Tensor]],
) -> None:
    classifier, images = network()
    layers = tuple(classifier.layer_names(pass_through=True)[:-1])  # the soft-max is float64, not for this kernel
    assert len(layers) >= 14
    for entries in (None, 4096):
        with torch.no_grad():
            (ratios,) = observe(classifier, images, [ErrorOverBound(layers, entries)]).values
        worst = max(ratios, key=lambda layer: float(ratios[layer].max()))
        assert float(ratios[worst].max()) <= 1, (worst, entries)
