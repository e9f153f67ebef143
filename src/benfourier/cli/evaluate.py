"""`benfourier evaluate`: a plan, from its file to a ledger."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import benfourier as bf
from benfourier.cli import options, output
from benfourier.errors import check_choice


def evaluate(
    plan: Annotated[Path, typer.Argument(help="A TOML file.")],
    ledger: Annotated[
        Path | None,
        typer.Option("--ledger", "-l", help="File to append to. [default: the plan's ledger, or its name with .jsonl]"),
    ] = None,
    scale: Annotated[str | None, typer.Option("--scale", help="Tables of the plan that are laid over it.")] = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Folder for {data} in the plan.")] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Processes, one thread each. [default: one per core, or one on a GPU]"),
    ] = None,
    only: Annotated[str | None, typer.Option("--only", help="One protocol, without the studies.")] = None,
    executor: options.Executor = "local",
    address: options.Address = None,
    task_cpus: options.TaskCpus = None,
    task_gpus: options.TaskGpus = None,
    task_memory: options.TaskMemory = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the plan and list its trials.")] = False,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Run a plan: train, attack, fit, score, and write every outcome to a ledger.

    A second start goes on where the first one was interrupted.

    Example: `benfourier evaluate mnist.toml --workers 2`
    """
    if executor == "local" and workers is None and device not in (None, "cpu"):
        workers = 1  # processes would share the memory of one GPU
    ray = options.ray_options(executor, workers, address, task_cpus, task_gpus, task_memory)
    place = options.executor_from(workers) if ray is None else bf.RayExecutor(**ray)
    chosen = bf.read_plan(plan, scale=scale, data_dir=data_dir)
    if only is not None:
        check_choice("only", only, chosen.protocols)
    usual = plan.parent / chosen.ledger if chosen.ledger else plan.with_suffix(".jsonl")
    file = ledger or (usual if chosen.scale == "here" else usual.with_suffix(f".{chosen.scale}.jsonl"))
    if dry_run:
        _print_dry_run(chosen, bf.dry_run(chosen, file, only=only), file, json=json)
        return
    with output.resumable(lambda: f"{file} holds what was done, and the same command goes on from there"):
        summary = bf.evaluate(chosen, file, executor=place, only=only, device=device).summary
    _print_summary(summary, json=json)
    if summary.failures:
        raise typer.Exit(output.INCOMPLETE)


def _print_dry_run(plan: "bf.Plan", run: "bf.DryRun", ledger: Path, *, json: bool) -> None:
    """Prints what would be done."""
    columns = ("detector", "fitted to", "protocol", "tested on")
    rows = [
        (trial.detector, ", ".join(trial.fitted), trial.protocol.value, ", ".join(t.attack for t in trial.targets))
        for trial in run.trials
    ]
    if json:
        outcomes = [dict(zip(columns, row, strict=True)) for row in rows]
        counts = {"trials": len(rows), "left_behind": run.left_behind}
        output.print_json({"settings": plan.settings(), "ledger": str(ledger), **counts, "outcomes": outcomes})
        return
    output.print_table(f"{plan.name}: {len(rows)} trials", columns, rows)
    typer.echo(
        f"up to {plan.sources} source images, {plan.calibration} for thresholds; studies: "
        f"{', '.join(plan.studies) or 'none'}; nothing was run; the ledger would be {ledger}"
    )
    if run.outcomes:
        typer.echo(f"{run.left_behind} of its {run.outcomes} outcomes would be left behind: the plan does not use them")


def _print_summary(summary: "bf.Summary", *, json: bool) -> None:
    if json:
        failures = [{"trial": failure.trial, "error": failure.error} for failure in summary.failures]
        output.print_json({**asdict(summary), "ledger": str(summary.ledger), "failures": failures})
        return
    before = summary.trials - summary.run
    typer.echo(
        f"{summary.run} of {summary.trials} trials run{f', {before} were done before' if before else ''}; "
        f"{summary.outcomes} outcomes and {summary.records} other records written to {summary.ledger}"
    )
    for failure in summary.failures:
        typer.echo(f"failed: {failure.trial}: {failure.error}", err=True)
    if summary.failures:
        typer.echo("the same command tries again what failed", err=True)
