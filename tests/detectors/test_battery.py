"""Promises that every detector of the catalogue keeps."""

from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from torch import nn

import benfourier as bf
from benfourier.data.labelled import Labelled
from benfourier.detectors.catalogue import METHODS, fit, method
from benfourier.detectors.detector import Detector, score_many
from benfourier.detectors.method import NEEDS, Listening
from benfourier.detectors.saving import load
from benfourier.errors import ImageError, InputError, OptionError
from tests.detectors.cases import CASES
from tests.detectors.toys import toys

NAMES = sorted(METHODS)
names = pytest.mark.parametrize("name", NAMES)


def clean_for(name: str) -> Labelled | None:
    return toys().clean if METHODS[name].clean == "needed" else None


@cache
def fitted(name: str) -> Detector:
    """One detector of each kind, fitted to bim."""
    made = toys()
    examples = made.fitted.for_attack("bim")
    return fit(name, made.subject, examples, clean=clean_for(name), show_progress=False, **CASES[name].options)


@pytest.fixture(params=NAMES)
def detector(request: pytest.FixtureRequest) -> Detector:
    return fitted(request.param)


def state_of(module: nn.Module) -> list[object]:
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in module.modules()]
    flags = [(name, p.requires_grad, p.grad is None) for name, p in module.named_parameters()]
    modes = [m.training for m in module.modules()]
    return [hooks, flags, modes, [t.clone() for t in module.state_dict().values()]]


def same_state(one: list[object], other: list[object]) -> bool:
    tensors: list[list[torch.Tensor]] = [one[3], other[3]]  # type: ignore[list-item]
    return one[:3] == other[:3] and all(torch.equal(a, b) for a, b in zip(*tensors, strict=True))


def test_every_detector_has_a_case() -> None:
    assert CASES.keys() == METHODS.keys()


def test_what_a_detector_needs_is_declared(detector: Detector) -> None:
    assert detector.method.needs <= set(NEEDS)
    assert detector.needs
    assert detector.needs <= detector.method.needs
    assert isinstance(detector.measure, Listening) == (detector.needs == {"listens"})


@names
def test_fitting_leaves_the_method_as_it_was(name: str) -> None:
    assert fitted(name).method == method(name, **CASES[name].options)


@names
def test_fitting_again_gives_the_same_scores(name: str) -> None:
    made = toys()
    again = fit(
        name,
        made.subject,
        made.fitted.for_attack("bim"),
        clean=clean_for(name),
        show_progress=False,
        **CASES[name].options,
    )
    images = made.tested.clean[:6]
    assert np.array_equal(again.score(images), fitted(name).score(images))


def test_scores_are_finite_and_one_per_image(detector: Detector) -> None:
    scores = detector.score(toys().tested.noisy)
    assert scores.shape == (len(toys().tested),)
    assert scores.dtype == np.float64
    assert np.isfinite(scores).all()


def test_one_image_can_be_scored(detector: Detector) -> None:
    assert detector.score(toys().tested.clean[:1]).shape == (1,)


def test_scores_agree_across_batch_sizes_and_orders(detector: Detector) -> None:
    images = torch.cat([toys().tested.clean, toys().tested.attacked["bim"]])
    whole = detector.score(images)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    shuffled = np.empty_like(whole)
    shuffled[order.numpy()] = detector.score(images[order], batch=7)
    assert spearmanr(whole, shuffled).statistic > 0.999


def test_the_same_call_gives_the_same_scores(detector: Detector) -> None:
    images = toys().tested.clean[:10]
    assert np.array_equal(detector.score(images), detector.score(images))


def test_the_subject_is_left_as_found(detector: Detector) -> None:
    module = detector.subject.module
    module.train()
    module[0].weight.requires_grad_(True)  # type: ignore[index]
    try:
        before = state_of(module)
        detector.score(toys().tested.clean[:4])
        assert same_state(before, state_of(module))
    finally:
        module.eval()


