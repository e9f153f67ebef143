"""The card of a guard as a page, as a model card and as JSON."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

import benfourier as bf
from benfourier.errors import OptionError
from benfourier.metrics.intervals import clopper_pearson
from benfourier.report.card import card_page, model_card, style_digest, write_card
from benfourier.store.card import AGAIN, NEVER_TESTED, AlarmRate, AttackRate, MeasuredScores
from benfourier.store.records import Estimate
from tests.report.ledgers import HOSTILE, SCRIPT
from tests.report.test_html import Tree

LONG = "projected-gradient-descent-with-many-restarts"
MITCHELL = (
    "Model details",
    "Intended use",
    "Factors",
    "Metrics",
    "Evaluation data",
    "Training data",
    "Quantitative analyses",
    "Ethical considerations",
    "Caveats and recommendations",
)
TERMS = ("Article 15(5)", "AML.M0015", "MEASURE 2.6", "MEASURE 2.7")


def share(count: int, images: int) -> Estimate:
    nothing = Estimate(float("nan"), float("nan"), float("nan"))
    return Estimate(count / images, *clopper_pearson(count, images)) if images else nothing


def attack(label: str, rejected: int, succeeded: int) -> AttackRate:
    rate, scores = share(rejected, succeeded), MeasuredScores((0.5,) * succeeded, (0.1,) * succeeded)
    return AttackRate(label, "bim", {"eps": 8 / 255}, True, 50, succeeded, rejected, rate, 0.5, 0.1, scores)


def alarms(kind: str, rejected: int, images: int) -> AlarmRate:
    return AlarmRate(kind, images, rejected, share(rejected, images), MeasuredScores((0.0,) * images, (0.0,) * images))


CARD = bf.GuardCard(
    network="ResNet",
    weights="0123456789abcdef" * 4,
    preprocessing={"bounds": [0.0, 1.0], "mean": [0.485], "std": None, "size": [32, 32]},
    classes=10,
    accuracy=share(91, 100),
    detector="views",
    passes=6.0,
    false_alarm_rate=0.05,
    thresholds=180,
    fitted=("weak",),
    attacks=(attack("weak", 30, 40), attack(LONG, 39, 40), attack("never", 0, 0)),
    alarms=(alarms("clean", 6, 120), alarms("misclassified", 1, 11)),
    other_kinds=(alarms("checkerboards", 48, 50),),
    date="2026-01-02T03:04:05+00:00",
    versions={"benfourier": "0.2.0"},
)
HOSTILE_CARD = replace(
    CARD,
    network=SCRIPT,
    fitted=(HOSTILE,),
    attacks=(attack(HOSTILE, 1, 40), attack('a": [}\n---\n- \x85\u2028\ud800|', 2, 40)),
    alarms=(alarms(SCRIPT, 1, 10),),
    base_model='x/y"\nlicense: mit',
    informed=SCRIPT,
    versions={SCRIPT: SCRIPT},
    preprocessing={SCRIPT: SCRIPT},
)


def test_the_page_and_the_model_card_say_what_a_reader_needs() -> None:
    for text in (card_page(CARD), model_card(CARD).replace("\\", "")):
        for part in (
            CARD.weights,
            "0.485",
            "6 forward passes",
            CARD.threat,
            "who know the guard: not measured",
            *NEVER_TESTED,
            AGAIN,
            *TERMS,
            *MITCHELL[1:6],
            "2026-01-02",
            LONG,
            "30 of 40",
            "6 of 120",
            "48 of 50",
            "50 checkerboards",
        ):
            assert part in text, part


def test_the_text_warns_of_a_guard_that_misses_most_and_of_more_false_alarms_than_promised() -> None:
    assert "warning" not in str(CARD)
    assert "promised:" not in str(CARD).replace("5.0% promised on clean images:", "")
    text = str(replace(CARD, attacks=(attack("weak", 10, 40),), alarms=(alarms("clean", 20, 120),)))
    assert "warning: most images under weak are accepted" in text
    assert "20 of 120, more than promised: calibrate with more images" in text


def test_the_worst_attack_and_the_false_alarms_come_first() -> None:
    first, *_ = re.split("<table", card_page(CARD))
    assert "75.0\u00a0% (58.8 to 87.3) of 40 images under the attack weak" in first
    assert "5.0\u00a0% (1.9 to 10.6) of 120 images that nobody attacked" in first
    nothing = card_page(replace(CARD, attacks=(), alarms=(), other_kinds=()))
    assert "Images of other kinds" not in nothing
    assert "How many attacked images it rejects was not measured." in nothing
    assert Tree(nothing).wrong == []


def test_the_page_has_one_picture_with_a_mark_and_an_interval_for_each_rate() -> None:
    html = card_page(CARD)
    tree = Tree(html)
    (picture,) = tree.all("svg")
    assert picture["role"] == "img"
    for words in (
        "weak: 75.0 % (58.8 to 87.3)",
        f"{LONG}: 97.5 %",
        "never: none succeeded",
        "checkerboards: 96.0 %",
        "clean: 5.0 %",
    ):
        assert words in picture["aria-label"]
    assert len(tree.all("circle")) == 3  # attacks that ever succeeded, and images of another kind
    assert len(re.findall('class="untouched mark"', html)) == 2
    assert html.count(f"<title>{LONG}</title>") == 1
    assert LONG not in re.sub(
        "<title>.*?</title>", "", re.findall("<svg.*?</svg>", html, re.DOTALL)[0].split(">", 1)[1]
    )
    (mark,) = [circle for circle in tree.all("circle") if circle["cx"] == f"{5 + 3.5 * 75:.1f}"]
    assert mark["class"] == "attacked"


def test_the_page_is_whole_stands_alone_and_runs_nothing() -> None:
    html = card_page(HOSTILE_CARD)
    tree = Tree(html)
    assert (tree.wrong, tree.open) == ([], [])
    assert re.findall(r"https?:|//[a-z]|@import|url\(|data:", html) == []
    assert not {"script", "link", "iframe", "img", "form"} & {tag for tag, _ in tree.elements}
    assert html.count("&lt;script&gt;") >= 5
    assert not any(name.startswith("on") or name == "style" for _, each in tree.elements for name in each)
    levels = [int(tag[1]) for tag, _ in tree.elements if re.fullmatch("h[1-6]", tag)]
    assert levels == [1] + [2] * (len(levels) - 1)


def test_a_server_can_allow_the_pages_style_sheet_and_no_other() -> None:
    (style,) = re.findall("<style>(.*?)</style>", card_page(CARD), re.DOTALL)
    digest = hashlib.sha256(style.encode()).digest()
    assert style_digest() == f"sha256-{base64.b64encode(digest).decode()}"


def test_hugging_face_reads_the_model_card() -> None:
    card: Any = ModelCard(model_card(replace(CARD, base_model="microsoft/resnet-50")))
    data = card.data.to_dict()
    assert data["library_name"] == "benfourier"
    assert data["base_model"] == "microsoft/resnet-50"
    assert "adversarial-robustness" in data["tags"]
    results = [
        (each.task_type, each.dataset_name, each.metric_type, each.metric_value) for each in card.data.eval_results
    ]
    task = "image-classification"
    assert results == [
        (task, "images given", "accuracy", 0.91),
        (task, "attacked: weak", "recall", 0.75),
        (task, f"attacked: {LONG}", "recall", 0.975),  # the attack that never succeeded has no rate
        (task, "another kind: checkerboards", "recall", 0.96),
        (task, "clean", "false_positive_rate", 0.05),
        (task, "misclassified", "false_positive_rate", 0.0909),
    ]
    (index,) = data["model-index"]
    assert [result["dataset"]["name"] for result in index["results"]] == [data for _, data, *_ in results]
    headings = re.findall("^## (.*)$", card.text, re.MULTILINE)
    assert headings == [*MITCHELL, "For auditors"]
    without: Any = ModelCard(model_card(CARD))
    assert "base_model" not in without.data.to_dict()


def test_words_of_a_file_stay_words_in_yaml_and_markdown() -> None:
    card: Any = ModelCard(model_card(HOSTILE_CARD))
    content, data = card.content, card.data.to_dict()
    text = content.split("\n---\n", 1)[1]
    assert data.keys() == {"library_name", "tags", "base_model", "model-index"}
    (index,) = data["model-index"]
    assert index["name"] == f"Guard of {SCRIPT}"
    assert f"attacked: {HOSTILE}" in [result["dataset"]["name"] for result in index["results"]]
    assert "<script" not in text
    assert "\n---\n" not in text


def test_a_card_is_written_in_the_format_of_its_ending(tmp_path: Path) -> None:
    for ending, start in (
        (".html", "<!doctype html>"),
        (".md", "---\n"),
        (".json", "{\n"),
        (".HTML", "<!doctype html>"),
    ):
        bf.write_card(CARD, tmp_path / f"card{ending}")
        assert (tmp_path / f"card{ending}").read_text(encoding="utf-8").startswith(start)
    content = json.loads((tmp_path / "card.json").read_text(encoding="utf-8"))
    assert str(bf.GuardCard.from_json(content)) == str(CARD)
    bf.write_card(HOSTILE_CARD, tmp_path / "card.html")  # half a letter that UTF-8 cannot hold
    assert "\u2028?|" in (tmp_path / "card.html").read_text(encoding="utf-8")
    with pytest.raises(OptionError, match=r"'\.txt'; allowed: \.html, \.md, \.json"):
        write_card(CARD, tmp_path / "card.txt")
    with pytest.raises(OptionError, match="the card cannot be written"):
        write_card(CARD, tmp_path / "none" / "card.md")


def test_cards_need_neither_torch_nor_matplotlib(tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text(json.dumps(CARD.as_json()), encoding="utf-8")
    program = f"""
import json, sys, benfourier as bf
card = bf.GuardCard.from_json(json.load(open({str(tmp_path / "card.json")!r})))
bf.write_card(card, {str(tmp_path / "card.html")!r})
print([name for name in ("torch", "matplotlib", "numba") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.stdout == "[]\n", done.stderr
    assert (tmp_path / "card.html").read_text(encoding="utf-8") == card_page(CARD)
