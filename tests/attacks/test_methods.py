"""What each attack is, beside what all share."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import benfourier as bf
from benfourier.data.seeds import image_generator
from tests.attacks.trained import digits, first, in_float64


def run_attack(name: str, count: int = 24, **options: object) -> bf.AttackResult:
    data = first(count)
    return bf.attack(name, data.classifier, data.images, data.labels, **options)  # type: ignore[arg-type]


def plain_search(
    classifier: bf.Classifier,
    image: Tensor,
    label: Tensor,
    ratio: float,
    iterations: int,
    draws: torch.Generator | None,
) -> tuple[Tensor, float]:
    """The eps search for one image (1, C, H, W), straight from its description; the image and its distance."""
    best, least = image, math.inf

    def run(eps: float) -> bool:
        nonlocal best, least
        x = image
        if draws is not None:
            x = image + eps * (2 * torch.rand(image.shape[1:], generator=draws) - 1).to(image)
        for _ in range(iterations):
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(F.cross_entropy(classifier.module(x), label), x)
            x = (image + (x.detach() + ratio * eps * gradient.sign() - image).clamp(-eps, eps)).clamp(0, 1)
            if classifier.module(x).argmax(1) != label:
                distance = float((x - image).norm())
                if distance < least:
                    best, least = x, distance
                return True
        return False

    eps = 0.3
    for _ in range(20):
        if run(eps):
            break
        eps *= 1.5
    else:
        return image, math.inf
    bad, good = 0.0, eps
    for _ in range(20):
        eps = (good + bad) / 2
        if run(eps):
            good = eps
        else:
            bad = eps
    return best.detach(), least


@pytest.mark.parametrize(("name", "ratio", "iterations"), [("bim", 0.05 / 0.3, 10), ("r-pgd", 0.01 / 0.3, 40)])
def test_the_eps_search_finds_what_a_plain_loop_finds(name: str, ratio: float, iterations: int) -> None:
    data, many = in_float64(), slice(2, 10)
    images, labels = data.images[many], data.labels[many]
    result = bf.attack(name, data.classifier, images, labels, tolerance=0)
    for row in range(len(images)):
        image, label = images[row : row + 1], labels[row : row + 1]
        draws = image_generator(0, str(row)) if name == "r-pgd" else None
        expected, distance = plain_search(data.classifier, image, label, ratio, iterations, draws)
        assert bool(result.success[row]) == math.isfinite(distance)
        assert float(result.l2[row]) == pytest.approx(distance, rel=1e-6)
        assert torch.allclose(result.images[row], expected[0], atol=1e-6)


def test_the_eps_search_grows_eps_until_a_run_succeeds() -> None:
    result = run_attack("bim", eps=0.001)
    assert result.success.all()
    assert float(result.linf.median()) == pytest.approx(float(run_attack("bim").linf.median()), rel=0.02)


def test_the_tolerance_saves_calls_and_keeps_the_distance() -> None:
    loose, exact = run_attack("bim"), run_attack("bim", tolerance=0)
    assert loose.calls.sum() < 0.7 * exact.calls.sum()
    assert torch.equal(loose.success, exact.success)
    assert torch.allclose(loose.linf, exact.linf, rtol=2e-3)  # twice the tolerance of each bracket


@pytest.mark.parametrize("name", ["bim", "r-pgd"])
def test_images_of_the_eps_search_lie_on_the_boundary(name: str) -> None:
    result, data = run_attack(name), digits()
    moved = result.images + 0.02 * (data.images - result.images)
    back = data.classifier.logits(moved).argmax(1) == data.labels
    assert back[~result.already].double().mean() > (0.9 if name == "bim" else 0.6)


@pytest.mark.parametrize("name", ["bim", "r-pgd"])
def test_the_eps_search_halves_the_perturbation_at_least(name: str) -> None:
    assert 2 * run_attack(name).linf.median() < run_attack(f"{name}-fixed").linf.median()


def test_a_fixed_run_uses_the_whole_eps_and_fails_when_that_is_too_little() -> None:
    result = run_attack("bim-fixed", eps=0.2)
    assert torch.allclose(result.linf[result.success & ~result.already], torch.tensor(0.2).double(), atol=1e-6)
    assert run_attack("bim-fixed", eps=1e-4).success.tolist() == [True, True] + 22 * [False]


def test_cw_images_have_the_confidence_asked_for() -> None:
    result, data = run_attack("cw-l2", confidence=3.0, iterations=200, lr=0.05), digits()
    logits = data.classifier.logits(result.images).detach()
    own = logits.gather(1, data.labels[:, None])[:, 0]
    lead = logits.scatter(1, data.labels[:, None], -math.inf).amax(1) - own
    assert result.success.double().mean() > 0.9
    assert (lead[result.success] >= 3).all()
    assert result.l2.median() > run_attack("cw-l2", iterations=200, lr=0.05).l2.median()


def test_cw_is_nearer_than_the_others() -> None:
    nearest = run_attack("cw-l2", iterations=500, lr=0.02).l2.median()  # 200 iterations do not converge
    assert all(nearest < run_attack(name).l2.median() for name in ("bim", "r-pgd", "deepfool"))


def test_cw_stops_early_for_images_without_progress() -> None:
    hasty, patient = (run_attack("cw-l2", 8, iterations=100, lr=0.05, abort_early=flag) for flag in (True, False))
    assert hasty.calls.sum() < patient.calls.sum()
    assert (patient.calls[2:] > 5 * 100).all()  # the first two are misclassified as they are
    assert torch.equal(hasty.success, patient.success)


def test_deepfool_stops_at_its_first_success() -> None:
    data = in_float64()
    image, label = data.images[2:3], data.labels[2:3]
    result = bf.attack("deepfool", data.classifier, image, label)
    steps = (int(result.calls) - 3 - 10) // 10  # three checks of the clean image and the result; 1 + 9 passes per step
    assert 1 <= steps < 100
    short = bf.attack("deepfool", data.classifier, image, label, steps=steps)
    assert torch.equal(short.images, result.images)
    assert not bf.attack("deepfool", data.classifier, image, label, steps=steps - 1).success.any()


def plain_deepfool(classifier: bf.Classifier, image: Tensor, label: int) -> Tensor:
    """DeepFool for one image, straight from its formula; where pixels are clipped it may end just short of crossing."""
    x = image
    for _ in range(100):
        x = x.detach().requires_grad_()
        logits = classifier.module(x)[0]
        steps = {}
        for k in set(range(10)) - {label}:
            (w,) = torch.autograd.grad(logits[k] - logits[label], x, retain_graph=True)
            gap, length = float((logits[k] - logits[label]).detach().abs()), float(w.norm())
            steps[gap / length] = 1.05 * gap / length**2 * w
        x = (x.detach() + steps[min(steps)]).clamp(0, 1)
        if classifier.module(x).argmax() != label:
            break
    return x


def test_deepfool_finds_what_its_formula_says() -> None:
    data = in_float64()
    result = bf.attack("deepfool", data.classifier, data.images, data.labels)
    for row in range(data.wrong, 12):
        expected = plain_deepfool(data.classifier, data.images[row : row + 1], int(data.labels[row]))
        assert torch.allclose(result.images[row], expected[0], atol=1e-6)  # both end on the boundary


class TiesAtTheBound(nn.Module):
    """Class 1 reaches the label 0 exactly where the first pixel is 1; class 2 is farther and overtakes it at 0.95."""

    def forward(self, images: Tensor) -> Tensor:
        first, second = images.flatten(1).unbind(1)
        return torch.stack([0 * first, first - 1, 2 * (second - 0.95)], 1)


class Brightness(nn.Module):
    """Class 0 for images brighter than 0.4 on average, else class 1."""

    def forward(self, images: Tensor) -> Tensor:
        lead = images.mean((1, 2, 3)) - 0.4
        return torch.stack([lead, -lead], 1)


def test_an_image_that_an_attack_finds_no_start_for_is_a_failure_and_the_others_are_attacked() -> None:
    classifier = bf.Classifier(Brightness())  # drawn images are bright: they are of no use against a bright image
    images = torch.stack([torch.full((1, 16, 16), value) for value in (0.9, 0.1)])
    result = bf.attack("foolbox:HopSkipJumpAttack", classifier, images, torch.tensor([0, 1]), steps=2)
    assert result.success.tolist() == [False, True]
    alone = bf.attack("foolbox:HopSkipJumpAttack", classifier, images[1:], torch.tensor([1]), ids=["1"], steps=2)
    assert torch.equal(alone.images[0], result.images[1])
    # with several images the attack stops at its first draw instead of running twice
    assert int(result.calls[1]) <= int(alone.calls[0]) + 2


def test_deepfool_drops_a_tied_class_as_foolbox_does_if_asked_to() -> None:
    classifier = bf.Classifier(TiesAtTheBound(), size=(1, 2), channels=1)
    image, label = torch.tensor([[[[0.9, 0.5]]]]), torch.tensor([0])
    foolbox = bf.attack("deepfool", classifier, image, label, ties="foolbox")
    # two steps: to the tie, then 1.05 times the way to class 2
    assert torch.allclose(foolbox.images, torch.tensor([[[[1.0, 0.5 + 1.05 * 0.45]]]]))
    assert foolbox.success.all()
    assert not bf.attack("deepfool", classifier, image, label).success.any()  # aims at class 1 again and again


def test_deepfool_succeeds_either_way_and_ends_nearer_by_default() -> None:
    near, foolbox = run_attack("deepfool"), run_attack("deepfool", ties="foolbox")
    assert near.success.all()
    assert foolbox.success.all()
    assert (near.l2 <= 1.001 * foolbox.l2).all()


def test_cw_is_as_near_as_that_of_foolbox() -> None:
    ours = run_attack("cw-l2", 12, iterations=100, lr=0.02, initial_constant=1.0, abort_early=False)
    same = {"steps": 100, "stepsize": 0.02, "initial_const": 1.0, "binary_search_steps": 5, "abort_early": False}
    theirs = run_attack("foolbox:L2CarliniWagnerAttack", 12, **same)
    assert torch.equal(ours.success, theirs.success)
    assert torch.allclose(ours.l2, theirs.l2, rtol=0.01)  # they differ in Adam's epsilon


def test_foolbox_attacks_agree_with_foolbox_itself() -> None:
    import foolbox

    data = first(12)
    result = run_attack("foolbox:L2CarliniWagnerAttack", 12, steps=50, binary_search_steps=3, initial_const=1.0)
    direct = foolbox.attacks.L2CarliniWagnerAttack(steps=50, binary_search_steps=3, initial_const=1.0)
    right = slice(data.wrong, None)  # ours leaves images alone that are misclassified as they are
    model = foolbox.PyTorchModel(data.classifier.module, bounds=(0, 1), device="cpu")
    images, labels = data.images[right], data.labels[right]
    _, expected, success = direct(model, images, labels, epsilons=None)
    data.classifier.module.zero_grad()
    assert torch.equal(result.success[right], success)
    assert torch.equal(result.images[right][success], expected[success])


def test_bim_fixed_is_the_bim_of_foolbox_3() -> None:
    ours = run_attack("bim-fixed", eps=0.2, step=0.04)
    theirs = run_attack("foolbox:LinfBasicIterativeAttack", eps=0.2, rel_stepsize=0.2)
    assert torch.equal(ours.success, theirs.success)
    assert torch.allclose(ours.images, theirs.images, atol=1e-6)


def test_autoattack_is_at_least_as_strong_as_one_of_its_parts() -> None:
    count = 6
    alone = run_attack("r-pgd-fixed", count, eps=0.3)
    assert (run_attack("autoattack", count, eps=0.3).success >= alone.success).all()


@pytest.mark.parametrize("factor", [1.5, 4.0])
def test_r_pgd_beyond_goes_a_factor_beyond_the_least_eps_of_each_image(factor: float) -> None:
    least, beyond = run_attack("bim", tolerance=0.1), run_attack("r-pgd-beyond", factor=factor)
    both = least.success & beyond.success & ~least.already
    assert int(both.sum()) >= 18
    ratio = beyond.linf[both] / least.linf[both]
    assert float(ratio.max()) <= factor * (1 + 1e-5)
    assert float(ratio.quantile(0.5)) > 0.95 * factor
    assert int(run_attack("r-pgd-beyond", factor=factor, eps=0.05).success.sum()) < int(both.sum())


def test_one_attack_of_autoattack_can_run_alone_with_fewer_queries() -> None:
    square = run_attack("autoattack", 6, only="square", queries=40, eps=0.3)
    assert square.success.any()
    assert float(square.calls.double().max()) < 100
