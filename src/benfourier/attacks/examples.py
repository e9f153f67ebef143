"""Example sets: clean images that the network classifies correctly, with noisy and adversarial twins."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike

import torch
from torch import Tensor

from benfourier.attacks.apply import (
    attack_from,
    check_classes,
    check_finite,
    default_batch,
    labelled_images,
    to_eight_bit,
)
from benfourier.attacks.attack import Attack, AttackResult
from benfourier.attacks.attack_cache import AttackCache
from benfourier.data.examples import Examples
from benfourier.data.images import LabelledImages
from benfourier.data.seeds import image_generator
from benfourier.errors import InputError, OptionError, check_choice, check_number, check_seed, check_whole
from benfourier.models.classifier import Classifier, check_classifier
from benfourier.models.forward import batch_slices
from benfourier.models.identity import classifier_digest
from benfourier.models.weights import weights_digest
from benfourier.store.cache import open_cache

CHUNK = 64  # images that a killed run loses at most
CENTRES: dict[str, Callable[[Tensor], Tensor]] = {"median": lambda lengths: lengths.quantile(0.5), "mean": torch.mean}
MOST = 1e6  # noise of so many widths of the bounds sends every pixel to one of them
TOLERANCE = 1e-6  # of the level
ROWS = 256  # images whose noise is measured at once
NOISY = "noisy"  # name of the one level that perturbations set
Attacks = str | Attack | Mapping[str, str | Attack]
NoiseLevels = str | Mapping[str, float]


def make_examples(
    classifier: Classifier,
    images: LabelledImages | Tensor,
    labels: Tensor | None = None,
    *,
    attacks: Attacks = "bim",
    noise_from: Sequence[str] | None = None,
    seed: int = 0,
    ids: Sequence[str] | None = None,
    noise: NoiseLevels = "median",
    cache: bool | str | PathLike[str] = True,
    chunk: int = CHUNK,
    batch: int | None = None,
    eight_bit: bool = False,
    show_progress: bool | None = None,
    report: Callable[[str, AttackResult], object] | None = None,
) -> Examples:
    """Returns the images that are classified correctly, also with noise, and their adversarial twins.

    Rows in which an attack failed stay and are marked in `success`.

    Args:
        classifier: the network; it is left exactly as it was.
        images: LabelledImages, or a floating tensor (N, C, H, W), within the classifier's bounds.
        labels: true classes, whole numbers (N,); not beside LabelledImages.
        attacks: id of an attack, an Attack, or several of them by label; {} for none.
        noise_from: labels of the attacks whose perturbations set the level of the noise; None for all.
        seed: of all random draws.
        ids: one per image, all different; an image's draws depend on the seed and its id only. By default its index.
        noise: Gaussian noise has the "median" or the "mean" L2 of the successful perturbations; with several
            attacks the median over the attacks. Or standard deviations in pixel values by name, one noisy twin each.
        cache: where finished chunks are kept: a folder, True for the default one, False for nowhere.
        chunk: images per chunk.
        batch: images at once inside a chunk; by default as many as fit the memory.
        eight_bit: round noisy and adversarial images to 8-bit pixels.
        show_progress: True or False to force the bar; by default it is drawn on a terminal.
        report: called with the label and the result of each attack on the images that are classified correctly.
    """
    methods = _attacks_by_label(attacks)
    sources = _noise_labels(noise_from, methods, noise)
    check_classifier(classifier)
    inputs = labelled_images(classifier, images, labels, ids)
    pixels = inputs.images.detach().to("cpu", torch.float32).contiguous()
    inputs = LabelledImages(pixels, inputs.labels.cpu(), inputs.ids)
    chunk, disk = check_whole("chunk", chunk), open_cache(cache)
    digest = "" if disk is None else classifier_digest(classifier, tuple(pixels.shape[1:]))
    batch = None if batch is None else min(chunk, check_whole("batch", batch))
    attack_cache = AttackCache(classifier, digest, disk, check_seed(seed), chunk, batch, eight_bit, show_progress)
    correct = _correct_images(attack_cache, inputs)
    results = {}
    for label, method in methods.items():
        results[label] = attack_cache.attack(label, method, correct)
        if report is not None:
            report(label, results[label])
    twins = Noise(classifier, correct.images, noise_draws(pixels.shape[1:], attack_cache.seed, correct.ids), eight_bit)
    levels = _noise_levels(noise, twins, {label: results[label] for label in sources})
    noisy, rows = _correct_twins(attack_cache, correct, twins, levels)
    clean = correct.take(rows)
    counts = (("given", len(inputs)), ("classified correctly", len(correct)), ("noisy twin too", len(clean)))
    return Examples(
        clean=clean.images,
        noisy={name: images[rows] for name, images in noisy.items()},
        adversarial={label: result.images[rows] for label, result in results.items()},
        success={label: result.success[rows] for label, result in results.items()},
        labels=clean.labels,
        ids=clean.ids,
        noise_levels=levels,
        counts=counts if noisy else counts[:2],
        seed=attack_cache.seed,
        options={
            "attacks": {label: {"attack": each.name, "options": each.as_dict()} for label, each in methods.items()},
            "noise_from": sources,
            "noise": noise if isinstance(noise, str) else levels,
            "eight_bit": eight_bit,
            "chunk": chunk,
            "batch": batch,
            "weights": weights_digest(classifier.module),
        },
    )


def _attacks_by_label(attacks: Attacks) -> dict[str, Attack]:
    """The attacks by label; one alone has its name as label."""
    if isinstance(attacks, str | Attack):
        method = attack_from(attacks, {})
        attacks = {method.name: method}
    if not isinstance(attacks, Mapping):
        raise OptionError(
            f"attacks is {attacks!r}; it must be an id, an Attack, or a mapping from labels to these, "
            'such as {"bim": "bim", "weak": make_attack("bim-fixed", eps=0.1)}'
        )
    methods = {label: attack_from(each, {}) for label, each in attacks.items()}
    for label, method in methods.items():
        try:
            json.dumps(method.as_dict(), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise OptionError(
                f"the options of {label} cannot be written as JSON ({error}); examples hold the options they were made "
                "with: use text, numbers and lists"
            ) from error
    return methods


def _noise_labels(noise_from: Sequence[str] | None, methods: Mapping[str, Attack], noise: NoiseLevels) -> list[str]:
    """Labels of the attacks that set the level of the noise; none if the levels are given."""
    if isinstance(noise, Mapping):
        for name, level in noise.items():
            check_number(f"noise[{name!r}]", level, least=0)
        if noise_from is not None:
            raise OptionError(f"noise_from is {list(noise_from)}, and the levels of the noise are given; leave one out")
        return []
    check_choice("noise", noise, CENTRES)
    if not methods:
        raise OptionError(
            "attacks is empty, so that no perturbation sets the level of the noise; name an attack, such as 'bim', "
            'or give levels in pixel values, such as noise={"noisy": 0.05}'
        )
    labels = list(methods if noise_from is None else noise_from)
    if isinstance(noise_from, str) or not labels:
        raise OptionError(f"noise_from is {noise_from!r}; it must be labels of attacks, among {', '.join(methods)}")
    for label in labels:
        check_choice("label in noise_from", label, methods)
    return labels


def _logits(attack_cache: AttackCache, images: Tensor, ids: Sequence[str], what: str) -> Tensor:
    """The logits (N, classes), all finite."""
    classifier, parts = attack_cache.classifier, []
    size = attack_cache.batch or default_batch(classifier, tuple(images.shape[1:]))
    with torch.no_grad():
        for part in batch_slices(classifier, images, size, label=what, show_progress=attack_cache.show_progress):
            parts.append(classifier.logits(images[part]).cpu())
            check_finite(parts[-1], ids[part])
    return torch.cat(parts)


def _correct_images(attack_cache: AttackCache, inputs: LabelledImages) -> LabelledImages:
    logits = _logits(attack_cache, inputs.images, inputs.ids, "clean images")
    check_classes(inputs.labels, logits.shape[1])
    rows = (logits.argmax(1) == inputs.labels).nonzero().flatten()
    if not len(rows):
        raise InputError(
            f"the classifier classifies none of the {len(inputs)} images correctly; check the labels, the order of "
            "the classes, the weights, and the classifier's bounds, mean and std"
        )
    return inputs.take(rows)


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise of any level for some images, always a multiple of the same draws."""

    classifier: Classifier  # to whose bounds images are clipped
    clean: Tensor  # (N, C, H, W)
    draws: Tensor  # standard normal numbers, one per pixel
    eight_bit: bool  # whether noisy images have 8-bit pixels

    def at(self, level: float, rows: slice = slice(None)) -> Tensor:
        """Returns images with noise of a level, within bounds."""
        noisy = (self.clean[rows] + level * self.draws[rows]).clamp(*self.classifier.bounds)
        return to_eight_bit(noisy, self.classifier) if self.eight_bit else noisy

    def length(self, level: float, centre: str) -> float:
        """Returns the median or mean L2 of the noise after clipping to the bounds."""
        parts = [slice(first, first + ROWS) for first in range(0, len(self.clean), ROWS)]
        added = (self.at(level, part).double() - self.clean[part].double() for part in parts)
        return float(CENTRES[centre](torch.cat([part.flatten(1).square().sum(1).sqrt() for part in added])))

    def level_for(self, length: float, centre: str) -> float:
        """Returns the level whose median or mean length is the one given, by bisection: lengths rise with the level."""
        low, high = self.classifier.bounds
        greatest = self.length(MOST * (high - low), centre)
        if greatest < length:
            raise InputError(
                f"the {centre} L2 of the adversarial perturbations is {length:.4g}, that of noise within the bounds "
                f"{self.classifier.bounds} at most {greatest:.4g}; take an attack that adds less"
            )
        below, above = 0.0, length / math.sqrt(self.clean[0].numel())
        while self.length(above, centre) < length:
            below, above = above, 2 * above
        while above - below > TOLERANCE * above:
            middle = (below + above) / 2
            below, above = (middle, above) if self.length(middle, centre) < length else (below, middle)
        return above


