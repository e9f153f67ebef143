"""Records of a ledger, and their JSON: what an evaluation finds out, read without torch.

Arrays are base64 of little-endian float32, estimates are [value, low, high] with six digits, and NaN and infinity are
words, so that every line is plain JSON.
"""

import base64
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from benfourier.errors import StoreError
from benfourier.store.vocabulary import ProtocolName

Floats = NDArray[np.float32]
T = TypeVar("T")
DIGITS = 6  # of an estimate on disk: an error of 5e-6 at most, far below every interval
NOT_FINITE = ("nan", "inf", "-inf")


@dataclass(frozen=True)
class Estimate:
    """A value and the interval that holds the truth with a probability of 95 %; NaN where it is unknown."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} ({self.low:.4f} to {self.high:.4f})"


RECORDS: dict[str, "type[Record]"] = {}


@dataclass(frozen=True)
class Record:
    """One line of a ledger.

    A subclass states its name in ledgers and the fields that say which question it answers, by default its key.
    """

    record_name: ClassVar[str] = ""
    question: ClassVar[tuple[str, ...]] = ("key",)
    key: str  # digest of everything that the record depends on; what has a key in the ledger is not computed again

    def __init_subclass__(cls, name: str, question: tuple[str, ...] = ("key",)) -> None:
        cls.record_name, cls.question = name, question
        RECORDS[name] = cls

    @property
    def identity(self) -> Hashable:
        """The question that the record answers; of records with equal identities the last counts."""
        return tuple(getattr(self, name) for name in self.question)


@dataclass(frozen=True)
class Run(Record, name="run"):
    """The plan of one start, and where it ran; the first record of every start."""

    name: str  # of the plan
    settings: Mapping[str, Any]  # the plan as it was read, with all defaults
    scale: str  # of the sizes, such as "here" or "paper"
    versions: Mapping[str, str]  # of Python and the libraries
    machine: Mapping[str, Any]  # processor, threads
    network: Mapping[str, Any]  # name, accuracy on held-out images, digest of the weights, layers
    date: str  # ISO 8601, UTC


@dataclass(frozen=True)
class Inputs(Record, name="inputs"):
    """What the outcomes of one run have in common."""

    digests: Mapping[str, str]  # of weights, data and examples, by name
    versions: Mapping[str, str]  # of Python and the libraries


@dataclass(frozen=True)
class AttackSummary(Record, name="attack", question=("source", "attack")):
    """Successes, distances and cost of one attack on one source of images."""

    source: str  # label of the data
    attack: str  # label
    method: str  # id of the attack
    options: Mapping[str, Any]  # of the attack
    sources: int  # images that were attacked and stayed in the set
    successes: int  # of them
    l2: float  # median distance, of the successes
    linf: float  # median distance
    calls: float  # forward and backward passes per image
    noise_level: float  # of the noisy twins in the same set
    remaining: tuple[tuple[str, int], ...]  # images left after each step
    seed: int  # of its draws
    reduced: str = ""  # a setting below the paper's, in words; empty if there is none


@dataclass(frozen=True)
class Cell:
    """A fitted detector against one attack."""

    attack: str  # label of the attack it was tested on
    source: str  # label of the data it was tested on
    sources: int  # source images whose attack succeeded
    # by the keys of `metrics.registry.CELL_METRICS`; empty where too few attacks succeeded
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    # share of adversarial images caught at each rate of `metrics.ranking.ROC_RATES`; None if it is not stored
    roc: Floats | None = field(default=None, compare=False)
    note: str = ""  # why there are no metrics, or what else must be known


@dataclass(frozen=True)
class Outcome(Record, name="outcome"):
    """One trial: a detector fitted once (or once per fold) and tested on one or more attacks."""

    inputs: str  # key of the Inputs record
    protocol: str  # value of a ProtocolName
    detector: str  # label
    method: str  # id of the detector
    options: Mapping[str, Any]  # of the detector
    fitted: tuple[str, ...]  # labels of the attacks it was fitted to
    source: str  # label of the data it was fitted to
    fit_sources: int  # source images in the fit
    folds: int  # number of folds; 1 for one split
    cells: tuple[Cell, ...]  # one per attack it was tested on
    overall: Mapping[str, Estimate]  # by the keys of `metrics.registry.OUTCOME_METRICS`
    thresholds: Mapping[str, float]  # mean over folds, by rate of false alarms ("5%")
    calibration: int  # number of held-out clean images that the thresholds come from
    seconds: Mapping[str, float]  # by name: fit, score
    seed: int  # of splits and draws
    reduced: str = ""  # a setting below the method's own, in words

    @property
    def identity(self) -> Hashable:
        """Protocol, detector and fit; a fit to all attacks is the same question whatever attacks the plan had."""
        fitted = () if self.protocol == ProtocolName.ALL_ATTACKS else self.fitted
        return self.protocol, self.detector, fitted, self.source

    def covers(self, older: "Outcome") -> bool:
        """True if an older outcome of the same identity is of no use beside this one.

        A fit is often tested again when a plan gains attacks; the older outcome stays unless all its cells are here.
        """
        targets = {(cell.source, cell.attack) for cell in self.cells}
        everything = self.protocol == ProtocolName.ALL_ATTACKS
        return everything or {(cell.source, cell.attack) for cell in older.cells} <= targets


@dataclass(frozen=True, eq=False)
class Scores(Record, name="scores", question=("outcome", "source", "attack")):
    """Scores of the test images of one cell, row by row; a row is a source image whose attack succeeded."""

    outcome: str  # key of the outcome
    source: str  # label of the data
    attack: str  # label
    ids: tuple[str, ...]  # source images
    folds: tuple[int, ...]  # which fit scored the row; all 0 without cross-validation
    clean: Floats  # scores (N,)
    noisy: Floats  # of the noisy twins, (N,)
    adversarial: Floats  # of the attacked twins, (N,)


@dataclass(frozen=True, eq=False)
class Profile(Record, name="profile", question=("source", "split", "kind")):
    """Mean and deviation of every MBF feature over the images of one kind: the paper's figures."""

    source: str  # label of the data
    split: str  # value of a Split
    kind: str  # clean, noisy, or the label of an attack
    layers: tuple[str, ...]  # names, in order
    orders: int  # features per layer
    images: int  # how many
    mean: Floats  # (layers · orders,)
    deviation: Floats  # the same


