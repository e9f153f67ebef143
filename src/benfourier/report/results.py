"""The records of a ledger, sorted by kind and asked by name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benfourier.report.paper import Paper, guess
from benfourier.store.records import (
    Cell,
    Control,
    Cost,
    Crafted,
    Failure,
    KsResult,
    LayerFit,
    Outcome,
    Picture,
    Profile,
    Run,
)

MBF, GAN, TRIVIAL = "mbf", "defense-gan", "max-softmax"
ALONE, TRANSFER, ELSEWHERE, STRENGTH, MIXED = (
    "non-transfer",
    "attack-transfer",
    "data-transfer",
    "strength-transfer",
    "mixed",
)
Found = tuple[Outcome, Cell]


@dataclass(frozen=True)
class Results:
    """What a ledger holds; of several results for one question the last counts.

    Args:
        runs: every start with other settings, the last one last.
        replaced: outcomes that a later one took the place of.
        chosen: the paper's database that the user asked for; None to guess.
    """

    runs: tuple[Run, ...]
    crafted: tuple[Crafted, ...]
    outcomes: tuple[Outcome, ...]
    profiles: tuple[Profile, ...]
    fits: tuple[LayerFit, ...]
    controls: tuple[Control, ...]
    ks: tuple[KsResult, ...]
    costs: tuple[Cost, ...]
    pictures: tuple[Picture, ...]
    failures: tuple[Failure, ...]
    replaced: int
    chosen: str | None = None

    @property
    def empty(self) -> bool:
        """True if nothing was found out, nor went wrong."""
        told = (
            self.crafted,
            self.outcomes,
            self.profiles,
            self.fits,
            self.ks,
            self.costs,
            self.pictures,
            self.failures,
        )
        return not any(told)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The plan of the last run; empty if no run is told of."""
        return self.runs[-1].settings if self.runs else {}

    @property
    def sources(self) -> tuple[str, ...]:
        """Labels of the data that detectors were fitted to."""
        return _unique(outcome.source for outcome in self.outcomes)

    @property
    def attacks(self) -> tuple[str, ...]:
        """Labels of all attacks, in the order of the plan, or else of their making."""
        tested = (cell.attack for outcome in self.outcomes for cell in outcome.cells)
        return self._in_order("attacks", [*(crafted.attack for crafted in self.crafted), *tested])

    @property
    def detectors(self) -> tuple[str, ...]:
        """Labels of all detectors: mbf first, the trivial one last."""
        methods = {outcome.detector: outcome.method for outcome in self.outcomes}
        planned = self._in_order("detectors", methods)
        return tuple(sorted(planned, key=lambda label: (methods[label] == TRIVIAL) - (methods[label] == MBF)))

    def of(self, protocol: str, source: str | None = None) -> tuple[Outcome, ...]:
        """Returns the outcomes of a protocol, fitted to that data."""
        return tuple(
            outcome
            for outcome in self.outcomes
            if outcome.protocol == protocol and (source is None or outcome.source == source)
        )

    def tested(self, outcomes: Iterable[Outcome]) -> tuple[str, ...]:
        """Returns the labels of the attacks that these were tested on."""
        labels = {cell.attack for outcome in outcomes for cell in outcome.cells}
        return tuple(attack for attack in self.attacks if attack in labels)

    def paper(self, source: str) -> Paper:
        """Returns what the paper says of the database that is like that data."""
        settings = self.settings.get("network", {})
        named = str(self.runs[-1].network.get("name", "")) if self.runs else ""
        model = f"{settings.get('model', '')} {named}" if isinstance(settings, Mapping) else named
        return Paper(guess(source, model) if self.chosen is None else self.chosen)

    def method_of(self, attack: str) -> str:
        """Returns the id of an attack, as the paper's tables know it, if no other label could mean the same."""
        methods = {crafted.attack: crafted.method for crafted in self.crafted}
        method = methods.get(attack, attack)
        alike = [label for label, name in methods.items() if name == method]
        return method if len(alike) <= 1 or attack == method else attack

    def _in_order(self, kind: str, labels: Iterable[str]) -> tuple[str, ...]:
        """Labels, each once; those that the plan names come first, in its order."""
        told = self.settings.get(kind, ())
        planned = [str(entry.get("label", entry.get("name"))) for entry in told if isinstance(entry, Mapping)]
        found = _unique(labels)
        return (*(label for label in _unique(planned) if label in found), *(f for f in found if f not in planned))

    def reduced(self, attack: str, source: str) -> str:
        """Returns what was reduced in the making of an attack's examples, in words."""
        told = {made.reduced for made in self.crafted if made.attack == attack and made.source == source}
        return "; ".join(sorted(told - {""}))


def cell_of(outcomes: Sequence[Outcome], detector: str, fitted: str | None, attack: str) -> Found | None:
    """Returns the last outcome of a detector with a cell for an attack, and that cell.

    Args:
        outcomes: to look in.
        detector: label.
        fitted: the one attack that it was fitted to, if it was fitted to any; None for whatever it was fitted to.
        attack: that it was tested on.
    """
    for outcome in reversed(outcomes):
        for cell in outcome.cells:
            suits = fitted is None or outcome.fitted in ((fitted,), ())
            if outcome.detector == detector and cell.attack == attack and suits:
                return outcome, cell
    return None


def _unique(labels: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(labels))
