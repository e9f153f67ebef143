"""`bf.attack`: what it refuses, and what it never returns."""

import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import benfourier as bf
from benfourier.attacks.apply import default_batch
from benfourier.attacks.attack import Attack
from benfourier.attacks.bim import Bim
from benfourier.attacks.run import AttackRun
from benfourier.errors import ActivationError, ClassifierError, InputError, MissingExtraError, OptionError
from tests.attacks.trained import digits, first


def run_attack(name: str, **options: Any) -> bf.AttackResult:
    data = first(4)
    return bf.attack(name, data.classifier, data.images, data.labels, **options)


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("bin", {}, "attack is 'bin'; allowed: .*; did you mean 'bim'?"),
        ("bim", {"epsilon": 1}, "bim has no option 'epsilon'; its options: eps, iterations, .*; did you mean 'eps'?"),
        ("bim", {"eps": 0}, "eps is 0; it must be a number above 0"),
        ("bim", {"eps": float("nan")}, "eps is nan"),
        ("bim", {"eps": True}, "eps is True"),
        ("bim", {"step": -1}, "step is -1; it must be a number above 0"),
        ("bim", {"iterations": 0}, "iterations is 0"),
        ("bim", {"tolerance": 1}, "tolerance is 1; it must be a number of at least 0 and below 1"),
        ("cw-l2", {"abort_early": 1}, "abort_early is 1; it must be True or False"),
        ("cw-l2", {"confidence": -1}, "confidence is -1; it must be a number of at least 0"),
        ("deepfool", {"candidates": 1}, "candidates is 1"),
        ("autoattack", {"norm": "L3"}, "norm is 'L3'; allowed: Linf, L2"),
        ("deepfool", {"ties": "far"}, "ties is 'far'; allowed: nearest, foolbox"),
        ("bim:far", {}, "bim has no variant 'far'"),
        ("foolbox", {}, "attack is 'foolbox'; add the name of a class of Foolbox 3"),
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
        run_attack(name, **options)


@pytest.mark.parametrize("labels", [torch.zeros(3), torch.zeros(4), torch.zeros(4, 1).long(), torch.ones(4).bool()])
def test_labels_of_another_form_are_refused(labels: Tensor) -> None:
    data = first(4)
    with pytest.raises(InputError, match=r"they must be whole numbers \(4,\)"):
        bf.attack("bim", data.classifier, data.images, labels)


@pytest.mark.parametrize("labels", [None, ["a", "b", "c", "d"], object()])
def test_labels_that_are_no_numbers_are_refused(labels: Any) -> None:
    data = first(4)
    with pytest.raises(InputError, match=r"labels are a .*; they must be whole numbers, one per image"):
        bf.attack("bim", data.classifier, data.images, labels)


def test_a_module_that_is_not_wrapped_is_refused_with_the_fix() -> None:
    data, module = first(4), digits().classifier.module
    for use in (
        lambda: bf.attack("bim", module, data.images, data.labels),  # type: ignore[arg-type]
        lambda: bf.make_examples(module, data.images, data.labels),  # type: ignore[arg-type]
        lambda: bf.features(module, data.images),  # type: ignore[arg-type]
        lambda: bf.fit("mbf", module, None),  # type: ignore[arg-type]
    ):
        with pytest.raises(ClassifierError, match=r"classifier is a Sequential; wrap the module: Classifier\(module\)"):
            use()


@pytest.mark.parametrize("ids", [["a", "b", "c"], ["a", "b", "c", "a"], ["a", "b", "c", 4], "abcd"])
def test_ids_must_be_one_text_per_image(ids: Any) -> None:
    with pytest.raises(InputError, match=r"one text per image, 4 in all|each image needs one id|labelled images"):
        run_attack("bim", ids=ids)
    with pytest.raises(InputError, match="ids are a int; they must be one text per image"):
        run_attack("bim", ids=5)


def test_draws_belong_to_the_seed_and_the_id() -> None:
    one, other = run_attack("r-pgd-fixed"), run_attack("r-pgd-fixed", seed=1)
    assert not torch.equal(one.images, other.images)
    renamed = run_attack("r-pgd-fixed", ids=["0", "1", "2", "x"])
    same = (renamed.images == one.images).flatten(1).all(1).tolist()
    assert same == [True, True, True, False]


@pytest.mark.parametrize(("name", "extra"), [("foolbox:LinfPGD", "foolbox"), ("autoattack", "autoattack")])
def test_a_missing_extra_is_named_with_the_command(name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "foolbox", None)
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'benfourier\[{extra}\]'"):
        run_attack(name, eps=0.1)


@dataclass(frozen=True, kw_only=True)
class Cheat(Attack):
    """Records anything as a success."""

    id: ClassVar[str] = "cheat"
    make: ClassVar[Any] = staticmethod(torch.clone)

    def run(self, run: AttackRun) -> None:
        rows = run.rows
        run.record(self.make(run.clean[rows]), rows, torch.ones(len(rows), dtype=torch.bool))
        run.best[rows] = self.make(run.clean[rows])


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
def test_what_is_no_image_or_not_adversarial_is_never_returned(
    make: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cheat, "make", staticmethod(make))
    data = first(4)
    result = bf.attack(Cheat(), data.classifier, data.images, data.labels)
    assert result.success.tolist() == [True, True, False, False]
    assert torch.equal(result.images, data.images)


def test_attacks_work_in_inference_mode_and_in_other_bounds() -> None:
    data = first(8)
    shifted = bf.Classifier(data.classifier.module, bounds=(-1.0, 3.0), mean=[-1.0], std=[4.0])
    with torch.inference_mode():
        result = bf.attack("bim", shifted, 4 * data.images - 1, data.labels)
    plain = bf.attack("bim", data.classifier, data.images, data.labels)
    assert torch.equal(result.success, plain.success)
    assert float(result.linf.median()) == pytest.approx(4 * float(plain.linf.median()), rel=0.01)
    assert -1 <= float(result.images.min()) <= float(result.images.max()) <= 3


