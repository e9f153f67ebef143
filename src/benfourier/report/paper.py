"""The numbers that the paper prints (arXiv:2005.05552), from `paper.json`."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from benfourier.errors import check_choice

BESIDE_C1C2 = "cifar10-vgg19"
DATABASES = ("cifar10", "svhn", "imagenet-alexnet", "imagenet-vgg16", "mnist", BESIDE_C1C2)
NONE = "none"
PAIRS, SOURCES = "h2.", "h2-sources"


@cache
def _content() -> Mapping[str, Any]:
    text = (files("benfourier.report") / "paper.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


@dataclass(frozen=True)
class Printed:
    """A number of the paper.

    Args:
        values: as printed; two where the paper contradicts itself.
        doubt: why it may be a slip; empty otherwise.
        digits: behind the point.
    """

    values: tuple[float, ...]
    doubt: str = ""
    digits: int = 1

    def __str__(self) -> str:
        told = " or ".join(f"{value:.{self.digits}f}" for value in self.values)
        return f"{told}?" if self.doubt else told

    def gaps(self, value: float) -> tuple[float, ...]:
        """Returns the value less each printed one."""
        return tuple(value - printed for printed in self.values)

    def gap(self, value: float) -> float:
        """Returns the value less the printed one that is farthest from it."""
        return max(self.gaps(value), key=abs)


@dataclass(frozen=True)
class Paper:
    """What the paper says of one of its databases; of "none" it says nothing.

    Args:
        database: one of DATABASES, or "none".
    """

    database: str
    content: Mapping[str, Any] = field(default_factory=_content, repr=False)

    def __post_init__(self) -> None:
        check_choice("paper", self.database, (*DATABASES, NONE))

    @property
    def citation(self) -> str:
        """Authors, title and number."""
        return "{authors}, {title}, {where}".format(**self.content["source"])

    def same_attack(self, metric: str, detector: str, attack: str) -> Printed | None:
        """Returns percent, of a detector fitted to the attack that it is tested on."""
        if self.database == "mnist":
            return _printed(self._beside_gan(detector), attack) if metric == "auroc" else None
        row = self._found("non_transfer", self.database, metric, detector)
        return self._doubted("non_transfer", metric, detector, attack, attack, _printed(row, attack))

    def transfer(self, metric: str, detector: str, fitted: str, tested: str) -> Printed | None:
        """Returns percent, of a detector fitted to one attack and tested on another."""
        row = self._found("attack_transfer", self.database, metric, detector, fitted)
        return self._doubted("attack_transfer", metric, detector, fitted, tested, _printed(row, tested))

    def elsewhere(self, metric: str, detector: str, attack: str) -> Printed | None:
        """Returns percent, of a detector tested on images of another source."""
        return _printed(self._found("data_transfer", self.database, metric, detector), attack)

    def ks(self, study: str, split: str, kind: str) -> Printed | None:
        """Returns the mean p; for the study h2-sources the split is the pair, as in "train|test"."""
        table = "ks_h2_sources_p" if study == SOURCES else "ks_h2_pairs_p" if study.startswith(PAIRS) else "ks_h1_p"
        row = self._found(table, self.database, split)
        return _printed(row, kind, 3) or _printed(row, "|".join(reversed(kind.split("|"))), 3)

    def milliseconds(self, detector: str) -> Printed | None:
        """Returns milliseconds per image for a detector's numbers, on the authors' machine."""
        return _printed(self._found("feature_milliseconds", self.database), detector)

    def gan_effort(self, detector: str) -> str:
        """Returns iterations × runs of the paper's Defense-GAN that stands beside ours."""
        return "{iterations} × {runs}".format(**self._beside_gan(detector))

    def slips(self) -> tuple[str, ...]:
        """Returns what looks like slips in the paper, one sentence each."""
        told = []
        for slip in self.content["suspect"]:
            place = [slip[name] for name in ("database", "detector", "metric") if name in slip]
            told.append(f"{', '.join([slip['table'].replace('_', ' '), *place])}: {slip['why']}.")
        return tuple(told)

    def _beside_gan(self, detector: str) -> Mapping[str, Any]:
        """The row of the comparison with Defense-GAN: of that effort, if the id has one, else the dearest."""
        name = detector.partition(" ")[0]
        rows = [row for row in self.content["mnist_defense_gan"] if row["detector"] == name]
        alike = [row for row in rows if gan_id(row.get("iterations"), row.get("runs")) == detector]
        return dict((alike or rows or [{}])[0])

    def _found(self, *names: str) -> Mapping[str, Any]:
        found: Any = self.content
        for name in names:
            found = found.get(name, {})
        return dict(found)

    def _doubted(
        self, table: str, metric: str, detector: str, fitted: str, tested: str, printed: Printed | None
    ) -> Printed | None:
        """The number with its doubts, if it has any."""
        place = (table, metric, self.database, detector)
        for slip in self.content["suspect"]:
            if printed and tuple(slip.get(name) for name in ("table", "metric", "database", "detector")) == place:
                other = slip["also"].get(fitted, {}).get(tested)
                return Printed((*printed.values, *([other] if other is not None else [])), slip["why"])
        return printed


def gan_id(iterations: object, runs: object) -> str:
    """Returns the id of Defense-GAN with an effort, such as "defense-gan 100 × 2"."""
    return f"defense-gan {iterations} × {runs}"


def family(source: str) -> str:
    """Returns which of the databases of small images data are from, by their label, or "none"."""
    data = _plain(source)
    names = ("cifar10", "svhn", "mnist")
    return next((name for name in names if name in data and f"fashion{name}" not in data), NONE)


def guess(source: str, network: str) -> str:
    """Returns the database of the paper that data and network are like, or "none"; small images have LID's networks."""
    images, net = family(source), _plain(network)
    if images != NONE and "lid" in re.findall("[a-z]+", network.lower()):
        return images
    if images == "cifar10" and "vgg19" in net:
        return BESIDE_C1C2
    for name in ("alexnet", "vgg16"):
        if "imagenet" in _plain(source) and name in net:
            return f"imagenet-{name}"
    return NONE


def _plain(label: str) -> str:
    return label.lower().replace("-", "").replace("_", "")


def _printed(row: Mapping[str, Any], name: str, digits: int = 1) -> Printed | None:
    value = row.get(name)
    return Printed((float(value),), digits=digits) if isinstance(value, int | float) else None
