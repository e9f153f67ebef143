"""A guard: a detector with a threshold in front of a classifier, and its file."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, islice
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benfourier import progress
from benfourier.data.images import content_ids
from benfourier.detectors.catalogue import UNUSABLE, detector_from_state
from benfourier.detectors.detector import Detector
from benfourier.detectors.extractor import EvidenceKind
from benfourier.detectors.features import extract_batch
from benfourier.detectors.state import ArrayRule, join_state, on_device, record_from_state, split_state
from benfourier.errors import ActivationError, ImageError, InputError, StoreError, check_whole
from benfourier.guard.familiarity import Familiarity, fit_familiarity
from benfourier.guard.rates import card_at
from benfourier.guard.verdicts import Reason, Verdict, Verdicts
from benfourier.metrics.thresholds import JointRules, Threshold, check_enough
from benfourier.models.classifier import Classifier
from benfourier.models.forward import batch_size
from benfourier.models.identity import classifier_from_description
from benfourier.store import artifact
from benfourier.store.card import GuardCard
from benfourier.store.vocabulary import SECOND

KIND = "benfourier-guard"
SCHEMA = artifact.SCHEMAS[KIND]
CALIBRATION = {  # arrays of a guard's file, under calibration/; features that never vary have deviation 0
    **dict.fromkeys(("scores", "unfamiliarity"), ArrayRule("n")),
    **{"mean": ArrayRule("D"), "deviation": ArrayRule("D", above=-1e-300)},
}
RULES = 2  # a verdict has two: the detector's score, and how unfamiliar an image is
KNOWN = 3  # every third clean image says what is familiar, unless others do; the rest sets the thresholds
MAX_DEVIATIONS = 1e6  # a feature that never varies would be infinitely many deviations away
Floats = NDArray[np.float64]
Images = Tensor | Sequence[Tensor]


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores and features of n held-out clean images."""

    scores: Floats  # of the detector, (n,)
    unfamiliarity: Floats  # (n,)
    mean: Floats  # of each of the D features, (D,)
    deviation: Floats  # standard deviation of each feature, (D,)

    @property
    def rules(self) -> JointRules:
        """The scores of both rules, as one test."""
        return JointRules((self.scores, self.unfamiliarity))


@dataclass(frozen=True, eq=False)
class LayerEvidence:
    """The features of one layer, of one image, beside those of clean images."""

    layer: str  # its name; the detector's name if its features do not belong to layers
    values: Floats  # of the image
    mean: Floats  # of held-out clean images
    deviation: Floats  # standard deviation of these
    rms_deviation: float  # root mean square of (value - mean) / deviation
    push: float  # by how much the score would fall if the image had the mean of clean images here


