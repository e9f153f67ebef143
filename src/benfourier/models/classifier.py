"""A classifier: the module, and the format of its images."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from benfourier.data.image_files import check_size, parse_rule
from benfourier.data.open_source import open_source
from benfourier.data.sources import Source
from benfourier.errors import ClassifierError, ImageError, OptionError, check_whole
from benfourier.models.device import check_device
from benfourier.models.image_formats import preset_options, processor_options, timm_options
from benfourier.models.layers import TRIAL, Layer, LayerList, LayerSelection, find_layers, select_layers
from benfourier.models.module import bare_module, eval_mode, logits_of

CACHE = 64  # layer lists that a classifier holds, one for each shape, device and dtype
UNKNOWN_SHAPE = "the shape of the images is unknown; give the Classifier its size= and channels="


@dataclass(frozen=True, eq=False, init=False)
class Classifier:
    """Any torch.nn.Module classifier, used in eval mode and left exactly as it was.

    Args:
        module: Maps images (N, C, H, W) to logits (N, classes), or to an output with `.logits`. What torch.compile,
            DataParallel or DistributedDataParallel wrap around it is taken off.
        bounds: Least and greatest pixel value of the images.
        mean: Per channel, subtracted from images before the module sees them.
        std: Per channel, divides images before the module sees them.
        classes: Class names, in the order of the logits.
        size: Height and width of the images, or one number for both.
        channels: Number of channels of the images; by default as many as mean or std have values.
        resize: How image files become tensors: "exact" refuses other sizes, "shorter-side-crop" scales the shorter
            side and crops the centre, "stretch" scales both sides. The last two may name the side to scale to before
            the centre is cut out, and a filter: "shorter-side-crop:256:bicubic". Files of the right size are never
            resampled.
    """

    module: nn.Module
    bounds: tuple[float, float]
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    classes: Sequence[str] | None
    size: tuple[int, int] | None
    channels: int | None
    resize: str
    _layer_lists: dict[tuple[Any, ...], LayerList] = field(init=False, repr=False)

    def __init__(
        self,
        module: nn.Module,
        bounds: Sequence[float] = (0.0, 1.0),
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        classes: Sequence[str] | None = None,
        size: int | Sequence[int] | None = None,
        channels: int | None = None,
        resize: str = "exact",
    ) -> None:
        if not isinstance(module, nn.Module):
            raise ClassifierError(f"module is a {type(module).__name__}; it must be a torch.nn.Module")
        limits = _finite(bounds)
        if len(limits) != 2 or not limits[0] < limits[1]:
            raise OptionError(f"bounds are {bounds!r}; they must be two finite numbers, the lower one first", "bounds")
        if channels is not None:
            check_whole("channels", channels)
        scaling = {"mean": _scaling("mean", mean), "std": _scaling("std", std)}
        counts = {name: len(values) for name, values in scaling.items() if values is not None and len(values) > 1}
        channels, sides = channels or next(iter(counts.values()), None), check_size(size)
        parse_rule(resize, sides)
        for name, count in counts.items():
            if count != channels:
                raise OptionError(f"{name} has {count} values for {channels} channels", name)
        values: dict[str, Any] = {"module": bare_module(module), "bounds": limits, **scaling, "classes": classes}
        values |= {"size": sides, "channels": channels, "resize": resize, "_layer_lists": {}}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_huggingface(cls, model: nn.Module, processor: Any, **options: Any) -> Self:
        """Returns the classifier of an image classification model of transformers and its image processor.

        Args:
            model: Its config names channels and classes.
            processor: Says how a picture enters the model, which is tried on one; if the options of a Classifier cannot
                say the same, it is an InputError.
            options: Of a Classifier, instead of those that model and processor state.
        """
        config = getattr(bare_module(model), "config", None)
        return cls(model, **{**processor_options(config, processor), **options})

    @classmethod
    def from_torchvision(cls, model: nn.Module, weights: Any, **options: Any) -> Self:
        """Returns the classifier of a model of torchvision, with the images and classes of its weights.

        Args:
            model: Made with these weights.
            weights: Such as `ResNet50_Weights.DEFAULT`.
            options: Of a Classifier, instead of those that the weights state: classes of a model with another head.
        """
        return cls(model, **{**preset_options(weights), **options})

    @classmethod
    def from_timm(cls, model: nn.Module, **options: Any) -> Self:
        """Returns the classifier of a model of timm, with the images and classes that its `pretrained_cfg` states.

        Args:
            model: From `timm.create_model`.
            options: Of a Classifier, instead of those.
        """
        return cls(model, **{**timm_options(bare_module(model)), **options})

    def to(self, device: str | torch.device) -> Self:
        """Returns the classifier itself, with its module moved to a device, "cpu" or "cuda:0": it runs there then."""
        self.module.to(check_device(device))
        return self

    def logits(self, images: Tensor) -> Tensor:
        """Returns the module's logits (N, classes) for images (N, C, H, W) in bounds."""
        self.check_images(images)
        with eval_mode(self.module):
            return logits_of(self.module(self.prepare(images)), len(images))

    def layer_names(self, layers: LayerSelection = None, *, pass_through: bool = False) -> list[str]:
        """Returns the names of the layers that can be observed, in firing order.

        Args:
            layers: Names, globs such as "features.*", or types such as nn.Conv2d or "type:Conv2d"; None for all.
            pass_through: Also those that only pass numbers on in eval mode (Dropout, Identity, Flatten).
        """
        return [layer.name for layer in self.layers(layers, pass_through=pass_through)]

    def layers(self, layers: LayerSelection = None, *, pass_through: bool = False) -> tuple[Layer, ...]:
        """Returns the same layers as records: name, kind, and number of entries per image."""
        return select_layers(self.layer_list().layers, layers, pass_through=pass_through)

    def unobserved(self) -> tuple[str, ...]:
        """Returns the layers of this module that cannot be observed, usually none."""
        return self.layer_list().unobserved

    def layer_list(self, shape: Sequence[int] | None = None) -> LayerList:
        """Returns what fires, in order, for images of shape (C, H, W); found by trial passes, once for each shape.

        The shape is by default the classifier's own, or else that of the images seen last.
        """
        lists, now = self._layer_lists, (self.device, self.dtype)
        own = self._own_shape(shape) or next((key[0] for key in reversed(tuple(lists)) if key[1:] == now), None)
        if own is None:
            raise ClassifierError(f"{UNKNOWN_SHAPE}, or let it see images first")
        if (own, *now) not in lists:
            try:
                layer_list = find_layers(self.module, self.prepare(self.noise(TRIAL, own)))
            except (RuntimeError, ValueError, IndexError, TypeError) as error:
                problem = f"the module cannot be run on images of shape {own}: {error}"
                raise ClassifierError(f"{problem}; give the Classifier its size= and channels=") from error
            lists[(own, *now)] = layer_list
            for key in list(lists)[:-CACHE]:
                lists.pop(key, None)
        return lists[(own, *now)]

    def leave_out(self, shape: Sequence[int], names: Sequence[str]) -> None:
        """Takes layers out of the list for images of shape (C, H, W), so that no detector observes them."""
        layer_list = self.layer_list(shape)
        steady = tuple(layer for layer in layer_list.layers if layer.name not in names)
        self._layer_lists[(tuple(shape), self.device, self.dtype)] = replace(layer_list, layers=steady)

    def _own_shape(self, shape: Sequence[int] | None) -> tuple[int, ...] | None:
        """The shape, or else the classifier's own (C, H, W); None if it is unknown."""
        if shape is not None:
            return tuple(shape)
        channels = self.channels or self._first_channels()
        return (channels, *self.size) if channels and self.size else None

    def _first_channels(self) -> int | None:
        """Channels that the module's first layer takes, if it is a convolution."""
        first = next((part for part in self.module.modules() if isinstance(part, nn.Conv2d | nn.Linear)), None)
        return first.in_channels if isinstance(first, nn.Conv2d) else None

    @property
    def picture_channels(self) -> int | None:
        """Channels that pictures are converted to: 1 for grey, 3 for colour; None if neither options nor module say."""
        first = self._first_channels()
        return self.channels or (first if first in (1, 3) else None)

    def noise(self, count: int, shape: Sequence[int] | None = None, seed: int = 0) -> Tensor:
        """Returns uniform noise within bounds, (count, C, H, W) on the CPU, by default in the classifier's shape."""
        own = self._own_shape(shape)
        if own is None:
            raise ClassifierError(UNKNOWN_SHAPE)
        low, high = self.bounds
        return low + (high - low) * torch.rand(count, *own, generator=torch.Generator().manual_seed(seed))

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

    def prepare(self, images: Tensor, memory_format: torch.memory_format = torch.preserve_format) -> Tensor:
        """Returns a copy of the images as they enter the module, which may write into it."""
        return self.normalise(images.to(self.device, self.dtype)).clone(memory_format=memory_format)

    def check_images(self, images: Tensor) -> None:
        """Raises ImageError unless images are a floating tensor (N, C, H, W), N ≥ 1, within bounds."""
        if not isinstance(images, Tensor) or not images.is_floating_point():
            kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
            problem = f"images are {kind}; they must be a floating tensor with values in {self.bounds}"
            raise ImageError(f"{problem} (8-bit images go through benfourier.load_images)")
        if images.ndim != 4 or images.numel() == 0:
            problem = f"images have shape {tuple(images.shape)}; it must be (N, C, H, W) with each of at least 1"
            raise ImageError(f"{problem} (add a first dimension to a single image)")
        channels, size = images.shape[1], tuple(images.shape[2:])
        if self.channels not in (None, channels):
            raise ImageError(f"images have channels {channels}; this classifier takes {self.channels}")
        if self.size not in (None, size):
            raise ImageError(f"images have size {size}; this classifier takes {self.size}")
        least, greatest = float(images.detach().amin()), float(images.detach().amax())
        if math.isnan(least) or math.isnan(greatest):
            bad = images.isnan().flatten(1).any(1).nonzero().flatten().tolist()
            raise ImageError(f"images {bad[:5]} contain NaN; every pixel must be a number in {self.bounds}")
        slack = 1e-6 * (self.bounds[1] - self.bounds[0])
        if least < self.bounds[0] - slack or greatest > self.bounds[1] + slack:
            problem = f"images have values from {least:.6g} to {greatest:.6g}"
            advice = "scale the images, or give the Classifier other bounds"
            raise ImageError(f"{problem}; the classifier's bounds are {self.bounds}: {advice}")

    def open_source(self, data: str, *, own_classes: bool = True) -> Source:
        """Returns the source that a word names; images of a folder are read in this classifier's format.

        With own_classes, labels of a folder follow this classifier's class names, if it has some.
        """
        classes = self.classes if own_classes else None
        return open_source(
            data, classes=classes, channels=self.picture_channels or 3, size=self.size, resize=self.resize
        )


def check_classifier(value: object) -> None:
    """Raises ClassifierError unless a caller passed a Classifier."""
    if not isinstance(value, Classifier):
        wrap = "; wrap the module: Classifier(module)" if isinstance(value, nn.Module) else "; it must be a Classifier"
        raise ClassifierError(f"classifier is a {type(value).__name__}{wrap}")


def _finite(values: Any) -> tuple[float, ...]:
    """The values as floats; none if they are not a sequence of finite numbers."""
    try:
        numbers = () if isinstance(values, str) else tuple(float(v) for v in values)
    except (TypeError, ValueError):
        return ()
    return numbers if all(map(math.isfinite, numbers)) else ()


def _scaling(name: str, values: Any) -> tuple[float, ...] | None:
    numbers = _finite(values)
    if values is not None and (not numbers or (name == "std" and min(numbers) <= 0)):
        raise OptionError(f"{name} is {values!r}; it must be finite numbers, one per channel, and std positive", name)
    return numbers or None
