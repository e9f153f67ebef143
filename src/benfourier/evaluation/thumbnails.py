"""Images as small PNGs named by what they show."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from benfourier.errors import StoreError
from benfourier.store.artifact import put
from benfourier.store.digest import digest_of

Pixels = NDArray[np.uint8]
DIGITS = 16  # of the digest in a name


def seen(image: Tensor, side: int) -> Pixels:
    """Returns an image (C, H, W) in [0, 1] as 8-bit pixels, (H, W) or (H, W, 3), its sides no longer than asked.

    One channel is grey, three are colours, of any other number the mean is shown.
    """
    from PIL import Image

    channels = image.detach().cpu().float()
    if len(channels) not in (1, 3):
        channels = channels.mean(0, keepdim=True)
    pixels = (channels.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    drawn = Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels))
    if max(drawn.size) > side:
        drawn.thumbnail((side, side), Image.Resampling.BOX)
    return np.asarray(drawn)


def magnified(added: Tensor) -> float:
    """Returns the factor, of two digits, that spreads a perturbation over ±½ without cutting anything off."""
    largest = float(added.abs().max())
    if largest == 0:
        return 1.0
    factor = 0.5 / largest
    unit = 10.0 ** (math.floor(math.log10(factor)) - 1)
    return float(f"{math.floor(factor / unit * (1 + 1e-5)) * unit:.2g}")


def save(pixels: Pixels, folder: Path) -> str:
    """Returns the name of the PNG in the folder that holds these pixels; it is written unless it is there."""
    from PIL import Image

    name = f"{digest_of((pixels,))[:DIGITS]}.png"
    if not (folder / name).exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{folder}: it cannot be made ({error}); check the place and its permissions") from error
        put(folder / name, lambda beside: Image.fromarray(pixels).save(beside, "PNG", optimize=True))
    return name
