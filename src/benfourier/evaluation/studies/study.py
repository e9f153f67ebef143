"""Studies: jobs that make records, on parts of the data with the names that tables give them."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from benfourier import progress
from benfourier.data.examples import Examples
from benfourier.data.images import LabelledImages
from benfourier.evaluation.evaluation_data import EvaluationData
from benfourier.models.classifier import Classifier
from benfourier.models.weights import weights_digest
from benfourier.store.artifact import digest_of
from benfourier.store.records import Record
from benfourier.store.vocabulary import NOISY, Split


@dataclass(frozen=True, eq=False)
class DataPart:
    """Examples on one side of a split."""

    source: str  # label of the data
    split: str  # train, test or out-of-sample
    examples: Examples


@dataclass(frozen=True, eq=False)
class ImageKind:
    """The images of one kind in a part: clean, noisy, or those on which an attack succeeded."""

    part: DataPart
    name: str  # clean, noisy or the label of an attack
    labelled: LabelledImages  # their ids are those of the source images

    @property
    def identity(self) -> str:
        """A digest of the ids, the seed and how the examples were made."""
        examples = self.part.examples
        made_by = json.dumps([examples.seed, examples.noise_levels[NOISY], dict(examples.options)], sort_keys=True)
        return digest_of((self.part.source, self.part.split, self.name, made_by, *self.labelled.ids))


@dataclass(frozen=True, eq=False)
class Job:
    """A part of a study."""

    title: str  # for the progress bar
    keys: tuple[str, ...]  # of its records; they depend on everything that decides the records
    make: Callable[..., Iterable[Record]]  # called with the keys of records that are missing, returns these
    is_repeated: bool = False  # it is done again although its records are known, since it writes files too


def run_jobs(
    jobs: Iterable[Job], title: str, *, known: Collection[str] = (), show_progress: bool | None = None
) -> Iterator[Record]:
    """Yields the records of a study's jobs whose keys are not known yet."""
    known = frozenset(known)
    waiting = [job for job in jobs if job.is_repeated or not known.issuperset(job.keys)]
    with progress.bar(len(waiting), title, show=show_progress) as advance:
        for job in waiting:
            advance(0, job.title)
            missing = [key for key in job.keys if job.is_repeated or key not in known]
            yield from (record for record in job.make(*missing) if record.key not in known)
            advance(1)


def data_parts(data: EvaluationData) -> list[DataPart]:
    """Returns train and test of the first source, by the first fold, and the whole second source; all its attacks."""
    examples = data.joined(data.source, [attack.label for attack in data.plan.attacks])
    is_test = np.array([data.folds[name] == 0 for name in examples.ids])
    parts = [
        DataPart(data.source, Split.TRAIN, examples.take(np.flatnonzero(~is_test), "train")),
        DataPart(data.source, Split.TEST, examples.take(np.flatnonzero(is_test), "test")),
    ]
    labels = [attack.label for attack in data.plan.for_second_source.attacks]
    if data.other and labels:
        parts.append(DataPart(data.other, Split.OUT_OF_SAMPLE, data.joined(data.other, labels)))
    return parts


def image_kinds(part: DataPart) -> Iterator[ImageKind]:
    """Yields clean and noisy images, and each attack's where it succeeded; an attack without success is left out."""
    for kind, images, _ in part.examples.parts():
        yield ImageKind(part, kind, images)


def digest_of_network(classifier: Classifier) -> str:
    """Returns a digest of weights, structure and scaling, the same on every machine."""
    scaling = repr((classifier.bounds, classifier.mean, classifier.std))
    return digest_of((weights_digest(classifier.module), repr(classifier.module), scaling))
