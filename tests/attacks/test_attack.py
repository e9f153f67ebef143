"""The door: what it refuses, and what it never passes on."""

import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import benfourier as bf
from benfourier.attacks import catalogue
from benfourier.attacks.hunt import Hunt
from benfourier.attacks.probe import MEMORY, Cost, fitting_batch, probe
from benfourier.errors import InputError, MissingExtraError, OptionError, ResponseError, SubjectError
from tests.attacks.trained import digits, first


def strike(name: str, **options: Any) -> bf.AttackResult:
    given = first(4)
    return bf.attack(name, given.subject, given.images, given.labels, **options)


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("bin", {}, "attack is 'bin'; allowed: .*; did you mean 'bim'?"),
        ("bim", {"epsilon": 1}, "bim has no option 'epsilon'; its options: eps, exact, .*; did you mean 'eps'?"),
        ("bim", {"eps": 0}, "eps is 0; it must be a number above 0"),
        ("bim", {"eps": float("nan")}, "eps is nan"),
        ("bim", {"eps": True}, "eps is True"),
        ("bim", {"step": -1}, "step is -1; it must be a number above 0"),
        ("bim", {"iterations": 0}, "iterations is 0"),
        ("bim", {"tolerance": 1}, "tolerance is 1; it must be a number of at least 0 and below 1"),
        ("bim", {"exact": 1}, "exact is 1; it must be True or False"),
        ("cw-l2", {"confidence": -1}, "confidence is -1; it must be a number of at least 0"),
        ("deepfool", {"candidates": 1}, "candidates is 1"),
        ("autoattack", {"norm": "L3"}, "norm is 'L3'; allowed: Linf, L2"),
        ("foolbox:EADAtack", {}, "did you mean 'EADAttack'?"),
        ("foolbox:EADAttack", {"stepz": 1}, "foolbox:EADAttack has no option 'stepz'; .*did you mean 'steps'?"),
        ("foolbox:LinfPGD", {}, "eps is None; foolbox:LinfPGD needs a number above 0"),
        ("foolbox:LinfPGD", {"eps": -1}, "eps is -1"),
        ("bim", {"batch": 0}, "batch is 0"),
        ("bim", {"seed": -1}, "seed is -1"),
    ],
)
def test_a_wrong_name_or_option_is_refused_with_what_is_allowed(
    name: str, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(OptionError, match=complaint):
        strike(name, **options)


@pytest.mark.parametrize("labels", [torch.zeros(3), torch.zeros(4), torch.zeros(4, 1).long(), torch.ones(4).bool()])
def test_labels_of_another_form_are_refused(labels: Tensor) -> None:
    given = first(4)
    with pytest.raises(InputError, match=r"they must be whole numbers of shape \(4,\)"):
        bf.attack("bim", given.subject, given.images, labels)


@pytest.mark.parametrize("labels", [None, ["a", "b", "c", "d"], object()])
def test_labels_that_are_no_numbers_are_refused(labels: Any) -> None:
    given = first(4)
    with pytest.raises(InputError, match=r"labels are a .*; they must be whole numbers, one per image"):
        bf.attack("bim", given.subject, given.images, labels)


def test_a_module_that_is_not_wrapped_is_told_so() -> None:
    given, module = first(4), digits().subject.module
    for use in (
        lambda: bf.attack("bim", module, given.images, given.labels),  # type: ignore[arg-type]
        lambda: bf.make_examples(module, given.images, given.labels),  # type: ignore[arg-type]
        lambda: bf.features(module, given.images),  # type: ignore[arg-type]
        lambda: bf.fit("mbf", module, None),  # type: ignore[arg-type]
    ):
        with pytest.raises(SubjectError, match=r"subject is a Sequential; wrap the module: Subject\(module\)"):
            use()


@pytest.mark.parametrize("ids", [["a", "b", "c"], ["a", "b", "c", "a"], ["a", "b", "c", 4], "abcd"])
def test_ids_must_be_one_text_per_image(ids: Any) -> None:
    with pytest.raises(InputError, match="one text per image, 4 in all"):
        strike("bim", ids=ids)
    with pytest.raises(InputError, match="ids are a int; they must be one text per image"):
        strike("bim", ids=5)


def test_draws_belong_to_the_seed_and_the_id() -> None:
    one, other = strike("r-pgd-fixed"), strike("r-pgd-fixed", seed=1)
    assert not torch.equal(one.images, other.images)
    renamed = strike("r-pgd-fixed", ids=["0", "1", "2", "x"])
    same = (renamed.images == one.images).flatten(1).all(1).tolist()
    assert same == [True, True, True, False]


@pytest.mark.parametrize(("name", "extra"), [("foolbox:LinfPGD", "foolbox"), ("autoattack", "autoattack")])
def test_a_missing_extra_is_named_with_the_command(name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "foolbox", None)
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'benfourier\[{extra}\]'"):
        strike(name, eps=0.1)


@dataclass(frozen=True)
class Cheat:
    """Offers anything as a success."""

    confidence: ClassVar[float] = 0.0
    make: ClassVar[Any] = staticmethod(torch.clone)

    def run(self, hunt: Hunt) -> None:
        rows = hunt.rows
        won = torch.ones(len(rows), dtype=torch.bool)
        hunt.offer(self.make(hunt.clean[rows]), rows, won)
        hunt.images[rows] = self.make(hunt.clean[rows])


@pytest.mark.parametrize(
    "make",
    [
        lambda images: images * torch.nan,
        lambda images: images + 2,
        lambda images: -images,
        lambda images: (images + 0.001).clamp(0, 1),
    ],
    ids=["NaN", "above", "below", "not adversarial"],
)
def test_what_is_no_image_or_not_adversarial_is_never_passed_on(
    make: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "ATTACKS", {"cheat": Cheat})
    monkeypatch.setattr(Cheat, "make", staticmethod(make))
    found, given = strike("cheat"), first(4)
    assert found.success.tolist() == [True, True, False, False]
    assert torch.equal(found.images, given.images)


def test_attacks_work_in_inference_mode_and_in_other_bounds() -> None:
    given = first(8)
    shifted = bf.Subject(given.subject.module, bounds=(-1.0, 3.0), mean=[-1.0], std=[4.0])
    with torch.inference_mode():
        found = bf.attack("bim", shifted, 4 * given.images - 1, given.labels)
    plain = bf.attack("bim", given.subject, given.images, given.labels)
    assert torch.equal(found.success, plain.success)
    assert float(found.linf.median()) == pytest.approx(4 * float(plain.linf.median()), rel=0.01)
    assert -1 <= float(found.images.min()) <= float(found.images.max()) <= 3


@pytest.mark.parametrize("name", ["bim", "deepfool"])
@pytest.mark.parametrize(("kind", "images"), [(torch.float64, torch.float32), (torch.float32, torch.float16)])
def test_what_is_found_still_misleads_in_the_numbers_that_it_is_given_back_in(
    name: str, kind: torch.dtype, images: torch.dtype
) -> None:
    given = digits()
    subject = bf.Subject(deepcopy(given.subject.module).to(kind), size=8, channels=1)
    found = bf.attack(name, subject, given.images.to(images), given.labels, show_progress=False)
    assert found.images.dtype == images
    assert found.success.all()
    assert (subject.logits(found.images).argmax(1) != given.labels).all()


def test_a_misclassified_image_a_little_out_of_bounds_is_a_success_too() -> None:
    given = first(2)
    images = given.images.clone()
    images[:, :, 0, 0] = 1 + 5e-7
    found = bf.attack("bim", given.subject, images, given.labels)
    assert found.already.all()
    assert found.success.all()
    assert found.l2.tolist() == [0, 0]


class Mute(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.detach().flatten(1)[:, :4]


class Broken(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :4].log() * 0


def test_a_module_without_gradient_is_named() -> None:
    images = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = images.flatten(1)[:, :4].argmax(1)
    with pytest.raises(SubjectError, match="no gradient"):
        bf.attack("bim", bf.Subject(Mute()), images, labels)


def test_logits_that_are_not_finite_are_named_by_image() -> None:
    images = torch.ones(2, 1, 8, 8)
    images[1] = 0
    with pytest.raises(ResponseError, match="image 'second'"):
        bf.attack("bim", bf.Subject(Broken()), images, torch.zeros(2).long(), ids=["first", "second"])


def test_a_network_that_fails_is_left_as_found() -> None:
    given = first(3)
    module = given.subject.module.train()
    handle = module[-1].register_forward_pre_hook(lambda part, inputs: 1 / 0)  # type: ignore[index]
    try:
        with pytest.raises(ZeroDivisionError):
            strike("bim")
        assert module.training
        assert all(p.requires_grad for p in module.parameters())
    finally:
        handle.remove()
        module.eval()


def test_a_batch_is_as_large_as_memory_allows() -> None:
    given = digits()
    assert probe(given.subject, given.images[:1]).classes == 10
    assert fitting_batch(Cost(MEMORY // 20, 10)) == 10
    assert fitting_batch(Cost(2 * MEMORY, 10)) == 1


def test_a_result_prints_what_it_found() -> None:
    assert repr(strike("bim")).startswith("AttackResult(bim: 4 of 4 succeeded, median l2 ")
