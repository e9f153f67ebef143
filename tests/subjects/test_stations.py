"""Steps heard in one pass give what they give one by one, and modules that must be called are called."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import benfourier as bf
from benfourier.subjects import plan
from benfourier.subjects.features import batch_features
from benfourier.subjects.stations import Station


class Residual(nn.Module):
    """A block with every step that stations take, and some that they must leave alone."""

    def __init__(self, channels: int, *, affine: bool = True) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels, affine=affine)
        self.act = nn.ReLU(inplace=True)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.act(self.norm(self.first(images)))
        x = functional.relu(self.norm2(self.second(x)) + x)
        x = torch.relu(x + 1)
        logits: Tensor = self.head(x.mean(dim=(2, 3)))
        return logits


def subject_of(channels: int = 16, *, affine: bool = True) -> bf.Subject:
    torch.manual_seed(0)
    module = Residual(channels, affine=affine)
    with torch.no_grad():
        module(torch.rand(64, 3, 16, 16))  # statistics of its own
        for norm in (module.norm, module.norm2):
            if norm.affine:
                norm.weight.uniform_(-1, 2)
                norm.bias.normal_()
    return bf.Subject(module.eval(), size=16, channels=3)


def stations_of(subject: bf.Subject) -> list[Station]:
    return [part for part in subject.plan().runner.children() if isinstance(part, Station)]


def images(number: int = 8) -> Tensor:
    return torch.rand(number, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("channels", [3, 16, 24])
def test_stations_agree_with_the_reference_layer_by_layer(channels: int, affine: bool) -> None:
    subject = subject_of(channels, affine=affine)
    layers = subject.describe()
    assert stations_of(subject)
    found = bf.features(subject, images()).reshape(8, len(layers), 16)
    exact = bf.features(subject, images(), method="reference").reshape(8, len(layers), 16)
    for k, layer in enumerate(layers):
        limit = max(1e-6, 0.05 * math.sqrt(math.pi / layer.entries))
        # logits behind a station differ in their last bits
        assert abs(found[:, k] - exact[:, k]).max() <= (limit if layer.entries > 10 else 1e-3), layer.name


def test_logits_behind_stations_are_the_modules_up_to_rounding() -> None:
    subject = subject_of()
    with torch.inference_mode():
        logits, _ = batch_features(subject, subject.plan(), images(), subject.describe(), 16)
        assert torch.allclose(logits, subject.module(images()), rtol=1e-5, atol=1e-5)


def test_weights_changed_after_the_trial_pass_are_heard() -> None:
    subject = subject_of()
    before = bf.features(subject, images())
    assert isinstance(subject.module, Residual)
    subject.module.norm.bias.data.add_(3)
    after = bf.features(subject, images())
    exact = bf.features(subject, images(), method="reference")
    assert abs(after - before).max() > 0.01
    assert abs(after - exact).max() < 0.01


def test_a_module_with_a_hook_of_its_own_is_called() -> None:
    subject = subject_of()
    expected = bf.features(subject, images())
    calls: list[int] = []
    assert isinstance(subject.module, Residual)
    handle = subject.module.norm.register_forward_hook(lambda *_: calls.append(1))
    assert abs(bf.features(subject, images()) - expected).max() < 0.01
    handle.remove()
    assert calls == [1]


def test_a_response_of_one_value_gives_zeros_behind_a_station() -> None:
    subject = subject_of()
    assert isinstance(subject.module, Residual)
    with torch.no_grad():
        subject.module.norm.weight.zero_()
        subject.module.norm.bias.fill_(-1)
    found = bf.features(subject, images(), layers=["norm", "act"])
    assert abs(found).max() < 2e-6


def test_gradients_flow_past_stations() -> None:
    subject = subject_of()
    entering = images().requires_grad_()
    _, found = batch_features(subject, subject.plan(), entering, subject.describe(), 16)
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert entering.grad is not None
    assert bool(entering.grad.abs().sum() > 0)


class Projected(nn.Module):
    """Batch norm on both ways to the addition, as where a ResNet halves its images."""

    def __init__(self) -> None:
        super().__init__()
        self.main, self.main_norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.short, self.short_norm = nn.Conv2d(3, 16, 1), nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.relu(self.main_norm(self.main(images)) + self.short_norm(self.short(images)))
        logits: Tensor = self.head(x.mean(dim=(2, 3)))
        return logits


class Skipped(Projected):
    """What is normed is added to itself as it was."""

    def forward(self, images: Tensor) -> Tensor:
        x = self.main(images)
        logits: Tensor = self.head(functional.relu(self.main_norm(x) + x).mean(dim=(2, 3)))
        return logits


class Shared(Projected):
    """One in-place ReLU, once on what is used again, which stations must leave alone, and once not."""

    def __init__(self) -> None:
        super().__init__()
        self.act, self.second = nn.ReLU(inplace=True), nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        x = self.main(images)
        y = self.act(self.second(self.act(x)))
        logits: Tensor = self.head((x + self.main_norm(y)).mean(dim=(2, 3)))
        return logits


@pytest.mark.parametrize(
    ("kind", "layers", "stations"),
    [
        (Projected, "main main_norm short short_norm add() relu() mean() head soft-max", 2),
        (Skipped, "main main_norm add() relu() mean() head soft-max", 1),
        (Shared, "main act second act#2 main_norm add() mean() head soft-max", 1),
    ],
)
def test_stations_change_neither_what_is_heard_nor_its_order(
    kind: type[nn.Module], layers: str, stations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    module = kind()
    module(torch.rand(64, 3, 16, 16))
    subject, plain = (bf.Subject(module.eval(), size=16, channels=3) for _ in range(2))
    monkeypatch.setattr(plan, "_quicker", lambda subject, runner, *_: runner)
    without = bf.features(plain, images())
    monkeypatch.undo()
    assert subject.layers() == plain.layers() == layers.split()
    assert (len(stations_of(subject)), len(stations_of(plain))) == (stations, 0)
    assert abs(bf.features(subject, images()) - without).max() < 2e-3


class Reused(nn.Module):
    """Uses what an in-place ReLU has overwritten."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.conv(images)
        y = self.act(x)
        logits: Tensor = self.head((x + y).mean(dim=(2, 3)))
        return logits


