"""A method fitted to a classifier: images in, scores out."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from os import PathLike
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from benfourier.data.images import content_ids
from benfourier.detectors.extractor import Concatenated, Extractor, ObservingExtractor
from benfourier.detectors.feature_cache import FeatureCache
from benfourier.detectors.features import Floats, extract, extract_batch
from benfourier.detectors.heads import Head
from benfourier.detectors.method import Method
from benfourier.detectors.state import Arrays, on_device, record_state, split_state
from benfourier.errors import ClassifierError, InputError, check_number
from benfourier.models.classifier import Classifier
from benfourier.models.identity import describe_classifier
from benfourier.store import artifact

KIND = "benfourier-detector"
SCHEMA = artifact.SCHEMAS[KIND]
LIBRARIES = ("benfourier", "numpy", "safetensors", "scikit-learn", "torch")
CONTENT_ID = 16  # bytes
FLAT = 1e-6  # the least slope of a posterior, per deviation of the scores


@dataclass(frozen=True)
class Sigmoid:
    """P(adversarial) = 1 / (1 + exp(−(slope · score + offset))) (Platt 1999)."""

    slope: Annotated[float, partial(check_number, above=0)]
    offset: float

    def posterior(self, scores: Floats) -> Floats:
        """Returns the posteriors, (N,)."""
        return np.asarray(expit(self.slope * scores + self.offset), np.float64)


def fit_sigmoid(scores: Floats, adversarial: NDArray[np.bool_]) -> Sigmoid:
    """Returns the sigmoid that fits held-out scores best, with Platt's softened targets."""
    from sklearn.linear_model import LogisticRegression

    bad, good = int(adversarial.sum()), int((~adversarial).sum())
    target = np.where(adversarial, (bad + 1) / (bad + 2), 1 / (good + 2))
    centre, width = float(np.median(scores)), float(scores.std()) or 1.0
    column = ((scores - centre) / width)[:, None]
    # a soft target is the same image seen twice, once of each kind
    model = LogisticRegression(C=1e6, max_iter=1000).fit(
        np.concatenate([column, column]),
        np.repeat([1, 0], len(scores)),
        sample_weight=np.concatenate([target, 1 - target]),
    )
    # where a detector is worse than chance the posterior is flat, but it never falls with the score
    slope = max(float(model.coef_[0, 0]), FLAT) / width
    return Sigmoid(slope, float(model.intercept_[0]) - slope * centre)


