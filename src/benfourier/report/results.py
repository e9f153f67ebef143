"""Results: the records of a ledger by kind, the last one of each question, and how to find a cell among them."""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from benfourier.report.paper import Paper, PaperNumber, guess_database, has_paper_options
from benfourier.store import records as store
from benfourier.store.records import Cell, Cost, Estimate, Outcome, Record
from benfourier.store.vocabulary import BASELINE, C1C2, DEFAULT_RATE, DEFENSE_GAN, MBF, ProtocolName, Role

R = TypeVar("R", bound=Record)
AUROC, ACCURACY, GAIN = "auroc", "accuracy", "auroc-gain"
WORST, MEAD, CAUGHT = "worst-auroc", f"mead@{DEFAULT_RATE}", f"tpr@{DEFAULT_RATE}"
SAME_ATTACK, OTHER_ATTACK, OTHER_DATA, OTHER_STRENGTH, ALL_ATTACKS, MIXTURE, *_ = ProtocolName
TO_MANY = {ALL_ATTACKS: "all attacks", MIXTURE: "the default mixture"}  # protocols with one fit to many attacks
COMPARED = (SAME_ATTACK, OTHER_ATTACK, OTHER_DATA)  # the paper has these
CROSSED = (OTHER_ATTACK, OTHER_STRENGTH)  # tested on another attack than the one in the fit


@dataclass(frozen=True)
class CellRef:
    """A cell and the outcome that it belongs to."""

    outcome: Outcome
    cell: Cell

    @property
    def auroc(self) -> Estimate:
        """Its AUROC."""
        return self.cell.metrics[AUROC]

    @property
    def is_below_baseline(self) -> bool:
        """True if the detector is significantly worse than the baseline there."""
        return GAIN in self.cell.metrics and self.cell.metrics[GAIN].high < 0

    @property
    def name(self) -> str:
        """The attack, and before it the one in the fit where that is another."""
        fit = f"{fit_name(self.outcome.fitted)} → " if self.outcome.protocol in CROSSED and self.outcome.fitted else ""
        return f"{fit}{self.cell.attack}"

    def known(self, metric: str) -> Estimate | None:
        """Returns the estimate of a metric; None if there is none, or if it is NaN."""
        estimate = self.cell.metrics.get(metric)
        return estimate if estimate and math.isfinite(estimate.value) else None


