"""Examples of small digits under attack, made once per process, and a network that has no dropout."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits

import benfourier as bf
from benfourier.data.examples import Examples
from benfourier.data.images import LabelledImages
from tests.attacks.trained import TRAIN, digits, train

SOURCES = 160


@dataclass(frozen=True)
class Toys:
    """A classifier, examples to fit to, others to test on, and labelled clean images beyond both."""

    classifier: bf.Classifier
    fitted: Examples
    tested: Examples
    clean: LabelledImages


@cache
def toys() -> Toys:
    """Digits that the network of the attacks' tests classifies correctly, attacked by bim and deepfool."""
    dataset = load_digits()
    images = torch.from_numpy(dataset.images).float().unsqueeze(1) / 16
    labels = torch.from_numpy(dataset.target)
    classifier = digits().classifier
    right = (classifier.logits(images).argmax(1) == labels).nonzero().flatten()
    rows, beyond = right[right >= TRAIN][:SOURCES], right[right < TRAIN][:400]
    clean, truth = images[rows], labels[rows]
    results = {name: bf.attack(name, classifier, clean, truth, show_progress=False) for name in ("bim", "deepfool")}
    level = float(results["bim"].l2.median()) / 8
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    examples = Examples(
        clean=clean,
        noisy={"noisy": (clean + level * noise).clamp(0, 1)},
        adversarial={name: result.images for name, result in results.items()},
        success={name: result.success for name, result in results.items()},
        labels=truth,
        ids=tuple(f"digit-{row}" for row in rows.tolist()),
        noise_levels={"noisy": level},
        counts=(("classified correctly", SOURCES),),
        seed=0,
    )
    cut = SOURCES * 3 // 4
    return Toys(
        classifier,
        examples.take(np.arange(cut)),
        examples.take(np.arange(cut, SOURCES)),
        LabelledImages(images[beyond], labels[beyond]),
    )


@cache
def other_classifier() -> bf.Classifier:
    """A second network for the same digits, trained from other weights."""
    dataset = load_digits()
    images = torch.from_numpy(dataset.images).float().unsqueeze(1) / 16
    module = train(images, torch.from_numpy(dataset.target), seed=1)
    return bf.Classifier(module.requires_grad_(False), bounds=(0.0, 1.0), size=8, channels=1)
