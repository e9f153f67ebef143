"""The attacks of Foolbox 1.8.0, for an interpreter that has it: benfourier and its libraries are not installed there.

`python benchmarks/foolbox18.py network.pt task.npz result.npz`. The task holds images, labels, the number of classes,
the mean that the network's images are shifted by, and our id of the attack.
"""

import collections
import collections.abc
import logging
import random
import sys
from typing import Any

import numpy as np
import torch

NAMES = {
    "bim": "LinfinityBasicIterativeAttack",
    "r-pgd": "RandomStartProjectedGradientDescentAttack",
    "cw-l2": "CarliniWagnerL2Attack",
    "deepfool": "DeepFoolAttack",
}


def main(network: str, task: str, result: str) -> None:
    """Writes the adversarial images of a task; rows in which the attack failed are NaN."""
    collections.Iterable = collections.abc.Iterable  # type: ignore[attr-defined]  # Python 3.10 has it no more
    import foolbox

    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # on every image: BIM has the L2 norm here, as on docs/attacks.md
    random.seed(0)
    np.random.seed(0)  # Foolbox draws from the global generators
    arrays = np.load(task)
    images = arrays["images"]
    module = torch.load(network, weights_only=False).to(torch.from_numpy(images).dtype)
    mean = arrays["mean"].astype(images.dtype)
    model = foolbox.models.PyTorchModel(module, (0, 1), int(arrays["classes"]), preprocessing=(mean, 1))
    attack: Any = getattr(foolbox.attacks, NAMES[str(arrays["attack"])])(model)
    rows = [attack(image, int(label)) for image, label in zip(images, arrays["labels"], strict=True)]
    failed = np.full(images.shape[1:], np.nan, images.dtype)
    np.savez(result, images=np.stack([failed if row is None else row for row in rows]))


if __name__ == "__main__":
    main(*sys.argv[1:])
