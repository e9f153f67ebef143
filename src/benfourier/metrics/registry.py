"""Every metric of a ledger, each in one place: key, title, unit, direction and how it is computed."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from benfourier.metrics.bootstrap import Bootstrap, interval
from benfourier.metrics.intervals import clopper_pearson
from benfourier.metrics.ranking import accuracy, aupr, auroc, over_folds
from benfourier.metrics.scores import Bools, OutcomeScores, ScoreSample, TargetScores, above_threshold
from benfourier.store.records import Estimate
from benfourier.store.vocabulary import (
    BASELINE,
    CHANGES,
    CLEAN,
    CONFIDENT_SHARES,
    DEFAULT_RATE,
    MIN_ALARMS,
    MIN_SUCCESSES,
    MISCLASSIFIED,
    NOISY,
    RATES,
    ProtocolName,
)

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Estimate | None])
SAME_ATTACK = (ProtocolName.SAME_ATTACK,)


@dataclass(frozen=True)
class Metric(Generic[T]):
    """One metric."""

    key: str  # in ledgers
    title: str  # in tables
    compute: Callable[[T, Bootstrap], Estimate | None]  # None where there is too little data
    unit: Literal["%", "points"] = "%"  # of its numbers in tables
    better: Literal["higher", "lower"] = "higher"  # which direction is better for a detector
    shown: Collection[ProtocolName] = tuple(ProtocolName)  # protocols that it is computed and shown for
    note: str = ""  # what a reader of its table must know


CELL_METRICS: dict[str, Metric[TargetScores]] = {}
OUTCOME_METRICS: dict[str, Metric[OutcomeScores]] = {}


def _register(metrics: dict[str, Metric[T]], key: str, title: str, **fields: Any) -> Callable[[F], F]:
    """A decorator that adds a metric; `fields` are those of Metric that have a default."""

    def register(compute: F) -> F:
        metrics[key] = Metric(key, title, compute, **fields)
        return compute

    return register


cell_metric = partial(_register, CELL_METRICS)
outcome_metric = partial(_register, OUTCOME_METRICS)


def cell_metrics(target: TargetScores, bootstrap: Bootstrap, protocol: str) -> dict[str, Estimate]:
    """Returns the metrics of one attack by key; none if it succeeded too rarely."""
    return _compute(CELL_METRICS, target, bootstrap, protocol) if len(target) >= MIN_SUCCESSES else {}


def outcome_metrics(scores: OutcomeScores, bootstrap: Bootstrap, protocol: str) -> dict[str, Estimate]:
    """Returns the metrics over all attacks of an outcome by key; none if all succeeded too rarely."""
    enough = tuple(target for target in scores.targets if len(target) >= MIN_SUCCESSES)
    return _compute(OUTCOME_METRICS, replace(scores, targets=enough), bootstrap, protocol) if enough else {}


def allowed_rates(calibration: int) -> tuple[str, ...]:
    """Returns the rates of false alarms for which there are enough held-out clean images."""
    return tuple(name for name, rate in RATES.items() if calibration * rate >= MIN_ALARMS * (1 - 1e-9))


def rate_estimate(hits: Bools) -> Estimate:
    """Returns the share of hits, one row per source image, with its Clopper-Pearson interval."""
    count, number = int(hits.sum()), len(hits)
    return Estimate(count / number, *clopper_pearson(count, number))


@cell_metric("auroc", "AUROC")
def _auroc(
    target: TargetScores, bootstrap: Bootstrap, *, benign: Sequence[int] = (0, 1), rows: Sequence[int] | None = None
) -> Estimate:
    """AUROC of some sources (rows, by default all) against some kinds of benign images: 0 clean, 1 noisy."""
    rows = range(len(target)) if rows is None else rows
    kinds, names = [*benign, 2], tuple(target.ids[row] for row in rows)
    adversarial = np.repeat([kind == 2 for kind in kinds], len(rows))
    sample = ScoreSample(target.scores[np.ix_(kinds, rows)].reshape(-1), adversarial, names * len(kinds))
    return bootstrap.estimate(over_folds(auroc, np.tile(target.folds[list(rows)], len(kinds))), sample)


@cell_metric("accuracy", "Accuracy at posterior 0.5")
def _accuracy(target: TargetScores, bootstrap: Bootstrap) -> Estimate | None:
    if not target.calibrations:
        return None
    return bootstrap.estimate(accuracy, target.sample_of(target.posteriors()))


@cell_metric("aupr", "AUPR")
def _aupr(target: TargetScores, bootstrap: Bootstrap) -> Estimate:
    return bootstrap.estimate(over_folds(aupr, np.tile(target.folds, 3)), target.sample_of(target.scores))


@cell_metric(
    "auroc-gain",
    f"AUROC less that of {BASELINE}",
    unit="points",
    note="Paired: both see the same images in every draw. An interval without 0 tells them apart.",
)
def _auroc_gain(target: TargetScores, bootstrap: Bootstrap) -> Estimate | None:
    if target.baseline is None:
        return None
    area = over_folds(auroc, np.tile(target.folds, 3))
    return bootstrap.difference(area, target.sample_of(target.scores), target.sample_of(target.baseline))


for _place, _kind in enumerate((CLEAN, NOISY)):
    cell_metric(
        f"auroc-{_kind}",
        f"AUROC against {_kind} images alone",
        shown=SAME_ATTACK,
        note="AUROC itself takes clean and noisy images together. Below 50: such images score above adversarial ones "
        "more often than not.",
    )(partial(_auroc, benign=[_place]))


def _auroc_confident(target: TargetScores, bootstrap: Bootstrap, *, share: float) -> Estimate | None:
    """AUROC of the sources whose clean image the network is most confident about, by the baseline's score."""
    uncertainty = (target.scores if target.baseline is None else target.baseline)[0]
    rows = np.argsort(uncertainty, kind="stable")[: round(share * len(target))]
    return None if len(rows) < MIN_SUCCESSES else _auroc(target, bootstrap, rows=rows.tolist())


