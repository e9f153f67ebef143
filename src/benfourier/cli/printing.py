"""What verbs print: tables for people, JSON for machines."""

import json
from collections.abc import Iterable, Sequence

import typer


def print_json(value: object) -> None:
    """Prints a value as JSON on standard output."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table; columns of numbers stand to the right."""
    from rich.console import Console
    from rich.table import Table

    held = [tuple(row) for row in rows]
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        numeric = all(row[place][:1].isdigit() or row[place][:1] in "+-" for row in held)
        table.add_column(column, justify="right" if held and numeric else "left", overflow="fold")
    for row in held:
        table.add_row(*row)
    Console(highlight=False).print(table)
