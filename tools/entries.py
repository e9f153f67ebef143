"""What mbf loses if it reads K entries of a layer instead of all: the table in docs/features.md, from ledgers.

The ledgers in experiments/entries/results hold scores of the same images under every K, so losses are paired.
`python -m tools.entries LEDGER OUT` copies a ledger with those scores only.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benfourier.metrics.bootstrap import DRAWS, interval
from benfourier.metrics.ranking import auroc, over_folds
from benfourier.metrics.scores import ScoreSample
from benfourier.store.ledger import read, write
from benfourier.store.records import Estimate, Outcome, Record, Run, Scores
from benfourier.store.vocabulary import MBF, ProtocolName

LEDGERS = "experiments/entries/results"
ALL = "all entries"
COUNTS = (8192, 4096, 2048)
MAX_MEAN = {"alexnet": 0.01}  # the upper bound of a network's mean loss must stay below; 0.005 for the others
MAX_CELL = 0.015  # no cell may have a loss whose lower bound is above
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cell:
    """AUROC under one attack of a detector fitted to it alone, or to all; by label of the detector."""

    fitted: str  # "one" or "all"
    role: str  # of the attack: "boundary" or "strength"
    attack: str
    sources: int
    value: Mapping[str, float]
    draws: Mapping[str, Floats]  # (DRAWS,), the same draws of source images for every label

    def loss(self, label: str) -> Estimate:
        """Returns AUROC with all entries less that with some."""
        return interval(self.value[ALL] - self.value[label], self.draws[ALL] - self.draws[label])


def cells(path: Path) -> tuple[str, list[Cell]]:
    """Returns the network's name and the cells of a ledger."""
    records = read(path)
    run = next(record for record in records if isinstance(record, Run))
    roles = {attack["label"]: attack["role"] for attack in run.settings["attacks"]}
    outcomes = {record.key: record for record in records if isinstance(record, Outcome)}
    groups: dict[tuple[str, str], dict[str, Scores]] = {}
    for record in records:
        if isinstance(record, Scores) and (fitted := _fitted(outcomes[record.outcome], record.attack)):
            groups.setdefault((fitted, record.attack), {})[outcomes[record.outcome].detector] = record
    names = sorted({name for group in groups.values() for scores in group.values() for name in scores.ids})
    place = {name: row for row, name in enumerate(names)}
    even = np.full(len(names), 1 / len(names))
    drawn = np.random.default_rng(0).multinomial(len(names), even, size=DRAWS).astype(float)  # (draws, sources)
    result = []
    for (fitted, attack), group in sorted(groups.items()):
        rows = [place[name] for name in group[ALL].ids]
        values, draws = {}, {}
        for label, scores in group.items():
            if scores.ids != group[ALL].ids:
                raise ValueError(f"{path.name}: {label} and {ALL} were tested on different images under {attack}")
            metric = over_folds(auroc, np.tile(np.array(scores.folds), 3))
            rows_of_kinds = np.concatenate([scores.clean, scores.noisy, scores.adversarial]).astype(float)
            sample = ScoreSample(rows_of_kinds, np.repeat([False, False, True], len(rows)), scores.ids * 3)
            values[label] = float(metric(sample, None)[0])
            draws[label] = metric(sample, np.tile(drawn[:, rows], 3))
        result.append(Cell(fitted, roles[attack], attack, len(rows), values, draws))
    return str(run.network["name"]), result


def _fitted(outcome: Outcome, attack: str) -> str:
    """What the detector of a cell was fitted to: "one", the attack itself, "all", or something else, ""."""
    if outcome.protocol == ProtocolName.ALL_ATTACKS:
        return "all"
    return "one" if outcome.fitted == (attack,) else ""


def publish(ledger: Path, out: Path) -> None:
    """Writes a copy of a ledger whose scores are those of its cells, the baseline's left out."""
    records = read(ledger)
    outcomes = {record.key: record for record in records if isinstance(record, Outcome)}

    def is_needed(record: Record) -> bool:
        outcome = outcomes.get(record.outcome if isinstance(record, Scores) else record.key)
        if isinstance(record, Scores) and (outcome is None or not _fitted(outcome, record.attack)):
            return False
        return outcome is None or outcome.method == MBF

    write(out, filter(is_needed, records))


def mean_loss(chosen: Sequence[Cell], label: str) -> Estimate:
    """Returns the mean loss over cells; every draw takes the same source images in all of them."""
    value = np.mean([cell.value[ALL] - cell.value[label] for cell in chosen])
    return interval(float(value), np.mean([cell.draws[ALL] - cell.draws[label] for cell in chosen], axis=0))


def qualifies(network: str, chosen: Sequence[Cell], count: int) -> bool:
    """True if reading that many entries loses little enough."""
    label = f"{count} entries"
    within = mean_loss(chosen, label).high < MAX_MEAN.get(network, 0.005)
    return within and all(cell.loss(label).low <= MAX_CELL for cell in chosen)


def table(root: Path) -> str:
    """Returns the losses of every network in points of AUROC, and which K qualify, as Markdown."""
    networks = [cells(path) for path in sorted((root / LEDGERS).glob("*.jsonl"))]
    lines = [
        f"| network | fitted to | attacks | AUROC, all entries, % | {' | '.join(f'loss at K = {k}' for k in COUNTS)} |",
        f"| --- | --- | --- | ---: |{' ---: |' * len(COUNTS)}",
    ]
    for network, every in networks:
        for fitted in ("one", "all"):
            for role, title in (("boundary", "boundary"), ("strength", "fixed strength")):
                part = [cell for cell in every if (cell.fitted, cell.role) == (fitted, role)]
                what = "the same attack" if fitted == "one" else "all attacks"
                lines.append(_row(network, what, f"{len(part)} of {title}", part))
        lines.append(_row(network, "either", f"**mean of {len(every)} cells**", every))
        worst = [max(every, key=lambda cell, k=k: cell.loss(f"{k} entries").value) for k in COUNTS]  # type: ignore[misc]
        losses = [_points(cell.loss(f"{k} entries")) for cell, k in zip(worst, COUNTS, strict=True)]
        lines.append(f"| {network} | | largest loss of a cell | | {' | '.join(losses)} |")
    passed = {k: [network for network, every in networks if qualifies(network, every, k)] for k in COUNTS}
    verdicts = [f"K = {k}: {', '.join(names) if names else 'none'}" for k, names in passed.items()]
    sizes = ", ".join(f"{network} {max(cell.sources for cell in every)}" for network, every in networks)
    return "\n".join(
        [
            *lines,
            "",
            "Losses are points of AUROC with their 95 % intervals, paired by image; negative is a gain. Source images: "
            f"{sizes}. Networks for which K meets the rule: {'; '.join(verdicts)}.",
            "",
        ]
    )


def _row(network: str, fitted: str, title: str, part: Sequence[Cell]) -> str:
    whole = np.mean([cell.value[ALL] for cell in part])
    losses = [_points(mean_loss(part, f"{k} entries")) for k in COUNTS]
    return f"| {network} | {fitted} | {title} | {100 * whole:.1f} | {' | '.join(losses)} |"


def _points(loss: Estimate) -> str:
    return f"{100 * loss.value:+.2f} ({100 * loss.low:+.2f} to {100 * loss.high:+.2f})"


if __name__ == "__main__":
    publish(Path(sys.argv[1]), Path(sys.argv[2]))
