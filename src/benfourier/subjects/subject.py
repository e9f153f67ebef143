"""A classifier under observation: the module, and what its images look like."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from benfourier.data.resize import RULES
from benfourier.errors import ImageError, OptionError, SubjectError, check_choice, check_whole
from benfourier.subjects.hearing import at_rest, logits_of
from benfourier.subjects.plan import Layer, Plan, make_plan, parts_of
from benfourier.subjects.selection import Selection, select


@dataclass(frozen=True, eq=False)
class Subject:
    """Any torch.nn.Module classifier, used in eval mode and left exactly as found.

    Args:
        module: maps images (N, C, H, W) to logits (N, classes), or to an output with `.logits`.
        bounds: least and greatest pixel value of the images.
        mean: per channel, subtracted from images before the module sees them.
        std: per channel, divides images before the module sees them.
        classes: class names, in the order of the logits.
        size: height and width of the images, or one number for both.
        channels: number of channels of the images.
        resize: how image files become tensors: "exact" refuses other sizes, "shorter-side-crop" scales the shorter
            side and crops the centre, "stretch" scales both sides. Files of the right size are never resampled.
    """

    module: nn.Module
    bounds: tuple[float, float] = (0.0, 1.0)
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    classes: Sequence[str] | None = None
    size: int | tuple[int, int] | None = None
    channels: int | None = None
    resize: str = "exact"
    _plans: dict[tuple[Any, ...], Plan] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.module, nn.Module):
            raise SubjectError(f"module is a {type(self.module).__name__}; it must be a torch.nn.Module")
        check_choice("resize", self.resize, RULES)
        bounds = _finite(self.bounds)
        if len(bounds) != 2 or not bounds[0] < bounds[1]:
            raise OptionError(f"bounds are {self.bounds!r}; they must be two finite numbers, the lower one first")
        object.__setattr__(self, "bounds", bounds)
        if self.channels is not None:
            check_whole("channels", self.channels)
        if isinstance(self.size, tuple | list) and len(self.size) != 2:
            raise OptionError(f"size is {self.size}; it must be one whole number, or height and width")
        for side in self.height_width or ():
            check_whole("size", side)
        self._check_scaling()

    def _check_scaling(self) -> None:
        for name, given in (("mean", self.mean), ("std", self.std)):
            values = _finite(given)
            if given is not None and (not values or (name == "std" and min(values) <= 0)):
                raise OptionError(f"{name} is {given!r}; it must be finite numbers, one per channel, and std positive")
            object.__setattr__(self, name, values or None)
        for name, count in (("mean", len(self.mean or ())), ("std", len(self.std or ()))):
            if count > 1 and count != self.known_channels:
                raise OptionError(f"{name} has {count} values for {self.known_channels} channels")

    @property
    def height_width(self) -> tuple[int, int] | None:
        """Height and width of the images, or None if they were not given."""
        if self.size is None:
            return None
        return (self.size[0], self.size[1]) if isinstance(self.size, tuple | list) else (self.size, self.size)

    @property
    def known_channels(self) -> int | None:
        """Number of channels as given, or as mean and std have values, or None if neither tells."""
        scaling = (len(values) for values in (self.mean, self.std) if values is not None and len(values) > 1)
        return self.channels or next(scaling, None)

    def logits(self, images: Tensor) -> Tensor:
        """Returns the module's logits (N, classes) for images (N, C, H, W) in bounds."""
        self.check(images)
        entering = self.normalise(images.to(self.device, self.dtype)).clone()  # the module may write into them
        with at_rest(self.module):
            return logits_of(self.module(entering), len(images))

    def layers(self, layers: Selection = None, *, pass_through: bool = False) -> list[str]:
        """Returns the names of the layers that a tap listens to, in firing order.

        Args:
            layers: names, globs such as "features.*", or types such as nn.Conv2d or "type:Conv2d"; None for all.
            pass_through: also those that only pass numbers on in eval mode (Dropout, Identity, Flatten).
        """
        return [layer.name for layer in self.describe(layers, pass_through=pass_through)]

    def describe(self, layers: Selection = None, *, pass_through: bool = False) -> tuple[Layer, ...]:
        """Returns the same layers as records: name, kind, and number of entries per image."""
        return select(self.plan().layers, layers, pass_through=pass_through)

    def unheard(self) -> tuple[str, ...]:
        """Returns the operations that no tap can listen to in this module, usually none."""
        return self.plan().unheard

    def plan(self, shape: tuple[int, ...] | None = None) -> Plan:
        """Returns what fires, in order, for images of the given (C, H, W); found by one trial forward pass."""
        shapes = [tuple(shape)] if shape else self._likely_shapes()
        now = (self.device, self.dtype, parts_of(self.module))
        known = {s: plan for (s, *kind), plan in tuple(self._plans.items()) if tuple(kind) == now}
        for s in shapes if shape or self.size else [*shapes, *known]:
            if s in known:
                return known[s]
        failure: Exception | None = None
        for s in shapes:
            try:
                plan = make_plan(self, s)
            except (RuntimeError, ValueError, IndexError, TypeError) as error:
                failure = error
                continue
            for key in [key for key in tuple(self._plans) if key[-1] != now[-1]]:
                self._plans.pop(key, None)  # made for parts that are gone
            return self._plans.setdefault((s, *now), plan)
        raise SubjectError(
            f"the module cannot be run on images of shape {' or '.join(map(str, shapes))}: {failure}; "
            "give the Subject its size= and channels="
        ) from failure

    def _likely_shapes(self) -> list[tuple[int, ...]]:
        """Image shapes (C, H, W) worth a trial: the one given, or common ones. Layer names do not depend on them."""
        channels = self.known_channels or _first_channels(self.module)
        sides = [self.height_width] if self.height_width else [(n, n) for n in (32, 28, 224, 64, 96, 128, 299, 8)]
        return [(c, *side) for side in sides for c in ([channels] if channels else [3, 1])]

    @property
    def device(self) -> torch.device:
        """The device of the module's first parameter, or the CPU."""
        return next((p.device for p in self.module.parameters()), torch.device("cpu"))

    @property
    def dtype(self) -> torch.dtype:
        """The floating dtype of the module's first parameter, or float32."""
        return next((p.dtype for p in self.module.parameters() if p.is_floating_point()), torch.float32)

    def normalise(self, images: Tensor) -> Tensor:
        """Returns images less mean, divided by std."""
        for values, apply in ((self.mean, torch.sub), (self.std, torch.div)):
            if values is not None:
                images = apply(images, images.new_tensor(list(values)).view(1, -1, 1, 1))
        return images

    def check(self, images: Tensor) -> None:
        """Raises ImageError unless images are a floating tensor (N, C, H, W), N ≥ 1, within bounds."""
        if not isinstance(images, Tensor) or not images.is_floating_point():
            kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
            raise ImageError(
                f"images are {kind}; they must be a floating tensor with values in {self.bounds} "
                "(8-bit images go through benfourier.images)"
            )
        if images.ndim != 4 or images.numel() == 0:
            raise ImageError(
                f"images have shape {tuple(images.shape)}; it must be (N, C, H, W) with each of at least 1 "
                "(add a first dimension to a single image)"
            )
        for name, want, have in (
            ("channels", self.known_channels, images.shape[1]),
            ("size", self.height_width, tuple(images.shape[2:])),
        ):
            if want is not None and want != have:
                raise ImageError(f"images have {name} {have}; this subject takes {want}")
        self._check_bounds(images.detach())

    def _check_bounds(self, images: Tensor) -> None:
        least, greatest = (float(v) for v in images.aminmax())
        if math.isnan(least) or math.isnan(greatest):
            bad = images.isnan().flatten(1).any(1).nonzero().flatten().tolist()
            raise ImageError(f"images {bad[:5]} contain NaN; every pixel must be a number in {self.bounds}")
        low, high = self.bounds
        slack = 1e-6 * (high - low)
        if least < low - slack or greatest > high + slack:
            raise ImageError(
                f"images have values from {least:.6g} to {greatest:.6g}; the subject's bounds are {self.bounds}: "
                "scale the images, or give the Subject other bounds"
            )


def check_wrapped(given: object) -> None:
    """Raises SubjectError unless a caller passed a Subject."""
    if not isinstance(given, Subject):
        wrap = "; wrap the module: Subject(module)" if isinstance(given, nn.Module) else "; it must be a Subject"
        raise SubjectError(f"subject is a {type(given).__name__}{wrap}")


def _finite(values: Any) -> tuple[float, ...]:
    """The values as floats; none if they are not a sequence of finite numbers."""
    try:
        found = () if isinstance(values, str) else tuple(float(v) for v in values)
    except (TypeError, ValueError):
        return ()
    return found if all(map(math.isfinite, found)) else ()


def _first_channels(module: nn.Module) -> int | None:
    """Number of input channels of the first convolution, if the module begins with one."""
    for m in module.modules():
        if isinstance(m, nn.Conv2d):
            return m.in_channels
        if isinstance(m, nn.Linear):
            return None
    return None
