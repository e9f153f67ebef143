"""Results as data: what was measured, the limit on it, and where it was measured."""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

RESULTS = Path(__file__).parent / "results.json"


@dataclass(frozen=True)
class Case:
    """Figures of one case, one of which has a limit.

    Attributes:
        name: room and what was measured, for example "features/vgg16".
        figures: numbers by name.
        limited: name of the figure with a limit.
        limit: its limit.
        sense: on which side of the limit the figure must stay.
    """

    name: str
    figures: dict[str, float]
    limited: str
    limit: float
    sense: Literal["at most", "at least"]

    @property
    def value(self) -> float:
        """The figure with a limit."""
        return self.figures[self.limited]

    @property
    def holds(self) -> bool:
        """True if the figure is on the right side of its limit."""
        return self.value <= self.limit if self.sense == "at most" else self.value >= self.limit


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
        tools = {name: version(name) for name in ("torch", "numpy", "numba")}
        today = datetime.now(UTC).date().isoformat()
        return cls(_cpu(), threads, platform.python_version(), **tools, date=today, rounds=rounds)


def save(path: Path, environment: Environment, cases: Sequence[Case]) -> None:
    """Writes the results as JSON."""
    content = {"environment": asdict(environment), "cases": [asdict(case) for case in cases]}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load(path: Path) -> tuple[Environment, list[Case]]:
    """Returns results that were saved."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Environment(**content["environment"]), [Case(**case) for case in content["cases"]]


def merged(path: Path, environment: Environment, cases: Sequence[Case]) -> list[Case]:
    """Returns the cases of a file, if there is one, with the given ones in their places or behind them."""
    if not path.exists():
        return list(cases)
    there, kept = load(path)
    if replace(there, date=environment.date) != environment:
        raise ValueError(
            f"{path} was measured elsewhere, {there}, not {environment}; measure all cases, without --only"
        )
    fresh = {case.name: case for case in cases}
    return [fresh.pop(case.name, case) for case in kept] + list(fresh.values())


def _cpu() -> str:
    """The processor's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
