"""Accuracy of a network on labelled images, and whether the labels can be those of its classes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from benfourier.errors import InputError
from benfourier.metrics.intervals import rate_of
from benfourier.store.card import percent
from benfourier.store.records import Estimate

UNCERTAIN = 0.6  # an accuracy below is worth a warning
GAIN = 0.2  # of accuracy by another order of the classes, from which on the labels are taken to be wrong
ENOUGH = 5  # images of a class that such an order is judged by, and images that it must explain
Say = Callable[[str], object]


def check_labels(
    logits: Tensor, labels: Tensor, names: Sequence[str] | None = None, say: Say | None = None
) -> Estimate:
    """Returns the accuracy, after it was reported; raises InputError where labels cannot be those of the network.

    Args:
        logits: of the images, (N, classes).
        labels: of the images, (N,).
        names: of the classes, in the order of the logits.
        say: called with a sentence on the accuracy, and a warning if it is low.
    """
    say = say or (lambda _: None)
    predicted, classes, count = logits.argmax(1), logits.shape[1], len(labels)
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise InputError(
            f"the images have the label {int(wrong[0])}, and the network tells {classes} classes, from 0 to "
            f"{classes - 1}; check the labels"
        )
    right = int((predicted == labels).sum())
    accuracy = rate_of(right, count)
    say(f"the network is right about {percent(accuracy)} of {count} images")
    better = _better_order(predicted.numpy(), labels.numpy(), classes)
    if better is not None:
        pairs = [(label, output) for label, output in enumerate(better) if label != output][:3]
        named = names if names is not None and len(names) == classes else [str(label) for label in range(classes)]
        examples = "; ".join(
            f"label {label} where the network says {output} ({named[output]})" for label, output in pairs
        )
        raise InputError(
            f"the network is right about {accuracy.value:.0%} of the images, and far more often with its classes in "
            f"another order: {examples}. Labels of folders are the places of their names in the alphabet, unless the "
            "classifier knows the names in the order of its logits; give these (classes=, or --classes cat,dog), or "
            "other labels"
        )
    chance = 1 / classes
    if accuracy.value < min(2 * chance, chance + 0.25 * (1 - chance)):
        raise InputError(
            f"the network is right about {accuracy.value:.1%} of {count} images, hardly more often than by chance "
            f"({chance:.1%}); check that its weights are loaded, the labels, and the bounds, mean and std of its images"
        )
    if accuracy.value < UNCERTAIN:
        say(f"warning: an accuracy of {accuracy.value:.0%} is low; check the labels and the mean and std of the images")
    return accuracy


def _better_order(predicted: NDArray[Any], labels: NDArray[Any], classes: int) -> list[int] | None:
    """For each label the class that the network gives it, if that explains the images far better; else None.

    The order comes from one half of the images and is judged by the other. Classes of few images stay as they are.
    """
    first = np.arange(len(labels)) % 2 == 0
    table = np.zeros((classes, classes))
    np.add.at(table, (labels[first], predicted[first]), 1)
    few = np.bincount(labels, minlength=classes) < ENOUGH
    table[few] = 0
    table[few, few] = 0.5  # no evidence against what they are called
    rows, columns = linear_sum_assignment(-(table + 1e-3 * np.eye(classes)))
    order = np.empty(classes, np.int64)
    order[rows] = columns
    rest = ~first & ~few[labels]
    gain = int((order[labels[rest]] == predicted[rest]).sum()) - int((labels[rest] == predicted[rest]).sum())
    # of few images another order explains a fifth more by chance
    return order.tolist() if gain > GAIN * rest.sum() and gain >= ENOUGH else None
