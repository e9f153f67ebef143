"""Modules as people have them: in bfloat16, compiled, wrapped, scripted, and with control flow."""

import re
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import benfourier as bf
from benfourier.errors import ClassifierError
from benfourier.models.forward import leave_out_unsteady_layers
from benfourier.models.layers import UnobservedLayerWarning
from tests.attacks.trained import TRAIN, digits
from tests.detectors.toys import toys
from tests.models.networks import noise, plain, seeded, stepping


def network() -> nn.Module:
    """A network for 8×8 digits, trained once per process."""
    return digits().classifier.module


def compiled() -> nn.Module:
    return torch.compile(network(), backend="eager")  # type: ignore[return-value]


def in_bfloat16() -> nn.Module:
    return deepcopy(network()).bfloat16()


KINDS: dict[str, Callable[[], nn.Module]] = {
    "bfloat16": in_bfloat16,
    "compiled": compiled,
    "DataParallel": lambda: nn.DataParallel(network()),
    "compiled, then DataParallel": lambda: nn.DataParallel(compiled()),
}


def unseen(count: int) -> bf.LabelledImages:
    dataset = load_digits()
    images = torch.from_numpy(dataset.images).float().unsqueeze(1) / 16
    return bf.LabelledImages(images[TRAIN : TRAIN + count], torch.from_numpy(dataset.target)[TRAIN : TRAIN + count])


@pytest.mark.parametrize("kind", KINDS)
def test_a_module_of_any_kind_is_observed_attacked_and_guarded(kind: str, tmp_path: Path) -> None:
    module, data = KINDS[kind](), unseen(200)
    classifier = bf.Classifier(module, size=8, channels=1)
    own = bf.Classifier(network(), size=8, channels=1)
    assert classifier.layer_names() == own.layer_names()
    features = bf.features(classifier, data.images[:10], show_progress=False)
    assert np.isfinite(features).all()
    result = bf.attack("bim", classifier, data.images[:10], data.labels[:10], show_progress=False)
    assert int(result.success.sum()) >= 8
    options: dict[str, Any] = {"attacks": None, "budget": 1e-3, "report": lambda _: None, "show_progress": False}
    for method in ("views", bf.make_method("mbf", head="mixture")):
        guard = bf.protect(module, data.images, data.labels, detector=method, **options)
        assert guard.check(data.images[:20]).accepted.mean() > 0.5
        guard.save(tmp_path / "guard.bf")
        again = bf.load_guard(tmp_path / "guard.bf", module)
        assert np.array_equal(again.check(data.images[:5]).score, guard.check(data.images[:5]).score)


@pytest.mark.parametrize("kind", ["compiled", "DataParallel", "compiled, then DataParallel"])
def test_what_is_wrapped_around_a_module_is_taken_off_and_left_as_it_is(kind: str) -> None:
    module = KINDS[kind]()
    assert bf.Classifier(module).module is network()
    assert "_orig_mod" in repr(list(module.state_dict())) or isinstance(module, nn.DataParallel)


def compiled_in_place() -> nn.Module:
    module = seeded(plain)
    module.compile(backend="eager")
    return module


OUTSIDE: dict[str, tuple[Callable[[], Any], str]] = {
    "scripted": (lambda: torch.jit.script(seeded(plain)), "the RecursiveScriptModule is scripted or traced"),
    "traced": (
        lambda: torch.jit.trace(seeded(plain).eval(), noise()),  # type: ignore[no-untyped-call]
        "the TopLevelTracedModule is scripted or traced",
    ),
    "a scripted part": (
        lambda: nn.Sequential(torch.jit.script(nn.Conv2d(3, 4, 3)), nn.Flatten(), nn.Linear(400, 5)),
        "0, a part of Sequential, is scripted or traced",
    ),
    "a compiled part": (
        lambda: nn.Sequential(nn.Identity(), torch.compile(seeded(plain), backend="eager")),  # type: ignore[call-overload]
        "1, a part of Sequential, is compiled in place",
    ),
    "compiled in place": (compiled_in_place, "the Sequential is compiled in place"),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", OUTSIDE)
def test_a_module_that_runs_outside_python_is_refused_at_once(kind: str) -> None:
    make, complaint = OUTSIDE[kind]
    module = make()
    message = re.escape(f"{complaint}: its layers cannot be observed; pass the module before that")
    for call in (bf.Classifier, partial(bf.protect, images=noise(), labels=[0, 1, 2, 3])):
        with pytest.raises(ClassifierError, match=message):
            call(module)


class EarlyExit(nn.Module):
    """Runs its second part only for batches without a dark image."""

    def __init__(self, first: nn.Module, level: float) -> None:
        super().__init__()
        self.first, self.second, self.level = first, nn.Linear(10, 10), level
        nn.init.eye_(self.second.weight)
        nn.init.zeros_(self.second.bias)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.first(images)
        if images.mean(dim=(1, 2, 3)).min() > self.level:
            logits = self.second(logits)
        return logits


class Experts(nn.Module):
    """Each of two parts sees only some of the images."""

    def __init__(self, first: nn.Module, level: float) -> None:
        super().__init__()
        self.first, self.bright, self.dark, self.level = first, nn.Linear(10, 10), nn.Linear(10, 10), level
        for expert in (self.bright, self.dark):
            nn.init.eye_(expert.weight)
            nn.init.zeros_(expert.bias)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.first(images)
        bright = images.mean(dim=(1, 2, 3)) > self.level
        result = torch.zeros_like(logits)
        result[bright] = self.bright(logits[bright])
        result[~bright] = self.dark(logits[~bright])
        return result


@cache
def middle() -> float:
    """A mean brightness that half of the digits have."""
    return float(toys().fitted.clean.mean(dim=(1, 2, 3)).median())


# The images of the trial pass are brighter than digits, so that it sees what only bright images run.
BRANCHING: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "an early exit": (lambda: EarlyExit(toys().classifier.module, middle()).eval(), "second"),
    "experts": (lambda: Experts(toys().classifier.module, middle()).eval(), "getitem(), bright"),
}


