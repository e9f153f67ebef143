"""Which of our detectors the paper's numbers stand beside."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from benfourier.report.paper import gan_id
from benfourier.report.results import GAN, MBF, Results
from benfourier.store.records import Cost, Outcome

C1C2 = "c1c2"
SETTINGS: Mapping[str, Any] = MappingProxyType(  # of the paper's mbf
    {
        "orders": 16, "layers": None, "pass_through": True, "centre": True, "zeros": "drop",
        "precision": "float64",
        "classifier": "svm", "scaling": "none", "C": 1.0, "gamma": 1.0,
    }
)  # fmt: skip
UNTOLD = ("precision",)  # in older ledgers


def papers_mbf(results: Results) -> str | None:
    """Returns the label of mbf with the paper's settings, or else of another one with an SVM; None if there is none."""
    given = {outcome.detector: outcome.options for outcome in results.outcomes if outcome.method == MBF}
    labels = [label for label in results.detectors if label in given]
    alike = [label for label in labels if _has_papers_settings(given[label])]
    plain = [label for label in labels if given[label].get("classifier") in (None, "svm")]
    return next(iter([*alike, *sorted(plain, key=lambda label: label != MBF)]), None)


def known_as(results: Results, outcome: Outcome) -> str:
    """Returns the id of a detector as the paper's tables know it; nothing for mbf with other settings than theirs."""
    method, options = outcome.method, outcome.options
    if method == GAN and {"search_steps", "restarts"} <= options.keys():
        return gan_id(options["search_steps"], options["restarts"])
    if method == C1C2 and options.get("criteria", "all") != "all":
        return f"{method}:{options['criteria']}"
    return "" if method == MBF and outcome.detector != papers_mbf(results) else method


def timed_as(results: Results, cost: Cost) -> str:
    """Returns the id under which the paper may have a detector's milliseconds; efforts are not told there."""
    known = {outcome.detector: known_as(results, outcome).partition(" ")[0] for outcome in results.outcomes}
    return known.get(cost.detector, cost.method)


def _has_papers_settings(options: Mapping[str, Any]) -> bool:
    told = {name: value for name, value in SETTINGS.items() if name in options or name not in UNTOLD}
    return all(name in options and options[name] == value for name, value in told.items())
