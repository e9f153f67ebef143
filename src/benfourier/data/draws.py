"""Random draws that belong to an image, by its id or by its pixels, never to its place in a batch."""

from hashlib import blake2b

import torch
from torch import Tensor


def seed_of(seed: int, name: str) -> int:
    """Returns the seed of one image, 32 bits of a hash of the call's seed and the image's id."""
    return int.from_bytes(blake2b(f"{seed}\0{name}".encode(), digest_size=4).digest(), "big")


def lot(seed: int, name: str) -> int:
    """Returns the lot of one image: a few that are drawn from many are those with the lowest."""
    return seed_of(seed, f"lot\0{name}")


def generator(seed: int, name: str) -> torch.Generator:
    """Returns the generator of one image."""
    return torch.Generator().manual_seed(seed_of(seed, name))


def names_by_content(images: Tensor) -> list[str]:
    """Returns one id per image made from its pixels, for images that came without ids."""
    rows = images.detach().to("cpu", torch.float32).contiguous().flatten(1).numpy()
    return [blake2b(row.tobytes(), digest_size=16).hexdigest() for row in rows]
