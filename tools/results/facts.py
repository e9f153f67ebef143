"""What was run, and examples of it."""

import json
from collections.abc import Iterator

from benfourier.evaluation.plan_reading import HERE
from benfourier.report.markdown import line, safe
from benfourier.store.records import Picture, Run
from tools.results.experiments import Experiment
from tools.slim import may_be_shown

WAYS = {1: "one split, 80 to 20", 5: "five folds where there are fewer than 500 sources"}


def facts(experiment: Experiment, links: str) -> Iterator[str]:
    """Yields network, data, sizes, machine and what was reduced.

    Args:
        experiment: of which.
        links: from the page to the folder of ledgers.
    """
    results, ledger = experiment.results, f"{experiment.name}.jsonl"
    if results.runs:
        yield from _of_run(experiment, results.runs[-1])
    reduced = dict.fromkeys(f"{o.detector}: {o.reduced}" for o in results.outcomes if o.reduced)
    if reduced:
        yield f"- Below the authors' settings: {safe('; '.join(reduced))}."
    where = f"[{safe(ledger)}]({links}/{ledger})"
    for run in results.runs[-1:]:
        data = " --data-dir FOLDER" if "{data}" in json.dumps(run.settings) else ""
        scale = "" if run.scale == HERE else f" --scale {run.scale}"
        again = f"benfourier evaluate experiments/{run.name}.toml{data}{scale}"
        whole = "in the paper's sizes with `--scale paper --data-dir FOLDER`, as far as the folder has images"
        yield f"- To run it again: `{safe(again)}`; {whole}."
    yield f"- Ledger: {where}; `benfourier report experiments/results/{ledger} --out report.html` shows all of it."


def pictures(experiment: Experiment, links: str) -> Iterator[str]:
    """Yields a table of one example per attack, of images that may be shown."""
    first: dict[str, Picture] = {}
    for picture in experiment.results.pictures:
        if may_be_shown(picture):
            first.setdefault(picture.attack, picture)
    if first:
        yield line("attack", "clean", "attacked", "difference")
        yield line(*["---"] * 4)
    for attack, picture in first.items():
        words = (f"seen as {picture.label}", f"seen as {picture.fooled}", f"× {picture.magnified:g}")
        images = (
            f'<img src="{links}/{file}" width="96" alt="{safe(text)}"> {safe(text)}'
            for file, text in zip(picture.files, words, strict=True)
        )
        yield line(safe(attack), *images)
    for credit in dict.fromkeys(picture.credit for picture in first.values() if picture.credit):
        yield from ("", f"Photographs, made smaller: {safe(credit)}")


def accuracy(experiment: Experiment) -> str:
    """Returns the network's accuracy in words; nothing if it is not told."""
    told = experiment.results.runs[-1].network.get("accuracy") if experiment.results.runs else None
    return f", {told:.1%} accurate" if isinstance(told, float) else ""


def _of_run(experiment: Experiment, run: Run) -> Iterator[str]:
    told, settings = run.network, run.settings
    right = accuracy(experiment)
    images = f" on {told['images']} images that it did not learn from" if right and "images" in told else ""
    layers = f"; {len(told['layers'])} layers that compute something" if "layers" in told else ""
    yield f"- Network: {safe(experiment.network)}{right}{images}{layers}."
    folds = sorted({outcome.folds for outcome in experiment.results.outcomes})
    ways = ", ".join(WAYS.get(count, f"{count} folds") for count in folds)
    sizes = f"at most {settings.get('sources', '?')} source images"
    sizes += f", {told.get('calibration', settings.get('calibration', '?'))} more for thresholds"
    scale = "" if run.scale == HERE else f"; scale “{safe(run.scale)}”"
    yield f"- Data: {safe(experiment.source)}; {sizes}{f'; {ways}' if ways else ''}{scale}."
    machine = f"{run.machine.get('processor', 'unknown processor')}, {run.machine.get('cores', '?')} cores"
    versions = ", ".join(f"{name} {run.versions[name]}" for name in ("benfourier", "torch") if name in run.versions)
    yield f"- Run: {run.date[:10]}, {safe(machine)}, {safe(versions)}."
