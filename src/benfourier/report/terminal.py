"""A report on a terminal."""

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from benfourier.report.table import BELOW, BEST, FEW, MISSING, TRIVIAL, Entry, Section, Table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Drawn
    from rich.text import Text

WIDE = 140  # columns, where nobody says how many there are
STYLES = {BEST: "bold", BELOW: "red", FEW: "dim", MISSING: "dim"}


def show(title: str, sections: Iterable[Section], console: "Console | None" = None) -> None:
    """Prints all sentences and tables.

    Args:
        title: of the report.
        sections: in order.
        console: of rich; None for standard output.
    """
    from rich.console import Console
    from rich.text import Text

    out = console or Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDE)
    out.print(Text(title, style="bold"))
    for section in sections:
        out.print()
        out.rule(Text(section.title, style="bold"), align="left")
        for sentence in (*([section.intro] if section.intro else []), *section.said):
            out.print(Text(sentence))
        for table in section.tables:
            out.print()
            out.print(_drawn(table))
            for note in table.notes:
                out.print(Text(note, style="dim"))


def _drawn(table: Table) -> "Drawn":
    from rich.table import Table as Drawn
    from rich.text import Text

    title = table.title + (" (ours | paper)" if table.has_paper else "")
    drawn = Drawn(title=Text(title), title_justify="left", title_style="bold")
    drawn.add_column(Text(table.corner), overflow="fold")
    for place, column in enumerate(table.columns):
        drawn.add_column(Text(column), justify="right" if table.numeric(place) else "left", overflow="fold")
    for row in table.rows:
        style = "italic" if row.emphasis == TRIVIAL else ""
        drawn.add_row(Text(row.name, style=style), *(_text(entry, style) for entry in row.entries))
    return drawn


def _text(entry: Entry, style: str) -> "Text":
    from rich.text import Text

    shown = entry.text + (f" | {entry.paper}" if entry.paper else "")
    text = Text(shown, style=STYLES.get(entry.emphasis, style))
    if entry.interval:
        text.append(f"\n{entry.interval}", style="dim")
    return text