@pytest.mark.parametrize("kind", BRANCHING)
@pytest.mark.parametrize("detector", ["mbf", "lid", "mahalanobis"])
def test_layers_that_do_not_fire_for_every_image_are_left_out_at_the_fit(
    detector: str, kind: str, tmp_path: Path
) -> None:
    make, steps = BRANCHING[kind]
    module, examples = make(), replace(toys().fitted, options={})
    classifier = bf.Classifier(module, size=8, channels=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        guard = bf.fit_guard(classifier, detector, examples, false_alarm_rate=0.2, show_progress=False)
        guard.save(tmp_path / "guard.bf")
        again = bf.load_guard(tmp_path / "guard.bf", module)
        for images in (toys().tested.clean, toys().tested.adversarial["bim"]):
            verdicts = guard.check(images, show_progress=False)
            alone = [next(iter(again.check(image))) for image in images[:20]]  # as the service may get them
            assert np.allclose([one.score for one in alone], verdicts.score[:20], rtol=1e-3, atol=1e-3)
    assert not {"second", "bright", "dark"} & {*guard.detector.feature_names, *guard.familiarity.layers}
    ours = [str(one.message) for one in caught if issubclass(one.category, UnobservedLayerWarning)]
    reason = "has layers that do not fire for every image, so they are not observed: "
    assert [message.partition(reason)[2] for message in ours if reason in message] == [steps]
    assert all("\n" not in message for message in ours)


def test_a_warning_of_layers_is_one_line_and_comes_once() -> None:
    module, examples = BRANCHING["an early exit"][0](), replace(toys().fitted, options={})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            bf.fit("mbf", bf.Classifier(module, size=8, channels=1), examples, show_progress=False)
    (warning,) = caught
    text = warnings.formatwarning(warning.message, warning.category, warning.filename, warning.lineno)
    assert text.startswith("benfourier:1: UnobservedLayerWarning: EarlyExit has layers")
    assert text.count("\n") == 1


def test_a_network_without_control_flow_is_not_run_again_for_its_layers() -> None:
    classifier, passes = toys().classifier, list[int]()
    assert not classifier.layer_list((1, 8, 8)).may_branch
    handle = classifier.module.register_forward_hook(lambda *_: passes.append(1))
    leave_out_unsteady_layers(classifier, [toys().fitted.clean])
    handle.remove()
    assert passes == []


READING: dict[str, Callable[[Tensor], Tensor]] = {
    "truth": lambda maps: -maps if (maps > 9).any() else maps,
    "item": lambda maps: maps * (maps.mean().item() > 0),
    "float": lambda maps: maps * float(maps.mean()),
    "int": lambda maps: maps * int(maps.sum()),
    "numpy": lambda maps: maps * maps.numpy().mean(),
    "list": lambda maps: maps * maps.flatten().tolist()[0],
    "nonzero": lambda maps: maps[(maps.flatten(1).sum(1) > 0).nonzero()[:, 0]],
    "mask": lambda maps: maps[maps.flatten(1).sum(1) > 0],
    "where": lambda maps: maps[torch.where(maps.flatten(1).sum(1) > 0)[0]],
}
NOT_READING: dict[str, Callable[[Tensor], Tensor]] = {
    "shape": lambda maps: maps if maps.shape[0] > 2 and maps.size(1) and len(maps) else -maps,
    "cast": lambda maps: maps * maps.bool().float(),
    "choice": lambda maps: torch.where(maps > 0, maps, -maps),
    "place": lambda maps: maps[:, [0, 1, 2]],
}


@pytest.mark.parametrize("step", [*READING, *NOT_READING])
def test_control_flow_is_possible_where_numbers_are_read(step: str) -> None:
    classifier = bf.Classifier(stepping({**READING, **NOT_READING}[step]), size=12, channels=3)
    assert classifier.layer_list().may_branch == (step in READING)
