"""Our attacks beside those of Foolbox 3, on the same trained network and images: time and distance.

Each side has a process of its own, as its users would have: what one does to the process does not help the other.
"""

import math
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from statistics import mean, median
from typing import Any

import torch
from torch import Tensor

import benfourier as bf
from benchmarks.case import Case
from benchmarks.setup import trained_mnist

ROUNDS = {"bim": 3, "r-pgd": 3, "cw-l2": 1, "deepfool": 3}
SPEED_UP = {"bim": 1.7, "r-pgd": 1.7, "cw-l2": 1.1, "deepfool": 1.1}  # at least
# median distance over Foolbox's, at most; the starts of r-pgd are drawn, and move the median of either side by 2 %
DISTANCE = {"bim": 1.01, "r-pgd": 1.04, "cw-l2": 1.01, "deepfool": 1.01}
# options of a quick run
QUICK: dict[str, dict[str, Any]] = {
    "bim": {"tolerance": 0.2},
    "r-pgd": {"tolerance": 0.2},
    "cw-l2": {"iterations": 20, "search_steps": 2},
}
TRIES, QUICK_TRIES, GROWTH, EPS = 20, 3, 1.5, 0.3


@dataclass(frozen=True)
class TimedAttack:
    """One run of an attack: its seconds, and the L2 distance of each image, infinite where the attack failed."""

    seconds: float
    l2: tuple[float, ...]

    @property
    def success(self) -> float:
        """Share of the images that are misclassified."""
        return sum(map(math.isfinite, self.l2)) / len(self.l2)


def speed(name: str, threads: int, *, quick: bool) -> Case:
    """Returns how many times faster ours is, median of the rounds' ratios."""
    ours, foolbox = _runs(name, threads, quick=quick)
    figures = {
        "foolbox_seconds": median(run.seconds for run in foolbox),
        "our_seconds": median(run.seconds for run in ours),
        "speed_up": median(theirs.seconds / mine.seconds for mine, theirs in zip(ours, foolbox, strict=True)),
    }
    sentence = f"`{name}` beside Foolbox 3, {len(ours[0].l2)} images: {{foolbox_seconds}} → {{our_seconds}} s"
    return Case(f"attacks/{name}", sentence, figures, "speed_up", "factor", SPEED_UP[name], "at least")


def distance(name: str, threads: int, *, quick: bool) -> Case:
    """Returns our median L2 distance over Foolbox's, infinite if ours has fewer successes."""
    ours, foolbox = _runs(name, threads, quick=quick)
    figures = {
        "foolbox_success": 100 * mean(run.success for run in foolbox),
        "our_success": 100 * mean(run.success for run in ours),
        "foolbox_l2": median(l2 for run in foolbox for l2 in run.l2),
        "our_l2": median(l2 for run in ours for l2 in run.l2),
    }
    fewer = figures["our_success"] < figures["foolbox_success"]
    figures["ratio"] = math.inf if fewer else figures["our_l2"] / figures["foolbox_l2"]
    sentence = (
        f"median L2 distance of `{name}` beside Foolbox 3: {{foolbox_l2}} → {{our_l2}}, successes "
        "{foolbox_success} → {our_success} %"
    )
    return Case(f"attacks/{name}-distance", sentence, figures, "ratio", "factor", DISTANCE[name])


@cache
def _process(side: str, threads: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, get_context("spawn"), torch.set_num_threads, (threads,))


@cache
def _runs(name: str, threads: int, *, quick: bool) -> tuple[list[TimedAttack], list[TimedAttack]]:
    """Our runs and those of Foolbox, in turns."""
    images, options, rounds = (2, QUICK.get(name, {}), 1) if quick else (32, {}, ROUNDS[name])
    sides: tuple[list[TimedAttack], list[TimedAttack]] = ([], [])
    for seed in range(rounds):
        for side, run, runs in zip(("ours", "foolbox"), (_ours, _foolbox), sides, strict=True):
            runs.append(_process(side, threads).submit(run, name, images, options, seed).result())
    return sides


def _ours(name: str, images: int, options: dict[str, Any], seed: int) -> TimedAttack:
    mnist = trained_mnist().first(images)
    fixed: dict[str, Any] = {"batch": images, "seed": seed, "show_progress": False}
    return _time(
        images, lambda clean, labels: bf.attack(name, mnist.classifier, clean, labels, **fixed, **options).images
    )


def _foolbox(name: str, images: int, options: dict[str, Any], seed: int) -> TimedAttack:
    torch.manual_seed(seed)
    return _time(images, foolbox_attack(name, trained_mnist().classifier, options))


