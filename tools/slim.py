"""A ledger for publication: `python -m tools.slim LEDGER OUT`.

All records stay, except outcomes that later ones answer anew; but scores of single images only of trials that fit and
test on the same attack, and pictures only where their licence lets them be shown; those are copied beside it. If the
copy would be larger than two megabytes, the scores are thinned to so many quantiles that ROC curves can still be drawn.
"""

import argparse
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benfourier.errors import BenfourierError
from benfourier.report.gathering import newest
from benfourier.report.paper import family
from benfourier.report.results import ALONE
from benfourier.store.ledger import Ledger, read
from benfourier.store.records import Cell, Failure, Outcome, Picture, Record, Scores

Floats = NDArray[np.float32]
LARGEST = 2_000_000  # bytes of the copy
QUANTILE = "quantile/"  # instead of an image's id
STEPS = (None, 200, 100, 50)  # quantiles of a cell's scores
MAY_BE_SHOWN = ("mnist", "cifar10")  # other images only with the credit that their licence asks for
FOLDER = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+")


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.slim", description=__doc__)
    parser.add_argument("ledger", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args(arguments)
    try:
        slim(options.ledger, options.out)
    except BenfourierError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 4
    return 0


def slim(ledger: Path, out: Path) -> None:
    """Writes the copy, and the pictures that it names beside it."""
    records = read(ledger)
    outcomes = [record for record in records if isinstance(record, Outcome)]
    replaced = {id(outcome) for outcome in outcomes} - {id(outcome) for outcome in newest(outcomes)}
    records = tuple(record for record in records if id(record) not in replaced)
    for most in STEPS:
        write(out, (_light(record, most) for record in records if not _hidden(record)))
        if out.stat().st_size <= LARGEST:
            break
    for record in records:
        if isinstance(record, Picture) and not _hidden(record):
            for name in record.files:
                if (ledger.parent / name).is_file():
                    (out.parent / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(ledger.parent / name, out.parent / name)


def write(out: Path, records: Iterable[Record]) -> None:
    """Puts a ledger of these records in the place of another."""
    out.unlink(missing_ok=True)
    for record in records:
        Ledger(out).append(record)


def without_scores(records: Iterable[Record]) -> Iterator[Record]:
    """Yields the records without scores and pictures."""
    for record in records:
        if isinstance(record, Outcome):
            yield replace(record, cells=tuple(replace(cell, scores=None) for cell in record.cells))
        elif not isinstance(record, Picture):
            yield record


def may_be_shown(picture: Picture) -> bool:
    """True for images that may be published: MNIST, CIFAR-10, or photographs that nips17 alone holds, with credit."""
    credited = picture.source.startswith("nips17") and " + " not in picture.source and bool(picture.credit)
    return credited or family(picture.source) in MAY_BE_SHOWN


def _hidden(record: Record) -> bool:
    return isinstance(record, Picture) and not may_be_shown(record)


def _light(record: Record, most: int | None) -> Record:
    """A record with few scores, and without folders of the machine that made it."""
    if isinstance(record, Failure):
        return replace(record, error=FOLDER.sub("", record.error))
    if not isinstance(record, Outcome):
        return record
    return replace(record, cells=tuple(_light_cell(cell, record.protocol == ALONE, most) for cell in record.cells))


def _light_cell(cell: Cell, keep: bool, most: int | None) -> Cell:
    if cell.scores is None or not keep:
        return replace(cell, scores=None)
    return cell if most is None else replace(cell, scores=_quantiles(cell.scores, most))


def _quantiles(scores: Scores, most: int) -> Scores:
    """Evenly spaced scores of each kind and fold; its rows are no images any more, and their ids say so."""
    folds = np.asarray(scores.folds)
    parts = []
    for fold in np.unique(folds):
        rows = folds == fold
        number = min(int(rows.sum()), max(1, most // len(np.unique(folds))))
        kinds = [_spaced(kind[rows], number) for kind in (scores.clean, scores.noisy, scores.adversarial)]
        parts.append((fold, number, kinds))
    clean, noisy, adversarial = (np.concatenate([kinds[place] for _, _, kinds in parts]) for place in range(3))
    ids = tuple(f"{QUANTILE}{place}" for _, number, _ in parts for place in range(number))
    return Scores(ids, tuple(int(fold) for fold, number, _ in parts for _ in range(number)), clean, noisy, adversarial)


def _spaced(scores: Floats, number: int) -> Floats:
    """So many of the scores, at the middles of as many equal shares of them."""
    places = ((np.arange(number) + 0.5) * len(scores) / number).astype(int)
    spaced: Floats = np.sort(scores)[places]
    return spaced


if __name__ == "__main__":
    sys.exit(main())
