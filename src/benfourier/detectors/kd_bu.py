"""KD+BU: density of the last hidden layer, and doubt under dropout (Feinman 2017, arXiv:1703.00410).

KD(x) = −log p_ŷ(φ(x)): φ the last hidden layer, p_c a Gaussian kernel density over clean images whose true class is c,
ŷ the predicted class. BU(x) = mean over classes of Var_t[p_t(x)], over passes with dropout on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from benfourier.detectors.bandwidth import best_bandwidth
from benfourier.detectors.densities import Density
from benfourier.detectors.detector import numbers_of
from benfourier.detectors.dropout import Doubt, dropouts, parts_late
from benfourier.detectors.listening import INPUT, listen, named
from benfourier.detectors.method import Lessons, Method, check_positive
from benfourier.detectors.one_layer import Answers, OneLayer, flat
from benfourier.detectors.references import labelled
from benfourier.errors import OptionError, SubjectError, check_whole
from benfourier.subjects.plan import Layer, Plan
from benfourier.subjects.subject import Subject


@dataclass(frozen=True, kw_only=True)
class KDBU(Method):
    """Two numbers per image, or one for networks without dropout.

    Args:
        layer: name of the layer whose density is taken; None for the last hidden one.
        bandwidth: of the kernel; "cv" takes the likeliest for clean images that are left out in turn.
        bu: True asks for passes under dropout, False for none; None makes them if the subject has Dropout modules.
        passes: T.
    """

    layer: str | None = None
    bandwidth: float | str = "cv"
    bu: bool | None = None
    passes: int = 50

    name: ClassVar[str] = "kd-bu"
    own: ClassVar[str] = "logistic"
    clean: ClassVar[Literal["none", "optional", "needed"]] = "optional"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("bandwidth", self.bandwidth, "cv")
        check_whole("passes", self.passes, least=2)
        if self.bu not in (None, True, False):
            raise OptionError(f"bu is {self.bu!r}; it must be True, False, or None to let the subject decide")

    @property
    def needs(self) -> frozenset[str]:
        """Passes are samples."""
        return frozenset({"listens"} if self.bu is False else {"listens", "samples"})

    def learn(self, subject: Subject, lessons: Lessons) -> "Density | DensityAndDoubt":
        """Returns the points of the densities and their bandwidth, and what the subject's dropout allows."""
        given = labelled(lessons)
        plan = subject.plan(tuple(given.images.shape[1:]))
        layer = penultimate(plan.layers) if self.layer is None else self._named(plan)
        label, show = f"{self.name}: {layer}", lessons.show_progress
        (found,) = numbers_of(
            subject, [OneLayer(layer, flat)], given.images, given.ids, label=label, show_progress=show
        )
        order = given.labels.argsort(stable=True)
        points, labels = found[order], given.labels[order]
        kept: dict[str, Any] = {
            "layer": layer,
            "points": points.to(torch.promote_types(subject.dtype, torch.float32)),
            "labels": labels,
            "ids": [given.ids[place] for place in order.tolist()],
            "bandwidth": best_bandwidth(points, labels, self.seed) if self.bandwidth == "cv" else float(self.bandwidth),
        }
        if self._doubts(subject, plan):
            kept |= {"passes": self.passes, "seed": self.seed, "late": parts_late(subject, given.images[:3], self.seed)}
        else:
            kept["bu"] = "off, as asked" if self.bu is False else "off: the network has no Dropout module to drop with"
        return self.restore(subject, kept)

    def restore(self, subject: Subject, kept: Mapping[str, Any]) -> "Density | DensityAndDoubt":
        """Returns a measure with the points that were kept."""
        fields = {**kept, "ids": tuple(kept["ids"])}
        return DensityAndDoubt(**fields) if "passes" in kept else Density(**fields)

    def _named(self, plan: Plan) -> str:
        names = named(plan, (str(self.layer),), pass_through=True)
        if len(names) > 1:
            raise OptionError(f"layer is {self.layer!r}, which {len(names)} layers match; it must name one")
        return names[0]

    def _doubts(self, subject: Subject, plan: Plan) -> bool:
        """Whether passes under dropout are to be made."""
        there = bool(dropouts(subject.module, plan))
        if self.bu and not there:
            raise SubjectError(
                "the module has no Dropout that fires and drops, so passes under dropout would all be the same; "
                "leave bu out, or give a network with nn.Dropout modules (functional dropout is not seen)"
            )
        return there and self.bu is not False


def penultimate(layers: Sequence[Layer]) -> str:
    """The last layer that computes something before the one that gives the logits."""
    classes = layers[-1].entries
    solid = [layer for layer in layers[:-1] if not layer.pass_through]
    linear = [place for place, layer in enumerate(solid) if layer.kind.lower() == "linear" and layer.entries == classes]
    place = linear[-1] if linear else len(solid) - 1
    return solid[place - 1].name if place > 0 else INPUT


@dataclass(frozen=True, eq=False)
class DensityAndDoubt:
    """KD and BU.

    Args:
        layer: whose responses are the points.
        points: (n, d), class by class.
        labels: (n,).
        ids: source image of each point.
        bandwidth: of the kernel.
        passes: T.
        seed: of the masks.
        late: passes part at the first dropout.
    """

    layer: str
    points: Tensor
    labels: Tensor
    ids: tuple[str, ...]
    bandwidth: float
    passes: int
    seed: int
    late: bool

    @cached_property
    def _density(self) -> Density:
        return Density(self.layer, self.points, self.labels, self.ids, self.bandwidth, bu="apart")

    @cached_property
    def _doubt(self) -> Doubt:
        return Doubt(self.passes, self.seed, self.late)

    def work(self, subject: Subject, images: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns −log p and U, (images, 2)."""
        _, (density,) = listen(subject, images, [self._density], ids)
        return torch.cat([density, self._doubt.work(subject, images, ids)], 1)

    def stages(self) -> tuple[Answers, Doubt]:
        """Returns the layer's responses, and U."""
        return (*self._density.stages(), self._doubt)

    def finished(self, found: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns −log p and U, (images, 2)."""
        return torch.cat([self._density.finished(found[:, :-1], ids), found[:, -1:]], 1)
