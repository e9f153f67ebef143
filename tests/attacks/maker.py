"""Makes examples in a process of its own: python -m tests.attacks.maker FOLDER CACHE OUT."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import benfourier as bf
from benfourier.models.weights import load_weights, save_weights
from tests.attacks.trained import Digits, network

CHUNK = 3


class Gate(nn.Module):
    """Passes images on; the strings of its set have another order in every process."""

    def forward(self, images: Tensor) -> Tensor:
        return images if images.device.type in {"cpu", "cuda", "mps", "xpu"} else images.cpu()


def save_inputs(data: Digits, folder: Path) -> None:
    """Writes the network and the images that main reads."""
    save_weights(data.classifier.module, folder / "network.safetensors")
    np.savez(folder / "images.npz", images=data.images.numpy(), labels=data.labels.numpy())


def main(folder: Path, cache: Path, out: Path) -> None:
    torch.set_num_threads(1)  # two processes at once on few cores
    module = network().eval()
    load_weights(module, folder / "network.safetensors")
    with np.load(folder / "images.npz") as arrays:
        images, labels = torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"])
    classifier = bf.Classifier(nn.Sequential(Gate(), module), bounds=(0.0, 1.0), size=8, channels=1)
    bf.make_examples(
        classifier, images, labels, attacks={"bim": "bim", "r-pgd-fixed": "r-pgd-fixed"}, cache=cache, chunk=CHUNK
    ).save(out)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
