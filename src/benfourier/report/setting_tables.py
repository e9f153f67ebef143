"""Tables of what was asked for, where it ran, and what went wrong."""

from collections.abc import Iterator, Mapping
from typing import Any

from benfourier.report.entries import words
from benfourier.report.results import Results
from benfourier.report.table import Row, Table


def settings(results: Results) -> Iterator[Table]:
    """Yields the plan of the last run, and where it ran."""
    if not results.runs:
        return
    run = results.runs[-1]
    plan = tuple(Row(name, words(value)) for name, value in flat(run.settings))
    earlier = len(results.runs) - 1
    told = (
        f"The ledger holds {earlier + 1} plans; results of the earlier ones stand here unless later ones replaced them."
    )
    notes = (told,) if earlier else ()
    if plan:
        yield Table("settings", f"The plan “{run.name}”, scale “{run.scale}”", "setting", ("value",), plan, notes)
    facts: dict[str, Any] = {"network": run.network, "machine": run.machine, "versions": run.versions}
    facts |= {"date": run.date, "digest of the settings": run.key}
    rows = tuple(Row(name, words(value)) for name, value in flat(facts))
    yield Table("environment", "Network, machine and versions", "fact", ("value",), rows)


def trials(results: Results) -> Iterator[Table]:
    """Yields one row per trial: how it was fitted, and how long it took."""
    rows = []
    for outcome in results.outcomes:
        seconds = ", ".join(f"{name} {value:.3g}" for name, value in outcome.seconds.items())
        options = ", ".join(f"{name} {value}" for name, value in outcome.options.items() if value is not None)
        rows.append(
            Row(
                f"{outcome.detector}, {outcome.protocol}",
                words(
                    " + ".join(outcome.fitted) or "nothing", outcome.source, outcome.fit_sources, outcome.folds,
                    outcome.calibration, outcome.seed, seconds, options or "its own", outcome.reduced,
                ),
            )
        )  # fmt: skip
    columns = ("fitted to", "data", "images fitted", "folds", "calibration", "seed", "seconds", "options", "reduced")
    notes = (f"{results.replaced} older results were replaced by later ones.",) if results.replaced else ()
    if rows:
        yield Table("trials", "All trials", "trial", columns, tuple(rows), notes)


def failures(results: Results) -> Iterator[Table]:
    """Yields the trials that could not be done."""
    rows = tuple(Row(failure.trial, words(failure.error)) for failure in results.failures)
    if rows:
        note = "They are tried again when the plan is run again."
        yield Table("failures", "Trials that failed", "trial", ("error",), rows, (note,))


def flat(facts: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yields the entries of nested mappings and lists under names such as `attacks[1].eps`."""
    for name, value in facts.items():
        yield from _flat(f"{before}{name}", value)


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        yield from flat(value, f"{name}.")
    elif isinstance(value, list | tuple) and any(isinstance(part, Mapping) for part in value):
        for place, part in enumerate(value):
            yield from _flat(f"{name}[{place}]", part)
    elif isinstance(value, list | tuple):
        yield name, ", ".join(map(str, value))
    else:
        yield name, "" if value is None else str(value)
