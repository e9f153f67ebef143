"""`attack()`: checks, batches, distances, and the last forward pass that decides what is a success."""

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from benfourier.attacks.attack import Attack, AttackResult
from benfourier.attacks.catalogue import make_attack
from benfourier.attacks.run import AttackRun, margins
from benfourier.data.images import LabelledImages
from benfourier.data.seeds import image_generator
from benfourier.errors import ActivationError, InputError, OptionError, check_seed
from benfourier.models.classifier import Classifier, check_classifier
from benfourier.models.device import wide
from benfourier.models.forward import batch_size, batch_slices
from benfourier.models.images import LEVELS, from_pixels
from benfourier.models.module import frozen

LONGER, LONGEST = 1.1, 50.0  # factors by which what an attack added is lengthened, in a step and in all
MOST_ON_CPU = 32  # images at once: more gain no time there, and lose some


def attack(
    attack: Attack | str,
    classifier: Classifier,
    images: LabelledImages | Tensor,
    labels: Tensor | None = None,
    *,
    seed: int = 0,
    ids: Sequence[str] | None = None,
    batch: int | None = None,
    show_progress: bool | None = None,
    eight_bit: bool = False,
    **options: Any,
) -> AttackResult:
    """Returns images close to the given ones that the classifier classifies as something else.

    Images that are misclassified as they are count as successes at distance 0, as in Foolbox, and are marked
    `already`. Rows without success hold the clean image; their distances are infinite.

    Args:
        attack: id of an attack, "foolbox:" and the name of a class of Foolbox 3, or an Attack.
        classifier: the network to mislead; it is left exactly as it was.
        images: LabelledImages, or a floating tensor (N, C, H, W), within the classifier's bounds.
        labels: true classes, whole numbers (N,); not beside LabelledImages.
        seed: of all random draws.
        ids: one per image, all different; an image's draws depend on the seed and its id only. By default its index.
            Not beside LabelledImages.
        batch: images at once; by default as many as fit the memory; 32 at most on the CPU, 256 elsewhere.
        show_progress: True or False to force the bar; by default it is drawn on a terminal.
        eight_bit: round the images to 8-bit pixels before the last forward pass. Where rounding undoes an attack, what
            it added is lengthened until the rounded image misleads. Images misclassified as they are are rounded too.
        options: of the attack, if it is given by its id.
    """
    start = time.perf_counter()
    method, seed = attack_from(attack, options), check_seed(seed)
    check_classifier(classifier)
    inputs = labelled_images(classifier, images, labels, ids)
    parts = []
    with torch.inference_mode(False), frozen(classifier.module):
        clean = inputs.images.detach().clone()  # outside inference mode, so that autograd takes it
        with torch.no_grad():
            check_classes(inputs.labels, classifier.logits(clean[:1]).shape[1])
        size = default_batch(classifier, tuple(clean.shape[1:])) if batch is None else batch
        for part in batch_slices(classifier, clean, size, label=method.name, show_progress=show_progress):
            generators = [image_generator(seed, name) for name in inputs.ids[part]]
            run = AttackRun(classifier, clean[part], inputs.labels[part], generators, method.margin)
            parts.append(_attack_batch(method, run, clean[part], inputs.ids[part], eight_bit=eight_bit))
    adversarial, success, already, calls = (torch.cat(column) for column in zip(*parts, strict=True))
    added = (wide(adversarial) - wide(clean)).flatten(1)
    norms = (added.norm(dim=1).cpu(), added.abs().amax(1).cpu())
    l2, linf = (norm.masked_fill(~success, torch.inf) for norm in norms)
    chosen, seconds = MappingProxyType(method.as_dict()), time.perf_counter() - start
    return AttackResult(method.name, chosen, seed, inputs.ids, adversarial, success, already, l2, linf, calls, seconds)


