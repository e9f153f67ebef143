"""Example sets: clean images that the network classifies correctly, with noisy and adversarial twins."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from benfourier import progress
from benfourier.attacks import apply
from benfourier.attacks.attack import Attack, AttackResult
from benfourier.attacks.r_pgd import RPgdBeyond
from benfourier.data.examples import Examples
from benfourier.data.images import LabelledImages
from benfourier.data.seeds import image_generator
from benfourier.errors import InputError, OptionError, check_choice, check_number, check_seed, check_whole
from benfourier.models.accuracy import Say, check_labels
from benfourier.models.classifier import Classifier, check_classifier
from benfourier.models.forward import batch_slices
from benfourier.models.identity import classifier_digest
from benfourier.models.weights import weights_digest
from benfourier.options import check_json
from benfourier.store.artifact import Arrays, FilePath, digest_of
from benfourier.store.cache import Cache, fetch, open_cache
from benfourier.store.vocabulary import NOISY

FORMAT = 3  # revision of the cache's keys and arrays
CHUNK = 64  # images that a killed run loses at most
CENTRES: dict[str, Callable[[Tensor], Tensor]] = {"median": lambda lengths: lengths.quantile(0.5), "mean": torch.mean}
MOST = 1e6  # noise of so many widths of the bounds sends every pixel to one of them
TOLERANCE = 1e-6  # of the level
ROWS = 256  # images whose noise is measured at once
DEFAULT, EACH = "default", "each"  # words of `attacks` and `noise`
HALVINGS = 5  # of the noise of an image that is misclassified with it
# What a detector for every strength is fitted to: boundary attacks alone teach it that only small margins are bad.
MIXTURE: Mapping[str, Attack] = MappingProxyType({"weak": RPgdBeyond(factor=1.2), "strong": RPgdBeyond(factor=8.0)})
Attacks = str | Attack | Mapping[str, str | Attack]
NoiseLevels = str | Mapping[str, float]


def make_examples(
    classifier: Classifier,
    images: LabelledImages | Tensor,
    labels: Tensor | None = None,
    *,
    attacks: Attacks = DEFAULT,
    noise_from: Sequence[str] | None = None,
    seed: int = 0,
    ids: Sequence[str] | None = None,
    noise: NoiseLevels | None = None,
    cache: bool | FilePath = True,
    chunk: int = CHUNK,
    batch: int | None = None,
    eight_bit: bool = False,
    show_progress: bool | None = None,
    report: Callable[[str, AttackResult], object] | None = None,
    say: Say | None = None,
) -> Examples:
    """Returns the images that are classified correctly, also with noise, and their adversarial twins.

    Rows in which an attack failed stay and are marked in `success`. The other images are in `left_out`. Labels that
    cannot be those of the network are an InputError.

    Args:
        classifier: the network; it is left exactly as it was.
        images: LabelledImages, or a floating tensor (N, C, H, W), within the classifier's bounds.
        labels: true classes, whole numbers (N,); not beside LabelledImages.
        attacks: "default" for MIXTURE; id of an attack, an Attack, or several of them by label; {} for none.
        noise_from: labels of the attacks whose perturbations set the level of the noise; None for all.
        seed: of all random draws.
        ids: one per image, all different; an image's draws depend on the seed and its id only. By default its index.
        noise: Gaussian noise has the "median" or the "mean" L2 of the successful perturbations; with several
            attacks the median over the attacks. "each", the default for MIXTURE, adds a noisy twin for each attack, of
            its median L2, halved up to five times where the image is misclassified. Or standard deviations in pixel
            values by name, one noisy twin each.
        cache: where finished chunks are kept: a folder, True for the default one, False for nowhere.
        chunk: images per chunk.
        batch: images at once inside a chunk; by default as many as fit the memory.
        eight_bit: round noisy and adversarial images to 8-bit pixels.
        show_progress: True or False to force the bar; by default it is drawn on a terminal.
        report: called with the label and the result of each attack on the images that are classified correctly.
        say: called with a sentence on the network's accuracy before anything is attacked, and a warning if it is low.
    """
    noise = noise if noise is not None else EACH if attacks == DEFAULT else "median"
    methods = _attacks_by_label(attacks)
    sources = _noise_labels(noise_from, methods, noise)
    check_classifier(classifier)
    inputs = apply.labelled_images(classifier, images, labels, ids)
    pixels = inputs.images.detach().to("cpu", torch.float32).contiguous()
    inputs = LabelledImages(pixels, inputs.labels.cpu(), inputs.ids)
    chunk, disk = check_whole("chunk", chunk), open_cache(cache)
    digest = "" if disk is None else classifier_digest(classifier, tuple(pixels.shape[1:]))
    batch = None if batch is None else min(chunk, check_whole("batch", batch))
    attack_cache = AttackCache(classifier, digest, disk, check_seed(seed), chunk, batch, eight_bit, show_progress)
    correct = _correct_images(attack_cache, inputs, say)
    results = {}
    for label, method in methods.items():
        results[label] = attack_cache.attack(label, method, correct)
        if report is not None:
            report(label, results[label])
    twins = Noise(classifier, correct.images, noise_draws(pixels.shape[1:], attack_cache.seed, correct.ids), eight_bit)
    levels = _noise_levels(noise, twins, {label: results[label] for label in sources})
    noisy, rows = _correct_twins(attack_cache, correct, twins, levels, HALVINGS if noise == EACH else 0)
    clean = correct.take(rows)
    names = frozenset(clean.ids)
    left_out = inputs.images[[row for row, name in enumerate(inputs.ids) if name not in names]]
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
        left_out=left_out,
    )


def _attacks_by_label(attacks: Attacks) -> dict[str, Attack]:
    """The attacks by label; one alone has its name as label."""
    if attacks == DEFAULT:
        return dict(MIXTURE)
    if isinstance(attacks, str | Attack):
        method = apply.attack_from(attacks, {})
        attacks = {method.name: method}
    if not isinstance(attacks, Mapping):
        raise OptionError(
            f"attacks is {attacks!r}; it must be an id, an Attack, or a mapping from labels to these, "
            'such as {"bim": "bim", "weak": make_attack("bim-fixed", eps=0.1)}'
        )
    methods = {label: apply.attack_from(each, {}) for label, each in attacks.items()}
    for label, method in methods.items():
        check_json(f"the options of {label}", method.as_dict())  # examples hold the options they were made with
    return methods


def _noise_labels(noise_from: Sequence[str] | None, methods: Mapping[str, Attack], noise: NoiseLevels) -> list[str]:
    """Labels of the attacks that set the level of the noise; none if the levels are given."""
    if isinstance(noise, Mapping):
        for name, level in noise.items():
            check_number(f"noise[{name!r}]", level, least=0)
        if noise_from is not None:
            raise OptionError(f"noise_from is {list(noise_from)}, and the levels of the noise are given; leave one out")
        return []
    check_choice("noise", noise, (*CENTRES, EACH))
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


@dataclass(frozen=True)
class AttackCache:
    """Attacks images chunk by chunk, or reads the chunks that are stored: a run that was killed goes on where it was.

    The last bits of an image depend on the batch that it was attacked in. So the images are cut into chunks in their
    order, and every chunk is attacked, stored and read as a whole.
    """

    classifier: Classifier
    digest: str  # its `classifier_digest`
    cache: Cache | None  # where chunks are stored; None to attack everything anew
    seed: int
    chunk: int  # images per chunk
    batch: int | None  # images at once; None for as many as fit the memory
    eight_bit: bool
    show_progress: bool | None

    def attack(self, label: str, attack: Attack, images: LabelledImages) -> AttackResult:
        """Returns the attacked images; those that are misclassified without an attack count as failed."""
        parts: list[Arrays] = []
        start, cached = time.perf_counter(), 0
        with progress.bar(len(images), f"attack {label}", show=self.show_progress) as advance:
            for first in range(0, len(images), self.chunk):
                chunk = images.take(range(first, min(first + self.chunk, len(images))))
                part, known = fetch(self.cache, self.key(attack, chunk), partial(self._attack_chunk, attack, chunk))
                parts.append(part)
                cached += known * len(chunk)
                advance(len(chunk), note=_note(_join(parts, "success"), _join(parts, "l2")))
        columns = {name: _join(parts, name) for name in parts[0]}
        columns["already"] = torch.zeros(len(images), dtype=torch.bool)
        options, seconds = MappingProxyType(attack.as_dict()), time.perf_counter() - start
        return AttackResult(attack.name, options, self.seed, images.ids, **columns, seconds=seconds, cached=cached)

    def key(self, attack: Attack, chunk: LabelledImages) -> str:
        """Returns the digest of all that decides the images of a chunk; later versions keep it as it is.

        The version of benfourier is not in it: an attack that gives other images raises its `revision`.
        """
        library = version(attack.library) if attack.library else None
        depends = {
            "format": FORMAT,
            "classifier": self.digest,
            "attack": [attack.name, attack.as_dict(), attack.revision, library],
            "seed": self.seed,
            "batch": self.batch,
            "eight_bit": self.eight_bit,
            "content_ids": chunk.content_ids,
            "labels": chunk.labels.tolist(),
            "ids": chunk.ids,  # random draws belong to them
        }
        return digest_of((json.dumps(depends, sort_keys=True, allow_nan=False),))

    def _attack_chunk(self, attack: Attack, chunk: LabelledImages) -> Arrays:
        options: dict[str, Any] = {"seed": self.seed, "batch": self.batch, "eight_bit": self.eight_bit}
        result = apply.attack(attack, self.classifier, chunk, show_progress=False, **options)
        success = result.success & ~result.already  # rounding in another batch can misclassify a clean image
        columns = {
            "images": torch.where(success.view(-1, 1, 1, 1), result.images, chunk.images),
            "success": success,
            "l2": result.l2.masked_fill(~success, torch.inf),
            "linf": result.linf.masked_fill(~success, torch.inf),
            "calls": result.calls,
        }
        return {name: column.numpy() for name, column in columns.items()}


def _join(parts: Sequence[Arrays], name: str) -> Tensor:
    return torch.cat([torch.from_numpy(part[name]) for part in parts])


def _note(success: Tensor, l2: Tensor) -> str:
    if not success.any():
        return "no success yet"
    return f"success {float(success.double().mean()):.3f}, median L2 {float(l2[success].quantile(0.5)):.3g}"


def _logits(attack_cache: AttackCache, images: Tensor, ids: Sequence[str], what: str) -> Tensor:
    """The logits (N, classes), all finite."""
    classifier, parts = attack_cache.classifier, []
    size = attack_cache.batch or apply.default_batch(classifier, tuple(images.shape[1:]))
    with torch.no_grad():
        for part in batch_slices(classifier, images, size, label=what, show_progress=attack_cache.show_progress):
            parts.append(classifier.logits(images[part]).cpu())
            apply.check_finite(parts[-1], ids[part])
    return torch.cat(parts)


def _correct_images(attack_cache: AttackCache, inputs: LabelledImages, say: Say | None) -> LabelledImages:
    logits = _logits(attack_cache, inputs.images, inputs.ids, "clean images")
    apply.check_classes(inputs.labels, logits.shape[1])
    check_labels(logits, inputs.labels, attack_cache.classifier.classes, say)
    return inputs.take((logits.argmax(1) == inputs.labels).nonzero().flatten())


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise of any level for some images, always a multiple of the same draws."""

    classifier: Classifier  # to whose bounds images are clipped
    clean: Tensor  # (N, C, H, W)
    draws: Tensor  # standard normal numbers, one per pixel
    eight_bit: bool  # whether noisy images have 8-bit pixels

    def at(self, level: float, rows: slice | Tensor = slice(None)) -> Tensor:
        """Returns images with noise of a level, within bounds."""
        noisy = (self.clean[rows] + level * self.draws[rows]).clamp(*self.classifier.bounds)
        return apply.to_eight_bit(noisy, self.classifier) if self.eight_bit else noisy

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
    """Levels of the noise by name: those given, or the one whose length is the median over the attacks, and each's."""
    if isinstance(noise, Mapping):
        return {name: float(level) for name, level in noise.items()}
    centre = "median" if noise == EACH else noise
    lengths = {label: float(CENTRES[centre](r.l2[r.success])) for label, r in results.items() if r.success.any()}
    if not lengths:
        raise InputError(
            f"{', '.join(results)} succeeded on none of the {len(twins.clean)} images that are classified correctly; "
            "give more steps or a larger budget"
        )
    median = float(torch.tensor(list(lengths.values()), dtype=torch.float64).quantile(0.5))
    levels = {NOISY: twins.level_for(median, centre)}
    if noise == EACH:
        others = {label: length for label, length in lengths.items() if length != median}
        levels |= {f"{NOISY}, {label}": twins.level_for(length, centre) for label, length in others.items()}
    return levels


def _correct_twins(
    attack_cache: AttackCache, correct: LabelledImages, twins: Noise, levels: Mapping[str, float], halvings: int
) -> tuple[dict[str, Tensor], Tensor]:
    """The noisy images of each level, and the rows that are classified correctly at all of them."""
    noisy, stays = {}, torch.ones(len(correct), dtype=torch.bool)
    for name, level in levels.items():
        noisy[name], rows = torch.empty_like(correct.images), torch.arange(len(correct))
        for halving in range(halvings + 1):
            noisy[name][rows] = twins.at(level / 2**halving, rows)
            logits = _logits(attack_cache, noisy[name][rows], [correct.ids[row] for row in rows], f"{name} twins")
            rows = rows[logits.argmax(1) != correct.labels[rows]]
            if not len(rows):
                break
        stays[rows] = False
        if not stays.any():
            raise InputError(
                f"with noise of level {level:.4g} none of the {len(correct)} images is classified correctly; "
                "give more images, or an attack that adds less"
            )
    return noisy, stays.nonzero().flatten()
