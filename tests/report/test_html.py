"""The page: whole, safe, alone, and readable by screen readers."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from benfourier.report.files import page
from benfourier.report.registry import build
from benfourier.report.results import Results
from benfourier.store.ledger import read
from tests.report.ledgers import ATTACKS, DETECTORS, HOSTILE, SCRIPT, Maker, pictures, write

RENAMED = {
    "bim": HOSTILE,
    "mbf": SCRIPT,
    "plan": SCRIPT,
    "dog": '"><img src=x onerror=alert(1)>',
    "a photographer": SCRIPT,
    "the disk is full": SCRIPT,
}
MAKER = Maker(rows=30, layers=("features.0", SCRIPT), renamed=RENAMED)
REPRODUCTION = Path(__file__).parents[2] / "experiments" / "results" / "reproduce.jsonl"
VOID = {"meta", "img", "br", "path", "use", "circle", "rect"}


class Tree(HTMLParser):
    """Elements with their attributes, in order; complains of elements that are closed wrongly."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID and (not self.open or self.open.pop() != tag):
            self.wrong.append(tag)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module", name="html")
def page_of_a_full_ledger_with_hostile_names(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("ledger")
    ledger = write(folder, [*MAKER.records(), *pictures(folder, MAKER)])
    return page(build(Results.from_records(read(ledger))), ledger, show_progress=False)


@pytest.fixture(scope="module", name="tree")
def elements(html: str) -> Tree:
    return Tree(html)


def test_every_element_is_closed(tree: Tree) -> None:
    assert (tree.wrong, tree.open) == ([], [])


def test_nothing_comes_from_outside(html: str, tree: Tree) -> None:
    words = re.sub(r'"data:image/png;base64,[^"]*"', "", html)
    assert re.findall(r"https?:|//[a-z]|@import|url\((?!#)|data:", words) == ["data:"]  # the policy that allows them
    assert {a["href"][:1] for a in (*tree.all("a"), *tree.all("use"))} == {"#"}
    assert all(image["src"].startswith("data:image/png;base64,") for image in tree.all("img"))
    assert not {"script", "link", "iframe", "object", "base", "form"} & {tag for tag, _ in tree.elements}


def test_words_of_the_ledger_are_escaped(html: str, tree: Tree) -> None:
    assert "<script" not in html
    assert "onerror=" not in re.sub("&[a-z]+;|&#[0-9]+;", "", html).replace("img src=x onerror=alert(1)", "")
    assert html.count("&lt;script&gt;") > 50
    assert not any(name.startswith("on") for _, attributes in tree.elements for name in attributes)


def test_every_table_has_a_caption_and_headings_with_scope(html: str, tree: Tree) -> None:
    tables = re.findall(r"<table.*?</table>", html, flags=re.DOTALL)
    assert len(tables) > 30
    assert all(table.count("<caption>") == 1 for table in tables)
    assert {cell.get("scope") for cell in tree.all("th")} == {"col", "row"}


def test_ids_are_unique_and_links_lead_to_them(tree: Tree) -> None:
    ids = [attributes["id"] for _, attributes in tree.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {link["href"][1:] for link in (*tree.all("a"), *tree.all("use"))} <= set(ids)


def test_every_figure_and_picture_has_a_description(tree: Tree) -> None:
    drawn = [part for part in tree.all("div") if part.get("role") == "img"]
    curves, heats, layers, strengths = 2 * len(ATTACKS), len(DETECTORS) + 1, len(MAKER.layers), 4
    first_screen, worst_cases, costs = 1, 1, 1
    assert len(drawn) == first_screen + worst_cases + curves + heats + layers + strengths + costs
    assert all(len(part["aria-label"]) > 20 for part in drawn)
    assert len(tree.all("img")) == 3 * len(ATTACKS)
    assert all(image["alt"] for image in tree.all("img"))


def test_headings_do_not_skip_a_level(tree: Tree) -> None:
    levels = [int(tag[1]) for tag, _ in tree.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_figures_take_the_colours_of_the_page(html: str) -> None:
    drawn = "".join(re.findall(r'<div role="img".*?</svg>', html, flags=re.DOTALL))
    rules = dict(re.findall(r"^\.(s[0-9]+) { (.*) }$", html, flags=re.MULTILINE))
    assert "style=" not in drawn
    assert set(re.findall(r'class="([^"]*)"', drawn)) == set(rules)
    assert "var(--series-1)" in "".join(rules.values())
    assert "var(--ink)" in "".join(rules.values())
    assert "#a0000" not in html
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", html))
    light, dark = (set(re.findall(r"(--[a-z0-9-]+):", part)) for part in html.split("prefers-color-scheme: dark", 1))
    assert used <= light
    assert used <= dark


def test_the_page_is_the_same_every_time(html: str, tmp_path: Path) -> None:
    ledger = write(tmp_path, [*MAKER.records(), *pictures(tmp_path, MAKER)])
    again = page(build(Results.from_records(read(ledger))), ledger, show_progress=False)
    assert again == html


def test_a_picture_elsewhere_than_beside_the_ledger_is_not_shown(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    folder.mkdir()
    (picture, other, third, _) = pictures(folder, Maker())
    (folder / other.files[0]).write_bytes(b"no PNG")
    (tmp_path / "secret.png").write_bytes((folder / picture.files[0]).read_bytes())
    outside = replace(picture, files=("../secret.png", str(tmp_path / "secret.png"), "none.png"))
    records = [outside, other, replace(third, attack="never made")]
    html = page(build(Results.from_records(records)), folder / "l.jsonl", show_progress=False)
    assert html.count("data:image/png") == 2 + 3
    assert "The files of this picture are not beside the ledger." in html


def test_a_ledger_without_outcomes_makes_a_page_that_says_so(tmp_path: Path) -> None:
    few = [record for record in Maker().records() if type(record).__name__ in ("Run", "Failure")]
    html = page(build(Results.from_records(few)), tmp_path / "l.jsonl", show_progress=False)
    assert "This ledger holds no finished trial." in html
    assert "lid on bim" in html
    assert Tree(html).wrong == []


def test_the_first_screen_has_a_sentence_then_a_table_then_a_picture(html: str) -> None:
    first = html[html.index('<section id="summary"') : html.index("</section>\n<h2>Details")]
    parts = ("has the best worst case", 'id="table-summary"', 'aria-label="AUROC over strength')
    assert [first.index(part) for part in parts] == sorted(first.index(part) for part in parts)
    assert [first.count(part) for part in ("<table", 'class="verdict"', 'role="img"')] == [1, 1, 1]


def test_every_section_but_the_first_is_folded(html: str) -> None:
    sections = build(Results.from_records(MAKER.records())).sections
    titles = re.findall(r'<details class="part">\s*<summary><h3>(.*?)</h3></summary>', html)
    assert titles == [section.title for section in sections[1:]]
    assert "<details open" not in html


def test_the_page_of_the_paper_in_small_is_small() -> None:
    html = page(build(Results.from_records(read(REPRODUCTION))), REPRODUCTION, show_progress=False)
    assert len(html.encode()) <= 400_000
