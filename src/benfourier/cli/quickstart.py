"""`benfourier quickstart`: the main job on embedded data, from training a network to a guard and a report."""

import os
import sys
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any

import typer

import benfourier as bf
from benfourier.cli import options, output
from benfourier.cli.detect import verdict_json, verdict_line
from benfourier.errors import StoreError

PLAN = "quickstart.toml"
TEST_FOLD = 0  # its images are shown to the guard, which is fitted to the other folds
SAMPLES = 3  # clean images of that fold, and as many attacked ones
EPS = 0.2  # of the attack on them, strong enough that its images still mislead after rounding to 8 bits


def quickstart(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for all results.")] = Path("quickstart"),
    plan: Annotated[Path | None, typer.Option("--plan", help="Another plan than the one that comes with it.")] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Processes. [default: one per core, two at most]")
    ] = None,
    json: options.Json = False,
) -> None:
    """Train a small network, attack it, fit all detectors, compare them, and save a guard; ten minutes on two cores.

    Everything is stored: a second run takes seconds, and an interrupted one goes on where it stopped.

    Example: `benfourier quickstart --out quickstart`
    """
    executor = options.executor_from(min(2, os.cpu_count() or 1) if workers is None else workers)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{out}: this folder cannot be made ({error}); choose another with --out") from error
    with as_file(files("benfourier.cli") / PLAN) as own:
        chosen = bf.read_plan(plan or own)
        (out / PLAN).write_text((plan or own).read_text(encoding="utf-8"), encoding="utf-8")
    with output.resumable(lambda: "the same command goes on from there"), bf.progress_lines():
        _print_stage("training, attacking and fitting; about ten minutes on two cores, seconds in a second run")
        evaluation = bf.evaluate(chosen, out / "quickstart.jsonl", executor=executor)
        _print_stage("writing the report")
        summary, page = evaluation.summary, out / "report.html"
        report = bf.read_report(summary.ledger)
        bf.write_report(report, page, summary.ledger)
        if not json:
            short = bf.read_report(summary.ledger, audience="terminal")
            bf.print_report(replace(short, sections=short.sections[:1]), compact=True)
        _print_stage("fitting a guard")
        verdicts = _guard(evaluation, chosen, out, quiet=json)
    if json:
        output.print_json({**bf.report_json(report), **verdicts, "ledger": str(summary.ledger), "page": str(page)})
    else:
        typer.echo(f"\nthe report, with figures: {page}")
    for failure in summary.failures:
        typer.echo(f"failed: {failure.trial}: {failure.error}", err=True)
    if summary.failures:
        raise typer.Exit(output.INCOMPLETE)


def _print_stage(text: str) -> None:
    """Prints a line where no progress bar is drawn."""
    if not sys.stderr.isatty():
        typer.echo(text, err=True)


def _guard(evaluation: "bf.Evaluation", plan: "bf.Plan", out: Path, *, quiet: bool) -> dict[str, Any]:
    """Saves the network and a guard, and checks a few images that the guard has not seen; returns the verdicts."""
    data, weights, file = evaluation.data, out / "network.safetensors", out / "guard.bf"
    if evaluation.summary.run > 0 or not file.exists():
        bf.save_weights(data.classifier.module, weights)
        labels = plan.labels("mixture") or [attack.label for attack in plan.attacks]
        examples = data.joined(data.source, labels)
        rows = data.rows(data.source, examples, len(examples), set(data.folds.values()) - {TEST_FOLD})
        detector = bf.fit("views", data.classifier, examples.take(rows), seed=plan.seed)
        bf.Guard.calibrated(detector, data.calibration.images, false_alarm_rate=0.05).save(file)
    guard = bf.load_guard(file, data.classifier.module)
    paths = _write_samples(data, out / "images")
    verdicts = list(zip(map(str, paths), guard.check(bf.load_images(paths, guard.classifier)), strict=True))
    if quiet:
        return {"guard": str(file), "images": [verdict_json(name, verdict) for name, verdict in verdicts]}
    typer.echo(f"\na guard of views: {file}, threshold {guard.threshold}")
    for name, verdict in verdicts:
        typer.echo(verdict_line(name, verdict))
    typer.echo(f"ask it yourself: benfourier detect {file} {out / 'images'} -m {plan.network.model} -w {weights}")
    return {}


def _write_samples(data: "bf.EvaluationData", folder: Path) -> list[Path]:
    """Writes a few images of the test fold, and the same attacked, as 8-bit files."""
    examples = data.example_sets[data.source][0]
    rows = data.rows(data.source, examples, len(examples), {TEST_FOLD})[:SAMPLES]
    clean, labels = examples.clean[rows], examples.labels[rows]
    result = bf.attack("bim-fixed", data.classifier, clean, labels, eps=EPS, eight_bit=True, show_progress=False)
    folder.mkdir(exist_ok=True)
    paths = []
    for kind, images in (("clean", clean), ("attacked", result.images)):
        for place, image in enumerate(images, 1):
            paths.append(folder / f"{kind}-{place}.png")
            paths[-1].write_bytes(bf.encode_png(image, data.classifier))
    return paths
