"""What every attack in the catalogue promises."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import benfourier as bf
from benfourier.attacks.catalogue import attack_ids
from benfourier.errors import ImageError, InputError
from tests.attacks.trained import Digits, digits, first, unbeatable

# enough for a success on most digits, in tenths of a second
CASES: dict[str, dict[str, Any]] = {
    "autoattack": {"eps": 0.4},
    "bim": {},
    "bim-fixed": {},
    "cw-l2": {"iterations": 100, "lr": 0.05},
    "deepfool": {},
    "foolbox:EADAttack": {"steps": 100, "binary_search_steps": 4, "initial_const": 0.1},
    "foolbox:LinfPGD": {"eps": 0.3},
    "r-pgd": {},
    "r-pgd-beyond": {},
    "r-pgd-fixed": {},
}
every = pytest.mark.parametrize("name", CASES)


def targets(name: str) -> Digits:
    return first(6) if name == "autoattack" else digits()  # it takes each image by itself


def run_attack(name: str, data: Digits, **more: Any) -> bf.AttackResult:
    return bf.attack(name, data.classifier, data.images, data.labels, **{**CASES[name], **more})


@cache
def result(name: str) -> bf.AttackResult:
    return run_attack(name, targets(name))


def predicted(classifier: bf.Classifier, images: Tensor) -> Tensor:
    with torch.no_grad():
        return classifier.logits(images).argmax(1)


def condition(module: nn.Module) -> list[object]:
    """Everything about a module that an attack could change."""
    parts = [(part.training, len(part._forward_hooks), len(part._backward_hooks)) for part in module.modules()]
    tensors = module.state_dict(keep_vars=True).values()
    return [parts, [(t.detach().numpy().tobytes(), t.requires_grad, t.grad, id(t)) for t in tensors]]


def agree(one: bf.AttackResult, other: bf.AttackResult) -> None:
    assert torch.equal(one.success, other.success)
    for a, b in ((one.l2, other.l2), (one.linf, other.linf)):
        assert float(b.median()) == pytest.approx(float(a.median()), rel=0.01)


def test_the_battery_runs_every_attack_of_the_catalogue() -> None:
    assert set(attack_ids()) == {name for name in CASES if not name.startswith("foolbox:")}


@every
def test_attacks_succeed_on_most_digits(name: str) -> None:
    assert result(name).success.double().mean() > 0.7


@every
def test_images_stay_in_bounds_and_keep_their_form(name: str) -> None:
    outcome, images = result(name).images, targets(name).images
    assert (outcome.shape, outcome.dtype) == (images.shape, images.dtype)
    assert 0 <= float(outcome.min()) <= float(outcome.max()) <= 1


@every
def test_a_success_is_misclassified_in_a_fresh_pass(name: str) -> None:
    outcome, data = result(name), targets(name)
    assert torch.equal(predicted(data.classifier, outcome.images) != data.labels, outcome.success)


@every
def test_stated_distances_are_those_of_the_images(name: str) -> None:
    outcome, images = result(name), targets(name).images
    added = (outcome.images.double() - images.double()).flatten(1)
    success = outcome.success
    assert torch.allclose(outcome.l2[success], added.square().sum(1).sqrt()[success], rtol=1e-12)
    assert torch.equal(outcome.linf[success], added.abs().max(1).values[success])
    assert outcome.l2[~success].isinf().all()
    assert outcome.linf[~success].isinf().all()


@every
def test_images_misclassified_as_they_are_succeed_at_distance_0(name: str) -> None:
    outcome, data = result(name), targets(name)
    assert outcome.already.nonzero().flatten().tolist() == list(range(data.wrong))
    assert outcome.success[outcome.already].all()
    assert (outcome.l2[outcome.already] == 0).all()
    assert torch.equal(outcome.images[outcome.already], data.images[outcome.already])
    assert (outcome.calls[outcome.already] == 2).all()
    assert (outcome.calls[~outcome.already] > 2).all()


@every
def test_the_same_call_is_bit_equal(name: str) -> None:
    again = run_attack(name, targets(name))
    assert torch.equal(again.images, result(name).images)
    assert torch.equal(again.calls, result(name).calls)


@every
def test_a_result_has_the_options_that_reproduce_it(name: str) -> None:
    outcome, data = result(name), first(4)
    again = bf.attack(outcome.name, data.classifier, data.images, data.labels, seed=outcome.seed, **outcome.options)
    assert dict(again.options) == dict(outcome.options)
    assert dict(outcome.options).items() >= CASES[name].items()


@every
def test_another_batch_size_gives_the_same_successes_and_distances(name: str) -> None:
    agree(result(name), run_attack(name, targets(name), batch=5))


@every
def test_the_order_of_the_images_does_not_matter(name: str) -> None:
    outcome, data = result(name), targets(name)
    order = torch.randperm(len(data.labels), generator=torch.Generator().manual_seed(3))
    mixed = Digits(data.classifier, data.images[order], data.labels[order], data.wrong)
    again = run_attack(name, mixed, ids=[outcome.ids[place] for place in order])
    back = order.argsort()
    assert torch.equal(again.success[back], outcome.success)
    close = (again.l2[back] - outcome.l2).abs() <= 0.01 * outcome.l2
    assert close[outcome.success].double().mean() > 0.9  # last bits may send one or two elsewhere


@every
def test_the_classifier_and_the_images_are_left_as_found(name: str) -> None:
    data = first(4)
    module = data.classifier.module.train()
    frozen = next(module.parameters()).requires_grad_(False)
    before, images = condition(module), data.images.clone()
    state = torch.get_rng_state()
    try:
        run_attack(name, data)
        assert condition(module) == before
        assert torch.equal(data.images, images)
        assert torch.equal(torch.get_rng_state(), state)
    finally:
        frozen.requires_grad_(True)
        module.eval()


@every
def test_rows_that_fail_hold_the_clean_image(name: str) -> None:
    images = targets(name).images[: 1 if name == "autoattack" else 3]
    outcome = bf.attack(name, unbeatable(), images, torch.zeros(len(images), dtype=torch.int64), **CASES[name])
    assert not outcome.success.any()
    assert torch.equal(outcome.images, images)
    assert outcome.l2.isinf().all()


@every
@pytest.mark.parametrize(("value", "complaint"), [(float("nan"), "NaN"), (1.5, "bounds")])
def test_images_with_nan_or_out_of_bounds_are_refused(name: str, value: float, complaint: str) -> None:
    data = first(3)
    images = data.images.clone()
    images[1, 0, 4, 4] = value
    with pytest.raises(ImageError, match=complaint):
        bf.attack(name, data.classifier, images, data.labels, **CASES[name])


@every
def test_eight_bit_results_lie_on_the_grid_and_are_classified_again(name: str) -> None:
    outcome, data = run_attack(name, targets(name), eight_bit=True), targets(name)
    levels = outcome.images[outcome.success] * 255
    assert outcome.success.any()
    assert torch.allclose(levels, levels.round(), atol=1e-4)  # 255 times the rounding of a float32 below 1
    assert torch.equal(outcome.images[~outcome.success], data.images[~outcome.success])
    assert (predicted(data.classifier, outcome.images) != data.labels)[outcome.success].all()


@every
def test_labels_that_are_no_class_are_refused(name: str) -> None:
    data = first(3)
    with pytest.raises(InputError, match="labels hold 10; this classifier has 10 classes, 0 to 9"):
        bf.attack(name, data.classifier, data.images, torch.tensor([0, 10, 1]), **CASES[name])
