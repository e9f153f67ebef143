"""Heat maps of transfer, bars of costs."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from benfourier.report.canvas import INK, MUTED, SERIES, panel, short
from benfourier.report.figures import Figure, Panel
from benfourier.report.results import TRANSFER, Results
from benfourier.report.transfer_tables import transfer_lines

if TYPE_CHECKING:
    from benfourier.report.canvas import Axes

# cividis (Nuñez et al. 2018), which readers with any colour vision order alike, at even steps
COLOURS = ("#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838")
LOW, HIGH = 0.5, 1.0  # AUROC at the ends of the scale


def heat_figures(results: Results) -> Iterator[Figure]:
    """Yields AUROC of fit and test on different attacks, one panel per detector, all on one scale."""
    for source in results.sources:
        panels = tuple(
            found for detector in results.detectors if (found := _heat_panel(results, source, detector)) is not None
        )
        if panels:
            caption = "AUROC in percent: the row's attack in the fit, the column's in the test. One scale for all."
            ends = (f"{100 * LOW:.0f} or less", f"{100 * HIGH:.0f}", ", ".join(COLOURS))
            yield Figure(TRANSFER, f"Transfer between attacks, {source}", caption, panels, scale=ends)


def cost_figures(results: Results) -> Iterator[Figure]:
    """Yields bars of milliseconds per image."""
    costs = sorted(results.costs, key=lambda cost: -cost.features_ms)
    if not costs:
        return
    spread = max(cost.features_ms for cost in costs) / max(1e-9, min(cost.features_ms for cost in costs))

    def draw(axes: "Axes") -> None:
        names = [short(cost.detector) for cost in costs]
        values = [cost.features_ms for cost in costs]
        axes.barh(range(len(costs)), values, height=0.6, color=SERIES[0])
        for place, value in enumerate(values):
            axes.annotate(f"{value:.3g}", (value, place), (4, 0), textcoords="offset points", va="center", color=INK)
        axes.axvline(costs[0].forward_ms, color=MUTED, linestyle="--", linewidth=1)
        if spread > 30:
            axes.set_xscale("log")
            axes.set_xlim(0.5 * min(values), 3 * max(values))
            axes.xaxis.set_major_formatter(lambda value, place: f"{value:g}")
            axes.xaxis.set_minor_formatter(lambda value, place: "")
        else:
            axes.set_xlim(right=1.15 * max(values))
        axes.set_yticks(range(len(costs)), names)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("milliseconds per image" + (", logarithmic" if spread > 30 else ""))

    alt = "Milliseconds per image: " + ", ".join(f"{cost.detector} {cost.features_ms:.3g}" for cost in reversed(costs))
    svg = panel("costs", draw, size=(5.2, 0.6 + 0.26 * len(costs)), margins=(1.5, 0.1, 0.42, 0.05))
    caption = "Time for the detector's numbers, the forward pass included; dashed: the network alone."
    yield Figure("costs", "Cost", caption, (Panel("", alt, svg),))


def _heat_panel(results: Results, source: str, detector: str) -> Panel | None:
    lines = transfer_lines(results, source, detector, "auroc")
    if not lines:
        return None
    attacks = [line.name for line in lines]
    aurocs = [[found[1].metrics.get("auroc") if found else None for found in line.found] for line in lines]
    values = [[estimate.value if estimate else math.nan for estimate in row] for row in aurocs]

    def draw(axes: "Axes") -> None:
        axes.grid(visible=False)
        axes.set_xlim(0, len(attacks))
        axes.set_ylim(len(attacks), 0)
        for down, row in enumerate(values):
            for right, value in enumerate(row):
                _heat_cell(axes, right, down, value)
        places = [place + 0.5 for place in range(len(attacks))]
        axes.set_xticks(places, [short(attack) for attack in attacks], rotation=30, ha="right", rotation_mode="anchor")
        axes.set_yticks(places, [short(attack) for attack in attacks])
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)

    told = "; ".join(
        f"{name}: " + ", ".join(_shown(value) for value in row) for name, row in zip(attacks, values, strict=True)
    )
    alt = f"AUROC of {detector} in percent, by the attack in the fit, tested on {', '.join(attacks)}: {told}"
    label = 0.075 * max(len(short(attack)) for attack in attacks)  # inches, at most
    left, below = label + 0.15, 0.6 * label + 0.2
    size = (max(3.0, 0.5 * len(attacks) + left), 0.36 * len(attacks) + below)
    return Panel(detector, alt, panel(f"heat {source} {detector}", draw, size=size, margins=(left, 0.05, below, 0.05)))


def _heat_cell(axes: "Axes", right: int, down: int, value: float) -> None:
    known = math.isfinite(value)
    share = min(1.0, max(0.0, (value - LOW) / (HIGH - LOW))) if known else 0.0
    step = min(len(COLOURS) - 1, int(share * len(COLOURS)))
    axes.fill(
        [right, right + 1, right + 1, right],
        [down, down, down + 1, down + 1],
        color=COLOURS[step] if known else "none",
        linewidth=0,
    )
    ink = ("#ffffff" if step < 5 else "#000000") if known else MUTED
    axes.text(right + 0.5, down + 0.5, _shown(value), ha="center", va="center", color=ink, fontsize=8)


def _shown(value: float) -> str:
    return f"{100 * value:.1f}" if math.isfinite(value) else "–"