def test_an_overwritten_response_that_is_used_again_stays_overwritten() -> None:
    subject = bf.Subject(Reused().eval(), size=16, channels=3)
    with torch.inference_mode():
        logits, _ = batch_features(subject, subject.plan(), images(), subject.describe(), 16)
        assert torch.allclose(logits, subject.module(images()), rtol=1e-5, atol=1e-5)


def test_stations_give_the_same_bits_as_the_modules_one_by_one() -> None:
    subject = subject_of()
    quick = bf.features(subject, images())
    assert isinstance(subject.module, Residual)
    handles = [m.register_forward_hook(lambda *_: None) for m in subject.module.children()]
    slow = bf.features(subject, images())
    for handle in handles:
        handle.remove()
    assert (quick == slow).all()


def rectified_subject() -> bf.Subject:
    """A convolution, its ReLU and the batch norm of that: steps that overwrite the convolution's response."""
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16)
    module = nn.Sequential(conv, nn.ReLU(), norm, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 49, 10))
    with torch.no_grad():
        module(torch.rand(64, 3, 16, 16))
        norm.weight.uniform_(-1, 2)
        norm.bias.normal_()
    return bf.Subject(module.eval(), size=16, channels=3)


@pytest.mark.parametrize("black", [False, True])
def test_a_rectified_and_normed_convolution_agrees_with_the_reference_layer_by_layer(black: bool) -> None:
    subject, entering = rectified_subject(), images()
    if black:
        entering[:, :, :10] = 0
    layers = subject.describe()
    found = bf.features(subject, entering).reshape(8, len(layers), 16)
    exact = bf.features(subject, entering, method="reference").reshape(8, len(layers), 16)
    for k, layer in enumerate(layers):
        limit = max(1e-6, 0.05 * math.sqrt(math.pi / layer.entries))
        # logits behind a station differ in their last bits
        assert abs(found[:, k] - exact[:, k]).max() <= (limit if layer.entries > 10 else 1e-3), layer.name


def test_a_response_that_a_hook_has_kept_is_not_overwritten() -> None:
    subject = rectified_subject()
    kept: list[Tensor] = []
    handle = subject.module[0].register_forward_hook(lambda _, __, response: kept.append(response))  # type: ignore[index]
    bf.features(subject, images())
    handle.remove()
    with torch.inference_mode():
        assert torch.allclose(kept[-1], subject.module[0](subject.normalise(images())), atol=1e-5)  # type: ignore[index]
