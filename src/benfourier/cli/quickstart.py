"""`benfourier quickstart`: the main job on embedded data, from training a network to a guard and a report."""

import os
from contextlib import nullcontext
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benfourier.cli import options
from benfourier.cli.codes import INCOMPLETE, INTERRUPTED
from benfourier.cli.printing import print_json
from benfourier.errors import StoreError, check_whole

if TYPE_CHECKING:
    from torch import Tensor

    from benfourier.detectors.detector import Detector
    from benfourier.evaluation.bench import Bench
    from benfourier.evaluation.plan import Plan
    from benfourier.evaluation.runner import Summary

PLAN = "quickstart.toml"
SHOWN = 3  # clean images that the guard is asked about, and as many attacked ones
STRONG = 0.2  # eps of the attack on them; its images still mislead after rounding to 8 bits


def quickstart(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for everything that is made.")] = Path("quickstart"),
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Another plan than the one that comes with it.", show_default=False)
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Processes. [default: one per core, two at most]", show_default=False),
    ] = None,
    json: options.Json = False,
) -> None:
    """Train a small network, attack it, fit all detectors, compare them, and save a guard; ten minutes on two cores.

    Everything is kept: a second run takes seconds, and an interrupted one goes on where it stopped.

    Example: `benfourier quickstart --out quickstart`
    """
    from benfourier.evaluation.plan_reading import read_plan

    count = check_whole("workers", workers) if workers is not None else min(2, os.cpu_count() or 1)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{out}: this folder cannot be made ({error}); choose another with --out") from error
    with as_file(files("benfourier.cli") / PLAN) as own:
        chosen = read_plan(plan or own)
        (out / PLAN).write_text((plan or own).read_text(encoding="utf-8"), encoding="utf-8")
    try:
        came, bench = _evaluated(chosen, out / "quickstart.jsonl", count)
        told = _report(came.ledger, out / "report.html", quiet=json)
        told |= _guarded(bench, chosen, out, anew=came.run > 0, quiet=json)
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command goes on from there", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if json:
        print_json({**told, "ledger": str(came.ledger), "page": str(out / "report.html")})
    else:
        typer.echo(f"\nthe report, with figures: {out / 'report.html'}")
    for failure in came.failures:
        typer.echo(f"failed: {failure.trial}: {failure.error}", err=True)
    if came.failures:
        raise typer.Exit(INCOMPLETE)


def _evaluated(plan: "Plan", ledger: Path, workers: int) -> "tuple[Summary, Bench]":
    """What the plan came to, and what it worked on."""
    from benfourier.evaluation.executors import InProcess, ProcessPool
    from benfourier.evaluation.preparing import prepare, survey
    from benfourier.evaluation.runner import evaluate
    from benfourier.evaluation.threads import one_thread
    from benfourier.store.cache import open_cache

    came = evaluate(plan, ledger, executor=ProcessPool(workers) if workers > 1 else InProcess())
    cache = open_cache(True)
    with one_thread() if workers > 1 else nullcontext():
        return came, prepare(plan, survey(plan, cache), lambda _: None, cache, show_progress=False)


def _report(ledger: Path, page: Path, *, quiet: bool) -> dict[str, Any]:
    """Prints the tables, writes the page with the figures, and returns the tables as JSON can hold them."""
    from benfourier.report.gathering import gather
    from benfourier.report.page import page as page_of
    from benfourier.report.plain import plain
    from benfourier.report.sections import sections, title
    from benfourier.report.terminal import show
    from benfourier.store.ledger import read

    results = gather(read(ledger), None)
    parts = sections(results)
    if not quiet:
        show(title(results), parts)
    page.write_text(page_of(results, ledger), encoding="utf-8")
    return plain(title(results), parts)


def _guarded(bench: "Bench", plan: "Plan", out: Path, *, anew: bool, quiet: bool) -> dict[str, Any]:
    """Saves the network and a guard, and asks it about a few images that it has not seen; returns its verdicts."""
    from benfourier.cli.detect import line, record
    from benfourier.guard.guard import Guard
    from benfourier.guard.saving import load_guard
    from benfourier.subjects.images import images
    from benfourier.subjects.weights import save_weights

    model, weights, file = plan.network.model, out / "network.safetensors", out / "guard.bf"
    if anew or not file.exists():
        save_weights(bench.subject.module, weights)
        Guard(bench.subject, _fitted(bench, plan), false_alarm_rate=0.05, clean=bench.calibration).save(file)
    guard: Guard = load_guard(file, bench.subject.module)
    pictures = _pictures(bench, out / "images")
    verdicts = list(zip(map(str, pictures), guard.check(images(pictures, guard.subject)), strict=True))
    if quiet:
        return {"guard": str(file), "images": [record(name, verdict) for name, verdict in verdicts]}
    typer.echo(f"\na guard for all attacks of the plan: {file}, threshold {guard.threshold}")
    for name, verdict in verdicts:
        typer.echo(line(name, verdict))
    typer.echo(f"ask it yourself: benfourier detect {file} {out / 'images'} -m {model} -w {weights}")
    return {}


def _fitted(bench: "Bench", plan: "Plan") -> "Detector":
    """MBF fitted to all attacks, on the source images outside the first fold."""
    from benfourier.detectors.catalogue import fit

    together = bench.together(bench.source, [attack.label for attack in plan.attacks])
    rows = bench.rows(bench.source, together, len(together), {1, 2, 3, 4})
    return fit("mbf", bench.subject, together.take(rows), seed=plan.seed)


def _pictures(bench: "Bench", folder: Path) -> list[Path]:
    """A few images of the first fold as files, and the same attacked, rounded to 8-bit pixels."""
    from benfourier.attacks.attack import attack

    examples = bench.groups[bench.source][0]
    rows = bench.rows(bench.source, examples, len(examples), {0})[:SHOWN]
    clean, labels = examples.clean[rows], examples.labels[rows]
    made = attack("bim-fixed", bench.subject, clean, labels, eps=STRONG, eight_bit=True, show_progress=False)
    folder.mkdir(exist_ok=True)
    found = []
    for kind, pixels in (("clean", clean), ("attacked", made.images)):
        for place, image in enumerate(pixels, 1):
            found.append(folder / f"{kind}-{place}.png")
            _write(image, found[-1])
    return found


def _write(image: "Tensor", path: Path) -> None:
    from PIL import Image

    Image.fromarray((image[0] * 255).round().byte().numpy()).save(path)
