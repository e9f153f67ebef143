"""One trial: a detector fitted once, or once per fold, and scored on images of sources that it has not seen."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.data.examples import Examples
from benfourier.data.labelled import Labelled
from benfourier.detectors.detector import Detector, numbers_of
from benfourier.detectors.fitting import fit
from benfourier.detectors.max_softmax import Doubt
from benfourier.detectors.memo import Memo
from benfourier.detectors.method import Method, Staged
from benfourier.detectors.threshold import threshold_at
from benfourier.evaluation.bench import Bench, every_each, one_each
from benfourier.evaluation.figures import RATES, Judge, Judged, allowed_rates
from benfourier.evaluation.leaks import check_apart
from benfourier.evaluation.plan import TRIVIAL, DetectorPlan
from benfourier.evaluation.sample import Floats
from benfourier.evaluation.trials import Target, Trial
from benfourier.evaluation.walk import FOLDS

Where = tuple[str, int, str]  # source, place of the example set, kind


@dataclass
class Book:
    """Scores by source, example set, kind and image, of one machine.

    Args:
        detector: the machine.
        judge: how its scores are read.
        scores: of what it was tested on.
        trivial: the trivial detector's of the same.
        wrong: scores of misclassified clean images, by their place.
        seconds: by name.
    """

    detector: Detector
    judge: Judge
    scores: dict[Where, dict[str, float]] = field(default_factory=dict)
    trivial: dict[Where, dict[str, float]] = field(default_factory=dict)
    wrong: dict[int, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Bencher:
    """Fits and scores one detector.

    Args:
        bench: what it works on.
        entry: the detector in the plan.
        method: with all options.
        memo: numbers that many fits ask for.
    """

    bench: Bench
    entry: DetectorPlan
    method: Method
    memo: Memo

    @property
    def clean(self) -> Labelled | None:
        """Labelled clean images beyond the examples, if the method takes any."""
        return self.bench.beyond if self.entry.takes_clean else None

    def fit_sources(self, trial: Trial) -> int:
        """Returns how many source images one of the attacks succeeded on, those of all folds."""
        whole = self.bench.together(trial.source, trial.fitted)
        rows = self.bench.rows(trial.source, whole, self.entry.sources)
        return int(torch.stack([whole.success[attack][rows] for attack in trial.fitted]).any(0).sum())

    def fit_set(self, trial: Trial, fold: int) -> Examples:
        """Returns what the machine of one fold is fitted to: sources of the other folds."""
        twins = one_each if self.entry.twins == "one" else every_each
        whole = twins(self.bench.together(trial.source, trial.fitted))
        others = [place for place in range(FOLDS) if place != fold]
        return whole.take(self.bench.rows(trial.source, whole, self.entry.sources, others), "fitted to")

    def book(self, trial: Trial, fold: int, targets: Sequence[Target], *, alone: bool) -> Book:
        """Returns the scores of one machine.

        Args:
            trial: what it is fitted to.
            fold: that it is tested on.
            targets: what it is tested on.
            alone: whether it is the only machine, which scores all misclassified images; else a fifth of them.
        """
        start = time.perf_counter()
        fitted = self.fit_set(trial, fold)
        detector = fit(self.method, self.bench.subject, fitted, clean=self.clean, show_progress=False, memo=self.memo)
        between = time.perf_counter()
        found = Book(detector, self._judge(detector))
        tested = [part for group in self.groups(targets) for part in self.parts(trial.source, group, fold)]
        check_apart(fitted, detector.seen, self.bench.apart, [(ids, images) for _, ids, images in tested])
        self._score(found, tested)
        wrong = self.bench.wrong[: self.entry.calibration]
        mine = [place for place in range(len(wrong)) if alone or place % FOLDS == fold]
        found.wrong.update(zip(mine, self._scores(detector, wrong[mine]).tolist(), strict=True))
        found.seconds.update(fit=between - start, score=time.perf_counter() - between)
        return found

    def groups(self, targets: Sequence[Target]) -> list[tuple[str, int, list[str]]]:
        """Returns attacks by source and example set, whose clean and noisy images are scored once."""
        found: dict[tuple[str, int], list[str]] = {}
        for target in targets:
            found.setdefault((target.source, self.bench.group(target.source, target.attack)), []).append(target.attack)
        return [(source, place, attacks) for (source, place), attacks in found.items()]

    def parts(
        self, source: str, group: tuple[str, int, list[str]], fold: int
    ) -> list[tuple[Where, tuple[str, ...], Tensor]]:
        """Returns the images of one example set that a machine is tested on, by kind."""
        home, place, attacks = group
        examples = self.bench.groups[home][place]
        rows = self.bench.rows(home, examples, self.entry.sources, [fold] if home == source else None)
        won = {attack: [row for row in rows if examples.success[attack][row]] for attack in attacks}
        some = sorted({row for mine in won.values() for row in mine})
        kinds = {"clean": (examples.clean, some), "noisy": (examples.noisy, some)}
        kinds |= {attack: (examples.attacked[attack], won[attack]) for attack in attacks}
        return [
            ((home, place, kind), tuple(examples.ids[row] for row in mine), images[mine])
            for kind, (images, mine) in kinds.items()
        ]

    def _score(self, book: Book, tested: Sequence[tuple[Where, tuple[str, ...], Tensor]]) -> None:
        """Puts the scores of all parts into a book."""
        images = torch.cat([part for *_, part in tested])
        ids = [name for _, names, _ in tested for name in names]
        scores, trivial = self._scores(book.detector, images, ids), self._trivial(images)
        start = 0
        for where, names, _ in tested:
            rows = slice(start, start + len(names))
            book.scores[where] = dict(zip(names, scores[rows].tolist(), strict=True))
            book.trivial[where] = dict(zip(names, trivial[rows].tolist(), strict=True))
            start += len(names)

    def _scores(self, detector: Detector, images: Tensor, ids: Sequence[str] | None = None) -> Floats:
        if not len(images):
            return np.empty(0)
        names = [f"apart-{row}" for row in range(len(images))] if ids is None else ids
        if self.method.lasting or isinstance(detector.measure, Staged):
            numbers = self.memo.of(detector.subject, detector.measure, images, names)
        else:
            (numbers,) = numbers_of(detector.subject, [detector.measure], images, names, show_progress=False)
        return detector.classifier.score(numbers).numpy()

    def _trivial(self, images: Tensor) -> Floats:
        if not len(images):
            return np.empty(0)
        found: Floats = self.memo.numbers(self.bench.subject, Doubt(), images)[:, 0].numpy()
        return found

    def _judge(self, detector: Detector) -> Judge:
        clean = self.bench.calibration[: self.entry.calibration]
        rates = allowed_rates(len(clean))
        scores = self._scores(detector, clean) if rates else np.empty(0)
        return Judge(detector.sigmoid, {rate: threshold_at(RATES[rate], scores).value for rate in rates})


def judged_of(bench: Bench, target: Target, books: Mapping[int, Book], *, trivial: bool) -> Judged:
    """Returns the scores of one attack, joined from all machines in the order of the folds."""
    place = bench.group(target.source, target.attack)
    ids: list[str] = []
    folds: list[int] = []
    columns: dict[bool, list[list[float]]] = {False: [], True: []}
    for fold, book in books.items():
        for name in book.scores[target.source, place, target.attack]:
            ids.append(name)
            folds.append(fold)
            for which, scores in ((False, book.scores), (True, book.trivial)):
                kinds = ("clean", "noisy", target.attack)
                columns[which].append([scores[target.source, place, kind][name] for kind in kinds])
    made = {which: np.array(rows, np.float64).reshape(-1, 3).T for which, rows in columns.items()}
    where: NDArray[np.intp] = np.array(folds, np.intp)
    tried = frozenset(bench.groups[target.source][place].ids)
    return Judged(target.source, target.attack, tuple(ids), where, made[False], None if trivial else made[True], tried)


def is_trivial(entry: DetectorPlan) -> bool:
    """True for the detector that others are compared with."""
    return entry.name == TRIVIAL and entry.method.final == "plain"
