"""Example sets: clean images that the network classifies correctly, with noisy and adversarial twins."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike

import torch
from torch import Tensor

from benfourier.attacks.attack import check_classes, checked_ids, checked_labels
from benfourier.attacks.crafting import Workshop
from benfourier.attacks.identity import digest_of_subject, digests_of_images
from benfourier.attacks.noise import CENTRES, Noise, draws
from benfourier.attacks.roster import Options, Wanted, check_apart, roster
from benfourier.attacks.stock import Crafted, Stock
from benfourier.data.examples import Examples
from benfourier.data.funnel import Funnel
from benfourier.errors import InputError, check_choice, check_seed, check_whole
from benfourier.store.cache import open_cache
from benfourier.subjects.subject import Subject, check_wrapped
from benfourier.subjects.weights import digest_of_weights

CHUNK = 64  # images that a killed run loses at most


def make_examples(
    subject: Subject,
    images: Tensor,
    labels: Tensor,
    *,
    attack: Wanted = "bim",
    seed: int = 0,
    ids: Sequence[str] | None = None,
    options: Mapping[str, Options] | None = None,
    beside: Wanted = (),
    noise: str = "median",
    cache: bool | str | PathLike[str] = True,
    chunk: int = CHUNK,
    batch: int | None = None,
    eight_bit: bool = False,
    show_progress: bool | None = None,
    report: Callable[[Crafted], object] | None = None,
) -> Examples:
    """Returns the images that are classified correctly, also with noise, beside what each attack made of them.

    Rows in which an attack failed stay and are marked in `success`.

    Args:
        subject: the network; it is left exactly as found.
        images: floating tensor (N, C, H, W) within the subject's bounds.
        labels: right classes, whole numbers (N,).
        attack: id of an attack, several ids, or by label an id or a pair (id, options).
        seed: of all random draws.
        ids: one per image, all different; an image's draws depend on the seed and its id only. By default its index.
        options: by attack, or label.
        beside: further attacks, as in attack, that do not move the level of the noise.
        noise: Gaussian noise has the "median" or the "mean" L2 of the successful perturbations; with several
            attacks the median over the attacks.
        cache: where finished chunks are kept: a folder, True for the default one, False for nowhere.
        chunk: images per chunk.
        batch: images at once inside a chunk; by default as many as fit the memory.
        eight_bit: round noisy and adversarial images to 8-bit pixels.
        show_progress: True or False to force the bar; by default it is drawn on a terminal.
        report: called with what each attack made of the images that are classified correctly, and what it took.
    """
    entries = roster(attack, options or {})
    others = roster(beside, {}) if beside else ()
    check_apart(entries, others)
    check_choice("noise", noise, CENTRES)
    check_wrapped(subject)
    subject.check(images)
    names, truth = checked_ids(ids, len(images)), checked_labels(labels, len(images)).cpu()
    chunk = check_whole("chunk", chunk)
    shop = Workshop(
        subject=subject,
        network=digest_of_subject(subject),
        cache=open_cache(cache),
        seed=check_seed(seed),
        chunk=chunk,
        batch=None if batch is None else min(chunk, check_whole("batch", batch)),
        eight_bit=eight_bit,
        show=show_progress,
    )
    right = _classified(shop, images.detach().to("cpu", torch.float32).contiguous(), truth, names)
    crafted = {}
    for entry in (*entries, *others):
        crafted[entry.label] = shop.crafted(entry, right)
        if report is not None:
            report(crafted[entry.label])
    level, noisy = _with_noise(shop, right, {entry.label: crafted[entry.label] for entry in entries}, noise)
    told, _ = shop.told(Stock(noisy, right.labels, right.ids, digests_of_images(noisy)), "noisy twins")
    left = (told == right.labels).nonzero().flatten()
    if not len(left):
        raise InputError(
            f"with noise of level {level:.4g} none of the {len(right)} images is classified correctly; "
            "give more images, or an attack that adds less"
        )
    kept = right.take(left)
    return Examples(
        clean=kept.images,
        noisy=noisy[left],
        attacked={label: found.images[left] for label, found in crafted.items()},
        success={label: found.success[left] for label, found in crafted.items()},
        labels=kept.labels,
        ids=kept.ids,
        noise_level=level,
        funnel=Funnel(
            (("given", len(images)), ("classified correctly", len(right)), ("noisy twin too", len(kept))),
        ),
        seed=shop.seed,
        options={
            "attacks": {entry.label: {"attack": entry.name, "options": entry.options} for entry in (*entries, *others)},
            "beside": [entry.label for entry in others],
            "noise": noise,
            "eight_bit": eight_bit,
            "chunk": chunk,
            "batch": shop.batch,
            "weights": digest_of_weights(subject.module),
        },
    )


def _classified(shop: Workshop, images: Tensor, labels: Tensor, ids: tuple[str, ...]) -> Stock:
    """The images that the subject classifies correctly."""
    given = Stock(images, labels, ids, digests_of_images(images))
    told, width = shop.told(given, "clean images")
    check_classes(labels, width)
    rows = (told == labels).nonzero().flatten()
    if not len(rows):
        raise InputError(
            f"the subject classifies none of the {len(images)} images correctly; check the labels, the order of "
            "the classes, the weights, and the subject's bounds, mean and std"
        )
    return given.take(rows)


def _with_noise(shop: Workshop, right: Stock, crafted: Mapping[str, Crafted], centre: str) -> tuple[float, Tensor]:
    """The level of noise as long as the perturbations, and the images with it."""
    lengths = [found.l2_centre(centre) for found in crafted.values() if found.success.any()]
    if not lengths:
        raise InputError(
            f"{', '.join(crafted)} succeeded on none of the {len(right)} images that are classified correctly; "
            "give more steps or a larger budget"
        )
    length = float(torch.tensor(lengths, dtype=torch.float64).quantile(0.5))
    noise = Noise(shop.subject, right.images, draws(right.images.shape[1:], shop.seed, right.ids), shop.eight_bit)
    level = shop.level(right, noise, length, centre)
    return level, noise.at(level)
