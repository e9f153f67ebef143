"""Networks and images for the benchmarks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

import benfourier as bf
from benfourier.data.formats import embedded
from benfourier.data.splits import split
from benfourier.models.training import TrainingOptions, train
from benfourier.models.weights import fill_weights, state_tensors
from benfourier.models.zoo import ZOO
from benfourier.store.artifact import digest_of
from benfourier.store.cache import fetch, open_cache

SOURCE = "mnist-5k"


@dataclass(frozen=True)
class BenchNetwork:
    """A network as it is benchmarked: images are uniform noise, which takes as long as photographs."""

    name: str
    batch: int
    size: int
    build: Callable[[], nn.Module]

    def images(self) -> Tensor:
        """Returns a batch of images."""
        return torch.rand((self.batch, 3, self.size, self.size), generator=torch.Generator().manual_seed(0))

    def classifier(self) -> bf.Classifier:
        """Returns the network with Kaiming weights and statistics of its own activations."""
        module = self.build()
        generator = torch.Generator().manual_seed(0)
        for part in module.modules():
            if isinstance(part, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu", generator=generator)
        with torch.no_grad():
            module.train()  # BatchNorm learns the statistics of the noise
            for _ in range(2):
                module(self.images())
        return bf.Classifier(module.eval(), size=self.size, channels=3)


def _vit() -> nn.Module:
    """ViT-B/16 of the transformers library, with random weights."""
    from transformers import ViTConfig, ViTForImageClassification

    module: nn.Module = ViTForImageClassification(ViTConfig(num_labels=1000))
    return module


def _zoo(name: str, batch: int) -> BenchNetwork:
    return BenchNetwork(name, batch, ZOO[name].size, ZOO[name].factory)


NETWORKS = {
    bench.name: bench
    for bench in (
        _zoo("alexnet", 8),
        _zoo("vgg16", 2),
        BenchNetwork("vit-b-16", 2, 224, _vit),
        _zoo("cifar-resnet20", 64),
    )
}


def finished(call: Callable[[], object], device: str) -> Callable[[], object]:
    """Returns the call so that it ends when a GPU has done all that it was given; the CPU has done it by then."""

    def call_and_wait() -> None:
        call()
        getattr(torch, torch.device(device).type).synchronize()

    return call if device == "cpu" else call_and_wait


def on(device: str) -> str:
    """Returns what a sentence says of the device: nothing of the CPU."""
    return "" if device == "cpu" else f" on {device}"


@dataclass(frozen=True)
class TrainedMnist:
    """A network trained on part of the embedded MNIST, and images that it has and has not learned from."""

    classifier: bf.Classifier
    images: bf.LabelledImages  # held out, classified correctly
    learned: bf.LabelledImages

    def first(self, count: int) -> "TrainedMnist":
        """Returns the same with fewer held-out images."""
        return replace(self, images=self.images.take(range(count)))


@cache
def trained_mnist(epochs: int = 3, share: float = 0.1, model: str = "lid-mnist") -> TrainedMnist:
    """Returns a network trained for some epochs on all but a share of the images; trained once, then cached."""
    source, options = embedded(SOURCE), TrainingOptions(epochs=epochs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        classifier = bf.open_classifier(model)

    def weights() -> dict[str, np.ndarray]:
        train(classifier, source, options=options, held_out=share)
        return {name: tensor.numpy() for name, tensor in state_tensors(classifier.module).items()}

    key = digest_of((bf.__version__, torch.__version__, repr(classifier.module), source.digest, repr((options, share))))
    arrays, _ = fetch(open_cache(True), key, weights)
    fill_weights(classifier.module, {name: torch.from_numpy(array) for name, array in arrays.items()}, "the cache")
    classifier.module.eval().requires_grad_(False)
    learned, held_out = split(source.ids, source.labels, {"a": 1 - share, "b": share}, seed=options.seed).values()

    def images(rows: np.ndarray) -> bf.LabelledImages:
        pixels = bf.load_images(source.pixels(rows), classifier).clone(memory_format=torch.contiguous_format)
        return bf.LabelledImages(pixels, torch.from_numpy(source.labels[rows]), tuple(source.ids[row] for row in rows))

    unseen = images(held_out)
    correct = (classifier.logits(unseen.images).argmax(1) == unseen.labels).nonzero().flatten()
    return TrainedMnist(classifier, unseen.take(correct), images(learned))
