"""The format of a network's images: what says it, and how transformers, torchvision and timm record it.

None of them is imported; a record that says something else is an InputError.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from benfourier.data.image_files import check_size, resize
from benfourier.errors import InputError

IMAGE_OPTIONS = ("bounds", "mean", "std", "size", "channels", "resize")  # of a Classifier: how images enter it
LEVEL = 1.0  # of 255: a processor may differ by so much on average, since libraries round resampled pixels differently
STRETCH_FROM = 384  # processors with a crop_pct stretch images to sides from here on, and crop those below
TRIAL_SIZE = (48, 48)  # of the trial picture for a processor that takes every size
ADVICE = "make the Classifier from bounds, mean, std, size and resize yourself"


def processor_options(config: Any, processor: Any) -> dict[str, Any]:
    """Returns the options of a Classifier for a model's config and image processor of transformers."""
    scale = float(processor.rescale_factor) if getattr(processor, "do_rescale", False) else 1.0
    size, rule = _processor_resize(processor)
    normalises = getattr(processor, "do_normalize", False)
    options = {
        "bounds": (0.0, round(255 * scale, 9)),  # 255 times the usual factor is 1 but for rounding
        "mean": _numbers(processor.image_mean) if normalises else None,
        "std": _numbers(processor.image_std) if normalises else None,
        "size": check_size(getattr(config, "image_size", None)) if size is None else size,
        "channels": getattr(config, "num_channels", None),
        "resize": rule,
        "classes": _class_names(getattr(config, "id2label", None)),
    }
    _check_agreement(processor, options)
    return options


def preset_options(weights: Any) -> dict[str, Any]:
    """Returns the options of a Classifier for weights of torchvision, which name their transforms and categories."""
    preset, categories = weights.transforms(), weights.meta.get("categories")
    for name in ("crop_size", "resize_size", "mean", "std", "interpolation"):
        if not hasattr(preset, name):
            raise InputError(f"the weights' transforms have no {name}; allowed: those of image classifiers; {ADVICE}")
    crop, side = _numbers(preset.crop_size), _numbers(preset.resize_size)
    if len(side) != 1:
        raise InputError(f"the weights' transforms have resize_size {preset.resize_size}; it must be one; {ADVICE}")
    return {
        "mean": _numbers(preset.mean),
        "std": _numbers(preset.std),
        "size": check_size([int(number) for number in (crop * 2)[:2]]),
        "resize": f"shorter-side-crop:{int(side[0])}:{_filter_name(preset.interpolation)}",
        "classes": None if categories is None else list(categories),
    }


def timm_options(model: Any) -> dict[str, Any]:
    """Returns the options of a Classifier for a model of timm, whose `pretrained_cfg` says what it takes."""
    record = getattr(model, "pretrained_cfg", None)
    if record is None:
        raise InputError(f"{type(model).__name__} has no pretrained_cfg, which models of timm have; {ADVICE}")
    config: Mapping[str, Any] = record if isinstance(record, Mapping) else vars(record)
    channels, height, width = config["input_size"]
    mode, share = config.get("crop_mode", "center"), config.get("crop_pct") or 0.875  # timm's own defaults
    way = {"center": "shorter-side-crop", "squash": "stretch"}.get(mode)
    if way is None or height != width:
        problem = f"its pretrained_cfg has crop_mode {mode!r} and input_size {config['input_size']}"
        raise InputError(f"{problem}; allowed: center and squash, with square images; {ADVICE}")
    names = config.get("label_names")
    return {
        "mean": _numbers(config["mean"]),
        "std": _numbers(config["std"]),
        "size": (height, width),
        "channels": channels,
        "resize": f"{way}:{int(height / share)}:{_filter_name(config.get('interpolation', 'bicubic'))}",
        # the names are those of the weights, which a model with another head does not have
        "classes": list(names) if names is not None and len(names) == getattr(model, "num_classes", None) else None,
    }


