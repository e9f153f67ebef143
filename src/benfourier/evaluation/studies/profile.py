"""Mean and deviation of every MBF feature over the images of one kind: the paper's figures."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from benfourier.detectors.mbf import features
from benfourier.evaluation.studies.study import DataPart, ImageKind, Job, digest_of_network, image_kinds
from benfourier.models.classifier import Classifier
from benfourier.store.artifact import digest_of
from benfourier.store.records import Profile


def profile_jobs(
    classifier: Classifier, parts: Sequence[DataPart], *, orders: int = 16, pass_through: bool = False
) -> Iterator[Job]:
    """Yields one job for the clean images, the noisy ones, and the successes of each attack, of every part."""
    network = digest_of_network(classifier)

    def profile(kind: ImageKind, key: str) -> Iterator[Profile]:
        values = features(
            classifier, kind.labelled.images, orders, pass_through=pass_through, entries=None, show_progress=False
        )
        yield Profile(
            key=key,
            source=kind.part.source,
            split=kind.part.split,
            kind=kind.name,
            layers=tuple(classifier.layer_names(pass_through=pass_through)),
            orders=orders,
            images=len(values),
            mean=values.mean(axis=0, dtype=np.float64).astype(np.float32),
            deviation=values.std(axis=0, dtype=np.float64).astype(np.float32),
        )

    for part in parts:
        for kind in image_kinds(part):
            key = digest_of((network, "profile", repr((orders, pass_through)), kind.identity))
            yield Job(f"{part.source}, {part.split}: {kind.name}", (key,), partial(profile, kind))
