"""A report as terminal text, as Markdown and as JSON."""

import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from benfourier.report.registry import Report
from benfourier.report.table import APART, BELOW, BEST, FEW, MISSING, Entry, Table
from benfourier.store.vocabulary import BASELINE

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Drawing

WIDTH = 120  # columns, where the terminal does not say how many it has
STYLES = {BEST: "bold", BELOW: "red", FEW: "dim", MISSING: "dim"}
COMPACT_NOTE = (
    f"▼ significantly below {BASELINE}. All tables, with notes: `benfourier report --full`; "
    "figures: `--out report.html`."
)
ESCAPES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"} | {letter: f"\\{letter}" for letter in "\\|*_`[]#"}


def print_report(report: Report, console: "Console | None" = None, *, compact: bool = False) -> None:
    """Prints sentences and tables to standard output, or to a console of rich.

    If `compact`, it leaves out 95 % intervals, notes and headings of sections.
    """
    from rich.console import Console
    from rich.text import Text

    width = None if sys.stdout.isatty() else WIDTH  # rich would fold tables at 80 columns in a pipe
    out = console or Console(highlight=False, width=width)
    out.print(Text(report.title, style="bold"))
    out.print(Text(report.lead))
    for section in report.sections:
        if not compact:
            out.print()
            out.rule(Text(section.title, style="bold"), align="left")
            out.print(Text(section.intro), end="\n" if section.intro else "")
        for sentence in section.sentences:
            out.print(Text(sentence))
        for table in section.tables:
            title = f"{section.title}: {table.title}" if compact and section.title not in table.title else table.title
            out.print()
            out.print(_drawing(replace(table, title=title), compact))
            for note in () if compact else table.notes:
                out.print(Text(note, style="dim"))
    if compact:
        out.print(Text(COMPACT_NOTE, style="dim"))


def _drawing(table: Table, compact: bool) -> "Drawing":
    from rich import box
    from rich.table import Table as Drawing
    from rich.text import Text

    title = table.title + (" (ours | paper)" if table.has_paper else "")
    edges = None if compact else box.HEAVY_HEAD
    drawing = Drawing(title=Text(title), title_justify="left", title_style="bold", box=edges, pad_edge=not compact)
    drawing.add_column(Text(table.row_heading), overflow="fold")
    for place, column in enumerate(table.columns):
        drawing.add_column(Text(column), justify="right" if table.is_numeric(place) else "left", overflow="fold")
    for row in table.rows:
        style = "italic" if row.emphasis == APART else ""
        cells = [Text(row.name, style=style)]
        for entry in row.entries:
            beside = f" | {entry.paper}" if entry.paper else ""
            cells.append(Text(f"{entry.text}{beside}", style=STYLES.get(entry.emphasis, style)))
            if entry.interval and not compact:
                cells[-1].append(f"\n{entry.interval}", style="dim")
        drawing.add_row(*cells)
    return drawing


def markdown(report: Report) -> str:
    """Returns headings, sentences and tables as Markdown."""
    lines = [f"# {escape(report.title)}", "", escape(report.lead)]
    for section in report.sections:
        lines += ["", f"## {escape(section.title)}"]
        lines += ["", escape(section.intro)] if section.intro else []
        lines += ["", *(f"- {escape(sentence)}" for sentence in section.sentences)] if section.sentences else []
        for table in section.tables:
            lines += ["", *table_lines(table)]
    return "\n".join(lines) + "\n"


def table_lines(table: Table, *, intervals: bool = True) -> Iterator[str]:
    """Yields a table as lines of Markdown, its title above and its notes below."""
    beside = "ours | paper" + ", difference" * table.differs_from_paper if table.has_paper else ""
    yield f"**{escape(table.title)}**" + (f" ({escape(beside)})" if beside else "")
    yield ""
    yield line(escape(table.row_heading), *(escape(column) for column in table.columns))
    yield line("---", *("---:" if table.is_numeric(place) else "---" for place in range(len(table.columns))))
    for row in table.rows:
        yield line(escape(row.name), *(_entry(entry, table.differs_from_paper, intervals) for entry in row.entries))
    if table.notes:
        yield ""
        yield "  \n".join(escape(note) for note in table.notes)


def _entry(entry: Entry, differs: bool, intervals: bool) -> str:
    text = f"**{escape(entry.text)}**" if entry.emphasis == BEST else escape(entry.text)
    text += f" ({entry.interval})" if entry.interval and intervals else ""
    if entry.paper is None:
        return text
    points = entry.paper.differences(entry.value) if differs and entry.value is not None else ()
    differences = " or ".join(f"{round(part, 1) + 0.0:+.1f}" for part in points)  # never -0.0
    return f"{text} \\| {', '.join(filter(None, (escape(str(entry.paper)), differences)))}"


def escape(text: str) -> str:
    """Returns text that Markdown and HTML show as it is, on one line."""
    return "".join(ESCAPES.get(character, character) for character in " ".join(text.split()))


def line(*parts: str) -> str:
    """Returns a row of a table, of parts that are escaped already."""
    return f"| {' | '.join(parts)} |"


def report_json(report: Report) -> dict[str, Any]:
    """Returns sentences and tables as JSON can hold them: numbers in the unit shown, None where there is none."""
    sections = []
    for each in report.sections:
        words = {"id": each.id, "title": each.title, "intro": each.intro, "sentences": list(each.sentences)}
        sections.append({**words, "tables": [asdict(table) for table in each.tables]})
    return {"title": report.title, "lead": report.lead, "sections": sections}
