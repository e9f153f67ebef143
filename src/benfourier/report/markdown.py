"""A report as Markdown."""

from collections.abc import Iterable, Iterator

from benfourier.report.table import BEST, Entry, Section, Table

ESCAPED = {"<": "&lt;", ">": "&gt;", "&": "&amp;"} | {letter: f"\\{letter}" for letter in "\\|*_`[]#"}


def markdown(title: str, sections: Iterable[Section]) -> str:
    """Returns the page, headings and tables only."""
    lines = [f"# {safe(title)}"]
    for section in sections:
        lines += ["", f"## {safe(section.title)}"]
        lines += ["", safe(section.intro)] if section.intro else []
        lines += ["", *(f"- {safe(sentence)}" for sentence in section.said)] if section.said else []
        for table in section.tables:
            lines += ["", *table_lines(table)]
    return "\n".join(lines) + "\n"


def safe(text: str) -> str:
    """Returns text that Markdown and HTML take as it is, on one line."""
    flat = " ".join(text.split())
    return "".join(ESCAPED.get(character, character) for character in flat)


def table_lines(table: Table) -> Iterator[str]:
    """Yields a table with its title above and its notes below."""
    beside = "ours | paper" + ", difference" * table.compared if table.has_paper else ""
    yield f"**{safe(table.title)}**" + (f" ({safe(beside)})" if beside else "")
    yield ""
    yield line(safe(table.corner), *(safe(column) for column in table.columns))
    yield line("---", *("---:" if table.numeric(place) else "---" for place in range(len(table.columns))))
    for row in table.rows:
        yield line(safe(row.name), *(_entry(entry, table.compared) for entry in row.entries))
    if table.notes:
        yield ""
        yield "  \n".join(safe(note) for note in table.notes)


def line(*parts: str) -> str:
    """Returns a row of a table, of parts that are safe already."""
    return f"| {' | '.join(parts)} |"


def _entry(entry: Entry, compared: bool) -> str:
    text = safe(entry.text)
    text = f"**{text}**" if entry.emphasis == BEST else text
    interval = f" ({entry.interval})" if entry.interval else ""
    gaps = " or ".join(f"{round(gap, 1) + 0.0:+.1f}" for gap in entry.gaps if compared)  # never -0.0
    beside = ", ".join(filter(None, (safe(str(entry.paper)), gaps)))
    return f"{text}{interval}" + (f" \\| {beside}" if entry.paper else "")
