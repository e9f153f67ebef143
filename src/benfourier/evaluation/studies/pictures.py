"""Example images with what attacks added, as small PNGs in a folder beside the ledger."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.data.open_source import Credit
from benfourier.data.splits import stratified_order
from benfourier.evaluation.studies.study import DataPart, ImageKind, Job, digest_of_network, image_kinds
from benfourier.models.classifier import Classifier
from benfourier.store.artifact import digest_of, replace_file
from benfourier.store.records import Picture
from benfourier.store.vocabulary import Split

PREFERRED = (Split.TEST, Split.OUT_OF_SAMPLE, Split.TRAIN)  # pictures of a source come from the first that it has
DIGITS = 16  # of the digest in a name
SIDE = 160  # of the PNGs, at most
Pixels = NDArray[np.uint8]


def picture_jobs(
    classifier: Classifier,  # with class names, labels are words
    parts: Sequence[DataPart],
    folder: str | PathLike[str],  # for PNGs, beside the ledger; records name them as "folder/name.png"
    *,
    each: int = 3,  # pictures per attack and source
    seed: int = 0,  # another seed chooses other images
    credit: Credit = lambda _: "",  # whose a photograph is, by its id
) -> Iterator[Job]:
    """Yields a few pictures of each attack on each source; files are written even if their records are known.

    Source images on which most attacks succeeded come first, so that attacks are shown on the same images. Files that
    are there are left alone, since their names are digests of their pixels.
    """
    network = digest_of_network(classifier)
    for kind, row in _choose(parts, each, seed):
        author = credit(kind.labelled.ids[row])
        key = digest_of((network, "picture", repr((SIDE, author)), kind.identity, kind.labelled.ids[row]))
        make = partial(_picture, classifier, kind, row, Path(folder), author)
        yield Job(kind.name, (key,), make, is_repeated=True)


def _choose(parts: Sequence[DataPart], each: int, seed: int) -> Iterator[tuple[ImageKind, int]]:
    """The first rows of each attack on each source, those on which most attacks succeeded first."""
    done: set[tuple[str, str]] = set()
    for part in sorted(parts, key=lambda part: PREFERRED.index(Split(part.split))):
        examples = part.examples
        successes = torch.stack(list(examples.success.values())).sum(0).numpy()
        turns = stratified_order(examples.ids, examples.labels.numpy(), seed=seed)  # classes take turns
        order = [examples.ids[row] for row in turns[np.argsort(-successes[turns], kind="stable")]]
        for kind in image_kinds(part):
            if kind.name in examples.attacks and (part.source, kind.name) not in done:
                done.add((part.source, kind.name))
                rows = {name: row for row, name in enumerate(kind.labelled.ids)}
                yield from ((kind, rows[name]) for name in [name for name in order if name in rows][:each])


def _picture(
    classifier: Classifier, kind: ImageKind, row: int, folder: Path, credit: str, key: str
) -> Iterator[Picture]:
    examples = kind.part.examples
    clean, attacked = examples.clean[examples.ids.index(kind.labelled.ids[row])], kind.labelled.images[row]
    with torch.no_grad():
        labels = classifier.logits(torch.stack([clean, attacked])).argmax(1).tolist()
    names = [str(label) if classifier.classes is None else str(classifier.classes[label]) for label in labels]
    (low, high), added = classifier.bounds, attacked - clean
    factor = magnification(added / (high - low))
    shown = [(clean - low) / (high - low), (attacked - low) / (high - low), 0.5 + factor * added / (high - low)]
    first, second, third = (f"{folder.name}/{save_png(to_pixels(image), folder)}" for image in shown)
    yield Picture(
        key=key,
        source=kind.part.source,
        id=kind.labelled.ids[row],
        attack=kind.name,
        label=names[0],
        adversarial_label=names[1],
        l2=float(added.double().norm()),
        magnification=factor,
        files=(first, second, third),
        credit=credit,
    )


def to_pixels(image: Tensor) -> Pixels:
    """Returns an image (C, H, W) in [0, 1] as 8-bit pixels, (H, W) or (H, W, 3), its sides no longer than SIDE.

    One channel is grey, three are colours, of any other number the mean is shown.
    """
    from PIL import Image

    channels = image.detach().cpu().float()
    if len(channels) not in (1, 3):
        channels = channels.mean(0, keepdim=True)
    pixels = (channels.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    picture = Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels))
    picture.thumbnail((SIDE, SIDE), Image.Resampling.BOX)  # smaller images stay as they are
    return np.asarray(picture)


def magnification(added: Tensor) -> float:
    """Returns the factor, of two digits, that spreads a perturbation over ±½ without cutting anything off."""
    largest = float(added.abs().max())
    if largest == 0:
        return 1.0
    factor = 0.5 / largest
    unit = 10.0 ** (math.floor(math.log10(factor)) - 1)
    return float(f"{math.floor(factor / unit * (1 + 1e-5)) * unit:.2g}")


def save_png(pixels: Pixels, folder: Path) -> str:
    """Returns the name of the PNG in the folder that holds these pixels; it is written unless it is there."""
    from PIL import Image

    name = f"{digest_of((pixels,))[:DIGITS]}.png"

    def save(path: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, "PNG", optimize=True)

    if not (folder / name).exists():
        replace_file(folder / name, save)
    return name