for _name, _share in CONFIDENT_SHARES.items():
    cell_metric(
        f"auroc-sure@{_name}",
        f"AUROC of the {_share:.0%} of sources that the network is most confident about",
        shown=SAME_ATTACK,
        note=f"Sources are ranked by {BASELINE} of the clean image; the fits are to all sources.",
    )(partial(_auroc_confident, share=_share))


def _has_threshold(scores: TargetScores | OutcomeScores, rate: str) -> bool:
    return any(rate in calibration.thresholds for calibration in scores.calibrations.values())


def _share_above(target: TargetScores, _: Bootstrap, *, rate: str, kind: int) -> Estimate | None:
    """Share of one kind of images above the threshold: 0 clean, 1 noisy, 2 adversarial."""
    return rate_estimate(target.above_threshold(rate)[kind]) if _has_threshold(target, rate) else None


for _rate in RATES:
    cell_metric(
        f"tpr@{_rate}",
        f"Adversarial images caught at {_rate[:-1]} % false alarms",
        note="A rate needs 10/rate held-out clean images to set its threshold; – stands where there were fewer.",
    )(partial(_share_above, rate=_rate, kind=2))
for _place, _kind in enumerate((CLEAN, NOISY)):
    cell_metric(
        f"fpr-{_kind}@{DEFAULT_RATE}",
        f"{_kind.capitalize()} images rejected at {DEFAULT_RATE[:-1]} % false alarms",
        better="lower",
    )(partial(_share_above, rate=DEFAULT_RATE, kind=_place))


