"""`benfourier quickstart`: the main job on embedded data, from training a network to a guard and a report."""

import os
from importlib.resources import as_file, files
from pathlib import Path
from textwrap import wrap
from typing import Annotated

import typer

import benfourier as bf
from benfourier.cli import options, output
from benfourier.cli.detect import verdict_json, verdict_line
from benfourier.errors import StoreError

PLAN = "quickstart.toml"
BUDGET = 60  # seconds for the guard
SAMPLES = 2  # clean images that neither network nor guard have seen, and as many attacked ones
EPS = 0.2  # of the attack on them, strong enough that its images still mislead after rounding to 8 bits
WIDTH = 120  # characters of a line


def quickstart(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for all results.")] = Path("quickstart"),
    workers: Annotated[
        int | None, typer.Option("--workers", help="Processes. [default: one per core, two at most]")
    ] = None,
    json: options.Json = False,
) -> None:
    """Train a small network, protect it, check images, and compare detectors; three minutes on two cores at most.

    Everything is stored: a second run takes seconds, and an interrupted one goes on where it stopped.

    Example: `benfourier quickstart --out quickstart`
    """
    executor = options.executor_from(min(2, os.cpu_count() or 1) if workers is None else workers)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{out}: this folder cannot be made ({error}); choose another with --out") from error
    with output.resumable(lambda: "the same command goes on from there"):
        with as_file(files("benfourier.cli") / PLAN) as plan:
            evaluation = bf.evaluate(bf.read_plan(plan), out / "quickstart.jsonl", executor=executor)
        summary, page = evaluation.summary, out / "report.html"
        report = bf.read_report(summary.ledger)
        bf.write_report(report, page, summary.ledger)
        guard = _guard(evaluation, out)
        paths = _write_samples(evaluation.data, out / "images")
        verdicts = list(zip(map(str, paths), guard.check(bf.load_images(paths, guard.classifier)), strict=True))
    if json:
        locations = {"guard": str(out / "guard.bf"), "ledger": str(summary.ledger), "page": str(page)}
        images = [verdict_json(name, verdict) for name, verdict in verdicts]
        card = guard.card and guard.card.as_json()
        output.print_json({**bf.report_json(report), "card": card, "images": images, **locations})
    else:
        typer.echo(f"{guard.card}\n")
        for name, verdict in verdicts:
            typer.echo(verdict_line(name, verdict))
        network = f"-m {evaluation.data.plan.network.model} -w {out / 'network.safetensors'}"
        typer.echo(f"by hand: benfourier detect {out / 'guard.bf'} {out / 'images'} {network}")
        for sentence in report.sections[0].sentences:
            typer.echo("\n".join(wrap(sentence, WIDTH)))
        typer.echo(f"the report: {page}")
    for failure in summary.failures:
        typer.echo(f"failed: {failure.trial}: {failure.error}", err=True)
    if summary.failures:
        raise typer.Exit(output.INCOMPLETE)


def _guard(evaluation: "bf.Evaluation", out: Path) -> "bf.Guard":
    """A guard of the trained network from images that set thresholds in the evaluation; both are files of the folder.

    It is made again only where the evaluation has done anything new.
    """
    data, file = evaluation.data, out / "guard.bf"
    if evaluation.summary.run > 0 or not file.exists():
        bf.save_weights(data.classifier.module, out / "network.safetensors")
        # bars have labels and the card has what was measured: sentences between would say it again
        guard = bf.protect(data.classifier, data.calibration, budget=BUDGET, seed=data.plan.seed, report=lambda _: None)
        guard.save(file)
    return bf.load_guard(file, data.classifier.module)


def _write_samples(data: "bf.EvaluationData", folder: Path) -> list[Path]:
    """Writes a few images that the guard has not seen, and the same attacked, as 8-bit files."""
    images = data.images[data.source].take(range(SAMPLES))
    result = bf.attack(
        "bim-fixed", data.classifier, images.images, images.labels, eps=EPS, eight_bit=True, show_progress=False
    )
    folder.mkdir(exist_ok=True)
    paths = []
    for kind, pictures in (("clean", images.images), ("attacked", result.images)):
        for place, picture in enumerate(pictures, 1):
            paths.append(folder / f"{kind}-{place}.png")
            paths[-1].write_bytes(bf.encode_png(picture, data.classifier))
    return paths
