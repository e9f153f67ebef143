"""How well a generalized Gaussian distribution fits each layer, and what mbf would make of noise with such shapes."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from benfourier import kernels, progress
from benfourier.detectors.catalogue import method
from benfourier.detectors.classifiers import train
from benfourier.detectors.rows import Rows
from benfourier.errors import BenfourierError
from benfourier.evaluation.intervals import estimate
from benfourier.evaluation.metrics import auroc
from benfourier.evaluation.parts import CLEAN, NOISY, TEST, TRAIN, Kind, Part, digest_of_network, kinds_of
from benfourier.evaluation.responses import Fitted, fitted, layers_of
from benfourier.evaluation.sample import Sample
from benfourier.store.digest import digest_of
from benfourier.store.records import Control, LayerFit
from benfourier.subjects.features import features
from benfourier.subjects.plan import Layer
from benfourier.subjects.subject import Subject

FIT, TESTED = 240, 120  # source images, at most
ORDERS = 16
RESPONSES, OWN, SAME = "responses", "own shapes", "same shapes"
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Heard:
    """A kind of images with the fits to its responses."""

    kind: Kind
    fits: Fitted


def layer_study(
    subject: Subject,
    parts: Sequence[Part],
    attacks: Sequence[str],
    *,
    seed: int = 0,
    known: Collection[str] = (),
    show_progress: bool | None = None,
) -> Iterator[LayerFit | Control]:
    """Yields the fits of every kind in train and test, and the controls of each attack.

    Args:
        subject: the classifier.
        parts: examples; those called train and test count.
        attacks: labels of those that take part.
        seed: of the entries that are fitted, and of the noise.
        known: keys of records that are there already; they are not made again.
        show_progress: True or False to force the bar; None draws it on a terminal.
    """
    network = digest_of_network(subject)
    sides = {part.split: _first(part, FIT if part.split == TRAIN else TESTED) for part in parts}
    kinds = {
        split: {kind.name: kind for kind in kinds_of(sides[split]) if kind.name in (CLEAN, NOISY, *attacks)}
        for split in (TRAIN, TEST)
    }

    def key(*names: str) -> str:
        told = [kind.identity for split in (TRAIN, TEST) for kind in kinds[split].values()]
        return digest_of((network, "layers", str(seed), *names, *told))

    fits = {(split, name): key("fit", split, name) for split in kinds for name in kinds[split]}
    shared = [name for name in attacks if name in kinds[TRAIN] and name in kinds[TEST]]
    controls = {name: [key(name, what) for what in (RESPONSES, OWN, SAME)] for name in shared}
    if {*fits.values(), *(word for words in controls.values() for word in words)} <= set(known):
        return
    heard: dict[tuple[str, str], _Heard] = {}
    with progress.bar(len(fits) + len(controls), "layers", show=show_progress) as advance:
        for (split, name), made in fits.items():
            advance(0, f"{split}: {name}")
            kind = kinds[split][name]
            heard[split, name] = _Heard(kind, fitted(subject, kind.images, seed=seed))
            if made not in known:
                yield _layer_fit(subject, made, heard[split, name])
            advance(1)
        for attack, keys in controls.items():
            advance(0, f"noise for {attack}")
            yield from _controls(subject, heard, attack, keys, seed)
            advance(1)


def _first(part: Part, most: int) -> Part:
    count = min(most, len(part.examples))
    return Part(part.source, part.split, part.examples.take(range(count), "first"))


def _layer_fit(subject: Subject, key: str, heard: _Heard) -> LayerFit:
    kind, fits = heard.kind, heard.fits

    def over(values: Floats, middle: object) -> NDArray[np.float32]:
        found = [column[np.isfinite(column)] for column in values.T]
        return np.array([middle(column) if len(column) else np.nan for column in found], np.float32)  # type: ignore[operator]

    return LayerFit(
        key=key,
        source=kind.part.source,
        split=kind.part.split,
        kind=kind.name,
        layers=tuple(layer.name for layer in layers_of(subject, kind.images)),
        images=len(kind.ids),
        distance=over(fits.distances, np.mean),
        shape=over(fits.shapes, np.median),
        offset=over(fits.offsets, np.mean),
    )


def _controls(
    subject: Subject, heard: dict[tuple[str, str], _Heard], attack: str, keys: Sequence[str], seed: int
) -> Iterator[Control]:
    """AUROC of mbf fitted to train and tested on test: on the responses themselves, and on two kinds of noise."""
    for what, key in zip((RESPONSES, OWN, SAME), keys, strict=True):
        fit, test = (
            _rows([heard[split, name] for name in (CLEAN, NOISY, attack)], subject, what, seed + side)
            for side, split in enumerate((TRAIN, TEST))
        )
        try:
            scores = train(method("mbf"), fit).classifier.score(test.numbers).numpy()
        except BenfourierError:
            continue  # too few rows of one side
        found = estimate(auroc, Sample(scores, test.adversarial, test.sources), seed=seed)
        yield Control(
            key=key,
            source=heard[TEST, attack].kind.part.source,
            attack=attack,
            features=what,
            sources=len(set(fit.sources)),
            tested=len(set(test.sources)),
            auroc=found,
        )


def _rows(three: Sequence[_Heard], subject: Subject, what: str, seed: int) -> Rows:
    """Clean, noisy and attacked images of the sources on which the attack succeeded."""
    won = set(three[-1].kind.ids)
    clean = {name: row for row, name in enumerate(three[0].kind.ids)}
    random = np.random.default_rng(seed)
    layers = layers_of(subject, three[0].kind.images)
    numbers, sources, kinds = [], [], []
    for heard in three:
        chosen = [row for row, name in enumerate(heard.kind.ids) if name in won]
        names = [heard.kind.ids[row] for row in chosen]
        if what == RESPONSES:
            taken = features(subject, heard.kind.images[chosen], ORDERS, show_progress=False)
            numbers.append(torch.from_numpy(taken).double())
        else:
            shapes = heard.fits.shapes[chosen] if what == OWN else three[0].fits.shapes[[clean[n] for n in names]]
            numbers.append(_noise(shapes, layers, random))
        sources += names
        kinds += [heard.kind.name] * len(names)
    adversarial = np.array([kind not in (CLEAN, NOISY) for kind in kinds])
    return Rows(torch.cat(numbers), adversarial, tuple(sources), tuple(kinds))


def _noise(shapes: Floats, layers: Sequence[Layer], random: np.random.Generator) -> torch.Tensor:
    """|â_n| of noise with these shapes (rows, layers), as many entries as the layers have."""
    found = []
    for column, layer in zip(shapes.T, layers, strict=True):
        power = 1 / np.nan_to_num(column, nan=2.0)[:, None]  # a response without a fit becomes Gaussian noise
        size = (len(column), layer.entries)
        with np.errstate(under="ignore"):
            samples = random.standard_gamma(np.broadcast_to(power, size)) ** power * random.choice([-1.0, 1.0], size)
        found.append(kernels.magnitudes(torch.from_numpy(samples), ORDERS).double())
    return torch.cat(found, dim=1)
