"""The same attacks by Foolbox 3: its own CW-L2 and DeepFool, and an eps search built around its gradient step."""

import os
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

import benfourier as bf

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # its GitPython complains about machines that have no git
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "Please import `gaussian_filter`", DeprecationWarning)
    import eagerpy as ep
    from foolbox import PyTorchModel
    from foolbox.attacks import (
        L2CarliniWagnerAttack,
        L2DeepFoolAttack,
        LinfBasicIterativeAttack,
        LinfProjectedGradientDescentAttack,
    )
    from foolbox.attacks.gradient_descent_base import LinfBaseGradientDescent
    from foolbox.criteria import Misclassification

TRIES, GROWTH, EPS = 20, 1.5, 0.3
Rival = Callable[[Tensor, Tensor], Tensor]  # images and labels, to the images found


def rival(name: str, subject: bf.Subject) -> Rival:
    """Returns the attack of that id as Foolbox makes it, with the options that ours has by default.

    Foolbox scales the sum of all steps of DeepFool by 1 + overshoot, ours each step by 1.05.
    """
    scaling = {key: torch.tensor(got) for key in ("mean", "std") if (got := getattr(subject, key)) is not None}
    scaled = {**scaling, "axis": -3} if scaling else None
    model = PyTorchModel(subject.module, bounds=subject.bounds, device=subject.device, preprocessing=scaled)
    if name == "bim":
        return Search(model, LinfBasicIterativeAttack(rel_stepsize=0.05 / EPS, steps=10))
    if name == "r-pgd":
        return Search(model, LinfProjectedGradientDescentAttack(rel_stepsize=0.01 / EPS, steps=40))
    whole = {
        "cw-l2": L2CarliniWagnerAttack(5, 1000, stepsize=0.005, initial_const=0.01),
        "deepfool": L2DeepFoolAttack(steps=100, candidates=10, overshoot=0.05),
    }[name]
    return lambda images, labels: whole(model, images, labels, epsilons=None)[1]


class Search:
    """The eps search of Foolbox 1.8, as a user of Foolbox 3 would write it around that library's gradient step.

    All images run at once, each at its own eps, which grows by half until a run succeeds, 20 runs at most, and is then
    bisected 20 times. Foolbox gives no logits with a gradient, so its criterion is asked after every step, by one more
    forward pass. A run ends when all images have met it; of those that ever did, the nearest is kept.
    """

    def __init__(self, model: PyTorchModel, attack: LinfBaseGradientDescent) -> None:
        self.model, self.attack = model, attack

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Returns the nearest misclassified image found for each; the clean one where there is none."""
        best, least = images.clone(), torch.full((len(images),), torch.inf)
        eps, bad, good = (torch.full_like(least, value) for value in (EPS, 0, torch.inf))
        tries = torch.zeros(len(images), dtype=torch.int64)
        while (tries < TRIES).any():
            won = self._run(images, labels, eps, best, least)
            growing = good.isinf()
            tries = torch.where(won & growing, 0, tries + 1)
            bad = torch.where(~won & ~growing, eps, bad)
            good = torch.where(won, eps, good)
            eps = torch.where(good.isinf(), GROWTH * eps, (good + bad) / 2)
        return best

    def _run(self, images: Tensor, labels: Tensor, eps: Tensor, best: Tensor, least: Tensor) -> Tensor:
        """True where one run misleads; nearer images than before are written into best, their distances into least."""
        attack, bounds = self.attack, self.model.bounds
        clean, truth, reach = ep.astensor(images), ep.astensor(labels), eps.view(-1, 1, 1, 1)
        criterion, loss = Misclassification(truth), attack.get_loss_fn(self.model, truth)
        optimiser = attack.get_optimizer(clean, attack.rel_stepsize * ep.astensor(reach))
        x = ep.clip(attack.get_random_start(clean, reach), *bounds) if attack.random_start else clean
        won = torch.zeros(len(images), dtype=torch.bool)
        for _ in range(attack.steps):
            _, gradient = attack.value_and_grad(loss, x)
            x = x + optimiser(attack.normalize(gradient, x=x, bounds=bounds))
            x = ep.clip(attack.project(x, clean, reach), *bounds)
            met = criterion(x, self.model(x)).raw
            distance = (x.raw - images).flatten(1).norm(dim=1)
            nearer = met & (distance < least)
            best[nearer], least[nearer] = x.raw[nearer], distance[nearer]
            won |= met
            if won.all():
                break
        return won
