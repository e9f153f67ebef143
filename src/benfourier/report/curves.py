"""ROC curves."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from benfourier.report.canvas import MUTED, Stroke, panel, strokes
from benfourier.report.figures import Figure, Panel
from benfourier.report.results import ALONE, Results, cell_of
from benfourier.report.spots import told
from benfourier.store.records import Cell, Outcome, Scores

if TYPE_CHECKING:
    from benfourier.report.canvas import Axes

Floats = NDArray[np.float64]
ALARMS: Floats = np.unique(np.concatenate([np.linspace(0, 1, 101), np.geomspace(1e-3, 1, 61)]))


def roc(scores: Scores) -> Floats:
    """Returns the share of adversarial images caught at each rate of ALARMS; over folds the mean of their curves."""
    folds = np.asarray(scores.folds)
    curves = []
    for fold in np.unique(folds):
        rows = folds == fold
        benign = np.sort(np.concatenate([scores.clean[rows], scores.noisy[rows]]).astype(np.float64))[::-1]
        allowed = np.floor(ALARMS * len(benign) + 1e-9).astype(int)  # benign images that may lie above the threshold
        thresholds = np.append(benign, -np.inf)[allowed]
        curves.append((scores.adversarial[rows].astype(np.float64)[:, None] > thresholds).mean(axis=0))
    found: Floats = np.mean(curves, axis=0)
    return found


def roc_figures(results: Results) -> Iterator[Figure]:
    """Yields ROC curves of all detectors, one panel per attack, on both scales."""
    legend = strokes(results.detectors)
    for source in results.sources:
        outcomes = results.of(ALONE, source)
        cells = {a: _scored(results, outcomes, a) for a in results.tested(outcomes)}
        cells = {attack: found for attack, found in cells.items() if found}
        for logarithmic in (False, True) if cells else ():
            scale = "; false alarms on a logarithmic scale" if logarithmic else ""
            yield Figure(
                ALONE,
                f"ROC curves, {source}{scale}",
                "Share of adversarial images caught (upwards) over the share of benign ones rejected (to the right).",
                tuple(
                    _roc_panel(f"roc {source}", attack, found, legend, logarithmic) for attack, found in cells.items()
                ),
                tuple(stroke for label, stroke in legend.items() if any(label in found for found in cells.values())),
                folded=logarithmic,
            )


def _scored(results: Results, outcomes: Sequence[Outcome], attack: str) -> dict[str, Cell]:
    found = {detector: cell_of(outcomes, detector, attack, attack) for detector in results.detectors}
    return {detector: pair[1] for detector, pair in found.items() if pair and pair[1].scores and pair[1].scores.ids}


def _roc_panel(name: str, attack: str, cells: dict[str, Cell], legend: dict[str, Stroke], logarithmic: bool) -> Panel:
    def draw(axes: "Axes") -> None:
        start = ALARMS > 0 if logarithmic else ALARMS >= 0
        axes.plot(ALARMS[start], ALARMS[start], color=MUTED, linewidth=0.8, linestyle=":")
        for detector, cell in cells.items():
            assert cell.scores is not None
            axes.plot(ALARMS[start], roc(cell.scores)[start], **legend[detector].line)
        if logarithmic:
            axes.set_xscale("log")
            axes.set_xticks([0.001, 0.01, 0.1, 1], ["0.1 %", "1 %", "10 %", "100 %"])
            axes.set_xlim(0.001, 1)
        else:
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
            axes.set_xlim(-0.01, 1.01)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.set_ylim(-0.01, 1.02)
        axes.set_xlabel("benign images rejected")
        axes.set_ylabel("caught")

    aurocs = ", ".join(f"{d} {told(cell.metrics['auroc'])}" for d, cell in cells.items() if "auroc" in cell.metrics)
    alt = f"ROC curves against {attack}; AUROC: {aurocs}"
    return Panel(
        attack, alt, panel(f"{name} {attack} {logarithmic}", draw, size=(3.3, 2.7), margins=(0.62, 0.12, 0.42, 0.08))
    )
