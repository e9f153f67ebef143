import re
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import benfourier as bf
from benfourier import kernels
from benfourier.errors import LayerError, SubjectError
from benfourier.subjects.plan import UnheardWarning
from benfourier.subjects.zoo import network
from tests.subjects.networks import (
    HEARD,
    Branching,
    Ending,
    Residual,
    Twice,
    Viewing,
    expected_columns,
    noise,
    plain,
    resnet,
    seeded,
    tolerance,
)


@pytest.fixture(name="subject", scope="module")
def plain_subject() -> bf.Subject:
    return bf.Subject(seeded(plain))


@pytest.mark.parametrize(("name", "layers", "columns"), [("lid-cifar10", 33, 528), ("lid-svhn", 19, 304)])
def test_lid_networks_have_the_papers_number_of_layers_and_features(name: str, layers: int, columns: int) -> None:
    subject = bf.Subject(network(name), bounds=(-0.5, 0.5))
    assert len(subject.layers(pass_through=True)) == layers
    assert bf.features(subject, noise(2, side=32) - 0.5, pass_through=True).shape == (2, columns)


def test_layers_that_only_pass_numbers_on_are_skipped_unless_asked_for(subject: bf.Subject) -> None:
    assert subject.layers() == HEARD
    everything = ["conv", "norm", "act", "same", "pool", "flat", "drop", "head", "soft-max"]
    assert subject.layers(pass_through=True) == everything


def test_descriptions_tell_kind_and_entries(subject: bf.Subject) -> None:
    conv, *_, softmax = subject.describe()
    assert (conv.kind, conv.entries, conv.module_type) == ("Conv2d", 8 * 32 * 32, nn.Conv2d)
    assert (softmax.kind, softmax.entries, softmax.module_type) == ("soft-max", 5, None)


def test_layers_come_in_firing_order_and_a_second_firing_has_its_own_name() -> None:
    net, images = seeded(Twice), noise()
    subject = bf.Subject(net, size=12)
    assert subject.layers() == ["first", "act", "mul()", "act#2", "last", "soft-max"]
    with torch.no_grad():
        once = torch.tanh(net.first(images.flatten(1)))
        twice = torch.tanh(2 * once)
    found = bf.features(subject, images, layers=["act#2", "act"])
    wanted = torch.cat([expected_columns(once), expected_columns(twice)], dim=1).numpy()
    assert np.abs(found - wanted).max() <= tolerance(16)
    assert np.abs(wanted[:, :16] - wanted[:, 16:]).max() > 2 * tolerance(16)  # the two could not be mistaken


def test_functional_operations_are_heard_under_the_name_of_the_module_that_calls_them() -> None:
    subject = bf.Subject(resnet())
    block = ["conv1", "bn1", "relu()", "conv2", "bn2", "add()", "relu()#2"]
    blocks = [f"layer{stage}.{place}.{part}" for stage in (1, 2, 3) for place in range(3) for part in block]
    assert subject.layers() == ["conv1", "bn1", "relu()", *blocks, "mean()", "linear", "soft-max"]
    assert subject.unheard() == ()


def test_operations_that_only_reshape_pass_through() -> None:
    subject = bf.Subject(resnet())
    passing = [layer for layer in subject.describe(pass_through=True) if layer.pass_through]
    assert [layer.name for layer in passing] == [
        f"layer{stage}.0.{name}" for stage in (2, 3) for name in ("getitem()", "pad()")
    ]


def test_an_optional_argument_keeps_its_default_in_the_trace() -> None:
    subject = bf.Subject(seeded(Residual))
    assert "mul()" not in subject.layers()
    assert subject.plan().runner is not subject.module


@pytest.mark.parametrize("make", [plain, Residual, Twice, Viewing, resnet])
def test_the_run_that_is_heard_gives_the_modules_own_logits(make: Any) -> None:
    net = seeded(make).eval()
    subject, images = bf.Subject(net), noise(3, side=32 if make is resnet else 12)
    plan = subject.plan(tuple(images.shape[1:]))
    with torch.no_grad():
        wanted, found = net(images), plan.runner(images)
    assert torch.equal(found, wanted)
    assert torch.equal(subject.logits(images), wanted)


def test_channels_last_is_used_where_the_module_takes_it() -> None:
    assert bf.Subject(seeded(plain)).plan().memory_format == torch.channels_last
    assert bf.Subject(seeded(Viewing), size=12).plan().memory_format == torch.contiguous_format


