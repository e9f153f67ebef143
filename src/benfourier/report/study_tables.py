"""Tables of costs, and of how the attacks fared."""

import math
from collections.abc import Iterator

from benfourier.report.counterparts import timed_as
from benfourier.report.entries import number, words
from benfourier.report.results import Results
from benfourier.report.table import Entry, Marks, Row, Table
from benfourier.store.records import Cost, Crafted
from benfourier.theory.rates import clopper_pearson

COSTS = ("network alone, ms", "with the numbers, ms", "added, ms", "classifier, ms", "images", "needs")
FARED = "images|successes|success, %|median L2|median L∞|calls per image|σ of the noise|seed|options".split("|")


def costs(results: Results) -> Iterator[Table]:
    """Yields the table of times."""
    if not results.costs:
        return
    paper = results.paper(results.sources[0] if results.sources else "")

    def entries(cost: Cost) -> tuple[Entry, ...]:
        return (
            number(cost.forward_ms, ".2f"),
            number(cost.features_ms, ".2f", paper.milliseconds(timed_as(results, cost))),
            number(cost.features_ms - cost.forward_ms, ".2f"),
            number(cost.classifier_ms, ".3f"),
            number(cost.images, "d"),
            *words(", ".join(cost.needs)),
        )

    ordered = sorted(results.costs, key=lambda cost: cost.features_ms)
    rows = tuple(Row(cost.detector, entries(cost)) for cost in ordered)
    both = [(row.name, row.entries[1].paper.values[0]) for row in rows if row.entries[1].paper]
    theirs: dict[float, list[str]] = {}  # it may have one number for several settings of ours
    for name, value in both:
        theirs.setdefault(value, []).append(name)
    there = "; ".join(" or ".join(theirs[value]) for value in sorted(theirs))
    beside = (
        f"Beside ours: the paper's numbers for {paper.database}, on its authors' machine; only their order compares. "
        f"From the least: {'; '.join(name for name, _ in both)} here, and {there} there."
    )
    notes = (beside,) if both else ()
    yield Table("costs", "Milliseconds per image", "detector", COSTS, rows, notes)


def crafted(results: Results) -> Iterator[Table]:
    """Yields how the attacks fared, and how many images fell on the way."""
    if not results.crafted:
        return
    marks = Marks()
    rows = tuple(Row(marks.mark(_name(results, made), made.reduced), _fared(made)) for made in results.crafted)
    notes = (*marks.notes, "Distances are those of the successes.")
    yield Table("crafted", "How the attacks fared", "attack", tuple(FARED), rows, notes)
    steps = tuple(dict.fromkeys(step for made in results.crafted for step, _ in made.funnel))
    left = tuple(Row(_name(results, made), _left(made, steps)) for made in results.crafted)
    if steps:
        yield Table("funnel", "Images left after each step", "attack", steps, left)


def _left(made: Crafted, steps: tuple[str, ...]) -> tuple[Entry, ...]:
    counts = dict(made.funnel)
    return tuple(number(counts.get(step, math.nan), ".0f") for step in steps)


def _name(results: Results, made: Crafted) -> str:
    several = len({other.source for other in results.crafted}) > 1
    return f"{made.attack}, {made.source}" if several else made.attack


def _fared(made: Crafted) -> tuple[Entry, ...]:
    options = ", ".join(f"{name} {value}" for name, value in made.options.items() if value is not None)
    return (
        number(made.sources, "d"),
        number(made.successes, "d"),
        _rate(made.successes, made.sources),
        *(number(value) for value in (made.l2, made.linf, made.calls, made.noise_level)),
        number(made.seed, "d"),
        *words(options or "its own"),
    )


def _rate(hits: int, trials: int) -> Entry:
    if not trials:
        return number(math.nan)
    low, high = (100 * end for end in clopper_pearson(hits, trials))
    return Entry(f"{100 * hits / trials:.1f}", 100 * hits / trials, low, high)
