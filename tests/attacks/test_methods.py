"""What each attack is, beside what all share."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

import benfourier as bf
from benfourier.data.draws import generator
from tests.attacks.trained import digits, first, in_float64


def strike(name: str, count: int = 24, **options: object) -> bf.AttackResult:
    given = first(count)
    return bf.attack(name, given.subject, given.images, given.labels, **options)  # type: ignore[arg-type]


def searched_by_hand(
    subject: bf.Subject, image: Tensor, label: Tensor, ratio: float, iterations: int, draws: torch.Generator | None
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
            (gradient,) = torch.autograd.grad(F.cross_entropy(subject.module(x), label), x)
            x = (image + (x.detach() + ratio * eps * gradient.sign() - image).clamp(-eps, eps)).clamp(0, 1)
            if subject.module(x).argmax(1) != label:
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
    given, many = in_float64(), slice(2, 10)
    images, labels = given.images[many], given.labels[many]
    found = bf.attack(name, given.subject, images, labels, exact=True)
    for row in range(len(images)):
        image, label = images[row : row + 1], labels[row : row + 1]
        draws = generator(0, str(row)) if name == "r-pgd" else None
        wanted, distance = searched_by_hand(given.subject, image, label, ratio, iterations, draws)
        assert bool(found.success[row]) == math.isfinite(distance)
        assert float(found.l2[row]) == pytest.approx(distance, rel=1e-6)
        assert torch.allclose(found.images[row], wanted[0], atol=1e-6)


def test_the_eps_search_grows_eps_until_a_run_succeeds() -> None:
    found = strike("bim", eps=0.001)
    assert found.success.all()
    assert float(found.linf.median()) == pytest.approx(float(strike("bim").linf.median()), rel=0.02)


def test_the_tolerance_saves_calls_and_keeps_the_distance() -> None:
    loose, exact = strike("bim"), strike("bim", exact=True)
    assert loose.calls.sum() < 0.7 * exact.calls.sum()
    assert torch.equal(loose.success, exact.success)
    assert torch.allclose(loose.linf, exact.linf, rtol=2e-3)  # twice the tolerance of each bracket


@pytest.mark.parametrize("name", ["bim", "r-pgd"])
def test_images_of_the_eps_search_lie_on_the_boundary(name: str) -> None:
    found, given = strike(name), digits()
    moved = found.images + 0.02 * (given.images - found.images)
    back = given.subject.logits(moved).argmax(1) == given.labels
    assert back[~found.already].double().mean() > (0.9 if name == "bim" else 0.6)


@pytest.mark.parametrize("name", ["bim", "r-pgd"])
def test_the_eps_search_halves_the_perturbation_at_least(name: str) -> None:
    assert 2 * strike(name).linf.median() < strike(f"{name}-fixed").linf.median()


def test_a_fixed_run_uses_the_whole_eps_and_fails_when_that_is_too_little() -> None:
    found = strike("bim-fixed", eps=0.2)
    assert torch.allclose(found.linf[found.success & ~found.already], torch.tensor(0.2).double(), atol=1e-6)
    assert strike("bim-fixed", eps=1e-4).success.tolist() == [True, True] + 22 * [False]


def test_cw_images_have_the_confidence_asked_for() -> None:
    found, given = strike("cw-l2", confidence=3.0, iterations=200, lr=0.05), digits()
    logits = given.subject.logits(found.images).detach()
    own = logits.gather(1, given.labels[:, None])[:, 0]
    lead = logits.scatter(1, given.labels[:, None], -math.inf).amax(1) - own
    assert found.success.double().mean() > 0.9
    assert (lead[found.success] >= 3).all()
    assert found.l2.median() > strike("cw-l2", iterations=200, lr=0.05).l2.median()


def test_cw_is_nearer_than_the_others() -> None:
    nearest = strike("cw-l2", iterations=500, lr=0.02).l2.median()  # 200 iterations do not converge
    assert all(nearest < strike(name).l2.median() for name in ("bim", "r-pgd", "deepfool"))


def test_cw_stops_early_for_images_without_progress() -> None:
    hasty, patient = (strike("cw-l2", 8, iterations=100, lr=0.05, abort_early=flag) for flag in (True, False))
    assert hasty.calls.sum() < patient.calls.sum()
    assert (patient.calls[2:] > 5 * 100).all()  # the first two are misclassified as they are
    assert torch.equal(hasty.success, patient.success)


def test_cw_takes_gradients_only_where_the_label_leads() -> None:
    found = strike("cw-l2", 8, iterations=100, lr=0.05, abort_early=False)
    both = 2 + 2 * 5 * 100  # forward and backward in every iteration
    assert found.calls[2:].double().mean() < 0.97 * both
    assert (found.calls < 1.1 * both).all()  # a wrong forecast costs one more forward pass


def test_deepfool_stops_at_its_first_success() -> None:
    given = in_float64()
    image, label = given.images[2:3], given.labels[2:3]
    found = bf.attack("deepfool", given.subject, image, label)
    steps = (int(found.calls) - 3 - 10) // 10  # three checks of the clean image and the result; 1 + 9 passes per step
    assert 1 <= steps < 100
    short = bf.attack("deepfool", given.subject, image, label, steps=steps)
    assert torch.equal(short.images, found.images)
    assert not bf.attack("deepfool", given.subject, image, label, steps=steps - 1).success.any()


def deepfool_by_hand(subject: bf.Subject, image: Tensor, label: int) -> Tensor:
    """DeepFool for one image, straight from its formula; where pixels are clipped it may end just short of crossing."""
    x = image
    for _ in range(100):
        x = x.detach().requires_grad_()
        logits = subject.module(x)[0]
        steps = {}
        for k in set(range(10)) - {label}:
            (w,) = torch.autograd.grad(logits[k] - logits[label], x, retain_graph=True)
            gap, length = float((logits[k] - logits[label]).detach().abs()), float(w.norm())
            steps[gap / length] = 1.05 * gap / length**2 * w
        x = (x.detach() + steps[min(steps)]).clamp(0, 1)
        if subject.module(x).argmax() != label:
            break
    return x


def test_deepfool_finds_what_its_formula_says() -> None:
    given = in_float64()
    found = bf.attack("deepfool", given.subject, given.images, given.labels)
    for row in range(given.wrong, 12):
        wanted = deepfool_by_hand(given.subject, given.images[row : row + 1], int(given.labels[row]))
        assert torch.allclose(found.images[row], wanted[0], atol=1e-6)  # both end on the boundary


def test_cw_is_as_near_as_that_of_foolbox() -> None:
    ours = strike("cw-l2", 12, iterations=100, lr=0.02, initial_constant=1.0, abort_early=False)
    same = {"steps": 100, "stepsize": 0.02, "initial_const": 1.0, "binary_search_steps": 5, "abort_early": False}
    theirs = strike("foolbox:L2CarliniWagnerAttack", 12, **same)
    assert torch.equal(ours.success, theirs.success)
    assert torch.allclose(ours.l2, theirs.l2, rtol=0.01)  # they differ in Adam's epsilon


def test_the_foolbox_door_agrees_with_foolbox_itself() -> None:
    import foolbox

    given = first(12)
    found = strike("foolbox:L2CarliniWagnerAttack", 12, steps=50, binary_search_steps=3, initial_const=1.0)
    direct = foolbox.attacks.L2CarliniWagnerAttack(steps=50, binary_search_steps=3, initial_const=1.0)
    right = slice(given.wrong, None)  # ours leaves images alone that are misclassified as they are
    model = foolbox.PyTorchModel(given.subject.module, bounds=(0, 1), device="cpu")
    images, labels = given.images[right], given.labels[right]
    _, wanted, won = direct(model, images, labels, epsilons=None)
    given.subject.module.zero_grad()
    assert torch.equal(found.success[right], won)
    assert torch.equal(found.images[right][won], wanted[won])


def test_bim_fixed_is_the_bim_of_foolbox_3() -> None:
    ours = strike("bim-fixed", eps=0.2, step=0.04)
    theirs = strike("foolbox:LinfBasicIterativeAttack", eps=0.2, rel_stepsize=0.2)
    assert torch.equal(ours.success, theirs.success)
    assert torch.allclose(ours.images, theirs.images, atol=1e-6)


def test_autoattack_is_at_least_as_strong_as_one_of_its_parts() -> None:
    count = 6
    alone = strike("r-pgd-fixed", count, eps=0.3)
    assert (strike("autoattack", count, eps=0.3).success >= alone.success).all()
