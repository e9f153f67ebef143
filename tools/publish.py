"""A ledger for publication: `python -m tools.publish LEDGER OUT`.

All records stay, except outcomes that a later one covers, scores of single images, and pictures whose licence does not
let them be shown; the other pictures are copied beside the ledger. Folders of this machine are cut out of errors.
"""

import argparse
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from benfourier.errors import BenfourierError
from benfourier.report.paper import database_of
from benfourier.report.results import newest
from benfourier.store.ledger import read, write
from benfourier.store.records import Failure, Outcome, Picture, Record, Scores

SHOWN = ("mnist", "cifar10")  # databases whose images may be shown; others only with the credit their licence asks for
FOLDER = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+")


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.publish", description=__doc__)
    parser.add_argument("ledger", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args(arguments)
    try:
        publish(options.ledger, options.out)
    except BenfourierError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 4
    return 0


def publish(ledger: Path, out: Path) -> None:
    """Writes the copy, and the pictures that it names beside it."""
    records = read(ledger)
    current = {id(outcome) for outcome in newest(record for record in records if isinstance(record, Outcome))}
    public = [_without_folders(record) for record in records if _is_public(record, current)]
    out.parent.mkdir(parents=True, exist_ok=True)
    write(out, public)
    for record in public:
        for name in record.files if isinstance(record, Picture) else ():
            if (ledger.parent / name).is_file():
                (out.parent / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ledger.parent / name, out.parent / name)


def may_be_shown(picture: Picture) -> bool:
    """True for images that may be published: MNIST, CIFAR-10, or photographs that nips17 alone holds, with credit."""
    has_credit = picture.source.startswith("nips17") and " + " not in picture.source and bool(picture.credit)
    return has_credit or database_of(picture.source) in SHOWN


def _is_public(record: Record, current: set[int]) -> bool:
    if isinstance(record, Outcome):
        return id(record) in current
    return may_be_shown(record) if isinstance(record, Picture) else not isinstance(record, Scores)


def _without_folders(record: Record) -> Record:
    return replace(record, error=FOLDER.sub("", record.error)) if isinstance(record, Failure) else record


if __name__ == "__main__":
    sys.exit(main())
