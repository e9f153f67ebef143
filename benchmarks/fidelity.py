"""Our attacks beside those of Foolbox 1.8.0 itself: `python -m benchmarks.fidelity INTERPRETER`.

INTERPRETER is the Python of an environment with Foolbox 1.8.0 (`make fidelity` makes one). Network and images go to it,
and its adversarial images come back, in files. Distances are those of our image over Foolbox's.
"""

import subprocess
import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import benfourier as bf
from benchmarks.setup import trained_mnist

THEIRS = Path(__file__).with_name("foolbox18.py")
EQUAL = 1e-5  # difference of pixels up to which images count as equal
LEAD = 0.1  # of another class over the label: far beyond the boundary
HEAD = (
    "| attack | setting | successes, Foolbox / ours | L2 ratio, median (least..most) | L∞ ratio | images equal | "
    "logit lead > 0.1, Foolbox / ours | classified correctly in one batch, Foolbox / ours |"
)
RULE = "|" + "---|" * (HEAD.count("|") - 1)


@dataclass(frozen=True)
class Comparison:
    """One attack with one setting of ours."""

    attack: str  # our id
    images: int
    dtype: torch.dtype = torch.float32
    options: Mapping[str, Any] = field(default_factory=dict)  # of ours, beyond the defaults
    contiguous: bool = False  # keeps ours from channels-last: a rounded tie of a pooling layer moves its gradient

    @property
    def setting(self) -> str:
        """The setting in words."""
        words = [f"{name}={value}" for name, value in self.options.items()] or ["defaults"]
        return ", ".join([*words, str(self.dtype).removeprefix("torch."), *["contiguous"] * self.contiguous])


class Contiguous(nn.Module):
    """Returns images in Foolbox's layout."""

    def forward(self, images: Tensor) -> Tensor:
        """Returns the images, row by row and channel by channel."""
        return images.clone(memory_format=torch.contiguous_format)  # one channel counts as both layouts, as it is


COMPARISONS = (
    Comparison("bim", 40),
    Comparison("bim", 40, options={"tolerance": 0}),
    Comparison("bim", 40, torch.float64, {"tolerance": 0}),
    Comparison("bim", 40, torch.float64, {"tolerance": 0}, contiguous=True),
    Comparison("r-pgd", 40),
    Comparison("cw-l2", 10),
    Comparison("cw-l2", 4, torch.float64, contiguous=True),
    Comparison("deepfool", 40),
    Comparison("deepfool", 40, options={"ties": "foolbox"}),
    Comparison("deepfool", 40, torch.float64, {"ties": "foolbox"}, contiguous=True),
)


def main() -> int:
    """Prints the table."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: python -m benchmarks.fidelity INTERPRETER; {__doc__}")
    torch.set_num_threads(1)
    mnist, theirs = trained_mnist(epochs=6, share=0.2, model="small-mnist"), dict[object, Tensor]()
    print(HEAD, RULE, sep="\n")
    for each in COMPARISONS:
        module = deepcopy(mnist.classifier.module).to(each.dtype)
        clean, labels = mnist.images.images[: each.images].to(each.dtype), mnist.images.labels[: each.images]
        mean = mnist.classifier.mean or 0.0
        run = (each.attack, each.images, each.dtype)
        if run not in theirs:  # settings of ours share one run of Foolbox
            theirs[run] = foolbox_images(sys.argv[1], each.attack, module, mean, clean, labels)
        module = nn.Sequential(Contiguous(), module) if each.contiguous else module
        classifier = bf.Classifier(module, mean=mnist.classifier.mean, size=28, channels=1)
        ours = bf.attack(each.attack, classifier, clean, labels, show_progress=False, **each.options)
        print(row(each, classifier, clean, labels, ours.images, theirs[run]), flush=True)
    return 0


def foolbox_images(
    interpreter: str, attack: str, module: nn.Module, mean: object, clean: Tensor, labels: Tensor
) -> Tensor:
    """Returns the adversarial images that Foolbox 1.8.0 finds, NaN where it finds none."""
    with TemporaryDirectory() as folder:
        network, task, result = (Path(folder, name) for name in ("network.pt", "task.npz", "result.npz"))
        torch.save(module, network)
        arrays: dict[str, NDArray[Any]] = {"images": clean.numpy(), "labels": labels.numpy()}
        arrays |= {"mean": np.array(mean), "classes": np.array(10), "attack": np.array(attack)}
        np.savez(task, allow_pickle=False, **arrays)
        subprocess.run([interpreter, THEIRS, network, task, result], check=True)
        return torch.from_numpy(np.load(result)["images"])


def row(
    each: Comparison, classifier: bf.Classifier, clean: Tensor, labels: Tensor, ours: Tensor, theirs: Tensor
) -> str:
    """Returns one row of the table."""
    done = [~images.flatten(1).isnan().any(1) & (images != clean).flatten(1).any(1) for images in (theirs, ours)]
    both = done[0] & done[1]
    added = [(images - clean)[both].flatten(1).double() for images in (ours, theirs)]
    l2, linf = ((a / b).tolist() for a, b in zip(_lengths(added[0]), _lengths(added[1]), strict=True))
    equal = int(((ours - theirs)[both].flatten(1).abs().amax(1) < EQUAL).sum())
    leads = [_leads(classifier, images[both], labels[both]) for images in (theirs, ours)]
    far, undone = (
        [f"{int(test.sum())}" for test in tests] for tests in zip(*[(x > LEAD, x <= 0) for x in leads], strict=True)
    )
    return (
        f"| {each.attack} | {each.setting} | {int(done[0].sum())} / {int(done[1].sum())} of {len(clean)} | "
        f"{np.median(l2):.4f} ({min(l2):.4f}..{max(l2):.4f}) | {min(linf):.4f}..{max(linf):.4f} | {equal} | "
        f"{' / '.join(far)} | {' / '.join(undone)} |"
    )


def _lengths(added: Tensor) -> tuple[Tensor, Tensor]:
    return added.norm(dim=1), added.abs().amax(1)


def _leads(classifier: bf.Classifier, images: Tensor, labels: Tensor) -> Tensor:
    """By how much another class leads the label, all images in one batch."""
    logits = classifier.logits(images)
    own = logits.gather(1, labels.unsqueeze(1))
    return (logits.scatter(1, labels.unsqueeze(1), -torch.inf).amax(1, keepdim=True) - own)[:, 0]


if __name__ == "__main__":
    sys.exit(main())
