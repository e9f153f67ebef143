"""Tables of the studies, the costs, the attacks, the settings and the failures."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benfourier.metrics.intervals import clopper_pearson
from benfourier.report.registry import EVERYONE, PAGE_AND_DOCS, picture, table
from benfourier.report.results import Results
from benfourier.report.table import Footnotes, Row, Table, number, percent, texts
from benfourier.store.records import Estimate, KsResult, LayerFit, Picture
from benfourier.store.vocabulary import KS_POSTERIORS, KS_SOURCES, NOISE_CONTROLS, SIGNIFICANCE

KS_TITLES = {  # h2.1 to h2.4, the pairs of kinds, are one table
    KS_POSTERIORS: "H1: posteriors follow a generalized Gaussian distribution",
    "h2": "H2: features of two kinds of images follow one distribution",
    KS_SOURCES: "H2: features of two sets of images follow one distribution",
}
ANY_SHAPE = "any-shape-below-0.05"
# keys of KsResult.more with heading, factor (shares are shown in percent) and format
H1_COLUMNS = {"p-any-shape": ("p, any shape", 1, ".3f"), ANY_SHAPE: ("any shape below 0.05, %", 100, ".1f")}
H2_COLUMNS = {"p-exact": ("p, exact", 1, ".3f"), "p-adjusted": ("p, Holm", 1, ".3f")}
H2_COLUMNS |= {"rejected": ("rejected, %", 100, ".0f")}
H1_NOTE = "p is too large, since the distribution was fitted to the same numbers that are tested."
H2_NOTE = "p: mean over the dimensions, as in the paper."
ANY_SHAPE_NOTE = (
    "Any shape: the largest p that any shape gives, among samples of that shape fitted in the same way; valid whatever "
    "the shape. Below 0.05: share of the images with such a p; if H1 held, chance would give at most 5 %."
)
HOLM_NOTE = (
    "Holm: the smallest p after correction for the number of tests. Rejected: share of the tests below 0.05 after it."
)
SMALL_OFFSET = 0.1
FITS_NOTE = (
    "D: Kolmogorov-Smirnov distance of an image's activations to the generalized Gaussian distribution that fits them "
    "best, mean over images; c: median of its shape, which is sought up to 100; offset: |mean| / standard deviation of "
    "the activations before the mean is removed, mean over images."
)
CONTROL_NOTE = (
    "The noise has nothing of the network but the number of activations of each layer and the shape of the "
    "distribution that fits them best: each image's own, or for adversarial images that of their clean twins, which no "
    "detector can tell apart."
)
COST_COLUMNS = ("network alone, ms", "with the features, ms", "added, ms", "head, ms", "images", "needs")
ATTACK_COLUMNS = "images|successes|success, %|median L2|median L∞|calls per image|σ of the noise|seed|options"
TRIAL_COLUMNS = "fitted to|data|images fitted|folds|calibration|seed|seconds"


@table("ks", section="ks")
def ks(results: Results) -> Iterator[Table]:
    """Yields a table per hypothesis, one row per comparison."""
    for name, title in KS_TITLES.items():
        tests = [test for test in results.ks if test.study.partition(".")[0] == name]
        if tests:
            yield _ks_table(results, name, title, tests)


def _ks_table(results: Results, name: str, title: str, tests: Sequence[KsResult]) -> Table:
    shown = H1_COLUMNS if name == KS_POSTERIORS else H2_COLUMNS
    columns = {key: form for key, form in shown.items() if any(key in test.more for test in tests)}
    # a comparison between sources is named by their sides only, so that it needs the data of the trials
    data = results.sources[0] if name == KS_SOURCES and results.sources else ""
    rows = []
    for test in tests:
        split = test.source if name == KS_SOURCES else test.split
        kind = "|".join(results.attack_id(part) for part in test.kind.split("|"))
        paper = results.paper(data or test.source).ks(test.study, split, kind)
        more = (number(factor * test.more.get(key, math.nan), form) for key, (_, factor, form) in columns.items())
        place = test.source if name == KS_SOURCES else f"{test.source}, {test.split}"
        entries = (number(test.p, ".3f", paper), *more, number(test.distance, ".3f"), number(test.images, "d"))
        rows.append(Row(f"{test.kind}: {place}".replace("|", " and "), entries))
    notes = [H1_NOTE, *_h1_notes(tests)] if name == KS_POSTERIORS else [H2_NOTE]
    if "p-adjusted" in columns or "rejected" in columns:
        notes.append(HOLM_NOTE)
    notes.append("D: mean effect size. n: images of the smaller set.")
    beside = f"Beside ours: the paper's p for {results.paper(data or tests[0].source).database}."
    notes.append(beside if any(row.entries[0].paper for row in rows) else "The paper has no counterpart.")
    heads = ("p", *(heading for heading, *_ in columns.values()), "D", "n")
    return Table(f"ks-{name}", title, "images", heads, tuple(rows), tuple(notes))


def _h1_notes(tests: Sequence[KsResult]) -> Iterator[str]:
    """What the shares are, and what follows from them for H1."""
    shares = [(share, test.images) for test in tests if math.isfinite(share := test.more.get(ANY_SHAPE, math.nan))]
    ends = [clopper_pearson(round(share * images), images)[0] for share, images in shares]
    if ends:
        yield ANY_SHAPE_NOTE
        yield (
            f"What follows for H1: it does not hold in {sum(low > SIGNIFICANCE for low in ends)} of {len(ends)} rows, "
            "where more images than chance gives are below 0.05 whatever the shape (95 % intervals of the shares). In "
            "the others nothing speaks against it, which does not show it."
        )


@table("layers", section="layers")
def layers(results: Results) -> Iterator[Table]:
    """Yields a table of fits for every part of the data."""
    for source, split in dict.fromkeys((fit.source, fit.split) for fit in results.layer_fits):
        fits = [fit for fit in results.layer_fits if (fit.source, fit.split) == (source, split)]
        values = {"D": [f.distance for f in fits], "c": [f.shape for f in fits], "offset": [f.offset for f in fits]}
        columns = tuple(f"{fit.kind}, {name}" for name in values for fit in fits)
        rows = tuple(
            Row(layer, tuple(number(float(each[place]), ".2f") for group in values.values() for each in group))
            for place, layer in enumerate(fits[0].layers)
        )
        images = f"Images: {', '.join(f'{fit.images} {fit.kind}' for fit in fits)}."
        title = f"How well a GGD fits each layer, {source}, {split}"
        notes, fold = (FITS_NOTE, *_fit_notes(fits[0]), images), f"{title} ({len(rows)} rows)"
        yield Table(f"layers-{split}", title, "layer", columns, rows, notes, folded_under=fold)


def _fit_notes(fit: LayerFit) -> Iterator[str]:
    """The fits of one kind of images in short; nothing if no layer has one."""
    if not np.isfinite(fit.distance).any() or not np.isfinite(fit.offset).any():
        return
    extremes = []
    for name, values in (("D", fit.distance), ("offset", fit.offset)):
        most = int(np.nanargmax(values))
        middle, top = f"{name} is {np.nanmedian(values):.2f} in the median layer", f"{values[most]:.2f}"
        extremes.append(f"{middle} and at most {top}, in {fit.layers[most]}")
    yield f"Of {fit.kind} images, {'; '.join(extremes)}."
    share = f"{int((fit.offset < SMALL_OFFSET).sum())} of {int(np.isfinite(fit.offset).sum())}"
    yield f"The theory takes the mean for 0; the offset is below {SMALL_OFFSET:g} in {share} layers."


@table("noise-control", section="layers")
def noise_control(results: Results) -> Iterator[Table]:
    """Yields AUROC of mbf on noise in the place of activations."""
    attacks = tuple(dict.fromkeys(control.attack for control in results.noise_controls))
    aurocs = {(control.attack, control.features): control.auroc for control in results.noise_controls}
    for first in results.noise_controls[:1]:
        entries = [tuple(percent(aurocs.get((attack, name))) for attack in attacks) for name in NOISE_CONTROLS]
        sources = f"Fitted to {first.sources} source images at most, tested on {first.tested}."
        title, rows = "AUROC of mbf on noise instead of activations, %", tuple(map(Row, NOISE_CONTROLS, entries))
        yield Table("noise-control", title, "features of", attacks, rows, (CONTROL_NOTE, sources))


@table("costs", section="costs", audiences=PAGE_AND_DOCS)
def costs(results: Results) -> Iterator[Table]:
    """Yields milliseconds per image."""
    paper = results.paper()
    rows = []
    both: dict[str, float] = {}  # the paper's numbers by detector, in our order
    for cost in sorted(results.costs, key=lambda cost: cost.features_ms):
        theirs = paper.number("running-time", detector=results.timing_detector(cost))
        both |= {cost.detector: theirs.values[0]} if theirs else {}
        added, needs = cost.features_ms - cost.forward_ms, ", ".join(cost.needs)
        times = (number(cost.forward_ms, ".2f"), number(cost.features_ms, ".2f", theirs), number(added, ".2f"))
        entries = (*times, number(cost.head_ms, ".3f"), number(cost.images, "d"), *texts(needs))
        rows.append(Row(cost.detector, entries))
    # the paper may have one number for several settings of ours
    groups = [[name for name in both if both[name] == value] for value in sorted(set(both.values()))]
    order = "; ".join(" or ".join(names) for names in groups)
    note = (
        f"Beside ours: the paper's numbers for {paper.database}, on its authors' machine; only their order compares. "
        f"From the least: {'; '.join(both)} here, and {order} there."
    )
    notes = (note,) if both else ()
    yield Table("costs", "Milliseconds per image", "detector", COST_COLUMNS, tuple(rows), notes)


@table("attacks", section="attacks")
def attacks(results: Results) -> Iterator[Table]:
    """Yields success, distance and cost of the attacks, and how many images are left after each step."""
    several = len({each.source for each in results.attack_summaries}) > 1
    steps = tuple(dict.fromkeys(step for each in results.attack_summaries for step, _ in each.remaining))
    footnotes, rows, remaining = Footnotes(), [], []
    for each in results.attack_summaries:
        name = f"{each.attack}, {each.source}" if several else each.attack
        ends = (each.successes / each.sources, *clopper_pearson(each.successes, each.sources)) if each.sources else ()
        measures = map(number, (each.l2, each.linf, each.calls, each.noise_level))
        counts = (number(each.sources, "d"), number(each.successes, "d"), percent(Estimate(*ends) if ends else None))
        entries = (*counts, *measures, number(each.seed, "d"), *texts(_options_text(each.options)))
        rows.append(Row(footnotes.mark(name, each.reduced), entries))
        left = dict(each.remaining)
        remaining.append(Row(name, tuple(number(left.get(step, math.nan), ".0f") for step in steps)))
    notes, columns = (*footnotes.notes, "Distances are those of the successes."), tuple(ATTACK_COLUMNS.split("|"))
    yield Table("attacks", "Success and distance of the attacks", "attack", columns, tuple(rows), notes)
    if steps:
        yield Table("remaining", "Images left after each step", "attack", steps, tuple(remaining))


def _options_text(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items() if value is not None) or "its own"


@picture("pictures", section="attacks")
def pictures(results: Results) -> Iterator[Picture]:
    """Yields example images in the order of their attacks."""
    places = {attack: place for place, attack in enumerate(results.attacks)}
    yield from sorted(results.pictures, key=lambda each: places.get(each.attack, -1))


@table("failures", section="failures", audiences=EVERYONE)
def failures(results: Results) -> Iterator[Table]:
    """Yields the trials that could not be done."""
    rows = tuple(Row(failure.trial, texts(failure.error)) for failure in results.failures)
    note = "They are tried again when the plan is run again."
    yield Table("failures", "Trials that failed", "trial", ("error",), rows, (note,))


@table("settings", section="settings")
def settings(results: Results) -> Iterator[Table]:
    """Yields the plan of the last run, and where it ran."""
    count = len(results.runs)
    note = f"The ledger holds {count} plans; results of the earlier ones are shown unless later ones replaced them."
    for run in results.runs[-1:]:
        title = f"The plan “{run.name}”, scale “{run.scale}”"
        plan, notes = _fact_rows(run.settings), (note,) if count > 1 else ()
        yield Table("settings", title, "setting", ("value",), plan, notes)
        facts: dict[str, Any] = {"network": run.network, "machine": run.machine, "versions": run.versions}
        rows = _fact_rows({**facts, "date": run.date, "digest of the settings": run.key})
        yield Table("environment", "Network, machine and versions", "fact", ("value",), rows)


@table("detectors", section="settings")
def detectors(results: Results) -> Iterator[Table]:
    """Yields one row per detector and settings: its options, and which of them are below its authors'."""
    facts = ((each.detector, each.method, _options_text(each.options), each.reduced) for each in results.outcomes)
    rows = tuple(Row(label, texts(*words)) for label, *words in dict.fromkeys(facts))
    yield Table("detectors", "All detectors", "detector", ("method", "options", "reduced"), rows)


