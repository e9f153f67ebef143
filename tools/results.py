"""docs/results.md from the ledgers in experiments/results and the notes in experiments/notes.toml."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benfourier.errors import StoreError
from benfourier.metrics.registry import OUTCOME_METRICS
from benfourier.report import Results, drawing
from benfourier.report.detection_tables import ALWAYS, BELOW_MARK
from benfourier.report.findings import NEAR, differences
from benfourier.report.paper import DATABASES, NONE, all_cells
from benfourier.report.render import escape, line, table_lines
from benfourier.report.results import AUROC, MEAD, CellRef, WorstCase, find_cell
from benfourier.report.table import NOTHING, Footnotes, Table, join, missing, percent_text, plural
from benfourier.store.ledger import read
from benfourier.store.records import Estimate
from benfourier.store.vocabulary import BASELINE, MBF, ProtocolName
from tools.experiments import CHANCE, Comparison, Experiment, compare, facts, has_cell
from tools.notes import Note, Notes, Place, check_notes, closest, read_notes

REPRODUCTION = "reproduce"  # not an experiment: everyone's own run makes it
SAME_ATTACK = ProtocolName.SAME_ATTACK
ATTACKS = ("bim", "r-pgd", "deepfool", "cw-l2")  # of the first table
INTRO = """# Results

