"""What trials and studies read: the network, example sets, and clean images apart from them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benfourier.data.examples import Examples
from benfourier.data.images import LabelledImages
from benfourier.data.seeds import image_seed
from benfourier.data.splits import hash_rank
from benfourier.detectors.feature_cache import FeatureCache
from benfourier.errors import InputError
from benfourier.evaluation.network import Device, new_classifier
from benfourier.evaluation.plan import DetectorPlan, Plan
from benfourier.models.classifier import Classifier
from benfourier.models.identity import classifier_digest
from benfourier.models.open_classifier import open_classifier
from benfourier.models.weights import weights_digest
from benfourier.store.artifact import digest_of
from benfourier.store.cache import Cache
from benfourier.store.vocabulary import SECOND

FOLDS = 5
FILE = "data.pt"
APART = ("plan", "cache", "classifier")  # fields that are not written as they are


@dataclass(frozen=True, eq=False)
class EvaluationData:
    """What the trials of a plan work on."""

    plan: Plan
    cache: Cache | None  # of arrays
    classifier: Classifier
    images: Mapping[str, LabelledImages]  # by source, as they were selected; first those that detectors are fitted to
    calibration: LabelledImages  # clean images that set thresholds
    misclassified: LabelledImages  # other clean images, which the network classifies wrongly
    extra_clean: LabelledImages | None  # beside all of these, for detectors that learn from some
    data_digests: Mapping[str, str]  # of the sources
    network_facts: Mapping[str, object]  # what a run's record says about the network
    # by source; attacks of one noise group share a set; empty before the attacks
    example_sets: Mapping[str, tuple[Examples, ...]] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The label of the data that detectors are fitted to."""
        return next(iter(self.images))

    @property
    def other(self) -> str:
        """The label of the second source; empty if there is none."""
        return [*self.images, ""][1]

    @property
    def work_dir(self) -> Path | None:
        """The folder for what processes and fits share, such as a trained generator."""
        return None if self.cache is None else self.cache.folder

    @cached_property
    def folds(self) -> dict[str, int]:
        """The fold of every source image, which is tested by the detector that was fitted to the other folds."""
        images = self.images[self.source]
        return dict(zip(images.ids, assign_folds(images.labels.tolist()), strict=True))

    def plan_of(self, source: str) -> Plan:
        """Returns the plan as it is for the images of one source."""
        return self.plan if source == self.source else self.plan.for_second_source

    def supplied(self, detector: DetectorPlan) -> dict[str, Classifier]:
        """Returns what a detector of the plan needs beside its options: the other network, if it has one."""
        if not detector.second_model:
            return {}
        weights = self.plan.path_of(detector.second_weights) if detector.second_weights else None
        return {SECOND: open_classifier(detector.second_model, weights=weights, device=self.classifier.device)}

    def set_index(self, source: str, attack: str) -> int:
        """Returns which example set of a source holds an attack."""
        return next(place for place, examples in enumerate(self.example_sets[source]) if attack in examples.attacks)

    def examples(self, source: str, attack: str) -> Examples:
        """Returns the example set that holds an attack."""
        return self.example_sets[source][self.set_index(source, attack)]

    def rows(self, source: str, examples: Examples, most: int, folds: Collection[int] | None = None) -> list[int]:
        """Returns the rows of an example set that are among the first images, and in some folds; None for all."""
        names = set(self.images[source].ids[:most])
        if folds is not None:
            names = {name for name in names if self.folds[name] in folds}
        return [row for row, name in enumerate(examples.ids) if name in names]

    def joined(self, source: str, attacks: Iterable[str]) -> Examples:
        """Returns one example set with several attacks; where an attack was not tried it counts as failed."""
        labels = list(attacks)
        base = max((self.examples(source, attack) for attack in labels), key=len)
        attacked, success, options = {}, {}, {}
        for attack in labels:
            examples = self.examples(source, attack)
            places = {name: row for row, name in enumerate(examples.ids)}
            rows = [places.get(name, -1) for name in base.ids]
            tried = torch.tensor([row >= 0 for row in rows])
            images = examples.adversarial[attack][rows]
            attacked[attack] = torch.where(tried.view(-1, 1, 1, 1), images, base.clean)
            success[attack] = examples.success[attack][rows] & tried
            options[attack] = examples.options.get("attacks", {}).get(attack)
        return replace(base, adversarial=attacked, success=success, options={**base.options, "attacks": options})

    @cached_property
    def digests(self) -> dict[str, str]:
        """Digests of the weights, the data and everything that was made of them, by name."""
        extra = [] if self.extra_clean is None else [self.extra_clean.images.numpy(), self.extra_clean.labels.numpy()]
        return {
            "weights": weights_digest(self.classifier.module),
            **{f"data {source}": digest for source, digest in self.data_digests.items()},
            **{
                f"examples {source} {attack}": _digest(examples, attack)
                for source, sets in self.example_sets.items()
                for examples in sets
                for attack in examples.attacks
            },
            "calibration": digest_of([self.calibration.images.numpy()]),
            "misclassified": digest_of([self.misclassified.images.numpy()]),
            "extra clean": digest_of(extra),
        }

    @cached_property
    def held_out_names(self) -> frozenset[str]:
        """Content ids of the images that set thresholds, and of the misclassified ones: no fit may see them."""
        return frozenset((*self.calibration.content_ids, *self.misclassified.content_ids))

    @cached_property
    def feature_cache(self) -> FeatureCache:
        """Features that many fits ask for, of all images that trials use; those of failed attacks are left out.

        Sources that options are tried on stand side by side, so that few chunks hold them.
        """
        images = [self.calibration.images, self.misclassified.images]
        few = min(entry.sources for entry in self.plan.detectors)
        for source, sets in self.example_sets.items():
            first = set(self.images[source].ids[:few])
            for examples in sets:
                ranks = [(name not in first, hash_rank(self.plan.seed, name)) for name in examples.ids]
                rows = sorted(range(len(ranks)), key=ranks.__getitem__)
                images += [each[rows] for each in (examples.clean, *examples.noisy.values())]
                images += [
                    attacked[[row for row in rows if examples.success[attack][row]]]
                    for attack, attacked in examples.adversarial.items()
                ]
        network = classifier_digest(self.classifier, tuple(self.calibration.images.shape[1:]))
        # reference images are the clean ones that detectors are fitted to, in the order in which they were selected
        sources, used = self.images[self.source], {name for each in self.example_sets[self.source] for name in each.ids}
        references = sources.take([row for row, name in enumerate(sources.ids) if name in used])
        return FeatureCache(self.classifier, network, [each for each in images if len(each)], self.cache, references)

    def save(self, folder: Path) -> None:
        """Writes everything but the plan to a folder, for other processes."""
        content = {each.name: _plain(getattr(self, each.name)) for each in fields(self) if each.name not in APART}
        names = self.classifier.classes
        classes = None if names is None else tuple(map(str, names))
        weights = self.classifier.module.state_dict()
        torch.save({"weights": weights, "classes": classes, "fields": content}, folder / FILE)

    @classmethod
    def load(cls, folder: Path, plan: Plan, cache: Cache | None, device: Device = None) -> "EvaluationData":
        """Returns what save wrote."""
        content = torch.load(folder / FILE, map_location="cpu", weights_only=True)
        classifier = replace(new_classifier(plan, device), classes=content["classes"])
        classifier.module.load_state_dict(content["weights"])
        classifier.module.eval().requires_grad_(False)
        values = content["fields"]
        values["images"] = {name: LabelledImages(**each) for name, each in values["images"].items()}
        for name in ("calibration", "misclassified", "extra_clean"):
            values[name] = values[name] and LabelledImages(**values[name])
        sets = {source: tuple(Examples(**each) for each in sets) for source, sets in values.pop("example_sets").items()}
        return cls(plan=plan, cache=cache, classifier=classifier, example_sets=sets, **values)