@table("trials", section="settings")
def trials(results: Results) -> Iterator[Table]:
    """Yields one row per trial: how it was fitted, and how long it took."""
    rows = []
    for outcome in results.outcomes:
        seconds = ", ".join(f"{name} {value:.3g}" for name, value in outcome.seconds.items())
        sizes = (outcome.fit_sources, outcome.folds, outcome.calibration, outcome.seed)
        entries = texts(" + ".join(outcome.fitted) or "nothing", outcome.source, *sizes, seconds)
        rows.append(Row(f"{outcome.detector}, {outcome.protocol}", entries))
    notes = (f"{results.replaced} older results were replaced by later ones.",) if results.replaced else ()
    yield Table("trials", "All trials", "trial", tuple(TRIAL_COLUMNS.split("|")), tuple(rows), notes)


def _fact_rows(value: Any, name: str = "") -> tuple[Row, ...]:
    """The entries of nested mappings and lists under names such as `attacks[1].eps`."""
    is_list = isinstance(value, list | tuple)
    if isinstance(value, Mapping):
        return tuple(row for key in value for row in _fact_rows(value[key], f"{name}.{key}" if name else key))
    if is_list and any(isinstance(part, Mapping) for part in value):
        return tuple(row for place, part in enumerate(value) for row in _fact_rows(part, f"{name}[{place}]"))
    text = "" if value is None else ", ".join(map(str, value)) if is_list else str(value)
    return (Row(name, texts(text)),)
