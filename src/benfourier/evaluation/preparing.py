"""From a plan to a bench: the network, a walk through the images, and the attacks."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from benfourier.data.draws import names_by_content
from benfourier.data.labelled import Labelled
from benfourier.data.reading import read
from benfourier.data.source import Source
from benfourier.data.splits import Indices
from benfourier.errors import InputError
from benfourier.evaluation.bench import Bench
from benfourier.evaluation.crafting import craft
from benfourier.evaluation.network import Opened, open_network
from benfourier.evaluation.plan import Plan
from benfourier.evaluation.walk import BEYOND, Answers, Found, Wanted, answers_of, folds_of, walk
from benfourier.store.cache import Cache
from benfourier.store.records import Crafted
from benfourier.subjects.images import images
from benfourier.subjects.weights import digest_of_weights
from benfourier.theory.rates import clopper_pearson


@dataclass(frozen=True, eq=False)
class Ground:
    """A network and its images before any attack.

    Args:
        opened: the network and the sources.
        found: images of the first source, by their use.
        taught: what the network says of the images that it learned from, if those are for detection; None if not.
        other: images of the second one; None if there is none.
        beyond: labelled clean images for detectors that learn from some; None if none of them does.
    """

    opened: Opened
    found: Found
    taught: Found | None
    other: Found | None
    beyond: Labelled | None

    @property
    def names(self) -> tuple[str, str]:
        """Labels of the sources; the second is empty if there is none."""
        first, second = self.opened.source, self.opened.other
        if second is None:
            return first.name, ""
        return first.name, second.name if second.name != first.name else f"{second.name} (other)"

    def facts(self, plan: Plan) -> dict[str, object]:
        """Returns what a run's record tells of the network."""
        found, subject = self.found, self.opened.subject
        return {
            "name": plan.network.model,
            "accuracy": found.right / found.looked,
            "interval": list(clopper_pearson(found.right, found.looked)),
            "images": found.looked,
            "misclassified": len(found.wrong),
            "calibration": len(found.calibration),
            "unreadable": found.refused,
            "weights": digest_of_weights(subject.module),
            "parameters": sum(parameter.numel() for parameter in subject.module.parameters()),
            "layers": subject.layers(),
            **self._teaching(),
        }

    def _teaching(self) -> dict[str, object]:
        """What is told of the training, if there was one."""
        learned = len(self.opened.learned)
        if self.taught is None:
            return {"learned from": f"{learned} images, none of them for detection"} if learned else {}
        told = f"{learned} images, those for detection among them; accuracy is that on other images"
        return {"learned from": told, "learned images classified correctly": self.taught.right}


def survey(plan: Plan, cache: Cache | None, show_progress: bool | None = None) -> Ground:
    """Returns the network of a plan and what it says of the images; it is trained first if need be."""
    opened = open_network(plan, cache, show_progress)
    answers = answers_of(opened.subject, cache)
    learned = _learned(opened) if len(opened.learned) else None
    known = frozenset() if learned is None else frozenset(names_by_content(learned.images))
    taught = None
    if plan.network.detection == "learned":
        taught = _walk(plan, opened, opened.learned, Wanted(plan.sources, 0), frozenset(), answers, show_progress)
        learned = None  # they are for detection, and no detector may learn from them all
    hungry = any(entry.takes_clean for entry in plan.detectors)
    wanted = Wanted(plan.sources if taught is None else 0, plan.calibration, BEYOND if hungry and not learned else 0)
    found = _walk(plan, opened, opened.held, wanted, known, answers, show_progress)
    if plan.calibration and not len(found.calibration):
        raise InputError(
            f"none of the {found.looked} images of {opened.source.name} that the network did not learn from is left to "
            f"set thresholds: {len(found.sources)} are source images (sizes.sources is {plan.sources}); ask for fewer, "
            f"or for calibration = 0, which sets none"
        )
    if taught is not None:
        found = replace(found, sources=taught.sources)
    beyond = (learned or found.beyond) if hungry else None
    second = _second(plan, opened, found, known, beyond, answers, show_progress)
    return Ground(opened, found, taught, second, beyond)


def _walk(
    plan: Plan,
    opened: Opened,
    rows: Indices,
    wanted: Wanted,
    known: frozenset[str],
    answers: Answers | None,
    show: bool | None,
) -> Found:
    """Images of the first source."""
    asked = (opened.subject, opened.source, rows, wanted)
    return walk(*asked, seed=plan.seed, known=known, answers=answers, show_progress=show)


def prepare(
    plan: Plan,
    ground: Ground,
    report: Callable[[Crafted], object],
    cache: Cache | None = None,
    show_progress: bool | None = None,
) -> Bench:
    """Returns the bench of a plan: all images attacked, or found in the cache.

    Args:
        plan: says which attacks.
        ground: the network and its images.
        report: called with the record of each attack.
        cache: where attacked images are kept.
        show_progress: True or False to force the bars; None draws them on a terminal.
    """
    subject, (source, other) = ground.opened.subject, ground.names
    sets = {source: ground.found.sources}
    data = {source: ground.opened.source.digest}
    if ground.other is not None and ground.opened.other is not None:
        sets[other], data[other] = ground.other.sources, ground.opened.other.digest
    first = ground.found.sources
    wanted = {source: plan, other: plan.elsewhere}
    return Bench(
        subject=subject,
        source=source,
        other=other,
        groups={
            name: craft(wanted[name], subject, name, part, report, cache, show_progress) for name, part in sets.items()
        },
        folds=dict(zip(first.ids, folds_of(first.labels.tolist()), strict=True)),
        order={name: part.ids for name, part in sets.items()},
        calibration=ground.found.calibration,
        wrong=ground.found.wrong,
        beyond=ground.beyond,
        data=data,
    )


def _learned(opened: Opened) -> Labelled:
    """The images that the network learned from."""
    batch = read(opened.source, opened.learned, show=False).images
    taken = images(batch.pixels, opened.subject, layout="NHWC")
    return Labelled(taken, torch.from_numpy(batch.labels), batch.ids)


def _second(
    plan: Plan,
    opened: Opened,
    found: Found,
    known: frozenset[str],
    beyond: Labelled | None,
    answers: Answers | None,
    show: bool | None,
) -> Found | None:
    """Images of the second source; those that the first has too are passed over."""
    source: Source | None = opened.other
    if source is None:
        return None
    sets = [found.sources.images, found.calibration, found.wrong] + ([] if beyond is None else [beyond.images])
    met = known | {name for part in sets if len(part) for name in names_by_content(part)}
    return walk(
        opened.subject,
        source,
        np.arange(len(source)),
        Wanted(plan.transferred, 0),
        seed=plan.seed,
        known=met,
        answers=answers,
        show_progress=show,
    )
