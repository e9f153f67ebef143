"""What a method of detection is, and what it has learned once it is fitted.

A method is a frozen set of options. `learn` turns examples into a measure, the measure turns images into numbers, and
a classifier, the same for all methods unless asked otherwise, turns the numbers into a score. Everything else (checks,
batches, splits, calibration, saving) is shared.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from torch import Tensor

from benfourier.data.examples import Examples
from benfourier.data.labelled import Labelled
from benfourier.errors import OptionError, check_choice, check_seed, check_switch
from benfourier.subjects.subject import Subject

if TYPE_CHECKING:
    from benfourier.detectors.detector import Detector
    from benfourier.detectors.memo import Memo
    from benfourier.detectors.references import Pool

NEEDS = ("listens", "samples", "gradients", "searches")
RULES = ("paper", "authors")
CLASSIFIERS = ("svm", "logistic", "boosted", "plain")
SCALINGS = ("none", "standard", "min-max")


class Ear(Protocol):
    """Listens to one forward pass."""

    def hear(self, name: str, response: Tensor) -> None:
        """Takes the response (images, ...) of a layer that its measure named."""

    def numbers(self, logits: Tensor) -> Tensor:
        """Returns what was found, (images, numbers), once the pass is over."""


@runtime_checkable
class Listening(Protocol):
    """A measure that needs nothing but the responses of one forward pass, which it shares with others."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers that its ears want to hear."""

    def ear(self, ids: Sequence[str]) -> Ear:
        """Returns an ear for the images of those ids."""


@runtime_checkable
class Working(Protocol):
    """A measure that works on the images by itself: it samples, takes gradients or searches."""

    def work(self, subject: Subject, images: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the numbers (images, numbers) of one batch."""


Measure = Listening | Working


@runtime_checkable
class Divisible(Protocol):
    """A measure whose numbers are those of several others, side by side; a memo keeps each of them for itself."""

    def divided(self) -> "tuple[Measure, ...]":
        """Returns these measures, each without what only the others depend on."""


@runtime_checkable
class Staged(Protocol):
    """A measure whose numbers are made of others that depend on an image's pixels only; a memo keeps those."""

    def stages(self) -> "tuple[Measure, ...]":
        """Returns the measures whose numbers do not depend on the fit."""

    def finished(self, found: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the numbers (images, numbers), made of those of the stages, which stand side by side."""


@dataclass(frozen=True, eq=False)
class Lessons:
    """What a method learns from.

    Args:
        examples: clean images with their noisy and adversarial twins.
        clean: labelled clean images beyond the examples, if the method may use any.
        show_progress: True or False to force progress bars; None draws them on a terminal.
        memo: numbers that are known already, for a method that is lasting and tries values.
        pool: the clean images of all fits of an evaluation, this one's among them.
    """

    examples: Examples
    clean: Labelled | None = None
    show_progress: bool | None = None
    memo: "Memo | None" = None
    pool: "Pool | None" = None


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """Options of a method of detection.

    Args:
        rules: "paper": the same RBF-SVM for every method and no images beyond the examples; "authors": the final
            classifier of the method's authors, and `clean` images where they had them.
        classifier: "svm", "logistic", "boosted" or "plain" (the one number is the score); None as the rules say.
        scaling: of the numbers before the classifier: "none", "standard" or "min-max".
        C: of the SVM and the logistic regression, or "cv" for cross-validation grouped by source image.
        gamma: of the RBF kernel, "scale" (1 / (numbers · their variance)), or "cv".
        seed: of the split, the folds and all other draws.
    """

    rules: str = "paper"
    classifier: str | None = None
    scaling: str = "standard"
    C: float | str = "cv"
    gamma: float | str = "cv"
    seed: int = 0

    name: ClassVar[str]
    clean: ClassVar[Literal["none", "optional", "needed"]] = "none"
    own: ClassVar[str] = "svm"  # final classifier of its authors
    common: ClassVar[str] = "svm"  # final classifier under the paper's rules
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    version: ClassVar[int] = 1  # of its numbers; raise it with every change of them
    lasting: ClassVar[bool] = False  # an image's numbers depend on its pixels and the measure's fields, not on its id
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # options that an id such as "c1c2:c1" stands for

    def __post_init__(self) -> None:
        check_choice("rules", self.rules, RULES)
        check_choice("scaling", self.scaling, SCALINGS)
        if self.classifier is not None:
            check_choice("classifier", self.classifier, CLASSIFIERS)
        check_positive("C", self.C, "cv")
        check_positive("gamma", self.gamma, "scale", "cv")
        check_seed(self.seed)
        for option in fields(self):
            if option.type is bool:
                check_switch(option.name, getattr(self, option.name))

    @property
    def final(self) -> str:
        """The final classifier: as given, or as the rules say."""
        return self.classifier or (self.own if self.rules == "authors" else self.common)

    @property
    @abstractmethod
    def needs(self) -> frozenset[str]:
        """The most that scoring may need: some of "listens", "samples", "gradients", "searches".

        What a method decides on the way, such as dropout that a subject lacks, can only lessen it: see Detector.needs.
        """

    @abstractmethod
    def learn(self, subject: Subject, lessons: Lessons) -> Measure:
        """Returns what the method learns from the examples."""

    @abstractmethod
    def restore(self, subject: Subject, kept: Mapping[str, Any]) -> Measure:
        """Returns the measure whose fields were kept in a file."""

    def fit(
        self,
        subject: Subject,
        examples: Examples,
        *,
        clean: Labelled | None = None,
        show_progress: bool | None = None,
        foreign: bool = False,
    ) -> "Detector":
        """Returns the detector fitted to the examples; the method stays as it is.

        Args:
            subject: the classifier to guard.
            examples: clean images with their noisy and adversarial twins.
            clean: labelled clean images beyond the examples, for methods that use them.
            show_progress: True or False to force progress bars; None draws them on a terminal.
            foreign: the examples may have been made with other weights than the subject's.
        """
        from benfourier.detectors.fitting import fit

        return fit(self, subject, examples, clean=clean, show_progress=show_progress, foreign=foreign)


def check_positive(name: str, value: object, *words: str) -> None:
    """Raises OptionError unless value is a positive number or one of the words."""
    plain = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
    if not plain and value not in words:
        also = f" or one of {', '.join(map(repr, words))}" if words else ""
        raise OptionError(f"{name} is {value!r}; it must be a positive number{also}")


def checked_layers(given: Any) -> tuple[str, ...] | None:
    """Returns a selection of layers as a tuple of words, None for all, or raises OptionError."""
    if given is None:
        return None
    some = given if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
    words = tuple(str(word) if type(word) is int else word for word in some)  # parts of a Sequential
    if not words or not all(isinstance(word, str) for word in words):
        raise OptionError(f'layers is {given!r}; it must be names, globs or "type:Conv2d", or None for all')
    return words