Our numbers beside those of Ma et al. ([arXiv:2005.05552](https://arxiv.org/abs/2005.05552)). `python -m tools.docs`
writes this page from the ledgers in `experiments/results/`. `benfourier report LEDGER --out report.html` shows all
tables of one; `benfourier evaluate PLAN --data-dir FOLDER` runs its plan again. [report.md](report.md) says how to read
tables, [evaluation.md](evaluation.md) what was fitted to and tested on what, [detectors.md](detectors.md) what each
detector is.

- Behind the bar is the paper's number. 95 % intervals, drawn by source image, are in the first two tables and in the
  report of each ledger. Differences are taken before rounding; milliseconds and p are not among them.
- `mbf` is our setting, `mbf, paper` the paper's: they differ in the SVM's C, 10 and 1, and the paper's also uses layers
  that only pass numbers on. `mbf, boosted trees` has trees instead of the SVM. All of them read every entry of a layer;
  by default the package now reads 4096, which changes [AUROC by little](features.md#how-many-entries).
- `bim`, `r-pgd`, `deepfool` and `cw-l2` stop at the decision boundary. With a distance or a confidence in their name
  they go on to it; those are the fixed strengths.
- ▼ marks what lies significantly below `max-softmax`, which needs no fitting. Where the paper contradicts itself, both
  of its values stand, with a question mark; the larger difference counts."""
HEADLINE_NOTE = (
    "AUROC in percent with 95 % intervals, fitted to and tested on the attack of the column, other images; `mbf` with "
    "the paper's settings where it was run."
)
WORST_NOTE = """Bold: the best worst case of all detectors tested on all attacks, whether fitted to all of them, to all
fixed strengths, or to one of those. Below it: the best of those fitted to all attacks, mbf, and max-softmax. All
caught: share of the images whose every successful attack is caught, at 5 % false alarms. A cell holds only images on
which its attack succeeded, so strengths are compared on different images."""
TITLES = {  # of the paper's tables
    "non-transfer auroc": "Same attack in fit and test, AUROC",
    "non-transfer accuracy": "Same attack in fit and test, accuracy",
    "attack-transfer auroc": "Another attack, AUROC",
    "attack-transfer accuracy": "Another attack, accuracy",
    "data-transfer auroc": "Another source of images, AUROC",
    "ks-h1": "KS, H1",
    "ks-h2-pairs": "KS, H2, pairs of kinds",
    "ks-h2-sources": "KS, H2, pairs of sources",
    "defense-gan auroc": "Beside Defense-GAN, AUROC",
    "c1c2 auroc": "Beside C1&C2t/u, AUROC",
    "running-time": "Milliseconds per image",
}
MEAD_TITLE = OUTCOME_METRICS[MEAD].title
MAX_ROWS = 15  # of tables on the page; an ablation's are in its report


@dataclass(frozen=True)
class Project:
    """All experiments, in the order of the paper's databases, and the notes."""

    experiments: tuple[Experiment, ...]  # all but `make reproduce`
    notes: Notes  # written by hand


def load(root: Path) -> Project:
    """Returns the ledgers and notes of a project's folder; raises StoreError for a note that points to nothing."""
    notes = read_notes(root / "experiments" / "notes.toml")
    experiments = []
    for path in sorted((root / "experiments" / "results").glob("*.jsonl"), key=lambda path: path.stem):
        results = Results.from_records(read(path), notes.experiments.get(path.stem, {}).get("paper"))
        if results.runs or not results.is_empty:
            experiments.append(Experiment(path.stem, results))
    shown = [each for each in experiments if each.name != REPRODUCTION]
    for name in notes.experiments:
        if name not in [each.name for each in shown]:
            names = ", ".join(each.name for each in shown) or "none"
            raise StoreError(f"notes speak of the experiment {name!r}; there are: {names}")
    far = [each.place for experiment in shown for each in compare(experiment) if each.is_large]
    check_notes(notes.difference, far, "difference above two points")
    lacking = [cell.place for cell in all_cells() if not any(has_cell(each, cell.place) for each in shown)]
    check_notes(notes.lacking, lacking, "cell of the paper that has no like here")
    shown.sort(key=lambda each: (*DATABASES, NONE).index(each.database))
    return Project(tuple(shown), notes)


def page(project: Project) -> str:
    """Returns docs/results.md."""
    lines = [INTRO, "", "## In short", *_in_short(project)]
    worst = list(worst_case_lines(project.experiments))
    lines += ["", "## One detector for all attacks", "", WORST_NOTE, "", *worst] if worst else []
    lines += ["", "## Every table of the paper", "", *coverage(project)]
    printed: set[str] = set()
    for experiment in project.experiments:
        lines += _experiment_lines(experiment, project.notes, printed)
    return "\n".join(lines) + "\n"


def _share(estimate: Estimate) -> str:
    return percent_text(estimate).replace(" %", "")


def figures(project: Project) -> dict[str, str]:
    """Returns the figures of the page by name of the file: curves only, no images of any database."""
    return {
        name: drawing.file(figure) for experiment in project.experiments for name, figure in experiment.figures.items()
    }


def _in_short(project: Project) -> Iterator[str]:
    """A few sentences and the first table."""
    if not project.experiments:
        yield from ("", "No experiment has been run yet.")
    first = {each.database: each for each in reversed(project.experiments) if any(_first_rows(each))}
    shown = [first[database] for database in DATABASES if database in first]
    short = [facts["short"] for facts in project.notes.experiments.values() if "short" in facts]
    sentences = [*_beside_paper(shown), *short]
    yield from ("", *(f"- {sentence}" for sentence in sentences)) if sentences else ()
    rows = [row for experiment in shown for row in _first_rows(experiment)]
    if rows:
        yield from ("", line("data, network", "detector", *(f"`{attack}`" for attack in ATTACKS)))
        yield from (line(*["---"] * (2 + len(ATTACKS))), *rows, "", HEADLINE_NOTE)


def _beside_paper(shown: Sequence[Experiment]) -> Iterator[str]:
    pairs = [
        (each.database, difference)
        for each in shown
        for difference in differences(each.results, each.results.paper_mbf or "")
        if difference.metric == "auroc" and difference.ref.outcome.protocol == SAME_ATTACK
    ]
    far = sorted((pair for pair in pairs if pair[1].is_large), key=lambda pair: -abs(pair[1].points))
    places = join([f"{database}, {each.ref.name} ({each.points:+.1f})" for database, each in far])
    if pairs:
        yield (
            f"{SAME_ATTACK.title}: mbf with the paper's settings has the paper's AUROC within {NEAR:.0f} points in "
            f"{len(pairs) - len(far)} of {plural(len(pairs), 'cell')}{f'; farther: {escape(places)}' if far else ''}."
        )


def _first_rows(experiment: Experiment) -> Iterator[str]:
    """Rows of the first table: the paper's mbf of ours, the paper's number, the baseline."""
    results, label = experiment.results, experiment.results.paper_mbf
    outcomes, paper = results.of(SAME_ATTACK, experiment.source), results.paper(experiment.source)
    labels = (label, BASELINE)
    refs = {name: [find_cell(outcomes, name, attack, attack) for attack in ATTACKS] for name in labels if name}
    if not label or not any(refs[label]):
        return
    ours, baseline = (list(map(_first_entry, refs[name])) for name in (label, BASELINE))
    printed = [paper.beside(SAME_ATTACK, "auroc", MBF, attack, attack) for attack in ATTACKS]
    network = f"{experiment.database}, {escape(results.network)}{experiment.accuracy}"
    yield line(network, f"`{label}`", *ours)
    yield line("", "`mbf` in the paper", *(str(number) if number else NOTHING for number in printed))
    yield line("", f"`{BASELINE}`", *baseline)


def _first_entry(ref: CellRef | None) -> str:
    """AUROC with its interval and the mark of those below the baseline, or why there is none."""
    if ref is None or not ref.known(AUROC):
        return "too few" if ref else NOTHING
    return f"{_share(ref.auroc)}{f' {BELOW_MARK}' * ref.is_below_baseline}"


def worst_case_lines(experiments: Sequence[Experiment]) -> Iterator[str]:
    """Yields a table: of each experiment the best case, the best fitted to all attacks, mbf, and the baseline."""
    rows = []
    for experiment in experiments:
        cases, labels = experiment.cases, {MBF, experiment.results.paper_mbf, BASELINE}
        whole = next((case for case in cases if case.outcome.protocol == ProtocolName.ALL_ATTACKS), None)
        for case in cases:
            main = case.outcome.detector in labels and case.fit in ("all attacks", "nothing")
            if main or case in (cases[0], whole):
                rows.append(_worst_case_line(experiment, case, is_best=case is cases[0]))
    if rows:
        heads = ("experiment", "detector", "fitted to", "attacks", "worst AUROC, %", "under", "all caught, %")
        yield from (line(*heads), line("---", "---", "---", "---:", "---:", "---", "---:"), *rows)


def _worst_case_line(experiment: Experiment, case: WorstCase, *, is_best: bool) -> str:
    name = escape(case.outcome.detector)
    return line(
        f"[{escape(experiment.name)}](#{experiment.name})" if is_best else "",
        f"**{name}**" if is_best else name,
        escape(case.fit),
        str(case.attacks),
        _share(case.worst),
        escape(case.attack),
        _share(case.mead) if case.mead else NOTHING,
    )


def coverage(project: Project) -> Iterator[str]:
    """Yields a table of the paper's tables and databases: where our numbers stand, or why there are none."""
    footnotes = Footnotes()
    yield line("the paper's table", *DATABASES)
    yield line("---", *("---" for _ in DATABASES))
    places: dict[tuple[str, str], list[Place]] = {}
    for cell in all_cells():
        row = " ".join(cell.place[key] for key in ("table", "metric") if key in cell.place)
        places.setdefault((row, cell.place["database"]), []).append(cell.place)
    for row, title in TITLES.items():
        entries = (_coverage_entry(places.get((row, database), []), project, footnotes) for database in DATABASES)
        yield line(escape(title), *entries)
    note = f"Numbers of cells, each with a link to ours; {NOTHING} where the paper has no such table."
    yield from ("", "  \n".join([note, *footnotes.notes]))


def _coverage_entry(places: Sequence[Place], project: Project, footnotes: Footnotes) -> str:
    """Links to the cells that are there, and the reason for each that is not."""
    parts, lacking = [], list(places)
    for experiment in project.experiments:
        own = [place for place in places if has_cell(experiment, place)]
        lacking = [place for place in lacking if place not in own]
        count = f"all {len(places)}" if len(own) == len(places) else f"{len(own)} of {len(places)}"
        if own:
            parts.append(f"[{count}](#{experiment.name})")
    reasons = Counter(note.why if note else "" for note in (closest(project.notes.lacking, each) for each in lacking))
    for why, number in reasons.items():
        words = footnotes.mark("none", why) if why else "not computed yet"
        parts.append(words if number == len(places) else f"{number} {words}")
    return ", ".join(parts) or NOTHING


def _experiment_lines(experiment: Experiment, notes: Notes, printed: set[str]) -> Iterator[str]:
    """One experiment: what it is, its main tables and figures, and its differences from the paper with reasons.

    Args:
        experiment: of which.
        notes: written by hand.
        printed: notes below tables that need not be said again.
    """
    name = experiment.name
    yield from ("", f"## {escape(name)}")
    about = notes.experiments.get(name, {}).get("about")
    yield from ("", about) if about else ()
    yield from ("", *facts(experiment))
    own: set[str] = set()  # footnotes (¹) and letters of columns (a), which are the same in all tables of a ledger
    for table in _tables(experiment):
        below = tuple(note for note in table.notes if note not in printed | own)
        for note in below:
            (own if note[0] in "(¹²³⁴⁵⁶⁷⁸⁹" else printed).add(note)
        yield from ("", *table_lines(replace(table, notes=below, differs_from_paper=False), intervals=False))
    yield from _cost_lines(experiment.results)
    titles = ((escape(figure.title.partition(",")[0]), file) for file, figure in experiment.figures.items())
    links = (f"[{title}](figures/{file})" for title, file in titles)
    if experiment.figures:
        yield from ("", f"Figures: {'; '.join(links)}.")
    yield from _difference_lines(experiment, notes.difference)


def _tables(experiment: Experiment) -> Iterator[Table]:
    """The tables of the page; of accuracy only the rows that have the paper's beside them."""
    tables = experiment.report.tables
    overall = tables.get("mixed-overall")
    for table in tables.values():
        if len(table.rows) > MAX_ROWS or table.id in ("mixed-overall", "costs"):
            continue
        if table.id == "mixed-auroc" and overall:
            column = overall.columns.index(MEAD_TITLE) if MEAD_TITLE in overall.columns else None
            shares = {row.name: row.entries[column] for row in overall.rows} if column is not None else {}
            rows = tuple(replace(row, entries=(*row.entries, shares.get(row.name, missing()))) for row in table.rows)
            yield replace(table, columns=(*table.columns, "all caught at 5 %"), rows=rows)
        elif not table.id.endswith("-accuracy"):
            yield table
        elif table.has_paper:
            rows = tuple(row for row in table.rows if any(entry.paper for entry in row.entries))
            yield replace(table, rows=rows, notes=tuple(note for note in table.notes if ALWAYS not in note))


def _cost_lines(results: Results) -> Iterator[str]:
    """Milliseconds per image in a sentence, the paper's in brackets."""
    costs = sorted(results.costs, key=lambda cost: cost.features_ms)
    if costs:
        paper = results.paper(results.sources[0] if results.sources else "")
        numbers = ((cost, paper.number("running-time", detector=results.timing_detector(cost))) for cost in costs)
        parts = (f"{cost.detector} {cost.features_ms:.3g}{f' ({number})' * bool(number)}" for cost, number in numbers)
        alone = f"{costs[0].forward_ms:.3g} for the network alone"
        yield from ("", escape(f"Milliseconds per image, the paper's in brackets: {alone}; {'; '.join(parts)}."))


def _difference_lines(experiment: Experiment, notes: Sequence[Note]) -> Iterator[str]:
    """Every reason with its rows, then the rows that have none."""
    every = list(compare(experiment))
    by_reason: dict[str, list[Comparison]] = {}
    for each in every:
        if each.is_large:
            by_reason.setdefault(each.reason(notes), []).append(each)
    if not every:
        return
    count = sum(map(len, by_reason.values()))
    share = f"{count} of {len(every)} numbers"
    yield from ("", f"**Differences above two points**: {share}.", "")
    for why in sorted(by_reason, key=lambda why: (why == CHANCE) + 2 * (not why)):
        detectors: dict[str, list[float]] = {}
        for each in by_reason[why]:
            detectors.setdefault(each.detector, []).append(each.points)
        places = "; ".join(f"{escape(name)} {_points(points)}" for name, points in detectors.items())
        yield f"- {why or '**Not explained yet.**'} ({places})"


def _points(points: Sequence[float]) -> str:
    low, high = f"{min(points):+.1f}", f"{max(points):+.1f}"
    return low if low == high else f"{low} to {high} in {plural(len(points), 'cell')}"
