"""Which cells of the paper have their like here, and why the others have none."""

from collections import Counter
from collections.abc import Iterator, Sequence

from benfourier.report.markdown import line, safe
from benfourier.report.paper import DATABASES
from benfourier.report.table import NOTHING, Marks
from tools.results.cells import TITLES, cells, has, part
from tools.results.experiments import Experiment
from tools.results.notes import Note, Place, check, closest

LATER = "not computed yet"


def coverage(experiments: Sequence[Experiment], notes: Sequence[Note]) -> Iterator[str]:
    """Yields a table of the paper's tables and databases: where our numbers stand, or why there are none."""
    places = list(cells())
    lacking = [place for place in places if not any(has(experiment, place) for experiment in experiments)]
    check(notes, lacking, "cell of the paper that has no like here")
    marks = Marks()
    yield line("the paper's table", *DATABASES)
    yield line("---", *("---" for _ in DATABASES))
    for row, title in TITLES.items():
        entries = []
        for database in DATABASES:
            mine = [place for place in places if (_row(place), place["database"]) == (row, database)]
            entries.append(_entry(mine, experiments, notes, marks) if mine else NOTHING)
        yield line(safe(title), *entries)
    yield ""
    told = f"Numbers of cells, each with a link to ours; {NOTHING} where the paper has no such table."
    yield "  \n".join([told, *marks.notes])


def _row(place: Place) -> str:
    return f"{place['table']} {place['metric']}" if "metric" in place else place["table"]


def _entry(places: Sequence[Place], experiments: Sequence[Experiment], notes: Sequence[Note], marks: Marks) -> str:
    """Links to the cells that are there, and what keeps us from the others."""
    parts, lacking = [], list(places)
    for experiment in experiments:
        mine = [place for place in places if has(experiment, place)]
        lacking = [place for place in lacking if place not in mine]
        count = f"all {len(places)}" if len(mine) == len(places) else f"{len(mine)} of {len(places)}"
        if mine:
            parts.append(f"[{count}](#{experiment.anchor(part(places[0]))})")
    reasons = Counter(note.why if note else "" for note in (closest(notes, place) for place in lacking))
    for why, number in reasons.items():
        words = marks.mark("none", why) if why else LATER
        parts.append(words if number == len(places) else f"{number} {words}")
    return ", ".join(parts)
