"""Figures as SVG: files, and panels for the page."""

import re
from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from benfourier.report import drawing
from benfourier.report.registry import DOCS, Figure, build
from benfourier.report.results import Results
from benfourier.store.records import AttackSummary
from tests.report.ledgers import HOSTILE, SCRIPT, STRENGTHS, Maker

RESULTS = Results.from_records(Maker(rows=40, renamed={"bim": HOSTILE, "mbf": f"a|b {SCRIPT}"}).records())
FIGURES = build(RESULTS).figures
NAMES = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.id)
def test_a_file_is_whole_and_needs_nothing_from_outside(figure: Figure) -> None:
    text = drawing.file(figure)
    tree = ET.fromstring(text)  # noqa: S314
    assert [part.text for part in tree.findall(f"{NAMES}title")] == [figure.title]
    (description,) = tree.findall(f"{NAMES}desc")
    assert all(panel.alt in str(description.text) for panel in figure.panels)
    assert not re.search(r"var\(|<script|https?://(?!www\.w3\.org/)", text)
    ids = [part.get("id") for part in tree.iter() if part.get("id")]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"#([a-z][0-9a-f]{9,})", text)) <= set(ids)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.id)
def test_panels_lie_inside_the_file_and_apart(figure: Figure) -> None:
    tree = ET.fromstring(drawing.file(figure))  # noqa: S314
    width, height = (float(tree.get(side, "0").removesuffix("pt")) for side in ("width", "height"))
    groups = [part for part in tree.iter(f"{NAMES}g") if re.fullmatch(r"axes_\d+", part.get("id", ""))]
    boxes = [frame(group) for group in groups]
    assert len(boxes) == len(figure.panels)
    assert all(0 <= left < right <= width and 0 <= top < bottom <= height for left, right, top, bottom in boxes)
    for place, (left, right, top, bottom) in enumerate(boxes):
        assert all(right <= a or b <= left or bottom <= c or d <= top for a, b, c, d in boxes[:place])


def frame(axes: ET.Element) -> tuple[float, float, float, float]:
    """Left, right, top and bottom of the background of axes."""
    patch = next(part for part in axes.iter(f"{NAMES}g") if part.get("id", "").startswith("patch_"))
    path = next(patch.iter(f"{NAMES}path")).get("d", "")
    numbers = [float(number) for number in re.findall(r"-?\d+\.?\d*", path)]
    return min(numbers[::2]), max(numbers[::2]), min(numbers[1::2]), max(numbers[1::2])


def test_every_line_of_the_legend_is_labelled() -> None:
    (roc,) = [figure for figure in FIGURES if figure.id == "roc-1"]
    tree = ET.fromstring(drawing.file(roc))  # noqa: S314
    texts = [part.text for part in tree.iter(f"{NAMES}text")]
    assert {style.label for style in roc.legend} <= set(texts)


def test_the_same_figure_gives_the_same_bytes() -> None:
    again = next(figure for figure in build(RESULTS).figures if figure.id == "roc-1")
    (roc,) = [figure for figure in FIGURES if figure.id == "roc-1"]
    assert drawing.file(again) == drawing.file(roc)
    assert drawing.svg(again.panels[0], "a") == drawing.svg(roc.panels[0], "a")


def test_files_for_the_docs_are_small() -> None:
    files = [drawing.file(figure) for figure in build(RESULTS, DOCS).figures]
    assert len(files) == 3
    assert all(len(text) < 300_000 for text in files)


def test_styles_of_a_page_are_shared_and_labels_are_left_alone() -> None:
    label = 'style="} * { display: none"'
    text = f'<svg><text style="fill: red" x="1">{label}</text><path d="M 1 2" style="fill: red"/></svg>'
    drawings, rules = drawing.share_styles({"a": (text,), "b": ('<path style="fill: blue"/>',)})
    assert drawings["a"] == (f'<svg><text class="s0" x="1">{label}</text><path d="M 1 2" class="s0"/></svg>',)
    assert drawings["b"] == ('<path class="s1"/>',)
    assert rules == ".s0 { fill: red }\n.s1 { fill: blue }\n"


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.id)
def test_a_panel_of_the_page_has_the_words_of_the_file_and_all_that_it_refers_to(figure: Figure) -> None:
    texts = [drawing.svg(panel, str(place)) for place, panel in enumerate(figure.panels)]
    own = [part for text in texts for part in ET.fromstring(text).iter()]  # noqa: S314
    words = Counter(part.text for part in own if part.tag.endswith("text"))
    tree = ET.fromstring(drawing.file(figure))  # noqa: S314
    assert words <= Counter(part.text for part in tree.iter(f"{NAMES}text"))
    known = {part.get("id") for part in own}
    assert {part.get("href", "#")[1:] for part in own if part.tag.endswith("use")} <= known
    assert all(part.get("clip-path", "url(#)")[5:-1] in known for part in own if part.get("clip-path"))
    assert max(len(text) for text in texts) < 20_000


def test_attacks_that_differ_in_their_factor_are_drawn_by_it() -> None:
    """Attacks beyond the boundary have an eps too, the same for all."""
    records = []
    for record in Maker(rows=40).records():
        if isinstance(record, AttackSummary) and record.attack in STRENGTHS:
            factor = 2.0 ** STRENGTHS.index(record.attack)
            record = replace(record, method="r-pgd-beyond", options={"eps": 0.5, "factor": factor})
        records.append(record)
    (figure,) = [each for each in build(Results.from_records(records)).figures if each.id == "strength-1"]
    text = drawing.svg(figure.panels[0], "strength")
    assert all(f">{word}</text>" in text for word in ("factor", "1", "2", "4", "8"))
