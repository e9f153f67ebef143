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
    """Passes images on; the words of its set come in another order in every process."""

    def forward(self, images: Tensor) -> Tensor:
        return images if images.device.type in {"cpu", "cuda", "mps", "xpu"} else images.cpu()


def keep(given: Digits, folder: Path) -> None:
    """Writes what main reads."""
    save_weights(given.classifier.module, folder / "network.safetensors")
    np.savez(folder / "images.npz", images=given.images.numpy(), labels=given.labels.numpy())


def main(folder: Path, cache: Path, out: Path) -> None:
    torch.set_num_threads(1)  # two processes at once on few cores
    module = network().eval()
    load_weights(module, folder / "network.safetensors")
    with np.load(folder / "images.npz") as held:
        images, labels = torch.from_numpy(held["images"]), torch.from_numpy(held["labels"])
    classifier = bf.Classifier(nn.Sequential(Gate(), module), bounds=(0.0, 1.0), size=8, channels=1)
    bf.make_examples(
        classifier, images, labels, attacks={"bim": "bim", "r-pgd-fixed": "r-pgd-fixed"}, cache=cache, chunk=CHUNK
    ).save(out)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
