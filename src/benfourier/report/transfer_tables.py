"""Tables of detectors that meet attacks which they were not fitted to."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from benfourier.report.counterparts import known_as, papers_mbf
from benfourier.report.grids import Line, grid, lines
from benfourier.report.notes import few_notes, own_note, paper_notes, with_always
from benfourier.report.results import ALONE, MBF, STRENGTH, TRANSFER, TRIVIAL, Found, Results, cell_of
from benfourier.report.table import Table
from benfourier.report.tables import TITLES
from benfourier.store.records import Outcome

ROW_AND_COLUMN = "fit ↓ test →"


def matrices(results: Results, source: str) -> Iterator[Table]:
    """Yields a table per metric and detector: fitted to one attack, tested on each."""
    for metric in ("auroc", "accuracy"):
        for detector in results.detectors:
            table = matrix(results, source, detector, metric)
            if table is not None:
                yield table


def matrix(results: Results, source: str, detector: str, metric: str) -> Table | None:
    """Returns the table of one detector, or None if it did not take part."""
    rows = transfer_lines(results, source, detector, metric)
    if not rows:
        return None
    attacks = _matrix_attacks(results, source)
    title = f"{TITLES[metric]} of {detector}, %"
    notes = [*_beside(results, source, metric, rows), *few_notes(rows)]
    name = f"attack-transfer-{metric}-{results.detectors.index(detector) + 1}"
    table = grid(name, title, metric, attacks, rows, corner=ROW_AND_COLUMN, best=False, notes=notes)
    return replace(with_always(table, rows), fold="Accuracy, detector by detector") if metric == "accuracy" else table


def transfer_lines(results: Results, source: str, detector: str, metric: str) -> tuple[Line, ...]:
    """Returns a line per attack that the detector was fitted to; the diagonal may come from non-transfer trials."""
    crossed = [outcome for outcome in results.of(TRANSFER, source) if outcome.detector == detector]
    if not crossed:
        return ()
    paper, outcomes = results.paper(source), (*results.of(ALONE, source), *results.of(TRANSFER, source))
    attacks, known = _matrix_attacks(results, source), known_as(results, crossed[-1])
    return tuple(
        Line(
            fitted,
            tuple(cell_of(outcomes, detector, fitted, attack) for attack in attacks),
            tuple(
                paper.transfer(metric, known, results.method_of(fitted), results.method_of(attack))
                for attack in attacks
            ),
            known=(known,) * len(attacks),
        )
        for fitted in attacks
    )


def _beside(results: Results, source: str, metric: str, rows: Sequence[Line]) -> list[str]:
    """What is said of the paper: of other settings of mbf than its own, where its numbers stand."""
    paper, own = results.paper(source), papers_mbf(results)
    attacks = [results.method_of(line.name) for line in rows]
    there = any(paper.transfer(metric, MBF, fitted, tested) for fitted in attacks for tested in attacks)
    other = not any(any(line.known) for line in rows)
    return [own_note(own)] if own and other and there else paper_notes(paper, source, rows)


def strengths(results: Results, source: str) -> Iterator[Table]:
    """Yields tables of fits to boundary attacks, tested on fixed strengths, and of fits to these, tested on all."""
    outcomes, boundary = results.of(STRENGTH, source), boundary_attacks(results)
    near = [outcome for outcome in outcomes if set(outcome.fitted) <= boundary]
    far = [outcome for outcome in outcomes if outcome not in near]
    yield from _one_way(results, "strength-up", "boundary attacks, tested at fixed strengths", near)
    yield from _one_way(results, "strength-down", "fixed strengths, tested on all attacks", far)


def _one_way(results: Results, name: str, way: str, outcomes: Sequence[Outcome]) -> Iterator[Table]:
    columns = results.tested(outcomes)
    rows = _strength_lines(results, outcomes, columns)
    notes = [*_fitted_notes(outcomes), *few_notes(rows)]
    corner = "detector" if _fitted_notes(outcomes) else "detector, fitted to"
    for metric in ("auroc", "accuracy") if outcomes else ():
        title = f"{TITLES[metric]}, %, fitted to {way}"
        table = grid(f"{name}-{metric}", title, metric, columns, rows, corner=corner, best=False, notes=notes)
        yield replace(with_always(table, rows), fold=title) if metric == "accuracy" else table


def boundary_attacks(results: Results) -> set[str]:
    """Returns the labels of attacks that stop at the boundary, as the plan says, or as the protocols used them."""
    told: Any = results.settings.get("attacks", ())
    roles = {str(a.get("label", a.get("name"))): a.get("role", "boundary") for a in told if isinstance(a, dict)}
    used = {label for o in (*results.of(ALONE), *results.of(TRANSFER)) for label in o.fitted}
    return {label for label, role in roles.items() if role == "boundary"} | (used - roles.keys())


def fitted_name(fitted: Sequence[str]) -> str:
    """Returns what a detector was fitted to, in few words."""
    rest = len(fitted) - 1
    return " and ".join([*fitted[:1], *([f"{rest} more"] if rest > 1 else fitted[1:])]) or "nothing"


def _strength_lines(results: Results, outcomes: Sequence[Outcome], columns: Sequence[str]) -> tuple[Line, ...]:
    made: list[Line] = []
    alike = bool(_fitted_notes(outcomes))
    for detector in results.detectors:
        mine = [outcome for outcome in outcomes if outcome.detector == detector]
        for fitted in dict.fromkeys(outcome.fitted for outcome in mine):
            same = [outcome for outcome in mine if outcome.fitted == fitted]
            name = detector if alike else f"{detector}, {fitted_name(fitted)}"
            found = tuple(cell_of(same, detector, None, column) for column in columns)
            made.append(Line(name, found, (None,) * len(columns), same[0].method == TRIVIAL))
    if not any(line.trivial for line in made):
        made += [line for line in lines(results, columns, _nothing) if line.trivial]
    return tuple(made)


def _fitted_notes(outcomes: Sequence[Outcome]) -> list[str]:
    """What all were fitted to, if it was the same; the rows need not say it then."""
    fits = {outcome.fitted for outcome in outcomes if outcome.fitted}
    return [f"Fitted to {', '.join(fitted)} together." for fitted in fits if len(fits) == 1 and len(fitted) > 1]


def _nothing(detector: str, attack: str) -> Found | None:
    return None


def _matrix_attacks(results: Results, source: str) -> list[str]:
    outcomes = results.of(TRANSFER, source)
    labels = {label for outcome in outcomes for label in (*outcome.fitted, *(cell.attack for cell in outcome.cells))}
    return [attack for attack in results.attacks if attack in labels]
