"""Every cell of the paper's tables, and whether ours has its like."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benfourier.report.counterparts import known_as, timed_as
from benfourier.report.paper import BESIDE_C1C2, PAIRS, SOURCES, Paper
from benfourier.report.results import ALONE, ELSEWHERE, TRANSFER, Results
from benfourier.store.records import KsResult
from tools.results.experiments import Experiment
from tools.results.notes import Place
from tools.results.rivals import rates

KS = {"ks-h1": "ks_h1_p", "ks-h2-pairs": "ks_h2_pairs_p", "ks-h2-sources": "ks_h2_sources_p"}
TITLES = {
    "non-transfer auroc": "Same attack in fit and test, AUROC",
    "non-transfer accuracy": "Same attack in fit and test, accuracy",
    "attack-transfer auroc": "Another attack, AUROC",
    "attack-transfer accuracy": "Another attack, accuracy",
    "data-transfer auroc": "Another source of images, AUROC",
    "ks-h1": "KS, H1",
    "ks-h2-pairs": "KS, H2, pairs of kinds",
    "ks-h2-sources": "KS, H2, pairs of sources",
    "defense-gan auroc": "Beside Defense-GAN, AUROC",
    "c1c2 auroc": "Beside C1&C2t/u, AUROC",
    "running-time": "Milliseconds per image",
}
PARTS = {  # where a table's numbers stand in an experiment
    "non-transfer": "non-transfer",
    "attack-transfer": "attack-transfer",
    "data-transfer": "data-transfer",
    **dict.fromkeys(KS, "ks"),
    "defense-gan": "non-transfer",
    "c1c2": "c1c2",
    "running-time": "costs",
}


def part(place: Place) -> str:
    """Returns the part of an experiment where a cell has its like."""
    return PARTS[place["table"]]


def cells() -> Iterator[Place]:
    """Yields the places of all cells, table by table."""
    content = Paper("none").content
    for database, metrics in content["non_transfer"].items():
        for metric, detectors in metrics.items():
            yield from _of("non-transfer", database, ("detector", "attack"), detectors, metric=metric)
    for database, metrics in content["attack_transfer"].items():
        for metric, detectors in metrics.items():
            yield from _of("attack-transfer", database, ("detector", "fitted", "attack"), detectors, metric=metric)
    for database, metrics in content["data_transfer"].items():
        for metric, detectors in metrics.items():
            yield from _of("data-transfer", database, ("detector", "attack"), detectors, metric=metric)
    for table, name in KS.items():
        for database, splits in content[name].items():
            yield from _of(table, database, ("split", "kind"), splits)
    yield from _rivals(content)
    for database, detectors in content["feature_milliseconds"].items():
        yield from _of("running-time", database, ("detector",), detectors)


def has(experiment: Experiment, place: Place) -> bool:
    """True if a number of an experiment stands, or could not be told, where the paper has that cell."""
    table, results = place["table"], experiment.results
    if place["database"] != experiment.database:
        return False
    if table == "c1c2":
        cell = (place["detector"], place["attack"], place["rate"])
        return any(rate.auroc and (rate.detector, rate.attack, rate.rate) == cell for rate in rates(experiment))
    if table in KS:
        return any(_same_test(results, result, place) for result in results.ks)
    if table == "running-time":
        return any(timed_as(results, cost) == place["detector"] for cost in results.costs)
    protocols = {"attack-transfer": (TRANSFER, ALONE), "data-transfer": (ELSEWHERE,)}.get(table, (ALONE,))
    return _tested(results, place, protocols)


def _of(table: str, database: str, keys: Sequence[str], rows: Mapping[str, Any], **more: str) -> Iterator[Place]:
    """Cells of nested tables, each level named by a key."""
    for name, below in rows.items():
        place = {**more, keys[0]: name}
        if len(keys) > 1:
            yield from _of(table, database, keys[1:], below, **place)
        else:
            yield {"table": table, "database": database, **place}


def _rivals(content: Mapping[str, Any]) -> Iterator[Place]:
    for row in content["mnist_defense_gan"]:
        more = {"effort": f"{row['iterations']} × {row['runs']}"} if "runs" in row else {}
        attacks = {name: row[name] for name in row if name not in ("detector", "iterations", "runs")}
        place = {"metric": "auroc", "detector": row["detector"], **more}
        yield from _of("defense-gan", "mnist", ("attack",), attacks, **place)
    for row in content["c1c2_by_learning_rate"]:
        both = {attack: row[attack] for attack in ("cw", "pgd")}
        yield from _of("c1c2", BESIDE_C1C2, ("attack", "rate"), both, metric="auroc", detector=row["detector"])


def _tested(results: Results, place: Place, protocols: Sequence[str]) -> bool:
    fitted = place.get("fitted", place["attack"])
    detector = " ".join([place["detector"], *([place["effort"]] if "effort" in place else [])])
    return any(
        outcome.method == place["detector"]
        and results.method_of(cell.attack) == place["attack"]
        and (not outcome.fitted or [results.method_of(label) for label in outcome.fitted] == [fitted])
        and (place["metric"] in cell.metrics or not cell.metrics)
        and known_as(results, outcome) == detector
        for protocol in protocols
        for outcome in results.of(protocol)
        for cell in outcome.cells
    )


def _same_test(results: Results, result: KsResult, place: Place) -> bool:
    study = {"ks-h1": "h1", "ks-h2-sources": SOURCES}.get(place["table"], PAIRS)
    split = result.source if result.study == SOURCES else result.split
    kinds = [results.method_of(kind) for kind in result.kind.split("|")]
    return (
        result.study.startswith(study) and split == place["split"] and sorted(kinds) == sorted(place["kind"].split("|"))
    )