@dataclass(frozen=True, eq=False)
class LayerFit(Record, name="layer-fit", question=("source", "split", "kind")):
    """How well a generalized Gaussian distribution fits the activations of each layer, over the images of one kind."""

    source: str  # label of the data
    split: str  # value of a Split
    kind: str  # clean, noisy, or the label of an attack
    layers: tuple[str, ...]  # names, in order
    images: int  # how many
    distance: Floats  # mean Kolmogorov-Smirnov distance D of an image's activations to their own fit, (layers,)
    shape: Floats  # median of the fitted shapes, (layers,)
    # mean of |mean| / standard deviation of an image's activations before the mean is removed, (layers,)
    offset: Floats


@dataclass(frozen=True)
class NoiseControl(Record, name="noise-control", question=("source", "attack", "features")):
    """AUROC of mbf on noise that has nothing of a network but the sizes and shapes of its layers' activations."""

    source: str  # label of the data
    attack: str  # label
    features: str  # one of `vocabulary.NOISE_CONTROLS`: what the features are computed from
    sources: int  # of the fit
    tested: int  # source images that the AUROC is of
    auroc: Estimate  # on them


@dataclass(frozen=True)
class KsResult(Record, name="ks", question=("study", "source", "split", "kind")):
    """One Kolmogorov-Smirnov comparison, averaged as the paper does."""

    study: str  # h1, h2.1, h2.2, h2.3, h2.4 (pairs of kinds) or h2-sources
    source: str  # label of the data; for h2-sources the two of them, "train|test"
    split: str  # value of a Split
    kind: str  # what was tested: a kind, or two of them as "clean|bim"
    images: int  # number of images, of the smaller set
    distance: float  # mean effect size D
    p: float  # mean p, as the paper has it (asymptotic)
    # other figures by name: p-any-shape, any-shape-below-0.05, p-exact, p-adjusted (Holm, the smallest of the
    # dimensions), rejected (share of the tests below 0.05 after correction)
    more: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost(Record, name="cost", question=("detector",)):
    """Time of one detector on one network."""

    detector: str  # label
    method: str  # id
    needs: tuple[str, ...]  # some of `vocabulary.NEEDS`
    images: int  # timed
    forward_ms: float  # of the plain network, per image
    features_ms: float  # of the detector's features, the forward pass included, per image
    head_ms: float  # of the head, per image


