"""Tables from records: the numbers that went in stand where they belong."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from benfourier.report.registry import build
from benfourier.report.results import Results, newest
from benfourier.report.table import BELOW, BEST, FEW, Entry, Row, Table, milliseconds, percent
from benfourier.store.ledger import read, write
from benfourier.store.records import Cell, Estimate, Failure, Outcome, Record, Run
from tests.report.ledgers import ATTACKS, DETECTORS, STRENGTHS, Maker
from tests.report.ledgers import FEW as SUCCESSES

MAKER = Maker()
RECORDS = tuple(MAKER.records())


def tables(records: tuple[Record, ...] = RECORDS, paper: str | None = None) -> dict[str, Table]:
    return build(Results.from_records(records, paper)).tables


ALL = tables()


def row(table: Table, name: str) -> Row:
    return next(table_row for table_row in table.rows if table_row.name.split("\N{NO-BREAK SPACE}")[0] == name)


def place(table: Table, name: str, column: str) -> Entry:
    heads = [head.split(" (")[0] for head in table.columns]
    return row(table, name).entries[heads.index(column)]


def outcome(protocol: str, detector: str, *fitted: str) -> Outcome:
    return next(
        record
        for record in RECORDS
        if isinstance(record, Outcome)
        and (record.protocol, record.detector, record.fitted) == (protocol, detector, fitted)
    )


@pytest.mark.parametrize("metric", ["auroc", "accuracy", "aupr"])
def test_a_cell_holds_value_and_interval_in_percent(metric: str) -> None:
    expected = outcome("non-transfer", "lid", "bim").cells[0].metrics[metric]
    entry = place(ALL[f"non-transfer-{metric}"], "lid", "bim")
    assert entry.value == pytest.approx(100 * expected.value)
    assert [entry.low, entry.high] == pytest.approx([100 * expected.low, 100 * expected.high])
    assert entry.text.startswith(f"{100 * expected.value:.1f}")


def test_the_papers_number_stands_beside_ours() -> None:
    assert str(place(ALL["non-transfer-auroc"], "mbf", "deepfool").paper) == "96.9"
    assert str(place(ALL["attack-transfer-auroc-1"], "bim", "deepfool").paper) == "87.8"
    assert place(ALL["non-transfer-auroc"], "c1c2", "bim").paper is None
    assert "The paper has none for c1c2, defense-gan." in ALL["non-transfer-auroc"].notes


def test_another_database_of_the_paper_can_be_asked_for() -> None:
    table = tables(paper="svhn")["non-transfer-accuracy"]
    assert str(place(table, "mbf", "bim").paper) == "98.8 or 98.7?"
    assert any(note.startswith("? the row repeats") for note in table.notes)


def test_data_without_counterpart_say_so() -> None:
    table = tables(tuple(Maker(source="digits").records()))["non-transfer-auroc"]
    assert not table.has_paper
    assert "The paper has no counterpart to digits." in table.notes


def test_mnist_stands_beside_the_defense_gan_table() -> None:
    table = tables(tuple(Maker(source="mnist-5k").records()))["non-transfer-auroc"]
    assert str(place(table, "defense-gan", "bim").paper) == "74.4"
    assert "The paper has none for kd-bu, mahalanobis, lid, c1c2." in table.notes
    assert "Iterations × runs of the paper's Defense-GAN: 200 × 10 beside defense-gan." in table.notes


def test_mbf_comes_first_and_max_softmax_last() -> None:
    names = [table_row.name for table_row in ALL["non-transfer-auroc"].rows]
    assert (names[0], names[-1], len(names)) == ("mbf", "max-softmax", len(DETECTORS) + 1)


def test_attacks_stand_in_the_order_of_the_plan() -> None:
    backwards = Results.from_records((RECORDS[0], *reversed(RECORDS[1:])))
    assert backwards.attacks == (*ATTACKS, *STRENGTHS)


def test_max_softmax_has_its_row_even_if_it_was_not_run() -> None:
    without = tuple(r for r in RECORDS if not (isinstance(r, Outcome) and r.method == "max-softmax"))
    for name in ("non-transfer-auroc", "mixed-accuracy", "strength-up-auroc", "data-transfer-auroc"):
        table = tables(without)[name]
        assert {entry.text for entry in row(table, "max-softmax").entries} == {"–"}
        assert any("was not run" in note for note in table.notes)


def test_accuracy_tables_show_what_always_benign_scores() -> None:
    for name in ("non-transfer-accuracy", "attack-transfer-accuracy-1", "mixed-accuracy", "strength-up-accuracy"):
        assert ALL[name].rows[-1].name == "always “benign”"
        assert ALL[name].rows[-1].entries[0].text == "66.7"


def test_a_cell_of_too_few_successes_says_so() -> None:
    entry = place(ALL["non-transfer-auroc"], "defense-gan", "cw-l2")
    assert (entry.text, entry.value, entry.emphasis) == (f"too few ({SUCCESSES})", None, FEW)
    assert any(note.startswith("“too few”") for note in ALL["non-transfer-auroc"].notes)


def test_what_was_reduced_stands_in_footnotes_of_rows_and_columns() -> None:
    table = ALL["non-transfer-auroc"]
    assert row(table, "defense-gan").name == "defense-gan\N{NO-BREAK SPACE}¹"
    assert "¹ GAN trained for 300 steps" in table.notes
    assert "cw-l2 (a)" in table.columns
    assert "(a) 150 source images" in table.notes


def test_a_cell_significantly_below_max_softmax_is_marked() -> None:
    entry = place(ALL["non-transfer-auroc"], "mbf", "deepfool")
    assert outcome("non-transfer", "mbf", "deepfool").cells[0].metrics["auroc-gain"].high < 0
    assert (entry.emphasis, entry.text[-1]) == (BELOW, "▼")


def test_the_highest_of_a_column_is_marked_as_best() -> None:
    table = ALL["non-transfer-accuracy"]
    values = [table_row.entries[0].value for table_row in table.rows]
    best = [table_row.entries[0].emphasis == BEST for table_row in table.rows]
    assert best.index(True) == values.index(max(value for value in values if value is not None))
    assert sum(best) == 1


def test_a_value_without_interval_is_shown_alone() -> None:
    entry = place(ALL["non-transfer-fpr-noisy-5"], "mbf", "bim")
    assert (entry.text, entry.low, entry.interval) == ("7.0", None, "")


def test_a_number_near_zero_has_no_sign_and_a_long_time_no_exponent() -> None:
    assert percent(Estimate(-0.0004, -0.0123, 0.0)).interval == "-1.2 to 0.0"
    assert percent(Estimate(-0.0004, -0.0123, 0.0)).text == "0.0"
    assert [milliseconds(value).text for value in (0.0854, 13.21, 2910.4)] == ["0.0854", "13.2", "2910"]


def test_false_alarms_on_misclassified_images_come_from_the_outcomes() -> None:
    assert place(ALL["non-transfer-fpr-misclassified-5"], "lid", "r-pgd").text == "31.0"


def test_a_rate_that_no_cell_has_makes_no_table() -> None:
    assert "non-transfer-tpr-5" in ALL
    assert "non-transfer-tpr-0.1" not in ALL


def test_the_diagonal_of_a_transfer_matrix_comes_from_non_transfer_trials() -> None:
    expected = outcome("non-transfer", "mbf", "cw-l2").cells[0].metrics["auroc"].value
    assert place(ALL["attack-transfer-auroc-1"], "cw-l2", "cw-l2").value == pytest.approx(100 * expected)


def test_strength_transfer_has_both_ways() -> None:
    assert ALL["strength-up-auroc"].columns == STRENGTHS
    assert [table_row.name for table_row in ALL["strength-up-auroc"].rows][:2] == ["mbf, bim and 3 more", "mbf, bim"]
    assert ALL["strength-down-auroc"].columns == (*ATTACKS, *STRENGTHS)
    rows = [table_row.name for table_row in ALL["strength-down-auroc"].rows]
    assert rows[:2] == ["mbf, bim-fixed 0.1 and 3 more", "mbf, bim-fixed 0.1"]
    assert len(rows) == 2 * len(("mbf", "lid", "max-softmax"))


def test_mixed_shows_worst_case_and_mead() -> None:
    table, metrics = ALL["mixed-overall"], outcome("mixed", "mbf", *ATTACKS, *STRENGTHS).overall
    assert table.columns[:2] == ("Worst AUROC", "MEAD at 5 %")
    assert [entry.value for entry in row(table, "mbf").entries[:2]] == pytest.approx(
        [100 * metrics["worst-auroc"].value, 100 * metrics["mead@5%"].value]
    )


def test_data_transfer_names_both_sources() -> None:
    assert ALL["data-transfer-auroc"].title == "AUROC, %, fitted to cifar10, tested on cifar10-other"


def test_ks_tables_show_d_n_and_the_papers_p() -> None:
    table = ALL["ks-h1"]
    table_row = row(table, "deepfool: cifar10, test")
    assert table.columns == ("p", "p, any shape", "any shape below 0.05, %", "D", "n")
    assert [entry.text for entry in table_row.entries] == ["0.075", "0.080", "5.0", "0.300", "60"]
    assert str(table_row.entries[0].paper) == "0.216"
    assert str(row(ALL["ks-h2"], "bim and deepfool: cifar10, test").entries[0].paper) == "0.030"
    assert str(row(ALL["ks-h2-sources"], "bim: train and test").entries[0].paper) == "0.333"


def test_holm_is_in_the_tables_of_h2_only() -> None:
    table = ALL["ks-h2"]
    assert table.columns == ("p", "p, exact", "p, Holm", "rejected, %", "D", "n")
    assert [entry.text for entry in table.rows[0].entries[2:4]] == ["0.400", "12"]
    assert any(note.startswith("Holm: ") for note in table.notes)
    assert not any("Holm" in note for note in ALL["ks-h1"].notes)


@pytest.mark.parametrize(("share", "against"), [(0.5, 1), (0.08, 0), (0.0, 0)])
def test_what_follows_for_h1_is_said(share: float, against: int) -> None:
    """Of 60 images 5 are 8 %; the interval of that share begins at 2.8 %."""
    h1 = next(record for record in MAKER.ks() if record.study == "h1")
    more = {**h1.more, "any-shape-below-0.05": share}
    (note,) = [note for note in tables((replace(h1, more=more),))["ks-h1"].notes if "What follows" in note]
    assert f"it does not hold in {against} of 1 rows" in note


def test_nothing_follows_for_h1_without_a_p_for_any_shape() -> None:
    h1 = next(record for record in MAKER.ks() if record.study == "h1")
    table = tables((replace(h1, more={}),))["ks-h1"]
    assert table.columns == ("p", "D", "n")
    assert not any("What follows" in note for note in table.notes)


def test_the_paired_difference_to_max_softmax_has_a_table_of_its_own() -> None:
    gain = ALL["non-transfer-auroc-gain"]
    auroc = place(ALL["non-transfer-auroc"], "lid", "bim").value
    assert auroc is not None
    assert place(gain, "lid", "bim").value == pytest.approx(auroc - 90, abs=0.1)
    assert place(gain, "max-softmax", "bim").value is None


def test_each_layer_has_its_fit_and_each_attack_its_controls() -> None:
    fits = ALL["layers-test"]
    assert [table_row.name for table_row in fits.rows] == list(MAKER.layers)
    assert place(fits, MAKER.layers[1], "clean, D").text == "0.11"
    assert place(fits, MAKER.layers[1], "bim, c").value == 2
    assert f"D is {0.1 + 0.01 * (len(MAKER.layers) - 1) / 2:.2f} in the median layer" in fits.notes[1]
    assert fits.notes[1].endswith(f"at most {0.5 * (len(MAKER.layers) - 1):.2f}, in {MAKER.layers[-1]}.")
    assert f"the offset is below 0.1 in 1 of {len(MAKER.layers)} layers" in fits.notes[2]
    assert place(ALL["noise-control"], "own shapes", "bim").value == pytest.approx(80)
    assert place(ALL["noise-control"], "same shapes", "bim").interval == "48.0 to 52.0"


def test_costs_show_what_a_detector_adds_to_the_network() -> None:
    lid = row(ALL["costs"], "lid")
    assert [entry.text for entry in lid.entries[:3]] == ["2.00", "9.11", "7.11"]
    assert str(lid.entries[1].paper) == "110.8"
    ours = [cost.detector for cost in MAKER.costs() if cost.detector in ("mbf", "lid", "mahalanobis", "kd-bu")]
    there = "kd-bu; mahalanobis; lid; mbf there."
    assert ALL["costs"].notes[0].endswith(f"From the least: {'; '.join(ours)} here, and {there}")


def test_one_number_of_the_paper_does_not_order_two_of_our_settings() -> None:
    lid = next(cost for cost in MAKER.costs() if cost.detector == "lid")
    slower = replace(lid, key="t slower", detector="lid, slower", features_ms=lid.features_ms + 1)
    note = tables((*RECORDS, slower))["costs"].notes[0]
    assert note.endswith("and kd-bu; mahalanobis; lid or lid, slower; mbf there.")


def test_attacks_are_listed_with_success_rate_and_remaining_images() -> None:
    bim = row(ALL["attacks"], "bim")
    assert [entry.text for entry in bim.entries[:3]] == ["300", "290", "96.7"]
    assert bim.entries[2].interval == "94.0 to 98.4"
    assert row(ALL["remaining"], "bim").entries[1].text == "330"


def test_settings_have_paths_as_names() -> None:
    names = {table_row.name: table_row.entries[0].text for table_row in ALL["settings"].rows}
    assert names["attacks[4].label"] == "bim-fixed 0.1"
    assert names["seed"] == "0"


def test_a_failure_is_shown_until_its_trial_is_done() -> None:
    assert [table_row.name for table_row in ALL["failures"].rows] == ["lid on bim"]
    done = replace(outcome("mixed", "lid", *ATTACKS, *STRENGTHS), key="broken")
    assert "failures" not in tables((*RECORDS, done))


def test_the_last_of_two_results_for_one_question_counts() -> None:
    old = outcome("non-transfer", "lid", "bim")
    cell = replace(old.cells[0], metrics={"auroc": Estimate(0.125, 0.0, 0.25)})
    report = tables((*RECORDS, replace(old, key="new", cells=(cell,))))
    assert place(report["non-transfer-auroc"], "lid", "bim").value == 12.5
    assert "1 older results were replaced by later ones." in report["trials"].notes


def test_an_outcome_goes_once_a_later_one_answers_all_of_it() -> None:
    whole = outcome("attack-transfer", "lid", "bim")
    part, rest = replace(whole, key="part", cells=whole.cells[:2]), replace(whole, key="rest", cells=whole.cells[2:])
    assert newest([part, rest]) == (part, rest)
    assert newest([part, rest, whole]) == (whole,)
    assert newest([whole, part]) == (whole, part)
    assert newest([part, replace(whole, detector="mbf")])[0] is part


def test_a_fit_to_everything_goes_once_the_plan_has_grown_or_shrunk() -> None:
    all_of_them = outcome("mixed", "lid", *ATTACKS, *STRENGTHS)
    few = replace(all_of_them, key="few", fitted=ATTACKS[:2], cells=all_of_them.cells[:2])
    assert newest([few, all_of_them]) == (all_of_them,)
    assert newest([all_of_them, few]) == (few,)


def test_failures_are_those_of_the_last_run(tmp_path: Path) -> None:
    run = next(record for record in RECORDS if isinstance(record, Run))
    old, new = (Failure(key, f"study {key}", "StoreError: no") for key in ("old", "new"))
    write(tmp_path / "l.jsonl", (run, old, run, new))
    assert Results.from_records(read(tmp_path / "l.jsonl")).failures == (new,)


def test_a_trial_that_was_run_again_counts_before_an_older_one_of_another_plan() -> None:
    old = outcome("non-transfer", "lid", "bim")
    wide = replace(old, key="wide", cells=(_of_auroc(old, 0.25), replace(old.cells[0], attack="deepfool")))
    again = replace(old, key="again", cells=(_of_auroc(old, 0.75),))
    report = tables((*RECORDS, wide, again))
    assert place(report["non-transfer-auroc"], "lid", "bim").value == 75


def _of_auroc(old: Outcome, value: float) -> Cell:
    return replace(old.cells[0], metrics={"auroc": Estimate(value, value, value)})


def test_a_value_that_is_nan_is_shown_as_missing() -> None:
    old = outcome("non-transfer", "lid", "bim")
    cell = Cell("bim", "cifar10", 60, {"auroc": Estimate(math.nan, math.nan, math.nan)})
    entry = place(tables((*RECORDS, replace(old, cells=(cell,))))["non-transfer-auroc"], "lid", "bim")
    assert (entry.text, entry.value) == ("–", None)


def test_another_label_of_the_same_attack_does_not_stand_beside_the_papers() -> None:
    strong = next(r for r in MAKER.attack_summaries() if r.attack == "bim")
    other = replace(strong, key="strong", attack="bim, strong", options={"eps": 1.0})
    results = Results.from_records((*RECORDS, other))
    assert (results.attack_id("bim"), results.attack_id("bim, strong")) == ("bim", "bim, strong")


def test_tables_of_a_second_source_are_named_after_it() -> None:
    more = [record for record in Maker(source="svhn").records() if isinstance(record, Outcome)]
    report = tables((*RECORDS, *(replace(record, key=f"svhn {record.key}") for record in more)))
    assert report["non-transfer-auroc-2"].title == "AUROC, %, svhn"
    assert str(place(report["non-transfer-auroc-2"], "mbf", "deepfool").paper) == "99.3"
    assert str(place(report["non-transfer-auroc"], "mbf", "deepfool").paper) == "96.9"


def test_a_ledger_of_a_start_and_a_failure_gives_what_it_has() -> None:
    few = tuple(record for record in RECORDS if isinstance(record, Run | Failure))
    sections = build(Results.from_records(few)).sections
    assert [section.id for section in sections] == ["summary", "failures", "settings", "paper"]
    assert sections[0].sentences[0] == "This ledger holds no finished trial."
