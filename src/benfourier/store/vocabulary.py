"""Words that several packages share: ids, labels and limits as they stand in plans, ledgers and tables."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class ProtocolName(StrEnum):
    """What a detector is fitted to and what it is tested on: the word in plans and ledgers, title and question."""

    title: str  # type: ignore[assignment]  # heading in tables and pages; str.title() is of no use here
    question: str  # what the protocol tests, in a sentence or two

    SAME_ATTACK = (
        "non-transfer",
        "Same attack in fit and test",
        "Each detector is fitted to one attack and tested on other images under the same attack. An estimate "
        "stands with its 95 % interval, drawn by source image.",
    )
    OTHER_ATTACK = (
        "attack-transfer",
        "Another attack than in the fit",
        "Each detector is fitted to the attack of the row and tested on the attack of the column.",
    )
    OTHER_DATA = (
        "data-transfer",
        "Another source of images than in the fit",
        "Fitted to images of one source, tested on images of another with the same classes.",
    )
    OTHER_STRENGTH = (
        "strength-transfer",
        "Another strength than in the fit",
        "Boundary attacks stop at the nearest adversarial image; the others go on to a fixed distance or "
        "confidence. Fits to these are also tested on other images under the same strength.",
    )
    ALL_ATTACKS = (
        "mixed",
        "All attacks together",
        "Fitted to all attacks at once, tested on each, and on all of them at once.",
    )
    MIXTURE = (
        "mixture",
        "Fitted to the default mixture",
        "Each detector is fitted to the mixture of attacks that `benfourier attack` makes by default, on other images, "
        "and tested on every attack.",
    )
    UNSEEN = (
        "unseen",
        "Fitted to the default mixture, tested on attacks of other kinds",
        "Fits to the default mixture, tested on attacks that nothing was chosen by or fitted to.",
    )
    LEFT_OUT = (
        "left-out",
        "Fitted to all attacks but the tested one",
        "For each attack, a fit to all the others.",
    )

    def __new__(cls, value: str, title: str = "", question: str = "") -> "ProtocolName":
        """Returns a member; called with its word alone, Enum looks the member up instead."""
        member = str.__new__(cls, value)
        member._value_, member.title, member.question = value, title, question
        return member


class Role(StrEnum):
    """How an attack ends, at the nearest adversarial image or at a fixed strength; or what it is used for."""

    BOUNDARY = "boundary"
    STRENGTH = "strength"
    MIXTURE = "mixture"  # it is fitted to, in one mixture, and never tested
    UNSEEN = "unseen"  # it is tested, and never fitted to


class Split(StrEnum):
    """Part of the images that a study uses."""

    TRAIN = "train"
    TEST = "test"
    OUT_OF_SAMPLE = "out-of-sample"


class StudyName(StrEnum):
    """Studies beside the trials."""

    KS = "ks"
    PROFILE = "profile"
    LAYERS = "layers"
    COST = "cost"
    PICTURES = "pictures"


# Kinds of images; every other kind is the label of an attack.
CLEAN, NOISY, MISCLASSIFIED = "clean", "noisy", "misclassified"

# Changes of clean images under which false alarms are counted, with the words of tables.
CHANGES: Mapping[str, str] = MappingProxyType(
    {
        "noise": "Clean images with noise of ±8/255",
        "jpeg": "Clean images as JPEG of quality 75",
        "blurred": "Blurred clean images",
        "brighter": "Brighter clean images",
    }
)

# Detectors that tables name. BASELINE stands in every table; the others are compared with it.
BASELINE = "max-softmax"
MBF = "mbf"
C1C2 = "c1c2"
DEFENSE_GAN = "defense-gan"

SECOND = "second"  # name under which the other network of second-opinion is supplied

NEEDS = ("forward", "passes", "random", "gradients", "search")  # what scoring takes, the cheapest first

# Rates of false alarms. A threshold needs MIN_ALARMS expected alarms among the calibration images.
RATES: Mapping[str, float] = MappingProxyType({"5%": 0.05, "1%": 0.01, "0.1%": 0.001})
DEFAULT_RATE = "5%"
MIN_ALARMS = 10
CALIBRATION_FLOOR = 200  # calibration images of an expensive detector: MIN_ALARMS / RATES[DEFAULT_RATE]

MIN_SUCCESSES = 30  # a cell with fewer successful attacks has no metrics
MIN_SOURCES = 10  # source images that an attack or a fit needs
CONFIDENT_SHARES: Mapping[str, float] = MappingProxyType({"95%": 0.95, "90%": 0.9, "75%": 0.75, "50%": 0.5})

# Kolmogorov-Smirnov studies: posteriors against their fit, pairs of kinds, and two sets of images.
KS_POSTERIORS = "h1"
KS_PAIRS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"h2.1": (CLEAN, NOISY), "h2.2": (CLEAN, "bim"), "h2.3": ("bim", "deepfool"), "h2.4": ("cw-l2", "r-pgd")}
)
KS_SOURCES = "h2-sources"
SIGNIFICANCE = 0.05

# What the features of a noise control are computed from: the activations themselves, noise with the shapes of each
# image, or noise in which adversarial images have the shapes of their clean twins.
ACTIVATIONS, OWN_SHAPES, SAME_SHAPES = "activations", "own shapes", "same shapes"
NOISE_CONTROLS = (ACTIVATIONS, OWN_SHAPES, SAME_SHAPES)
