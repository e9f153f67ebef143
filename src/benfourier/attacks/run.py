"""One batch under attack: logits and gradients, what they cost, and the nearest adversarial image of each row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benfourier import progress
from benfourier.errors import ClassifierError
from benfourier.models.classifier import Classifier
from benfourier.models.module import logits_of

SAFETY = 64  # units in the last place by which the logits of another batch may differ
Value = Callable[[Tensor, Tensor], Tensor]  # logits (N, classes) and labels (N,) to one number per image, (N,)


@dataclass(eq=False, repr=False)
class AttackRun:
    """One batch under attack. An attack works on `rows` and records the adversarial images that it finds."""

    classifier: Classifier  # its module is in eval mode and frozen for as long as the run lasts
    clean: Tensor  # (N, C, H, W); from here on, as labels, on the classifier's device, and in its dtype
    labels: Tensor  # (N,)
    generators: Sequence[torch.Generator]  # one per image; all random draws come from them
    margin: float  # by how much another logit must lead the label's

    def __post_init__(self) -> None:
        count, device = len(self.clean), self.classifier.device
        assert self.clean.ndim == 4
        assert self.labels.shape == (count,) == (len(self.generators),)
        self.grain = torch.finfo(self.clean.dtype).eps  # images are returned in this dtype; finer differences are lost
        # on the CPU convolutions are faster channels-last: ×1.0 to 1.24 in benchmarks/results.json
        self.memory_format = self.classifier.layer_list(tuple(self.clean.shape[1:])).memory_format
        self.clean = self.clean.to(device, self.classifier.dtype).clone(memory_format=self.memory_format)
        self.labels = self.labels.to(device)
        self.low, self.high = self.classifier.bounds
        self.span = self.high - self.low
        self.rows = torch.arange(count, device=device)  # images still to attack
        self.best = self.clean.clone()  # the nearest adversarial image of each row so far, else the clean one
        self.squared = self.clean.new_full((count,), torch.inf)  # its squared L2 distance, infinite for a clean one
        self.calls = torch.zeros_like(self.rows)  # forward and backward passes of each row

    def forward(self, images: Tensor, memory_format: torch.memory_format = torch.preserve_format) -> Tensor:
        """Returns the logits; counts nothing but the pass in the progress bar."""
        progress.add_pass()
        return logits_of(self.classifier.module(self.classifier.prepare(images, memory_format)), len(images))

    def final_logits(self, images: Tensor) -> Tensor:
        """Returns the logits of all N images as a caller would get them, in the memory format that the images have."""
        assert images.shape == self.clean.shape
        self.calls += 1
        with torch.no_grad():
            return self.forward(images)

    def logits(self, images: Tensor, rows: Tensor) -> Tensor:
        """Returns the logits (rows, classes) of images that belong to some rows."""
        assert images.shape == (len(rows), *self.clean.shape[1:])
        self.calls[rows] += 1
        with torch.no_grad():
            return self.forward(images, self.memory_format)

    def gradient(
        self, images: Tensor, rows: Tensor, value: Value, needed: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns the logits, and the gradient (rows, C, H, W) of a value of them with respect to the images.

        Where it is not needed, it is 0 and costs no backward pass.
        """
        if needed is None or needed.all():
            logits, (gradient,) = self.gradients(images, rows, [value])
            return logits, gradient
        others, gradient = self.logits(images[~needed], rows[~needed]), torch.zeros_like(images)
        logits = others.new_empty(len(rows), others.shape[1])
        logits[~needed] = others
        if needed.any():
            logits[needed], gradient[needed] = self.gradient(images[needed], rows[needed], value)
        return logits, gradient

    def gradients(self, images: Tensor, rows: Tensor, values: Sequence[Value]) -> tuple[Tensor, list[Tensor]]:
        """Returns the logits, and one gradient (rows, C, H, W) per value, all from one forward pass."""
        assert images.shape == (len(rows), *self.clean.shape[1:])
        self.calls[rows] += 1 + len(values)
        with torch.enable_grad():
            leaf = images.detach().requires_grad_()
            logits = self.forward(leaf, self.memory_format)
            if not logits.requires_grad:
                raise ClassifierError(
                    "the module's logits have no gradient; attacks need a module that works in floating tensors "
                    "from images to logits, without detach or no_grad"
                )
            sums = [value(logits, self.labels[rows]).sum() for value in values]
            gradients = [torch.autograd.grad(each, leaf, retain_graph=each is not sums[-1])[0] for each in sums]
        return logits.detach(), gradients

    def is_adversarial(self, logits: Tensor, rows: Tensor) -> Tensor:
        """True where another class leads by the margin, and by more than rounding in another batch could undo."""
        return margins(logits, self.labels[rows]) > self.margin + self.slack(logits)

    def slack(self, logits: Tensor) -> Tensor:
        """Bound on what rounding can change in each margin, (N,): another batch, or the dtype of the result."""
        least, greatest = logits.aminmax(dim=1)
        return SAFETY * max(torch.finfo(logits.dtype).eps, self.grain) * (greatest - least)

    def record(self, images: Tensor, rows: Tensor, adversarial: Tensor) -> None:
        """Keeps the adversarial images that are nearer to the clean one than those recorded before."""
        if not adversarial.any():
            return
        squared = (images - self.clean[rows]).square().flatten(1).sum(1)
        nearer = adversarial & (squared < self.squared[rows])
        self.best[rows[nearer]] = images[nearer]
        self.squared[rows[nearer]] = squared[nearer]

    def forget(self, rows: Tensor) -> None:
        """Drops what was recorded of some rows."""
        self.best[rows] = self.clean[rows]
        self.squared[rows] = torch.inf

    def clip(self, images: Tensor) -> Tensor:
        """Returns images within the classifier's bounds."""
        return images.clamp(self.low, self.high)

    def uniform(self, rows: Tensor) -> Tensor:
        """Returns noise in [-1, 1), each row from its own generator."""
        draws = [torch.rand(self.clean.shape[1:], generator=self.generators[row]) for row in rows.tolist()]
        return (2 * torch.stack(draws) - 1).to(self.clean)


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns by how much the best other logit leads the label's, (N,)."""
    place = labels.unsqueeze(1)
    return logits.scatter(1, place, -torch.inf).max(1).values - logits.gather(1, place).squeeze(1)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the cross-entropy of each image to its label, (N,), which untargeted attacks raise."""
    return F.cross_entropy(logits, labels, reduction="none")
