"""Experiments beside the paper: which of its cells have a counterpart in ours, and how far the numbers differ."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from benfourier.report import Audience, Results, build
from benfourier.report.detection_tables import rate_cells
from benfourier.report.findings import NEAR, differences
from benfourier.report.paper import PaperNumber
from benfourier.report.registry import Figure, Report
from benfourier.report.render import escape
from benfourier.report.results import WorstCase, worst_cases
from benfourier.store.records import Estimate, KsResult
from benfourier.store.vocabulary import DEFENSE_GAN, KS_PAIRS, KS_SOURCES, ProtocolName
from tools.notes import Note, Place, closest

SAME_ATTACK = ProtocolName.SAME_ATTACK
CHANCE = "The paper's number lies inside the 95 % interval of ours, so the difference may be chance."


@dataclass(frozen=True)
class Experiment:
    """A ledger under its name."""

    name: str  # of the file, without its ending
    results: Results  # its records

    @property
    def source(self) -> str:
        """Label of the data."""
        return self.results.sources[0] if self.results.sources else str(self.results.settings.get("source", ""))

    @property
    def database(self) -> str:
        """The paper's database that stands beside it, or "none"."""
        return self.results.paper(self.source).database

    @property
    def accuracy(self) -> str:
        """The network's accuracy in words; nothing if it is unknown."""
        accuracy = self.results.runs[-1].network.get("accuracy") if self.results.runs else None
        return f", {accuracy:.1%} accurate" if isinstance(accuracy, float) else ""

    @cached_property
    def report(self) -> Report:
        """Its report for the documentation."""
        return build(self.results, Audience.DOCS)

    @cached_property
    def cases(self) -> tuple[WorstCase, ...]:
        """Its detectors that were tested on all attacks, the best worst case first."""
        return worst_cases(self.results, self.source)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """Figures by name of the file."""
        return {f"results-{self.name}-{figure.id}.svg": figure for figure in self.report.figures}


def facts(experiment: Experiment, folder: str = "experiments") -> Iterator[str]:
    """Yields network, data, and how to run it again; the plan is in the folder, the ledger in its `results`."""
    results = experiment.results
    for run in results.runs[-1:]:
        network, settings = run.network, run.settings
        calibration = network.get("calibration", settings.get("calibration", "?"))
        sizes = f"at most {settings.get('sources', '?')} source images, {calibration} more for thresholds"
        data = f"{escape(experiment.source)}, {sizes}"
        yield f"- {escape(results.network)}{experiment.accuracy}; {data}; {run.date[:10]}."
        ledger = f"[ledger](../{folder}/results/{experiment.name}.jsonl)"
        yield f"- Plan `{folder}/{escape(run.name)}.toml`, {ledger}."


def has_cell(experiment: Experiment, place: Place) -> bool:
    """True if an experiment has a number, or too few successes for one, where the paper has that cell."""
    table, results = place["table"], experiment.results
    if place["database"] != experiment.database:
        return False
    if table == "c1c2":
        key = (place["detector"], place["attack"], place["rate"])
        return any(cell.auroc and (cell.detector, cell.attack, cell.rate) == key for cell in rate_cells(results))
    if table.startswith("ks-"):
        return any(_is_same_test(results, test, place) for test in results.ks)
    if table == "running-time":
        return any(results.timing_detector(cost) == place["detector"] for cost in results.costs)
    protocols = {
        "attack-transfer": (ProtocolName.OTHER_ATTACK, SAME_ATTACK),
        "data-transfer": (ProtocolName.OTHER_DATA,),
    }
    return _is_tested(results, place, protocols.get(table, (SAME_ATTACK,)))


def _is_tested(results: Results, place: Place, protocols: Sequence[ProtocolName]) -> bool:
    fitted = place.get("fitted", place["attack"])
    detector = " ".join([place["detector"], *([place["effort"]] if "effort" in place else [])])
    return any(
        outcome.method == place["detector"].partition(":")[0]
        and results.attack_id(cell.attack) == place["attack"]
        and (not outcome.fitted or [results.attack_id(label) for label in outcome.fitted] == [fitted])
        and (place["metric"] in cell.metrics or not cell.metrics)
        and results.paper_detector(outcome) == detector
        for protocol in protocols
        for outcome in results.of(protocol)
        for cell in outcome.cells
    )


def _is_same_test(results: Results, test: KsResult, place: Place) -> bool:
    tables = {"h1": "ks-h1", KS_SOURCES: "ks-h2-sources"} | dict.fromkeys(KS_PAIRS, "ks-h2-pairs")
    split = test.source if test.study == KS_SOURCES else test.split
    kinds = sorted(results.attack_id(kind) for kind in test.kind.split("|"))
    same = tables[test.study] == place["table"] and split == place["split"]
    return same and kinds == sorted(place["kind"].split("|"))


@dataclass(frozen=True)
class Comparison:
    """One of our numbers beside one of the paper's."""

    place: Place  # where it stands
    ours: Estimate  # in shares of 1
    paper: PaperNumber  # in percent

    @property
    def points(self) -> float:
        """Ours less the paper's, the farther one where it prints two."""
        return self.paper.difference(100 * self.ours.value)

    @property
    def is_large(self) -> bool:
        """True if it is more than two points."""
        return abs(self.points) > NEAR

    @property
    def detector(self) -> str:
        """Its detector, and the effort of the paper's Defense-GAN."""
        place = self.place
        effort = f" beside {place['effort']} in the paper" if "effort" in place else ""
        return f"{place['detector']}{effort}"

    def reason(self, notes: Sequence[Note]) -> str:
        """Returns the note of it, or that it may be chance; nothing if there is no reason yet."""
        note = closest(notes, self.place)
        inside = all(100 * self.ours.low <= value <= 100 * self.ours.high for value in self.paper.values)
        return note.why if note else CHANCE if inside else ""


def compare(experiment: Experiment) -> Iterator[Comparison]:
    """Yields all numbers of an experiment that have one of the paper's beside them, milliseconds and p left out."""
    results, name = experiment.results, experiment.name
    for label in results.detectors:
        for each in differences(results, label):
            outcome, cell = each.ref.outcome, each.ref.cell
            detector = results.paper_detector(outcome)
            place = {"experiment": name, "table": outcome.protocol, "metric": each.metric, "detector": label}
            place |= {"method": outcome.method, "attack": results.attack_id(cell.attack)}
            place["fitted"] = results.attack_id(outcome.fitted[0]) if outcome.fitted else ""
            if detector.startswith(DEFENSE_GAN):
                place["effort"] = results.paper(outcome.source).gan_effort(detector)
            yield Comparison(place, cell.metrics[each.metric], each.number)
    for rate in rate_cells(results):
        if rate.auroc is not None:
            place = {"experiment": name, "table": "c1c2", "metric": "auroc", "detector": rate.label}
            place |= {"method": rate.detector, "attack": rate.attack, "fitted": rate.attack, "rate": rate.rate}
            yield Comparison(place, rate.auroc, rate.number)
