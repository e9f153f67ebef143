"""A guard from examples: which images a detector is fitted to, which set its thresholds, and which measure it."""

from dataclasses import replace

from torch import Tensor

from benfourier.data.examples import Examples
from benfourier.data.images import LabelledImages, content_ids
from benfourier.data.splits import split
from benfourier.detectors.catalogue import make_method
from benfourier.detectors.fit import fit
from benfourier.detectors.method import Method
from benfourier.guard.card import measure
from benfourier.guard.guard import RULES, Guard
from benfourier.metrics.thresholds import check_enough, least_images
from benfourier.models.classifier import Classifier
from benfourier.models.forward import leave_out_unsteady_layers
from benfourier.store.vocabulary import SECOND

# Share of the examples' source images that the card is measured on, and that set the thresholds if no others are given;
HELD_OUT = 0.2  # of few images then as many as the false-alarm rate needs, up to MOST_HELD_OUT
MOST_HELD_OUT = 0.5


def fit_guard(
    classifier: Classifier,
    method: Method | str,
    examples: Examples,
    *,
    clean: Tensor | None = None,
    labelled: LabelledImages | None = None,
    second: Classifier | None = None,
    false_alarm_rate: float = 0.05,
    other_weights: bool = False,
    show_progress: bool | None = None,
) -> Guard:
    """Returns a guard: a detector fitted to examples, with thresholds and a card from images that it has not seen.

    Args:
        classifier: the network to guard.
        method: id of a detector, or a method with its options.
        examples: clean images with their noisy and adversarial twins; a fifth is held out to measure the guard.
        clean: images (N, C, H, W) that set the threshold, without those that the fit sees; by default those of the
            examples that are held out, at least as many as the rate needs.
        labelled: labelled clean images beyond the examples, for methods that learn from them.
        second: the other network, for `second-opinion`.
        false_alarm_rate: share of clean images that may be rejected; n images allow 2 / (n + 1) at least.
        other_weights: the examples may have been made with other weights of the network.
        show_progress: True or False to force the bars; None draws them on a terminal.
    """
    method = make_method(method) if isinstance(method, str) else method
    share = HELD_OUT
    if clean is not None:
        # images that the fit looks at have lower scores than new ones
        groups = [examples.clean, *examples.noisy.values(), *([] if labelled is None else [labelled.images])]
        seen = {name for images in groups for name in content_ids(images)}
        clean = clean[[row for row, name in enumerate(content_ids(clean)) if name not in seen]]
    else:
        share = min(max(share, (least_images(false_alarm_rate, RULES) + 0.5) / len(examples)), MOST_HELD_OUT)
    parts = split(examples.ids, [0] * len(examples), {"fit": 1 - share, "held out": share}, seed=method.seed)
    fitted, held_out = examples.take(parts["fit"], "fit"), examples.take(parts["held out"], "held out")
    thresholds = held_out.clean if clean is None else clean
    check_enough(false_alarm_rate, len(thresholds), RULES)  # before the fit, which may take minutes
    leave_out_unsteady_layers(classifier, [thresholds, held_out.clean], show_progress=show_progress)
    detector = fit(
        method,
        classifier,
        fitted,
        clean=labelled,
        supplied={} if second is None else {SECOND: second},
        other_weights=other_weights,
        show_progress=show_progress,
    )
    guard = Guard.calibrated(detector, thresholds, false_alarm_rate, known=fitted.clean, show_progress=show_progress)
    return replace(guard, card=measure(guard, held_out, None, show_progress=show_progress))
