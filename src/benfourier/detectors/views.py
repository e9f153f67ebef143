"""Views: by how much the predicted class leads when the image is changed a little.

m_T(x) = Z_ŷ(Tx) − max_{k≠ŷ} Z_k(Tx), ŷ = argmax Z(x), for the image itself and for views T, such as its mirror image.
An attack raises a wrong logit for one image; under a change that it did not aim at, little of that lead is left.
A head weighs the margins, or, without attacked images to fit one, their drop beside that of clean images is the score.
Relatives: Bahat 2019 (arXiv:1902.00236), Roth 2019 (arXiv:1902.04818). Logits, not posteriors, which saturate.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benfourier.detectors.extractor import EvidenceKind, Extractor, RunningExtractor, margins_of
from benfourier.detectors.features import extract
from benfourier.detectors.heads import HeadOptions
from benfourier.detectors.method import FitData, Method, register_detector
from benfourier.detectors.state import ArrayRule, State, record_from_state, record_state
from benfourier.errors import FitError, InputError, OptionError, check_whole
from benfourier.models.classifier import Classifier
from benfourier.models.device import wide
from benfourier.models.forward import batch_size, observe
from benfourier.options import layer_names, number, whole, word

View = Callable[[Tensor], Tensor]  # images (N, C, H, W) to images of that shape, within the same bounds
DEGREES = 9.0
SIDE = 32  # of images that are shifted by one and two pixels; shifts of others grow with the root of their side
SLACK = 1e-4  # of the width of the bounds, by which a view may leave them
MEDIANS = 16  # images whose medians are taken at once
SHARED = 64  # images of all views that share a pass; larger passes of small networks leave the processor's cache


def mirror(images: Tensor) -> Tensor:
    """Left and right change places."""
    return images.flip(3)


def rotation(images: Tensor) -> Tensor:
    """Images turned by 9°, in place of the mirror image where that is no image of its class, as of digits."""
    cosine, sine = math.cos(math.radians(DEGREES)), math.sin(math.radians(DEGREES))
    turn = images.new_tensor([[cosine, -sine, 0.0], [sine, cosine, 0.0]]).expand(len(images), -1, -1)
    grid = F.affine_grid(turn, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def median(images: Tensor) -> Tensor:
    """Each pixel becomes the median of its 3×3 neighbourhood; the gradient goes to the pixel that is taken."""
    # it takes ten times the memory of its images: 700 MB for a batch of 113 photographs of 224×224 pixels
    return torch.cat([_median(part) for part in torch.split(images, MEDIANS)])


def _median(images: Tensor) -> Tensor:
    # torch.median takes half as long as a forward pass. Neighbouring squares share columns, so these are sorted once;
    # the middle of nine is that of the greatest low, the middle of the middles and the least high of three columns.
    padded, width = F.pad(images, (1, 1, 1, 1), mode="reflect"), images.shape[3]
    columns = _sort(*(padded[:, :, y : y + images.shape[2]] for y in range(3)))
    low, middle, high = ([column[..., x : x + width] for x in range(3)] for column in columns)
    greatest, least = torch.maximum(torch.maximum(*low[:2]), low[2]), torch.minimum(torch.minimum(*high[:2]), high[2])
    return _middle(greatest, _middle(*middle), least)


def blur(images: Tensor) -> Tensor:
    """Each pixel becomes the mean of its 3×3 neighbourhood with the weights 1, 2, 1 along both sides."""
    weights = (1, 2, 1, 2, 4, 2, 1, 2, 1)
    return sum((w * pixels for w, pixels in zip(weights, _neighbours(images), strict=True)), torch.zeros(())) / 16


def coarse(images: Tensor, levels: int, bounds: tuple[float, float]) -> Tensor:
    """Each pixel takes the nearest of evenly spaced values; the gradient is that of the image as it was."""
    step = (bounds[1] - bounds[0]) / (levels - 1)
    nearest = bounds[0] + step * ((images.detach() - bounds[0]) / step).round()
    return nearest + (images - images.detach())  # zeros, with a gradient


def shift(images: Tensor) -> Tensor:
    """Images moved down and to the right by a pixel, by more if they are large."""
    return _move(images, 1, 1)


def other_shift(images: Tensor) -> Tensor:
    """Images moved up by two pixels and to the right by one, by more if they are large."""
    return _move(images, -2, 1)


def _sort(one: Tensor, two: Tensor, three: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The least, the middle and the greatest of three, element by element."""
    low, high = torch.minimum(one, two), torch.maximum(one, two)
    rest, greatest = torch.minimum(high, three), torch.maximum(high, three)
    return torch.minimum(low, rest), torch.maximum(low, rest), greatest


