"""Quick passes: the same numbers, and nothing left behind."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import benfourier as bf
from benfourier.attacks.hunt import Hunt
from benfourier.attacks.probe import probe
from benfourier.attacks.quick import AS_GIVEN, Quick


def network(**first: Any) -> nn.Sequential:
    """Convolutions and a view; in float64, where sums in another order differ by little."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        norm = nn.BatchNorm2d(16, affine=first.pop("affine", True))
        norm.running_mean, norm.running_var = torch.randn(16), torch.rand(16) + 0.5
        front = [nn.Conv2d(first.pop("channels", 3), 16, **first), norm, nn.ReLU(inplace=True), nn.Conv2d(16, 5, 3)]
        return nn.Sequential(*front, nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(20, 4)).double()


def quick_of(module: nn.Module, images: Tensor) -> Quick:
    return probe(bf.Subject(module.eval().requires_grad_(False)), images[:1]).quick


def gradient(module: nn.Module, images: Tensor, quick: Quick) -> Tensor:
    generators = [torch.Generator() for _ in images]
    hunt = Hunt(bf.Subject(module), images, torch.zeros(len(images)).long(), generators, quick=quick)
    return hunt.slope(images, hunt.rows, lambda logits, labels: logits.square().sum(1))[1]


def noise(channels: int = 3) -> Tensor:
    return torch.rand(4, channels, 15, 13, generator=torch.Generator().manual_seed(0)).double()


@pytest.mark.parametrize(
    "first",
    [
        {"kernel_size": 3},
        {"kernel_size": 3, "channels": 1, "affine": False},
        {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)},
        {"kernel_size": 3, "dilation": 2, "padding": 2, "bias": False},
    ],
)
def test_quick_gradients_are_those_of_the_module(first: dict[str, Any]) -> None:
    images = noise(first.get("channels", 3))
    module = network(**first)
    quick = quick_of(module, images)
    assert quick.layout == torch.channels_last
    assert (len(quick.crossed), len(quick.shortcuts)) == (1, 2)
    assert torch.allclose(gradient(module, images, quick), gradient(module, images, AS_GIVEN), rtol=1e-9, atol=1e-12)


class Rows(nn.Module):
    """Reads what a convolution made as it lies in memory."""

    def __init__(self, read: str) -> None:
        super().__init__()
        self.first, self.read = nn.Conv2d(3, 4, 3).double(), read

    def forward(self, images: Tensor) -> Tensor:
        made: Tensor = self.first(images)
        count = made[0].numel()
        return made.view(len(made), -1) if self.read == "view" else made.as_strided((len(made), count), (count, 1))


@pytest.mark.parametrize("read", ["view", "stride"])
def test_a_module_that_cannot_take_another_layout_is_given_its_own(read: str) -> None:
    images = noise()
    assert quick_of(Rows(read), images) == AS_GIVEN
    found = bf.attack("bim-fixed", bf.Subject(Rows(read)), images, torch.zeros(4).long(), iterations=1)
    assert found.images.shape == images.shape


def test_a_forward_pass_that_fails_leaves_no_layer_changed() -> None:
    images, module = noise(), network(kernel_size=3)
    quick = quick_of(module, images)
    handle = module[3].register_forward_pre_hook(lambda part, inputs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gradient(module, images, quick)
    handle.remove()
    assert not any("forward" in vars(part) or part._forward_hooks for part in module.modules())
