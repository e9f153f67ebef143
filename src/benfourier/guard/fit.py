"""A guard from examples: which images a detector is fitted to, which set its thresholds, and which measure it."""

from dataclasses import replace

import torch
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
from benfourier.models.accuracy import check_labels
from benfourier.models.classifier import Classifier
from benfourier.models.forward import leave_out_unsteady_layers, logits_in_batches
from benfourier.store.vocabulary import SECOND

# Share of the images of the examples that the card is measured on, and that set the thresholds if no others are given;
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
        clean: images (N, C, H, W) that set the threshold, without those of the examples; by default the fifth, at least
            as many as the rate needs, with the same share of the images that the examples leave out.
        labelled: labelled clean images beyond the examples, for methods that learn from them.
        second: the other network, for `second-opinion`.
        false_alarm_rate: share of clean images that may be rejected; n images allow 2 / (n + 1) at least.
        other_weights: the examples may have been made with other weights of the network.
        show_progress: True or False to force the bars; None draws them on a terminal.
    """
    method = make_method(method) if isinstance(method, str) else method
    if labelled is not None:
        check_labels(logits_in_batches(classifier, labelled.images), labelled.labels, classifier.classes)
    share, left_out = HELD_OUT, examples.clean[:0] if examples.left_out is None else examples.left_out
    if clean is not None:
        # images that the fit looks at have lower scores than new ones
        groups = [examples.clean, *examples.noisy.values(), *([] if labelled is None else [labelled.images])]
        groups += [] if examples.left_out is None else [examples.left_out]  # alone they would be too many of their kind
        seen = {name for images in groups for name in content_ids(images)}
        clean = clean[[row for row, name in enumerate(content_ids(clean)) if name not in seen]]
    else:
        images = len(examples) + len(left_out)
        share = min(max(share, (least_images(false_alarm_rate, RULES) + 0.5) / images), MOST_HELD_OUT)
    # One draw among all images, whether they make an example or not: clean images to come are like all of them.
    ids = [*examples.ids, *(f"left out {row}" for row in range(len(left_out)))]
    parts = split(ids, [0] * len(ids), {"fit": 1 - share, "held out": share}, seed=method.seed)
    fitted, held_out = (examples.take(part[part < len(examples)], name) for name, part in parts.items())
    apart = parts["held out"] - len(examples)
    thresholds = torch.cat([held_out.clean, left_out[apart[apart >= 0]]]) if clean is None else clean
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
