"""Changes of clean images that no attacker made, which a detector should accept, and images of other kinds.

Those of another kind stand in the place of a clean image and have its size; a guard should reject them as unfamiliar.
"""

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benfourier.data.images import content_ids
from benfourier.data.seeds import image_generator
from benfourier.store.vocabulary import CHANGES

QUALITY = 75  # of JPEG
NOISE = 8 / 255  # largest change of a pixel by noise
BRIGHTER = 1.2
WEIGHTS = (0.25, 0.5, 0.25)  # of a blur, along both sides

Change = Callable[[Tensor, Sequence[torch.Generator]], Tensor]


def change(name: str, images: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Returns images (N, C, H, W) changed, by a name of `CHANGES` or `OTHER_KINDS`; draws belong to the pixels."""
    low, high = bounds
    draws = [image_generator(0, f"{name}\0{content}") for content in content_ids(images)]
    changed = {**_CHANGES, **OTHER_KINDS}[name]((images - low) / (high - low), draws)
    return changed.clamp(0, 1) * (high - low) + low


def _noise(images: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
    uniform = torch.stack([torch.rand(images.shape[1:], generator=draw) for draw in draws])
    return images + NOISE * (2 * uniform - 1).to(images)


def _jpeg(images: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
    return torch.stack([_through_jpeg(image) for image in images]).to(images)


def _through_jpeg(image: Tensor) -> Tensor:
    """One image in [0, 1], (C, H, W), as a JPEG file gives it back; colours are those of the file's channels."""
    pixels = (image.cpu() * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    file = BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(file, "JPEG", quality=QUALITY)
    read = np.asarray(Image.open(file), np.float32).reshape(pixels.shape)
    return torch.from_numpy(read / 255).permute(2, 0, 1)


def _blurred(images: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1), mode="reflect")
    height, width = images.shape[2:]
    places = [(y, x) for y in range(3) for x in range(3)]
    parts = (WEIGHTS[y] * WEIGHTS[x] * padded[:, :, y : y + height, x : x + width] for y, x in places)
    return torch.stack(list(parts)).sum(0)


def _brighter(images: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
    return BRIGHTER * images


def _constant(images: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
    """One colour, whatever the image."""
    return torch.stack([_colour(image, draw).expand_as(image) for image, draw in zip(images, draws, strict=True)])


def _uniform_noise(images: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
    return torch.stack([torch.rand(images.shape[1:], generator=draw) for draw in draws]).to(images)


def _binary_noise(images: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
    return _uniform_noise(images, draws).round()


def _checkerboard(images: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
    """Squares of two colours, with sides of 1, 2, 4, ... pixels."""
    height, width = images.shape[2:]
    sides = [2**power for power in range(max(1, (min(height, width) // 2).bit_length()))]
    rows, columns = torch.arange(height).unsqueeze(1), torch.arange(width)
    boards = []
    for image, draw in zip(images, draws, strict=True):
        side = sides[int(torch.randint(len(sides), (), generator=draw))]
        odd = (rows // side + columns // side) % 2 == 1
        boards.append(torch.where(odd.to(image.device), _colour(image, draw), _colour(image, draw)))
    return torch.stack(boards)


def _colour(image: Tensor, draw: torch.Generator) -> Tensor:
    return torch.rand(len(image), 1, 1, generator=draw).to(image)


def _inverted(images: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
    return 1 - images


_CHANGES: Mapping[str, Change] = {"noise": _noise, "jpeg": _jpeg, "blurred": _blurred, "brighter": _brighter}
assert _CHANGES.keys() == CHANGES.keys()
OTHER_KINDS: Mapping[str, Change] = {
    "one colour": _constant,
    "uniform noise": _uniform_noise,
    "binary noise": _binary_noise,
    "checkerboards": _checkerboard,
    "inverted": _inverted,
}
