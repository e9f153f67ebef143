"""The first screen: a sentence, a table and a picture that follow from the numbers."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from benfourier.report.registry import DOCS, TERMINAL, Section, build
from benfourier.report.results import Results
from benfourier.report.table import BELOW, BEST, Table
from benfourier.store.records import AttackSummary, Cell, Cost, Estimate, Outcome, Record, Run
from tests.report.ledgers import ATTACKS, STRENGTHS, Maker

RECORDS = tuple(Maker().records())
RUN = next(record for record in RECORDS if isinstance(record, Run))
SUMMARIES = tuple(record for record in RECORDS if isinstance(record, AttackSummary))
COSTS = tuple(record for record in RECORDS if isinstance(record, Cost))
OUTCOME = next(record for record in RECORDS if isinstance(record, Outcome) and record.protocol == "mixed")
GOOD = {"bim": 0.99, "deepfool": 0.97, "bim-fixed 0.1": 0.95, "bim-fixed 0.3": 0.93}
POOR = {**GOOD, "bim-fixed 0.3": 0.6}


def first_screen(records: Iterable[Record]) -> Section:
    (section,) = [each for each in build(Results.from_records(records)).sections if each.id == "summary"]
    return section


def trial(detector: str, aurocs: dict[str, float], protocol: str = "mixed", gain: float = 0.0) -> Outcome:
    """One fit tested under these attacks; of the differences from max-softmax the whole interval is `gain`."""
    metrics = {
        attack: {"auroc": near(value), "auroc-gain": Estimate(gain, gain, gain)} for attack, value in aurocs.items()
    }
    cells = tuple(Cell(attack, "cifar10", 60, each) for attack, each in metrics.items())
    overall = {"worst-auroc": near(min(aurocs.values())), "mead@5%": near(0.7)}
    fitted, key = (*aurocs,) if protocol != "mixture" else ("weak", "strong"), f"{detector} {protocol}"
    shape = replace(OUTCOME, key=key, detector=detector, method=detector, protocol=protocol, fitted=fitted)
    return replace(shape, cells=cells, overall=overall, reduced="")


def near(value: float) -> Estimate:
    return Estimate(value, value - 0.01, value + 0.01)


def ledger(*outcomes: Outcome) -> Iterator[Record]:
    yield from (RUN, *SUMMARIES, *COSTS, *outcomes)


def columns(table: Table, detector: str) -> dict[str, str]:
    """A row's texts by the heading's first word."""
    (row,) = [row for row in table.rows if row.name.split("\N{NO-BREAK SPACE}")[0] == detector]
    return {head.split()[0].strip(","): entry.text for head, entry in zip(table.columns, row.entries, strict=True)}


def test_one_sentence_names_the_best_worst_case_and_what_was_not_tested() -> None:
    assert first_screen(ledger(trial("lid", POOR), trial("mbf", GOOD))).sentences == (
        "mbf has the best worst case of 2 detectors: AUROC 93.0 % (92.0 to 94.0) under bim-fixed 0.3, every attack "
        "caught on 70.0 % (69.0 to 71.0) of the images at 5 % false alarms; it holds an AUROC of 90 % under every "
        "attack, but an attacker who knows the detector was not tested.",
    )


def test_a_best_detector_below_90_percent_is_not_to_be_relied_on() -> None:
    (sentence,) = first_screen(ledger(trial("lid", POOR))).sentences
    assert "AUROC 60.0 % (59.0 to 61.0) under bim-fixed 0.3" in sentence
    assert "no detector holds an AUROC of 90 % under every attack, so do not rely on one alone" in sentence


def test_a_detector_that_skipped_the_hardest_attack_does_not_look_best() -> None:
    easy = {attack: value for attack, value in GOOD.items() if attack != "bim-fixed 0.3"}
    section = first_screen(ledger(trial("lid", easy), trial("mbf", POOR)))
    assert section.sentences[0].startswith("mbf has the best worst case of 1 detector:")
    (table,) = section.tables
    assert [row.name.split("\N{NO-BREAK SPACE}")[0] for row in table.rows] == ["mbf", "lid"]
    assert not any(entry.emphasis == BEST for entry in table.rows[1].entries)
    assert "¹ tested on 3 of 4 attacks" in table.notes


def test_the_fit_to_the_default_mixture_speaks_before_the_fit_to_all_attacks() -> None:
    both = [trial("mbf", GOOD), trial("lid", POOR), trial("mbf", POOR, "mixture"), trial("lid", GOOD, "mixture")]
    section = first_screen(ledger(*both))
    assert section.sentences[0].startswith("lid has the best worst case")
    assert section.tables[0].title == "Worst AUROC under each kind of attack, %, fitted to the default mixture"


def test_unseen_attacks_count_in_the_worst_case_but_not_in_what_is_caught() -> None:
    unseen = trial("mbf", {"Square": 0.8}, "unseen")
    section = first_screen(ledger(trial("mbf", GOOD, "mixture"), unseen))
    assert "AUROC 80.0 % (79.0 to 81.0) under Square, every attack but the unseen ones caught" in section.sentences[0]
    assert columns(section.tables[0], "mbf")["unseen"] == "80.0"
    assert "Unseen: of other kinds than those in the fit: Square." in section.tables[0].notes


def test_kinds_of_attacks_have_the_worst_of_theirs() -> None:
    """The boundary attacks of the ledger are 0.4 to 1.3 from the image, at the median 0.85; strengths 1.6 to 2.5."""
    far = [replace(each, l2=8.0) if each.attack == "bim-fixed 0.3" else each for each in SUMMARIES]
    section = first_screen((RUN, *far, *COSTS, trial("mbf", GOOD)))
    assert columns(section.tables[0], "mbf") == {
        "worst": "93.0", "all": "70.0", "ms": "2.11", "boundary": "97.0", "weak": "95.0", "strong": "93.0",
    }  # fmt: skip
    assert "Strong: at least 3 times as far: bim-fixed 0.3." in section.tables[0].notes


def test_columns_without_numbers_and_a_single_kind_are_left_out() -> None:
    boundary = dict.fromkeys(ATTACKS, 0.95)
    outcome = replace(trial("mbf", boundary), overall={})
    section = first_screen((RUN, *SUMMARIES, outcome))
    assert section.tables[0].columns == ("worst of all",)
    assert (
        "attacks beyond the decision boundary and an attacker who knows the detector were not tested"
        in (section.sentences[0])
    )


def test_a_kind_under_which_the_worst_is_below_max_softmax_is_marked() -> None:
    entries = first_screen(ledger(trial("mbf", GOOD, gain=-0.1))).tables[0].rows[0].entries
    assert [entry.emphasis for entry in entries[-2:]] == [BELOW, BELOW]
    assert entries[-1].text.endswith("▼")


def test_a_ledger_of_one_fit_for_each_attack_says_so() -> None:
    trials = [replace(trial("mbf", {attack: value}, "non-transfer"), key=attack) for attack, value in GOOD.items()]
    section = first_screen(ledger(*trials))
    assert section.sentences[0].startswith("mbf, fitted to the tested attack, has the best worst case of 1 detector")
    assert "AUROC 93.0 % (92.0 to 94.0) under bim-fixed 0.3; it holds" in section.sentences[0]


def test_the_table_holds_twelve_detectors_and_the_baseline() -> None:
    trials = [trial(f"d{place}", {"bim": 0.9 - 0.01 * place}) for place in range(15)]
    section = first_screen(ledger(*trials, trial("max-softmax", {"bim": 0.1})))
    names = [row.name for row in section.tables[0].rows]
    assert names == [*(f"d{place}" for place in range(12)), "max-softmax"]
    assert "3 other detectors: see “All attacks together”." in section.tables[0].notes


def test_the_picture_is_auroc_over_strength_or_a_dot_per_attack() -> None:
    (figure,) = first_screen(RECORDS).figures
    assert figure.title == "AUROC over strength, cifar10"
    assert len(figure.legend) == 6  # defense-gan was not tested on all attacks
    alt = figure.panels[0].alt
    assert [alt.index(f" {name} ") for name in ("boundary attacks", *STRENGTHS)] == sorted(
        alt.index(f" {name} ") for name in ("boundary attacks", *STRENGTHS)
    )
    (figure,) = first_screen(ledger(trial("mbf", {"bim": 0.9, "deepfool": 0.8}))).figures
    assert figure.title == "AUROC under every attack, cifar10"
    assert "mbf 80.0 under deepfool" in figure.panels[0].alt


def test_two_sources_have_a_sentence_a_table_and_a_picture_each() -> None:
    other = replace(trial("mbf", POOR), key="other", source="svhn")
    section = first_screen(ledger(trial("mbf", GOOD), other))
    assert [sentence.split(":")[0] for sentence in section.sentences] == [
        "mbf has the best worst case of 1 detector on cifar10", "mbf has the best worst case of 1 detector on svhn",
    ]  # fmt: skip
    assert [table.id for table in section.tables] == ["summary", "summary-2"]
    assert [figure.id for figure in section.figures] == ["first-screen-1", "first-screen-2"]


def test_the_terminal_has_the_first_screen_and_the_docs_have_not() -> None:
    results = Results.from_records(RECORDS)
    terminal = build(results, TERMINAL).sections
    assert [section.id for section in terminal] == ["summary", "failures"]
    assert terminal[0].sentences == first_screen(RECORDS).sentences
    assert "summary" not in [section.id for section in build(results, DOCS).sections]


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        ((RUN,), "This ledger holds no finished trial."),
        (
            (RUN, replace(OUTCOME, cells=tuple(replace(cell, metrics={}) for cell in OUTCOME.cells))),
            "This ledger holds no trial in which an attack succeeded on enough images.",
        ),
    ],
)
def test_a_ledger_without_any_auroc_says_so(records: tuple[Record, ...], sentence: str) -> None:
    assert first_screen(records).sentences == (sentence,)


def test_what_is_missing_stands_below_the_table() -> None:
    notes = first_screen(RECORDS).tables[0].notes
    assert "Too few successful attacks for a number: 5 cells of the ledger." in notes
    assert "1 trial failed; the errors stand under “Failures”." in notes
    assert any("GAN trained for 300 steps" in note for note in notes)
