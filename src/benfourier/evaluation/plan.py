"""A plan: what is to be evaluated. Every key stands here once, with its default and its rule."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from benfourier.attacks.examples import CHUNK
from benfourier.data.sources import RANGE, group_of_class
from benfourier.detectors.catalogue import make_method
from benfourier.detectors.method import Method
from benfourier.errors import InputError, OptionError, PlanError, check_choice, check_whole
from benfourier.options import Check
from benfourier.store.vocabulary import MIN_SOURCES, ProtocolName, Role, StudyName

TWINS = ("one", "every")
ROLES_NEEDED = {  # by protocols
    ProtocolName.OTHER_STRENGTH: (Role.STRENGTH,),
    ProtocolName.MIXTURE: (Role.MIXTURE,),
    ProtocolName.UNSEEN: (Role.MIXTURE, Role.UNSEEN),
}
DETECTION = ("held-out", "learned")
ZOO_WEIGHTS = "zoo"  # instead of a file of weights: those of the convolutions that come with a network of the zoo
HERE = "here"  # the scale of a plan as it is written
DATA = "{data}"


def _text(path: str, value: Any) -> str:
    if not isinstance(value, str):
        raise OptionError(f"{path} is {value!r}; it must be text")
    return value


def key(
    default: Any = MISSING, *, check: Check = _text, table: str = "", name: str = "", up_to: str = "", least: int = 1
) -> Any:
    """Returns a field of a plan that is one key of its file; without a default, the key must be there.

    `table` is the table inside this one that holds the key, `name` its name there if it is not that of the field. For
    a whole number, `up_to` names the field of Plan that is its largest value and its default; `least` is the smallest.
    """
    rule = {"check": check, "table": table, "name": name, "up_to": up_to, "least": least}
    return field(default_factory=dict, metadata=rule) if default is dict else field(default=default, metadata=rule)


def remaining_keys(table: str = "") -> Any:
    """Returns a field that holds all other keys of its table: options of something, checked there."""
    return field(metadata={"remaining": True, "table": table})


def _any(path: str, value: Any) -> Any:
    return value  # it is checked together with others


def _flag(path: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"{path} is {value!r}; it must be true or false")
    return value


def _word(path: str, value: Any, *, allowed: Iterable[str]) -> Any:
    check_choice(path, value, map(str, allowed))
    return value


def _words(path: str, value: Any, *, allowed: Iterable[str]) -> tuple[str, ...]:
    """A list of words, none of them twice."""
    if not isinstance(value, list):
        raise OptionError(f"{path} is {value!r}; it must be a list")
    for place, word in enumerate(value):
        check_choice(f"{path}[{place}]", word, map(str, allowed))
        if word in value[:place]:
            raise OptionError(f"{path}[{place}] is {word!r} again; name each once")
    return tuple(value)


def _share(path: str, value: Any) -> float:
    if type(value) not in (int, float) or not 0.05 <= value <= 0.95:
        raise OptionError(f"{path} is {value!r}; it must be from 0.05 to 0.95: the rest is for detection")
    return float(value)


def _source(path: str, value: Any) -> str:
    if value == "":
        raise OptionError(f"{path} is empty; name a source, such as 'mnist-5k' or a folder")
    return _text(path, value)


def _sources(path: str, value: Any) -> tuple[str, ...]:
    """One source, or several in a list."""
    if not isinstance(value, list):
        return (value,) if _text(path, value) else ()
    return tuple(_source(f"{path}[{place}]", each) for place, each in enumerate(value))


def _skip(path: str, value: Any) -> tuple[str, ...]:
    """Ranges of images; a number is that of images at the beginning."""
    if type(value) is int and value >= 0:
        return (f"0-{value - 1}",) if value else ()
    if not isinstance(value, list) or not all(isinstance(each, str) and RANGE.fullmatch(each) for each in value):
        raise OptionError(f'{path} is {value!r}; it must be a number of images, or a list of ranges such as ["0-249"]')
    return tuple(value)


def _groups(path: str, value: Any) -> dict[str, list[int | str]]:
    """Two groups or more, of which no class is in two."""
    if not isinstance(value, dict) or not all(isinstance(members, list) for members in value.values()):
        raise OptionError(f"{path} are {value!r}; they must be a table of lists, one list of classes per group")
    if len(value) < 2:
        raise OptionError(f"{path} are {', '.join(value) or 'none'}; a network needs two classes or more")
    for name, members in value.items():
        if not members:
            raise OptionError(f"{path}.{name} is empty; it must hold classes of the source")
        for place, member in enumerate(members):
            if type(member) not in (int, str):
                allowed = 'a class: its number, "7-24" for several, or its name'
                raise OptionError(f"{path}.{name}[{place}] is {member!r}; it must be {allowed}")
    try:
        group_of_class(value)
    except InputError as error:
        raise OptionError(f"{path} are not apart: {error}") from error
    return value


@dataclass(frozen=True, kw_only=True)
class NetworkPlan:
    """The network."""

    model: str = key()  # an id of the zoo, or package.module:factory
    weights: str = key("")  # file beside the plan, or "zoo", or none; a network that is trained begins with them
    digest: str = key("")  # SHA-256 of that file; empty if it is not checked
    classes: int | Sequence[str] | None = key(None, check=_any)  # their number or names; None for those of the factory
    share: float = key(0.6, check=_share, table="train")  # of the source images, that it learns from
    # fields of TrainingOptions for a first training, of the layers without weights alone
    new_layers: Mapping[str, Any] | None = key(None, check=_any, table="train")
    until_all_correct: bool = key(False, check=_flag, table="train")  # training ends when it learned every image
    # which images are attacked
    detection: str = key(DETECTION[0], check=partial(_word, allowed=DETECTION), table="train")
    train: Mapping[str, Any] | None = remaining_keys("train")  # fields of TrainingOptions; None if it is not trained
    input: Mapping[str, Any] = remaining_keys()  # keywords of Classifier: size, channels, mean, std, bounds, resize


@dataclass(frozen=True, kw_only=True)
class AttackPlan:
    """An attack."""

    name: str = key()
    label: str = key("")  # what it is called in tables
    role: str = key(Role.BOUNDARY.value, check=partial(_word, allowed=Role))
    sources: int = key(None, up_to="sources", least=MIN_SOURCES)  # images that it is tried on, at most
    reduced: str = key("")  # a setting below the paper's, in words
    # its noisy twins are as far from the images as its own adversarial ones, not as those of all attacks
    own_noise: bool = key(False, check=_flag)
    # whether it is run on images of the second source, for data-transfer; a number is of those images, at most
    transfer: bool | int = key(True, check=_any)
    options: Mapping[str, Any] = remaining_keys()

    @property
    def noise_group(self) -> tuple[int, str]:
        """What it shares with the attacks that have the same images and noisy twins."""
        return self.sources, self.label if self.own_noise else Role.MIXTURE * (self.role == Role.MIXTURE)

    @property
    def for_second_source(self) -> "AttackPlan":
        """The attack as it is run on images of the second source."""
        return self if self.transfer is True else replace(self, sources=int(self.transfer))


@dataclass(frozen=True, kw_only=True)
class DetectorPlan:
    """A detector."""

    name: str = key()
    label: str = key("")  # what it is called in tables
    preset: str | None = key(None)
    sources: int = key(None, up_to="sources", least=MIN_SOURCES)  # it is fitted to and tested on, at most
    calibration: int = key(None, up_to="calibration", least=0)  # clean images that set its thresholds, at most
    reduced: str = key("")  # a setting below the method's own, in words
    second_model: str = key("")  # the other network of second-opinion: an id of the zoo, or package.module:factory
    second_weights: str = key("")  # a file with its weights, beside the plan
    # adversarial ones of each source in a fit to several attacks: one of an attack that is drawn, or every one
    twins: str = key(TWINS[0], check=partial(_word, allowed=TWINS))
    overrides: Mapping[str, Any] = remaining_keys()  # options as the plan has them, the seed among them

    @property
    def method(self) -> Method:
        """The method with its options."""
        return make_method(self.name, preset=self.preset, **self.overrides)

    @property
    def takes_clean(self) -> bool:
        """True if it learns from labelled clean images beyond the examples."""
        chosen = self.method
        return chosen.clean_images == "required" or (chosen.clean_images == "optional" and chosen.rules == "authors")

    @property
    def options(self) -> dict[str, Any]:
        """All options, those left at their default too."""
        return self.method.as_dict()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be evaluated."""

    name: str = key("")
    seed: int = key(0, check=partial(check_whole, least=0, most=2**32 - 1))  # of splits, draws and attacks
    protocols: tuple[str, ...] = key((ProtocolName.SAME_ATTACK.value,), check=partial(_words, allowed=ProtocolName))
    studies: tuple[str, ...] = key((), check=partial(_words, allowed=StudyName))
    ledger: str = key("")  # file to append to, from the plan's folder; empty for one beside the plan
    eight_bit: bool = key(False, check=_flag)  # attacked and noisy images have 8-bit pixels, as files do
    source: str = key(check=_source, table="data")  # of images, as the command line's --data has it
    skip: tuple[str, ...] = key((), check=_skip, table="data")  # ranges of its images that are left out, by place
    other: tuple[str, ...] = key((), check=_sources, table="data")  # further sources, same classes, taken together
    credit: str = key("", table="data")  # whose photographs the images are
    # coarse labels: by name, classes of the sources; empty for the sources' own labels
    groups: Mapping[str, Sequence[int | str]] = key(dict, check=_groups, table="data")
    sources: int = key(300, check=partial(check_whole, least=MIN_SOURCES), table="sizes")  # for detection, at most
    calibration: int = key(1200, check=partial(check_whole, least=0), table="sizes")  # further clean images, at most
    other_sources: int = key(None, table="sizes", name="other", up_to="sources", least=MIN_SOURCES)
    chunk: int = key(CHUNK, check=check_whole, table="sizes")  # images attacked between two savings
    network: NetworkPlan
    attacks: tuple[AttackPlan, ...]
    detectors: tuple[DetectorPlan, ...]  # the baseline among them
    scale: str = HERE  # name of the tables that were laid over the plan
    folder: Path = Path()  # that paths in the plan start from
    data_dir: Path | None = None  # what stands for {data} in paths

    def attack(self, label: str) -> AttackPlan:
        """Returns the attack of that label."""
        return next(attack for attack in self.attacks if attack.label == label)

    def detector(self, label: str) -> DetectorPlan:
        """Returns the detector of that label."""
        return next(detector for detector in self.detectors if detector.label == label)

    def has_single_fits(self, entry: DetectorPlan) -> bool:
        """False for a detector with every twin beside the same with one: to single attacks their fits are equal."""
        same = [other for other in self.detectors if other.twins == "one" and other.method == entry.method]
        return entry.twins == "one" or not same

    @property
    def for_second_source(self) -> "Plan":
        """The plan for images of the second source."""
        return replace(self, attacks=tuple(attack.for_second_source for attack in self.attacks if attack.transfer))

    def labels(self, role: str) -> tuple[str, ...]:
        """Returns the labels of the attacks of one role."""
        return tuple(attack.label for attack in self.attacks if attack.role == role)

    def locate(self, source: str) -> str:
        """Returns a source as `open_source` takes it: embedded, or a path from the plan's folder."""
        if DATA in source:
            if self.data_dir is None:
                raise PlanError(f"data is {source!r}, and there is no folder for {DATA}; give it with --data-dir")
            return source.replace(DATA, str(self.data_dir))
        before, _, part = source.rpartition(":")  # "images.npz:test" is one array of a file
        names = [source, before] if before and part.isidentifier() else [source]
        return str(self.folder / source) if any((self.folder / name).exists() for name in names) else source

    @property
    def weights_path(self) -> Path:
        """The file of the network's weights."""
        return self.path_of(self.network.weights)

    def path_of(self, name: str) -> Path:
        """Returns the path of a file that the plan names."""
        return Path(self.locate(name)) if DATA in name else self.folder / name

    def settings(self) -> dict[str, Any]:
        """Returns everything that decides the results, as JSON can hold it; no folder of this machine is in it."""
        settings = {name: value for name, value in asdict(self).items() if name not in ("folder", "data_dir", "ledger")}
        for entry, each in zip(self.detectors, settings["detectors"], strict=True):
            del each["overrides"]
            each["options"] = entry.options
        return settings