@dataclass(frozen=True)
class Results:
    """Records of a ledger by kind; of several answers to one question the last counts."""

    runs: tuple[store.Run, ...]  # every start with other settings, the last one last
    attack_summaries: tuple[store.AttackSummary, ...]  # one per data and attack
    outcomes: tuple[Outcome, ...]  # without those that a later one covers
    profiles: tuple[store.Profile, ...]  # one per data, split and kind of images
    layer_fits: tuple[store.LayerFit, ...]  # the same
    noise_controls: tuple[store.NoiseControl, ...]  # one per data, attack and kind of features
    ks: tuple[store.KsResult, ...]  # one per comparison
    costs: tuple[Cost, ...]  # one per detector
    pictures: tuple[store.Picture, ...]  # all of them
    failures: tuple[store.Failure, ...]  # of the last run, without those that were done since
    replaced: int  # number of outcomes that a later one covers
    database: str | None = None  # the paper's database that the user asked for; None to guess it from data and network

    @classmethod
    def from_records(cls, records: Iterable[Record], paper: str | None = None) -> "Results":
        """Returns the results of a ledger's records; `paper` is the paper's database to show beside them."""
        if paper is not None:
            Paper(paper)  # refuses words that name no database
        kinds: dict[type[Record], list[Any]] = defaultdict(list)
        for record in records:
            if isinstance(record, store.Run):
                kinds.pop(store.Failure, None)  # failures are tried again in every run
            kinds[type(record)].append(record)

        def last(kind: type[R]) -> tuple[R, ...]:
            """The last record of every identity, where the first one stood."""
            return tuple({record.identity: record for record in kinds[kind]}.values())

        outcomes = newest(kinds[Outcome])
        done = {outcome.key for outcome in kinds[Outcome]}
        failures = tuple(failure for failure in kinds[store.Failure] if failure.key not in done)
        replaced = len(kinds[Outcome]) - len(outcomes)
        profiles, fits = last(store.Profile), last(store.LayerFit)
        controls, ks, costs = last(store.NoiseControl), last(store.KsResult), last(Cost)
        runs, attacks, pictures = tuple(kinds[store.Run]), last(store.AttackSummary), tuple(kinds[store.Picture])
        return cls(runs, attacks, outcomes, profiles, fits, controls, ks, costs, pictures, failures, replaced, paper)

    @property
    def is_empty(self) -> bool:
        """True if there is no result and no failure."""
        studies = (self.profiles, self.layer_fits, self.ks, self.costs, self.pictures)
        return not any((self.attack_summaries, self.outcomes, *studies, self.failures))

    @property
    def settings(self) -> Mapping[str, Any]:
        """The plan of the last run; empty without a run."""
        return self.runs[-1].settings if self.runs else {}

    @property
    def network(self) -> str:
        """Name of the last run's network."""
        return str(self.runs[-1].network.get("name", "unnamed")) if self.runs else "unnamed"

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Labels of the data that detectors were fitted to."""
        return tuple(dict.fromkeys(outcome.source for outcome in self.outcomes))

    @cached_property
    def attacks(self) -> tuple[str, ...]:
        """Labels of all attacks, in the order of the plan, or else of their records."""
        tested = (cell.attack for outcome in self.outcomes for cell in outcome.cells)
        return self._in_plan_order("attacks", [*(summary.attack for summary in self.attack_summaries), *tested])

    @cached_property
    def methods(self) -> Mapping[str, str]:
        """Id of the method of every detector, by label."""
        return {outcome.detector: outcome.method for outcome in self.outcomes}

    @cached_property
    def detectors(self) -> tuple[str, ...]:
        """Labels of all detectors: mbf first, the baseline last."""
        labels = self._in_plan_order("detectors", self.methods)
        return tuple(sorted(labels, key=lambda label: (self.methods[label] == BASELINE) - (self.methods[label] == MBF)))

    @property
    def baselines(self) -> tuple[str, ...]:
        """Labels of the baseline, which has a row in every table even if it was not run."""
        return tuple(label for label in self.detectors if self.methods[label] == BASELINE) or (BASELINE,)

    def _in_plan_order(self, kind: str, labels: Iterable[str]) -> tuple[str, ...]:
        """Labels, each once; those that the plan names come first, in its order."""
        places = {entry["label"]: place for place, entry in enumerate(self.settings.get(kind, ()))}
        return tuple(sorted(dict.fromkeys(labels), key=lambda label: places.get(label, len(places))))

    @cached_property
    def boundary_attacks(self) -> frozenset[str]:
        """Labels of attacks that stop at the decision boundary, by the plan, or else by the protocols that use them."""
        roles = {entry["label"]: entry["role"] for entry in self.settings.get("attacks", ())}
        used = {label for each in (*self.of(SAME_ATTACK), *self.of(OTHER_ATTACK)) for label in each.fitted}
        return frozenset({label for label, role in roles.items() if role == Role.BOUNDARY} | (used - roles.keys()))

    def of(self, protocol: str, source: str | None = None) -> tuple[Outcome, ...]:
        """Returns the outcomes of a protocol, fitted to that data."""
        return tuple(each for each in self.outcomes if each.protocol == protocol and source in (None, each.source))

    def attacks_of(self, outcomes: Iterable[Outcome]) -> tuple[str, ...]:
        """Returns the labels of the attacks that these were tested on."""
        labels = {cell.attack for outcome in outcomes for cell in outcome.cells}
        return tuple(attack for attack in self.attacks if attack in labels)

    def cells(self, protocol: str, source: str | None = None, detector: str | None = None) -> tuple[CellRef, ...]:
        """Returns all cells of a protocol, or of one detector in it, whose AUROC is known."""
        outcomes = (each for each in self.of(protocol, source) if detector in (None, each.detector))
        refs = (CellRef(outcome, cell) for outcome in outcomes for cell in outcome.cells)
        return tuple(ref for ref in refs if ref.known(AUROC))

    def paper(self, source: str = "") -> Paper:
        """Returns the paper's numbers for the database that is like that data, or else the first."""
        source = source or next(iter(self.sources), "")
        model = f"{self.settings.get('network', {}).get('model', '')} {self.network}"
        return Paper(guess_database(source, model) if self.database is None else self.database)

    @cached_property
    def paper_mbf(self) -> str | None:
        """Label of mbf with the paper's options, or else of another one with an SVM; None if there is none."""
        options = {outcome.detector: outcome.options for outcome in self.outcomes if outcome.method == MBF}
        labels = [label for label in self.detectors if label in options]
        same = [label for label in labels if has_paper_options(options[label])]
        svm = [label for label in labels if options[label].get("head") in (None, "svm")]
        return next(iter([*same, *sorted(svm, key=lambda label: label != MBF)]), None)

    def paper_detector(self, outcome: Outcome) -> str:
        """Returns a detector's name in the paper's tables; empty for mbf with other options than theirs."""
        method, options = outcome.method, outcome.options
        if method == DEFENSE_GAN and {"search_steps", "restarts"} <= options.keys():
            return f"{DEFENSE_GAN} {options['search_steps']} × {options['restarts']}"
        if method == C1C2 and options.get("criteria", "all") != "all":
            return f"{method}:{options['criteria']}"
        return "" if method == MBF and outcome.detector != self.paper_mbf else method

    def timing_detector(self, cost: Cost) -> str:
        """Returns a detector's name in the paper's table of milliseconds, which does not tell efforts apart."""
        names = {outcome.detector: self.paper_detector(outcome).partition(" ")[0] for outcome in self.outcomes}
        return names.get(cost.detector, cost.method)

    def attack_id(self, attack: str) -> str:
        """Returns the id of an attack in the paper's tables, if no other label could mean the same."""
        methods = {summary.attack: summary.method for summary in self.attack_summaries}
        method = methods.get(attack, attack)
        # of "bim" and "bim, strong", both of the method bim, only the first is the paper's
        return method if list(methods.values()).count(method) <= 1 or attack == method else attack

    def beside(self, ref: CellRef, metric: str) -> PaperNumber | None:
        """Returns the paper's number beside a cell; None if it has none, or if ours is unknown."""
        outcome, cell = ref.outcome, ref.cell
        # the diagonal of a transfer table is counted once, as a fit to the same attack
        same = outcome.protocol == OTHER_ATTACK and outcome.fitted in ((cell.attack,), ())
        if not ref.known(metric) or same or outcome.protocol not in COMPARED or len(outcome.fitted) > 1:
            return None
        fitted = self.attack_id(outcome.fitted[0]) if outcome.fitted else ""
        paper, detector = self.paper(outcome.source), self.paper_detector(outcome)
        return paper.beside(outcome.protocol, metric, detector, fitted, self.attack_id(cell.attack))


