"""A small network trained on scikit-learn's digits, and digits it has not seen."""

from copy import deepcopy
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F  # noqa: N812
from sklearn.datasets import load_digits
from torch import Tensor, nn

import benfourier as bf

TRAIN = 1200


@dataclass(frozen=True)
class Digits:
    """The classifier, and held-out images with their labels; images[:wrong] are misclassified as they are."""

    classifier: bf.Classifier
    images: Tensor
    labels: Tensor
    wrong: int


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 32),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(32, 10),
    )


def train(images: Tensor, labels: Tensor, seed: int) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = network()
        optimiser = torch.optim.Adam(module.parameters(), lr=5e-3)
        for _ in range(12):
            for part in torch.randperm(TRAIN).view(-1, 100):
                optimiser.zero_grad()
                torch.autograd.backward(F.cross_entropy(module(images[part]), labels[part]))
                optimiser.step()
    module.zero_grad()
    return module.eval()


@cache
def digits() -> Digits:
    """Trained once per process, in about two seconds: 2 misclassified images and 22 others."""
    dataset = load_digits()
    images = torch.from_numpy(dataset.images).float().unsqueeze(1) / 16
    labels = torch.from_numpy(dataset.target)
    module = train(images, labels, seed=0)
    test_images, test_labels = images[TRAIN:], labels[TRAIN:]
    right = module(test_images).argmax(1) == test_labels
    order = torch.cat([(~right).nonzero().flatten()[:2], right.nonzero().flatten()[:22]])
    classifier = bf.Classifier(module, bounds=(0.0, 1.0), size=8, channels=1)
    return Digits(classifier, test_images[order], test_labels[order], 2)


@cache
def unseen() -> bf.LabelledImages:
    """Digits that the network has not learned from, as they come: a few in a hundred are misclassified."""
    dataset = load_digits()
    images = torch.from_numpy(dataset.images).float().unsqueeze(1) / 16
    return bf.LabelledImages(images[TRAIN:], torch.from_numpy(dataset.target)[TRAIN:])


def first(count: int) -> Digits:
    """The same with fewer images."""
    whole = digits()
    return Digits(whole.classifier, whole.images[:count], whole.labels[:count], whole.wrong)


def in_float64() -> Digits:
    """The same in float64, where the last bits of a batch change nothing."""
    whole = digits()
    module = deepcopy(whole.classifier.module).double()
    classifier = bf.Classifier(module, bounds=(0.0, 1.0), size=8, channels=1)
    return Digits(classifier, whole.images.double(), whole.labels, whole.wrong)


def unbeatable() -> bf.Classifier:
    """A classifier that predicts 0 for every image."""
    head = nn.Linear(64, 10)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.arange(10, 0, -1))
    return bf.Classifier(nn.Sequential(nn.Flatten(), head), bounds=(0.0, 1.0))
