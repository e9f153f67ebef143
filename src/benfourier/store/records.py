"""What an evaluation finds out, as a ledger keeps it: plain records, read without torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Estimate:
    """A value and the interval that holds the truth with a probability of 95 %; NaN where it cannot be told."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} ({self.low:.4f} to {self.high:.4f})"


@dataclass(frozen=True)
class Run:
    """What was asked for and where it ran; the first record of every start.

    Args:
        key: digest of the settings.
        name: of the plan.
        settings: the plan as it was read, with all defaults.
        scale: of the sizes, such as "here" or "paper".
        versions: of Python and the libraries.
        machine: processor, threads.
        network: name, accuracy on held-out images, digest of the weights, layers.
        date: ISO 8601, UTC.
    """

    key: str
    name: str
    settings: Mapping[str, Any]
    scale: str
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    network: Mapping[str, Any]
    date: str


@dataclass(frozen=True)
class Crafted:
    """How one attack fared on one source of images.

    Args:
        key: digest of what made it.
        source: label of the data.
        attack: label.
        method: id of the attack.
        options: given to it.
        sources: images that were attacked and stayed in the set.
        successes: of them.
        l2: median distance, of the successes.
        linf: median distance.
        calls: forward and backward passes per image.
        noise_level: of the noisy twins that stand beside it.
        funnel: images left after each step.
        seed: of its draws.
        reduced: a setting below the paper's, in words; empty if there is none.
    """

    key: str
    source: str
    attack: str
    method: str
    options: Mapping[str, Any]
    sources: int
    successes: int
    l2: float
    linf: float
    calls: float
    noise_level: float
    funnel: tuple[tuple[str, int], ...]
    seed: int
    reduced: str = ""


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of the test images, row by row; a row is a source image whose attack succeeded.

    Args:
        ids: source images.
        folds: which machine scored the row; all 0 without cross-validation.
        clean: scores (N,).
        noisy: of the noisy twins.
        adversarial: of the attacked twins.
    """

    ids: tuple[str, ...]
    folds: tuple[int, ...]
    clean: Floats
    noisy: Floats
    adversarial: Floats


@dataclass(frozen=True)
class Cell:
    """A fitted detector against one attack.

    Args:
        attack: label of the attack it was tested on.
        source: label of the data it was tested on.
        sources: source images whose attack succeeded.
        metrics: by name: auroc, accuracy, aupr, tpr@5%, fpr-noisy@5%, over-trivial (AUROC less that of max-softmax,
            paired), and so on.
        scores: of all rows; None where too few successes make the cell meaningless.
        note: why there are no metrics, or what else must be known.
    """

    attack: str
    source: str
    sources: int
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    scores: Scores | None = None
    note: str = ""


@dataclass(frozen=True)
class Outcome:
    """One trial: a detector fitted once (or once per fold) and tested on one or more attacks.

    Args:
        key: digest of everything that it depends on; a trial whose key is in the ledger is done.
        protocol: non-transfer, attack-transfer, data-transfer, strength-transfer or mixed.
        detector: label.
        method: id of the detector.
        options: given to it.
        fitted: labels of the attacks it was fitted to.
        source: label of the data it was fitted to.
        fit_sources: source images in the fit.
        folds: number of folds; 1 for one split.
        cells: what it was tested on.
        overall: by name: worst-auroc, mead@5%, fpr-misclassified@5%, ….
        thresholds: mean over folds, by rate of false alarms ("5%").
        calibration: number of held-out clean images that the thresholds come from.
        seconds: by name: fit, score.
        seed: of splits and draws.
        versions: of the libraries.
        digests: of weights, data, examples.
        reduced: a setting below the method's own, in words.
    """

    key: str
    protocol: str
    detector: str
    method: str
    options: Mapping[str, Any]
    fitted: tuple[str, ...]
    source: str
    fit_sources: int
    folds: int
    cells: tuple[Cell, ...]
    overall: Mapping[str, Estimate]
    thresholds: Mapping[str, float]
    calibration: int
    seconds: Mapping[str, float]
    seed: int
    versions: Mapping[str, str]
    digests: Mapping[str, str]
    reduced: str = ""


@dataclass(frozen=True, eq=False)
class Profile:
    """Mean and deviation of every MBF number over the images of one kind: the paper's figures.

    Args:
        key: digest of what made it.
        source: label of the data.
        split: train, test or out-of-sample.
        kind: clean, noisy, or the label of an attack.
        layers: names, in order.
        orders: numbers per layer.
        images: how many.
        mean: (layers · orders,).
        deviation: the same.
    """

    key: str
    source: str
    split: str
    kind: str
    layers: tuple[str, ...]
    orders: int
    images: int
    mean: Floats
    deviation: Floats


@dataclass(frozen=True, eq=False)
class LayerFit:
    """How well a generalized Gaussian distribution fits the responses of each layer, over the images of one kind.

    Args:
        key: digest of what made it.
        source: label of the data.
        split: train, test or out-of-sample.
        kind: clean, noisy, or the label of an attack.
        layers: names, in order.
        images: how many.
        distance: mean Kolmogorov-Smirnov distance D of an image's responses to their own fit, (layers,).
        shape: median of the fitted shapes, (layers,).
        offset: mean of |mean| / standard deviation of an image's responses before the mean is removed, (layers,).
    """

    key: str
    source: str
    split: str
    kind: str
    layers: tuple[str, ...]
    images: int
    distance: Floats
    shape: Floats
    offset: Floats


@dataclass(frozen=True)
class Control:
    """AUROC of mbf on noise that has nothing of a network but the sizes and shapes of its layers' responses.

    Args:
        key: digest of what made it.
        source: label of the data.
        attack: label.
        features: of what: "responses" themselves, noise with each image's "own shapes", or noise in which adversarial
            images have the "same shapes" as their clean twins.
        sources: of the fit.
        tested: source images that the AUROC is of.
        auroc: on them.
    """

    key: str
    source: str
    attack: str
    features: str
    sources: int
    tested: int
    auroc: Estimate


@dataclass(frozen=True)
class KsResult:
    """One Kolmogorov-Smirnov comparison, averaged as the paper does.

    Args:
        key: digest of what made it.
        study: h1, h2.1, h2.2, h2.3, h2.4 (pairs of kinds) or h2-sources.
        source: label of the data; for h2-sources the two of them, "train|test".
        split: train, test or out-of-sample.
        kind: what was tested: a kind, or two of them as "clean|bim".
        images: number of images, of the smaller set.
        distance: mean effect size D.
        p: mean p, as the paper has it (asymptotic).
        more: other figures by name: p-exact, p-bootstrap, p-adjusted (Holm, the smallest of the dimensions), rejected
            (share of the tests below 0.05 after correction), draws.
    """

    key: str
    study: str
    source: str
    split: str
    kind: str
    images: int
    distance: float
    p: float
    more: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """Time of one detector on one network.

    Args:
        key: digest of what made it.
        detector: label.
        method: id.
        needs: listens, samples, gradients, searches.
        images: timed.
        forward_ms: of the plain network, per image.
        features_ms: of the detector's numbers, the forward pass included, per image.
        classifier_ms: of the final classifier, per image.
    """

    key: str
    detector: str
    method: str
    needs: tuple[str, ...]
    images: int
    forward_ms: float
    features_ms: float
    classifier_ms: float


@dataclass(frozen=True)
class Picture:
    """An example image with what an attack added, kept as a small PNG beside the ledger.

    Args:
        key: digest of what made it.
        source: label of the data.
        id: source image.
        attack: label.
        label: what the network says of the clean image.
        fooled: what it says of the attacked one.
        l2: distance.
        magnified: by how much the perturbation is magnified in the picture.
        files: names of the PNGs beside the ledger: clean, attacked, perturbation.
        credit: of photographs; empty otherwise.
    """

    key: str
    source: str
    id: str
    attack: str
    label: str
    fooled: str
    l2: float
    magnified: float
    files: tuple[str, str, str]
    credit: str = ""


@dataclass(frozen=True)
class Failure:
    """A trial that could not be done; it is tried again at the next start.

    Args:
        key: of the trial.
        trial: what it was, in words.
        error: the message.
    """

    key: str
    trial: str
    error: str


Record = Run | Crafted | Outcome | Profile | LayerFit | Control | KsResult | Cost | Picture | Failure