def _attack_batch(
    attack: Attack, run: AttackRun, images: Tensor, ids: Sequence[str], *, eight_bit: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images, success, already and calls of one batch; images are the clean ones, in the caller's dtype."""
    home, images = images.device, images.to(run.clean.device)
    logits = run.final_logits(images.to(run.clean))
    check_finite(logits, ids)
    already = _leads(run, logits)
    run.record(run.clean, run.rows, already)
    run.rows = run.rows[~already]
    if len(run.rows):
        attack.run(run)
    best = (_eight_bit_best(run) if eight_bit else run.best).to(images)
    valid = ((best >= run.low) & (best <= run.high)).flatten(1).all(1)  # False for NaN
    valid |= already  # the classifier lets clean images exceed the bounds by rounding
    adversarial, candidates = images.clone(), valid & run.squared.isfinite()
    adversarial[candidates] = best[candidates]
    # only this pass decides, in the batch and dtype that the caller would use
    success = candidates & _leads(run, run.final_logits(adversarial.to(run.clean)))
    adversarial[~success] = images[~success]
    return adversarial.to(home), success.cpu(), already.cpu(), run.calls.cpu()


def _eight_bit_best(run: AttackRun) -> Tensor:
    """The images recorded, with 8-bit pixels; where rounding undoes an attack, what it added is lengthened."""
    best, added = to_eight_bit(run.best, run.classifier), run.best - run.clean
    rows, factor = run.rows[run.squared[run.rows].isfinite()], 1.0
    while len(rows) and factor < LONGEST:
        rounded = to_eight_bit(run.clip(run.clean[rows] + factor * added[rows]), run.classifier)
        misleads = run.is_adversarial(run.logits(rounded, rows), rows)
        best[rows[misleads]] = rounded[misleads]
        rows, factor = rows[~misleads], LONGER * factor
    return best


def _leads(run: AttackRun, logits: Tensor) -> Tensor:
    """True where another class leads the label, and by at least the margin."""
    lead = margins(logits, run.labels)
    return (lead > 0) & (lead >= run.margin)


def default_batch(classifier: Classifier, shape: tuple[int, ...]) -> int:
    """Returns how many images of shape (C, H, W) are attacked at once if the caller does not say."""
    fitting = batch_size(classifier, shape, gradients=True)
    return min(MOST_ON_CPU, fitting) if classifier.device.type == "cpu" else fitting


def to_eight_bit(images: Tensor, classifier: Classifier) -> Tensor:
    """Returns the nearest images with 8-bit pixels, as an image file would give them back."""
    low, high = classifier.bounds
    return from_pixels((LEVELS * (images - low) / (high - low)).round(), classifier)


def attack_from(attack: Attack | str, options: Mapping[str, Any]) -> Attack:
    """Returns an attack given by its id and options, or the Attack itself."""
    if not isinstance(attack, Attack):
        return make_attack(attack, **options)
    if options:
        raise OptionError(f"{attack.name} is an Attack, and {', '.join(options)} is given too; put options into it")
    return attack


def labelled_images(
    classifier: Classifier, images: LabelledImages | Tensor, labels: Tensor | None, ids: Sequence[str] | None
) -> LabelledImages:
    """Returns images that the classifier takes, with labels and ids; raises InputError if they do not fit."""
    if isinstance(images, LabelledImages):
        if labels is not None or ids is not None:
            raise InputError("images are LabelledImages, which hold labels and ids; leave labels= and ids= out")
        classifier.check_images(images.images)
        return images
    classifier.check_images(images)
    try:
        classes = torch.as_tensor(labels)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"labels are a {type(labels).__name__}; they must be whole numbers, one per image") from error
    if isinstance(ids, str) or not isinstance(ids, Sequence | None):
        raise InputError(f"ids are a {type(ids).__name__}; they must be one text per image, {len(images)} in all")
    return LabelledImages(images, classes, tuple(ids or ()))


def check_classes(labels: Tensor, classes: int) -> None:
    """Raises InputError unless all labels are among that many classes."""
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise InputError(f"labels hold {int(wrong[0])}; this classifier has {classes} classes, 0 to {classes - 1}")


def check_finite(logits: Tensor, ids: Sequence[str]) -> None:
    """Raises ActivationError with the id of the first image whose logits hold NaN or infinity."""
    for row in (~logits.isfinite().all(1)).nonzero().flatten().tolist():
        raise ActivationError(f"the logits of image {ids[row]!r} hold NaN or infinity; leave the image out")
