"""Figures of a report: worst cases, ROC curves, heat maps of transfer, AUROC over strength, features and costs."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benfourier.metrics.ranking import ROC_RATES
from benfourier.report.detection_tables import GridRow, transfer_rows
from benfourier.report.registry import PAGE_AND_DOCS, Axes, Figure, LineStyle, Palette, Panel, figure, line_styles
from benfourier.report.results import AUROC, TO_MANY, CellRef, Results, find_cell, fit_name, worst_cases
from benfourier.report.table import milliseconds, percent_text
from benfourier.store.records import AttackSummary, Cell, Outcome, Profile
from benfourier.store.vocabulary import CLEAN, ProtocolName, Split

SAME_ATTACK, OTHER_ATTACK, _, OTHER_STRENGTH, ALL_ATTACKS, MIXTURE, _, _ = ProtocolName
MAX_LABEL = 22  # letters beside an axis
MAX_DETECTORS = 12  # more curves in one panel cannot be told apart
# cividis (Nuñez et al. 2018), which readers with any colour vision order alike, at even steps
COLOURS = ("#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838")
LOW, HIGH = 0.5, 1.0  # AUROC at the ends of the heat maps' scale
STRENGTHS = ("factor", "eps", "confidence")  # options that say how far an attack goes
LOG_SPREAD = 30  # the costs' axis is logarithmic if the largest is so many times the least
CHANCE, ENOUGH = 50, 90  # AUROC in percent: that of a coin, and what a detector should have under every attack
DOTS_CAPTION = f"One dot per attack; the worst is filled. Dashed: chance and {ENOUGH} %."
LINES_CAPTION = (
    "Left the worst of the boundary attacks; lines go on to one attack at higher strengths. Nothing below chance is "
    f"drawn. Dashed: {ENOUGH} %."
)
TICKS = [0, 0.25, 0.5, 0.75, 1]
TICK_LABELS = ["0", "25 %", "50 %", "75 %", "100 %"]
Family = list[tuple[float, AttackSummary]]  # attacks that differ in their strength only, the weakest first


def short(label: str) -> str:
    """Returns a label that fits beside an axis."""
    flat = " ".join(label.split())
    return flat if len(flat) <= MAX_LABEL else flat[: MAX_LABEL - 1] + "…"


@figure("worst-case-mixture", section=MIXTURE, protocol=MIXTURE)
@figure("worst-case", section=ALL_ATTACKS, protocol=ALL_ATTACKS)
def worst_case(results: Results, *, protocol: ProtocolName) -> Iterator[Figure]:
    """Yields AUROC under every attack of each detector fitted to many, the best worst case first."""
    caption = f"Fitted to {TO_MANY[protocol]}. {DOTS_CAPTION}"
    for place, source in enumerate(results.sources, 1):
        cases = [case for case in worst_cases(results, source) if case.outcome.protocol == protocol]
        attacks = {cell.attack for case in cases for cell in case.outcome.cells}
        # without other attacks than these, the picture of the first screen is the same
        if attacks - results.boundary_attacks:
            refs = {each.detector: [CellRef(each, cell) for cell in each.cells] for each in (c.outcome for c in cases)}
            dots = dict(list(refs.items())[:MAX_DETECTORS][::-1])
            name = f"worst-case-{place}" + f"-{protocol}" * (protocol != ALL_ATTACKS)
            yield Figure(name, f"AUROC under every attack, {source}", caption, (attack_dots(dots),))


def attack_dots(cells: Mapping[str, Sequence[CellRef]], width: float = 6.2) -> Panel:
    """Returns a panel so many inches wide with a row per detector, from below, and a dot per attack."""
    rows = []  # for each detector the AUROC in percent and the attack, the worst first
    for refs in cells.values():
        aurocs = ((100 * ref.auroc.value, ref.name) for ref in refs if ref.known(AUROC))
        rows.append(sorted(aurocs, key=lambda pair: pair[0]))
    labels = list(cells)

    def draw(axes: Axes, palette: Palette) -> None:
        for place, row in enumerate(rows):
            worst, *others = (value for value, _ in row)
            axes.plot([worst, row[-1][0]], [place, place], color=palette.line, linewidth=2, zorder=1)
            axes.plot(others, [place] * len(others), "o", color=palette.series[0], fillstyle="none", markersize=4)
            axes.plot([worst], [place], "o", color=palette.series[1], markersize=6)
            style = {"textcoords": "offset points", "ha": "right", "va": "center", "color": palette.ink}
            axes.annotate(f"{worst:.1f}", (worst, place), (-6, 0), **style)
        for level in (CHANCE, ENOUGH):
            axes.axvline(level, color=palette.muted, linestyle="--", linewidth=0.8, zorder=0)
        lowest = min(row[0][0] for row in rows)
        axes.set(xlim=(min(45, 10 * math.floor(lowest / 10) - 8), 101), ylim=(-0.6, len(rows) - 0.4))
        axes.set_yticks(range(len(rows)), [short(label) for label in labels])
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("AUROC, %")

    worst = [f"{label} {row[0][0]:.1f} under {row[0][1]}" for label, row in zip(labels, rows, strict=True)]
    alt = f"Worst AUROC in percent: {'; '.join(reversed(worst))}"
    return Panel("", alt, draw, size=(width, 0.6 + 0.27 * len(rows)), margins=(1.55, 0.1, 0.42, 0.05))


def attack_lines(
    groups: Sequence[Sequence[str]],
    series: Mapping[str, Mapping[str, float]],
    styles: Mapping[str, LineStyle],
    width: float,
) -> Panel:
    """Returns a panel so many inches wide with a line per detector over each group of attacks.

    Args:
        groups: labels of attacks that differ in their strength only, the weakest first.
        series: AUROC in percent by detector and attack.
        styles: of the lines, by detector.
        width: of the panel.
    """
    attacks = [attack for group in groups for attack in group]

    def draw(axes: Axes, palette: Palette) -> None:
        for detector, aurocs in series.items():
            for group in groups:
                x = [attacks.index(attack) for attack in group if attack in aurocs]
                style = styles[detector].keywords(palette)
                axes.plot(x, [aurocs[attacks[place]] for place in x], marker="o", markersize=4, **style)
        axes.axhline(ENOUGH, color=palette.muted, linestyle="--", linewidth=0.8, zorder=0)
        # what falls below chance would press the good detectors together
        axes.set(xlim=(-0.4, len(attacks) - 0.6), ylim=(CHANCE, 101))
        axes.set_xticks(range(len(attacks)), map(short, attacks), rotation=30, ha="right", rotation_mode="anchor")
        axes.set_ylabel("AUROC, %")

    rows = {name: ", ".join(f"{a} {aurocs[a]:.1f}" for a in attacks if a in aurocs) for name, aurocs in series.items()}
    alt = f"AUROC in percent by attack. {'; '.join(f'{name}: {row}' for name, row in rows.items())}"
    return Panel("", alt, draw, size=(width, 3.2), margins=(0.8, 0.1, 0.85, 0.05))


@figure("roc-logarithmic", section=SAME_ATTACK, logarithmic=True)
@figure("roc", section=SAME_ATTACK, audiences=PAGE_AND_DOCS, logarithmic=False)
def roc(results: Results, *, logarithmic: bool) -> Iterator[Figure]:
    """Yields ROC curves of all detectors, one panel per attack; the rate of false alarms may be logarithmic."""
    styles = line_styles(results.detectors)
    scale = "; false alarms on a logarithmic scale" if logarithmic else ""
    caption = "Share of adversarial images caught (upwards) over the share of benign ones rejected (to the right)."
    for place, source in enumerate(results.sources, 1):
        outcomes = results.of(SAME_ATTACK, source)
        curves: dict[str, dict[str, Cell]] = {}  # cells with a stored curve, by attack and detector
        for attack in results.attacks_of(outcomes):
            for detector in results.detectors:
                ref = find_cell(outcomes, detector, attack, attack)
                if ref and ref.cell.roc is not None:
                    curves.setdefault(attack, {})[detector] = ref.cell
        labels = [label for label in styles if any(label in cells for cells in curves.values())]
        if curves and len(labels) <= MAX_DETECTORS:
            panels = tuple(_roc_panel(attack, cells, styles, logarithmic) for attack, cells in curves.items())
            name = f"roc{'-logarithmic' * logarithmic}-{place}"
            legend = tuple(styles[label] for label in labels)
            yield Figure(name, f"ROC curves, {source}{scale}", caption, panels, legend, is_folded=logarithmic)


def _roc_panel(attack: str, cells: Mapping[str, Cell], styles: Mapping[str, LineStyle], logarithmic: bool) -> Panel:
    def draw(axes: Axes, palette: Palette) -> None:
        rates = ROC_RATES[1:] if logarithmic else ROC_RATES  # the first rate is 0
        axes.plot(rates, rates, color=palette.muted, linewidth=0.8, linestyle=":")
        for detector, cell in cells.items():
            assert cell.roc is not None
            axes.plot(rates, cell.roc[-len(rates) :], **styles[detector].keywords(palette))
        if logarithmic:
            axes.set_xscale("log")
            axes.set_xticks([0.001, 0.01, 0.1, 1], ["0.1 %", "1 %", "10 %", "100 %"])
        else:
            axes.set_xticks(TICKS, TICK_LABELS)
        axes.set_yticks(TICKS, TICK_LABELS)
        axes.set(xlim=(0.001, 1) if logarithmic else (-0.01, 1.01), ylim=(-0.01, 1.02))
        axes.set(xlabel="benign images rejected", ylabel="caught")

    aurocs = ", ".join(f"{d} {percent_text(cell.metrics[AUROC])}" for d, cell in cells.items() if AUROC in cell.metrics)
    return Panel(attack, f"ROC curves against {attack}; AUROC: {aurocs}", draw)


@figure("transfer", section=OTHER_ATTACK, audiences=PAGE_AND_DOCS)
def transfer(results: Results) -> Iterator[Figure]:
    """Yields AUROC of fit and test on different attacks, one panel per detector, all on one scale."""
    caption = "AUROC in percent: the row's attack in the fit, the column's in the test. One scale for all."
    scale = (f"{100 * LOW:.0f} or less", f"{100 * HIGH:.0f}", COLOURS)
    for place, source in enumerate(results.sources, 1):
        rows = {detector: transfer_rows(results, source, detector, AUROC) for detector in results.detectors}
        panels = tuple(_heat_panel(detector, each) for detector, each in rows.items() if each)
        if 0 < len(panels) <= MAX_DETECTORS:
            title = f"Transfer between attacks, {source}"
            yield Figure(f"transfer-{place}", title, caption, panels, scale=scale)


def _heat_panel(detector: str, rows: Sequence[GridRow]) -> Panel:
    attacks = [row.name for row in rows]
    labels = [short(attack) for attack in attacks]
    values = [[ref.auroc.value if ref and AUROC in ref.cell.metrics else math.nan for ref in row.cells] for row in rows]

    def draw(axes: Axes, palette: Palette) -> None:
        axes.grid(visible=False)
        axes.set(xlim=(0, len(attacks)), ylim=(len(attacks), 0))
        for down, row in enumerate(values):
            for right, value in enumerate(row):
                _heat_cell(axes, right, down, value, palette)
        places = [place + 0.5 for place in range(len(attacks))]
        axes.set_xticks(places, labels, rotation=30, ha="right", rotation_mode="anchor")
        axes.set_yticks(places, labels)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)

    numbers = (f"{name}: {', '.join(map(_heat_text, row))}" for name, row in zip(attacks, values, strict=True))
    tested = f"tested on {', '.join(attacks)}: {'; '.join(numbers)}"
    alt = f"AUROC of {detector} in percent, by the attack in the fit, {tested}"
    label = 0.075 * max(map(len, labels))  # inches, at most
    left, below = label + 0.15, 0.6 * label + 0.2  # labels below are tilted by 30 degrees
    size = (max(3.0, 0.5 * len(attacks) + left), 0.36 * len(attacks) + below)
    return Panel(detector, alt, draw, size=size, margins=(left, 0.05, below, 0.05))


def _heat_cell(axes: Axes, right: int, down: int, value: float, palette: Palette) -> None:
    known = math.isfinite(value)
    share = min(1.0, max(0.0, (value - LOW) / (HIGH - LOW))) if known else 0.0
    step = min(len(COLOURS) - 1, int(share * len(COLOURS)))
    corners = [right, right + 1, right + 1, right], [down, down, down + 1, down + 1]
    axes.fill(*corners, color=COLOURS[step] if known else "none", linewidth=0)
    ink = ("#ffffff" if step < 5 else "#000000") if known else palette.muted
    axes.text(right + 0.5, down + 0.5, _heat_text(value), ha="center", va="center", color=ink, fontsize=8)


def _heat_text(value: float) -> str:
    return f"{100 * value:.1f}" if math.isfinite(value) else "–"


@figure("strength", section=OTHER_STRENGTH, audiences=PAGE_AND_DOCS)
def strength(results: Results) -> Iterator[Figure]:
    """Yields AUROC over the strength of attacks that differ in nothing else."""
    styles = line_styles(results.detectors)
    caption = "AUROC with 95 % intervals, chance at 50; each panel says what the detectors were fitted to."
    for place, source in enumerate(results.sources, 1):
        outcomes = results.of(OTHER_STRENGTH, source)
        panels = []
        for fitted in dict.fromkeys(outcome.fitted for outcome in outcomes if outcome.fitted):
            same = [outcome for outcome in outcomes if outcome.fitted in (fitted, ())]
            families = _families(results, source, results.attacks_of(same))
            title = f"fitted to {fit_name(fitted)}"
            panels += [_strength_panel(same, title, each, styles) for each in families if len(each) > 1]
        labels = {outcome.detector for outcome in outcomes}
        if panels and len(labels) <= MAX_DETECTORS:
            legend = tuple(style for label, style in styles.items() if label in labels)
            yield Figure(f"strength-{place}", f"AUROC over strength, {source}", caption, tuple(panels), legend)


def _families(results: Results, source: str, attacks: Sequence[str]) -> list[Family]:
    """Attacks of one method at fixed strengths, by the one option that differs."""
    groups: dict[tuple[str, str], Family] = {}
    far = set(attacks) - results.boundary_attacks  # a boundary attack has no strength of its own
    for summary in results.attack_summaries:
        option = next((name for name in STRENGTHS if isinstance(summary.options.get(name), int | float)), None)
        if option and summary.attack in far and summary.source == source:
            groups.setdefault((summary.method, option), []).append((float(summary.options[option]), summary))
    return [sorted(group, key=lambda pair: pair[0]) for group in groups.values()]


def _strength_panel(outcomes: Sequence[Outcome], title: str, family: Family, styles: Mapping[str, LineStyle]) -> Panel:
    method = family[0][1].method
    option = next(name for name in STRENGTHS if name in family[0][1].options)
    series: dict[str, list[tuple[int, float, float, float]]] = {}  # place, AUROC and its interval, in percent
    for detector in styles:
        for place, (_, summary) in enumerate(family):
            ref = find_cell(outcomes, detector, None, summary.attack)
            auroc = ref.known(AUROC) if ref else None
            if auroc:
                row = (place, 100 * auroc.value, 100 * auroc.low, 100 * auroc.high)
                series.setdefault(detector, []).append(row)

    def draw(axes: Axes, palette: Palette) -> None:
        for detector, rows in series.items():
            x, y, low, high = np.array(rows).T
            errors = np.nan_to_num(np.abs([y - low, high - y]))
            style = styles[detector].keywords(palette)
            axes.errorbar(x, y, errors, marker="o", markersize=3, elinewidth=0.8, **style)
        axes.axhline(50, color=palette.muted, linewidth=0.8)
        axes.set_ylim(0, 102)
        axes.set_xticks(range(len(family)), [_strength_text(value) for value, _ in family])
        axes.set(xlabel=option, ylabel="AUROC, %")

    ends = ", ".join(f"{detector} {rows[0][1]:.1f} to {rows[-1][1]:.1f}" for detector, rows in series.items())
    alt = f"AUROC in percent from the weakest to the strongest {method}: {ends}"
    return Panel(f"{method}; {title}", alt, draw, margins=(0.5, 0.12, 0.42, 0.08))


def _strength_text(value: float) -> str:
    """A strength in few characters, as levels of 255 where it is a whole number of them."""
    levels = value * 255
    return f"{levels:.0f}/255" if 0.5 < levels < 33 and abs(levels - round(levels)) < 1e-6 else f"{value:.3g}"


@figure("features", section="features")
def features(results: Results) -> Iterator[Figure]:
    """Yields the features of every kind of image, one panel per layer; those of the train side only if alone."""
    groups: dict[tuple[str, str], list[Profile]] = {}
    for profile in results.profiles:
        groups.setdefault((profile.source, profile.split), []).append(profile)
    tested = {source for source, split in groups if split != Split.TRAIN}
    shown = {key: profiles for key, profiles in groups.items() if key[1] != Split.TRAIN or key[0] not in tested}
    styles = line_styles(dict.fromkeys(profile.kind for profile in results.profiles))
    for place, ((source, split), profiles) in enumerate(shown.items(), 1):
        images = min(profile.images for profile in profiles)
        caption = (
            f"Mean of |â_n| over n, at least {images} images of each kind; band: standard deviation of {CLEAN} images."
        )
        layers = dict.fromkeys(layer for profile in profiles for layer in profile.layers)
        panels = tuple(_layer_panel(layer, profiles, styles) for layer in layers)
        legend = tuple(style for kind, style in styles.items() if any(profile.kind == kind for profile in profiles))
        yield Figure(f"features-{place}", f"Features of {source}, {split}", caption, panels, legend)


def _layer_panel(layer: str, profiles: Sequence[Profile], styles: Mapping[str, LineStyle]) -> Panel:
    def draw(axes: Axes, palette: Palette) -> None:
        for profile in (profile for profile in profiles if layer in profile.layers):
            place = profile.layers.index(layer)
            mean, deviation = (part.reshape(-1, profile.orders)[place] for part in (profile.mean, profile.deviation))
            orders, style = range(1, profile.orders + 1), styles[profile.kind].keywords(palette)
            if profile.kind == CLEAN:  # bands of many kinds would hide one another
                band = {"color": style["color"], "alpha": 0.15, "linewidth": 0}
                axes.fill_between(orders, mean - deviation, mean + deviation, **band)
            axes.plot(orders, mean, **style)
        last = max(profile.orders for profile in profiles)
        axes.set_xticks([1, *range(max(2, round(last / 4)), last + 1, max(1, round(last / 4)))])
        axes.set_xlabel("n")

    return Panel(
        layer, f"Mean of the features of layer {layer}", draw, size=(3.0, 2.1), margins=(0.45, 0.08, 0.36, 0.08)
    )


@figure("costs", section="costs")
def costs(results: Results) -> Iterator[Figure]:
    """Yields bars of milliseconds per image."""
    ordered = sorted(results.costs, key=lambda cost: -cost.features_ms)
    if not ordered:
        return
    values = [cost.features_ms for cost in ordered]
    logarithmic = max(values) > LOG_SPREAD * min(values)

    def draw(axes: Axes, palette: Palette) -> None:
        axes.barh(range(len(values)), values, height=0.6, color=palette.series[0])
        for place, value in enumerate(values):
            style = {"textcoords": "offset points", "va": "center", "color": palette.ink}
            axes.annotate(milliseconds(value).text, (value, place), (4, 0), **style)
        axes.axvline(ordered[0].forward_ms, color=palette.muted, linestyle="--", linewidth=1)
        if logarithmic:
            axes.set(xscale="log", xlim=(0.5 * min(values), 3 * max(values)))
            axes.xaxis.set_major_formatter(lambda value, place: f"{value:g}")
            axes.xaxis.set_minor_formatter(lambda value, place: "")
        else:
            axes.set_xlim(right=1.15 * max(values))
        axes.set_yticks(range(len(values)), [short(cost.detector) for cost in ordered])
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("milliseconds per image" + ", logarithmic" * logarithmic)

    times = ", ".join(f"{cost.detector} {milliseconds(cost.features_ms).text}" for cost in reversed(ordered))
    caption = "Time for the detector's features, the forward pass included; dashed: the network alone."
    size, margins = (5.2, 0.6 + 0.26 * len(ordered)), (1.5, 0.1, 0.42, 0.05)
    panel = Panel("", f"Milliseconds per image: {times}", draw, size=size, margins=margins)
    yield Figure("costs", "Cost", caption, (panel,))
