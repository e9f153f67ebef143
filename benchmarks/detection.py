"""Every detector on MNIST-5k with LID's network: AUROC of non-transfer, and of boundary attacks against fixed eps.

`python -m benchmarks.detection` trains the network, crafts the examples and fits the detectors; networks and examples
come from the cache the second time, finished rows from benchmarks/detection.json: it can be stopped at any time.
`--only mbf,lid` does some detectors; `--anew` forgets their rows.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import benfourier as bf
from benchmarks.held import Held, held_out_mnist
from benfourier.data.examples import Examples
from benfourier.data.labelled import Labelled
from benfourier.data.splits import split
from benfourier.detectors.detector import Detector
from benfourier.evaluation.intervals import difference, estimate
from benfourier.evaluation.metrics import auroc
from benfourier.evaluation.sample import Sample

RESULTS = Path(__file__).parent / "detection.json"
SOURCES, FEW = 1000, 300
BOUNDARY = ("bim", "deepfool", "r-pgd")
FIXED: dict[str, tuple[str, dict[str, Any]]] = {
    f"bim-fixed {eps:g}": ("bim-fixed", {"eps": eps}) for eps in (0.15, 0.3)
}
TRIVIAL = "max-softmax"


@dataclass(frozen=True)
class Entry:
    """A detector as it is fitted here: its label, id, options, and how many source images it is given at most."""

    label: str
    name: str
    options: dict[str, Any]
    sources: int = SOURCES


ENTRIES = (
    Entry("max-softmax", TRIVIAL, {}),
    Entry("mbf", "mbf", {}),
    Entry("mbf, paper", "mbf", {"preset": "paper"}),
    Entry("mbf, boosted trees", "mbf", {"classifier": "boosted"}),
    Entry("mahalanobis", "mahalanobis", {}),
    Entry("lid", "lid", {}),
    Entry("kd-bu", "kd-bu", {}),
    Entry("c1c2", "c1c2", {}, FEW),
    Entry("defense-gan", "defense-gan", {"iterations": 2000}, FEW),
)


@dataclass(frozen=True)
class Row:
    """AUROC of a detector fitted to one attack and tested on another, on sources it was not fitted to."""

    detector: str
    fitted: str
    tested: str
    sources: int
    fit_sources: int
    value: float
    low: float
    high: float
    over_trivial: float
    over_trivial_low: float
    over_trivial_high: float
    fit_seconds: float
    score_ms_per_image: float

    @property
    def key(self) -> tuple[str, str, str]:
        """What the row is about."""
        return self.detector, self.fitted, self.tested


def main() -> None:
    """Fits and measures what is not there yet, and writes each row as it is done."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection", description=__doc__)
    parser.add_argument("--only", help="labels of detectors, with commas between")
    parser.add_argument("--anew", action="store_true", help="forget the rows of these detectors")
    parser.add_argument("--skip-cw", action="store_true", help="leave cw-l2 for another time")
    options = parser.parse_args()
    wanted = [entry for entry in ENTRIES if not options.only or entry.label in options.only.split(",")]
    rows = {row.key: row for row in load()}
    if options.anew:
        rows = {key: row for key, row in rows.items() if key[0] not in {entry.label for entry in wanted}}
    held = _most(held_out_mnist(12, 0.3))
    for make in (boundary,) if options.skip_cw else (boundary, carlini):
        examples = make(held)
        for entry in wanted:
            for row in measured(held, examples, entry, set(rows)):
                rows[row.key] = row
                save(list(rows.values()))
                print(f"{row.detector}: {row.fitted} → {row.tested}: {row.value:.4f} ({row.low:.4f} to {row.high:.4f})")


def _most(held: Held) -> Held:
    """The same with a few images more than are wanted, since noise takes some away."""
    count = SOURCES + SOURCES // 20
    return replace(held, images=held.images[:count], labels=held.labels[:count], ids=held.ids[:count])


def boundary(held: Held) -> Examples:
    """Examples of attacks that end on the boundary, and of BIM at fixed eps beside the same clean and noisy twins."""
    near = bf.make_examples(held.subject, held.images, held.labels, ids=held.ids, attack=BOUNDARY)
    rows = [held.ids.index(name) for name in near.ids]
    far = {
        label: bf.attack(name, held.subject, held.images[rows], held.labels[rows], ids=near.ids, **options)
        for label, (name, options) in FIXED.items()
    }
    attacked = {**near.attacked, **{label: result.images for label, result in far.items()}}
    success = {**near.success, **{label: result.success for label, result in far.items()}}
    return replace(near, attacked=attacked, success=success)


def carlini(held: Held) -> Examples:
    """Examples of cw-l2 at its full 5 × 1000 steps."""
    few = slice(0, FEW + FEW // 20)
    return bf.make_examples(held.subject, held.images[few], held.labels[few], ids=held.ids[few], attack="cw-l2")


def measured(held: Held, examples: Examples, entry: Entry, known: set[tuple[str, str, str]]) -> Iterator[Row]:
    """Yields the rows of one detector that are not known: every attack against itself, boundary against fixed."""
    used = examples.take(np.arange(min(entry.sources, len(examples))))
    parts = split(used.ids, used.labels.numpy(), {"fit": 0.8, "test": 0.2}, seed=0)
    fitted, tested = used.take(parts["fit"]), used.take(parts["test"])
    for attack in used.attacks:
        targets = [attack, *(FIXED if attack in BOUNDARY else [])]
        missing = [target for target in targets if (entry.label, attack, target) not in known]
        if not missing:
            continue
        clean = Labelled(held.learned, held.learned_labels) if entry.name == "defense-gan" else None
        start = time.perf_counter()
        detector = bf.fit(entry.name, held.subject, fitted.for_attack(attack), clean=clean, **entry.options)
        seconds = time.perf_counter() - start
        trivial = bf.fit(TRIVIAL, held.subject, fitted.for_attack(attack), show_progress=False)
        for target in missing:
            yield _row(entry, attack, target, detector, trivial, tested, seconds)


def _row(
    entry: Entry, attack: str, target: str, detector: Detector, trivial: Detector, tested: Examples, seconds: float
) -> Row:
    mine = tested.for_attack(target)
    images = torch.cat([mine.clean, mine.noisy, mine.attacked[target]])
    bad, sources = np.repeat([False, False, True], len(mine)), mine.ids * 3
    start = time.perf_counter()
    scores = detector.score(images)
    each = 1000 * (time.perf_counter() - start) / len(images)
    ours = Sample(scores, bad, sources)
    area = estimate(auroc, ours)
    over = difference(auroc, ours, Sample(trivial.score(images), bad, sources))
    return Row(
        detector=entry.label,
        fitted=attack,
        tested=target,
        sources=len(mine),
        fit_sources=detector.summary["sources"],
        value=round(area.value, 5),
        low=round(area.low, 5),
        high=round(area.high, 5),
        over_trivial=round(over.value, 5),
        over_trivial_low=round(over.low, 5),
        over_trivial_high=round(over.high, 5),
        fit_seconds=round(seconds, 2),
        score_ms_per_image=round(each, 3),
    )


def load() -> list[Row]:
    """Returns the rows that are done."""
    return [Row(**row) for row in json.loads(RESULTS.read_text(encoding="utf-8"))] if RESULTS.exists() else []


def save(rows: list[Row]) -> None:
    """Writes all rows."""
    order = {entry.label: place for place, entry in enumerate(ENTRIES)}
    rows = sorted(rows, key=lambda row: (order[row.detector], row.fitted, row.tested))
    RESULTS.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
