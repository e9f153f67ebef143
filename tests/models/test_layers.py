import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import benfourier as bf
from benfourier import kernels
from benfourier.errors import ClassifierError, LayerError
from benfourier.models.classifier import CACHE
from benfourier.models.forward import observe
from benfourier.models.layers import UnobservedLayerWarning
from benfourier.models.zoo import ZOO
from tests.models import networks
from tests.models.networks import (
    OBSERVED,
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


@pytest.fixture(name="classifier", scope="module")
def plain_classifier() -> bf.Classifier:
    return bf.Classifier(seeded(plain), size=12, channels=3)


@pytest.mark.parametrize(("name", "layers", "columns"), [("lid-cifar10", 33, 528), ("lid-svhn", 19, 304)])
def test_lid_networks_have_the_papers_number_of_layers_and_features(name: str, layers: int, columns: int) -> None:
    classifier = bf.Classifier(ZOO[name].factory(), bounds=(-0.5, 0.5), size=32)
    assert len(classifier.layer_names(pass_through=True)) == layers
    assert bf.features(classifier, noise(2, side=32) - 0.5, pass_through=True).shape == (2, columns)


def test_layers_that_only_pass_numbers_on_are_skipped_unless_asked_for(classifier: bf.Classifier) -> None:
    assert classifier.layer_names() == OBSERVED
    everything = ["conv", "norm", "act", "same", "pool", "flat", "drop", "head", "soft-max"]
    assert classifier.layer_names(pass_through=True) == everything


def test_descriptions_give_kind_and_entries(classifier: bf.Classifier) -> None:
    conv, *_, softmax = classifier.layers()
    assert (conv.kind, conv.entries, conv.module_type) == ("Conv2d", 8 * 12 * 12, nn.Conv2d)
    assert (softmax.kind, softmax.entries, softmax.module_type) == ("soft-max", 5, None)


def test_layers_come_in_firing_order_and_a_second_firing_has_its_own_name() -> None:
    net, images = seeded(Twice), noise()
    classifier = bf.Classifier(net, size=12, channels=3)
    assert classifier.layer_names() == ["first", "act", "mul()", "act#2", "last", "soft-max"]
    with torch.no_grad():
        once = torch.tanh(net.first(images.flatten(1)))
        twice = torch.tanh(2 * once)
    features = bf.features(classifier, images, layers=["act#2", "act"])
    expected = torch.cat([expected_columns(once), expected_columns(twice)], dim=1).numpy()
    assert np.abs(features - expected).max() <= tolerance(16)
    assert np.abs(expected[:, :16] - expected[:, 16:]).max() > 2 * tolerance(16)  # the two could not be mistaken


def test_functional_operations_are_observed_under_the_name_of_the_module_that_calls_them() -> None:
    classifier = bf.Classifier(resnet(), size=32)
    block = ["conv1", "bn1", "relu()", "conv2", "bn2", "add()", "relu()#2"]
    blocks = [f"layer{stage}.{place}.{part}" for stage in (1, 2, 3) for place in range(3) for part in block]
    assert classifier.layer_names() == ["conv1", "bn1", "relu()", *blocks, "mean()", "linear", "soft-max"]
    assert classifier.unobserved() == ()


def test_operations_that_only_reshape_pass_through() -> None:
    classifier = bf.Classifier(resnet(), size=32)
    passing = [layer for layer in classifier.layers(pass_through=True) if layer.pass_through]
    assert [layer.name for layer in passing] == [
        f"layer{stage}.0.{name}" for stage in (2, 3) for name in ("getitem()", "pad()")
    ]


def test_an_optional_argument_keeps_its_default() -> None:
    classifier = bf.Classifier(seeded(Residual), size=12, channels=3)
    assert "mul()" not in classifier.layer_names()


@pytest.mark.parametrize("make", [plain, Residual, Twice, Viewing, resnet])
def test_an_observed_pass_gives_the_modules_own_logits(make: Any) -> None:
    net = seeded(make).eval()
    classifier, images = bf.Classifier(net), noise(3, side=32 if make is resnet else 12)
    layout = classifier.layer_list(tuple(images.shape[1:])).memory_format
    with torch.no_grad():
        assert torch.equal(observe(classifier, images, []).logits, net(images.contiguous(memory_format=layout)))
        assert torch.equal(classifier.logits(images), net(images))


def test_channels_last_is_used_where_the_module_takes_it() -> None:
    assert bf.Classifier(seeded(plain), size=12, channels=3).layer_list().memory_format == torch.channels_last
    assert bf.Classifier(seeded(Viewing), size=12, channels=3).layer_list().memory_format == torch.contiguous_format


def test_control_flow_that_depends_on_the_data_is_observed() -> None:
    classifier = bf.Classifier(seeded(Branching), size=12, channels=3)
    assert classifier.layer_names() == ["conv", "relu()", "mean()", "head", "soft-max"]
    assert classifier.unobserved() == ()


EXPECTED = json.loads((Path(__file__).parent / "layer_names.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXPECTED)
def test_layers_are_those_of_version_0_1(name: str) -> None:
    if name in ZOO:
        module, shape = ZOO[name].factory(), (ZOO[name].channels, ZOO[name].size, ZOO[name].size)
    else:
        module = seeded(getattr(networks, name))
        shape = (3, 16, 16) if name == "Transformer" else (3, 12, 12)
    classifier = bf.Classifier(module, size=shape[1:], channels=shape[0])
    layers = [
        f"{layer.name} {layer.entries}" + " passes" * layer.pass_through
        for layer in classifier.layers(pass_through=True)
    ]
    assert layers == EXPECTED[name]


def linear_logits(logits: Tensor) -> tuple[bf.Classifier, Tensor]:
    """A classifier, and images for which it returns exactly these logits."""
    classes = logits.shape[1]
    net = nn.Sequential(nn.Flatten(), nn.Linear(classes, classes, bias=False))
    nn.init.eye_(net.get_parameter("1.weight"))
    classifier = bf.Classifier(net, bounds=(-1000, 1000), size=(1, classes), channels=1)
    return classifier, logits.view(-1, 1, 1, classes)


CONFIDENT = torch.tensor([[300.0, 0, -20, 7, 100], [0, 1, -1, 2, 0.5], [-200, 500, 60, 31, 2]])


@pytest.mark.parametrize(("centre", "backend"), [(True, "auto"), (True, "torch"), (False, "auto")])
def test_the_soft_max_comes_last_in_float64(centre: bool, backend: kernels.Backend) -> None:
    classifier, images = linear_logits(CONFIDENT)
    assert classifier.layer_names()[-1] == "soft-max"
    assert torch.equal(classifier.logits(images), CONFIDENT)
    shifted = (CONFIDENT - CONFIDENT.amax(1, keepdim=True)).double().exp()
    expected = kernels.magnitudes(shifted / shifted.sum(1, keepdim=True), centre=centre, backend="reference")
    features = bf.features(classifier, images, centre=centre, backend=backend)[:, -16:]
    assert np.abs(features - expected.numpy()).max() <= 1e-6


def test_posteriors_that_float32_cannot_hold_are_observed() -> None:
    classifier, images = linear_logits(CONFIDENT[:1])
    narrow = kernels.magnitudes(CONFIDENT[:1].softmax(1), centre=False, backend="reference").numpy()
    features = bf.features(classifier, images, layers="soft-max", centre=False)
    assert np.abs(features - narrow).max() > 0.1


def test_layers_are_found_with_one_mean_for_all_channels() -> None:
    assert bf.Classifier(seeded(plain), mean=(0.5,), std=(0.2,), size=12, channels=3).layer_names() == OBSERVED


def test_without_a_size_the_classifier_asks_for_it() -> None:
    with pytest.raises(ClassifierError, match=r"shape of the images is unknown; give the Classifier its size= and ch"):
        bf.Classifier(seeded(Viewing)).layer_names()
    with pytest.raises(ClassifierError, match=r"cannot be run on images of shape \(3, 13, 13\): .* its size= and"):
        bf.Classifier(seeded(Viewing), size=13).layer_names()
    assert bf.Classifier(seeded(Viewing), size=12, channels=3).layer_names() == ["conv", "head", "soft-max"]


def test_layer_lists_of_ever_new_sizes_do_not_pile_up() -> None:
    classifier = bf.Classifier(seeded(Residual))
    for side in range(8, 8 + CACHE + 5):
        classifier.layer_list((3, side, 4))
    assert len(classifier._layer_lists) == CACHE
    assert classifier.layers()[0].entries == 6 * (8 + CACHE + 4) * 4  # those seen last


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (None, OBSERVED),
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
    classifier: bf.Classifier, selection: Any, expected: list[str]
) -> None:
    assert classifier.layer_names(selection) == expected
    assert bf.features(classifier, noise(2), 2, layers=selection).shape == (2, 2 * len(expected))


def test_selected_columns_are_those_of_all_layers(classifier: bf.Classifier) -> None:
    everything = bf.features(classifier, noise(), 4).reshape(4, len(OBSERVED), 4)
    some = bf.features(classifier, noise(), 4, layers=["head", nn.ReLU])
    assert np.array_equal(some, everything[:, [2, 4]].reshape(4, 8))


def test_functions_are_selected_by_name_and_type() -> None:
    classifier = bf.Classifier(seeded(Residual), size=12, channels=3)
    assert classifier.layer_names("type:relu") == ["relu()", "body.relu()"]
    assert classifier.layer_names("body.*") == ["body.conv", "body.add()", "body.relu()"]


def test_globs_and_types_leave_out_layers_that_only_pass_numbers_on(classifier: bf.Classifier) -> None:
    with pytest.raises(LayerError, match="no layer is of type Dropout"):
        classifier.layer_names(nn.Dropout)
    assert classifier.layer_names(nn.Dropout, pass_through=True) == ["drop"]
    assert "drop" not in classifier.layer_names("*")


@pytest.mark.parametrize(
    ("selection", "complaint"),
    [
        ("haed", "layer 'haed' not found; near matches: head"),
        (["conv", "x.9"], "layer 'x.9' not found; this classifier has 9 layers"),
        ("features.*", "layer 'features.*' not found"),
        ([], "the selection of layers is empty"),
        (nn.Conv3d, "no layer is of type Conv3d; this classifier has AdaptiveAvgPool2d, BatchNorm2d, Conv2d"),
        ("type:Conv3d", "no layer is of type type:Conv3d"),
        (3, "layers holds 3; it must be names, globs or module types"),
        (["conv", None], "layers holds None"),
    ],
)
def test_a_selection_that_matches_nothing_is_refused_with_its_words(
    classifier: bf.Classifier, selection: Any, complaint: str
) -> None:
    for call in (classifier.layers, lambda layers: bf.features(classifier, noise(2), layers=layers)):
        with pytest.raises(LayerError, match=re.escape(complaint)):
            call(selection)


def test_a_module_of_which_no_layer_fires_is_refused() -> None:
    class Hollow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Linear(3, 5)
            self.answer = torch.randn(3, 5)

        def forward(self, images: Tensor) -> Tensor:
            return self.answer

    with pytest.raises(ClassifierError, match="no layer of the module fired"):
        bf.Classifier(Hollow(), size=12, channels=3).layer_names()


def test_a_layer_that_fires_only_sometimes_is_named() -> None:
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

    classifier = bf.Classifier(Sometimes(), size=12, channels=3)
    with pytest.raises(bf.BenfourierError, match=r"layers \['act'\] did not fire for this batch"):
        bf.features(classifier, torch.zeros(2, 3, 12, 12))


def test_outputs_in_a_mapping_are_observed_too() -> None:
    classifier = bf.Classifier(
        seeded(lambda: Ending(lambda logits: {"loss": None, "logits": logits})), size=12, channels=3
    )
    assert classifier.layer_names() == ["head", "soft-max"]


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
    classifier = bf.Classifier(seeded(Windows), size=8)
    with pytest.warns(UnobservedLayerWarning, match="first dimension does not count images.*: window"):
        assert "window" not in classifier.layer_names()
    assert "head" in classifier.layer_names()
    assert classifier.unobserved() == ("window",)


def test_layers_are_known_after_features_even_for_an_unusual_size() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(3 * 5 * 7, 4))
    classifier = bf.Classifier(module)
    bf.features(classifier, torch.rand(2, 3, 5, 7))
    assert classifier.layer_names() == ["1", "soft-max"]


class Normed(nn.Module):
    """A residual block with an in-place activation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.act = nn.ReLU(inplace=True)
        self.second, self.norm2 = nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.act(self.norm(self.first(images)))
        x = F.relu(self.norm2(self.second(x)) + x)
        logits: Tensor = self.head(torch.relu(x + 1).mean(dim=(2, 3)))
        return logits


def normed() -> tuple[bf.Classifier, Normed]:
    module = seeded(Normed)
    return bf.Classifier(module.eval(), size=16, channels=3), module


def test_weights_changed_after_the_trial_pass_are_used() -> None:
    (classifier, module), images = normed(), noise(4, side=16)
    before = bf.features(classifier, images)
    module.norm.bias.data.add_(3)
    after = bf.features(classifier, images)
    assert abs(after - before).max() > 0.01
    assert abs(after - bf.features(classifier, images, backend="reference")).max() < 0.01


def test_a_module_with_a_hook_of_its_own_is_called_once_per_pass() -> None:
    (classifier, module), images, calls = normed(), noise(4, side=16), list[int]()
    expected = bf.features(classifier, images)
    handle = module.norm.register_forward_hook(lambda *_: calls.append(1))
    assert np.array_equal(bf.features(classifier, images), expected)
    handle.remove()
    assert calls == [1]


def test_operations_of_a_users_hooks_are_no_layers() -> None:
    classifier, module = normed()
    names = classifier.layer_names()
    module.first.register_forward_pre_hook(lambda _, inputs: (inputs[0] * 2,))
    module.first.register_forward_hook(lambda _, inputs, output: output * 2)
    assert bf.Classifier(module, size=16, channels=3).layer_names() == names


class Projected(nn.Module):
    """Batch norm on both branches of the addition, as where a ResNet halves its images."""

    def __init__(self) -> None:
        super().__init__()
        self.main, self.main_norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.short, self.short_norm = nn.Conv2d(3, 16, 1), nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.main_norm(self.main(images)) + self.short_norm(self.short(images)))
        logits: Tensor = self.head(x.mean(dim=(2, 3)))
        return logits


class Skipped(Projected):
    """The input of the batch norm is added to its output."""

    def forward(self, images: Tensor) -> Tensor:
        x = self.main(images)
        logits: Tensor = self.head(F.relu(self.main_norm(x) + x).mean(dim=(2, 3)))
        return logits


class Shared(Projected):
    """One in-place ReLU that fires twice, once on what is used again."""

    def __init__(self) -> None:
        super().__init__()
        self.act, self.second = nn.ReLU(inplace=True), nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        x = self.main(images)
        y = self.act(self.second(self.act(x)))
        logits: Tensor = self.head((x + self.main_norm(y)).mean(dim=(2, 3)))
        return logits


@pytest.mark.parametrize(
    ("kind", "layers"),
    [
        (Projected, "main main_norm short short_norm add() relu() mean() head soft-max"),
        (Skipped, "main main_norm add() relu() mean() head soft-max"),
        (Shared, "main act second act#2 main_norm add() mean() head soft-max"),
    ],
)
def test_residual_networks_are_observed_in_firing_order(kind: type[nn.Module], layers: str) -> None:
    module = seeded(kind).eval()
    classifier, images = bf.Classifier(module, size=16, channels=3), noise(3, side=16)
    assert classifier.layer_names() == layers.split()
    with torch.inference_mode():
        logits = observe(classifier, images, []).logits
        assert torch.allclose(logits, module(images), rtol=1e-5, atol=1e-5)


def test_activations_that_a_users_hook_stores_are_not_overwritten() -> None:
    module = seeded(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 5))).eval()
    classifier, stored = bf.Classifier(module, size=12, channels=3), list[Tensor]()
    handle = module[0].register_forward_hook(lambda _, inputs, output: stored.append(output))
    bf.features(classifier, noise())
    handle.remove()
    with torch.inference_mode():
        assert torch.allclose(stored[-1], module[0](noise()), atol=1e-5)
