"""Outcomes of trials: a detector is fitted as a trial says, and scored on images that it has not seen."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benfourier.data.changes import change
from benfourier.data.examples import Examples
from benfourier.data.images import content_ids
from benfourier.detectors.catalogue import make_method
from benfourier.detectors.detector import Detector
from benfourier.detectors.fit import fit
from benfourier.detectors.method import FitData
from benfourier.errors import InputError
from benfourier.evaluation.evaluation_data import FOLDS, EvaluationData, every_twin, one_twin
from benfourier.evaluation.plan import DetectorPlan
from benfourier.evaluation.trials import Target, Task, Trial, versions
from benfourier.metrics.bootstrap import Bootstrap
from benfourier.metrics.ranking import roc
from benfourier.metrics.registry import allowed_rates, cell_metrics, outcome_metrics
from benfourier.metrics.scores import Floats, FoldCalibration, FoldedScores, OutcomeScores, TargetScores
from benfourier.metrics.thresholds import threshold_at
from benfourier.store.artifact import digest_of
from benfourier.store.records import Cell, Inputs, Outcome, Scores
from benfourier.store.vocabulary import (
    BASELINE,
    CHANGES,
    CLEAN,
    MIN_SUCCESSES,
    MISCLASSIFIED,
    NOISY,
    RATES,
    ProtocolName,
)

Place = tuple[str, int, str]  # source, index of the example set, kind of images


@dataclass
class FoldScores:
    """Scores of the detector of one fold."""

    fit_sources: int  # source images that it was fitted to
    calibration: FoldCalibration
    scores: dict[Place, dict[str, tuple[float, float]]]  # by image, of the detector and of the baseline
    misclassified: dict[int, float]  # scores of misclassified clean images, by their place
    changed: dict[str, list[float]]  # scores of the clean source images, by the change that was made to them
    seconds: dict[str, float]  # of fit and score


def fit_examples(data: EvaluationData, trial: Trial, fold: int) -> Examples:
    """Returns what the detector of one fold is fitted to: sources of the other folds."""
    entry = data.plan.detector(trial.detector)
    twins = one_twin if entry.twins == "one" else every_twin
    examples = twins(data.joined(trial.source, trial.fitted))
    others = [other for other in range(FOLDS) if other != fold]
    return examples.take(data.rows(trial.source, examples, entry.sources, others), "fitted to")


def target_images(
    data: EvaluationData, trial: Trial, targets: Iterable[Target], fold: int
) -> dict[Place, tuple[tuple[str, ...], Tensor]]:
    """Returns source ids and images that the detector of one fold is tested on: its fold, or all of another source."""
    sets: dict[tuple[str, int], list[str]] = {}
    for target in targets:
        sets.setdefault((target.source, data.set_index(target.source, target.attack)), []).append(target.attack)
    most, tested = data.plan.detector(trial.detector).sources, {}
    for (source, index), attacks in sets.items():
        examples = data.example_sets[source][index]
        rows = data.rows(source, examples, most, [fold] if source == trial.source else None)
        succeeded = {attack: [row for row in rows if examples.success[attack][row]] for attack in attacks}
        benign = sorted({row for each in succeeded.values() for row in each})
        kinds = {CLEAN: (examples.clean, benign), NOISY: (examples.noisy[NOISY], benign)}
        kinds |= {attack: (examples.adversarial[attack], succeeded[attack]) for attack in attacks}
        for kind, (images, chosen) in kinds.items():
            tested[source, index, kind] = tuple(examples.ids[row] for row in chosen), images[chosen]
    return tested


def score_fold(data: EvaluationData, trial: Trial, targets: Sequence[Target], fold: int, *, alone: bool) -> FoldScores:
    """Returns the scores of the detector of one fold; if it stands alone, it scores all misclassified images.

    Fits to the default mixture also score clean images with changes.
    """
    entry, start = data.plan.detector(trial.detector), time.perf_counter()
    examples = fit_examples(data, trial, fold)
    detector = fit_detector(data, entry, examples)
    between = time.perf_counter()
    clean, wrong = (each.images[: entry.calibration] for each in (data.calibration, data.misclassified))
    rates = allowed_rates(len(clean))
    held_out = _scores(data, detector, clean) if rates else np.empty(0)
    assert detector.sigmoid is not None  # trials fit to adversarial images
    thresholds = {rate: threshold_at(RATES[rate], held_out).value for rate in rates}
    tested = target_images(data, trial, targets, fold)
    check_apart(examples, detector.seen, data.held_out_names, tested.values())
    ids = [name for names, _ in tested.values() for name in names]
    images = torch.cat([each for _, each in tested.values()])
    pairs = zip(_scores(data, detector, images, ids).tolist(), _baseline_scores(data, images, ids), strict=True)
    places = [place for place in range(len(wrong)) if alone or place % FOLDS == fold]
    mixture = trial.protocol in (ProtocolName.MIXTURE, ProtocolName.UNSEEN)
    return FoldScores(
        fit_sources=int(detector.summary["sources"]),
        calibration=FoldCalibration(detector.sigmoid.posterior, thresholds),
        scores={place: {name: next(pairs) for name in names} for place, (names, _) in tested.items()},
        misclassified=dict(zip(places, _scores(data, detector, wrong[places]).tolist(), strict=True)),
        changed={name: _scores_of_change(data, detector, name, tested) for name in CHANGES if mixture},
        seconds={"fit": between - start, "score": time.perf_counter() - between},
    )


def check_apart(
    fitted: Examples, seen: frozenset[str], held_out: frozenset[str], tested: Iterable[tuple[Iterable[str], Tensor]]
) -> None:
    """Raises InputError if images of the fit, of the tests and of the threshold are not apart.

    Content ids are of all benign images in the fit (`seen`), and of the clean images that set thresholds and the
    misclassified ones (`held_out`); what is tested are source ids with their images.
    """
    known = seen | {name for images in fitted.adversarial.values() for name in content_ids(images)}
    leaks = [(known & held_out, "images that set thresholds or are misclassified were fitted to")]
    for ids, images in tested:
        names = set(content_ids(images))
        leaks += [
            (frozenset(fitted.ids).intersection(ids), "source images that are tested were fitted to"),
            (known & names, "images that are tested were fitted to"),
            (held_out & names, "images that are tested set thresholds or are misclassified"),
        ]
    for shared, problem in leaks:
        if shared:
            example = f"{len(shared)} {problem} too, the first is {min(shared)!r}"
            raise InputError(f"{example}; every figure would be too good: split the images by source")


def fit_detector(data: EvaluationData, entry: DetectorPlan, examples: Examples) -> Detector:
    """Returns a detector of the plan, fitted to examples."""
    clean = data.extra_clean if entry.takes_clean else None
    cache, folder = data.feature_cache, data.work_dir
    return fit(
        entry.method,
        data.classifier,
        examples,
        clean=clean,
        cache=cache,
        work_dir=folder,
        supplied=data.supplied(entry),
        show_progress=False,
    )


def _scores(data: EvaluationData, detector: Detector, images: Tensor, ids: Sequence[str] | None = None) -> Floats:
    if not len(images):
        return np.empty(0)
    names = [f"apart-{row}" for row in range(len(images))] if ids is None else ids
    return detector.score(images, ids=names, cache=data.feature_cache)


def _scores_of_change(data: EvaluationData, detector: Detector, name: str, tested: Mapping[Place, Any]) -> list[float]:
    """Scores of the clean images that are tested, each once, with a change that no attacker made."""
    clean = {
        identity: image
        for (source, _, kind), (ids, images) in tested.items()
        if kind == CLEAN
        for identity, image in zip(((source, each) for each in ids), images, strict=True)
    }
    changed = change(name, torch.stack(list(clean.values())), data.classifier.bounds)
    ids = [f"{source}/{each}" for source, each in clean]
    scores: list[float] = detector.score(changed, ids=ids, show_progress=False).tolist()  # beside the cache's images
    return scores


def _baseline_scores(data: EvaluationData, images: Tensor, ids: Sequence[str]) -> list[float]:
    """Scores of the baseline: its one feature, which no fit changes."""
    extractor = make_method(BASELINE).fit_extractor(data.classifier, FitData(data.example_sets[data.source][0]))
    scores: list[float] = data.feature_cache.features(extractor, images, ids)[:, 0].tolist()
    return scores


def run_task(data: EvaluationData, task: Task) -> tuple[Outcome | Scores, ...]:
    """Returns the outcome of every trial of a task, each after the scores of its cells."""
    first, folds = task[0], {trial: trial.folds(data) for trial in task}
    examples = data.joined(first.source, first.fitted)
    rows = data.rows(first.source, examples, data.plan.detector(first.detector).sources)
    count = int(torch.stack([mask[rows] for mask in examples.success.values()]).any(0).sum())  # those of all folds
    if count < MIN_SUCCESSES:
        return tuple(_outcome_without_fit(data, trial, count) for trial in task)
    scores: dict[int, FoldScores] = {}
    for fold in sorted({fold for each in folds.values() for fold in each}):
        targets = dict.fromkeys(target for trial in task if fold in folds[trial] for target in trial.targets)
        alone = fold == 0 and any(len(each) == 1 for each in folds.values())
        scores[fold] = score_fold(data, first, list(targets), fold, alone=alone)
    cells: dict[Any, Cell] = {}  # protocols share cells; an interval takes a second
    outcomes = (_outcome(data, trial, {fold: scores[fold] for fold in folds[trial]}, cells) for trial in task)
    return tuple(record for records in outcomes for record in records)


def inputs_record(data: EvaluationData) -> Inputs:
    """Returns what all outcomes of a run have in common."""
    content = json.dumps([data.digests, versions()], sort_keys=True)
    return Inputs(digest_of(("inputs", content)), data.digests, versions())


def _outcome(
    data: EvaluationData, trial: Trial, folds: Mapping[int, FoldScores], cells: dict[Any, Cell]
) -> tuple[Outcome | Scores, ...]:
    """The scores of all cells, then the outcome: what has its outcome in the ledger is complete."""
    calibrations = {fold: scores.calibration for fold, scores in folds.items()}
    targets = [_target_scores(data, trial, target, folds) for target in trial.targets]
    places = [(target, tuple(folds), trial.protocol == ProtocolName.SAME_ATTACK) for target in trial.targets]
    for place, target in zip(places, targets, strict=True):
        cells[place] = cells.get(place) or _cell(target, trial.protocol, data.plan.seed)
    overall = OutcomeScores(tuple(targets), _clean_scores(folds), calibrations)
    first = next(iter(folds.values()))
    outcome = replace(
        _outcome_without_fit(data, trial, first.fit_sources),
        folds=len(folds),
        cells=tuple(cells[place] for place in places),
        overall=outcome_metrics(overall, Bootstrap(data.plan.seed), trial.protocol),
        thresholds={
            rate: float(np.mean([each.thresholds[rate] for each in calibrations.values()]))
            for rate in first.calibration.thresholds
        },
        seconds={name: round(sum(scores.seconds[name] for scores in folds.values()), 3) for name in first.seconds},
    )
    return (*(_scores_record(outcome.key, target) for target in targets if len(target) >= MIN_SUCCESSES), outcome)


def _outcome_without_fit(data: EvaluationData, trial: Trial, count: int) -> Outcome:
    """The outcome of a trial whose attack succeeded too rarely to fit anything to it."""
    entry = data.plan.detector(trial.detector)
    note = f"too few: {count} successes to fit to, {MIN_SUCCESSES} are needed"
    return Outcome(
        key=trial.key(data),
        inputs=inputs_record(data).key,
        protocol=trial.protocol,
        detector=entry.label,
        method=entry.name,
        options=entry.options,
        fitted=trial.fitted,
        source=trial.source,
        fit_sources=count,
        folds=0,
        cells=tuple(Cell(target.attack, target.source, 0, note=note) for target in trial.targets),
        overall={},
        thresholds={},
        calibration=min(entry.calibration, len(data.calibration)),
        seconds={},
        seed=data.plan.seed,
        reduced=entry.reduced,
    )


def _target_scores(data: EvaluationData, trial: Trial, target: Target, folds: Mapping[int, FoldScores]) -> TargetScores:
    """The scores of one attack, joined from all folds in their order."""
    index = data.set_index(target.source, target.attack)
    kinds = [(target.source, index, kind) for kind in (CLEAN, NOISY, target.attack)]
    rows = [(fold, name) for fold, scores in folds.items() for name in scores.scores[kinds[-1]]]
    values = [[folds[fold].scores[kind][name] for fold, name in rows] for kind in kinds]
    own, baseline = np.array(values, np.float64).reshape(3, len(rows), 2).transpose(2, 0, 1).copy()  # (3, N) each
    entry = data.plan.detector(trial.detector)
    is_baseline = entry.name == BASELINE and entry.method.head_options.kind == "plain"
    return TargetScores(
        source=target.source,
        attack=target.attack,
        ids=tuple(name for _, name in rows),
        folds=np.array([fold for fold, _ in rows], np.intp),
        scores=own,
        baseline=None if is_baseline else baseline,
        tried=frozenset(data.example_sets[target.source][index].ids),
        calibrations={fold: scores.calibration for fold, scores in folds.items()},
    )


def _cell(target: TargetScores, protocol: ProtocolName, seed: int) -> Cell:
    """The cell of one attack; without metrics if it succeeded too rarely."""
    count = len(target)
    if count < MIN_SUCCESSES:
        note = f"too few: {count} successes, {MIN_SUCCESSES} are needed"
        return Cell(target.attack, target.source, count, note=note)
    # only the tables of one attack have ROC curves; 159 numbers in every cell would double the ledger
    curve = roc(target.scores, target.folds).astype(np.float32) if protocol == ProtocolName.SAME_ATTACK else None
    return Cell(target.attack, target.source, count, cell_metrics(target, Bootstrap(seed), protocol), curve)


def _scores_record(outcome: str, target: TargetScores) -> Scores:
    key = digest_of(("scores", outcome, target.source, target.attack))
    folds, kinds = tuple(target.folds.tolist()), target.scores.astype(np.float32)  # clean, noisy, adversarial
    return Scores(key, outcome, target.source, target.attack, target.ids, folds, *kinds)


def _clean_scores(folds: Mapping[int, FoldScores]) -> dict[str, FoldedScores]:
    """Scores of clean images beside those of the cells, each image from one fold."""
    wrong = sorted(
        (place, score, fold)
        for fold, each in folds.items()
        for place, score in each.misclassified.items()
        if len(folds) == 1 or place % len(folds) == fold
    )
    kinds = {MISCLASSIFIED: [(score, fold) for _, score, fold in wrong]}
    for name in next(iter(folds.values())).changed:
        kinds[name] = [(score, fold) for fold, each in folds.items() for score in each.changed[name]]
    return {
        kind: FoldedScores(np.array([score for score, _ in pairs]), np.array([fold for _, fold in pairs], np.intp))
        for kind, pairs in kinds.items()
    }
