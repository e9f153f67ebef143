"""A trial's outcomes, as the ledger keeps them."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benfourier.attacks.identity import digest_of_subject
from benfourier.data.draws import lot
from benfourier.detectors.defense_gan import DefenseGAN
from benfourier.detectors.memo import Memo
from benfourier.detectors.method import Method
from benfourier.detectors.references import Pool
from benfourier.evaluation.bench import Bench
from benfourier.evaluation.figures import FEW, cell_of, overall_of
from benfourier.evaluation.plan import DetectorPlan, Plan
from benfourier.evaluation.sample import Floats
from benfourier.evaluation.scoring import Bencher, Book, is_trivial, judged_of
from benfourier.evaluation.trials import Ask, Target, Trial, folds_for, key_of
from benfourier.evaluation.versions import versions
from benfourier.store.cache import Cache
from benfourier.store.digest import digest_of
from benfourier.store.records import Cell, Outcome

Known = dict[tuple[Target, tuple[int, ...]], Cell]


def memo_of(bench: Bench, plan: Plan, cache: Cache | None) -> Memo:
    """Returns the memo of a bench: all images that trials ask for, those of failed attacks left out.

    Sources that options are tried on stand side by side, so that few chunks hold them.
    """
    pool = [bench.calibration, bench.wrong]
    few = min(entry.sources for entry in plan.detectors)
    for source, groups in bench.groups.items():
        first = set(bench.order[source][:few])
        for group in groups:
            rows = sorted(
                range(len(group)), key=lambda row: (group.ids[row] not in first, lot(plan.seed, group.ids[row]))
            )
            pool += [group.clean[rows], group.noisy[rows]]
            pool += [
                images[[row for row in rows if group.success[attack][row]]] for attack, images in group.attacked.items()
            ]
    images = [images for images in pool if len(images)]
    return Memo(digest_of_subject(bench.subject), images, cache, _references(bench))


def _references(bench: Bench) -> Pool:
    """The clean images that detectors are fitted to, in the order in which they were found."""
    groups = bench.groups[bench.source]
    clean = {name: image for group in groups for name, image in zip(group.ids, group.clean, strict=True)}
    ids = tuple(name for name in bench.order[bench.source] if name in clean)
    return Pool(torch.stack([clean[name] for name in ids]), ids)


def run_trial(bench: Bench, plan: Plan, trial: Trial, memo: Memo, cache: Cache | None) -> tuple[Outcome, ...]:
    """Returns the outcome of everything that is asked of a trial."""
    entry = plan.detector(trial.detector)
    bencher = Bencher(bench, entry, method_of(bench, entry, cache), memo)
    few = bencher.fit_sources(trial)
    if few < FEW:
        return tuple(_unfitted(bench, plan, trial, ask, few) for ask in trial.asks)
    folds = {ask: folds_for(bench, entry, replace(trial, asks=(ask,))) for ask in trial.asks}
    books: dict[int, Book] = {}
    for fold in sorted({fold for some in folds.values() for fold in some}):
        targets = [target for ask in trial.asks if fold in folds[ask] for target in ask.targets]
        alone = fold == 0 and any(len(some) == 1 for some in folds.values())
        books[fold] = bencher.book(trial, fold, list(dict.fromkeys(targets)), alone=alone)
    known: Known = {}
    return tuple(
        _outcome(bench, plan, trial, ask, {fold: books[fold] for fold in folds[ask]}, known) for ask in trial.asks
    )


def method_of(bench: Bench, entry: DetectorPlan, cache: Cache | None) -> Method:
    """Returns the method of an entry; what it learns for hours and is the same in every fit is kept in the cache."""
    found = entry.method
    if isinstance(found, DefenseGAN) and found.checkpoint is None and cache is not None:
        trained = (found.iterations, found.width, found.train_lr, found.seed)  # searches of any length share it
        key = digest_of(("gan", repr(trained), bench.digests["beyond"], repr(bench.subject.bounds)))
        return replace(found, checkpoint=str(Path(cache.folder) / f"{key}.gan"))
    return found


def _unfitted(bench: Bench, plan: Plan, trial: Trial, ask: Ask, count: int) -> Outcome:
    """The outcome of a trial whose attack succeeded too rarely to fit anything to it."""
    note = f"too few: {count} successes to fit to, {FEW} are needed"
    cells = tuple(Cell(target.attack, target.source, 0, note=note) for target in ask.targets)
    return _record(bench, plan, trial, ask, fit_sources=count, cells=cells)


def _outcome(bench: Bench, plan: Plan, trial: Trial, ask: Ask, books: dict[int, Book], known: Known) -> Outcome:
    """One outcome; cells that another protocol has too are computed once."""
    entry = plan.detector(trial.detector)
    judges = {fold: book.judge for fold, book in books.items()}
    rows = [judged_of(bench, target, books, trivial=is_trivial(entry)) for target in ask.targets]
    for target, row in zip(ask.targets, rows, strict=True):
        if (target, tuple(books)) not in known:
            known[target, tuple(books)] = cell_of(row, judges, plan.seed)
    first = next(iter(books.values()))
    rates = first.judge.thresholds
    return _record(
        bench,
        plan,
        trial,
        ask,
        fit_sources=int(first.detector.summary["sources"]),
        folds=len(books),
        cells=tuple(known[target, tuple(books)] for target in ask.targets),
        overall=overall_of(rows, _wrong(books), judges, plan.seed),
        thresholds={rate: float(np.mean([judge.thresholds[rate] for judge in judges.values()])) for rate in rates},
        seconds={name: round(_sum(books.values(), name), 3) for name in first.seconds},
    )


def _record(bench: Bench, plan: Plan, trial: Trial, ask: Ask, **found: Any) -> Outcome:
    """An outcome with what all have in common."""
    entry = plan.detector(trial.detector)
    common = {
        "key": key_of(bench, plan, trial, ask),
        "protocol": ask.protocol,
        "detector": entry.label,
        "method": entry.name,
        "options": entry.options,
        "fitted": trial.fitted,
        "source": trial.source,
        "folds": 0,
        "overall": {},
        "thresholds": {},
        "calibration": min(entry.calibration, len(bench.calibration)),
        "seconds": {},
        "seed": plan.seed,
        "versions": versions(),
        "digests": bench.digests,
        "reduced": entry.reduced,
    }
    return Outcome(**{**common, **found})


def _wrong(books: dict[int, Book]) -> tuple[Floats, NDArray[np.intp]]:
    """Scores of misclassified images, each from one machine."""
    alone = len(books) == 1
    found = [
        (place, fold, score)
        for fold, book in books.items()
        for place, score in book.wrong.items()
        if alone or place % len(books) == fold
    ]
    found.sort()
    return np.array([score for *_, score in found]), np.array([fold for _, fold, _ in found], np.intp)


def _sum(books: Iterable[Book], name: str) -> float:
    return sum(book.seconds[name] for book in books)
