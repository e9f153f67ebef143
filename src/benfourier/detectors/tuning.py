"""Values of an option tried on a few of the examples."""

from collections.abc import Mapping

import torch
from torch import Tensor

from benfourier.detectors.detector import numbers_of
from benfourier.detectors.fitting import measured
from benfourier.detectors.held_out import some
from benfourier.detectors.method import Lessons, Measure, Method
from benfourier.detectors.rows import parts_of
from benfourier.subjects.subject import Subject

SOURCES = 50  # source images that trials are made with; a trial may cost a thousand steps for each
ROUNDING = 1e-9  # by which a number may miss its limit


def best(
    method: Method, subject: Subject, lessons: Lessons, trials: Mapping[float, Measure], label: str, limit: float
) -> float:
    """Returns the value whose one number tells the examples apart best, by AUROC; the first of equals.

    A classifier that learns which way is adversarial makes as much of 0.1 as of 0.9; classifier "plain" does not.

    Args:
        method: whose final classifier is to make something of the number.
        subject: the classifier.
        lessons: with the examples; SOURCES of them are used.
        trials: measures of one number by value, in the order in which they are tried.
        label: of the progress bars.
        limit: what the number cannot exceed; once most benign images reach it, no later value is tried.
    """
    from sklearn.metrics import roc_auc_score

    few, worth = some(lessons.examples, method.seed, SOURCES), {}
    for value, measure in trials.items():
        rows = measured(subject, measure, few, f"{label} {value:g}", lessons.show_progress, lessons.memo)
        auroc = float(roc_auc_score(rows.adversarial, rows.numbers[:, 0].numpy()))
        worth[value] = auroc if method.final == "plain" else max(auroc, 1 - auroc)
        if float((rows.benign >= limit * (1 - ROUNDING)).double().mean()) > 0.5:
            break
    return max(worth, key=lambda value: worth[value])


def benign_of(subject: Subject, measure: Measure, lessons: Lessons, label: str) -> Tensor:
    """Returns the numbers of all benign examples, (B, D)."""
    parts = [part for part in parts_of(lessons.examples) if not part.adversarial]
    show = lessons.show_progress
    return torch.cat(
        [numbers_of(subject, [measure], p.images, p.ids, label=label, show_progress=show)[0] for p in parts]
    )
