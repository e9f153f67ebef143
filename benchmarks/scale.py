"""The SVM at the scale of the paper's CIFAR-10: 19 620 rows of 528 features fitted, 10 000 scored by 20 000 vectors.

`python -m benchmarks.scale THREADS` prints, for the scoring, the seconds and the bytes it takes at its peak beyond
its inputs and its answer; it runs in a process of its own.
"""

import subprocess
import sys
import time

import numpy as np
import torch
from torch import Tensor

from benchmarks.memory import forget_peak, peak
from benchmarks.results import Case
from benfourier import kernels
from benfourier.detectors.catalogue import method
from benfourier.detectors.classifiers import train
from benfourier.detectors.rows import Rows
from benfourier.detectors.svm import BLOCK, Svm
from benfourier.evaluation.metrics import auroc
from benfourier.evaluation.sample import Sample
from benfourier.progress import bar

SOURCES, TESTED = 6540, 500
LAYERS, ORDERS, ENTRIES = 33, 16, 256
SHAPES = {"clean": 1.6, "noisy": 1.6, "adversarial": 1.88}  # of the GGD whose samples stand for responses
SPREAD = 0.2  # relative deviation of a source's own shape; twins share it
VECTORS, SCORED = 20_000, 10_000


def measure_fit() -> Case:
    """Returns how long the paper's machine takes to fit, and the AUROC on held-out sources."""
    rows = synthetic(SOURCES + TESTED)
    number = np.array([int(source) for source in rows.sources])
    fitted, tested = rows.take(np.flatnonzero(number < SOURCES)), rows.take(np.flatnonzero(number >= SOURCES))
    start = time.perf_counter()
    trained = train(method("mbf", preset="paper"), fitted)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    scores = trained.classifier.score(tested.numbers).numpy()
    figures = {
        "rows": float(len(fitted)),
        "features": float(fitted.numbers.shape[1]),
        "support_vectors": float(trained.facts["support vectors"]),
        "fit_seconds": seconds,
        "score_ms_per_row": 1000 * (time.perf_counter() - start) / len(tested),
        "auroc": float(auroc(Sample(scores, tested.adversarial, tested.sources))[0]),
    }
    return Case("svm/fit", figures, "auroc", 0.95, "at least")


def measure_score(threads: int) -> Case:
    """Returns seconds and peak memory of the scoring; the peak is counted in blocks of kernel values."""
    command = [sys.executable, "-m", "benchmarks.scale", str(threads)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seconds, extra = map(float, printed.split())
    figures = {"seconds": seconds, "extra_mb": extra / 1e6, "blocks": extra / (8 * BLOCK)}
    return Case(f"svm/score {SCORED}x{VECTORS}", figures, "blocks", 6.0, "at most")


def synthetic(sources: int) -> Rows:
    """Returns features of GGD samples: three twins of every source, whose shapes overlap with other sources'."""
    random = np.random.default_rng(0)
    own = np.exp(SPREAD * random.standard_normal((sources, LAYERS)))
    numbers: list[Tensor] = []
    with bar(len(SHAPES) * LAYERS, "GGD samples") as advance:
        for shape in SHAPES.values():
            layers = []
            for layer in range(LAYERS):
                layers.append(_magnitudes(shape * own[:, layer], random))
                advance(1)
            numbers.append(torch.cat(layers, dim=1))
    names = tuple(str(row) for row in range(sources))
    return Rows(
        torch.cat(numbers).double(),
        np.repeat([kind == "adversarial" for kind in SHAPES], sources),
        names * len(SHAPES),
        tuple(kind for kind in SHAPES for _ in range(sources)),
    )


def _magnitudes(shapes: np.ndarray, random: np.random.Generator) -> Tensor:
    """|â_n| of samples of GGDs (rows, ORDERS): |x|^c has a gamma distribution."""
    size = (len(shapes), ENTRIES)
    samples = random.standard_gamma(1 / shapes[:, None], size) ** (1 / shapes[:, None]) * random.choice([-1, 1], size)
    return kernels.magnitudes(torch.from_numpy(samples).float(), ORDERS)


def score_once() -> tuple[float, int]:
    """Returns seconds and bytes at the peak of one scoring, beyond what was there before."""
    draws = torch.Generator().manual_seed(0)
    columns = LAYERS * ORDERS
    zeros, ones = torch.zeros(columns).double(), torch.ones(columns).double()
    vectors = torch.rand(VECTORS, columns, generator=draws).double()
    machine = Svm(vectors, torch.randn(VECTORS, generator=draws).double(), 0.1, 0.01, zeros, ones)
    numbers = torch.rand(SCORED, columns, generator=draws).double()
    machine.score(numbers[:2])
    forget_peak()
    before = peak()
    start = time.perf_counter()
    machine.score(numbers)
    return time.perf_counter() - start, peak() - before


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    print(*score_once())
