"""Figures as SVG files."""

import re
from xml.etree import ElementTree as ET

import pytest

from benfourier.report.figures import Figure
from benfourier.report.gathering import gather
from benfourier.report.page import FIGURES
from benfourier.report.sheet import sheet
from tests.report.ledgers import HOSTILE, SCRIPT, Maker

RESULTS = gather(Maker(rows=40, renamed={"bim": HOSTILE, "mbf": f"a|b {SCRIPT}"}).records())
DRAWN = [figure for make in FIGURES for figure in make(RESULTS)]
NAMES = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("figure", DRAWN, ids=lambda figure: figure.title)
def test_a_sheet_is_whole_and_needs_nothing_from_outside(figure: Figure) -> None:
    text = sheet(figure)
    tree = ET.fromstring(text)  # noqa: S314
    assert [part.text for part in tree.findall(f"{NAMES}title")] == [figure.title]
    assert len(tree.findall(f"{NAMES}svg")) == len(figure.panels)
    assert not re.search(r"var\(|<script|https?://(?!www\.w3\.org/2000/svg)", text)
    ids = [part.get("id") for part in tree.iter() if part.get("id")]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"#([a-z][0-9a-f]{9,})", text)) <= set(ids)


@pytest.mark.parametrize("figure", DRAWN, ids=lambda figure: figure.title)
def test_panels_lie_inside_the_sheet_and_apart(figure: Figure) -> None:
    tree = ET.fromstring(sheet(figure))  # noqa: S314
    width, height = float(tree.get("width", 0)), float(tree.get("height", 0))
    boxes = [
        tuple(float(panel.get(name, "nan")) for name in ("x", "y", "width", "height"))
        for panel in tree.findall(f"{NAMES}svg")
    ]
    assert all(x >= 0 and y >= 0 and x + w <= width and y + h <= height for x, y, w, h in boxes)
    for place, (x, y, w, h) in enumerate(boxes):
        assert all(x + w <= a or a + c <= x or y + h <= b or b + d <= y for a, b, c, d in boxes[:place])


def test_every_stroke_of_the_legend_is_named() -> None:
    tree = ET.fromstring(sheet(DRAWN[0]))  # noqa: S314
    told = [part.text for part in tree.findall(f"{NAMES}text")]
    assert {stroke.label for stroke in DRAWN[0].legend} <= set(told)


def test_the_same_figure_gives_the_same_bytes() -> None:
    again = next(iter(FIGURES[0](RESULTS)))
    assert sheet(again) == sheet(DRAWN[0])