@dataclass(frozen=True, eq=False, repr=False)
class Guard:
    """Gives labels to images that two rules accept, and rejects the others; `Guard.calibrated` makes one.

    An image is rejected as adversarial if the detector's score is above `threshold`, which comes with the false alarms
    of both rules and their interval, and as unfamiliar if its distance to known images is above `most_unfamiliar`.
    """

    detector: Detector
    familiarity: Familiarity
    calibration: Calibration
    false_alarm_rate: float = 0.05
    card: GuardCard | None = None  # what it was measured to do; None if it was not
    threshold: Threshold = field(init=False)
    most_unfamiliar: float = field(init=False)

    def __post_init__(self) -> None:
        rules = self.calibration.rules
        object.__setattr__(self, "threshold", rules.threshold(self.false_alarm_rate))
        object.__setattr__(self, "most_unfamiliar", rules.thresholds(self.false_alarm_rate)[1])

    def __repr__(self) -> str:
        return f"Guard({self.detector!r}, threshold {self.threshold})"

    @classmethod
    def calibrated(
        cls,
        detector: Detector,
        clean: Images,
        false_alarm_rate: float = 0.05,
        *,
        known: Images | None = None,
        show_progress: bool | None = None,
    ) -> "Guard":
        """Returns a guard with the thresholds that clean images give at a false-alarm rate.

        Args:
            detector: fitted to the classifier to guard.
            clean: held-out clean images, none of which the detector was fitted with.
            false_alarm_rate: share of clean images that may be rejected; n images allow 2 / (n + 1) at least.
            known: other clean images, to tell familiar images by; by default a third of `clean`.
            show_progress: True or False to force the bar; None draws it on a terminal.
        """
        images = _check_images(detector.classifier, clean)
        _check_unseen(detector, images)
        if known is None:
            familiar, images = images[::KNOWN], [image for place, image in enumerate(images) if place % KNOWN]
        else:
            familiar = _check_images(detector.classifier, known)
        check_enough(false_alarm_rate, len(images), RULES)
        familiarity = fit_familiarity(detector.classifier, familiar, show_progress=show_progress)
        return cls(detector, familiarity, _calibration(detector, familiarity, images, show_progress), false_alarm_rate)

    @property
    def classifier(self) -> Classifier:
        """The guarded network."""
        return self.detector.classifier

    @property
    def evidence_kind(self) -> EvidenceKind:
        """What the evidence shows: a "spectrum" |â_1|, |â_2|, … of each layer, "margins" of views, or "numbers"."""
        kinds = {leaf.evidence_kind for leaf in self.detector.extractor.leaves()}
        return kinds.pop() if len(kinds) == 1 else "numbers"

    def judge(
        self, images: Sequence[Tensor], *, batch: int | None = None, show_progress: bool | None = False
    ) -> Verdicts:
        """Returns the verdicts on checked images (C, H, W) of any sizes, in order. `check` checks images first.

        A score that is not finite is an error, never a verdict: the image is not accepted.
        """
        with progress.bar(len(images), "checked", show=show_progress) as advance:
            logits, features, scores, distances = _forward_all(self.detector, self.familiarity, images, batch, advance)
        adversarial, unfamiliar = scores > self.threshold.value, distances > self.most_unfamiliar
        return Verdicts(
            label=logits.argmax(1),
            accepted=~(adversarial | unfamiliar),
            # what no network was made for, such as noise, often breaks both rules
            reason=np.where(unfamiliar, Reason.UNFAMILIAR, np.where(adversarial, Reason.ADVERSARIAL, Reason.NONE)),
            score=scores,
            unfamiliarity=distances,
            p_value=self.calibration.rules.p_values((scores, distances)),
            threshold=self.threshold.value,
            logits=logits,
            features=features,
            classes=None if self.classifier.classes is None else tuple(self.classifier.classes),
        )

    def check(self, images: Images, *, batch: int | None = None, show_progress: bool | None = None) -> Verdicts:
        """Returns label, accepted, score and threshold of each image, in the order given.

        A detector that only observes the network shares its forward pass.

        Args:
            images: floating, within the classifier's bounds: (N, C, H, W), one image (C, H, W), or several of any sizes
                that the network takes.
            batch: images at once; by default as many as fit the memory.
            show_progress: True or False to force the bar; None draws it on a terminal.
        """
        return self.judge(_check_images(self.classifier, images), batch=batch, show_progress=show_progress)

    def stream(
        self, images: Iterable[Tensor], *, batch: int = 16, show_progress: bool | None = False
    ) -> Iterator[Verdict]:
        """Returns an iterator over one verdict per image, in order; it reads at most batch images ahead.

        Args:
            images: each a floating tensor (C, H, W) within the classifier's bounds, of any size that the network takes.
            batch: images at once.
            show_progress: True to count the images on standard error; None counts them on a terminal.
        """
        return self._verdicts(iter(images), check_whole("batch", batch), show_progress)

    def _verdicts(self, images: Iterator[Tensor], size: int, show_progress: bool | None) -> Iterator[Verdict]:
        with progress.bar(None, "checked", show=show_progress) as advance:
            first = 0
            while part := list(islice(images, size)):
                yield from self.judge(_check_images(self.classifier, part, first=first), batch=size)
                first += len(part)
                advance(len(part))

    def evidence(self, features: Floats) -> list[LayerEvidence]:
        """Returns the features (D,) of one image, layer by layer in firing order, beside those of clean images."""
        mean, deviation = self.calibration.mean, self.calibration.deviation
        distance = np.abs(features - mean)
        away = np.divide(distance, deviation, out=np.where(distance > 0, MAX_DEVIATIONS, 0.0), where=deviation > 0)
        squares = np.square(np.minimum(away, MAX_DEVIATIONS))
        names, parts, start = [], [], 0
        for name, group in groupby(self.detector.feature_names):
            names.append(name)
            parts.append(slice(start, start + len(list(group))))
            start = parts[-1].stop
        rows = np.repeat(features[None], len(parts) + 1, 0)  # the image, then with each layer as in clean images
        for row, part in enumerate(parts, start=1):
            rows[row, part] = mean[part]
        score, *scores = self.detector.head.score(torch.from_numpy(rows)).tolist()
        return [
            LayerEvidence(
                layer=name,
                values=features[part],
                mean=mean[part],
                deviation=deviation[part],
                rms_deviation=float(np.sqrt(squares[part].mean())),
                push=score - other,
            )
            for name, part, other in zip(names, parts, scores, strict=True)
        ]

    def at_rate(self, false_alarm_rate: float) -> "Guard":
        """Returns a guard with another false-alarm rate, from the same calibration; nothing is fitted again."""
        return self._with(self.calibration, false_alarm_rate)

    def recalibrated(self, clean: Images, *, show_progress: bool | None = None) -> "Guard":
        """Returns a guard with the thresholds that other clean images give; nothing is fitted again."""
        images = _check_images(self.classifier, clean)
        _check_unseen(self.detector, images)
        check_enough(self.false_alarm_rate, len(images), RULES)
        return self._with(_calibration(self.detector, self.familiarity, images, show_progress), self.false_alarm_rate)

    def _with(self, calibration: Calibration, false_alarm_rate: float) -> "Guard":
        guard = replace(self, calibration=calibration, false_alarm_rate=false_alarm_rate)
        if self.card is None:
            return guard
        return replace(guard, card=card_at(self.card, guard.threshold, guard.most_unfamiliar))

    def _try(self, shape: tuple[int, ...]) -> None:
        """Raises ValueError unless a trial image has a finite distance to known images."""
        _, (layers,) = extract_batch(self.classifier, [self.familiarity], self.classifier.noise(1, shape), [""])
        if layers.shape != (1, len(self.familiarity.layers)):
            raise ValueError(f"a trial gives {layers.shape[1]} distances to known images")

    def as_module(self) -> "GuardedModule":
        """Returns a module that takes the network's place, with one more logit that marks rejection."""
        return GuardedModule(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the guard, without the network, to one file, whole or not at all; `benfourier.load_guard` reads it."""
        manifest, arrays = self.detector.state()
        columns = {f"calibration/{name}": getattr(self.calibration, name) for name in CALIBRATION}
        rule, own = split_state({"familiarity": self.familiarity.state()})
        manifest = {**manifest, **rule, "threshold": asdict(self.threshold), "card": self.card and self.card.as_json()}
        artifact.write(path, KIND, SCHEMA, manifest, {**arrays, **own, **columns})


class GuardedModule(nn.Module):
    """Images (N, C, H, W) within the classifier's bounds in, logits (N, classes + 1) out, without gradients.

    The last column marks rejection. Accepted rows hold the network's logits and -∞ there; rejected rows hold 0 there
    and -∞ everywhere else. So argmax is the number of classes where an image is rejected, and soft-max stays valid.
    """

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self.network = guard.classifier.module
        self._guard = guard

    def forward(self, images: Images) -> Tensor:
        """Returns the logits."""
        classifier = self._guard.classifier
        verdicts = self._guard.judge(_check_images(classifier, images))
        accepted = torch.from_numpy(verdicts.accepted).unsqueeze(1)
        logits = torch.from_numpy(verdicts.logits).masked_fill(~accepted, -torch.inf)
        rejection = torch.zeros(len(verdicts), 1, dtype=logits.dtype).masked_fill(accepted, -torch.inf)
        return torch.cat([logits, rejection], dim=1).to(classifier.device, classifier.dtype)


def load_guard(
    path: str | PathLike[str],
    module: nn.Module,
    *,
    supplied: Mapping[str, Any] | None = None,
    second: nn.Module | Classifier | None = None,
    device: str | torch.device | None = None,
) -> Guard:
    """Returns the guard in a file that `Guard.save` wrote, or raises StoreError.

    Args:
        path: the file.
        module: the guarded network, with the same weights; the file says which images it takes.
        supplied: what a file cannot hold, by name; most detectors need nothing.
        second: the other network of `second-opinion`, for its architecture; short for supplied={"second": ...}.
        device: to which the module is moved, and where the guard then runs; None leaves it where it is.
    """
    supplied = {**(supplied or {}), **({} if second is None else {SECOND: second})}
    manifest, arrays = artifact.read(path, KIND, SCHEMA)
    classifier = classifier_from_description(path, manifest.get("classifier", {}), module)
    if device is not None:
        classifier.to(device)
    detector = detector_from_state(path, manifest, arrays, classifier, supplied)
    try:
        threshold = record_from_state(Threshold, manifest["threshold"])
        columns, sizes = [arrays[f"calibration/{name}"] for name in CALIBRATION], {"D": detector.summary["features"]}
        for (name, rule), column in zip(CALIBRATION.items(), columns, strict=True):
            rule.check(name, torch.from_numpy(column), sizes)
        calibration = Calibration(*columns)
        familiarity = Familiarity.from_state(classifier, join_state(manifest["familiarity"], arrays), {})
        card = None if manifest["card"] is None else GuardCard.from_json(manifest["card"])
        guard = Guard(detector, familiarity, calibration, threshold.rate, card)
        guard._try(tuple(detector.summary["shape"]))
    except (StoreError, *UNUSABLE) as error:
        raise StoreError(f"{path}: its manifest and its arrays do not fit ({error}); make it again") from error
    if guard.threshold.value != threshold.value:
        raise StoreError(
            f"{path}: its threshold is {threshold.value:g}, but its calibration scores give {guard.threshold.value:g}; "
            "make it again"
        )
    return guard


def _check_unseen(detector: Detector, images: Sequence[Tensor]) -> None:
    """Raises InputError if one of the images took part in the fit: its score would be lower than that of new images."""
    seen = [place for place, image in enumerate(images) if content_ids(image[None])[0] in detector.seen]
    if seen:
        raise InputError(
            f"{len(seen)} of {len(images)} clean images, the first in place {seen[0]}, were used to fit the "
            "detector; the threshold needs images that it has not seen: hold some out"
        )


def _calibration(
    detector: Detector, familiarity: Familiarity, images: Sequence[Tensor], show_progress: bool | None
) -> Calibration:
    with progress.bar(len(images), "calibration", show=show_progress) as advance:
        _, features, scores, distances = _forward_all(detector, familiarity, images, None, advance)
    return Calibration(scores, distances, features.mean(0), features.std(0))


def _forward_all(
    detector: Detector,
    familiarity: Familiarity,
    images: Sequence[Tensor],
    batch: int | None,
    advance: Callable[[int], object],
) -> tuple[Floats, Floats, Floats, Floats]:
    """Logits, features and both scores of images (C, H, W) in order; images of one shape share batches."""
    size = None if batch is None else check_whole("batch", batch)
    groups: dict[object, list[int]] = {}
    for place, image in enumerate(images):
        groups.setdefault((image.shape, image.dtype, image.device), []).append(place)
    order: list[int] = []
    parts: list[tuple[Floats, ...]] = []
    for places in groups.values():
        count = size or batch_size(detector.classifier, images[places[0]].shape)
        for start in range(0, len(places), count):
            part = places[start : start + count]
            parts.append(_forward(detector, familiarity, torch.stack([images[place] for place in part]), part))
            order += part
            advance(len(part))
    in_order = np.argsort(order)
    logits, features, scores, distances = (np.concatenate(column)[in_order] for column in zip(*parts, strict=True))
    return logits, features, scores, distances


def _forward(detector: Detector, familiarity: Familiarity, images: Tensor, places: list[int]) -> tuple[Floats, ...]:
    """The same of one batch, from one shared pass, or ActivationError if a label or score is not finite."""
    with torch.no_grad():
        extractors = (detector.extractor, familiarity)
        logits, (features, layers) = extract_batch(detector.classifier, extractors, images, content_ids(images))
        scores, distances = on_device(detector.head, features.device).score(features), layers.mean(1)
    # a logit of -∞ rules a class out, as masked heads do; NaN and +∞ leave no label
    for what, bad in (("logits", (logits.isnan() | logits.isposinf()).any(1)), ("score", ~scores.isfinite())):
        if bool(bad.any()):
            raise ActivationError(
                f"the {what} of image {places[int(bad.nonzero()[0])]} {'hold' if what == 'logits' else 'is'} NaN or "
                "infinity; check the image and the network's weights"
            )
    return tuple(values.to("cpu", torch.float64).numpy() for values in (logits, features, scores, distances))


def _check_images(classifier: Classifier, images: object, first: int = 0) -> list[Tensor]:
    """Images one by one, each (C, H, W), or ImageError unless the classifier takes them; messages count from first."""
    if isinstance(images, Tensor) and images.ndim != 3:
        classifier.check_images(images)
        return list(images.unbind())
    if not isinstance(images, Iterable) or isinstance(images, str | bytes):
        raise ImageError(f"images are {type(images).__name__}; they must be a tensor, or several tensors (C, H, W)")
    each = [images] if isinstance(images, Tensor) else list(images)
    if not each:
        raise ImageError("there are no images; give at least one")
    for place, image in enumerate(each):
        try:
            if not isinstance(image, Tensor) or image.ndim != 3:
                kind = f"shape {tuple(image.shape)}" if isinstance(image, Tensor) else type(image).__name__
                raise ImageError(f"it is of {kind}; each image must be a floating tensor (C, H, W)")
            classifier.check_images(image.unsqueeze(0))
        except ImageError as error:
            raise ImageError(f"image {first + place}: {error}") from error
    return each
