"""What every attack in the catalogue promises."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import benfourier as bf
from benfourier.attacks.catalogue import ATTACKS
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
    "r-pgd-fixed": {},
}
every = pytest.mark.parametrize("name", CASES)


def prey(name: str) -> Digits:
    return first(6) if name == "autoattack" else digits()  # it takes each image by itself


def struck(name: str, found: Digits, **more: Any) -> bf.AttackResult:
    return bf.attack(name, found.subject, found.images, found.labels, **{**CASES[name], **more})


@cache
def result(name: str) -> bf.AttackResult:
    return struck(name, prey(name))


def told(subject: bf.Subject, images: Tensor) -> Tensor:
    with torch.no_grad():
        return subject.logits(images).argmax(1)


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
    assert ATTACKS.keys() == {name for name in CASES if not name.startswith("foolbox:")}


@every
def test_most_digits_are_beaten(name: str) -> None:
    assert result(name).success.double().mean() > 0.7


@every
def test_images_stay_in_bounds_and_keep_their_form(name: str) -> None:
    found, images = result(name).images, prey(name).images
    assert (found.shape, found.dtype) == (images.shape, images.dtype)
    assert 0 <= float(found.min()) <= float(found.max()) <= 1


@every
def test_a_success_is_misclassified_in_a_fresh_pass(name: str) -> None:
    found, given = result(name), prey(name)
    assert torch.equal(told(given.subject, found.images) != given.labels, found.success)


@every
def test_stated_distances_are_those_of_the_images(name: str) -> None:
    found, images = result(name), prey(name).images
    added = (found.images.double() - images.double()).flatten(1)
    won = found.success
    assert torch.allclose(found.l2[won], added.square().sum(1).sqrt()[won], rtol=1e-12)
    assert torch.equal(found.linf[won], added.abs().max(1).values[won])
    assert found.l2[~won].isinf().all()
    assert found.linf[~won].isinf().all()


@every
def test_images_misclassified_as_they_are_succeed_at_distance_0(name: str) -> None:
    found, given = result(name), prey(name)
    assert found.already.nonzero().flatten().tolist() == list(range(given.wrong))
    assert found.success[found.already].all()
    assert (found.l2[found.already] == 0).all()
    assert torch.equal(found.images[found.already], given.images[found.already])
    assert (found.calls[found.already] == 2).all()
    assert (found.calls[~found.already] > 2).all()


@every
def test_the_same_call_is_bit_equal(name: str) -> None:
    again = struck(name, prey(name))
    assert torch.equal(again.images, result(name).images)
    assert torch.equal(again.calls, result(name).calls)


@every
def test_a_result_tells_how_to_make_it_again(name: str) -> None:
    found, given = result(name), first(4)
    again = bf.attack(found.name, given.subject, given.images, given.labels, seed=found.seed, **found.options)
    assert dict(again.options) == dict(found.options)
    assert dict(found.options).items() >= CASES[name].items()


@every
def test_another_batch_size_gives_the_same_successes_and_distances(name: str) -> None:
    agree(result(name), struck(name, prey(name), batch=5))


@every
def test_the_order_of_the_images_does_not_matter(name: str) -> None:
    found, given = result(name), prey(name)
    order = torch.randperm(len(given.labels), generator=torch.Generator().manual_seed(3))
    mixed = Digits(given.subject, given.images[order], given.labels[order], given.wrong)
    again = struck(name, mixed, ids=[found.ids[place] for place in order])
    back = order.argsort()
    assert torch.equal(again.success[back], found.success)
    close = (again.l2[back] - found.l2).abs() <= 0.01 * found.l2
    assert close[found.success].double().mean() > 0.9  # last bits may send one or two elsewhere


@every
def test_the_subject_and_the_images_are_left_as_found(name: str) -> None:
    given = first(4)
    module = given.subject.module.train()
    frozen = next(module.parameters()).requires_grad_(False)
    before, images = condition(module), given.images.clone()
    state = torch.get_rng_state()
    try:
        struck(name, given)
        assert condition(module) == before
        assert torch.equal(given.images, images)
        assert torch.equal(torch.get_rng_state(), state)
    finally:
        frozen.requires_grad_(True)
        module.eval()


@every
def test_rows_that_fail_hold_the_clean_image(name: str) -> None:
    images = prey(name).images[: 1 if name == "autoattack" else 3]
    found = bf.attack(name, unbeatable(), images, torch.zeros(len(images), dtype=torch.int64), **CASES[name])
    assert not found.success.any()
    assert torch.equal(found.images, images)
    assert found.l2.isinf().all()


@every
@pytest.mark.parametrize(("value", "complaint"), [(float("nan"), "NaN"), (1.5, "bounds")])
def test_images_with_nan_or_out_of_bounds_are_refused(name: str, value: float, complaint: str) -> None:
    given = first(3)
    images = given.images.clone()
    images[1, 0, 4, 4] = value
    with pytest.raises(ImageError, match=complaint):
        bf.attack(name, given.subject, images, given.labels, **CASES[name])


@every
def test_eight_bit_results_lie_on_the_grid_and_are_asked_again(name: str) -> None:
    found, given = struck(name, prey(name), eight_bit=True), prey(name)
    levels = found.images[found.success] * 255
    assert found.success.any()
    assert torch.allclose(levels, levels.round(), atol=1e-4)  # 255 times the rounding of a float32 below 1
    assert torch.equal(found.images[~found.success], given.images[~found.success])
    assert (told(given.subject, found.images) != given.labels)[found.success].all()


@every
def test_labels_that_are_no_class_are_refused(name: str) -> None:
    given = first(3)
    with pytest.raises(InputError, match="labels hold 10; this subject has 10 classes, 0 to 9"):
        bf.attack(name, given.subject, given.images, torch.tensor([0, 10, 1]), **CASES[name])