def _middle(one: Tensor, two: Tensor, three: Tensor) -> Tensor:
    low, high = torch.minimum(one, two), torch.maximum(one, two)
    return torch.maximum(low, torch.minimum(high, three))


def _neighbours(images: Tensor) -> Iterator[Tensor]:
    """The nine pixels around each pixel, row by row; borders are reflected."""
    padded, (height, width) = F.pad(images, (1, 1, 1, 1), mode="reflect"), images.shape[2:]
    return (padded[:, :, y : y + height, x : x + width] for y in range(3) for x in range(3))


def _move(images: Tensor, down: int, right: int) -> Tensor:
    height, width = images.shape[2:]
    y, x = (round(step * max(1.0, math.sqrt(side / SIDE))) for step, side in ((down, height), (right, width)))
    padded = F.pad(images, (abs(x), abs(x), abs(y), abs(y)), mode="reflect")
    return padded[:, :, abs(y) - y : abs(y) - y + height, abs(x) - x : abs(x) - x + width]


VIEWS: Mapping[str, View] = {
    "mirror": mirror,
    "rotation": rotation,
    "median": median,
    "blur": blur,
    "shift": shift,
    "other-shift": other_shift,
}
LEVELS = {f"{levels}-levels": levels for levels in (2, 3, 4, 6, 8, 12, 16, 32)}  # names of coarse views
COARSE = "coarse"  # stands for the coarsest of them under which enough clean images keep their label
SETS = {"fast": ("mirror",), "full": ("mirror", "median", COARSE, "shift", "other-shift")}
STAND_INS = ("2-levels", "rotation")  # for the mirror image, the first that keeps enough labels and is not there yet
FEATURES = ("margins", "drop")
# Of the margin that a view leaves to clean images: with 1 weak attacks look clean, with 0 strong ones do. Chosen on the
# images of experiments/strengths/choices.toml, where all values from 0.7 to 0.85 do about as well.
EXPECTED = 0.8


