"""Everything that trials work on: the network, example sets, and clean images apart from them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.data.draws import names_by_content, seed_of
from benfourier.data.examples import Examples
from benfourier.data.labelled import Labelled
from benfourier.errors import InputError
from benfourier.evaluation.network import fresh
from benfourier.evaluation.plan import Plan
from benfourier.store import artifact
from benfourier.store.digest import digest_of
from benfourier.subjects.subject import Subject
from benfourier.subjects.weights import digest_of_weights, load_weights, save_weights

KIND, SCHEMA = "benfourier-bench", 1


@dataclass(frozen=True, eq=False)
class Bench:
    """What trials work on.

    Args:
        subject: the network.
        source: label of the data that detectors are fitted to.
        other: label of the second source; empty if there is none.
        groups: by source, example sets; attacks with the same number of sources share one.
        folds: of every source image, 0 to 4; it is tested by the machine that was fitted to the other folds.
        order: source images by source, in the order in which they were found.
        calibration: clean images that set thresholds.
        wrong: clean images that the network gets wrong.
        beyond: labelled clean images beyond all of these, for detectors that learn from some.
        data: digests of the sources.
    """

    subject: Subject
    source: str
    other: str
    groups: Mapping[str, tuple[Examples, ...]]
    folds: Mapping[str, int]
    order: Mapping[str, tuple[str, ...]]
    calibration: Tensor
    wrong: Tensor
    beyond: Labelled | None
    data: Mapping[str, str]

    def group(self, source: str, attack: str) -> int:
        """Returns which example set of a source holds an attack."""
        return next(place for place, group in enumerate(self.groups[source]) if attack in group.attacks)

    def examples(self, source: str, attack: str) -> Examples:
        """Returns the example set that holds an attack."""
        return self.groups[source][self.group(source, attack)]

    def rows(self, source: str, examples: Examples, most: int, folds: Iterable[int] | None = None) -> list[int]:
        """Returns the rows of an example set that are among the first images, and in some folds; None for all."""
        first, wanted = set(self.order[source][:most]), None if folds is None else set(folds)
        return [
            row
            for row, name in enumerate(examples.ids)
            if name in first and (wanted is None or self.folds[name] in wanted)
        ]

    def together(self, source: str, attacks: Iterable[str]) -> Examples:
        """Returns one example set with several attacks; where an attack was not tried it counts as failed."""
        wanted = list(attacks)
        base = max((self.examples(source, attack) for attack in wanted), key=len)
        attacked, success, made = {}, {}, {}
        for attack in wanted:
            examples = self.examples(source, attack)
            attacked[attack], success[attack] = _aligned(base, examples, attack)
            made[attack] = examples.options.get("attacks", {}).get(attack)
        return replace(base, attacked=attacked, success=success, options={**base.options, "attacks": made})

    @cached_property
    def digests(self) -> dict[str, str]:
        """Digests of the weights, the data and all that was made of them."""
        made = {
            f"examples {source} {attack}": _digest(group, attack)
            for source, groups in self.groups.items()
            for group in groups
            for attack in group.attacks
        }
        beyond = [] if self.beyond is None else [self.beyond.images.numpy(), self.beyond.labels.numpy()]
        return {
            "weights": digest_of_weights(self.subject.module),
            **{f"data {source}": digest for source, digest in self.data.items()},
            **made,
            "calibration": digest_of([self.calibration.numpy()]),
            "wrong": digest_of([self.wrong.numpy()]),
            "beyond": digest_of(beyond),
        }

    @cached_property
    def apart(self) -> frozenset[str]:
        """Names by content of the images that set thresholds, and of those that the network gets wrong."""
        return frozenset(name for images in (self.calibration, self.wrong) for name in names_by_content(images))

    def save(self, folder: Path) -> None:
        """Writes everything to a folder, for other processes."""
        save_weights(self.subject.module, folder / "weights.safetensors")
        for source, groups in self.groups.items():
            for place, group in enumerate(groups):
                group.save(folder / f"{int(source == self.other)}-{place}.examples")
        arrays = {"calibration": self.calibration.numpy(), "wrong": self.wrong.numpy()}
        if self.beyond is not None:
            arrays |= {"beyond": self.beyond.images.numpy(), "labels": self.beyond.labels.numpy()}
        told = {
            "source": self.source,
            "other": self.other,
            "groups": {source: len(groups) for source, groups in self.groups.items()},
            "folds": dict(self.folds),
            "order": {source: list(names) for source, names in self.order.items()},
            "beyond ids": [] if self.beyond is None else list(self.beyond.ids),
            "data": dict(self.data),
            "classes": None if self.subject.classes is None else list(self.subject.classes),
        }
        artifact.write(folder / "bench", KIND, SCHEMA, {"told": json.dumps(told)}, arrays)

    @classmethod
    def load(cls, folder: Path, plan: Plan) -> "Bench":
        """Returns what save wrote."""
        manifest, arrays = artifact.read(folder / "bench", KIND, SCHEMA)
        told = json.loads(manifest["told"])
        subject = replace(fresh(plan), classes=told["classes"])
        load_weights(subject.module, folder / "weights.safetensors")
        subject.module.eval().requires_grad_(False)
        held = {name: torch.from_numpy(array) for name, array in arrays.items()}
        beyond = Labelled(held["beyond"], held["labels"], tuple(told["beyond ids"])) if "beyond" in held else None
        groups = {
            source: tuple(
                Examples.load(folder / f"{int(source == told['other'])}-{place}.examples") for place in range(count)
            )
            for source, count in told["groups"].items()
        }
        order = {source: tuple(names) for source, names in told["order"].items()}
        return cls(
            subject,
            told["source"],
            told["other"],
            groups,
            told["folds"],
            order,
            held["calibration"],
            held["wrong"],
            beyond,
            told["data"],
        )


def one_each(examples: Examples) -> Examples:
    """Returns examples in which each source has one adversarial twin, of an attack drawn among those that succeeded.

    So a fit to several attacks has as many rows, and as large a share of adversarial ones, as a fit to one.
    """
    if len(examples.attacks) == 1:
        return examples.for_attack(examples.attacks[0])
    won = _won(examples)
    chosen = np.zeros_like(won)
    for row, name in enumerate(examples.ids):
        places = np.flatnonzero(won[row])
        if len(places):
            chosen[row, places[seed_of(examples.seed, f"one of several\0{name}") % len(places)]] = True
    success = {attack: torch.from_numpy(chosen[:, place].copy()) for place, attack in enumerate(examples.attacks)}
    return every_each(replace(examples, success=success))


def every_each(examples: Examples) -> Examples:
    """Returns the sources on which an attack succeeded, each with all its adversarial twins."""
    rows = np.flatnonzero(_won(examples).any(axis=1))
    if not len(rows):
        raise InputError(f"{', '.join(examples.attacks)} succeeded on none of {len(examples)} images")
    return examples.take(rows, "an attack succeeded")


def _won(examples: Examples) -> NDArray[np.bool_]:
    """Where attacks succeeded, (N, attacks)."""
    return torch.stack(list(examples.success.values()), 1).numpy()


def _aligned(base: Examples, examples: Examples, attack: str) -> tuple[Tensor, Tensor]:
    """An attack's images and successes, row by row as another set has its sources."""
    places = {name: row for row, name in enumerate(examples.ids)}
    rows = [places.get(name, -1) for name in base.ids]
    there = torch.tensor([row >= 0 for row in rows])
    taken = examples.attacked[attack][rows], examples.success[attack][rows]
    return torch.where(there.view(-1, 1, 1, 1), taken[0], base.clean), taken[1] & there


def _digest(examples: Examples, attack: str) -> str:
    """A digest of all that a trial of one attack sees; other attacks count only by the noise that they share."""
    twins = examples.attacked[attack], examples.success[attack]
    arrays = (examples.clean, examples.noisy, *twins, examples.labels)
    return digest_of((attack, *examples.ids, *(array.numpy() for array in arrays)))