@outcome_metric("worst-auroc", "Worst AUROC", note="Worst AUROC: the lowest AUROC over the attacks.")
def worst_auroc(scores: OutcomeScores, bootstrap: Bootstrap) -> Estimate:
    """Returns the least AUROC over attacks; every draw of source images is the same for all of them."""
    names = sorted({(target.source, name) for target in scores.targets for name in target.ids})
    places = {name: place for place, name in enumerate(names)}
    metrics = [over_folds(auroc, np.tile(target.folds, 3)) for target in scores.targets]
    samples = [target.sample_of(target.scores) for target in scores.targets]
    columns = [np.tile([places[target.source, name] for name in target.ids], 3) for target in scores.targets]
    value = min(float(metric(sample, None)[0]) for metric, sample in zip(metrics, samples, strict=True))
    values = [
        np.min([m(sample, weights[:, c]) for m, sample, c in zip(metrics, samples, columns, strict=True)], axis=0)
        for weights in bootstrap.resamples(tuple("\0".join(name) for name in names))
    ]
    return interval(value, np.concatenate(values))


def caught_under_all(scores: OutcomeScores, _: Bootstrap, *, rate: str) -> Estimate | None:
    """Returns the share of source images of which every successful attack is caught; None if there are too few.

    Only images that all attacks were tried on count: none passes for safe because an expensive attack left it out.
    """
    if not _has_threshold(scores, rate):
        return None
    tried: dict[str, frozenset[str]] = {}
    for target in scores.targets:
        tried[target.source] = target.tried & tried.get(target.source, target.tried)
    caught: dict[tuple[str, str], bool] = {}
    for target in scores.targets:
        for name, hit in zip(target.ids, target.above_threshold(rate)[2], strict=True):
            if name in tried[target.source]:
                caught[target.source, name] = caught.get((target.source, name), True) and bool(hit)
    return rate_estimate(np.array(list(caught.values()))) if len(caught) >= MIN_SUCCESSES else None


for _rate in RATES:
    outcome_metric(
        f"mead@{_rate}",
        f"MEAD at {_rate[:-1]} %",
        note="MEAD: an image counts as caught only if every successful attack on it is; at that rate of false alarms.",
    )(partial(caught_under_all, rate=_rate))


@outcome_metric(f"fpr-clean@{DEFAULT_RATE}", f"Clean images rejected at {DEFAULT_RATE[:-1]} %", better="lower")
def _clean_alarms(scores: OutcomeScores, _: Bootstrap) -> Estimate | None:
    """False alarms on clean images, each source once."""
    if not _has_threshold(scores, DEFAULT_RATE):
        return None
    alarms: dict[tuple[str, str], bool] = {}
    for target in scores.targets:
        hits = target.above_threshold(DEFAULT_RATE)[0]
        alarms |= {(target.source, name): bool(hit) for name, hit in zip(target.ids, hits, strict=True)}
    return rate_estimate(np.array(list(alarms.values())))


def _alarms(scores: OutcomeScores, _: Bootstrap, *, kind: str) -> Estimate | None:
    """Share of some clean images that the detector rejects."""
    if not _has_threshold(scores, DEFAULT_RATE) or kind not in scores.clean or not len(scores.clean[kind].scores):
        return None
    return rate_estimate(above_threshold(*scores.clean[kind], scores.calibrations, DEFAULT_RATE))


for _kind, _title in {MISCLASSIFIED: "Misclassified images", **CHANGES}.items():
    outcome_metric(f"fpr-{_kind}@{DEFAULT_RATE}", f"{_title} rejected at {DEFAULT_RATE[:-1]} %", better="lower")(
        partial(_alarms, kind=_kind)
    )


def _compute(metrics: Mapping[str, Metric[T]], scores: T, bootstrap: Bootstrap, protocol: str) -> dict[str, Estimate]:
    """The metrics that are shown for a protocol and exist."""
    shown = (metric for metric in metrics.values() if protocol in metric.shown)
    estimates = {metric.key: metric.compute(scores, bootstrap) for metric in shown}
    return {key: estimate for key, estimate in estimates.items() if estimate is not None}
