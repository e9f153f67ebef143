"""MBF in many settings, cross-validated by source image inside the sources that detectors are fitted to.

`python -m benchmarks.ablation` does MNIST-5k with LID's network; `--cifar10 FILE.npz --weights FILE.safetensors` does
CIFAR-10 with LID's. Writes ablation.json, row by row, and the table in docs/detectors.md. The default of MBF is
chosen by it; sources that results are reported on take no part.
"""

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

import benfourier as bf
from benchmarks.held import held_out_mnist
from benfourier.data.examples import Examples
from benfourier.data.opening import open_source
from benfourier.data.splits import split
from benfourier.evaluation.ablation import PAPER, SETTINGS, ablate
from benfourier.subjects.naming import open_subject

RESULTS = Path(__file__).parent / "ablation.json"
PAGE = Path(__file__).parents[1] / "docs" / "detectors.md"
BLOCK = re.compile(r"(<!-- ablation -->\n).*?(<!-- /ablation -->)", re.DOTALL)
SOURCES = 1050
ATTACKS = ("bim", "deepfool")
CHOSEN = {**PAPER, "pass_through": False, "C": "cv", "gamma": "cv"}
MORE: dict[str, dict[str, Any]] = {
    "paper, C = 10": {**PAPER, "C": 10.0},
    **{f"not scaled, C and γ by cross-validation, orders {n}": {**CHOSEN, "orders": n} for n in (2, 4, 8, 16)},
    **{
        f"standardised, C and γ by cross-validation, orders {n}": {**CHOSEN, "scaling": "standard", "orders": n}
        for n in (2, 4, 16)
    },
    "boosted trees, without pass-through layers": {"classifier": "boosted"},
}


def main() -> None:
    """Measures what is not there yet; each row is written as it is done."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation", description=__doc__)
    parser.add_argument("--cifar10", help="an .npz file with x_test and y_test")
    parser.add_argument("--weights", help="of LID's network for CIFAR-10")
    parser.add_argument("--sources", type=int, default=SOURCES)
    options = parser.parse_args()
    name = "cifar10" if options.cifar10 else "mnist-5k"
    rows = load()
    subject, examples = _cifar10(options) if options.cifar10 else _mnist(options.sources)
    for row in measured(name, subject, examples, rows):
        rows.append(row)
        RESULTS.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(BLOCK.sub(lambda block: block[1] + render(rows) + block[2], page), encoding="utf-8")
        print(row)


def load() -> list[dict[str, Any]]:
    """Returns the rows that are done."""
    found: list[dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    return found


def measured(
    name: str, subject: bf.Subject, examples: Examples, known: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yields a row for every attack and setting that is not known."""
    parts = split(examples.ids, examples.labels.numpy(), {"fit": 0.8, "test": 0.2}, seed=0)
    fitted = examples.take(parts["fit"])
    done = {(row["data"], row["attack"], row["setting"]) for row in known}
    for attack in examples.attacks:
        mine = fitted.for_attack(attack)
        for label, options in {**SETTINGS, **MORE}.items():
            if (name, attack, label) in done:
                continue
            (found,) = ablate(subject, mine, {label: options})
            figures = {key: round(getattr(found.auroc, key), 5) for key in ("value", "low", "high")}
            facts = {"sources": len(mine), "numbers": found.numbers, **figures}
            yield {"data": name, "attack": attack, "setting": label, **facts}


def render(rows: list[dict[str, Any]]) -> str:
    """Returns the lines between the markers: settings by data and attack, the best on average first."""
    columns = list(dict.fromkeys((row["data"], row["attack"], row["sources"]) for row in rows))
    found = {(row["data"], row["attack"], row["setting"]): row for row in rows}
    settings = list(dict.fromkeys(row["setting"] for row in rows))

    def mean(setting: str) -> float:
        return -fmean(row["value"] for row in rows if row["setting"] == setting)

    def cell(data: str, attack: str, setting: str) -> str:
        row = found.get((data, attack, setting))
        return f"{row['value']:.4f} ({row['low']:.4f} to {row['high']:.4f})" if row else "not measured"

    head = [f"{data}, `{attack}`, {sources} sources" for data, attack, sources in columns]
    lines = [f"| setting | {' | '.join(head)} |", "|---" * (len(head) + 1) + "|"]
    for setting in sorted(settings, key=mean):
        lines.append(f"| {setting} | {' | '.join(cell(data, attack, setting) for data, attack, _ in columns)} |")
    return "\n".join([*lines, ""])


def _mnist(sources: int) -> tuple[bf.Subject, Examples]:
    held = held_out_mnist(12, 0.3).first(sources)
    made = bf.make_examples(held.subject, held.images, held.labels, ids=held.ids, attack=ATTACKS)
    return held.subject, made


def _cifar10(options: argparse.Namespace) -> tuple[bf.Subject, Examples]:
    subject = open_subject("lid-cifar10", weights=options.weights)
    subject.module.eval().requires_grad_(False)
    source = open_source(f"{options.cifar10}:test")
    rows = np.arange(options.sources)
    images, labels = bf.images(source.pixels(rows), subject), torch.from_numpy(source.labels[rows])
    ids = [source.ids[row] for row in rows]
    return subject, bf.make_examples(subject, images, labels, ids=ids, attack=ATTACKS)


if __name__ == "__main__":
    main()
