"""What a method of detection is: frozen options, and how it learns an extractor from examples."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args

from benfourier.data.examples import Examples
from benfourier.data.images import LabelledImages
from benfourier.detectors.extractor import Concatenated, Extractor
from benfourier.detectors.feature_cache import FeatureCache
from benfourier.detectors.heads import HEADS, HeadOptions
from benfourier.errors import InputError, OptionError
from benfourier.models.classifier import Classifier
from benfourier.options import Options, Registry, number, whole, word

CleanImages = Literal["none", "optional", "required"]


@dataclass(frozen=True, eq=False)
class FitData:
    """What a method learns from."""

    examples: Examples  # clean images with their noisy and adversarial twins
    clean: LabelledImages | None = None  # labelled clean images beyond the examples, if the method may use any
    work_dir: Path | None = None  # folder for what all fits share, such as a trained generator; None for none
    show_progress: bool | None = None  # True or False to force progress bars; None draws them on a terminal
    cache: FeatureCache | None = None  # known features; its `reference_pool` holds the clean images of all fits
    supplied: Mapping[str, Any] = field(default_factory=dict)  # what neither options nor a file can hold, by name

    @property
    def labelled(self) -> LabelledImages:
        """Clean images to learn classes from: those beyond the examples if there are any, or the examples' own."""
        if self.clean is not None:
            return self.clean
        return LabelledImages(self.examples.clean, self.examples.labels, self.examples.ids)


@dataclass(frozen=True, kw_only=True)
class Method(Options, ABC):
    """Options of a method of detection."""

    # "paper": the same RBF-SVM for every method and no images beyond the examples; "authors": the head of the method's
    # authors, and `clean` images where they had them
    rules: str = word("paper", "authors")
    head: str | None = word(None, *HEADS)  # None as the rules say
    scaling: str = word("standard", "none", "min-max")  # of the features before the head
    C: float | str = number("cv", "cv", above=0)  # "cv": cross-validation grouped by source image
    gamma: float | str = number("cv", "scale", "cv", above=0)  # "scale": 1 / (features · their variance)
    seed: int = whole(0, least=0, most=2**32 - 1)  # of the split, the folds and all other draws

    extractors: ClassVar[tuple[type[Extractor], ...]] = ()  # classes it may learn; a file names one of them per leaf
    paper_head: ClassVar[str] = "svm"
    authors_head: ClassVar[str] = "svm"
    without_attacks: ClassVar[str] = "head='mixture'"  # the option with which it is fitted to clean images alone
    baseline: ClassVar[bool] = False  # True for what other detectors are compared with
    variants: ClassVar[tuple[str, ...]] = ()  # words behind the colon of an id such as "c1c2:c1"

    @abstractmethod
    def fit_extractor(self, classifier: Classifier, data: FitData) -> Extractor:
        """Returns what the method learns from the examples."""

    @property
    def needs(self) -> frozenset[str]:
        """The most that scoring may need, of `vocabulary.NEEDS`; a fit may come to less: see Detector.needs."""
        return frozenset({"forward"})

    @property
    def supplied_names(self) -> tuple[str, ...]:
        """What `fit` and `load` must get as `supplied`: it fits neither into options nor into files."""
        return ()

    @property
    def clean_images(self) -> CleanImages:
        """Whether it learns from labelled clean images beyond the examples."""
        return "none"

    @property
    def head_options(self) -> HeadOptions:
        """Options of the head; its kind as given, or as the rules say."""
        kind = self.head or (self.authors_head if self.rules == "authors" else self.paper_head)
        return HeadOptions(kind, self.scaling, self.C, self.gamma, self.seed, self.name)

    def prepare(self, classifier: Classifier, data: FitData) -> None:
        """Does once, before all fits, what they share, such as training a generator; the result is in data.work_dir."""

    def parts_of_fit(self) -> "tuple[Method, ...]":
        """Returns the methods whose features stand side by side, or itself."""
        return (self,)

    def __add__(self, other: "Method") -> "Combined":
        return Combined(parts=(*self.parts_of_fit(), *other.parts_of_fit()), seed=self.seed, rules=self.rules)


SHARED = tuple(option.name for option in fields(Method))  # options that every method has


@dataclass(frozen=True, kw_only=True)
class Combined(Method):
    """Methods whose features stand side by side under one head: `MBF() + LID(k=10)`, or the id "mbf+lid"."""

    # Head, scaling, C, gamma, seed and rules are its own; those of the parts do not count. Options of a part are
    # written with its id: "lid.k".

    parts: tuple[Method, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        ids = [part.id for part in self.parts]
        if len(ids) < 2 or len(set(ids)) < len(ids):
            raise OptionError(f"detector is {'+'.join(ids)!r}; it must be two or more methods, each once")
        # The parts have default options of the head, and the seed and rules of all.
        parts = []
        for part in self.parts:
            usual: dict[str, Any] = {o.name: o.default for o in fields(part) if o.name in SHARED}
            parts.append(replace(part, **{**usual, "seed": self.seed, "rules": self.rules}))
        object.__setattr__(self, "parts", tuple(parts))

    @property
    def name(self) -> str:
        """The ids, with plus signs between them."""
        return "+".join(part.id for part in self.parts)

    @property
    def head_options(self) -> HeadOptions:
        """Options of the head; its kind as given, or that of the first part that has one for several features."""
        options, kinds = super().head_options, [part.head_options.kind for part in self.parts]
        return replace(options, kind=self.head or next((kind for kind in kinds if kind != "plain"), options.kind))

    @property
    def needs(self) -> frozenset[str]:
        """What one of the parts may need."""
        return frozenset().union(*(part.needs for part in self.parts))

    @property
    def clean_images(self) -> CleanImages:
        """What the most demanding part asks for."""
        return max((part.clean_images for part in self.parts), key=get_args(CleanImages).index)

    def as_dict(self) -> dict[str, Any]:
        """Returns the shared options, and those of the parts as "mbf.orders"."""
        options = {name: getattr(self, name) for name in SHARED}
        for part in self.parts:
            options |= {f"{part.id}.{name}": value for name, value in part.as_dict().items() if name not in SHARED}
        return options

    def parts_of_fit(self) -> tuple[Method, ...]:
        """Returns the parts."""
        return self.parts

    def fit_extractor(self, classifier: Classifier, data: FitData) -> Concatenated:
        """Returns the extractors of all parts."""
        return Concatenated(tuple(part.fit_extractor(classifier, data) for part in self.parts))

    def prepare(self, classifier: Classifier, data: FitData) -> None:
        """Prepares every part."""
        for part in self.parts:
            part.prepare(classifier, data)


def check_supplied(method: Method, supplied: Mapping[str, Any]) -> None:
    """Raises InputError unless `supplied` holds exactly what the method needs and no file can hold."""
    names = [name for part in method.parts_of_fit() for name in part.supplied_names]
    for name in names:
        if name not in supplied:
            problem = f"{method.name} needs {name!r}, which neither options nor files can hold"
            raise InputError(f"{problem}; pass supplied={{{name!r}: ...}}")
    for name in supplied:
        if name not in names:
            allowed = f"it takes {', '.join(map(repr, names))}" if names else "leave supplied out"
            raise InputError(f"{method.name} does not take {name!r} in supplied; {allowed}")


DETECTORS: Registry[Method] = Registry("detector")
Kind = TypeVar("Kind", bound=Method)


def register_detector(kind: type[Kind]) -> type[Kind]:
    """Adds a method, so that its id works wherever ids do; used as a decorator."""
    DETECTORS.register(kind)
    return kind
