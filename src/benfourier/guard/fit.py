"""A guard from examples: which images a detector is fitted to, and which set its threshold."""

from torch import Tensor

from benfourier.data.examples import Examples
from benfourier.data.images import LabelledImages, content_ids
from benfourier.data.splits import split
from benfourier.detectors.catalogue import make_method
from benfourier.detectors.fit import fit
from benfourier.detectors.method import Method
from benfourier.guard.guard import RULES, Guard
from benfourier.metrics.thresholds import check_enough, images_needed
from benfourier.models.classifier import Classifier
from benfourier.store.vocabulary import SECOND

HELD_OUT = 0.2  # share of the examples' source images that set the threshold if no others are given; of few images,
MOST_HELD_OUT = 0.5  # as many as the false-alarm rate needs, up to this share


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
    """Returns a guard: a detector fitted to examples, with a threshold from images that the fit has not seen.

    Args:
        classifier: the network to guard.
        method: id of a detector, or a method with its options.
        examples: clean images with their noisy and adversarial twins.
        clean: images (N, C, H, W) that set the threshold, without those that the fit sees; by default a fifth of the
            examples is held out for it, or as many as the rate needs.
        labelled: labelled clean images beyond the examples, for methods that learn from them.
        second: the other network, for `second-opinion`.
        false_alarm_rate: share of clean images that may be rejected; n images allow 2 / (n + 1) at least.
        other_weights: the examples may have been made with other weights of the network.
        show_progress: True or False to force the bars; None draws them on a terminal.
    """
    method = make_method(method) if isinstance(method, str) else method
    if clean is None:
        check_enough(false_alarm_rate, len(examples), RULES)
        share = min(max(HELD_OUT, (images_needed(false_alarm_rate, RULES) + 0.5) / len(examples)), MOST_HELD_OUT)
        parts = split(examples.ids, [0] * len(examples), {"fit": 1 - share, "threshold": share}, seed=method.seed)
        clean = examples.clean[parts["threshold"]]
        examples = examples.take(parts["fit"], "fit")
    else:
        # images that the fit looks at have lower scores than new ones
        groups = [examples.clean, *examples.noisy.values(), *([] if labelled is None else [labelled.images])]
        seen = {name for images in groups for name in content_ids(images)}
        clean = clean[[row for row, name in enumerate(content_ids(clean)) if name not in seen]]
    check_enough(false_alarm_rate, len(clean), RULES)  # before the fit, which may take minutes
    detector = fit(
        method,
        classifier,
        examples,
        clean=labelled,
        supplied={} if second is None else {SECOND: second},
        other_weights=other_weights,
        show_progress=show_progress,
    )
    return Guard.calibrated(detector, clean, false_alarm_rate, known=examples.clean, show_progress=show_progress)
