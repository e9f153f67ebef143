"""What MBF features look like: closed forms, a small network on digits, and images moved out of their class.

Needs no files and no network access: the digits come with scikit-learn (`pip install 'benfourier[embedded]'`).
"""

import argparse
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import benfourier as bf
from benfourier.theory import GGD, noise_floor

SHAPES = {"Laplace": 1.0, "Gauss": 2.0, "uniform": math.inf}
TRAIN = 1200  # digits to train on; the others are held out


@dataclass(frozen=True)
class Triplets:
    """Clean images, noisy twins and moved twins, row by row."""

    clean: Tensor
    noisy: Tensor
    moved: Tensor


def main(arguments: list[str] | None = None) -> None:
    """Runs the four parts and prints what each shows."""
    options = parse(arguments)
    console = Console(highlight=False)
    start = time.perf_counter()
    torch.set_num_threads(1)  # the network is so small that a second thread would mostly wait
    show_theory(console, options.samples, np.random.default_rng(options.seed))
    images, labels = digits()
    module = train(images[:TRAIN], labels[:TRAIN], options.epochs, options.seed)
    held_out, truth = images[TRAIN:], labels[TRAIN:]
    right = module(held_out).argmax(1) == truth
    console.print(f"A small network, trained on {TRAIN} digits: test accuracy {right.float().mean():.3f}")
    classifier = bf.Classifier(module, bounds=(0.0, 1.0), size=8, channels=1)
    show_layers(console, classifier, held_out)
    image_triplets = triplets(module, held_out[right][: options.images], truth[right][: options.images], options.seed)
    show_features(console, classifier, image_triplets)
    console.print(f"Done in {time.perf_counter() - start:.0f} s.")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--epochs", type=int, default=25, help="passes over the training digits")
    parser.add_argument("--images", type=int, default=400, help="held-out images to look at, at most")
    parser.add_argument("--samples", type=int, default=65_536, help="samples drawn from each distribution")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def show_theory(console: Console, samples: int, rng: np.random.Generator) -> None:
    """Prints |a_n| in closed form beside its estimate from samples."""
    floor = noise_floor(samples)
    table = Table(title=f"|a_n|: closed form, and estimate from {samples} samples (noise floor {floor:.4f})")
    table.add_column("distribution")
    for order in (1, 2, 3, 4):
        table.add_column(f"n = {order}", justify="right")
    for name, shape in SHAPES.items():
        exact = bf.coefficient_magnitudes(shape, orders=4)
        estimate = bf.estimate_magnitudes(GGD(shape=shape, scale=1.0).sample(samples, rng), orders=4)
        table.add_row(name, *(f"{a:.4f} {b:.4f}" for a, b in zip(exact, estimate, strict=True)))
    console.print(table)


def digits() -> tuple[Tensor, Tensor]:
    """Returns scikit-learn's digits as (1797, 1, 8, 8) in [0, 1], and their labels."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    return images, torch.tensor(labels)


def small_network() -> nn.Sequential:
    """Returns an untrained network for 8×8 images."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def train(images: Tensor, labels: Tensor, epochs: int, seed: int) -> nn.Sequential:
    """Returns the network after some epochs of Adam; the caller's random state is left alone."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = small_network()
        optimiser = torch.optim.Adam(module.parameters(), lr=3e-3)
        for _ in range(epochs):
            for part in torch.split(torch.randperm(len(images)), 64):
                optimiser.zero_grad()
                loss = nn.functional.cross_entropy(module(images[part]), labels[part])
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
    return module.eval().requires_grad_(False)


def show_layers(console: Console, classifier: bf.Classifier, images: Tensor) -> None:
    """Prints the layers that are observed, and the shape of the features."""
    features = bf.features(classifier, images)
    layers = ", ".join(classifier.layer_names())
    console.print(f"Layers observed, in firing order: {layers}.", soft_wrap=True)
    console.print(f"bf.features gave {features.shape[0]} images × {features.shape[1]} numbers: 16 orders per layer.")


def move(module: nn.Module, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Returns images moved along their gradient's sign just until misclassified, and which of them got there.

    One step of growing length (FGSM): a stand-in until the package has attacks of its own.
    """
    leaf = images.clone().requires_grad_()
    loss = nn.functional.cross_entropy(module(leaf), labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, leaf)
    moved, fooled = images.clone(), torch.zeros(len(images), dtype=torch.bool)
    for length in torch.linspace(0.01, 0.5, 50):
        trial = (images + length * gradient.sign()).clamp(0, 1)
        new = (module(trial).argmax(1) != labels) & ~fooled
        moved[new] = trial[new]
        fooled |= new
    return moved, fooled


def triplets(module: nn.Module, images: Tensor, labels: Tensor, seed: int) -> Triplets:
    """Returns the images that could be moved out of their class and whose noisy twins stayed in it."""
    moved, fooled = move(module, images, labels)
    noisy = add_noise(images, norm(moved - images), torch.Generator().manual_seed(seed))
    selected = fooled & (module(noisy).argmax(1) == labels)
    assert int(selected.sum()) > 1, "too few images are left to show; raise --images"
    return Triplets(images[selected], noisy[selected], moved[selected])


def add_noise(images: Tensor, target_norm: Tensor, generator: torch.Generator) -> Tensor:
    """Returns images with Gaussian noise whose L2 norm is target_norm after clipping to [0, 1]."""
    noise = torch.randn(images.shape, generator=generator)
    noisy = images
    for _ in range(20):  # clipping shortens the noise, so its scale is found step by step
        noisy = (images + noise).clamp(0, 1)
        noise *= target_norm / norm(noisy - images).clamp_min(1e-12)
    return noisy


def norm(images: Tensor) -> Tensor:
    """Returns the L2 norm of each image, as (N, 1, 1, 1)."""
    norms: Tensor = torch.linalg.vector_norm(images, dim=(1, 2, 3), keepdim=True)
    return norms


def show_features(console: Console, classifier: bf.Classifier, image_triplets: Triplets) -> None:
    """Prints |â_1| per layer for the three kinds of images."""
    kinds = {"clean": image_triplets.clean, "noisy": image_triplets.noisy, "moved": image_triplets.moved}
    firsts = {kind: bf.features(classifier, images, orders=1, dtype="float64") for kind, images in kinds.items()}
    table = Table(title=f"|â_1| over {len(image_triplets.clean)} held-out images: mean ± standard error")
    for heading in ("layer", "M", "floor", *kinds):
        table.add_column(heading, justify="left" if heading == "layer" else "right", no_wrap=True)
    for index, layer in enumerate(classifier.layers()):
        cells = (mean_and_error(first[:, index]) for first in firsts.values())
        name = layer.name if layer.module_type is None else f"{layer.name} {layer.kind}"
        table.add_row(name, str(layer.entries), f"{noise_floor(layer.entries):.3f}", *cells)
    console.print(table)
    console.print(
        "M: entries of the layer; floor: ½√(π/M), the error if the entries were independent, which they are not.\n"
        "moved: each image along its gradient's sign until misclassified, a stand-in for an attack.\n"
        "noisy: each image with Gaussian noise of the same L2 norm as its move, still classified correctly.\n"
        "This shows what the features look like. It is not a detector: no threshold was chosen and no rate measured.",
        soft_wrap=True,
    )


def mean_and_error(values: NDArray[np.floating]) -> str:
    """Returns the mean and its standard error as text."""
    return f"{values.mean():.3f} ± {values.std(ddof=1) / math.sqrt(len(values)):.3f}"


if __name__ == "__main__":
    main()
