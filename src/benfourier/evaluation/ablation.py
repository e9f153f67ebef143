"""One method in many settings, each cross-validated by source image inside the examples it is given."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from benfourier import progress
from benfourier.data.examples import Examples
from benfourier.data.splits import Fold, folds
from benfourier.detectors.catalogue import method
from benfourier.detectors.classifiers import train
from benfourier.detectors.fitting import measured
from benfourier.detectors.mbf import MBF
from benfourier.detectors.method import Lessons
from benfourier.detectors.rows import Rows
from benfourier.errors import check_whole
from benfourier.evaluation.intervals import estimate
from benfourier.evaluation.metrics import Metric, auroc, over_folds
from benfourier.evaluation.sample import Floats, Sample
from benfourier.store.records import Estimate
from benfourier.subjects.hearing import SOFTMAX
from benfourier.subjects.subject import Subject

PAPER: Mapping[str, Any] = MBF.presets["paper"]
SETTINGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "default": {},
        "paper": PAPER,
        **{f"paper, orders {orders}": {**PAPER, "orders": orders} for orders in (1, 2, 4, 8)},
        "paper, γ = scale": {**PAPER, "gamma": "scale"},
        "paper, C and γ by cross-validation": {**PAPER, "C": "cv", "gamma": "cv"},
        "paper, standardised": {**PAPER, "scaling": "standard", "gamma": "scale"},
        "paper, without pass-through layers": {**PAPER, "pass_through": False},
        "paper, not centred": {**PAPER, "centre": False},
        "paper, zeros counted": {**PAPER, "zeros": "count"},
        "paper, zeros as one": {**PAPER, "zeros": "one"},
        "paper, logistic regression": {**PAPER, "classifier": "logistic", "scaling": "standard", "C": "cv"},
        "paper, boosted trees": {**PAPER, "classifier": "boosted"},
        "boosted trees, orders 4": {**PAPER, "classifier": "boosted", "orders": 4},
        "soft-max only": {**PAPER, "layers": (SOFTMAX,)},
    }
)


@dataclass(frozen=True)
class Ablated:
    """A setting and its AUROC on sources that it was not fitted to."""

    label: str
    options: Mapping[str, Any]
    numbers: int
    auroc: Estimate


def ablate(
    subject: Subject,
    examples: Examples,
    settings: Mapping[str, Mapping[str, Any]] = SETTINGS,
    *,
    number: int = 5,
    seed: int = 0,
    show_progress: bool | None = None,
) -> tuple[Ablated, ...]:
    """Returns the AUROC of MBF in each setting, the mean over folds by source image, in the order of the settings.

    Args:
        subject: the classifier.
        examples: what to fit to and to measure on; keep test sources out of it.
        settings: options of MBF by label.
        number: of folds.
        seed: of the folds and the intervals.
        show_progress: True or False to force the bar; None draws it on a terminal.
    """
    check_whole("number", number, least=2)
    chosen = {label: method("mbf", **options) for label, options in settings.items()}
    parts = _folds(examples, number, seed)
    known: dict[tuple[object, ...], Rows] = {}
    found = []
    with progress.bar(len(chosen), "settings", show=show_progress) as advance:
        for label, mbf in chosen.items():
            assert isinstance(mbf, MBF)
            look = (mbf.orders, mbf.layers, mbf.pass_through, mbf.centre, mbf.zeros, mbf.precision)
            if look not in known:
                known[look] = measured(subject, mbf.learn(subject, Lessons(examples)), examples, "mbf", False)
            rows = known[look]
            scores, metric = _held_out(mbf, rows, examples, parts)
            made = Sample(scores, rows.adversarial, rows.sources)
            found.append(Ablated(label, settings[label], rows.numbers.shape[1], estimate(metric, made, seed=seed)))
            advance(1, label)
    return tuple(found)


def _folds(examples: Examples, number: int, seed: int) -> tuple[Fold, ...]:
    """Folds of the source images; sources without any success are spread over all."""
    won = torch.stack(list(examples.success.values())).any(0).long()
    classes = won if min(int(won.sum()), len(won) - int(won.sum())) >= number else torch.zeros_like(won)
    return folds(examples.ids, classes.numpy(), number, seed=seed)


def _held_out(mbf: MBF, rows: Rows, examples: Examples, parts: tuple[Fold, ...]) -> tuple[Floats, Metric]:
    """The score of every row by the machine that has not seen its source, and AUROC as the mean over these machines."""
    scores = np.empty(len(rows))
    where = np.empty(len(rows), np.intp)
    for number, fold in enumerate(parts):
        tested = {examples.ids[row] for row in fold.test}
        apart = np.array([source in tested for source in rows.sources])
        trained = train(mbf, rows.take(np.flatnonzero(~apart)))
        scores[apart] = trained.classifier.score(rows.take(np.flatnonzero(apart)).numbers).numpy()
        where[apart] = number
    return scores, over_folds(auroc, where)