@names
def test_fitting_leaves_the_subject_as_found(name: str) -> None:
    module = toys().subject.module
    before = state_of(module)
    fitted.__wrapped__(name)
    assert same_state(before, state_of(module))


def test_a_saved_detector_gives_bit_equal_scores(detector: Detector, tmp_path: Path) -> None:
    detector.save(tmp_path / "d.bf")
    again = load(tmp_path / "d.bf", detector.subject)
    images = toys().tested.attacked["bim"][:12]
    assert np.array_equal(again.score(images), detector.score(images))
    assert np.array_equal(again.posterior(images), detector.posterior(images))
    assert again.method == detector.method
    assert again.summary == detector.summary


@pytest.mark.parametrize("bad", [float("nan"), 1.5, -0.1])
def test_images_that_are_no_images_are_refused(detector: Detector, bad: float) -> None:
    images = toys().tested.clean[:3].clone()
    images[1, 0, 2, 2] = bad
    with pytest.raises(ImageError):
        detector.score(images)


def test_ids_that_do_not_count_the_images_are_refused(detector: Detector) -> None:
    with pytest.raises(InputError, match="there are 3 images and 2 ids"):
        detector.score(toys().tested.clean[:3], ids=["a", "b"])


def test_shifted_images_score_higher_than_clean_ones(detector: Detector) -> None:
    tested, case = toys().tested, CASES[detector.method.name]
    shifted = tested.attacked["bim"] if case.against == "bim" else 1 - tested.clean
    clean, attacked = detector.score(tested.clean), detector.score(shifted)
    truth = np.repeat([0, 1], [len(clean), len(attacked)])
    assert roc_auc_score(truth, np.concatenate([clean, attacked])) >= case.auroc


def test_posteriors_rise_with_scores(detector: Detector) -> None:
    images = torch.cat([toys().tested.clean[:8], toys().tested.attacked["bim"][:8]])
    scores, posteriors = detector.score(images), detector.posterior(images)
    assert ((posteriors >= 0) & (posteriors <= 1)).all()
    assert spearmanr(scores, posteriors).statistic > 0.99


@names
def test_an_unknown_option_is_refused_by_name(name: str) -> None:
    with pytest.raises(OptionError, match="has no option 'ordres'"):
        method(name, ordres=3)


@names
def test_a_switch_is_on_or_off(name: str) -> None:
    for option in fields(METHODS[name]):
        if option.type is bool:
            with pytest.raises(OptionError, match=f"{option.name} is 'no'; it must be True or False"):
                method(name, **{option.name: "no"})


@names
def test_options_survive_json(name: str) -> None:
    made = method(name, **CASES[name].options)
    assert METHODS[name](**asdict(made)) == made


@names
def test_images_beyond_the_examples_are_taken_only_where_they_may(name: str) -> None:
    made = toys()
    if METHODS[name].clean == "needed":
        with pytest.raises(InputError, match="pass clean=Labelled"):
            fit(name, made.subject, made.fitted, **CASES[name].options)
    else:
        with pytest.raises(InputError, match="leave clean out"):
            fit(name, made.subject, made.fitted, clean=made.clean, **CASES[name].options)


def test_detectors_that_listen_share_one_forward_pass() -> None:
    together = [fitted(name) for name in NAMES if fitted(name).needs == {"listens"}]
    assert len(together) > 1
    module, calls = together[0].subject.module, 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    handle = module[0].register_forward_hook(count)  # type: ignore[index]
    try:
        shared = score_many(together, toys().tested.clean, batch=20)
    finally:
        handle.remove()
    assert calls == 2
    for found, alone in zip(shared, together, strict=True):
        assert np.array_equal(found, alone.score(toys().tested.clean, batch=20))


def test_detectors_of_two_subjects_are_not_mixed() -> None:
    other = replace(fitted("mbf"), subject=bf.Subject(toys().subject.module, size=8, channels=1))
    with pytest.raises(InputError, match="all fitted to the same subject"):
        score_many([fitted("mbf"), other], toys().tested.clean)
