"""Attacks on MNIST with all their iterations: how often they succeed, how far they go, how many calls they take.

Writes full_attacks.json and the table in docs/examples.md: `python -m benchmarks.full_attacks --weights FILE`.
The weights are those of `benfourier train -m lid-mnist -d mnist-5k --held-out 0.2 --epochs 4`, and the images are
those held out.
"""

import argparse
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import benfourier as bf
from benchmarks.results import Environment
from benfourier.attacks.stock import Crafted
from benfourier.data import embedded, split, spread
from benfourier.subjects.naming import open_subject

THREADS = 2
RESULTS = Path(__file__).parent / "full_attacks.json"
PAGE = Path(__file__).parents[1] / "docs" / "examples.md"
BLOCK = re.compile(r"(<!-- attacks -->\n).*?(<!-- /attacks -->)", re.DOTALL)
ATTACKS = ("bim", "r-pgd", "deepfool", "bim-fixed")
DEAR = "cw-l2"  # thousands of calls per image
COUNT = 300
BACK = 0.02  # how far an adversarial image is moved toward its clean one, to see whether it sits on the boundary


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.full_attacks", description=__doc__)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--dear", type=int, default=COUNT, help=f"images for {DEAR}, of the {COUNT} for the others")
    parser.add_argument("--cache", type=Path, help="where finished chunks are kept; by default nowhere")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    content = measure(options.weights, options.dear, options.cache or False)
    print(render(content))
    RESULTS.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda block: block[1] + render(content) + block[2], page), encoding="utf-8")
    return 0


def measure(weights: Path, dear: int, cache: Path | bool) -> dict[str, Any]:
    """Returns all figures."""
    subject = open_subject("lid-mnist", weights=weights)
    source = embedded("mnist-5k")
    held = split(source.ids, source.labels, {"learn": 0.8, "measure": 0.2}, seed=0)["measure"]
    held = held[spread([source.ids[row] for row in held], source.labels[held], seed=0)]
    images, labels = bf.images(source.pixels(held), subject), torch.from_numpy(source.labels[held])
    right = _told(subject, images) == labels
    chosen = right.nonzero().flatten()[:COUNT]
    crafted: list[Crafted] = []
    for names, rows in ((ATTACKS, chosen), ((DEAR,), chosen[:dear])):
        ids = [source.ids[held[row]] for row in rows.tolist()]
        bf.make_examples(subject, images[rows], labels[rows], attack=names, ids=ids, cache=cache, report=crafted.append)
    bim, clean, truth = crafted[0], images[chosen], labels[chosen]
    told = _told(subject, bim.images + BACK * (clean - bim.images))
    return {
        "environment": asdict(Environment.here(THREADS, 1)),
        "accuracy": float(right.double().mean()),
        "images": len(chosen),
        "attacks": [_figures(made) for made in crafted],
        "restored": float((told == truth)[bim.success].double().mean()),
    }


def render(content: dict[str, Any]) -> str:
    """Returns the lines between the markers."""
    e = content["environment"]
    rows = [
        f"| `{made['name']}` | {made['succeeded']} of {made['images']} | {made['l2']:.3g} | {made['linf']:.3g} | "
        f"{made['calls']:.0f} |"
        for made in content["attacks"]
    ]
    return "\n".join(
        [
            "| attack | succeeded | median L2 | median L∞ | calls per image |",
            "|---|---|---|---|---|",
            *rows,
            "",
            f"{content['images']} held-out images that the network, {content['accuracy']:.1%} accurate, classifies "
            f"correctly. Moved by {BACK:.0%} toward the clean image, {content['restored']:.1%} of the `bim` images are",
            f"classified correctly again. {e['cpu']}, {e['threads']} threads, torch {e['torch']}, {e['date']}.",
            "",
        ]
    )


def _figures(made: Crafted) -> dict[str, Any]:
    return {
        "name": made.entry.label,
        "images": len(made.success),
        "succeeded": int(made.success.sum()),
        "l2": made.l2_centre(),
        "linf": made.linf_centre(),
        "calls": float(made.calls.double().mean()),
    }


def _told(subject: bf.Subject, images: Tensor) -> Tensor:
    with torch.no_grad():
        return subject.logits(images).argmax(1)


if __name__ == "__main__":
    sys.exit(main())