def check_plan(plan: Plan) -> None:
    """Raises OptionError, with the path of a key, if keys of a plan do not fit together."""
    for name, entries in (("attacks", plan.attacks), ("detectors", plan.detectors)):
        labels = [entry.label for entry in entries]
        for place, label in enumerate(labels):
            if label in labels[:place]:
                raise OptionError(f"{name}[{place}].label is {label!r} again; give each a label of its own")
    near = [attack for attack in plan.attacks if attack.role == Role.BOUNDARY]
    for protocol, role in ((p, r) for p, roles in ROLES_NEEDED.items() if p in plan.protocols for r in roles):
        if not plan.labels(role):
            raise OptionError(f"protocols hold {protocol.value}, but no attack has role = '{role}'; add one")
    if not near:
        raise OptionError(
            "attacks are all of role 'strength'; one at least must be 'boundary', it sets the noise level"
        )
    if ProtocolName.OTHER_DATA in plan.protocols and not plan.other:
        raise OptionError("data.other is missing; data-transfer needs a second source with the same classes")
    if ProtocolName.OTHER_DATA in plan.protocols and not any(attack.transfer for attack in near):
        problem = "protocols hold data-transfer, but every boundary attack has transfer = false"
        raise OptionError(f"{problem}; let one take part")
    if ProtocolName.LEFT_OUT in plan.protocols and len(plan.labels(Role.BOUNDARY) + plan.labels(Role.STRENGTH)) < 2:
        raise OptionError("protocols hold left-out, which leaves one attack out of the fit; add a second attack")
    for place, attack in enumerate(plan.attacks):
        if attack.role == Role.STRENGTH or (attack.role == Role.UNSEEN and not attack.own_noise):
            _check_strength(plan, attack, f"attacks[{place}]", near)
    mixed = {ProtocolName.ALL_ATTACKS, ProtocolName.MIXTURE, ProtocolName.UNSEEN, ProtocolName.LEFT_OUT}
    several = bool(mixed.intersection(plan.protocols)) and len(plan.attacks) > 1
    if ProtocolName.OTHER_STRENGTH in plan.protocols:
        several |= any(len(plan.labels(role)) > 1 for role in Role)
    for entry in plan.detectors:
        if entry.twins != "one" and not several:
            problem = f"is {entry.twins!r}, which is about fits to several attacks; no protocol has one"
            advice = "add 'mixed' and a second attack, or leave twins out"
            raise OptionError(f"detectors.twins of {entry.label!r} {problem}: {advice}")


def _check_strength(plan: Plan, attack: AttackPlan, path: str, near: Sequence[AttackPlan]) -> None:
    """Raises OptionError if a strength attack has no boundary attack on the same images: those set the noise level."""
    groups = {each.noise_group for each in near}
    if attack.own_noise:
        raise OptionError(f"{path}.own_noise is true; a strength attack has the noise of boundary ones")
    if attack.noise_group not in groups:
        allowed = ", ".join(str(sources) for sources, own in sorted(groups) if not own) or "none, they have own noise"
        problem = f"is {attack.sources}; a strength attack shares the images of boundary ones"
        raise OptionError(f"{path}.sources {problem}; allowed: {allowed}")
    there = {each.for_second_source.noise_group for each in near if each.transfer}
    if plan.other and attack.transfer and attack.for_second_source.noise_group not in there:
        problem = f"is {json.dumps(attack.transfer)}; no boundary attack has the same images of the second source"
        raise OptionError(f"{path}.transfer {problem}; write what one with as many sources has, or false")
