"""The numbers that the paper prints (arXiv:2005.05552), one row of `paper.csv` each."""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from benfourier.errors import check_choice
from benfourier.store.vocabulary import DEFENSE_GAN, KS_POSTERIORS, KS_SOURCES, ProtocolName

CITATION = (
    "Ma et al., Effective and Robust Detection of Adversarial Examples via Benford-Fourier Coefficients, "
    "arXiv:2005.05552"
)
VGG19 = "cifar10-vgg19"  # the comparison with C1&C2t/u
MNIST = "mnist"  # the comparison with Defense-GAN
DATABASES = ("cifar10", "svhn", "imagenet-alexnet", "imagenet-vgg16", MNIST, VGG19)
NONE = "none"
SLIPS = (  # what contradicts itself in the paper; the column `doubt` of paper.csv counts from 1
    "non transfer, svhn, mbf, accuracy: the row repeats that of CIFAR-10; the second value is the diagonal of the "
    "paper's own transfer table",
    "attack transfer, imagenet-vgg16, mbf, accuracy: all 16 values repeat those of AlexNet; the second value is the "
    "paper's own non-transfer row, where it has one",
    "c1c2 by learning rate: the caption says MNIST, the text says CIFAR-10 with VGG-19",
    "text: 400 benign ImageNet training images in one place, 480 in another",
)
# Options of the paper's mbf; a test holds them equal to the method's preset. The later ones are in some ledgers only.
OPTIONS: Mapping[str, Any] = {
    "orders": 16, "layers": None, "pass_through": True, "centre": True, "zeros": "drop",
    "head": "svm", "scaling": "none", "C": 1.0, "gamma": 1.0,
}  # fmt: skip
LATER_OPTIONS: Mapping[str, Any] = {"precision": "float64", "entries": "all"}


@dataclass(frozen=True)
class PaperNumber:
    """A number of the paper."""

    values: tuple[float, ...]  # as printed; two where the paper contradicts itself
    doubt: str = ""  # why it may be a slip; empty otherwise
    digits: int = 1  # behind the point

    def __str__(self) -> str:
        text = " or ".join(f"{value:.{self.digits}f}" for value in self.values)
        return f"{text}?" if self.doubt else text

    def differences(self, value: float) -> tuple[float, ...]:
        """Returns the value less each printed one."""
        return tuple(value - printed for printed in self.values)

    def difference(self, value: float) -> float:
        """Returns the value less the printed one that is farthest from it."""
        return max(self.differences(value), key=abs)


@dataclass(frozen=True)
class PaperCell:
    """A cell of the paper's tables."""

    # table, database, metric, detector, attack and so on, by name; only those that the table has
    place: Mapping[str, str]
    number: PaperNumber  # what is printed there


@cache
def all_cells() -> tuple[PaperCell, ...]:
    """Returns every number of the paper's tables, in their order."""
    cells = []
    with (files("benfourier.report") / "paper.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            values = tuple(float(text) for text in (row.pop("value"), row.pop("second")) if text)
            slip = row.pop("doubt")
            doubt = SLIPS[int(slip) - 1].partition(": ")[2] if slip else ""
            place = {name: text for name, text in row.items() if text}
            cells.append(PaperCell(place, PaperNumber(values, doubt, 3 if place["table"].startswith("ks-") else 1)))
    return tuple(cells)


@cache
def _by_place() -> Mapping[frozenset[tuple[str, str]], PaperNumber]:
    return {frozenset(cell.place.items()): cell.number for cell in all_cells()}


@dataclass(frozen=True)
class Paper:
    """The paper's numbers for one of its databases; for "none" there are none."""

    database: str  # one of DATABASES, or "none"

    def __post_init__(self) -> None:
        check_choice("paper", self.database, (*DATABASES, NONE))

    def number(self, table: str, **place: str) -> PaperNumber | None:
        """Returns the number at a place of a table, such as metric="auroc", detector="lid", attack="bim"."""
        return _by_place().get(frozenset({"table": table, "database": self.database, **place}.items()))

    def beside(self, protocol: str, metric: str, detector: str, fitted: str, attack: str) -> PaperNumber | None:
        """Returns the number beside a cell of ours, in percent; names as `Results` has them for the paper."""
        place = {"metric": metric, "detector": detector, "attack": attack}
        if protocol == ProtocolName.OTHER_ATTACK:
            place["fitted"] = fitted
        elif protocol == ProtocolName.SAME_ATTACK and self.database == MNIST:
            effort = {"effort": text} if (text := self.gan_effort(detector)) else {}
            return self.number("defense-gan", **place | effort | {"detector": detector.partition(" ")[0]})
        return self.number(protocol, **place)  # the tables have the names of our protocols

    def ks(self, study: str, split: str, kind: str) -> PaperNumber | None:
        """Returns the mean p; for the study h2-sources the split is the pair of sources, as in "train|test"."""
        table = {KS_POSTERIORS: "ks-h1", KS_SOURCES: "ks-h2-sources"}.get(study, "ks-h2-pairs")
        swapped = "|".join(reversed(kind.split("|")))
        return self.number(table, split=split, kind=kind) or self.number(table, split=split, kind=swapped)

    def gan_effort(self, detector: str) -> str:
        """Returns iterations × runs of the paper's Defense-GAN beside ours: of equal effort, or else the largest."""
        method, _, effort = detector.partition(" ")
        efforts = [cell.place["effort"] for cell in all_cells() if "effort" in cell.place]
        return "" if method != DEFENSE_GAN else effort if effort in efforts else efforts[0]


def has_paper_options(options: Mapping[str, Any]) -> bool:
    """True if options of mbf are the paper's."""
    later = {name: value for name, value in LATER_OPTIONS.items() if options.get(name) is not None}
    return all(name in options and options[name] == value for name, value in {**OPTIONS, **later}.items())


def database_of(source: str) -> str:
    """Returns which of the databases of small images a label of data names, or "none"."""
    label = _plain(source)
    names = ("cifar10", "svhn", "mnist")
    return next((name for name in names if name in label and f"fashion{name}" not in label), NONE)


def guess_database(source: str, network: str) -> str:
    """Returns the database of the paper that data and network are like, or "none"; small images need LID's networks."""
    images, net = database_of(source), _plain(network)
    if images != NONE and "lid" in re.findall("[a-z]+", network.lower()):
        return images
    if images == "cifar10" and "vgg19" in net:
        return VGG19
    for name in ("alexnet", "vgg16"):
        if "imagenet" in _plain(source) and name in net:
            return f"imagenet-{name}"
    return NONE


def _plain(label: str) -> str:
    return label.lower().replace("-", "").replace("_", "")
