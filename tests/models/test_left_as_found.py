"""Whatever happens to a classifier, its module is afterwards as it was before."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import benfourier as bf
from benfourier.errors import ActivationError, ClassifierError, OptionError
from benfourier.models.forward import observe
from benfourier.models.layers import LayerRecorder
from benfourier.models.module import eval_mode, frozen
from tests.models.networks import noise, plain, refusing, relative, seeded, stepping, with_black

HOOKS = ["_forward_hooks", "_forward_pre_hooks", "_forward_hooks_always_called", "_forward_hooks_with_kwargs"]
HOOKS += ["_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks"]


def customised_network(step: Callable[[Tensor], Tensor] = torch.clone) -> nn.Sequential:
    """A network with a mode, frozen weights, a layout and a hook of its own in some of its parts."""
    net = nn.Sequential(stepping(step)[0], *seeded(plain)).train()
    norm = net[2].eval()
    norm.weight.requires_grad_(False)
    net[1].to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    net[1].register_forward_hook(lambda module, inputs, activation: None)
    net[8].register_forward_pre_hook(lambda module, inputs: None)
    return net


def condition(module: nn.Module) -> dict[str, Any]:
    """Everything about a module that a forward pass could change; tensors by their bytes."""
    snapshot: dict[str, Any] = {}
    for name, part in module.named_modules():
        snapshot[f"{name} mode"] = part.training
        snapshot[f"{name} attributes"] = sorted(vars(part))
        for hooks in HOOKS:
            snapshot[f"{name} {hooks}"] = list(getattr(part, hooks))
    for name, tensor in module.state_dict(keep_vars=True).items():
        snapshot[f"{name} bytes"] = tensor.detach().contiguous().numpy().tobytes()
        snapshot[f"{name} form"] = (tensor.dtype, tensor.stride(), tensor.requires_grad, id(tensor), tensor.data_ptr())
        snapshot[f"{name} grad"] = tensor.grad
        snapshot[f"{name} inference"] = tensor.is_inference()
    return snapshot


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]


@pytest.mark.parametrize(
    "use",
    [
        lambda classifier: bf.features(classifier, noise(), batch=2),
        lambda classifier: bf.features(classifier, noise(), layers="1", backend="reference"),
        lambda classifier: bf.features(classifier, noise(), backend="torch"),
        lambda classifier: classifier.layer_names(),
        lambda classifier: classifier.unobserved(),
        lambda classifier: classifier.logits(noise()),
    ],
    ids=["features", "some features", "torch features", "layers", "unobserved", "logits"],
)
def test_using_a_classifier_leaves_its_module_as_found(use: Callable[[bf.Classifier], Any]) -> None:
    net = customised_network()
    before = condition(net)
    use(bf.Classifier(net, size=12, channels=3))
    assert changes(before, condition(net)) == []


def test_a_forward_pass_that_fails_leaves_the_module_as_found() -> None:
    net = customised_network(refusing)
    before, classifier = condition(net), bf.Classifier(net)
    with pytest.raises(RuntimeError, match="a black image"):
        bf.features(classifier, with_black(noise(), 2))
    assert changes(before, condition(net)) == []
    with pytest.raises(RuntimeError, match="a black image"):
        classifier.logits(with_black(noise(), 2))
    assert changes(before, condition(net)) == []


def test_a_trial_pass_that_fails_leaves_the_module_as_found() -> None:
    def fail(maps: Tensor) -> Tensor:
        raise ValueError("never")

    net = customised_network(fail)
    before = condition(net)
    with pytest.raises(ClassifierError, match="never"):
        bf.Classifier(net, size=12, channels=3).layer_names()
    assert changes(before, condition(net)) == []


def test_a_module_that_returns_no_logits_is_left_as_found() -> None:
    net = nn.Sequential(*customised_network(), nn.Softmax(dim=1))
    before = condition(net)
    with pytest.raises(ClassifierError, match="probabilities"):
        bf.features(bf.Classifier(net), noise())
    assert changes(before, condition(net)) == []


def test_an_activation_that_is_refused_leaves_the_module_as_found() -> None:
    net = customised_network(relative)
    before = condition(net)
    with pytest.raises(ActivationError, match="in '0'"):
        bf.features(bf.Classifier(net), with_black(noise(), 2))
    assert changes(before, condition(net)) == []


def test_a_kernel_that_refuses_leaves_the_module_as_found() -> None:
    net = customised_network()
    before = condition(net)
    with pytest.raises(OptionError, match="'none'"):
        bf.features(bf.Classifier(net), noise(), backend="none")  # type: ignore[arg-type]
    assert changes(before, condition(net)) == []


def test_a_module_in_train_mode_is_observed_in_eval_mode() -> None:
    training, evaluating = customised_network(), customised_network().eval()
    assert (bf.features(bf.Classifier(training), noise()) == bf.features(bf.Classifier(evaluating), noise())).all()


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
    classifier, images = bf.Classifier(seeded(Shifting)), noise().contiguous(memory_format=layout)
    before, expected = images.clone(), classifier.module(images.clone())
    assert torch.equal(classifier.logits(images), expected)
    assert torch.equal(images, before)
    bf.features(classifier, images)
    assert torch.equal(images, before)


def test_a_network_that_writes_into_its_images_is_observed_in_full() -> None:
    classifier = bf.Classifier(seeded(Shifting), size=12, channels=3)
    assert classifier.layer_names() == ["sub()", "conv", "head", "soft-max"]
    assert (bf.features(classifier, noise(), layers="conv") == bf.features(*shifted_by_hand(), layers="0")).all()


def shifted_by_hand() -> tuple[bf.Classifier, Tensor]:
    """The same network without its first step, and images already shifted."""
    net = seeded(Shifting)
    return bf.Classifier(nn.Sequential(net.conv, nn.Flatten(), net.head), bounds=(-0.5, 0.5)), noise() - 0.5


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
    net = customised_network()
    before = condition(net)
    disturb(net)
    assert changes(before, condition(net))


@pytest.mark.parametrize("hold", [eval_mode, frozen])
def test_a_block_within_a_block_leaves_the_module_as_the_outer_one_needs_it(hold: Callable[[nn.Module], Any]) -> None:
    net = customised_network()
    before = condition(net)
    with hold(net):
        with hold(net):
            pass
        assert not any(part.training for part in net.modules())
        assert hold is eval_mode or not any(parameter.requires_grad for parameter in net.parameters())
    assert changes(before, condition(net)) == []


def test_a_second_thread_waits_until_the_module_is_as_it_was() -> None:
    net, modes = customised_network(), list[bool]()
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with eval_mode(net):
            inside.set()
            leave.wait(10)

    def look() -> None:
        with eval_mode(net):
            modes.append(net.training)

    first, second = threading.Thread(target=hold), threading.Thread(target=look)
    first.start()
    inside.wait(10)
    second.start()
    second.join(0.05)
    assert modes == []
    leave.set()
    first.join()
    second.join()
    assert modes == [False]
    assert net.training


class Outer:
    """An observer that observes another pass of the same network for each layer."""

    layers = ("conv", "head")

    def __init__(self, classifier: bf.Classifier) -> None:
        self.classifier = classifier

    def reduce(self, layer: str, activation: Tensor) -> Tensor:
        (inner,) = observe(self.classifier, noise(2), [Inner()]).values
        return inner["act"]


class Inner:
    layers = ("act",)

    def reduce(self, layer: str, activation: Tensor) -> Tensor:
        return activation.clone()


def test_a_pass_within_a_pass_is_observed_apart() -> None:
    net = seeded(plain).train()
    before, classifier = condition(net), bf.Classifier(net, size=12, channels=3)
    observation = observe(classifier, noise(3), [Outer(classifier)])
    (alone,) = observe(classifier, noise(2), [Inner()]).values
    assert torch.equal(observation.values[0]["conv"], alone["act"])
    assert torch.equal(observation.values[0]["head"], alone["act"])
    assert torch.equal(observation.logits, classifier.logits(noise(3).contiguous(memory_format=torch.channels_last)))
    assert changes(before, condition(net)) == []


def test_calls_of_the_module_by_another_thread_are_not_recorded() -> None:
    net = seeded(plain).eval()
    firings: list[str] = []

    def record(name: str, source: object, activation: Tensor) -> None:
        firings.append(name)

    with LayerRecorder(net, record):
        other = threading.Thread(target=net, args=(noise(2),))
        other.start()
        other.join()
        assert firings == []
        net(noise(2))
    assert firings == ["conv", "norm", "act", "same", "pool", "flat", "drop", "head"]


def test_a_part_put_in_place_of_another_is_observed() -> None:
    net = seeded(plain)
    classifier = bf.Classifier(net)
    bf.features(classifier, noise())
    old = net[-1]
    assert isinstance(old, nn.Linear)
    net[-1] = nn.Linear(old.in_features, old.out_features)
    assert (bf.features(classifier, noise()) == bf.features(bf.Classifier(net), noise())).all()
    assert len(classifier._layer_lists) == 1
