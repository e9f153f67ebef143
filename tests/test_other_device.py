"""Networks run on another device than the CPU, and nothing large comes back from there."""

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import benfourier as bf
from benfourier.attacks.catalogue import attack_ids
from benfourier.detectors.extractor import ObservingExtractor
from benfourier.detectors.features import extract_batch
from benfourier.detectors.method import DETECTORS
from benfourier.errors import OptionError
from benfourier.models.device import check_device, device_names
from tests.attacks.trained import digits
from tests.detectors.cases import CASES
from tests.detectors.test_battery import clean_for, fitted, supplied_for
from tests.detectors.toys import toys
from tests.other_device import DEVICE, CopyError, DeviceTensor, OtherDevice

IMAGES = 12
CLASSES = 10
COUNT = 5  # images that are attacked, two of them misclassified as they are
QUICK: dict[str, dict[str, Any]] = {  # fits that take thousands of passes otherwise
    "c1c2": {"cap_t": 5, "cap_u": 5},
    "defense-gan": {"iterations": 2, "search_steps": 3},
    "odds": {"draws": 2},
}
OPTIONS: dict[str, dict[str, Any]] = {"cw-l2": {"iterations": 15, "lr": 0.2}, "r-pgd": {"iterations": 8}}
every_detector = pytest.mark.parametrize("name", list(DETECTORS))
every_attack = pytest.mark.parametrize("name", [name for name in attack_ids() if name != "autoattack"])


def moved(classifier: bf.Classifier) -> bf.Classifier:
    """A copy of a classifier on the other device; call it where that can be used."""
    return replace(classifier, module=deepcopy(classifier.module).to(DEVICE))


@cache
def guard_of(name: str) -> bf.Guard:
    toy_data = toys()
    beyond = toy_data.clean.images[-120:] if clean_for(name) is None else torch.cat([toy_data.tested.clean] * 3)
    return bf.Guard.calibrated(fitted(name), beyond, 0.1, known=toy_data.clean.images[:60], show_progress=False)


def close(one: np.ndarray, other: np.ndarray, name: str) -> bool:
    # `mbf` has another kernel on a GPU, and takes logarithms of what rounding leaves of small numbers
    return bool(np.allclose(one, other, rtol=5e-2 if name == "mbf" else 1e-3, atol=5e-2 if name == "mbf" else 1e-3))


def test_tensors_of_both_devices_do_not_mix() -> None:
    with OtherDevice():
        there = torch.ones(3, device=DEVICE)
        assert isinstance(there + 1, DeviceTensor)
        assert there.to("cpu").tolist() == there.tolist() == [1, 1, 1]
        with pytest.raises(RuntimeError, match="one device"):
            there + torch.ones(3)
        with pytest.raises(TypeError, match="no array"):
            there.numpy()


@pytest.mark.parametrize("copy", [Tensor.cpu, Tensor.tolist, lambda tensor: tensor.to("cpu", torch.float64)])
def test_a_large_copy_to_the_cpu_is_refused(copy: object) -> None:
    assert callable(copy)
    with OtherDevice(largest=4) as device:
        copy(torch.ones(4, device=DEVICE))
        with pytest.raises(CopyError, match=r"\(5,\)"):
            copy(torch.ones(5, device=DEVICE))
    assert device.copies == [(4,), (5,)]


def test_an_extractor_that_copies_activations_is_found() -> None:
    @dataclass(frozen=True, eq=False)
    class OnTheHost(ObservingExtractor):
        layers: tuple[str, ...] = ("0",)

        def reduce(self, layer: str, activation: Tensor) -> Tensor:
            return activation.cpu().flatten(1).mean(1, keepdim=True)

    data = digits()
    with OtherDevice(largest=3 * CLASSES), torch.no_grad(), pytest.raises(CopyError, match=r"\(3, 8, 8, 8\)"):
        extract_batch(moved(data.classifier), [OnTheHost()], data.images[:3], ["a", "b", "c"])