def noise_draws(shape: Sequence[int], seed: int, ids: Sequence[str]) -> Tensor:
    """Returns standard normal numbers (N, *shape), each row from a generator of its image's id."""
    return torch.stack([torch.randn(*shape, generator=image_generator(seed, f"noise\0{name}")) for name in ids])


def _noise_levels(noise: NoiseLevels, twins: Noise, results: Mapping[str, AttackResult]) -> dict[str, float]:
    """Levels of the noise by name: those given, or the one whose length is the median over the attacks."""
    if isinstance(noise, Mapping):
        return {name: float(level) for name, level in noise.items()}
    lengths = [float(CENTRES[noise](each.l2[each.success])) for each in results.values() if each.success.any()]
    if not lengths:
        raise InputError(
            f"{', '.join(results)} succeeded on none of the {len(twins.clean)} images that are classified correctly; "
            "give more steps or a larger budget"
        )
    return {NOISY: twins.level_for(float(torch.tensor(lengths, dtype=torch.float64).quantile(0.5)), noise)}


def _correct_twins(
    attack_cache: AttackCache, correct: LabelledImages, twins: Noise, levels: Mapping[str, float]
) -> tuple[dict[str, Tensor], Tensor]:
    """The noisy images of each level, and the rows that are classified correctly at all of them."""
    noisy, stays = {}, torch.ones(len(correct), dtype=torch.bool)
    for name, level in levels.items():
        noisy[name] = twins.at(level)
        stays &= _logits(attack_cache, noisy[name], correct.ids, f"{name} twins").argmax(1) == correct.labels
        if not stays.any():
            raise InputError(
                f"with noise of level {level:.4g} none of the {len(correct)} images is classified correctly; "
                "give more images, or an attack that adds less"
            )
    return noisy, stays.nonzero().flatten()
