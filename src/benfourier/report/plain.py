"""A report as JSON can hold it."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from benfourier.report.table import Section


def plain(title: str, sections: Iterable[Section]) -> dict[str, Any]:
    """Returns sentences and tables; numbers as they are shown (percent, milliseconds), None where there is none."""
    return {"title": title, "sections": [asdict(section) for section in sections]}
