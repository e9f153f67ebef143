"""What the quickstart found, put into README.md between its markers: `python -m tools.readme [--from LEDGER]`.

A copy of the quickstart's ledger, without the scores of single images, lies in experiments/results/quickstart.jsonl.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benfourier.report.gathering import gather
from benfourier.report.results import Results
from benfourier.report.words import sentences
from benfourier.store.ledger import read
from benfourier.store.records import Outcome
from tools.slim import without_scores, write

ROOT = Path(__file__).parents[1]
LEDGER, README = ROOT / "experiments" / "results" / "quickstart.jsonl", ROOT / "README.md"
BLOCK = re.compile(r"(<!-- results -->\n).*?(<!-- /results -->)", re.DOTALL)


def main() -> int:
    """Returns the exit code: 1 if --check finds another text in README.md than the ledger gives."""
    parser = argparse.ArgumentParser(prog="python -m tools.readme", description=__doc__)
    parser.add_argument("--from", dest="whole", type=Path, help="a ledger to take the place of the copy")
    parser.add_argument("--check", action="store_true", help="change nothing, only compare")
    options = parser.parse_args()
    if options.whole is not None:
        copy(options.whole)
    page = README.read_text(encoding="utf-8")
    fresh = BLOCK.sub(lambda block: block[1] + text_of(gather(read(LEDGER))) + block[2], page)
    if options.check:
        return int(fresh != page)
    README.write_text(fresh, encoding="utf-8")
    return 0


def copy(whole: Path) -> None:
    """Puts a ledger in the place of the copy, scores and pictures left out."""
    write(LEDGER, without_scores(read(whole)))


def text_of(results: Results) -> str:
    """Returns the lines between the markers."""
    run = results.runs[-1]
    near = [o.fitted[0] for o in _of(results, "attack-transfer", "mbf")]
    far = [cell.attack for o in _of(results, "strength-transfer", "mbf")[:1] for cell in o.cells]
    sizes = {made.attack: made.sources for made in results.crafted}
    most = max(sizes.values())
    fewer = [f"{size} for {name}" for name, size in sizes.items() if size < most]
    told = f"{most} source images" + (f" ({', '.join(fewer)})" if fewer else "")
    lines = [
        f"| detector | fitted to | {' | '.join(f'`{name}`' for name in (*near, *far))} |",
        "|---" * (2 + len(near) + len(far)) + "|",
        *(_line("mbf", row, near, far, results) for row in (*near, "all")),
        _line("max-softmax", "all", near, far, results),
        "",
        "AUROC in per cent, fitted to the attack of the row and tested on other images under the attack of the column: "
        f"{run.network['name']} ({run.network['accuracy']:.1%} accurate), {told} in five folds; "
        f"{run.date[:10]}. `max-softmax` looks at nothing but the network's confidence, whatever it is fitted to. "
        "In plain words:",
        "",
        *(f"- {sentence}" for sentence in sentences(results) if "`mbf`" in sentence or " mbf " in sentence),
    ]
    return "\n".join(lines) + "\n"


def _of(results: Results, protocol: str, detector: str) -> Sequence[Outcome]:
    return [o for o in results.outcomes if (o.protocol, o.detector) == (protocol, detector)]


def _line(detector: str, fitted: str, near: Sequence[str], far: Sequence[str], results: Results) -> str:
    found = dict(_cells(results, detector, fitted))
    cells = [found.get(name, "") for name in (*near, *far)]
    return f"| `{detector}` | {'all of them' if fitted == 'all' else f'`{fitted}`'} | {' | '.join(cells)} |"


def _cells(results: Results, detector: str, fitted: str) -> Iterator[tuple[str, str]]:
    protocols = ("mixed",) if fitted == "all" else ("attack-transfer", "strength-transfer")
    for protocol in protocols:
        for outcome in _of(results, protocol, detector):
            if fitted == "all" or outcome.fitted == (fitted,):
                for cell in outcome.cells:
                    auroc = cell.metrics.get("auroc")
                    yield cell.attack, "too few" if auroc is None else f"{100 * auroc.value:.1f}"


if __name__ == "__main__":
    sys.exit(main())
