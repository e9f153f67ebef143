"""Example images with what attacks added, as small PNGs in a folder beside the ledger."""

from collections.abc import Collection, Iterator, Sequence
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benfourier import progress
from benfourier.data.credits import Credit
from benfourier.data.splits import spread
from benfourier.errors import check_whole
from benfourier.evaluation.parts import OUTSIDE, TEST, TRAIN, Kind, Part, digest_of_network, kinds_of
from benfourier.evaluation.thumbnails import magnified, save, seen
from benfourier.store.digest import digest_of
from benfourier.store.records import Picture
from benfourier.subjects.subject import Subject

PREFERRED = (TEST, OUTSIDE, TRAIN)  # of several parts of one source, pictures come from the first that has any


def picture_study(
    subject: Subject,
    parts: Sequence[Part],
    folder: str | PathLike[str],
    *,
    each: int = 3,
    side: int = 160,
    seed: int = 0,
    credit: Credit = lambda _: "",
    known: Collection[str] = (),
    show_progress: bool | None = None,
) -> Iterator[Picture]:
    """Yields a few pictures of each attack on each source; the files of a record are written before it is yielded.

    Source images on which most attacks succeeded come first, so that attacks are shown on the same images.

    Args:
        subject: the classifier; with class names, labels are told in words.
        parts: examples.
        folder: where PNGs are written, beside the ledger; records name files as "folder/name.png". Files that are
            there are left alone, since their names are digests of their pixels.
        each: pictures per attack and source.
        side: of the PNGs, at most; smaller images stay as they are.
        seed: another seed chooses other images.
        credit: whose a photograph is, by its id.
        known: keys of records that are there already; they are not yielded, but their files are made.
        show_progress: True or False to force the bar; None draws it on a terminal.
    """
    check_whole("each", each)
    check_whole("side", side)
    folder = Path(folder)
    network = digest_of_network(subject)
    chosen = list(_chosen(parts, each, seed))
    with progress.bar(len(chosen), "pictures", show=show_progress) as advance:
        for kind, row in chosen:
            whose = credit(kind.ids[row])
            key = digest_of((network, "picture", repr((side, whose)), kind.identity, kind.ids[row]))
            picture = _picture(subject, kind, row, folder, side, whose, key)
            if key not in known:
                yield picture
            advance(1, kind.name)


def _chosen(parts: Sequence[Part], each: int, seed: int) -> Iterator[tuple[Kind, int]]:
    """The first rows of each attack on each source."""
    ranked = sorted(parts, key=lambda part: PREFERRED.index(part.split) if part.split in PREFERRED else len(PREFERRED))
    taken: set[tuple[str, str]] = set()
    for part in ranked:
        order = _order(part, seed)
        for kind in kinds_of(part):
            if kind.name in part.examples.attacks and (part.source, kind.name) not in taken:
                taken.add((part.source, kind.name))
                rows = {name: row for row, name in enumerate(kind.ids)}
                yield from ((kind, rows[name]) for name in [name for name in order if name in rows][:each])


def _order(part: Part, seed: int) -> list[str]:
    """Ids, those that most attacks fooled first, the classes in turns."""
    examples = part.examples
    won = torch.stack(list(examples.success.values())).sum(0).numpy()
    turns = spread(examples.ids, examples.labels.numpy(), seed=seed)
    return [examples.ids[row] for row in turns[np.argsort(-won[turns], kind="stable")]]


def _picture(subject: Subject, kind: Kind, row: int, folder: Path, side: int, credit: str, key: str) -> Picture:
    examples = kind.part.examples
    clean, attacked = examples.clean[examples.ids.index(kind.ids[row])], kind.images[row]
    with torch.no_grad():
        label, fooled = subject.logits(torch.stack([clean, attacked])).argmax(1).tolist()
    (low, high), added = subject.bounds, attacked - clean
    factor = magnified(added / (high - low))
    scaled = [(image - low) / (high - low) for image in (clean, attacked)]
    shown: list[Tensor] = [*scaled, 0.5 + factor * added / (high - low)]
    first, second, third = (f"{folder.name}/{save(seen(image, side), folder)}" for image in shown)
    return Picture(
        key=key,
        source=kind.part.source,
        id=kind.ids[row],
        attack=kind.name,
        label=_word(subject, label),
        fooled=_word(subject, fooled),
        l2=float(added.double().norm()),
        magnified=factor,
        files=(first, second, third),
        credit=credit,
    )


def _word(subject: Subject, label: int) -> str:
    return str(label) if subject.classes is None else str(subject.classes[label])
