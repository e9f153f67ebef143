"""Small classifiers, their images, and their activations, worked out by hand."""

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benfourier import kernels
from benfourier.models.classifier import Classifier
from benfourier.models.zoo import ZOO

M = TypeVar("M", bound=nn.Module)


def seeded(make: Callable[[], M]) -> M:
    """The module with the same weights in every run."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return make()


def noise(number: int = 4, channels: int = 3, side: int = 12, seed: int = 2) -> Tensor:
    return torch.rand(number, channels, side, side, generator=torch.Generator().manual_seed(seed))


def tolerance(entries: int) -> float:
    """What the kernels promise: a tenth of the noise floor ½√(π/M), or float32 rounding where that is less."""
    return max(1e-6, 0.1 * 0.5 * math.sqrt(math.pi / entries))


def plain() -> nn.Sequential:
    """A Sequential with in-place ReLU, BatchNorm, and layers that only pass numbers on."""
    parts = {
        "conv": nn.Conv2d(3, 8, 3, padding=1),
        "norm": nn.BatchNorm2d(8),
        "act": nn.ReLU(inplace=True),
        "same": nn.Identity(),
        "pool": nn.AdaptiveAvgPool2d(4),
        "flat": nn.Flatten(),
        "drop": nn.Dropout(0.5),
        "head": nn.Linear(128, 5),
    }
    net = nn.Sequential(OrderedDict(parts))
    nn.init.uniform_(net.get_buffer("norm.running_mean"), -0.5, 0.5)
    nn.init.uniform_(net.get_buffer("norm.running_var"), 0.5, 2)
    return net


OBSERVED = ["conv", "norm", "act", "pool", "head", "soft-max"]


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, 6, 3, padding=1)

    def forward(self, maps: Tensor) -> Tensor:
        return F.relu(self.conv(maps) + maps)


class Residual(nn.Module):
    """Functional operations at two levels, and an optional argument."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 5)
        self.body = Inner()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)

    def forward(self, images: Tensor, mask: Tensor | None = None) -> Tensor:
        maps = F.relu(self.stem(images))
        if mask is not None:
            maps = maps * mask
        logits: Tensor = self.head(self.body(maps).mean(dim=(2, 3)))
        return logits

    def by_hand(self, images: Tensor) -> dict[str, Tensor]:
        """Every activation in firing order, each computed from the one before."""
        activations = {"stem": self.stem(images)}
        activations["relu()"] = activations["stem"].clamp(min=0)
        activations["body.conv"] = self.body.conv(activations["relu()"])
        activations["body.add()"] = activations["body.conv"] + activations["relu()"]
        activations["body.relu()"] = activations["body.add()"].clamp(min=0)
        activations["mean()"] = activations["body.relu()"].mean(dim=(2, 3))
        activations["head"] = self.head(activations["mean()"])
        activations["soft-max"] = activations["head"].double().softmax(1)
        return activations


class Branching(nn.Module):
    """Control flow that depends on the data, which no trace can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4, 5)

    def forward(self, images: Tensor) -> Tensor:
        maps = F.relu(self.conv(images))
        if maps.sum() > 1e9:
            maps = torch.tanh(maps)
        logits: Tensor = self.head(maps.mean(dim=(2, 3)))
        return logits


class Twice(nn.Module):
    """One activation that fires twice; heads registered against the firing order."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(16, 5)
        self.first = nn.Linear(3 * 12 * 12, 16)
        self.act = nn.Tanh()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.last(self.act(2 * self.act(self.first(images.flatten(1)))))
        return logits


class Transformer(nn.Module):
    """One of torch's own composites, which is observed as one, between functional operations and operators."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, stride=4)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 5)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.encoder(self.patch(images).flatten(2).transpose(1, 2))
        logits: Tensor = self.head(self.norm(tokens / 2).mean(dim=1) * 2.0 - 1)
        return logits


class Viewing(nn.Module):
    """x.view after a convolution, which fails on channels-last maps."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4 * 12 * 12, 5)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.conv(images)
        logits: Tensor = self.head(maps.view(maps.size(0), -1))
        return logits


class Ending(nn.Module):
    """A linear classifier of 12×12 images whose logits leave as another function says."""

    def __init__(self, end: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.head = nn.Linear(3 * 12 * 12, 5)
        self.end = end

    def forward(self, images: Tensor) -> object:
        return self.end(self.head(images.flatten(1)))


class Step(nn.Module):
    """Any function of the maps, as a leaf."""

    def __init__(self, step: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.step = step

    def forward(self, maps: Tensor) -> Tensor:
        return self.step(maps)


def stepping(step: Callable[[Tensor], Tensor]) -> nn.Sequential:
    """A classifier with the step as its first layer."""
    parts = {"step": Step(step), "conv": nn.Conv2d(3, 4, 3), "pool": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten()}
    return nn.Sequential(OrderedDict(parts, head=nn.Linear(4, 5)))


def relative(maps: Tensor) -> Tensor:
    """Brightness relative to the mean: 0/0 for a black image."""
    return maps / maps.mean(dim=(1, 2, 3), keepdim=True)


def inverse(maps: Tensor) -> Tensor:
    """1/0 in one entry of a black image."""
    maps = maps.clone()
    maps[:, 0, 0, 0] = 1 / maps.mean(dim=(1, 2, 3))
    return maps


def refusing(maps: Tensor) -> Tensor:
    """Fails on a black image."""
    if not maps.flatten(1).any(dim=1).all():
        raise RuntimeError("a black image")
    return maps


def with_black(images: Tensor, place: int) -> Tensor:
    images = images.clone()
    images[place] = 0
    return images


def activations_by_hooks(classifier: Classifier, images: Tensor) -> dict[str, Tensor]:
    """Activations of every leaf that fires, by hooks of our own, soft-max last."""
    module, observed = classifier.module.eval(), dict[str, Tensor]()

    def hook_for(name: str) -> Callable[[nn.Module, object, Tensor], None]:
        def hook(leaf: nn.Module, inputs: object, activation: Tensor) -> None:
            observed[name] = activation.clone()  # the next layer may write into it

        return hook

    leaves = [(name, m) for name, m in module.named_modules() if not list(m.children())]
    handles = [leaf.register_forward_hook(hook_for(name)) for name, leaf in leaves]
    layout = classifier.layer_list(tuple(images.shape[1:])).memory_format
    with torch.no_grad():
        logits = module(classifier.normalise(images.to(classifier.dtype)).contiguous(memory_format=layout))
    for handle in handles:
        handle.remove()
    return {**observed, "soft-max": logits.double().softmax(1)}


def expected_columns(activation: Tensor, orders: int = 16) -> Tensor:
    return kernels.magnitudes(activation.detach(), orders, backend="reference")


def resnet() -> nn.Module:
    return seeded(ZOO["cifar-resnet20"].factory)