@dataclass(frozen=True, eq=False, repr=False)
class Detector:
    """A fitted detector. A higher score is more adversarial.

    Args:
        method: the options it was fitted with.
        classifier: the network it observes.
        extractor: what the method learned; turns images into features.
        head: turns features into a score.
        sigmoid: turns a score into a posterior; None if it was fitted without adversarial images.
        summary: facts about the fit, as JSON can hold them.
        seen: content ids of all benign images of the fit; a threshold needs others.
    """

    method: Method
    classifier: Classifier
    extractor: Extractor
    head: Head
    sigmoid: Sigmoid | None
    summary: Mapping[str, Any]
    seen: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"Detector({self.method!r}, fitted to {self.summary.get('sources')} source images)"

    @property
    def needs(self) -> frozenset[str]:
        """What scoring needs: what the method may need, or only a forward pass if this fit came to no more."""
        observes = all(isinstance(leaf, ObservingExtractor) for leaf in self.extractor.leaves())
        return frozenset({"forward"}) if observes else self.method.needs

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The layer, view or criterion of each feature; the method's name for all if they have none."""
        names, count = self.extractor.feature_names(), int(self.summary["features"])
        return names if len(names) == count else (self.method.name,) * count

    def forward(self, images: Tensor, ids: Sequence[str] | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Returns logits, features (N, D) and scores (N,) of checked images, where the network runs.

        Gradients flow if the head has any.
        """
        logits, (features,) = extract_batch(self.classifier, [self.extractor], images, _ids(ids, images))
        return logits, features, on_device(self.head, features.device).score(features)

    def score(
        self,
        images: Tensor,
        *,
        ids: Sequence[str] | None = None,
        batch: int | None = None,
        cache: FeatureCache | None = None,
        show_progress: bool | None = None,
    ) -> Floats:
        """Returns one score per image, (N,).

        Args:
            images: floating tensor (N, C, H, W) within the classifier's bounds.
            ids: source image of each, so that those the detector was fitted with are not compared with themselves.
            batch: images at once; by default as many as fit the memory.
            cache: features that are known already; the images must be in its pool.
            show_progress: True or False to force the bar; None draws it on a terminal.
        """
        if cache is None:
            return score_many([self], images, ids=ids, batch=batch, show_progress=show_progress)[0]
        return self.head.score(cache.features(self.extractor, images, _ids(ids, images))).numpy()

    def posterior(self, images: Tensor, **options: Any) -> Floats:
        """Returns P(adversarial) of each image, (N,); options are those of `score`."""
        if self.sigmoid is None:
            raise InputError(
                f"{self.method.name} was fitted without adversarial images, so its scores have no posterior; use score"
            )
        return self.sigmoid.posterior(self.score(images, **options))

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Returns everything that a detector is, as a manifest and arrays."""
        classifier = describe_classifier(self.classifier)
        if self.summary.get("weights", classifier["weights"]) != classifier["weights"]:
            raise ClassifierError(
                "the network's weights have changed since the detector was fitted to it; fit it again"
            )
        methods, whole = self.method.parts_of_fit(), self.extractor
        extractors = whole.parts if len(methods) > 1 and isinstance(whole, Concatenated) else (whole,)
        leaves = [
            {"method": method.id, "kind": type(leaf).__name__, "state": leaf.state()}
            for method, extractor in zip(methods, extractors, strict=True)
            for leaf in extractor.leaves()
        ]
        head = {"kind": type(self.head).__name__.lower(), "state": record_state(self.head)}
        plain, arrays = split_state({"extractors": leaves, "head": head})
        manifest = {
            "method": self.method.name,
            "options": self.method.as_dict(),
            **plain,
            "sigmoid": None if self.sigmoid is None else asdict(self.sigmoid),
            "summary": dict(self.summary),
            "classifier": classifier,
            "versions": {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()},
        }
        seen = np.frombuffer(bytes.fromhex("".join(sorted(self.seen))), np.uint8).reshape(-1, CONTENT_ID)
        return manifest, {**arrays, "seen": seen}

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the detector to one file, whole or not at all; `benfourier.load` reads it."""
        manifest, arrays = self.state()
        artifact.write(path, KIND, SCHEMA, manifest, arrays)


def score_many(
    detectors: Sequence[Detector],
    images: Tensor,
    *,
    ids: Sequence[str] | None = None,
    batch: int | None = None,
    show_progress: bool | None = None,
) -> list[Floats]:
    """Returns the scores of several detectors of one classifier; those that observe share one forward pass."""
    if not detectors or any(detector.classifier is not detectors[0].classifier for detector in detectors):
        raise InputError("detectors must be at least one, all fitted to the same classifier")
    classifier = detectors[0].classifier
    classifier.check_images(images)
    extractors, names = [detector.extractor for detector in detectors], _ids(ids, images)
    label = ", ".join(detector.method.name for detector in detectors)
    columns = extract(classifier, extractors, images, names, batch=batch, label=label, show_progress=show_progress)
    pairs = zip(detectors, columns, strict=True)
    return [on_device(one.head, features.device).score(features).cpu().numpy() for one, features in pairs]


def _ids(ids: Sequence[str] | None, images: Tensor) -> Sequence[str]:
    if ids is None:
        return content_ids(images)
    if isinstance(ids, str) or len(ids) != len(images):
        raise InputError(f"there are {len(images)} images and {len(ids)} ids; each image needs one id")
    return list(ids)
