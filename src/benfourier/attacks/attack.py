"""The door to all attacks, and what they share: checks, batches, distances, the last word on success."""

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from benfourier import progress
from benfourier.attacks.catalogue import Attack, recipe
from benfourier.attacks.hunt import Hunt, margins
from benfourier.attacks.probe import fitting_batch, probe
from benfourier.attacks.result import AttackResult
from benfourier.data.draws import generator
from benfourier.errors import InputError, ResponseError, check_seed, check_whole
from benfourier.subjects.hearing import undisturbed
from benfourier.subjects.subject import Subject, check_wrapped

LEVELS = 255  # steps between 8-bit pixels


def attack(
    name: str,
    subject: Subject,
    images: Tensor,
    labels: Tensor,
    *,
    seed: int = 0,
    ids: Sequence[str] | None = None,
    batch: int | None = None,
    show_progress: bool | None = None,
    eight_bit: bool = False,
    **options: object,
) -> AttackResult:
    """Returns images close to the given ones that the subject classifies as something else.

    Images that are misclassified as they are count as successes at distance 0, as in Foolbox, and are marked
    `already`. Rows without success hold the clean image; their distances are infinite.

    Args:
        name: id of an attack, or "foolbox:" and the name of a class of Foolbox 3.
        subject: the classifier to mislead; it is left exactly as found.
        images: floating tensor (N, C, H, W) within the subject's bounds.
        labels: right classes, whole numbers (N,).
        seed: of all random draws.
        ids: one per image, all different; an image's draws depend on the seed and its id only. By default its index.
        batch: images at once; by default as many as fit the memory; 32 at most on the CPU, 256 elsewhere.
        show_progress: True or False to force the bar; by default it is drawn on a terminal.
        eight_bit: round the images found to 8-bit pixels and ask the subject again. Those misclassified as they are
            are rounded too.
        options: of the attack.
    """
    start = time.perf_counter()
    chosen = recipe(name, options)
    check_wrapped(subject)
    subject.check(images)
    seed, names = check_seed(seed), checked_ids(ids, len(images))
    right = checked_labels(labels, len(images))
    size = None if batch is None else check_whole("batch", batch)
    parts = []
    with (
        torch.inference_mode(False),
        undisturbed(subject.module),
        progress.bar(len(images), name, show=show_progress) as advance,
    ):
        images = images.detach().clone()
        cost = probe(subject, images[:1])
        check_classes(right, cost.classes)
        for first in range(0, len(images), size or fitting_batch(cost)):
            part = slice(first, first + (size or fitting_batch(cost)))
            generators = [generator(seed, identity) for identity in names[part]]
            clean = images[part].to(subject.device, subject.dtype)
            truth = right[part].to(subject.device)
            grain = torch.finfo(images.dtype).eps
            hunt = Hunt(subject, clean, truth, generators, chosen.attack.confidence, cost.quick, grain)
            parts.append(_attacked(chosen.attack, hunt, images[part], names[part], eight_bit=eight_bit))
            advance(len(clean))
    found, success, already, calls = (torch.cat(column) for column in zip(*parts, strict=True))
    l2, linf = _distances(images, found, success)
    return AttackResult(
        name=name,
        options=chosen.options,
        seed=seed,
        ids=names,
        images=found,
        success=success,
        already=already,
        l2=l2,
        linf=linf,
        calls=calls,
        seconds=time.perf_counter() - start,
    )


def _attacked(
    attack: Attack, hunt: Hunt, images: Tensor, names: Sequence[str], *, eight_bit: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images, success, already and calls of one batch; images are the clean ones as the caller gave them."""
    logits = hunt.verdict(images.to(hunt.clean))
    for row in (~logits.isfinite().all(1)).nonzero().flatten().tolist():
        raise ResponseError(f"the logits of image {names[row]!r} hold NaN or infinity; leave the image out")
    already = _reached(hunt, logits)
    hunt.offer(hunt.clean, hunt.rows, already)
    hunt.leave_out(already)
    if len(hunt.rows):
        attack.run(hunt)
    best = rounded(hunt.images, hunt.subject) if eight_bit else hunt.images
    best = best.to(images)
    valid = ((best >= hunt.low) & (best <= hunt.high)).flatten(1).all(1)  # False for NaN
    valid |= already.to(valid.device)  # those may lie beyond the bounds by what the subject lets through
    found, candidates = images.clone(), valid & hunt.squared.isfinite().to(valid.device)
    found[candidates] = best[candidates]
    success = candidates & _reached(hunt, hunt.verdict(found.to(hunt.clean))).to(candidates.device)
    found[~success] = images[~success]
    return found, success.cpu(), already.cpu(), hunt.calls.cpu()


def _reached(hunt: Hunt, logits: Tensor) -> Tensor:
    """True where the label is not the first class, and is behind by at least the confidence."""
    lead = margins(logits, hunt.labels)
    return (lead > 0) & (lead >= hunt.confidence)


def rounded(images: Tensor, subject: Subject) -> Tensor:
    """Returns the nearest images with 8-bit pixels, as benfourier.images would read them."""
    low, high = subject.bounds
    levels = (LEVELS * (images - low) / (high - low)).round().to(torch.float32)
    return (low + (high - low) * (levels / LEVELS)).clamp(low, high)


def _distances(images: Tensor, found: Tensor, success: Tensor) -> tuple[Tensor, Tensor]:
    """L2 and L∞ of what was added, on the CPU; infinite for rows that failed."""
    added = (found.cpu().double() - images.cpu().double()).flatten(1)
    lost = ~success
    return added.norm(dim=1).masked_fill(lost, torch.inf), added.abs().amax(1).masked_fill(lost, torch.inf)


def checked_ids(ids: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """Returns the ids, by default the indices, or raises InputError unless they are different texts."""
    if ids is None:
        return tuple(map(str, range(count)))
    if not isinstance(ids, Sequence):
        raise InputError(f"ids are a {type(ids).__name__}; they must be one text per image")
    names = tuple(ids)
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong or isinstance(ids, str) or len(names) != count or len(set(names)) != count:
        raise InputError(
            f"ids are {len(names)} values, {len(set(names))} of them different"
            + (f", among them {wrong[0]!r}" if wrong else "")
            + f"; they must be one text per image, {count} in all, no two the same"
        )
    return names


def checked_labels(labels: Tensor, count: int) -> Tensor:
    """Returns the labels as int64, or raises InputError unless they are one whole number per image."""
    try:
        given = torch.as_tensor(labels)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"labels are a {type(labels).__name__}; they must be whole numbers, one per image") from error
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool or given.shape != (count,):
        raise InputError(
            f"labels are {given.dtype} of shape {tuple(given.shape)}; they must be whole numbers of shape ({count},)"
        )
    return given.long()


def check_classes(labels: Tensor, classes: int) -> None:
    """Raises InputError unless all labels are among that many classes."""
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise InputError(f"labels hold {int(wrong[0])}; this subject has {classes} classes, 0 to {classes - 1}")
