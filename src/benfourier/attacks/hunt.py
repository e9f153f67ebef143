"""Images under attack: the subject's answers, what they cost, and the nearest adversarial image found so far."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from benfourier.attacks.quick import AS_GIVEN, Quick
from benfourier.errors import SubjectError
from benfourier.subjects.hearing import logits_of
from benfourier.subjects.subject import Subject

SAFETY = 64  # units in the last place of the logits, in which another batch may differ
Value = Callable[[Tensor, Tensor], Tensor]  # of logits (N, classes) and labels (N,), one number per image


class Hunt:
    """One batch under attack.

    Args:
        subject: whose module is undisturbed for as long as the hunt lasts.
        clean: (N, C, H, W), on the subject's device, in its dtype.
        labels: (N,), on the same device.
        generators: one per image.
        confidence: by how much another logit must lead the label's.
        quick: how the module is quickest.
        grain: relative spacing of the numbers that images end in; what is finer would be lost.
    """

    def __init__(
        self,
        subject: Subject,
        clean: Tensor,
        labels: Tensor,
        generators: Sequence[torch.Generator],
        confidence: float = 0.0,
        quick: Quick = AS_GIVEN,
        grain: float = 0.0,
    ) -> None:
        assert clean.ndim == 4
        assert labels.shape == (len(clean),) == (len(generators),)
        self.subject, self.labels, self.generators = subject, labels, generators
        self.clean, self.quick = clean.clone(memory_format=quick.layout), quick
        self.confidence, self.grain = confidence, grain
        self.low, self.high = subject.bounds
        self.span = self.high - self.low
        self.images = self.clean.clone()
        self.squared = clean.new_full((len(clean),), torch.inf)  # squared distances of what was found
        self.calls = torch.zeros(len(clean), dtype=torch.int64, device=clean.device)
        self.rows = torch.arange(len(clean), device=clean.device)

    def leave_out(self, finished: Tensor) -> None:
        """Takes images out of the rows that an attack is to work on."""
        self.rows = self.rows[~finished[self.rows]]

    def forward(self, images: Tensor, layout: torch.memory_format = torch.preserve_format) -> Tensor:
        """Returns the logits; counts nothing."""
        entering = self.subject.normalise(images).clone(memory_format=layout)  # the module may write into them
        return logits_of(self.subject.module(entering), len(images))

    def verdict(self, images: Tensor) -> Tensor:
        """Returns the logits of all images as the caller would get them, in the layout that the images have."""
        assert images.shape == self.clean.shape
        self.calls += 1
        with torch.no_grad():
            return self.forward(images)

    def logits(self, images: Tensor, rows: Tensor) -> Tensor:
        """Returns the logits (rows, classes) of images that stand for the given rows."""
        assert images.shape == (len(rows), *self.clean.shape[1:])
        self.calls[rows] += 1
        with torch.no_grad():
            return self.forward(images, self.quick.layout)

    def slope(
        self,
        images: Tensor,
        rows: Tensor,
        value: Value,
        wanted: Tensor | None = None,
        sure: Value | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Returns the logits, and the gradient of a value of them with respect to the images.

        Args:
            images: that stand for the given rows.
            rows: of the hunt.
            value: one number per image.
            wanted: (rows,), False where the gradient may be 0, which saves the backward pass; by default True.
            sure: asked about the others; where it says False, their gradient is taken after all.
        """
        if wanted is None or wanted.all():
            logits, (gradient,) = self.slopes(images, rows, [value])
            return logits, gradient
        others, gradient = ~wanted, torch.zeros_like(images)
        logits = self.logits(images[others], rows[others])
        known = logits.new_empty(len(rows), logits.shape[1])
        known[others] = logits
        if sure is not None:
            wanted = wanted.index_put((others,), ~sure(logits, self.labels[rows[others]]))
        if wanted.any():
            known[wanted], gradient[wanted] = self.slope(images[wanted], rows[wanted], value)
        return known, gradient

    def slopes(self, images: Tensor, rows: Tensor, values: Sequence[Value]) -> tuple[Tensor, list[Tensor]]:
        """Returns the logits, and one gradient (rows, C, H, W) per value, all from one forward pass."""
        assert images.shape == (len(rows), *self.clean.shape[1:])
        self.calls[rows] += 1 + len(values)
        with torch.enable_grad(), self.quick.gradients():
            leaf = images.detach().requires_grad_()
            logits = self.forward(leaf, self.quick.layout)
            if not logits.requires_grad:
                raise SubjectError(
                    "the module's logits have no gradient; attacks need a module that works in floating tensors "
                    "from images to logits, without detach or no_grad"
                )
            sums = [value(logits, self.labels[rows]).sum() for value in values]
            last = len(sums) - 1
            gradients = [torch.autograd.grad(s, leaf, retain_graph=i < last)[0] for i, s in enumerate(sums)]
        return logits.detach(), gradients

    def misled(self, logits: Tensor, rows: Tensor) -> Tensor:
        """True where another class leads by the confidence, and by more than rounding in another batch could undo."""
        return margins(logits, self.labels[rows]) > self.confidence + self.slack(logits)

    def slack(self, logits: Tensor) -> Tensor:
        """Returns what another batch, or the rounding of the image at the end, may change in a margin, (N,)."""
        least, greatest = logits.aminmax(dim=1)
        return SAFETY * max(torch.finfo(logits.dtype).eps, self.grain) * (greatest - least)

    def offer(self, images: Tensor, rows: Tensor, won: Tensor) -> None:
        """Keeps those of the winning images that are nearer to the clean one than what was found before."""
        if not won.any():
            return
        squared = (images - self.clean[rows]).square().flatten(1).sum(1)
        better = won & (squared < self.squared[rows])
        self.images[rows[better]] = images[better]
        self.squared[rows[better]] = squared[better]

    def uniform(self, rows: Tensor) -> Tensor:
        """Returns noise in [-1, 1), each row from its own generator."""
        shape = self.clean.shape[1:]
        drawn = [torch.rand(shape, generator=self.generators[row]) for row in rows.tolist()]
        return (2 * torch.stack(drawn) - 1).to(self.clean)


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns by how much the best other logit leads the label's, (N,)."""
    place = labels.unsqueeze(1)
    own = logits.gather(1, place).squeeze(1)
    return logits.scatter(1, place, -torch.inf).max(1).values - own
