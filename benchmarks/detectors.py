"""What each detector adds to the forward pass of LID's MNIST network, and the SVM at the scale of the paper.

`python -m benchmarks.detectors THREADS` prints seconds and peak memory of one large scoring by an SVM.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

import benfourier as bf
from benchmarks.case import Case
from benchmarks.forward import peak, reset_peak
from benchmarks.setup import NETWORKS, TrainedMnist, finished, on, trained_mnist
from benfourier import kernels
from benfourier.detectors.features import FeatureTable
from benfourier.detectors.heads import BLOCK, Svm, fit_head
from benfourier.metrics.ranking import auroc
from benfourier.metrics.scores import ScoreSample
from benfourier.metrics.timing import seconds_in_turns
from benfourier.progress import bar

SOURCES, BATCH = 200, 100
QUICK_SOURCES = 40
FITTED, TESTED = 6540, 500  # sources of the SVM's fit and test, as many as the paper's CIFAR-10 has
LAYERS, ORDERS, ENTRIES = 33, 16, 256
SHAPES = {"clean": 1.6, "noisy": 1.6, "adversarial": 1.88}  # of the GGD whose samples stand for activations
SPREAD = 0.2  # relative deviation of a source's own shape; twins share it
VECTORS, SCORED = 20_000, 10_000


@dataclass(frozen=True)
class TimedDetector:
    """How a detector is timed: options, images, rounds (0: as many as asked for), sources of the fit."""

    options: dict[str, Any]
    images: int = BATCH
    rounds: int = 0
    sources: int = SOURCES


# The length of a GAN's training does not change what scoring takes; the steps of c1c2 do, and are its authors'.
DETECTORS = {
    "mbf": TimedDetector({}),
    "max-softmax": TimedDetector({}),
    "mahalanobis": TimedDetector({}),
    "lid": TimedDetector({}),
    "kd-bu": TimedDetector({}),
    "c1c2": TimedDetector({"sigma": 0.01, "step_t": 0.5, "step_u": 1.0}, images=10, rounds=1, sources=20),
    "defense-gan": TimedDetector({"iterations": 5}, images=2, rounds=1, sources=20),
}


VIEWS = {"full": 6.3, "fast": 2.2}  # forward passes at most
VIEWS_NETWORK = "cifar-resnet20"


# options of a quick run
QUICK: dict[str, dict[str, Any]] = {"c1c2": {"cap_t": 5, "cap_u": 5}, "defense-gan": {"search_steps": 5, "restarts": 1}}


def cost(name: str, rounds: int, *, quick: bool) -> Case:
    """Returns what scoring takes, counted in plain forward passes."""
    times = _milliseconds(rounds, quick=quick)
    figures = {"plain_ms": times["plain"], "score_ms": times[name], "passes": times[name] / times["plain"]}
    sentence = f"scoring by `{name}`, lid-mnist: {{plain_ms}} → {{score_ms}} ms per image, in forward passes"
    return Case(f"detectors/{name}", sentence, figures, "passes", "number")


@cache
def _milliseconds(rounds: int, *, quick: bool) -> dict[str, float]:
    """Milliseconds per image of the plain forward pass and of every detector; the cheap ones take turns."""
    sources = QUICK_SOURCES if quick else SOURCES
    mnist = trained_mnist().first(sources + sources // 10)
    detectors = _fit_all(mnist, quick=quick)
    images = mnist.images.images
    plain = images[:BATCH].contiguous(memory_format=torch.channels_last)

    def forward() -> object:
        with torch.inference_mode():
            return mnist.classifier.module(mnist.classifier.normalise(plain))

    def score(name: str) -> Callable[[], object]:
        return lambda: detectors[name].score(images[: DETECTORS[name].images], show_progress=False)

    cheap = [name for name, timed in DETECTORS.items() if not timed.rounds]
    seconds = seconds_in_turns({"plain": forward} | {name: score(name) for name in cheap}, rounds)
    for name in DETECTORS.keys() - cheap:
        seconds |= seconds_in_turns({name: score(name)}, DETECTORS[name].rounds)
    counts = {"plain": len(plain)} | {name: min(timed.images, len(images)) for name, timed in DETECTORS.items()}
    return {name: 1000 * median(times) / counts[name] for name, times in seconds.items()}


def _fit_all(mnist: TrainedMnist, *, quick: bool) -> dict[str, bf.Detector]:
    examples = bf.make_examples(mnist.classifier, mnist.images, attacks="deepfool")
    return {
        name: bf.fit(
            name,
            mnist.classifier,
            examples.take(range(min(timed.sources, len(examples)))),
            clean=mnist.learned if name == "defense-gan" else None,
            **timed.options,
            **(QUICK.get(name, {}) if quick else {}),
        )
        for name, timed in DETECTORS.items()
    }


def views(name: str, rounds: int, device: str = "cpu") -> Case:
    """Returns what scoring by views takes, counted in plain forward passes."""
    classifier, images = NETWORKS[VIEWS_NETWORK].classifier().to(device), NETWORKS[VIEWS_NETWORK].images()
    labels = classifier.logits(images).argmax(1).cpu()
    examples = bf.make_examples(classifier, images, labels, attacks={}, noise={"noisy": 0.0})
    # the drop of the margins needs no attacked images, and takes the passes of the margins
    detector = bf.fit("views", classifier, examples, views=(name,), features="drop", agreement=0.0)
    layout = torch.channels_last if device == "cpu" else torch.contiguous_format
    plain = images.to(device).contiguous(memory_format=layout)
    with torch.inference_mode():
        seconds = seconds_in_turns(
            {
                "plain": finished(lambda: classifier.module(classifier.normalise(plain)), device),
                "score": lambda: detector.score(images, show_progress=False),
            },
            rounds,
        )
    figures = {f"{call}_ms": 1000 * median(times) / len(images) for call, times in seconds.items()}
    figures["passes"] = median(a / b for a, b in zip(seconds["score"], seconds["plain"], strict=True))
    sentence = (
        f"scoring by `views`, {name}, {VIEWS_NETWORK}{on(device)}, batch {len(images)}: "
        "{plain_ms} → {score_ms} ms per image, in forward passes"
    )
    place, limit = ("detectors", VIEWS[name]) if device == "cpu" else ("gpu", None)
    return Case(f"{place}/views-{name}", sentence, figures, "passes", "number", limit)


def svm_fit(*, quick: bool) -> Case:
    """Returns the AUROC on held-out sources of the paper's SVM, fitted at the paper's scale."""
    fitted, tested = (60, 20) if quick else (FITTED, TESTED)
    table = synthetic_features(fitted + tested)
    number = np.array([int(source) for source in table.sources])
    fit, test = table.take(np.flatnonzero(number < fitted)), table.take(np.flatnonzero(number >= fitted))
    start = time.perf_counter()
    head, facts = fit_head(bf.MBF(**bf.MBF.presets["paper"]).head_options, fit)
    seconds = time.perf_counter() - start
    scores = head.score(test.features).numpy()
    figures = {
        "rows": float(len(fit)),
        "support_vectors": float(facts["support vectors"]),
        "fit_seconds": seconds,
        "auroc": float(auroc(ScoreSample(scores, test.adversarial, test.sources))[0]),
    }
    sentence = (
        f"AUROC of mbf's SVM fitted to {{rows}} rows of {LAYERS * ORDERS} features of GGD samples, {{fit_seconds}} s, "
        "{support_vectors} support vectors"
    )
    return Case("svm/fit", sentence, figures, "auroc", "number", 0.95, "at least")


def svm_score(threads: int) -> Case:
    """Returns the peak memory of a large scoring, counted in blocks of kernel values."""
    command = [sys.executable, "-m", "benchmarks.detectors", str(threads)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seconds, extra = map(float, printed.split())
    figures = {"seconds": seconds, "extra_mb": extra / 1e6, "blocks": extra / (8 * BLOCK)}
    sentence = (
        f"memory that scoring {SCORED} rows by {VECTORS} support vectors takes, {{extra_mb}} MB and {{seconds}} s, "
        "counted in blocks of kernel values"
    )
    return Case("svm/score", sentence, figures, "blocks", "number", 6.0)


def synthetic_features(sources: int) -> FeatureTable:
    """Returns MBF features of GGD samples whose shape differs between adversarial and other images."""
    random = np.random.default_rng(0)
    own = np.exp(SPREAD * random.standard_normal((sources, LAYERS)))
    features: list[Tensor] = []
    with bar(len(SHAPES) * LAYERS, "GGD samples") as advance:
        for shape in SHAPES.values():
            layers = []
            for layer in range(LAYERS):
                layers.append(_magnitudes(shape * own[:, layer], random))
                advance(1)
            features.append(torch.cat(layers, dim=1))
    return FeatureTable(
        torch.cat(features).double(),
        np.repeat([kind == "adversarial" for kind in SHAPES], sources),
        tuple(map(str, range(sources))) * len(SHAPES),
        tuple(kind for kind in SHAPES for _ in range(sources)),
    )


def _magnitudes(shapes: np.ndarray, random: np.random.Generator) -> Tensor:
    """|â_n| of samples of GGDs (rows, ORDERS): |x|^c has a gamma distribution."""
    size = (len(shapes), ENTRIES)
    samples = random.standard_gamma(1 / shapes[:, None], size) ** (1 / shapes[:, None]) * random.choice([-1, 1], size)
    return kernels.magnitudes(torch.from_numpy(samples).float(), ORDERS)


def score_once() -> tuple[float, int]:
    """Returns seconds of one scoring, and bytes at its peak beyond what was there before."""
    draws = torch.Generator().manual_seed(0)
    columns = LAYERS * ORDERS
    zeros, ones = torch.zeros(columns).double(), torch.ones(columns).double()
    vectors = torch.rand(VECTORS, columns, generator=draws).double()
    head = Svm(vectors, torch.randn(VECTORS, generator=draws).double(), 0.1, 0.01, zeros, ones)
    features = torch.rand(SCORED, columns, generator=draws).double()
    head.score(features[:2])
    reset_peak()
    before = peak()
    start = time.perf_counter()
    head.score(features)
    return time.perf_counter() - start, peak() - before


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    print(*score_once())