def test_control_flow_that_depends_on_the_data_leaves_the_modules_and_a_warning() -> None:
    subject = bf.Subject(seeded(Branching))
    with pytest.warns(UnheardWarning, match="Branching cannot be traced.*functional operations: relu, mean"):
        assert subject.layers() == ["conv", "head", "soft-max"]
    assert subject.unheard() == ("relu", "mean")


class Unfaithful(nn.Module):
    """A forward that takes another path when it is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4, 5)

    def forward(self, images: Tensor) -> Tensor:
        maps = F.relu(self.conv(images)) if isinstance(images, Tensor) else self.conv(images)
        logits: Tensor = self.head(maps.mean(dim=(2, 3)))
        return logits


def test_a_trace_that_gives_other_logits_is_not_used() -> None:
    subject = bf.Subject(seeded(Unfaithful))
    with pytest.warns(UnheardWarning, match="relu"):
        assert subject.plan().runner is subject.module


def test_a_module_wrapped_for_several_devices_is_heard_inside() -> None:
    subject = bf.Subject(nn.DataParallel(seeded(plain)))
    assert subject.layers() == [f"module.{name}" for name in HEARD[:-1]] + ["soft-max"]


def linear_logits(logits: Tensor) -> tuple[bf.Subject, Tensor]:
    """A subject, and images to which it answers with exactly these logits."""
    classes = logits.shape[1]
    net = nn.Sequential(nn.Flatten(), nn.Linear(classes, classes, bias=False))
    nn.init.eye_(net.get_parameter("1.weight"))
    subject = bf.Subject(net, bounds=(-1000, 1000), size=(1, classes), channels=1)
    return subject, logits.view(-1, 1, 1, classes)


CONFIDENT = torch.tensor([[300.0, 0, -20, 7, 100], [0, 1, -1, 2, 0.5], [-200, 500, 60, 31, 2]])


@pytest.mark.parametrize(("centre", "method"), [(True, "auto"), (True, "differentiable"), (False, "auto")])
def test_the_soft_max_comes_last_in_float64(centre: bool, method: kernels.Method) -> None:
    subject, images = linear_logits(CONFIDENT)
    assert subject.layers()[-1] == "soft-max"
    assert torch.equal(subject.logits(images), CONFIDENT)
    shifted = (CONFIDENT - CONFIDENT.amax(1, keepdim=True)).double().exp()
    wanted = kernels.magnitudes(shifted / shifted.sum(1, keepdim=True), centre=centre, method="reference")
    found = bf.features(subject, images, centre=centre, method=method)[:, -16:]
    assert np.abs(found - wanted.numpy()).max() <= 1e-6


def test_posteriors_that_float32_cannot_hold_are_heard() -> None:
    subject, images = linear_logits(CONFIDENT[:1])
    narrow = kernels.magnitudes(CONFIDENT[:1].softmax(1), centre=False, method="reference").numpy()
    found = bf.features(subject, images, layers="soft-max", centre=False)
    assert np.abs(found - narrow).max() > 0.1


@pytest.mark.parametrize("name", ["lid-mnist", "lid-cifar10"])
def test_layers_are_found_without_a_size(name: str) -> None:
    assert bf.Subject(network(name)).layers()[-1] == "soft-max"


def test_layers_are_found_with_one_mean_for_all_channels() -> None:
    assert bf.Subject(seeded(plain), mean=(0.5,), std=(0.2,)).layers() == HEARD


def test_a_module_that_takes_no_likely_size_asks_for_it() -> None:
    complaint = r"cannot be run on images of shape \(3, 32, 32\) or .* give the Subject its size="
    with pytest.raises(SubjectError, match=complaint):
        bf.Subject(seeded(Viewing)).layers()
    assert bf.Subject(seeded(Viewing), size=12).layers() == ["conv", "head", "soft-max"]


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (None, HEARD),
        ("act", ["act"]),
        (["head", "conv"], ["conv", "head"]),
        (("soft-max", "conv", "conv"), ["conv", "soft-max"]),
        ("*o*", ["conv", "norm", "pool", "soft-max"]),
        ("[ch]*", ["conv", "head"]),
        (nn.Conv2d, ["conv"]),
        (nn.modules.batchnorm._BatchNorm, ["norm"]),
        ([nn.Linear, nn.ReLU], ["act", "head"]),
        ("type:Conv2d", ["conv"]),
        (["type:Linear", "soft-max", nn.ReLU, "n*"], ["norm", "act", "head", "soft-max"]),
        ("drop", ["drop"]),
        (["flat", "act"], ["act", "flat"]),
    ],
)
def test_layers_are_selected_by_name_glob_or_type_in_firing_order(
    subject: bf.Subject, selection: Any, wanted: list[str]
) -> None:
    assert subject.layers(selection) == wanted
    assert bf.features(subject, noise(2), 2, layers=selection).shape == (2, 2 * len(wanted))


def test_selected_columns_are_those_of_all_layers(subject: bf.Subject) -> None:
    everything = bf.features(subject, noise(), 4).reshape(4, len(HEARD), 4)
    some = bf.features(subject, noise(), 4, layers=["head", nn.ReLU])
    assert np.array_equal(some, everything[:, [2, 4]].reshape(4, 8))


def test_functions_are_selected_by_name_and_type() -> None:
    subject = bf.Subject(seeded(Residual))
    assert subject.layers("type:relu") == ["relu()", "body.relu()"]
    assert subject.layers("body.*") == ["body.conv", "body.add()", "body.relu()"]


def test_globs_and_types_leave_out_layers_that_only_pass_numbers_on(subject: bf.Subject) -> None:
    with pytest.raises(LayerError, match="no layer is of type Dropout"):
        subject.layers(nn.Dropout)
    assert subject.layers(nn.Dropout, pass_through=True) == ["drop"]
    assert "drop" not in subject.layers("*")


@pytest.mark.parametrize(
    ("selection", "complaint"),
    [
        ("haed", "layer 'haed' not found; near matches: head"),
        (["conv", "x.9"], "layer 'x.9' not found; this subject has 9 layers"),
        ("features.*", "layer 'features.*' not found"),
        ([], "the selection of layers is empty"),
        (nn.Conv3d, "no layer is of type Conv3d; this subject has AdaptiveAvgPool2d, BatchNorm2d, Conv2d"),
        ("type:Conv3d", "no layer is of type type:Conv3d"),
        (3, "layers holds 3; it must be names, globs or module types"),
        (["conv", None], "layers holds None"),
    ],
)
def test_a_selection_that_matches_nothing_is_refused_with_its_words(
    subject: bf.Subject, selection: Any, complaint: str
) -> None:
    for call in (subject.layers, lambda layers: bf.features(subject, noise(2), layers=layers)):
        with pytest.raises(LayerError, match=re.escape(complaint)):
            call(selection)


def test_a_module_of_which_no_layer_fires_is_refused() -> None:
    class Hollow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Linear(3, 5)

        def forward(self, images: Tensor) -> Tensor:
            if images.sum() > 1e9:
                return images
            return images.flatten(1)[:, :5]

    with pytest.raises(SubjectError, match="no layer of the module fired"):
        bf.Subject(Hollow()).layers()


def test_a_layer_that_falls_silent_is_named() -> None:
    class Sometimes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU()
            self.head = nn.Linear(3 * 12 * 12, 5)

        def forward(self, images: Tensor) -> Tensor:
            if images.any():
                images = self.act(images)
            logits: Tensor = self.head(images.flatten(1))
            return logits

    subject = bf.Subject(Sometimes(), size=12)
    with pytest.raises(bf.BenfourierError, match=r"layers \['act'\] did not fire for this batch"):
        bf.features(subject, torch.zeros(2, 3, 12, 12))


def test_outputs_in_a_mapping_are_heard_too() -> None:
    subject = bf.Subject(seeded(lambda: Ending(lambda logits: {"loss": None, "logits": logits})), size=12)
    assert subject.layers() == ["head", "soft-max"]


class Windows(nn.Module):
    """Cuts images into quarters and runs a layer on all quarters of all images at once."""

    def __init__(self) -> None:
        super().__init__()
        self.window, self.head = nn.Conv2d(3, 4, 3), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        quarters = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(-1, 3, 4, 4)
        means = self.window(quarters).mean(dim=(2, 3))
        result: torch.Tensor = self.head(means.reshape(x.shape[0], -1))
        return result


def test_a_layer_whose_first_dimension_does_not_count_images_is_named_in_a_warning() -> None:
    subject = bf.Subject(seeded(Windows), size=8)
    with pytest.warns(UnheardWarning, match="first dimension does not count images.*: window"):
        assert "window" not in subject.layers()
    assert "head" in subject.layers()
    assert subject.unheard() == ("window",)


def test_layers_are_known_after_features_even_for_an_unusual_size() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(3 * 5 * 7, 4))
    subject = bf.Subject(module)
    bf.features(subject, torch.rand(2, 3, 5, 7))
    assert subject.layers() == ["1", "soft-max"]