def _processor_resize(processor: Any) -> tuple[tuple[int, int] | None, str]:
    """Size of the images that leave a processor, None for any, and the resize rule that brings them to it."""
    scales, crops = bool(getattr(processor, "do_resize", False)), bool(getattr(processor, "do_center_crop", False))
    if not scales and not crops:
        return None, "exact"
    sampling = _filter_name(getattr(processor, "resample", None))
    square = bool(getattr(processor, "default_to_square", True))
    sides, crop = _sides(processor.size, square=square), _sides(getattr(processor, "crop_size", None), square=True)
    edge, share = sides.get("shortest_edge"), getattr(processor, "crop_pct", None)
    if scales and sides.keys() == {"height", "width"}:
        height, width = sides["height"], sides["width"]
        if not crops:
            return (height, width), f"stretch:{sampling}"
        if height == width and crop.keys() == {"height", "width"}:
            return (crop["height"], crop["width"]), f"stretch:{height}:{sampling}"
    elif scales and sides.keys() == {"shortest_edge"} and edge is not None:
        if crops and crop.keys() == {"height", "width"}:
            return (crop["height"], crop["width"]), f"shorter-side-crop:{edge}:{sampling}"
        if share and not crops:
            way = "stretch" if edge >= STRETCH_FROM else f"shorter-side-crop:{int(edge / share)}"
            return (edge, edge), f"{way}:{sampling}"
    problem = f"the processor has do_resize {scales}, size {sides}, do_center_crop {crops}, crop_size {crop}"
    raise InputError(f"{problem}, from which images of different shapes come; {ADVICE}")


def _sides(value: Any, *, square: bool) -> dict[str, int]:
    """A size of transformers as its words: height and width, shortest_edge, or others."""
    if value is None:
        return {}
    if isinstance(value, int):
        return {"height": value, "width": value} if square else {"shortest_edge": value}
    if isinstance(value, tuple | list):
        return dict(zip(("height", "width"), value, strict=True))
    return {name: number for name, number in dict(value).items() if number is not None}


def _filter_name(value: Any) -> str:
    """The filter that Pillow's number, torchvision's InterpolationMode or a word names, in lower case."""
    word = getattr(value, "value", value)
    if word is None:
        return "bilinear"
    return {int(each): each.name.lower() for each in Image.Resampling}.get(word, str(word).lower())


def _numbers(value: Any) -> list[float]:
    return [float(number) for number in (value if isinstance(value, Sequence) else [value])]


def _class_names(labels: Any) -> list[str] | None:
    """Class names in the order of the logits; None for a model that has the names LABEL_0, LABEL_1 and so on."""
    if not labels:
        return None
    names = {int(place): str(name) for place, name in labels.items()}
    if sorted(names) != list(range(len(names))):
        raise InputError(f"id2label numbers its classes {sorted(names)[:5]} …; they must be 0, 1, 2 and so on")
    in_order = [names[place] for place in range(len(names))]
    return None if in_order == [f"LABEL_{place}" for place in range(len(names))] else in_order


def _check_agreement(processor: Any, options: Mapping[str, Any]) -> None:
    """Raises InputError unless the processor makes of a trial picture what the options say."""
    # Records do not say all that processors do: some turn colours round, shift values, or scale to a size of their own.
    height, width = options["size"] or TRIAL_SIZE
    channels = options["channels"] or max(len(options["mean"] or ()), 3)
    extra = 0 if options["resize"] == "exact" else 1
    shape = (height + extra * (height // 3), width + extra * (width + 1), channels)
    picture = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    low, high = options["bounds"]
    own = low + (high - low) * (resize(picture, (height, width), options["resize"]) / 255.0)
    mean, std = options["mean"] or [0.0], options["std"] or [1.0]
    own = ((own - mean) / std).transpose(2, 0, 1)
    try:
        result = processor(images=Image.fromarray(picture[..., 0] if channels == 1 else picture), return_tensors="pt")
        actual = np.asarray(result["pixel_values"], np.float64)[0]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the processor cannot be run on a trial picture {shape} ({error}); {ADVICE}") from error
    if actual.shape != own.shape:
        raise InputError(f"the processor makes images {actual.shape} where its record says {own.shape}; {ADVICE}")
    levels = float((np.abs(actual - own) * np.reshape(std, (-1, 1, 1))).mean()) * 255 / (high - low)
    if not levels <= LEVEL:
        said = ", ".join(f"{name} {options[name]}" for name in IMAGE_OPTIONS)
        problem = f"the processor makes other images than its record says ({said})"
        raise InputError(f"{problem}, by {levels:.1f} levels of 255 on average; {ADVICE}")