@dataclass(frozen=True)
class Picture(Record, name="picture"):
    """An example image with its perturbation, as small PNGs beside the ledger."""

    source: str  # label of the data
    id: str  # source image
    attack: str  # label
    label: str  # class of the clean image, by the network
    adversarial_label: str  # class of the attacked image
    l2: float  # distance
    magnification: float  # of the perturbation in the picture
    files: tuple[str, str, str]  # names of the PNGs beside the ledger: clean, attacked, perturbation
    credit: str = ""  # of photographs; empty otherwise


@dataclass(frozen=True)
class Failure(Record, name="failure"):
    """A trial that could not be done; it is tried again at the next start."""

    trial: str  # what it was, in words
    error: str  # the message


def encode(value: Any) -> Any:
    """Returns a record, or a part of one, as JSON can hold it; a record gets its name as `record`."""
    if isinstance(value, Estimate):
        return [encode(float(f"{end:.{DIGITS}g}")) for end in (value.value, value.low, value.high)]
    if is_dataclass(value) and not isinstance(value, type):
        name = {"record": value.record_name} if isinstance(value, Record) else {}
        return name | {field.name: encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray):
        return base64.b64encode(value.astype("<f4").tobytes()).decode()
    if isinstance(value, Mapping):
        return {str(key): encode(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [encode(part) for part in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else str(float(value))
    return value.item() if isinstance(value, np.generic) else value


def decode(content: Any) -> Record:
    """Returns the record in the JSON of one line, or raises StoreError."""
    name = content.get("record") if isinstance(content, dict) else None
    if not isinstance(name, str) or name not in RECORDS:
        raise StoreError(f"it holds {name!r}; known records: {', '.join(RECORDS)}; it may be of a newer version")
    try:
        result: Record = _decode(RECORDS[name], {key: part for key, part in content.items() if key != "record"})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"it holds a damaged {name} ({error}); remove the line, and run the plan again") from error
    return result


def decode_part(kind: type[T], content: Any) -> T:
    """Returns a dataclass that is part of no ledger from its JSON; raises TypeError, KeyError or ValueError."""
    result: T = _decode(kind, content)
    return result


_field_types = cache(get_type_hints)


def _decode(hint: Any, value: Any) -> Any:
    """A value of the type that a field has."""
    origin, parts = get_origin(hint), get_args(hint)
    if (origin is tuple or hint is Estimate) and not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")  # the letters of a text would pass for entries
    if origin in (Union, UnionType):
        return None if value is None else _decode(next(part for part in parts if part is not NoneType), value)
    if origin is np.ndarray:
        return np.frombuffer(base64.b64decode(value, validate=True), "<f4").copy()
    if hint is Estimate:
        centre, low, high = (_decode(float, end) for end in value)
        return Estimate(centre, low, high)
    if is_dataclass(hint) and isinstance(hint, type):
        return hint(**{key: _decode(_field_types(hint)[key], part) for key, part in value.items()})
    if origin is tuple:
        each = [parts[0]] * len(value) if parts[-1] is Ellipsis else parts
        return tuple(_decode(part, entry) for part, entry in zip(each, value, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: _decode(parts[1], part) for key, part in value.items()}
    if hint is float:
        if isinstance(value, bool) or not (isinstance(value, int | float) or value in NOT_FINITE):
            raise TypeError(f"{value!r} is no number")
        return float(value)
    if hint is not Any and (not isinstance(value, hint) or (hint is int and isinstance(value, bool))):
        raise TypeError(f"{value!r} is no {hint.__name__}")
    return value
