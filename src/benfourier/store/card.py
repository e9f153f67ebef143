"""The card of a guard: what it was measured to do, as a record that its file holds, and as text."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from benfourier.errors import StoreError
from benfourier.store.records import Estimate, decode_part, encode

NEVER_TESTED = (
    "attackers who know the guard, unless stated above",
    "patches and other changes of a part of the image",
    "printed and photographed attacks",
    "other kinds of images than those named here",
)
AGAIN = "the network, its preprocessing, the camera or the kind of images changes, or the drift test says so"
WIDTH = 100  # characters of a line
HALF = 0.5  # of the images under an attack; a guard that rejects fewer is worth a warning
FEW = 30  # attacked images below which a rate says little


@dataclass(frozen=True)
class MeasuredScores:
    """Both scores of some images, from which other thresholds have other rates."""

    adversarial: tuple[float, ...]  # of the detector
    unfamiliar: tuple[float, ...]  # distance to the images that the guard knows

    def __len__(self) -> int:
        return len(self.adversarial)

    def count_above(self, threshold: float, most_unfamiliar: float) -> int:
        """Returns how many images these thresholds reject."""
        pairs = zip(self.adversarial, self.unfamiliar, strict=True)
        return sum(score > threshold or distance > most_unfamiliar for score, distance in pairs)


@dataclass(frozen=True)
class AttackRate:
    """How many images under one attack the guard rejects."""

    attack: str  # label
    method: str  # id of the attack
    options: Mapping[str, Any]  # of the attack
    is_fitted: bool  # True if the detector was fitted to this attack, on other images
    tried: int  # images, none of them in the fit
    succeeded: int  # of them, misclassified after the attack
    rejected: int  # of these
    share: Estimate  # rejected / succeeded; NaN if none succeeded
    l2: float  # median distance of the successes, in pixel values
    linf: float  # median largest change of a pixel
    scores: MeasuredScores  # of the successes


@dataclass(frozen=True)
class AlarmRate:
    """How many images that nobody attacked the guard rejects."""

    kind: str  # of the images, in words
    images: int  # none of them in the fit or among those that set the thresholds
    rejected: int  # of them
    share: Estimate  # rejected / images
    scores: MeasuredScores  # of the images


@dataclass(frozen=True)
class GuardCard:
    """What a guard was measured to do, on images held out from its fit."""

    network: str  # class of the module
    weights: str  # digest of its weights
    preprocessing: Mapping[str, Any]  # bounds, mean, std, size, channels, resize
    classes: int
    accuracy: Estimate | None  # of the network, on the images that were given; None if it was not measured
    detector: str  # id
    passes: float  # forward passes that an image takes, the network's own among them
    false_alarm_rate: float  # that was asked for
    thresholds: int  # held-out clean images that set the thresholds
    fitted: tuple[str, ...]  # labels of the attacks that the detector was fitted to
    attacks: tuple[AttackRate, ...]  # empty if there were none
    alarms: tuple[AlarmRate, ...]
    date: str  # ISO 8601
    versions: Mapping[str, str]  # of benfourier, torch and Python
    informed: str = "not measured"  # what an attacker who knows the guard achieves
    other_kinds: tuple[AlarmRate, ...] = ()  # noise and the like in the place of clean images; empty if not measured
    base_model: str = ""  # name of the network on the Hugging Face Hub; empty if it is not known
    attacked: str = ""  # when attacked images were scored, ISO 8601; empty if it was at `date`

    def __str__(self) -> str:
        return "\n".join(self._lines())

    @classmethod
    def from_json(cls, content: Any) -> "GuardCard":
        """Returns the card that `as_json` made, or raises StoreError."""
        try:
            return decode_part(cls, content)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreError(f"the card of the guard is damaged ({error}); make the guard again") from error

    def as_json(self) -> dict[str, Any]:
        """Returns the card as JSON can hold it; an estimate is [value, low, high]."""
        content: dict[str, Any] = encode(self)
        return content

    @property
    def worst(self) -> AttackRate | None:
        """The attack that the guard rejects least of, among those with enough successes."""
        enough = [rate for rate in self.attacks if rate.succeeded >= FEW] or [r for r in self.attacks if r.succeeded]
        return min(enough, key=lambda rate: rate.share.value, default=None)

    @property
    def threat(self) -> str:
        """The threat model in a sentence."""
        return (
            "an attacker who knows the network and changes pixels of an image so that it is misclassified, and does "
            "not know of the guard"
        )

    def _lines(self) -> Iterator[str]:
        accuracy = "" if self.accuracy is None else f", {percent(self.accuracy)} of the images right"
        yield f"guard of {self.network} ({self.classes} classes{accuracy})"
        fitted = ", ".join(self.fitted) or "clean images alone"
        yield f"detector {self.detector}, fitted to {fitted}; {self.passes:g} forward passes an image"
        yield from _wrap(f"threat model: {self.threat}")
        yield ""
        yield "attacked images rejected:" if self.attacks else "attacked images rejected: not measured"
        for rate in self.attacks:
            note = "" if rate.is_fitted else ", not in the fit"
            note = (f", L2 {rate.l2:.3g}" if rate.succeeded else "") + note
            yield f"  {rate.attack:<20} {_share(rate.rejected, rate.succeeded, rate.share)}{note}"
        if self.attacked:
            yield f"  by scores of {self.attacked[:10]}, at thresholds of {self.date[:10]}"
        if self.worst is not None and self.worst.share.value < HALF:
            yield f"warning: most images under {self.worst.attack} are accepted"
        if self.other_kinds:
            others = (f"{other.kind} {other.rejected} of {other.images}" for other in self.other_kinds)
            yield from _wrap(f"images of other kinds rejected: {', '.join(others)}")
        yield f"false alarms, {self.false_alarm_rate:.1%} promised on clean images:"
        for alarm in self.alarms:
            more = alarm.kind == "clean" and alarm.share.low > self.false_alarm_rate
            note = ", more than promised: calibrate with more images" if more else ""
            yield f"  {alarm.kind:<20} {_share(alarm.rejected, alarm.images, alarm.share)}{note}"
        yield ""
        yield f"attackers who know the guard: {self.informed}"
        yield from _wrap(f"never tested on: {'; '.join(NEVER_TESTED)}")
        yield from _wrap(f"calibrate again when {AGAIN}")
        yield f"weights {self.weights[:12]}, {self.date[:10]}, {self.thresholds} clean images set the thresholds"


def percent(estimate: Estimate) -> str:
    """Returns percent with the interval; a dash if there is none."""
    if not math.isfinite(estimate.value):
        return "–"
    return f"{estimate.value:.1%} ({100 * estimate.low:.1f} to {100 * estimate.high:.1f})"


def _share(rejected: int, images: int, share: Estimate) -> str:
    return f"{percent(share):>22}, {rejected} of {images}" if images else f"{'none succeeded':>22}"


def _wrap(text: str) -> list[str]:
    return wrap(text, WIDTH, subsequent_indent="  ")
