"""Ledgers as an evaluation would write them, from seeded draws: no network, no torch."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, cast

import numpy as np
from PIL import Image

from benfourier.metrics.ranking import roc
from benfourier.report.paper import OPTIONS
from benfourier.store import ledger
from benfourier.store.records import (
    AttackSummary,
    Cell,
    Cost,
    Estimate,
    Failure,
    Floats,
    Inputs,
    KsResult,
    LayerFit,
    NoiseControl,
    Outcome,
    Picture,
    Profile,
    Record,
    Run,
)

DETECTORS = {"mbf": 0.985, "kd-bu": 0.82, "mahalanobis": 0.55, "lid": 0.88, "c1c2": 0.8, "defense-gan": 0.72}
BASELINE = {"max-softmax": 0.9}
ATTACKS = ("bim", "cw-l2", "deepfool", "r-pgd")
STRENGTHS = tuple(f"bim-fixed {eps}" for eps in (0.1, 0.15, 0.2, 0.3))
HARD = {"deepfool": 0.12, "bim-fixed 0.1": 0.1}  # how much AUROC mbf loses there
REDUCED = {"defense-gan": "GAN trained for 300 steps"}
SCRIPT = '<script>alert("x")</script>'
HOSTILE = f"$\\frac{{& {SCRIPT}"
FEW = 12


@dataclass(frozen=True)
class Maker:
    """Draws records.

    Args:
        seed: of all draws.
        rows: source images per cell.
        source: label of the data.
        renamed: labels that stand for others, to see whether they are escaped.
        layers: of the network.
    """

    seed: int = 0
    rows: int = 60
    source: str = "cifar10"
    renamed: Mapping[str, str] | None = None
    layers: tuple[str, ...] = ("features.0", "features.1", "soft-max")

    def name(self, label: str) -> str:
        return (self.renamed or {}).get(label, label)

    def draws(self, *words: object) -> np.random.Generator:
        return np.random.default_rng([self.seed, *(" ".join(map(str, words)).encode())])

    def cell(self, detector: str, fitted: Sequence[str], attack: str, source: str) -> Cell:
        label = self.name(attack)
        if detector == "defense-gan" and attack == "cw-l2":
            return Cell(label, source, FEW, note=f"{FEW} successes; a cell needs 30")
        target = self.target(detector, fitted, attack)
        draws = self.draws(detector, attack, *fitted, source)
        apart = math.sqrt(2) * NormalDist().inv_cdf(target)
        clean, noisy = draws.normal(size=(2, self.rows)).astype(np.float32)
        adversarial = draws.normal(apart, size=self.rows).astype(np.float32)
        curve = roc(np.stack([clean, noisy, adversarial]), np.arange(self.rows) % 5).astype(np.float32)
        return Cell(label, source, self.rows, self.metrics(clean, noisy, adversarial, detector), curve)

    def target(self, detector: str, fitted: Sequence[str], attack: str) -> float:
        top = {**DETECTORS, **BASELINE}[detector]
        lost = HARD.get(attack, 0.0) if detector == "mbf" else 0.0
        foreign = 0.03 if detector != "max-softmax" and attack not in fitted else 0.0
        return min(0.995, max(0.4, top - lost - foreign))

    def metrics(self, clean: Floats, noisy: Floats, adversarial: Floats, detector: str) -> dict[str, Estimate]:
        benign = np.concatenate([clean, noisy])
        auroc = float((adversarial[:, None] > benign).mean())
        half = float(np.median(adversarial)) / 2
        right = [*(benign <= half), *(adversarial > half)]
        metrics = {
            "auroc": self.near(auroc),
            "accuracy": self.near(float(np.mean(right))),
            "aupr": self.near(auroc - 0.03),
        }
        for rate in (0.05, 0.01):
            threshold = np.quantile(clean, 1 - rate)
            metrics[f"tpr@{100 * rate:g}%"] = self.near(float((adversarial > threshold).mean()))
        for place, kind in enumerate(("clean", "noisy", "sure@95%", "sure@90%", "sure@75%", "sure@50%"), 1):
            metrics[f"auroc-{kind}"] = self.near(max(0.0, auroc - 0.01 * place))
        metrics["fpr-clean@5%"] = self.near(0.05)
        metrics["fpr-noisy@5%"] = Estimate(0.07, math.nan, math.nan)
        if detector != "max-softmax":
            gain = auroc - BASELINE["max-softmax"]
            metrics["auroc-gain"] = Estimate(gain, gain - 0.02, gain + 0.02)
        return metrics

    def near(self, value: float) -> Estimate:
        wide = 1.96 * math.sqrt(max(value * (1 - value), 1e-4) / self.rows)
        return Estimate(value, max(0.0, value - wide), min(1.0, value + wide))

    def outcome(
        self, protocol: str, detector: str, fitted: Sequence[str], tested: Sequence[str], there: str = ""
    ) -> Outcome:
        cells = tuple(self.cell(detector, fitted, attack, there or self.source) for attack in tested)
        aurocs = [cell.metrics["auroc"] for cell in cells if cell.metrics]
        overall = {"fpr-misclassified@5%": self.near(0.31)}
        if protocol in ("mixed", "strength-transfer"):
            overall |= {
                "worst-auroc": min(aurocs, key=lambda e: e.value),
                "mead@5%": self.near(0.61),
                "mead@1%": self.near(0.4),
            }
        return Outcome(
            key=f"{protocol} {detector} {fitted} {there}",
            inputs="inputs",
            protocol=protocol,
            detector=self.name(detector),
            method=detector,
            options={"orders": 16} if detector == "mbf" else {},
            fitted=tuple(self.name(attack) for attack in fitted),
            source=self.source,
            fit_sources=240,
            folds=5,
            cells=cells,
            overall=overall,
            thresholds={"5%": 1.6, "1%": 2.3},
            calibration=1200,
            seconds={"fit": 1.5, "score": 0.25},
            seed=self.seed,
            reduced=REDUCED.get(detector, ""),
        )  # fmt: skip

    def outcomes(self) -> Iterator[Outcome]:
        for detector in (*DETECTORS, *BASELINE):
            for attack in ATTACKS:
                yield self.outcome("non-transfer", detector, [attack], [attack])
                others = [other for other in ATTACKS if other != attack]
                yield self.outcome("attack-transfer", detector, [attack], others)
            yield self.outcome("mixed", detector, [*ATTACKS, *STRENGTHS], [*ATTACKS, *STRENGTHS])
        for detector in ("mbf", "lid", "max-softmax"):
            for attack in ATTACKS:
                yield self.outcome("data-transfer", detector, [attack], [attack], f"{self.source}-other")
            every = [*ATTACKS, *STRENGTHS]
            for fitted, tested in (
                (ATTACKS, STRENGTHS),
                (ATTACKS[:1], STRENGTHS),
                (STRENGTHS, every),
                (STRENGTHS[:1], every),
            ):
                yield self.outcome("strength-transfer", detector, fitted, tested)

    def attack_summaries(self) -> Iterator[AttackSummary]:
        for place, attack in enumerate((*ATTACKS, *STRENGTHS)):
            options: dict[str, Any] = {"eps": float(attack.split()[1])} if attack in STRENGTHS else {}
            remaining = (("read", 400), ("rightly classified", 330), ("noisy twin too", 300), ("attacked", 300))
            reduced = "150 source images" if attack == "cw-l2" else ""
            yield AttackSummary(
                f"c{place}", self.source, self.name(attack), attack.split()[0], options,
                300, 290 - 7 * place, 0.4 + 0.3 * place, 0.02, 40.0, 0.015, remaining, self.seed, reduced,
            )  # fmt: skip

    def profiles(self) -> Iterator[Profile]:
        orders = 16
        place = np.arange(len(self.layers) * orders)
        for split in ("train", "test"):
            for step, kind in enumerate(("clean", "noisy", *ATTACKS)):
                mean = 0.5 / (1 + place % orders) + 0.02 * max(0, step - 1) + 0.05 * (place // orders)
                noise = self.draws(split, kind).normal(0, 0.004, len(place))
                deviation = 0.05 / (1 + place % orders) + 0.01
                yield Profile(
                    f"p {split} {kind}", self.source, split, self.name(kind), self.layers, orders, self.rows,
                    (mean + noise).astype(np.float32), deviation.astype(np.float32),
                )  # fmt: skip

    def fits(self) -> Iterator[LayerFit | NoiseControl]:
        values = np.arange(len(self.layers), dtype=np.float32)
        for kind in ("clean", *ATTACKS):
            yield LayerFit(
                f"f {kind}", self.source, "test", self.name(kind), self.layers, 60,
                0.1 + 0.01 * values, 1 + values, 0.5 * values,
            )  # fmt: skip
        for attack in ATTACKS:
            for what, value in (("activations", 0.98), ("own shapes", 0.8), ("same shapes", 0.5)):
                auroc = Estimate(value, value - 0.02, value + 0.02)
                yield NoiseControl(f"n {attack} {what}", self.source, self.name(attack), what, 240, 60, auroc)

    def ks(self) -> Iterator[KsResult]:
        kinds = ("clean", "noisy", *ATTACKS)
        more = {
            "p-any-shape": 0.08,
            "any-shape-below-0.05": 0.05,
            "p-exact": 0.08,
            "p-adjusted": 0.4,
            "rejected": 0.125,
        }
        for split in ("train", "test"):
            for kind in kinds:
                yield KsResult(f"h1 {split} {kind}", "h1", self.source, split, self.name(kind), 60, 0.3, 0.075, more)
            pairs = ("clean|noisy", "clean|bim", "bim|deepfool", "cw-l2|r-pgd")
            for place, pair in enumerate(pairs, 1):
                kind = "|".join(self.name(part) for part in pair.split("|"))
                yield KsResult(
                    f"h2 {split} {kind}", f"h2.{place}", self.source, split, kind, 60, 0.2, 0.01 * place, more
                )
        for kind in kinds:
            yield KsResult(f"s {kind}", "h2-sources", "train|test", "test", self.name(kind), 60, 0.1, 0.4, {})

    def costs(self) -> Iterator[Cost]:
        for place, detector in enumerate((*DETECTORS, *BASELINE)):
            needs = ("search",) if detector in ("c1c2", "defense-gan") else ("forward",)
            yield Cost(f"t {detector}", self.name(detector), detector, needs, 64, 2.0, 2.0 + 4.0**place / 9, 0.01)

    def records(self) -> Iterator[Record]:
        settings = {
            "name": self.name("plan"),
            "seed": self.seed,
            "data": {"source": self.source},
            "attacks": [
                *({"name": attack, "label": self.name(attack), "role": "boundary"} for attack in ATTACKS),
                *({"name": "bim-fixed", "label": self.name(label), "role": "strength"} for label in STRENGTHS),
            ],
        }
        network = {"name": "lid-cifar10", "accuracy": 0.82, "layers": list(self.layers)}
        versions, machine = {"python": "3.11", "torch": "2.13.0"}, {"cpu": "a processor", "threads": 2}
        yield Run("run", self.name("plan"), settings, "here", versions, machine, network, "2000-01-01T00:00:00Z")
        yield Inputs("inputs", {"weights": "abc"}, {"torch": "2.13.0"})
        for records in (
            self.attack_summaries(),
            self.outcomes(),
            self.profiles(),
            self.fits(),
            self.ks(),
            self.costs(),
        ):
            yield from cast("Iterator[Record]", records)
        yield Failure("broken", f"lid on {self.name('bim')}", self.name("the disk is full"))


def searched(*efforts: tuple[int, int]) -> Iterator[Record]:
    """MNIST with a Defense-GAN of each effort."""
    for record in Maker(source="mnist-5k", rows=40).records():
        if isinstance(record, Outcome) and record.method == "defense-gan":
            for steps, runs in efforts:
                label, options = f"defense-gan ({steps}, {runs})", {"search_steps": steps, "restarts": runs}
                yield replace(record, key=f"{record.key} {label}", detector=label, options=options)
        else:
            yield record


def several(source: str = "cifar10") -> Iterator[Record]:
    """Each trial of mbf with our settings, then boosted trees, then the paper's settings."""
    settings: dict[str, dict[str, Any]] = {"mbf": {"head": None}, "mbf, boosted trees": {"head": "boosted"}}
    settings |= {"paper, γ = scale": {**OPTIONS, "gamma": "scale"}, "mbf, paper": {**OPTIONS, "seed": 0}}
    for record in Maker(source=source, rows=40).records():
        if isinstance(record, Outcome) and record.method == "mbf":
            for label, options in settings.items():
                yield replace(record, key=f"{record.key} {label}", detector=label, options=options)
        elif isinstance(record, Cost) and record.method == "mbf":
            yield from (replace(record, key=f"{record.key} {label}", detector=label) for label in settings)
        else:
            yield record


def write(folder: Path, records: Iterator[Record] | Sequence[Record]) -> Path:
    """A ledger of these records."""
    path = folder / "ledger.jsonl"
    ledger.write(path, records)
    return path


def pictures(folder: Path, maker: Maker, each: int = 1) -> Iterator[Picture]:
    """Records of pictures whose files are made in the folder."""
    for attack in ATTACKS:
        for number in range(each):
            files = tuple(f"{attack}-{number}-{kind}.png" for kind in ("clean", "attacked", "perturbation"))
            for name in files:
                pixels = maker.draws(name).integers(0, 256, (8, 8, 3), np.uint8)
                Image.fromarray(pixels).resize((96, 96), Image.Resampling.NEAREST).save(folder / name)
            yield Picture(
                f"i {attack} {number}", maker.source, str(number), maker.name(attack), "cat", maker.name("dog"),
                0.31, 20.0, (files[0], files[1], files[2]), maker.name("a photographer"),
            )  # fmt: skip
