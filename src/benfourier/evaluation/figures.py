"""Figures of scores: what a cell and an outcome of the ledger hold, each with its interval."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benfourier.detectors.calibration import Sigmoid
from benfourier.evaluation.intervals import DRAWS, difference, drawings, estimate, interval
from benfourier.evaluation.metrics import accuracy, aupr, auroc, over_folds
from benfourier.evaluation.sample import Bools, Floats, Sample
from benfourier.store.records import Cell, Estimate, Scores
from benfourier.theory.rates import clopper_pearson

FEW = 30  # successes; a cell with fewer says too little
RATES: Mapping[str, float] = {"5%": 0.05, "1%": 0.01, "0.1%": 0.001}
ENOUGH = 10  # false alarms to expect among the calibration images, so that a rate means something
USUAL = "5%"


@dataclass(frozen=True)
class Judge:
    """How one machine's scores are read.

    Args:
        sigmoid: from scores to posteriors.
        thresholds: by rate of false alarms.
    """

    sigmoid: Sigmoid
    thresholds: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Judged:
    """Scores of the sources that one attack succeeded on.

    Args:
        source: label of the data.
        attack: label.
        ids: source images.
        folds: which machine scored each, (N,).
        scores: (3, N): of the clean, noisy and attacked images.
        trivial: the same of the trivial detector; None if this is it.
        tried: source images that the attack was tried on.
    """

    source: str
    attack: str
    ids: tuple[str, ...]
    folds: NDArray[np.intp]
    scores: Floats
    trivial: Floats | None
    tried: frozenset[str]

    def __len__(self) -> int:
        return len(self.ids)

    def sample(self, scores: Floats) -> Sample:
        """Returns scores (3, N) as one sample."""
        return Sample(scores.reshape(-1), np.repeat([False, False, True], len(self)), self.ids * 3)


def allowed_rates(calibration: int) -> tuple[str, ...]:
    """Returns the rates of false alarms for which there are enough held-out clean images."""
    return tuple(name for name, rate in RATES.items() if calibration * rate >= ENOUGH * (1 - 1e-9))


def cell_of(judged: Judged, judges: Mapping[int, Judge], seed: int) -> Cell:
    """Returns the cell of one attack; without metrics if it succeeded too rarely."""
    count = len(judged)
    if count < FEW:
        return Cell(judged.attack, judged.source, count, note=f"too few: {count} successes, {FEW} are needed")
    sample, folds = judged.sample(judged.scores), np.tile(judged.folds, 3)
    area = over_folds(auroc, folds)
    metrics = {
        "auroc": estimate(area, sample, seed=seed),
        "accuracy": estimate(accuracy(0.5), judged.sample(_posteriors(judged, judges)), seed=seed),
        "aupr": estimate(over_folds(aupr, folds), sample, seed=seed),
    }
    if judged.trivial is not None:
        metrics["over-trivial"] = difference(area, sample, judged.sample(judged.trivial), seed=seed)
    for rate in next(iter(judges.values())).thresholds:
        caught = alarms(judged.scores, judged.folds, judges, rate)
        metrics[f"tpr@{rate}"] = share(caught[2])
        if rate == USUAL:
            metrics[f"fpr-clean@{rate}"], metrics[f"fpr-noisy@{rate}"] = share(caught[0]), share(caught[1])
    kept = (row.astype(np.float32) for row in judged.scores)
    return Cell(
        judged.attack,
        judged.source,
        count,
        metrics,
        Scores(judged.ids, tuple(int(fold) for fold in judged.folds), *kept),
    )


def overall_of(
    cells: Sequence[Judged], wrong: tuple[Floats, NDArray[np.intp]], judges: Mapping[int, Judge], seed: int
) -> dict[str, Estimate]:
    """Returns figures over all attacks of an outcome.

    Args:
        cells: one per attack; those with too few successes are left out.
        wrong: scores of clean images that the network gets wrong, and which machine each is from.
        judges: by fold.
        seed: of the intervals.
    """
    counted = [cell for cell in cells if len(cell) >= FEW]
    found: dict[str, Estimate] = {}
    if not counted:
        return found
    found["worst-auroc"] = worst(counted, seed)
    for rate in next(iter(judges.values())).thresholds:
        if (caught := mead(counted, judges, rate)) is not None:
            found[f"mead@{rate}"] = caught
        if rate == USUAL:
            found[f"fpr-clean@{rate}"] = _clean(counted, judges, rate)
            if len(wrong[0]):
                found[f"fpr-misclassified@{rate}"] = share(alarms(wrong[0], wrong[1], judges, rate))
    return found


def alarms(scores: Floats, folds: NDArray[np.intp], judges: Mapping[int, Judge], rate: str) -> Bools:
    """Returns which scores (..., N) are above the threshold of their machine."""
    limits = np.array([judges[int(fold)].thresholds[rate] for fold in folds])
    found: Bools = scores > limits
    return found


def share(hits: Bools) -> Estimate:
    """Returns the share of hits among sources, one row each, with its Clopper-Pearson interval."""
    count, number = int(hits.sum()), len(hits)
    return Estimate(count / number, *clopper_pearson(count, number))


def mead(cells: Sequence[Judged], judges: Mapping[int, Judge], rate: str) -> Estimate | None:
    """Returns the share of source images of which every successful attack is caught; None if there are too few.

    Only images that all attacks were tried on count: none passes for safe because a dear attack left it out.
    """
    tried = {
        source: frozenset.intersection(*(cell.tried for cell in cells if cell.source == source))
        for source in {cell.source for cell in cells}
    }
    safe: dict[tuple[str, str], bool] = {}
    for cell in cells:
        caught = alarms(cell.scores[2], cell.folds, judges, rate)
        for name, hit in zip(cell.ids, caught, strict=True):
            if name in tried[cell.source]:
                safe[cell.source, name] = safe.get((cell.source, name), True) and bool(hit)
    return share(np.array(list(safe.values()))) if len(safe) >= FEW else None


def worst(cells: Sequence[Judged], seed: int, draws: int = DRAWS) -> Estimate:
    """Returns the least AUROC over attacks; every draw of source images is the same for all of them."""
    names = sorted({(cell.source, name) for cell in cells for name in cell.ids})
    places = {name: place for place, name in enumerate(names)}
    metrics = [over_folds(auroc, np.tile(cell.folds, 3)) for cell in cells]
    samples = [cell.sample(cell.scores) for cell in cells]
    columns = [np.tile([places[cell.source, name] for name in cell.ids], 3) for cell in cells]
    plain = min(float(metric(sample, None)[0]) for metric, sample in zip(metrics, samples, strict=True))
    drawn = [
        np.min([m(sample, weights[:, c]) for m, sample, c in zip(metrics, samples, columns, strict=True)], axis=0)
        for weights in drawings(tuple("\0".join(name) for name in names), seed, draws)
    ]
    return interval(plain, np.concatenate(drawn))


def _clean(cells: Sequence[Judged], judges: Mapping[int, Judge], rate: str) -> Estimate:
    """False alarms on clean images, each source once."""
    found: dict[tuple[str, str], bool] = {}
    for cell in cells:
        hits = alarms(cell.scores[0], cell.folds, judges, rate)
        found |= {(cell.source, name): bool(hit) for name, hit in zip(cell.ids, hits, strict=True)}
    return share(np.array(list(found.values())))


def _posteriors(judged: Judged, judges: Mapping[int, Judge]) -> Floats:
    """Posteriors (3, N), each by its machine."""
    found = np.empty_like(judged.scores)
    for fold in np.unique(judged.folds):
        mine = judged.folds == fold
        found[:, mine] = judges[int(fold)].sigmoid.posterior(judged.scores[:, mine])
    return found