def _time(images: int, attack: Callable[[Tensor, Tensor], Tensor]) -> TimedAttack:
    mnist = trained_mnist().first(images)
    clean, labels = mnist.images.images, mnist.images.labels
    start = time.perf_counter()
    adversarial = attack(clean, labels)
    seconds = time.perf_counter() - start
    misled = mnist.classifier.logits(adversarial).argmax(1) != labels
    l2 = (adversarial - clean).double().flatten(1).norm(dim=1).masked_fill(~misled, torch.inf)
    return TimedAttack(seconds, tuple(l2.tolist()))


def foolbox_attack(name: str, classifier: bf.Classifier, options: dict[str, Any]) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns the attack of that id as Foolbox makes it, with the options that ours has by default.

    Foolbox scales the sum of all steps of DeepFool by 1 + overshoot, ours each step by 1.05.
    """
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # its GitPython complains about machines without git
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Please import `gaussian_filter`", DeprecationWarning)
        import foolbox
    scaling = {key: torch.tensor(value) for key in ("mean", "std") if (value := getattr(classifier, key)) is not None}
    model = foolbox.PyTorchModel(
        classifier.module,
        bounds=classifier.bounds,
        device=classifier.device,
        preprocessing={**scaling, "axis": -3} if scaling else None,
    )
    tries = QUICK_TRIES if options else TRIES
    if name == "bim":
        return EpsSearch(model, foolbox.attacks.LinfBasicIterativeAttack(rel_stepsize=0.05 / EPS, steps=10), tries)
    if name == "r-pgd":
        steps = foolbox.attacks.LinfProjectedGradientDescentAttack(rel_stepsize=0.01 / EPS, steps=40)
        return EpsSearch(model, steps, tries)
    if name == "cw-l2":
        searches, iterations = options.get("search_steps", 5), options.get("iterations", 1000)
        whole = foolbox.attacks.L2CarliniWagnerAttack(searches, iterations, stepsize=0.005, initial_const=0.01)
    else:
        whole = foolbox.attacks.L2DeepFoolAttack(steps=100, candidates=10, overshoot=0.05)
    return lambda images, labels: whole(model, images, labels, epsilons=None)[1]


class EpsSearch:
    """The eps search of Foolbox 1.8, as a user of Foolbox 3 would write it around that library's gradient step.

    All images run at once, each at its own eps, which grows by half until a run succeeds, 20 runs at most, and is then
    bisected 20 times. Foolbox gives no logits with a gradient, so its criterion is asked after every step, by one more
    forward pass. A run ends when all images have met it; of those that ever did, the nearest is kept.
    """

    def __init__(self, model: Any, attack: Any, tries: int) -> None:
        self.model, self.attack, self.tries = model, attack, tries

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Returns the nearest misclassified image of each; the clean one where there is none."""
        best, least = images.clone(), torch.full((len(images),), torch.inf)
        eps, low, high = (torch.full_like(least, value) for value in (EPS, 0, torch.inf))
        tries = torch.zeros(len(images), dtype=torch.int64)
        while (tries < self.tries).any():
            success = self._run(images, labels, eps, best, least)
            growing = high.isinf()
            tries = torch.where(success & growing, 0, tries + 1)
            low = torch.where(~success & ~growing, eps, low)
            high = torch.where(success, eps, high)
            eps = torch.where(high.isinf(), GROWTH * eps, (high + low) / 2)
        return best

    def _run(self, images: Tensor, labels: Tensor, eps: Tensor, best: Tensor, least: Tensor) -> Tensor:
        """True where one run misleads; nearer images are written into best, their distances into least."""
        import eagerpy as ep
        from foolbox.criteria import Misclassification

        attack, bounds = self.attack, self.model.bounds
        clean, truth, reach = ep.astensor(images), ep.astensor(labels), eps.view(-1, 1, 1, 1)
        criterion, loss = Misclassification(truth), attack.get_loss_fn(self.model, truth)
        optimiser = attack.get_optimizer(clean, attack.rel_stepsize * ep.astensor(reach))
        x = ep.clip(attack.get_random_start(clean, reach), *bounds) if attack.random_start else clean
        success = torch.zeros(len(images), dtype=torch.bool)
        for _ in range(attack.steps):
            _, gradient = attack.value_and_grad(loss, x)
            x = x + optimiser(attack.normalize(gradient, x=x, bounds=bounds))
            x = ep.clip(attack.project(x, clean, reach), *bounds)
            met = criterion(x, self.model(x)).raw
            distance = (x.raw - images).flatten(1).norm(dim=1)
            nearer = met & (distance < least)
            best[nearer], least[nearer] = x.raw[nearer], distance[nearer]
            success |= met
            if success.all():
                break
        return success