@pytest.mark.parametrize("name", ["bim", "deepfool"])
@pytest.mark.parametrize(("kind", "images"), [(torch.float64, torch.float32), (torch.float32, torch.float16)])
def test_results_are_still_adversarial_in_the_dtype_in_which_they_are_returned(
    name: str, kind: torch.dtype, images: torch.dtype
) -> None:
    data = digits()
    classifier = bf.Classifier(deepcopy(data.classifier.module).to(kind), size=8, channels=1)
    result = bf.attack(name, classifier, data.images.to(images), data.labels, show_progress=False)
    assert result.images.dtype == images
    assert result.success.all()
    assert (classifier.logits(result.images).argmax(1) != data.labels).all()


def test_a_misclassified_image_a_little_out_of_bounds_is_a_success_too() -> None:
    data = first(2)
    images = data.images.clone()
    images[:, :, 0, 0] = 1 + 5e-7
    result = bf.attack("bim", data.classifier, images, data.labels)
    assert result.already.all()
    assert result.success.all()
    assert result.l2.tolist() == [0, 0]


class NoGradient(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.detach().flatten(1)[:, :4]


class Broken(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :4].log() * 0


def test_a_module_without_gradient_is_named() -> None:
    images = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = images.flatten(1)[:, :4].argmax(1)
    with pytest.raises(ClassifierError, match="no gradient"):
        bf.attack("bim", bf.Classifier(NoGradient()), images, labels)


def test_logits_that_are_not_finite_are_named_by_image() -> None:
    images = torch.ones(2, 1, 8, 8)
    images[1] = 0
    with pytest.raises(ActivationError, match="image 'second'"):
        bf.attack("bim", bf.Classifier(Broken()), images, torch.zeros(2).long(), ids=["first", "second"])


def test_a_network_that_fails_is_left_as_found() -> None:
    data = first(3)
    module = data.classifier.module.train()
    handle = module[-1].register_forward_pre_hook(lambda part, inputs: 1 / 0)  # type: ignore[index]
    try:
        with pytest.raises(ZeroDivisionError):
            run_attack("bim")
        assert module.training
        assert all(p.requires_grad for p in module.parameters())
    finally:
        handle.remove()
        module.eval()


class MemoryOrder(nn.Module):
    """Reads the output of a convolution in the order in which it lies in memory."""

    def __init__(self, read: str) -> None:
        super().__init__()
        self.first, self.read = nn.Conv2d(3, 4, 3), read

    def forward(self, images: Tensor) -> Tensor:
        output: Tensor = self.first(images)
        count = output[0].numel()
        in_rows = self.read == "view"
        return output.view(len(output), -1) if in_rows else output.as_strided((len(output), count), (count, 1))


@pytest.mark.filterwarnings("ignore:MemoryOrder cannot be traced")
@pytest.mark.parametrize("read", ["view", "stride"])
def test_a_module_that_cannot_take_channels_last_gets_contiguous_images(read: str) -> None:
    images = torch.rand(4, 3, 7, 6, generator=torch.Generator().manual_seed(0))
    classifier = bf.Classifier(MemoryOrder(read))
    labels = classifier.logits(images).argmax(1)
    result = bf.attack("bim", classifier, images, labels)
    assert result.success.all()
    assert (classifier.logits(result.images).argmax(1) != labels).all()


def test_a_batch_is_as_large_as_memory_allows() -> None:
    small = digits().classifier
    assert default_batch(small, (1, 8, 8)) == 32
    wide = bf.Classifier(nn.Sequential(nn.Conv2d(1, 8, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    assert default_batch(wide, (1, 512, 512)) == 15  # 8 MiB of activations each, as much of gradients, of 256 MiB
    assert default_batch(wide, (1, 2048, 2048)) == 1


def test_an_attack_may_be_given_as_an_object_and_images_as_labelled_images() -> None:
    data = first(4)
    labelled = bf.LabelledImages(data.images, data.labels)
    result = bf.attack(Bim(iterations=5), data.classifier, labelled)
    assert torch.equal(result.images, run_attack("bim", iterations=5).images)
    with pytest.raises(OptionError, match="bim is an Attack, and eps is given too; put options into it"):
        bf.attack(Bim(), data.classifier, labelled, eps=0.1)
    with pytest.raises(InputError, match="LabelledImages, which hold labels and ids"):
        bf.attack("bim", data.classifier, labelled, data.labels)


def test_a_result_prints_successes_and_distances() -> None:
    assert repr(run_attack("bim")).startswith("AttackResult(bim: 4 of 4 succeeded, median l2 ")


def test_what_rounding_to_eight_bits_undoes_is_lengthened_until_it_misleads() -> None:
    data = digits()
    pixels = (data.images * 255).round() / 255
    free, stored = (
        bf.attack("deepfool", data.classifier, pixels, data.labels, eight_bit=eight_bit) for eight_bit in (False, True)
    )
    assert torch.equal(stored.success, free.success)  # without lengthening, a part of these would be lost
    levels = stored.images * 255
    assert torch.allclose(levels, levels.round(), atol=1e-4)
    rounded = (free.images * 255).round() / 255
    undone = free.success & (data.classifier.logits(rounded).argmax(1) == data.labels)
    assert undone.any()
    assert bool((stored.l2[undone] > free.l2[undone]).all())
    assert float(stored.l2[free.success].median()) < 2 * float(free.l2[free.success].median()) + 0.1
