"""AUROC over the strength of attacks."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from benfourier.report.canvas import Stroke, panel, strokes
from benfourier.report.figures import Figure, Panel
from benfourier.report.results import STRENGTH, Results, cell_of
from benfourier.report.transfer_tables import boundary_attacks, fitted_name
from benfourier.store.records import Crafted, Outcome

if TYPE_CHECKING:
    from benfourier.report.canvas import Axes

OPTIONS = ("eps", "confidence")


def strength_figures(results: Results) -> Iterator[Figure]:
    """Yields AUROC over the strength of attacks that differ in nothing else."""
    legend = strokes(results.detectors)
    for source in results.sources:
        outcomes = results.of(STRENGTH, source)
        panels = []
        for fitted in dict.fromkeys(outcome.fitted for outcome in outcomes if outcome.fitted):
            chosen = [outcome for outcome in outcomes if outcome.fitted in (fitted, ())]
            for family in _families(results, source, results.tested(chosen)):
                if len(family) > 1:
                    panels.append(_strength_panel(results, chosen, fitted, family, legend))
        if panels:
            caption = "AUROC with 95 % intervals, chance at 50; each panel says what the detectors were fitted to."
            shown = tuple(stroke for label, stroke in legend.items() if any(o.detector == label for o in outcomes))
            yield Figure(STRENGTH, f"AUROC over strength, {source}", caption, tuple(panels), shown)


def _families(results: Results, source: str, attacks: Sequence[str]) -> list[list[tuple[float, Crafted]]]:
    """Attacks of one method at fixed strengths, by the one option that differs."""
    groups: dict[tuple[str, str], list[tuple[float, Crafted]]] = {}
    far = set(attacks) - boundary_attacks(results)
    for made in results.crafted:
        option = next((name for name in OPTIONS if isinstance(made.options.get(name), int | float)), None)
        if option and made.attack in far and made.source == source:
            groups.setdefault((made.method, option), []).append((float(made.options[option]), made))
    return [sorted(group, key=lambda pair: pair[0]) for group in groups.values()]


def _strength_panel(
    results: Results,
    outcomes: Sequence[Outcome],
    fitted: Sequence[str],
    family: Sequence[tuple[float, Crafted]],
    legend: dict[str, Stroke],
) -> Panel:
    method = family[0][1].method
    name = next(name for name in OPTIONS if name in family[0][1].options)
    points = {detector: _points(outcomes, detector, family) for detector in results.detectors}

    def draw(axes: "Axes") -> None:
        for detector, rows in points.items():
            if rows:
                x, y, low, high = np.array(rows).T
                errors = np.nan_to_num(np.abs([y - low, high - y]))
                axes.errorbar(x, y, errors, marker="o", markersize=3, elinewidth=0.8, **legend[detector].line)
        axes.axhline(50, color="0.6", linewidth=0.8)
        axes.set_ylim(0, 102)
        axes.set_xticks(range(len(family)), [_short(value) for value, _ in family])
        axes.set_xlabel(name)
        axes.set_ylabel("AUROC, %")

    title = f"{method}; fitted to {fitted_name(fitted)}"
    ends = ", ".join(f"{d} {rows[0][1]:.1f} to {rows[-1][1]:.1f}" for d, rows in points.items() if rows)
    alt = f"AUROC in percent from the weakest to the strongest {method}: {ends}"
    return Panel(
        title,
        alt,
        panel(f"strength {method} {' '.join(fitted)}", draw, size=(3.3, 2.6), margins=(0.5, 0.12, 0.42, 0.08)),
    )


def _points(
    outcomes: Sequence[Outcome], detector: str, family: Sequence[tuple[float, Crafted]]
) -> list[tuple[int, float, float, float]]:
    """Place of the strength, AUROC and the ends of its interval, in percent."""
    rows = []
    for place, (_, made) in enumerate(family):
        found = cell_of(outcomes, detector, None, made.attack)
        auroc = found[1].metrics.get("auroc") if found else None
        if auroc and math.isfinite(auroc.value):
            rows.append((place, 100 * auroc.value, 100 * auroc.low, 100 * auroc.high))
    return rows


def _short(value: float) -> str:
    """A strength in few characters, as levels of 255 where it is so many."""
    levels = value * 255
    return f"{levels:.0f}/255" if 0.5 < levels < 33 and abs(levels - round(levels)) < 1e-6 else f"{value:.3g}"
