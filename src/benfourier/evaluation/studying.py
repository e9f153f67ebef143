"""Studies of a plan: each yields records for the ledger, those that are there already left out."""

from collections.abc import Collection, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from benfourier.data.credits import credit_of
from benfourier.detectors.detector import Detector
from benfourier.detectors.fitting import fit
from benfourier.errors import BenfourierError
from benfourier.evaluation.bench import Bench
from benfourier.evaluation.outcomes import memo_of, method_of
from benfourier.evaluation.parts import OUTSIDE, TEST, TRAIN, Part
from benfourier.evaluation.plan import Plan
from benfourier.evaluation.plan_reading import place_of
from benfourier.evaluation.scoring import Bencher
from benfourier.evaluation.threads import one_thread
from benfourier.evaluation.trials import Trial
from benfourier.store.cache import Cache
from benfourier.store.digest import digest_of
from benfourier.store.records import Cost, Record

TIMED = 64  # images


def study(
    name: str,
    bench: Bench,
    plan: Plan,
    ledger: Path,
    known: Collection[str],
    cache: Cache | None,
    show_progress: bool | None = None,
    *,
    apart: bool = False,
) -> Iterator[Record]:
    """Yields the records of one study.

    Args:
        name: ks, profile, layers, cost or pictures.
        bench: what it works on.
        plan: what is asked for.
        ledger: beside which pictures are kept.
        known: keys of records that are in the ledger.
        cache: of numbers and networks.
        show_progress: True or False to force the bar; None draws it on a terminal.
        apart: trials ran in processes of one thread each; detectors are fitted with the numbers that these have kept.
    """
    if name == "cost":
        yield from _costs(bench, plan, known, cache, show_progress, apart)
        return
    parts = parts_of_bench(bench, plan)
    common: dict[str, Any] = {"known": known, "show_progress": show_progress}
    if name == "ks":
        from benfourier.evaluation.ks_study import ks_study

        yield from ks_study(bench.subject, parts, seed=plan.seed, **common)
    elif name == "profile":
        from benfourier.evaluation.profile_study import profile_study

        yield from profile_study(bench.subject, parts, **common)
    elif name == "layers":
        from benfourier.evaluation.layer_study import layer_study

        yield from layer_study(bench.subject, parts, plan.labels("boundary"), seed=plan.seed, **common)
    else:
        from benfourier.evaluation.picture_study import picture_study

        folder = ledger.with_name(f"{ledger.stem}-pictures")
        credit = credit_of(place_of(plan, plan.source), plan.credit)
        yield from picture_study(bench.subject, parts, folder, seed=plan.seed, credit=credit, **common)


def parts_of_bench(bench: Bench, plan: Plan) -> list[Part]:
    """Returns train and test of the first source, by the first fold, and the whole second source; all its attacks."""
    labels = [attack.label for attack in plan.attacks]
    whole = bench.together(bench.source, labels)
    tested = np.array([bench.folds[name] == 0 for name in whole.ids])
    parts = [
        Part(bench.source, TRAIN, whole.take(np.flatnonzero(~tested), "train")),
        Part(bench.source, TEST, whole.take(np.flatnonzero(tested), "test")),
    ]
    labels = [attack.label for attack in plan.elsewhere.attacks]
    if bench.other and labels:
        parts.append(Part(bench.other, OUTSIDE, bench.together(bench.other, labels)))
    return parts


def _costs(
    bench: Bench, plan: Plan, known: Collection[str], cache: Cache | None, show_progress: bool | None, apart: bool
) -> Iterator[Cost]:
    """Costs of all detectors, each fitted to the first attack; nothing is fitted if all of them are known."""
    from benfourier.evaluation.cost_study import cost_study

    settings = repr([(entry.label, entry.name, entry.options, entry.sources) for entry in plan.detectors])
    key = digest_of(("costs", settings, *(f"{name} {digest}" for name, digest in sorted(bench.digests.items()))))
    done = None if cache is None else cache.get(key)
    if done is not None and set(bytes(done["keys"]).decode().split()) <= set(known):
        return
    whole = bench.together(bench.source, [plan.labels("boundary")[0]])
    images = whole.clean[[row for row, name in enumerate(whole.ids) if bench.folds[name] == 0][:TIMED]]
    with one_thread() if apart else nullcontext():
        detectors = _fitted(bench, plan, cache)
    made = []
    for cost in cost_study(bench.subject, detectors, images, known=known, show_progress=show_progress):
        made.append(cost.key)
        yield cost
    if cache is not None and made:
        cache.put(key, {"keys": np.frombuffer(" ".join(made).encode(), np.uint8)})


def _fitted(bench: Bench, plan: Plan, cache: Cache | None) -> dict[str, Detector]:
    """All detectors that can be fitted to the first attack; those for fits to several attacks are left out."""
    memo = memo_of(bench, plan, cache)
    found = {}
    for entry in (entry for entry in plan.detectors if entry.twins == "one"):
        method = method_of(bench, entry, cache)
        bencher = Bencher(bench, entry, method, memo)
        trial = Trial(entry.label, plan.labels("boundary")[:1], bench.source, ())
        try:
            found[entry.label] = fit(
                method, bench.subject, bencher.fit_set(trial, 0), clean=bencher.clean, show_progress=False, memo=memo
            )
        except BenfourierError:
            continue  # its trials have failed too, and say why
    return found
