"""Whose the images of a source are, image by image, by the columns of its labels.csv."""

import html
import re
from collections.abc import Callable, Mapping

from benfourier.data.embedded import EMBEDDED
from benfourier.data.labels import TABLE, files_of, rows_of
from benfourier.data.opening import path_and_part
from benfourier.errors import OptionError

COLUMN = re.compile(r"\{(\w+)\}")
OCTAL = re.compile(r"(?:\\[0-3][0-7]{2})+")  # as some tables have the bytes of letters beyond ASCII
Credit = Callable[[str], str]  # of an image's id


def credit_of(source: str, text: str) -> Credit:
    """Returns what tells the credit of an image by its id; nothing of images that labels.csv does not list.

    Args:
        source: as on a command line.
        text: the credit; a word in braces, such as {author}, stands for a column of the source's labels.csv.
    """
    columns = COLUMN.findall(text)
    if not columns:
        return lambda _: text
    table = None if source in EMBEDDED else path_and_part(source)[0] / TABLE
    if table is None or not table.is_file():
        raise OptionError(f"credit is {text!r}, but {source} has no {TABLE} with {columns[0]!r}; leave the braces out")
    rows = rows_of(table)
    for column in columns:
        if column not in rows[0]:
            allowed = ", ".join(rows[0])
            raise OptionError(f"credit is {text!r}, but {column!r} is no column of {table}; allowed: {allowed}")
    told = {file: _filled(text, row) for file, row in zip(files_of(table, rows), rows, strict=True)}
    return lambda name: told.get(name, "")


def _filled(text: str, row: Mapping[str, str]) -> str:
    return COLUMN.sub(lambda match: _plain(row[match[1]]), text)


def _plain(text: str) -> str:
    """A text with letters where bytes in octal or entities of HTML stand for them."""
    letters = OCTAL.sub(
        lambda match: bytes(int(byte, 8) for byte in match[0][1:].split("\\")).decode(errors="replace"), text
    )
    return html.unescape(letters)