def assign_folds(labels: Iterable[int]) -> list[int]:
    """Returns the fold of each image; in every class folds take turns, so that every beginning is spread over all."""
    counts: dict[int, int] = {}
    folds = []
    for label in labels:
        folds.append((counts.get(label, 0) + label) % FOLDS)
        counts[label] = counts.get(label, 0) + 1
    return folds


def one_twin(examples: Examples) -> Examples:
    """Returns examples in which each source has one adversarial twin, of an attack drawn among those that succeeded.

    So a fit to several attacks has as many rows, and as large a share of adversarial ones, as a fit to one.
    """
    succeeded = _successes(examples)
    chosen = np.zeros_like(succeeded)
    for row, name in enumerate(examples.ids):
        places = np.flatnonzero(succeeded[row])
        if len(places):
            chosen[row, places[image_seed(examples.seed, f"one of several\0{name}") % len(places)]] = True
    success = {attack: torch.from_numpy(chosen[:, place].copy()) for place, attack in enumerate(examples.attacks)}
    return every_twin(replace(examples, success=success))


def every_twin(examples: Examples) -> Examples:
    """Returns the sources on which an attack succeeded, each with all its adversarial twins."""
    rows = np.flatnonzero(_successes(examples).any(axis=1))
    if not len(rows):
        raise InputError(f"{', '.join(examples.attacks)} succeeded on none of {len(examples)} images")
    return examples.take(rows, "an attack succeeded")


def _successes(examples: Examples) -> NDArray[np.bool_]:
    """Where attacks succeeded, (N, attacks)."""
    return torch.stack(list(examples.success.values()), 1).numpy()


def _digest(examples: Examples, attack: str) -> str:
    """A digest of all that a trial of one attack sees; other attacks count only by the noise that they share."""
    arrays = [examples.clean, *examples.noisy.values(), examples.adversarial[attack], examples.success[attack]]
    return digest_of((attack, *examples.ids, *(array.numpy() for array in (*arrays, examples.labels))))


def _plain(value: Any) -> Any:
    """A field as torch reads it from a file without running code of it: no classes of ours, no read-only mappings."""
    if isinstance(value, LabelledImages | Examples):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value
