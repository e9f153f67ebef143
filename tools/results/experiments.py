"""Ledgers of experiments, each under its name."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benfourier.report.gathering import gather
from benfourier.report.paper import DATABASES, NONE
from benfourier.report.results import Results
from benfourier.store.ledger import read

ELSEWHERE = ("quickstart",)  # has its place in the README


@dataclass(frozen=True)
class Experiment:
    """A ledger and what it holds.

    Args:
        name: of the file, without its ending.
        results: its records.
    """

    name: str
    results: Results

    @property
    def source(self) -> str:
        """Label of the data."""
        told = self.results.settings.get("source", "")
        return self.results.sources[0] if self.results.sources else str(told)

    @property
    def database(self) -> str:
        """The paper's database that stands beside it, or "none"."""
        return self.results.paper(self.source).database

    @property
    def network(self) -> str:
        """Name of the network."""
        return str(self.results.runs[-1].network.get("name", "unnamed")) if self.results.runs else "unnamed"

    def anchor(self, part: str) -> str:
        """Returns where a part of it stands on the page."""
        return f"{self.name}--{part}"


def experiments(folder: Path, papers: Mapping[str, str]) -> tuple[Experiment, ...]:
    """Returns the experiments of a folder in the order of the paper's databases.

    Args:
        folder: of ledgers.
        papers: by name of an experiment: the paper's database beside it, where it is not to be guessed.
    """
    found = []
    names = [path.stem for path in folder.glob("*.jsonl") if path.stem not in ELSEWHERE]
    for name in sorted(names):
        results = gather(read(folder / f"{name}.jsonl"), papers.get(name))
        if results.runs or not results.empty:
            found.append(Experiment(name, results))
    order = (*DATABASES, NONE)
    return tuple(sorted(found, key=lambda experiment: order.index(experiment.database)))
