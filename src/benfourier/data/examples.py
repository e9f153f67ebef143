"""Clean images with their noisy and adversarial twins: what detectors are fitted to and measured on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from benfourier.data.images import LabelledImages
from benfourier.data.sources import check_ids, checked_indices
from benfourier.errors import ImageError, InputError, StoreError, check_choice, check_number, check_seed, check_whole
from benfourier.options import check_json
from benfourier.store import artifact
from benfourier.store.artifact import FilePath

KIND = "benfourier-examples"
SCHEMA = artifact.SCHEMAS[KIND]
# Names of the groups of arrays in a file, by field.
GROUPS = {"noisy": "noisy", "adversarial": "attacked", "success": "success"}
DTYPES = {"labels": torch.int64, "success": torch.bool}  # images are float32
Counts = tuple[tuple[str, int], ...]


class ExamplePart(NamedTuple):
    """Images of one kind: "clean", the name of a level of noise, or the name of an attack that succeeded on them."""

    kind: str
    images: LabelledImages
    adversarial: bool


@dataclass(frozen=True, eq=False)
class Examples:
    """N source images, row by row: clean, with noise, and as each attack left them."""

    clean: Tensor  # float32 (N, C, H, W)
    noisy: Mapping[str, Tensor]  # by name of the level, the same with Gaussian noise; one level is called "noisy"
    adversarial: Mapping[str, Tensor]  # by attack, the same as it left them, successful or not; may be empty
    success: Mapping[str, Tensor]  # by attack, bool (N,): where it succeeded
    labels: Tensor  # int64 (N,), the true classes
    ids: tuple[str, ...]  # source image of each row, unique
    noise_levels: Mapping[str, float]  # standard deviation of each noise, in pixel values, by the names of noisy
    counts: Counts  # steps with the number of images left after each; the last count is N
    seed: int  # of the draws that made the examples
    options: Mapping[str, Any] = field(default_factory=dict)  # what else they were made with, as JSON can hold it
    # float32 (M, C, H, W): clean images that were given and make no row, such as misclassified ones. Clean images to
    # come are like both together. None if they are unknown.
    left_out: Tensor | None = None

    def __post_init__(self) -> None:
        for name in (*GROUPS, "noise_levels"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        object.__setattr__(self, "ids", tuple(self.ids))
        object.__setattr__(self, "options", MappingProxyType(check_json("options", dict(self.options))))
        object.__setattr__(self, "counts", _checked_counts(self.counts))
        self._check_names()
        self._check_tensors()
        check_ids(self.ids, len(self), "examples")
        check_seed(self.seed)
        for name, level in self.noise_levels.items():
            check_number(f"noise_levels[{name!r}]", level, least=0)
        if not self.counts or self.counts[-1][1] != len(self):
            end = f"end with {self.counts[-1]}" if self.counts else "are empty"
            raise InputError(f"counts {end}; the last step must leave the {len(self)} images that are held")

    def _check_names(self) -> None:
        for one, other in (("noisy", "noise_levels"), ("adversarial", "success")):
            first, second = getattr(self, one), getattr(self, other)
            if first.keys() != second.keys():
                raise InputError(f"{one} has {', '.join(first) or 'none'} and {other} {', '.join(second) or 'none'}")
        kinds = ("clean", *self.noisy, *self.adversarial)
        if len(set(kinds)) < len(kinds):
            raise InputError(f"kinds of images are called {', '.join(kinds)}; each needs a name of its own")

    def _check_tensors(self) -> None:
        named = {"clean": self.clean, "labels": self.labels}
        if self.left_out is not None:
            named["left_out"] = self.left_out
        named |= {f"{group}[{name!r}]": tensor for group in GROUPS for name, tensor in getattr(self, group).items()}
        for name, tensor in named.items():
            dtype = DTYPES.get(name.partition("[")[0], torch.float32)
            if not isinstance(tensor, Tensor) or tensor.dtype != dtype:
                kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
                raise InputError(f"{name} is {kind}; it must be a tensor of {dtype}")
            if dtype == torch.float32:
                self._check_images(name, tensor)
            elif tensor.shape != (len(self),):
                raise InputError(f"{name} has shape {tuple(tensor.shape)}; it must be ({len(self)},), one per image")
        if self.labels.min() < 0:
            raise InputError(f"label {int(self.labels.min())} is unknown; labels count classes from 0")

    def _check_images(self, name: str, images: Tensor) -> None:
        count = len(images) if name == "left_out" else len(self)
        if images.ndim != 4 or images.shape != (count, *self.clean.shape[1:]) or self.clean.numel() == 0:
            problem = f"{name} has shape {tuple(images.shape)} and clean {tuple(self.clean.shape)}"
            raise ImageError(f"{problem}; all must have the same (N, C, H, W), none of these 0")
        bad = (~images.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
        if bad:
            raise ImageError(f"{name} holds NaN or infinity in the rows {bad[:5]}; every pixel must be a number")

    def __len__(self) -> int:
        return len(self.clean)

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.clean.shape))
        successes = ", ".join(f"{attack} {int(mask.sum())}/{len(self)}" for attack, mask in self.success.items())
        levels = ", ".join(f"{name} {level:.4g}" for name, level in self.noise_levels.items())
        return f"Examples({shape}, succeeded: {successes or 'none'}, noise: {levels or 'none'}, seed={self.seed})"

    @property
    def attacks(self) -> tuple[str, ...]:
        """Names of the attacks."""
        return tuple(self.adversarial)

    def parts(self) -> Iterator[ExamplePart]:
        """Yields clean and noisy images, and each attack's where it succeeded, with their kind."""
        for kind, images in {"clean": self.clean, **self.noisy}.items():
            yield ExamplePart(kind, LabelledImages(images, self.labels, self.ids), adversarial=False)
        for attack, images in self.adversarial.items():
            rows = self.success[attack].nonzero().flatten()
            if len(rows):
                yield ExamplePart(attack, LabelledImages(images, self.labels, self.ids).take(rows), adversarial=True)

    def take(self, indices: ArrayLike, step: str = "taken") -> "Examples":
        """Returns some of the rows; step is what counts call the selection. Images that make no row all stay."""
        rows = torch.from_numpy(checked_indices(indices, len(self)))
        fields: dict[str, Any] = {
            group: {name: tensor[rows] for name, tensor in getattr(self, group).items()} for group in GROUPS
        }
        ids, counts = tuple(self.ids[row] for row in rows.tolist()), (*self.counts, (step, len(rows)))
        return replace(self, clean=self.clean[rows], labels=self.labels[rows], ids=ids, counts=counts, **fields)

    def for_attack(self, attack: str) -> "Examples":
        """Returns the rows in which one attack succeeded, with that attack only."""
        check_choice("attack", attack, self.attacks)
        rows = self.success[attack].nonzero().flatten()
        if not len(rows):
            raise InputError(f"{attack} succeeded on none of {len(self)} images; give it more steps or a larger budget")
        alone = replace(self, adversarial={attack: self.adversarial[attack]}, success={attack: self.success[attack]})
        return alone.take(rows.cpu(), f"{attack} succeeded")

    def save(self, path: FilePath) -> None:
        """Writes everything to one safetensors file, whole or not at all."""
        groups = {
            f"{key}/{name}": tensor for group, key in GROUPS.items() for name, tensor in getattr(self, group).items()
        }
        tensors = {"clean": self.clean, "labels": self.labels, **groups}
        if self.left_out is not None:
            tensors["left_out"] = self.left_out
        manifest = {
            "attacks": self.attacks,
            "ids": self.ids,
            "noise_levels": dict(self.noise_levels),
            "funnel": self.counts,
            "seed": self.seed,
            "options": dict(self.options),
        }
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
        artifact.write(path, KIND, SCHEMA, manifest, arrays)

    @classmethod
    def load(cls, path: FilePath) -> "Examples":
        """Returns the examples in a file that save wrote, or raises StoreError."""
        manifest, arrays = artifact.read(path, KIND, SCHEMA)
        try:
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            fields = {name: manifest[name] for name in ("noise_levels", "seed", "options", "ids")}
            fields |= {name: tensors.pop(name) for name in ("clean", "labels")}
            fields["left_out"] = tensors.pop("left_out", None)
            for group, key in GROUPS.items():
                names = manifest["noise_levels"] if group == "noisy" else manifest["attacks"]
                fields[group] = {name: tensors.pop(f"{key}/{name}") for name in names}
            if tensors:
                raise InputError(f"it holds arrays that belong to nothing: {', '.join(sorted(tensors))}")
            return cls(**fields, counts=manifest["funnel"])
        except (AttributeError, InputError, KeyError, TypeError, ValueError) as error:
            problem = f"its manifest and its arrays do not fit ({error})"
            raise StoreError(f"{path}: {problem}; make the examples again") from error


def _checked_counts(counts: Sequence[tuple[str, int]]) -> Counts:
    """Counts as pairs of text and whole number, or InputError if a count rises."""
    pairs = [(str(name), check_whole(f"count of {name!r}", count, least=0)) for name, count in counts]
    for (_, before), (name, count) in pairwise(pairs):
        if count > before:
            problem = f"{count} images are left after {name!r} and {before} before"
            raise InputError(f"{problem}; a step can only remove images")
    return tuple(pairs)
