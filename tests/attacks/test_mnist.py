"""The attacks on the network of the zoo for MNIST."""

from functools import cache
from typing import Any

import pytest
import torch

import benfourier as bf
from tests.attacks.mnist import mnist

# how many images, and options that save time where the defaults are expensive
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "bim": (40, {}),
    "bim-fixed": (40, {}),
    "cw-l2": (16, {"iterations": 100, "lr": 0.05, "initial_constant": 1.0}),
    "deepfool": (40, {}),
    "r-pgd": (16, {}),
}
BACK = 0.02  # of the way to the clean image


@cache
def run_attack(name: str) -> bf.AttackResult:
    data, (count, options) = mnist(), CASES[name]
    return bf.attack(name, data.classifier, data.images[:count], data.labels[:count], ids=data.ids[:count], **options)


def test_the_network_has_learned_its_digits() -> None:
    assert mnist().accuracy > 0.95


@pytest.mark.parametrize("name", ["bim", "cw-l2", "deepfool", "r-pgd"])
def test_attacks_with_a_search_succeed_on_nearly_every_digit(name: str) -> None:
    assert run_attack(name).success.double().mean() >= 0.99


def test_a_fixed_eps_goes_at_least_twice_as_far_as_the_search() -> None:
    fixed, searched = run_attack("bim-fixed"), run_attack("bim")
    assert fixed.linf[fixed.success].median() >= 2 * searched.linf[searched.success].median()


def test_images_of_the_search_lie_on_the_boundary() -> None:
    data, result = mnist(), run_attack("bim")
    clean, labels = data.images[: len(result.images)], data.labels[: len(result.images)]
    with torch.no_grad():
        predicted = data.classifier.logits(result.images + BACK * (clean - result.images)).argmax(1)
    assert (predicted == labels).double().mean() >= 0.8
