"""Time that each detector adds to the forward pass of LID's MNIST network, in one run."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

import benfourier as bf
from benchmarks.held import Held, held_out_mnist
from benchmarks.results import Case
from benchmarks.timing import take_turns
from benfourier.data.examples import Examples
from benfourier.data.labelled import Labelled
from benfourier.detectors.detector import Detector

SOURCES, BATCH = 200, 100


@dataclass(frozen=True)
class Timed:
    """How a detector is timed: its options, the images, the rounds (0: as many as asked for), sources of the fit."""

    options: dict[str, Any]
    images: int = BATCH
    rounds: int = 0
    sources: int = SOURCES


# The length of a GAN's training does not change what scoring takes; the steps of c1c2 do, and are its authors'.
TIMED = {
    "mbf": Timed({}),
    "max-softmax": Timed({}),
    "mahalanobis": Timed({}),
    "lid": Timed({}),
    "kd-bu": Timed({}),
    "c1c2": Timed({"sigma": 0.01, "step_t": 0.5, "step_u": 1.0}, images=10, rounds=1, sources=20),
    "defense-gan": Timed({"iterations": 5}, images=2, rounds=1, sources=20),
}


def measure(name: str, limit: float, rounds: int) -> Case:
    """Returns milliseconds per image, and what a detector adds, counted in what mbf adds.

    Beyond max-softmax, which listens to nothing but the logits: its pass is the one that detectors share, and quicker
    than the plain one, which no detector may claim for itself.
    """
    times = _times(rounds)
    figures = {
        "plain_ms_per_image": times["plain"],
        "shared_ms_per_image": times["max-softmax"],
        "score_ms_per_image": times[name],
        "images": float(TIMED[name].images),
        "mbf_added_ms": times["mbf"] - times["max-softmax"],
        "added_ms": times[name] - times["max-softmax"],
    }
    figures["beside_mbf"] = figures["added_ms"] / figures["mbf_added_ms"]
    return Case(f"detectors/{name}", figures, "beside_mbf", limit, "at least")


@cache
def _times(rounds: int) -> dict[str, float]:
    """Milliseconds per image of the plain forward pass and of every detector; the quick ones take turns."""
    held = held_out_mnist(3, 0.1).first(SOURCES + SOURCES // 10)
    fitted = _fitted(held)
    lying = held.images[:BATCH].contiguous(memory_format=torch.channels_last)
    calls: dict[str, Callable[[], object]] = {"plain": lambda: _plain(held.subject, lying)}
    quick = [name for name in fitted if not TIMED[name].rounds]
    calls |= {name: _scoring(fitted[name], held.images[: TIMED[name].images]) for name in quick}
    seconds = take_turns(calls, rounds)
    for name in fitted.keys() - quick:
        seconds |= take_turns({name: _scoring(fitted[name], held.images[: TIMED[name].images])}, TIMED[name].rounds)
    return {name: 1000 * value / (BATCH if name == "plain" else TIMED[name].images) for name, value in seconds.items()}


def _fitted(held: Held) -> dict[str, Detector]:
    examples: Examples = bf.make_examples(held.subject, held.images, held.labels, ids=held.ids, attack="deepfool")
    clean = Labelled(held.learned, held.learned_labels)

    def fit(name: str, timed: Timed) -> Detector:
        some = examples.take(range(timed.sources))
        return bf.fit(name, held.subject, some, clean=clean if name == "defense-gan" else None, **timed.options)

    return {name: fit(name, timed) for name, timed in TIMED.items()}


def _plain(subject: bf.Subject, images: Tensor) -> Tensor:
    with torch.inference_mode():
        return subject.module(subject.normalise(images))  # type: ignore[no-any-return]


def _scoring(detector: Detector, images: Tensor) -> Callable[[], object]:
    return lambda: detector.score(images, show_progress=False)