@pytest.mark.parametrize("given_there", [False, True])
def test_features_are_all_that_comes_back(given_there: bool) -> None:
    data = toys()
    images = data.tested.clean[:IMAGES]
    expected = bf.features(data.classifier, images, backend="torch", show_progress=False)
    with OtherDevice(largest=expected.size):
        given = images.to(DEVICE) if given_there else images
        rows = bf.features(moved(data.classifier), given, show_progress=False)
    # the logarithm makes more of what rounding changes in an entry that is nearly the mean
    assert np.quantile(np.abs(rows - expected), 0.99) < 1e-3


@every_detector
def test_a_guard_judges_where_the_network_is(name: str, tmp_path: Path) -> None:
    guard = guard_of(name)
    guard.save(tmp_path / "guard.bf")
    images = list(toys().tested.adversarial["bim"][:IMAGES])
    expected = guard.judge(images)
    widest = max(CLASSES, expected.features.shape[1], len(guard.familiarity.layers))
    with OtherDevice() as device:
        module = deepcopy(guard.classifier.module).to(DEVICE)
        there = bf.load_guard(tmp_path / "guard.bf", module, supplied=supplied_for(name))
        device.largest = IMAGES * widest
        verdicts = there.judge(images)
        columns = there.detector.forward(torch.stack(images))
        scores = there.detector.score(torch.stack(images), show_progress=False)
    assert all(isinstance(column, DeviceTensor) for column in columns)
    assert close(verdicts.score, expected.score, name)
    assert close(scores, expected.score, name)
    assert np.allclose(verdicts.unfamiliarity, expected.unfamiliarity, atol=1e-3)
    assert np.array_equal(verdicts.label, expected.label)


@every_detector
def test_a_detector_is_fitted_where_the_network_is(name: str) -> None:
    examples = toys().fitted.for_attack("bim")
    images = toys().tested.clean[:IMAGES]
    with OtherDevice() as device:
        supplied = {key: moved(second) for key, second in supplied_for(name).items()}
        there = bf.fit(
            name,
            moved(toys().classifier),
            examples,
            clean=clean_for(name),
            supplied=supplied,
            show_progress=False,
            **{**CASES[name].options, **QUICK.get(name, {})},
        )
        device.largest = IMAGES * max(CLASSES, there.summary["features"])
        scores = there.score(images, show_progress=False)
    assert there.summary["features"] == fitted(name).summary["features"]
    assert np.isfinite(scores).all()


@every_attack
def test_an_attack_runs_where_the_network_is(name: str) -> None:
    data = digits()
    images, labels, options = data.images[:COUNT], data.labels[:COUNT], OPTIONS.get(name, {})
    expected = bf.attack(name, data.classifier, images, labels, show_progress=False, **options)
    with OtherDevice(largest=len(images)):
        given = images.to(DEVICE)
        result = bf.attack(name, moved(data.classifier), given, labels, show_progress=False, **options)
    assert isinstance(result.images, DeviceTensor)
    assert torch.equal(result.success, expected.success)
    assert torch.allclose(result.l2, expected.l2, rtol=0.02)


def test_attacked_images_come_back_once_if_they_were_given_on_the_cpu() -> None:
    data = digits()
    with OtherDevice() as device:
        result = bf.attack("bim", moved(data.classifier), data.images[:COUNT], data.labels[:COUNT], show_progress=False)
    assert not isinstance(result.images, DeviceTensor)
    assert [shape for shape in device.copies if np.prod(shape) > COUNT] == [(COUNT, 1, 8, 8)]


def test_a_device_that_is_not_there_is_refused_by_name() -> None:
    assert device_names()[0] == "cpu"
    for word in ("cuda:17", "gpu", "meta"):
        with pytest.raises(OptionError, match=f"device is '{word}'; this machine has cpu.*: name one of these"):
            check_device(word)
    with pytest.raises(OptionError, match="cuda:17"):
        bf.open_classifier("lid-mnist", device="cuda:17")
    assert bf.open_classifier("lid-mnist", device="cpu").device == torch.device("cpu")
