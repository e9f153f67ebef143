"""Clean images with their noisy and adversarial twins: what detectors are fitted to and measured on."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from types import MappingProxyType
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from benfourier.data.funnel import Funnel
from benfourier.data.source import check_unique, checked_indices
from benfourier.errors import ImageError, InputError, OptionError, StoreError, check_choice, check_seed
from benfourier.store import artifact

KIND = "benfourier-examples"
SCHEMA = 1
GROUPS = ("attacked", "success")


@dataclass(frozen=True, eq=False)
class Examples:
    """N source images, row by row: clean, with noise, and as each attack left them.

    Args:
        clean: float32 (N, C, H, W).
        noisy: the same with Gaussian noise.
        attacked: by attack, the same as that attack left them, whether it succeeded or not.
        success: by attack, bool (N,): where it succeeded.
        labels: int64 (N,), the true classes.
        ids: source image of each row, unique.
        noise_level: standard deviation of the noise, in pixel values.
        funnel: how many images were left after each step; the last count is N.
        seed: of the draws that made the examples.
        options: what else they were made with, as JSON can hold it.
    """

    clean: Tensor
    noisy: Tensor
    attacked: Mapping[str, Tensor]
    success: Mapping[str, Tensor]
    labels: Tensor
    ids: tuple[str, ...]
    noise_level: float
    funnel: Funnel
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("attacked", "success"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        object.__setattr__(self, "ids", tuple(self.ids))
        object.__setattr__(self, "options", _as_json(self.options))
        self._check_images()
        self._check_rows()
        check_unique(self.ids, "examples")
        check_seed(self.seed)
        if not (math.isfinite(self.noise_level) and self.noise_level >= 0):
            raise OptionError(f"noise_level is {self.noise_level!r}; it must be a finite number of at least 0")
        if not self.funnel.steps or self.funnel.steps[-1][1] != len(self):
            told = f"ends with {self.funnel.steps[-1]}" if self.funnel.steps else "is empty"
            raise InputError(f"the funnel {told}; its last step must leave the {len(self)} images that are held")

    def _check_images(self) -> None:
        if not self.attacked:
            raise InputError("attacked is empty; there must be at least one attack")
        named = {f"attacked[{attack!r}]": images for attack, images in self.attacked.items()}
        for name, images in {"clean": self.clean, "noisy": self.noisy, **named}.items():
            _check_tensor(name, images, torch.float32)
            if images.ndim != 4 or images.shape != self.clean.shape or images.numel() == 0:
                raise ImageError(
                    f"{name} has shape {tuple(images.shape)} and clean {tuple(self.clean.shape)}; "
                    "all must have the same (N, C, H, W), none of these 0"
                )
            if not images.isfinite().all():
                bad = (~images.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
                raise ImageError(f"{name} holds NaN or infinity in the rows {bad[:5]}; every pixel must be a number")

    def _check_rows(self) -> None:
        if self.attacked.keys() != self.success.keys():
            raise InputError(f"attacked has {', '.join(self.attacked)} and success {', '.join(self.success) or 'none'}")
        masks = {f"success[{attack!r}]": mask for attack, mask in self.success.items()}
        for name, rows in {"labels": self.labels, **masks}.items():
            _check_tensor(name, rows, torch.int64 if name == "labels" else torch.bool)
            if rows.shape != (len(self.clean),):
                raise InputError(
                    f"{name} has shape {tuple(rows.shape)}; it must be ({len(self.clean)},), one per image"
                )
        if len(self.ids) != len(self.clean):
            raise InputError(f"there are {len(self.clean)} images and {len(self.ids)} ids; each image needs one id")
        if self.labels.min() < 0:
            raise InputError(f"label {int(self.labels.min())} is unknown; labels count classes from 0")

    def __len__(self) -> int:
        return len(self.clean)

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.clean.shape))
        won = ", ".join(f"{attack} {int(mask.sum())}/{len(self)}" for attack, mask in self.success.items())
        return f"Examples({shape}, succeeded: {won}, noise_level={self.noise_level:.4g}, seed={self.seed})"

    @property
    def attacks(self) -> tuple[str, ...]:
        """Names of the attacks."""
        return tuple(self.attacked)

    @property
    def adversarial(self) -> Tensor:
        """The images of the one attack, (N, C, H, W); with several attacks, for_attack says which."""
        if len(self.attacked) > 1:
            raise OptionError(
                f"these examples hold the attacks {', '.join(self.attacks)}; take one with for_attack(name)"
            )
        return self.attacked[self.attacks[0]]

    def take(self, indices: ArrayLike, step: str = "taken") -> "Examples":
        """Returns some of the rows; the funnel names the step by which the others fell."""
        rows = torch.from_numpy(checked_indices(indices, len(self)))
        return replace(
            self,
            clean=self.clean[rows],
            noisy=self.noisy[rows],
            attacked={attack: images[rows] for attack, images in self.attacked.items()},
            success={attack: mask[rows] for attack, mask in self.success.items()},
            labels=self.labels[rows],
            ids=tuple(self.ids[row] for row in rows.tolist()),
            funnel=self.funnel.then(step, len(rows)),
        )

    def for_attack(self, attack: str) -> "Examples":
        """Returns the rows in which one attack succeeded, with that attack only."""
        check_choice("attack", attack, self.attacks)
        rows = self.success[attack].nonzero().flatten()
        if not len(rows):
            raise InputError(f"{attack} succeeded on none of {len(self)} images; give it more steps or a larger budget")
        alone = replace(self, attacked={attack: self.attacked[attack]}, success={attack: self.success[attack]})
        return alone.take(rows.cpu(), f"{attack} succeeded")

    def save(self, path: str | PathLike[str]) -> None:
        """Writes everything to one safetensors file, whole or not at all."""
        plain = {"clean": self.clean, "noisy": self.noisy, "labels": self.labels}
        grouped = {f"{group}/{name}": rows for group in GROUPS for name, rows in getattr(self, group).items()}
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in {**plain, **grouped}.items()}
        manifest = {
            "attacks": self.attacks,
            "ids": self.ids,
            "noise_level": self.noise_level,
            "funnel": self.funnel.steps,
            "seed": self.seed,
            "options": dict(self.options),
        }
        artifact.write(path, KIND, SCHEMA, manifest, arrays)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Examples":
        """Returns the examples in a file that save wrote, or raises StoreError."""
        manifest, arrays = artifact.read(path, KIND, SCHEMA)
        held = {name: torch.from_numpy(array) for name, array in arrays.items()}
        try:
            given = {name: manifest[name] for name in ("noise_level", "seed", "options", "ids")}
            given |= {name: held[name] for name in ("clean", "noisy", "labels")}
            given |= {group: {name: held[f"{group}/{name}"] for name in manifest["attacks"]} for group in GROUPS}
            return cls(**given, funnel=Funnel(tuple((name, count) for name, count in manifest["funnel"])))
        except (InputError, KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{path}: its manifest and its arrays do not fit ({error}); make it again") from error


def _check_tensor(name: str, value: Any, dtype: torch.dtype) -> None:
    if not isinstance(value, Tensor) or value.dtype != dtype:
        kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise InputError(f"{name} is {kind}; it must be a tensor of {dtype}")


def _as_json(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options as they come back from a file: tuples as lists, all keys text."""
    try:
        return MappingProxyType(json.loads(json.dumps(dict(options), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"options cannot be written as JSON ({error}); use text, numbers, lists and mappings"
        ) from error
