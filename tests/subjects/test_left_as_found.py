"""Whatever happens to a subject, its module is afterwards as it was before."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import benfourier as bf
from benfourier.errors import OptionError, ResponseError, SubjectError
from benfourier.subjects.hearing import at_rest, undisturbed
from tests.subjects.networks import noise, plain, refusing, relative, seeded, stepping, with_black

HOOKS = ["_forward_hooks", "_forward_pre_hooks", "_forward_hooks_always_called", "_forward_hooks_with_kwargs"]
HOOKS += ["_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks"]


def lived_in(step: Callable[[Tensor], Tensor] = torch.clone) -> nn.Sequential:
    """A network with a mode, frozen weights, a layout and a hook of its own in some of its parts."""
    net = nn.Sequential(stepping(step)[0], *seeded(plain)).train()
    norm = net[2].eval()
    norm.weight.requires_grad_(False)
    net[1].to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    net[1].register_forward_hook(lambda module, inputs, response: None)
    net[8].register_forward_pre_hook(lambda module, inputs: None)
    return net


def condition(module: nn.Module) -> dict[str, Any]:
    """Everything about a module that a forward pass could change; tensors by their bytes."""
    found: dict[str, Any] = {}
    for name, part in module.named_modules():
        found[f"{name} mode"] = part.training
        found[f"{name} attributes"] = sorted(vars(part))
        for hooks in HOOKS:
            found[f"{name} {hooks}"] = list(getattr(part, hooks))
    for name, tensor in module.state_dict(keep_vars=True).items():
        found[f"{name} bytes"] = tensor.detach().contiguous().numpy().tobytes()
        found[f"{name} form"] = (tensor.dtype, tensor.stride(), tensor.requires_grad, id(tensor), tensor.data_ptr())
        found[f"{name} grad"] = tensor.grad
        found[f"{name} inference"] = tensor.is_inference()
    return found


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]


@pytest.mark.parametrize(
    "use",
    [
        lambda subject: bf.features(subject, noise(), batch=2),
        lambda subject: bf.features(subject, noise(), layers="1", method="reference"),
        lambda subject: bf.features(subject, noise(), method="differentiable"),
        lambda subject: subject.layers(),
        lambda subject: subject.unheard(),
        lambda subject: subject.logits(noise()),
    ],
    ids=["features", "some features", "differentiable features", "layers", "unheard", "logits"],
)
def test_using_a_subject_leaves_its_module_as_found(use: Callable[[bf.Subject], Any]) -> None:
    net = lived_in()
    before = condition(net)
    use(bf.Subject(net))
    assert changes(before, condition(net)) == []


def test_a_forward_pass_that_fails_leaves_the_module_as_found() -> None:
    net = lived_in(refusing)
    before, subject = condition(net), bf.Subject(net)
    with pytest.raises(RuntimeError, match="a black image"):
        bf.features(subject, with_black(noise(), 2))
    assert changes(before, condition(net)) == []
    with pytest.raises(RuntimeError, match="a black image"):
        subject.logits(with_black(noise(), 2))
    assert changes(before, condition(net)) == []


def test_a_trial_pass_that_fails_leaves_the_module_as_found() -> None:
    def fail(maps: Tensor) -> Tensor:
        raise ValueError("never")

    net = lived_in(fail)
    before = condition(net)
    with pytest.raises(SubjectError, match="never"):
        bf.Subject(net).layers()
    assert changes(before, condition(net)) == []


def test_a_module_that_returns_no_logits_is_left_as_found() -> None:
    net = nn.Sequential(*lived_in(), nn.Softmax(dim=1))
    before = condition(net)
    with pytest.raises(SubjectError, match="probabilities"):
        bf.features(bf.Subject(net), noise())
    assert changes(before, condition(net)) == []


def test_a_response_that_is_refused_leaves_the_module_as_found() -> None:
    net = lived_in(relative)
    before = condition(net)
    with pytest.raises(ResponseError, match="layer '0'"):
        bf.features(bf.Subject(net), with_black(noise(), 2))
    assert changes(before, condition(net)) == []


def test_a_kernel_that_refuses_leaves_the_module_as_found() -> None:
    net = lived_in()
    before = condition(net)
    with pytest.raises(OptionError, match="'none'"):
        bf.features(bf.Subject(net), noise(), method="none")  # type: ignore[arg-type]
    assert changes(before, condition(net)) == []


def test_a_module_in_train_mode_is_heard_in_eval_mode() -> None:
    train, rest = lived_in(), lived_in().eval()
    assert (bf.features(bf.Subject(train), noise()) == bf.features(bf.Subject(rest), noise())).all()


class Shifting(nn.Module):
    """A network that writes into the images it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4 * 12 * 12, 5)

    def forward(self, images: Tensor) -> Tensor:
        images -= 0.5
        logits: Tensor = self.head(self.conv(images).flatten(1))
        return logits


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_images_are_left_as_they_are(layout: torch.memory_format) -> None:
    subject, images = bf.Subject(seeded(Shifting)), noise().contiguous(memory_format=layout)
    kept, wanted = images.clone(), subject.module(images.clone())
    assert torch.equal(subject.logits(images), wanted)
    assert torch.equal(images, kept)
    bf.features(subject, images)
    assert torch.equal(images, kept)


def test_a_network_that_writes_into_its_images_is_heard_in_full() -> None:
    subject = bf.Subject(seeded(Shifting), size=12)
    assert subject.layers() == ["sub()", "conv", "head", "soft-max"]
    assert (bf.features(subject, noise(), layers="conv") == bf.features(*shifted_by_hand(), layers="0")).all()


def shifted_by_hand() -> tuple[bf.Subject, Tensor]:
    """The same network without its first step, and images already shifted."""
    net = seeded(Shifting)
    return bf.Subject(nn.Sequential(net.conv, nn.Flatten(), net.head), bounds=(-0.5, 0.5)), noise() - 0.5


@pytest.mark.parametrize(
    "disturb",
    [
        lambda net: net.train(),
        lambda net: net[4].register_forward_hook(lambda *args: None),
        lambda net: net[1].bias.requires_grad_(False),
        lambda net: net[1].bias.data.add_(1e-6),
        lambda net: net[2].running_mean.add_(1e-6),
        lambda net: net[1].to(memory_format=torch.contiguous_format),
        lambda net: net(noise()).sum().backward(),
    ],
    ids=["mode", "hook", "flag", "weight", "buffer", "layout", "gradient"],
)
def test_a_disturbance_would_be_noticed(disturb: Callable[[nn.Sequential], Any]) -> None:
    net = lived_in()
    before = condition(net)
    disturb(net)
    assert changes(before, condition(net))


@pytest.mark.parametrize("hold", [at_rest, undisturbed])
def test_a_module_wakes_when_the_last_block_has_been_left(hold: Callable[[nn.Module], Any]) -> None:
    net = lived_in()
    before = condition(net)
    first, second = hold(net), hold(net)  # of two threads, the first to enter leaves first
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not any(part.training for part in net.modules())
    assert hold is at_rest or not any(parameter.requires_grad for parameter in net.parameters())
    second.__exit__(None, None, None)
    assert changes(before, condition(net)) == []


def test_a_part_put_in_place_of_another_is_heard() -> None:
    net = seeded(plain)
    subject = bf.Subject(net)
    bf.features(subject, noise())
    old = net[-1]
    assert isinstance(old, nn.Linear)
    net[-1] = nn.Linear(old.in_features, old.out_features)
    assert (bf.features(subject, noise()) == bf.features(bf.Subject(net), noise())).all()
    assert len(subject._plans) == 1
