"""docs/results.md and the pages below it as a whole."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benfourier.report.markdown import safe
from benfourier.report.paper import Paper
from tools.results.coverage import coverage
from tools.results.differences import compared, differences, reason
from tools.results.drawing import drawings
from tools.results.experiments import Experiment, experiments
from tools.results.facts import accuracy
from tools.results.glance import glance
from tools.results.headline import headline, headline_table
from tools.results.notes import Note, Notes, check, check_experiments, read_notes
from tools.results.sections import SHORT, WHOLE, experiment_lines
from tools.results.summary import summary
from tools.results.sureness import sure_tables
from tools.results.twins import twin_tables
from tools.results.universal import universal_table

INTRO = """# Results

Our numbers beside those of Ma et al. ([arXiv:2005.05552](https://arxiv.org/abs/2005.05552)), cell by cell.
`python -m tools.results` writes this page, and one of each experiment with all its tables, from the ledgers in
`experiments/results/`; [report.md](report.md) says how to read the tables, [evaluation.md](evaluation.md) what was
fitted to and tested on what, [detectors.md](detectors.md) what each detector is.

- An estimate stands with its 95 % interval, drawn by source image; behind the bar is the paper's number, and ours less
  it. Differences are taken before rounding, so that 2.0 may be a little more than two points.
- `mbf` is our setting, `mbf, paper` the paper's; they differ in the SVM's C, 10 and 1, and in that the paper's also
  hears layers that only pass numbers on. `mbf, boosted trees` has trees instead of the SVM.
- `bim`, `r-pgd`, `deepfool` and `cw-l2` stop at the decision boundary: they find the least change that misleads. With
  a distance or a confidence in their name they go on to it; those are the fixed strengths.
- ▼ marks what lies surely below `max-softmax`, which needs no fitting. Where the paper contradicts itself both of its
  values stand, with a question mark, and the differences from both; the larger one counts."""
UNIVERSAL = """Bold: the best worst case of all detectors tested on all attacks, whether fitted to all of them, to all
that go on to a fixed distance or confidence (fixed strengths, other ones on MNIST), or to one of those. Below it: the
best of those fitted to all, mbf, and max-softmax. MEAD: share of the images whose every successful attack is caught,
at 5 % false alarms. A cell holds only images on which its attack succeeded, so that strengths are compared on
different images: a short distance succeeds only near the boundary, and takes some just beyond it, others far."""


@dataclass(frozen=True)
class Written:
    """What the command writes.

    Args:
        page: docs/results.md.
        pages: content by name of the file in docs/results/.
        headline: what stands between the README's markers.
        figures: content by name of the file.
    """

    page: str
    pages: dict[str, str]
    headline: str
    figures: dict[str, str]


def written(folder: Path, notes_file: Path) -> Written:
    """Returns the page, the README's headline and the figures.

    Args:
        folder: of ledgers.
        notes_file: what was written by hand.
    """
    notes = read_notes(notes_file)
    known = experiments(folder, notes.papers)
    far = [difference.place for experiment in known for difference in differences(experiment)]
    check(notes.difference, far, "difference above two points")
    check_experiments(notes, [experiment.name for experiment in known])
    table = list(coverage(known, notes.lacking))
    drawn = {experiment.name: tuple(drawings(experiment)) for experiment in known}
    single = {each.name: (*twin_tables(each), *sure_tables(each)) for each in known}
    lines = [INTRO, "", "## In short", *_in_short(known, notes)]
    lines += _universal(known)
    lines += ["", "## Every table of the paper", "", *table]
    for experiment in known:
        lines += experiment_lines(experiment, notes, drawn[experiment.name], single[experiment.name], SHORT)
    lines += _slips()
    pages = {each.name: experiment_lines(each, notes, drawn[each.name], single[each.name], WHOLE) for each in known}
    figures = {drawing.file: drawing.content for each in drawn.values() for drawing in each}
    texts = {f"{name}.md": _text(of) for name, of in pages.items()}
    return Written(_text(lines), texts, headline(known, notes.difference), figures)


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines).lstrip("\n") + "\n"


def _in_short(known: Sequence[Experiment], notes: Notes) -> Iterator[str]:
    """A few sentences, the first table, and what all of them say, folded away."""
    if not known:
        yield from ("", "No experiment has been run yet.")
    told = list(glance(known, notes))
    yield from ["", *(f"- {sentence}" for sentence in told)] if told else []
    table = headline_table(known, notes.difference)
    if table:
        yield from ("", *table, "", "In words, experiment by experiment:")
    for experiment in known:
        name, network = safe(experiment.name), safe(experiment.network)
        yield from ("", f"<details><summary><b>{name}</b> ({network}{accuracy(experiment)})</summary>", "")
        yield from (f"- {safe(sentence)}" for sentence in summary(experiment))
        yield from _counted(experiment, notes.difference)
        yield from (f"- [Its tables](#{experiment.name})", "", "</details>")


def _counted(experiment: Experiment, notes: Sequence[Note]) -> Iterator[str]:
    """How many numbers lie far from the paper's, over all detectors that it has."""
    count, far = compared(experiment), differences(experiment)
    if count:
        unexplained = sum(not reason(difference, notes) for difference in far)
        link = f"[{len(far)} of {count}](#{experiment.anchor('differences')})"
        yield (
            f"- All detectors of the paper: {link} numbers lie more than 2 points from the paper's; {unexplained} of "
            "these are not explained yet."
        )


def _universal(known: Sequence[Experiment]) -> Iterator[str]:
    lines = list(universal_table(known))
    if lines:
        yield from ("", "## One detector for all attacks", "", UNIVERSAL, "", *lines)


def _slips() -> Iterator[str]:
    paper = Paper("none")
    yield from ("", "## The paper", "", f"{safe(paper.citation)}. What look like slips in it:", "")
    yield from (f"- {safe(slip)}" for slip in paper.slips())
