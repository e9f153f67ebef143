"""Random draws that belong to an image, by its id, never to its place in a batch."""

from hashlib import blake2b

import torch


def image_seed(seed: int, name: str) -> int:
    """Returns the seed of one image, 32 bits of a hash of the call's seed and the image's id."""
    return int.from_bytes(blake2b(f"{seed}\0{name}".encode(), digest_size=4).digest(), "big")


def image_generator(seed: int, name: str) -> torch.Generator:
    """Returns a generator for the draws of one image."""
    return torch.Generator().manual_seed(image_seed(seed, name))