@dataclass(frozen=True)
class WorstCase:
    """The least AUROC of one outcome over the attacks that it was tested on."""

    outcome: Outcome  # a detector and what it was fitted to
    worst: Estimate  # its least AUROC, with the interval of the least over attacks
    attack: str  # of that AUROC
    attacks: int  # number of attacks with enough successes
    mead: Estimate | None  # share of the images whose every successful attack is caught at 5 % false alarms

    @property
    def fit(self) -> str:
        """What the detector was fitted to, in words."""
        outcome = self.outcome
        if outcome.method == BASELINE or not outcome.fitted:
            return "nothing"
        if outcome.protocol in TO_MANY:
            return TO_MANY[ProtocolName(outcome.protocol)]
        return "all fixed strengths" if len(outcome.fitted) > 1 else outcome.fitted[0]


def worst_cases(results: Results, source: str) -> tuple[WorstCase, ...]:
    """Returns all outcomes that were tested on every attack, whatever the fit, the best worst case first."""
    fixed = (outcome for outcome in results.of(OTHER_STRENGTH, source) if outcome.method != BASELINE)
    cases = []
    many = (outcome for protocol in TO_MANY for outcome in results.of(protocol, source))
    for outcome in (*many, *fixed):
        refs = [ref for ref in (CellRef(outcome, cell) for cell in outcome.cells) if ref.known(AUROC)]
        if refs and WORST in outcome.overall:
            attack = min(refs, key=lambda ref: ref.auroc.value).cell.attack
            cases.append(WorstCase(outcome, outcome.overall[WORST], attack, len(refs), outcome.overall.get(MEAD)))
    # a detector that skipped the hardest attacks must not look best
    most = max((case.attacks for case in cases), default=0)
    return tuple(sorted((case for case in cases if case.attacks == most), key=lambda case: -case.worst.value))


def newest(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Returns the outcomes without those that a later one covers, in their order."""
    current: list[Outcome] = []  # the last first
    later: dict[Hashable, list[Outcome]] = defaultdict(list)
    for outcome in reversed(list(outcomes)):
        if not any(answer.covers(outcome) for answer in later[outcome.identity]):
            later[outcome.identity].append(outcome)
            current.append(outcome)
    return tuple(reversed(current))


def find_cell(outcomes: Sequence[Outcome], detector: str, fitted: str | None, attack: str) -> CellRef | None:
    """Returns the last cell of a detector for an attack; `fitted` is the one attack in the fit, None for any fit."""
    same = [each for each in outcomes if each.detector == detector and (not fitted or each.fitted in ((fitted,), ()))]
    # of two fits that were tested on the same attack the later counts
    refs = (CellRef(outcome, cell) for outcome in reversed(same) for cell in outcome.cells if cell.attack == attack)
    return next(refs, None)


def fit_name(fitted: Sequence[str]) -> str:
    """Returns the attacks of a fit in few words."""
    rest = len(fitted) - 1
    return " and ".join([*fitted[:1], *([f"{rest} more"] if rest > 1 else fitted[1:])]) or "nothing"
