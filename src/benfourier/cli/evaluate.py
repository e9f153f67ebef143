"""`benfourier evaluate`: a plan, from its file to a ledger."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benfourier.cli import options
from benfourier.cli.codes import INCOMPLETE, INTERRUPTED
from benfourier.cli.printing import print_json, print_table
from benfourier.errors import check_choice, check_whole

if TYPE_CHECKING:
    from benfourier.evaluation.plan import Plan
    from benfourier.evaluation.runner import Summary
    from benfourier.evaluation.trials import Trial


def evaluate(
    plan: Annotated[Path, typer.Argument(help="A TOML file.", show_default=False)],
    ledger: Annotated[
        Path | None,
        typer.Option("--ledger", "-l", help="File to append to. [default: the plan's ledger, or its name with .jsonl]"),
    ] = None,
    scale: Annotated[str | None, typer.Option("--scale", help="Tables of the plan that are laid over it.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="Folder that stands for {data} in the plan.")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", help="Processes that run trials, one thread each.")] = 1,
    only: Annotated[str | None, typer.Option("--only", help="One protocol, without the studies.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the plan and list its trials.")] = False,
    json: options.Json = False,
) -> None:
    """Run a plan: train, attack, fit, score, and keep every outcome in a ledger.

    A second start goes on where the first one was interrupted.

    Example: `benfourier evaluate mnist.toml --workers 2`
    """
    from benfourier.evaluation.executors import InProcess, ProcessPool
    from benfourier.evaluation.network import fresh
    from benfourier.evaluation.plan_reading import check_opens, read_plan
    from benfourier.evaluation.protocols import trials_of
    from benfourier.evaluation.runner import evaluate as run

    check_whole("workers", workers)
    found = read_plan(plan, scale=scale, data_dir=data_dir)
    if only is not None:
        check_choice("only", only, found.protocols)
    usual = plan.parent / found.ledger if found.ledger else plan.with_suffix(".jsonl")
    file = ledger or (usual if found.scale == "here" else usual.with_suffix(f".{found.scale}.jsonl"))
    if dry_run:
        check_opens(found)
        fresh(found)
        _list(found, trials_of(found, found.source, " + ".join(found.other), only), file, json=json)
        return
    try:
        came = run(found, file, executor=InProcess() if workers == 1 else ProcessPool(workers), only=only)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; {file} holds what was done, and the same command goes on from there", err=True)
        raise typer.Exit(INTERRUPTED) from None
    _show(came, json=json)
    if came.failures:
        raise typer.Exit(INCOMPLETE)


def _list(plan: "Plan", trials: "Sequence[Trial]", ledger: Path, *, json: bool) -> None:
    """Prints what would be done."""
    rows = [
        (trial.detector, ", ".join(trial.fitted), ask.protocol, ", ".join(target.attack for target in ask.targets))
        for trial in trials
        for ask in trial.asks
    ]
    columns = ("detector", "fitted to", "protocol", "tested on")
    if json:
        listed = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"settings": plan.settings(), "ledger": str(ledger), "trials": len(trials), "outcomes": listed})
        return
    print_table(f"{plan.name}: {len(trials)} trials, {len(rows)} outcomes", columns, rows)
    typer.echo(
        f"up to {plan.sources} source images, {plan.calibration} for thresholds; studies: "
        f"{', '.join(plan.studies) or 'none'}; nothing was run; the ledger would be {ledger}"
    )


def _show(came: "Summary", *, json: bool) -> None:
    """Prints what came of it."""
    failures = [{"trial": failure.trial, "error": failure.error} for failure in came.failures]
    if json:
        counts = {"trials": came.trials, "run": came.run, "outcomes": came.outcomes, "records": came.records}
        print_json({"ledger": str(came.ledger), **counts, "failures": failures})
        return
    done = came.trials - came.run
    typer.echo(
        f"{came.run} of {came.trials} trials run{f', {done} were done before' if done else ''}; "
        f"{came.outcomes} outcomes and {came.records} other records written to {came.ledger}"
    )
    for failure in came.failures:
        typer.echo(f"failed: {failure.trial}: {failure.error}", err=True)
    if came.failures:
        typer.echo("the same command tries again what failed", err=True)
