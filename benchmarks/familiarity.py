"""Which images of other kinds the rule `unfamiliar` rejects, beside two detectors of pytorch-ood on the same network.

`python -m benchmarks.familiarity [--data-dir DIR] [--pytorch-ood DIR]`. DIR of the data holds cifar10.npz and
weights/cifar10_resnet20.safetensors, for a second network; its images 0 to 999 serve, as development images. DIR of
pytorch-ood is where `pip install --no-deps --target DIR pytorch-ood==0.4.0` put it: its detectors learn the last hidden
layer. All thresholds reject 5 % of the same clean images; `unfamiliar` shares them with a second rule, max-softmax.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_sample_images
from torch import Tensor
from torch.nn import functional

import benfourier as bf
from benchmarks.setup import SOURCE, trained_mnist
from benfourier.data.changes import OTHER_KINDS, change
from benfourier.data.formats import embedded
from benfourier.detectors.detector import Sigmoid
from benfourier.detectors.features import extract
from benfourier.detectors.heads import Plain
from benfourier.detectors.kd_bu import HiddenLayer, last_hidden_layer
from benfourier.detectors.max_softmax import LogUncertainty, MaxSoftmax

RATE, KNOWN, THRESHOLDS, CLEAN, IMAGES = 0.05, 200, 400, 300, 100
NEIGHBOURS = 10

Scorer = Callable[[Tensor], NDArray[np.float64]]


@dataclass(frozen=True)
class Case:
    """A network, clean images of its kind, and images of a kind that it was not made for."""

    name: str
    classifier: bf.Classifier
    images: Tensor  # for the known ones, the thresholds and the false alarms, in this order
    labels: Tensor
    foreign: Mapping[str, Tensor]


def main() -> int:
    """Prints a table for each network."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.familiarity", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="for ResNet-20")
    parser.add_argument("--pytorch-ood", type=Path, help="for its detectors")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for case in [mnist()] + ([resnet(options.data_dir)] if options.data_dir else []):
        print(f"\n{case.name}\n")
        print_table(case, options.pytorch_ood)
    return 0


def mnist() -> Case:
    """Returns a small network for digits, and grey patches of photographs."""
    trained = trained_mnist(epochs=6, share=0.2, model="small-mnist")
    order = torch.randperm(len(trained.images), generator=torch.Generator().manual_seed(0))  # they come class by class
    images, labels = trained.images.images[order], trained.images.labels[order]
    patches = {"patches of photographs": photo_patches(28).mean(1, keepdim=True)}
    return Case("small-mnist", trained.classifier, images, labels, patches)


def resnet(folder: Path) -> Case:
    """Returns ResNet-20 for CIFAR-10, digits in grey, and patches of larger photographs."""
    classifier = bf.open_classifier("cifar-resnet20", weights=folder / "weights" / "cifar10_resnet20.safetensors")
    arrays = np.load(folder / "cifar10.npz")
    images = torch.from_numpy(arrays["x_test"][:1000]).permute(0, 3, 1, 2).float() / 255
    labels = torch.from_numpy(arrays["y_test"][:1000].astype(np.int64)).flatten()
    digits = torch.tensor(embedded(SOURCE).images[:: 5000 // IMAGES]).view(-1, 1, 28, 28).float() / 255
    foreign = {
        "digits": functional.pad(digits, (2, 2, 2, 2)).expand(-1, 3, -1, -1).contiguous(),
        "patches of photographs": photo_patches(32),
    }
    return Case("cifar-resnet20", classifier, images, labels, foreign)


def photo_patches(side: int) -> Tensor:
    """Returns squares of the two photographs that scikit-learn brings along."""
    photos = [torch.tensor(photo).permute(2, 0, 1).float() / 255 for photo in load_sample_images().images]
    squares = torch.cat([photo.unfold(1, side, side).unfold(2, side, side).flatten(1, 2) for photo in photos], 1)
    return squares.transpose(0, 1)[:: squares.shape[1] // IMAGES].contiguous()


def print_table(case: Case, package: Path | None) -> None:
    """Prints the share of each kind of images that the rules reject."""
    parts = torch.split(case.images, [KNOWN, THRESHOLDS, len(case.images) - KNOWN - THRESHOLDS])
    known, thresholds, clean = parts[0], parts[1], parts[2][:CLEAN]
    detector = bf.Detector(MaxSoftmax(), case.classifier, LogUncertainty(), Plain(), Sigmoid(1.0, 0.0), {})
    guard = bf.Guard.calibrated(detector, thresholds, RATE, known=known, show_progress=False)
    baselines = {} if package is None else ood_detectors(case, known, case.labels[:KNOWN], package)
    limits = {name: np.quantile(score(thresholds), 1 - RATE) for name, score in baselines.items()}
    kinds = {"clean": clean, **{name: change(name, clean[:IMAGES], (0.0, 1.0)) for name in OTHER_KINDS}, **case.foreign}
    columns = ["images", "number", "unfamiliar, %", "adversarial, %", *(f"{name}, %" for name in baselines)]
    print("|", " | ".join(columns), "|")
    print("|" + "---|" * len(columns))
    for kind, images in kinds.items():
        reasons = guard.check(images).reason
        shares = [np.mean(reasons == reason) for reason in ("unfamiliar", "adversarial")]
        shares += [np.mean(score(images) > limits[name]) for name, score in baselines.items()]
        print(f"| {kind} | {len(images)} |", " | ".join(f"{100 * share:.1f}" for share in shares), "|", flush=True)


def ood_detectors(case: Case, known: Tensor, labels: Tensor, package: Path) -> dict[str, Scorer]:
    """Returns the scores of two detectors of pytorch-ood for images."""
    layers = case.classifier.layer_list(tuple(known.shape[1:])).layers
    hidden = HiddenLayer((last_hidden_layer(layers),))

    def features(images: Tensor) -> Tensor:
        ids = [str(place) for place in range(len(images))]
        return extract(case.classifier, [hidden], images, ids, show_progress=False)[0][:, :-1].float()

    rows, scorers = features(known), dict[str, Scorer]()
    for module, name, options in (("mahalanobis", "Mahalanobis", {}), ("knn", "KNN", {"k": NEIGHBOURS})):
        detector = getattr(ood_module(package, module), name)(None, **options).fit_features(rows, labels)
        scorers[f"pytorch-ood {name}"] = partial(ood_scores, detector, features)
    return scorers


def ood_scores(detector: Any, features: Callable[[Tensor], Tensor], images: Tensor) -> NDArray[np.float64]:
    """Returns the scores of one detector of pytorch-ood; higher is less familiar."""
    return np.asarray(detector.predict_features(features(images)), np.float64)


def ood_module(package: Path, name: str) -> ModuleType:
    """Returns one module of pytorch-ood; the package itself would import torchvision."""
    for parent in ("pytorch_ood", "pytorch_ood.detector"):
        if parent not in sys.modules:
            empty = ModuleType(parent)
            empty.__path__ = [str(package.joinpath(*parent.split(".")))]
            sys.modules[parent] = empty
    return import_module(f"pytorch_ood.detector.{name}")


if __name__ == "__main__":
    sys.exit(main())
