"""One measured case, the machine it was measured on, and the table that docs/speed.md shows."""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

RESULTS = Path(__file__).parent / "results.json"
SCALING = Path(__file__).parent / "scaling.json"
FORMATS = {"share": "{:+.0%}", "factor": "{:.3g}×", "number": "{:.2f}"}


@dataclass(frozen=True)
class Case:
    """Figures of one case, one of which may have a limit.

    Attributes:
        name: group and what was measured, for example "features/vgg16".
        sentence: what was measured, for the table; {figure} stands for a figure.
        figures: numbers by name.
        result: name of the figure that is the result.
        unit: how the result is written.
        limit: bound on the result; None if it is only reported.
        sense: on which side of the limit the result must stay.
    """

    name: str
    sentence: str
    figures: dict[str, float]
    result: str
    unit: Literal["share", "factor", "number"]
    limit: float | None = None
    sense: Literal["at most", "at least"] = "at most"

    @property
    def value(self) -> float:
        """The figure that is the result."""
        return self.figures[self.result]

    @property
    def holds(self) -> bool:
        """Whether the result is on the right side of its limit."""
        if self.limit is None:
            return True
        return self.value <= self.limit if self.sense == "at most" else self.value >= self.limit

    def row(self) -> str:
        """Returns the case as a row of the table."""
        write = FORMATS[self.unit].format
        limit = "reported" if self.limit is None else f"{self.sense} {write(self.limit)}"
        sentence = self.sentence.format(**{name: f"{value:.3g}" for name, value in self.figures.items()})
        return f"| {sentence} | {write(self.value)} | {limit} | {'yes' if self.holds else 'no'} |"


@dataclass(frozen=True)
class Environment:
    """Where and with what the cases were measured."""

    cpu: str
    threads: int
    python: str
    torch: str
    numpy: str
    numba: str
    date: str
    rounds: int

    @classmethod
    def here(cls, threads: int, rounds: int) -> "Environment":
        """Returns this machine and today."""
        versions = {name: version(name) for name in ("torch", "numpy", "numba")}
        today = datetime.now(UTC).date().isoformat()
        return cls(_cpu(), threads, platform.python_version(), **versions, date=today, rounds=rounds)


def save(path: Path, environment: Environment, cases: Sequence[Case]) -> None:
    """Writes the results as JSON."""
    content = {"environment": asdict(environment), "cases": [asdict(case) for case in cases]}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load(path: Path) -> tuple[Environment, list[Case]]:
    """Returns saved results."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Environment(**content["environment"]), [Case(**case) for case in content["cases"]]


def merge(path: Path, environment: Environment, cases: Sequence[Case]) -> list[Case]:
    """Returns the cases of a file with new ones in their places or behind them.

    Figures of two machines must not stand in one table, so results measured elsewhere are refused.
    """
    if not path.exists():
        return list(cases)
    measured, old = load(path)
    if replace(measured, date=environment.date) != environment:
        raise ValueError(
            f"{path} was measured elsewhere, {measured}, not {environment}; measure all cases, without --only"
        )
    new = {case.name: case for case in cases}
    return [new.pop(case.name, case) for case in old] + list(new.values())


def table(environment: Environment, cases: Sequence[Case]) -> str:
    """Returns the results as Markdown."""
    e = environment
    return "\n".join(
        [
            "| measured | result | limit | holds |",
            "|---|---|---|---|",
            *(case.row() for case in cases),
            "",
            f"{e.cpu}, {e.threads} threads, Python {e.python}, torch {e.torch}, NumPy {e.numpy}, numba {e.numba}, "
            f"{e.date}. Times are medians of {e.rounds} rounds in which the calls take turns.",
            "",
        ]
    )


def _cpu() -> str:
    """The processor's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
