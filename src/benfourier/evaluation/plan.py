"""A plan: what is to be evaluated, with every default filled in."""

from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from benfourier.attacks.examples import CHUNK
from benfourier.detectors.catalogue import method
from benfourier.detectors.method import Method

PROTOCOLS = ("non-transfer", "attack-transfer", "data-transfer", "strength-transfer", "mixed")
STUDIES = ("ks", "profile", "layers", "cost", "pictures")
ROLES = ("boundary", "strength")
TWINS = ("one", "every")
DETECTION = ("held-out", "learned")
ZOOS = "zoo"  # instead of a file of weights: those of the convolutions that come with a network of the zoo
TRIVIAL = "max-softmax"  # it stands in every table
DEAR = 200  # calibration images of a detector with few sources, the least that a rate of 5 % asks for


@dataclass(frozen=True)
class NetworkPlan:
    """The network.

    Args:
        model: an id of the zoo, or package.module:factory.
        weights: file beside the plan, or "zoo"; empty if there is none. A network that is trained begins with them.
        digest: SHA-256 of that file; empty if it is not checked.
        classes: number of classes for the factory, or their names; None for its own.
        look: keywords of Subject: size, channels, mean, std, bounds, resize.
        train: fields of Recipe to train it with; None if it is not trained.
        share: of the source images that it learns from.
        head: fields of Recipe for a training before, of what the weights leave open only; None if there is none.
        until_right: its training ends as soon as it has all images right that it learns from.
        detection: which images are attacked: "held-out" ones, or those that it "learned" from.
    """

    model: str
    weights: str = ""
    digest: str = ""
    classes: Any = None
    look: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] | None = None
    share: float = 0.6
    head: dict[str, Any] | None = None
    until_right: bool = False
    detection: str = "held-out"


@dataclass(frozen=True)
class AttackPlan:
    """An attack.

    Args:
        name: its id.
        label: what it is called in tables.
        role: boundary or strength.
        sources: images that it is tried on, at most.
        options: all of them.
        reduced: a setting below the paper's, in words.
        own_noise: its noisy twins are as far from the images as its own adversarial ones, not as those of all attacks.
        transfer: it takes part in data-transfer; otherwise images of the second source are spared it. A number is of
            those images, at most.
    """

    name: str
    label: str
    role: str
    sources: int
    options: dict[str, Any]
    reduced: str = ""
    own_noise: bool = False
    transfer: bool | int = True

    @property
    def circle(self) -> tuple[int, str]:
        """What it shares with the attacks that have the same images and noisy twins."""
        return self.sources, self.label if self.own_noise else ""

    @property
    def elsewhere(self) -> "AttackPlan":
        """The attack as images of the second source meet it."""
        return self if self.transfer is True else replace(self, sources=int(self.transfer))


@dataclass(frozen=True)
class DetectorPlan:
    """A detector.

    Args:
        name: its id.
        label: what it is called in tables.
        given: options as the plan has them, the seed among them.
        preset: a named set of options; None for none.
        sources: it is fitted to and tested on, at most.
        calibration: clean images that set its thresholds, at most.
        reduced: a setting below the method's own, in words.
        twins: adversarial ones of each source in a fit to several attacks: "one" of an attack that is drawn, or "every"
            attack's that succeeded.
    """

    name: str
    label: str
    given: dict[str, Any]
    preset: str | None
    sources: int
    calibration: int
    reduced: str = ""
    twins: str = "one"

    @property
    def method(self) -> Method:
        """The method with its options."""
        return method(self.name, preset=self.preset, **self.given)

    @property
    def takes_clean(self) -> bool:
        """True if it learns from labelled clean images beyond the examples."""
        chosen = self.method
        return chosen.clean == "needed" or (chosen.clean == "optional" and chosen.rules == "authors")

    @property
    def options(self) -> dict[str, Any]:
        """All options, those left at their default too."""
        chosen = self.method
        return {part.name: getattr(chosen, part.name) for part in fields(chosen) if part.compare}


@dataclass(frozen=True)
class Plan:
    """What is to be evaluated.

    Args:
        name: of the plan.
        seed: of splits, draws and attacks.
        protocols: some of PROTOCOLS.
        studies: some of STUDIES.
        network: to be guarded.
        source: of images, as the command line's --data has it.
        other: further sources with the same classes, taken together; empty if there is none.
        sources: images for detection, at most.
        calibration: further clean images that set thresholds, at most.
        transferred: images of the other sources for detection, at most.
        chunk: images attacked between two savings.
        attacks: all of them.
        detectors: all of them, the trivial one among them.
        credit: whose photographs the images are.
        groups: coarse labels: by name, classes of the sources; empty for the sources' own labels.
        ledger: file to append to, from the plan's folder; empty for one beside the plan.
        scale: name of the tables that were laid over the plan; "here" for none.
        folder: that paths in the plan start from.
        data_dir: what stands for {data} in paths.
    """

    name: str
    seed: int
    protocols: tuple[str, ...]
    studies: tuple[str, ...]
    network: NetworkPlan
    source: str
    other: tuple[str, ...]
    sources: int
    calibration: int
    transferred: int
    attacks: tuple[AttackPlan, ...]
    detectors: tuple[DetectorPlan, ...]
    chunk: int = CHUNK
    credit: str = ""
    groups: dict[str, list[int | str]] = field(default_factory=dict)
    ledger: str = ""
    scale: str = "here"
    folder: Path = Path()
    data_dir: Path | None = None

    def attack(self, label: str) -> AttackPlan:
        """Returns the attack of that label."""
        return next(attack for attack in self.attacks if attack.label == label)

    def detector(self, label: str) -> DetectorPlan:
        """Returns the detector of that label."""
        return next(detector for detector in self.detectors if detector.label == label)

    @property
    def elsewhere(self) -> "Plan":
        """The plan for images of the second source."""
        return replace(self, attacks=tuple(attack.elsewhere for attack in self.attacks if attack.transfer))

    def labels(self, role: str) -> tuple[str, ...]:
        """Returns the labels of the attacks of one role."""
        return tuple(attack.label for attack in self.attacks if attack.role == role)

    def settings(self) -> dict[str, Any]:
        """Returns everything that decides the results, as JSON can hold it; no folder of this machine is in it."""
        told = {key: value for key, value in asdict(self).items() if key not in ("folder", "data_dir", "ledger")}
        told["detectors"] = [
            {**{key: value for key, value in asdict(entry).items() if key != "given"}, "options": entry.options}
            for entry in self.detectors
        ]
        return told