@dataclass(frozen=True, eq=False)
class ViewMargins(RunningExtractor):
    """By how much the predicted class leads other classes, in the image and in each view."""

    views: tuple[str, ...]  # names
    top: Annotated[int, check_whole]  # the margin over each of so many other classes, the highest first
    left_out: str = ""  # views under which too few clean images kept their label, with the share that did
    own: Mapping[str, View] = field(default_factory=dict)  # views of the user, by name

    pixels_only: ClassVar[bool] = True
    not_in_files: ClassVar[tuple[str, ...]] = ("own",)
    evidence_kind: ClassVar[EvidenceKind] = "margins"

    @classmethod
    def from_state(cls, classifier: Classifier, state: State, supplied: Mapping[str, Any]) -> Self:
        """Returns the extractor; a user's own views are supplied by name."""
        own = {name: supplied[name] for name in state["views"] if not _is_known(name)}
        return record_from_state(cls, state, own=own)

    def feature_names(self) -> tuple[str, ...]:
        """Returns "image" and the views, each as often as there are other classes."""
        return tuple(name for name in ("image", *self.views) for _ in range(self.top))

    def cacheable_parts(self) -> tuple[Extractor, ...]:
        """Returns itself without what the fit left out, which changes from fit to fit and counts for nothing here."""
        return (replace(self, left_out="") if self.left_out else self,)

    def extract(self, classifier: Classifier, images: Tensor, logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the margins, (N, (1 + views) · top); the image's own need no pass beyond the shared one."""
        labels = logits.argmax(1)
        each = [logits, *self.view_logits(classifier, images)]
        return torch.cat([margins_of(part, labels, self.top) for part in each], 1)

    def view_logits(self, classifier: Classifier, images: Tensor) -> tuple[Tensor, ...]:
        """Returns the logits of every view; small batches of all views share a pass, large ones fit the memory."""
        if not self.views:
            return ()
        images = images.to(classifier.device)
        names = ((name, self.own.get(name) or _known_view(name, classifier.bounds)) for name in self.views)
        views = (_apply(name, view, images, classifier.bounds) for name, view in names)
        size = max(len(images), min(SHARED, batch_size(classifier, images.shape[1:])))
        if size == len(images):  # one view at a time, since all views of a large batch take much memory
            return tuple(observe(classifier, view, []).logits for view in views)
        parts = torch.split(torch.cat(list(views)), size)
        return torch.split(torch.cat([observe(classifier, part, []).logits for part in parts]), len(images))


@dataclass(frozen=True, eq=False)
class MarginDrop(RunningExtractor):
    """How far the margins of the views stay behind those of clean images, one feature."""

    margins: ViewMargins  # over one other class
    shares: Annotated[Tensor, ArrayRule("views")]  # of the image's margin that each view leaves in clean images
    deviation: Annotated[Tensor, ArrayRule("views", above=0)]  # of clean images' margins from that share

    names: ClassVar[tuple[str, ...]] = ("drop",)
    not_in_files: ClassVar[tuple[str, ...]] = ("margins",)

    def state(self) -> State:
        """Returns its fields, and those of its margins."""
        return {"margins": self.margins.state(), **record_state(self)}

    @classmethod
    def from_state(cls, classifier: Classifier, state: State, supplied: Mapping[str, Any]) -> Self:
        """Returns the extractor; a user's own views are supplied by name."""
        margins = ViewMargins.from_state(classifier, state["margins"], supplied)
        others = {name: value for name, value in state.items() if name != "margins"}
        return record_from_state(cls, others, {"views": len(margins.views)}, margins=margins)

    def extract(self, classifier: Classifier, images: Tensor, logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns (N, 1)."""
        return self.finish(wide(self.margins.extract(classifier, images, logits, ids)), ids)

    def cacheable_parts(self) -> tuple[Extractor, ...]:
        """Returns the margins, which do not depend on the fit."""
        return self.margins.cacheable_parts()

    def finish(self, features: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the mean over the views of what is missing of the expected margin, in deviations, (N, 1)."""
        expected = EXPECTED * self.shares * features[:, :1]  # (N, views)
        return ((expected - features[:, 1:]) / self.deviation).mean(1, keepdim=True)


def _is_known(name: str) -> bool:
    return name in VIEWS or name in LEVELS


def _known_view(name: str, bounds: tuple[float, float]) -> View:
    return partial(coarse, levels=LEVELS[name], bounds=bounds) if name in LEVELS else VIEWS[name]


def _apply(name: str, view: View, images: Tensor, bounds: tuple[float, float]) -> Tensor:
    """The view of images, or InputError unless it gives images of the same shape within the bounds."""
    changed = view(images)
    if not isinstance(changed, Tensor) or changed.shape != images.shape:
        shape = tuple(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__
        raise InputError(f"view {name!r} makes {shape} of {tuple(images.shape)}; it must return images of that shape")
    slack = SLACK * (bounds[1] - bounds[0])
    least, greatest = (float(value) for value in changed.detach().aminmax())
    if not bounds[0] - slack <= least <= greatest <= bounds[1] + slack:  # NaN fails too
        problem = f"view {name!r} gives values from {least:g} to {greatest:g}; the classifier's bounds are {bounds}"
        raise InputError(f"{problem}: clip them in the view")
    return changed.clamp(*bounds)


@register_detector
@dataclass(frozen=True, kw_only=True)
class Views(Method):
    """Margins of the predicted class in the image and in views of it.

    Args:
        views: "full", the mirror image, median, coarse and two shifts; "fast", the mirror image alone; or names:
            mirror, rotation, median, blur, coarse, shift, other-shift, "2-levels" to "32-levels", and those of your
            own functions, which are passed as `supplied`.
        features: "margins", for a head; "drop", one number whose scale comes from clean images alone: it needs no
            attacked images and no head.
        top: margins over so many other classes of each view, the highest first; "drop" takes one.
        agreement: a view under which a smaller share of the fit's clean images keeps its label is left out.

    "coarse" rounds pixels to as few levels as `agreement` allows. Where the mirror image of a set is left out, as with
    digits, two levels are tried in its place, and a rotation by 9° where they are not enough or there already.
    """

    views: tuple[str, ...] | None = layer_names(("full",))
    features: str = word(*FEATURES)
    top: int = whole(2)
    # on development images ResNet-20 keeps 57 % of its labels with 4 levels, which catch more than 3 or 8; SVHN keeps
    # 38 % under the mirror image
    agreement: float = number(0.5, least=0, most=1)

    id: ClassVar[str] = "views"
    extractors: ClassVar[tuple[type[Extractor], ...]] = (ViewMargins, MarginDrop)
    paper_head: ClassVar[str] = "logistic"
    authors_head: ClassVar[str] = "logistic"
    without_attacks: ClassVar[str] = "features='drop'"

    @property
    def names(self) -> tuple[str, ...]:
        """The views to begin with."""
        words = ("full",) if self.views is None else self.views
        return tuple(dict.fromkeys(name for word in words for name in SETS.get(word, (word,))))

    @property
    def needs(self) -> frozenset[str]:
        """More forward passes than the one that detectors share."""
        return frozenset({"passes"})

    @property
    def head_options(self) -> HeadOptions:
        """The drop is the score; margins have a logistic regression."""
        options = super().head_options
        return replace(options, kind="plain") if self.features == "drop" and self.head is None else options

    @property
    def supplied_names(self) -> tuple[str, ...]:
        """The views that are not ours."""
        return tuple(name for name in self.names if name != COARSE and not _is_known(name))

    def fit_extractor(self, classifier: Classifier, data: FitData) -> ViewMargins | MarginDrop:
        """Returns the margins, or their drop, in views under which enough clean images keep their label."""
        margins = self._margins(classifier, data)
        return margins if self.features == "margins" else _drop(classifier, data, margins)

    def _margins(self, classifier: Classifier, data: FitData) -> ViewMargins:
        own = {name: data.supplied[name] for name in self.supplied_names}
        for name, view in own.items():
            if not callable(view):
                raise InputError(f"view {name!r} is {view!r}; it must be a function of images (N, C, H, W)")
        fixed = [name for name in self.names if name != COARSE]
        top = self.top if self.features == "margins" else 1
        tried = tuple(dict.fromkeys((*fixed, *LEVELS, *STAND_INS)))
        shares = _shares_that_agree(classifier, data.examples.clean, ViewMargins(tried, top, own=own))
        levels = [name for name in LEVELS if shares[name] >= self.agreement]
        names = list(dict.fromkeys(levels[0] if name == COARSE and levels else name for name in self.names))
        # not even the finest of the levels may keep enough labels
        shares[COARSE] = shares[next(reversed(LEVELS))]
        left_out = [name for name in names if name == COARSE or shares[name] < self.agreement]
        texts = [f"{name} ({shares[name]:.0%})" for name in left_out]
        enough = [name for name in names if name not in left_out]
        if "mirror" in left_out and (self.views is None or any(word in SETS for word in self.views)):
            others = [name for name in STAND_INS if name not in names and shares[name] >= self.agreement]
            enough = [*others[:1], *enough]
        if not enough:
            raise FitError(
                f"under no view do {self.agreement:.0%} of the clean images keep their label: {', '.join(texts)}; name "
                "other views, or lower agreement"
            )
        return ViewMargins(tuple(enough), top, ", ".join(texts), own)


def _drop(classifier: Classifier, data: FitData, margins: ViewMargins) -> MarginDrop:
    """What each view leaves of the margin of clean images, on average, and how far single images are from that."""
    clean, ids, label = data.examples.clean, data.examples.ids, Views.id
    if data.cache is not None:
        rows = data.cache.features(margins, clean, ids)
    else:
        (rows,) = extract(classifier, [margins], clean, ids, label=label, show_progress=data.show_progress)
    own, views = rows[:, :1].cpu(), rows[:, 1:].cpu()
    shares = views.mean(0) / own.mean()
    deviation = (views - shares * own).std(0, correction=0)
    least = 1e-6 * max(float(deviation.amax()), float(own.mean()))  # of a view that changes nothing
    return MarginDrop(margins, shares, deviation.clamp(min=least))


def _shares_that_agree(classifier: Classifier, clean: Tensor, extractor: ViewMargins) -> dict[str, float]:
    """The share of the clean images that each view leaves in their class."""
    agree = dict.fromkeys(extractor.views, 0)
    with torch.no_grad():
        for part in torch.split(clean, batch_size(classifier, clean.shape[1:])):
            logits = observe(classifier, part, []).logits
            if logits.shape[1] <= extractor.top:
                raise OptionError(f"top is {extractor.top}; the classifier has {logits.shape[1] - 1} other classes")
            for name, changed in zip(extractor.views, extractor.view_logits(classifier, part), strict=True):
                agree[name] += int((changed.argmax(1) == logits.argmax(1)).sum())
    return {name: count / len(clean) for name, count in agree.items()}
