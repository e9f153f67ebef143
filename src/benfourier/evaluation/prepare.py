"""From a plan to the data of its trials: open the network, select images, attack them in chunks."""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from benfourier import progress
from benfourier.attacks.attack import ATTACKS, AttackResult
from benfourier.attacks.catalogue import make_attack
from benfourier.attacks.examples import make_examples
from benfourier.data.examples import Examples
from benfourier.data.images import LabelledImages, UnreadableImage, batches, content_ids, read
from benfourier.data.sources import Source
from benfourier.data.splits import Indices, stratified_order
from benfourier.errors import InputError
from benfourier.evaluation.evaluation_data import EvaluationData
from benfourier.evaluation.network import Device, OpenNetwork, open_network
from benfourier.evaluation.plan import AttackPlan, Plan
from benfourier.executors import Executor, SavedFolder
from benfourier.metrics.intervals import clopper_pearson
from benfourier.models.classifier import Classifier
from benfourier.models.images import load_images
from benfourier.models.weights import weights_digest
from benfourier.store.artifact import digest_of
from benfourier.store.cache import OLD, Cache
from benfourier.store.records import AttackSummary
from benfourier.store.vocabulary import MIN_SOURCES, NOISY, Role

EXTRA_CLEAN = 5000  # clean images for detectors that learn from more than examples
BATCH = 64  # images that are classified at once
EXTRA_IMAGES = 10_000  # classified beyond those needed, for more misclassified ones
WORK = "work-"  # beginning of the names of folders that processes share
Report = Callable[[AttackSummary], object]


def open_images(
    plan: Plan, cache: Cache | None, show_progress: bool | None = None, device: Device = None
) -> EvaluationData:
    """Returns the data before any attack: the network, trained first if need be, and the images by use."""
    network = open_network(plan, cache, show_progress, device)
    source, other = network.source, network.other
    choose = partial(select_images, network.classifier, seed=plan.seed, show_progress=show_progress)
    learned, from_learned, known = None, None, frozenset[str]()
    if len(network.learned):
        batch = read(source, network.learned, [], show=False)
        learned = replace(batch, images=load_images(batch.images, network.classifier, layout="NCHW"))
        known = frozenset(content_ids(learned.images))
    if plan.network.detection == "learned":
        from_learned = choose(source, network.learned, sources=plan.sources)
        learned = None  # they are for detection, and no detector may learn from them all
    takes_clean = any(entry.takes_clean for entry in plan.detectors)
    first = choose(
        source,
        network.held_out,
        sources=plan.sources if from_learned is None else 0,
        calibration=plan.calibration,
        extra_clean=EXTRA_CLEAN if takes_clean and not learned else 0,
        known=known,
    )
    if plan.calibration and not len(first.calibration):
        raise InputError(
            f"none of the {first.classified} images of {source.name} that the network did not learn from is left "
            f"to set thresholds: {len(first.sources)} are source images (sizes.sources is {plan.sources}); ask for "
            "fewer, or for calibration = 0, which sets none"
        )
    extra_clean = (learned or first.extra_clean or None) if takes_clean else None
    images, digests = {source.name: (from_learned or first).sources}, {source.name: source.digest}
    if other is not None:
        used = [images[source.name], first.calibration, first.misclassified, *([extra_clean] if extra_clean else [])]
        known |= {name for each in used for name in each.content_ids}
        label = other.name if other.name != source.name else f"{other.name} (other)"
        images[label] = choose(other, np.arange(len(other)), sources=plan.other_sources, known=known).sources
        digests[label] = other.digest
    facts = _network_facts(plan, network, first, from_learned)
    return EvaluationData(
        plan, cache, network.classifier, images, first.calibration, first.misclassified, extra_clean, digests, facts
    )


@dataclass(frozen=True, eq=False)
class Selection:
    """Images of a source by their use; no image is in two of these, not even under another id."""

    sources: LabelledImages  # classified correctly, for detection
    calibration: LabelledImages  # the next clean images, classified correctly or not; they set thresholds
    misclassified: LabelledImages  # other images
    extra_clean: LabelledImages  # images after those for calibration
    classified: int  # how many images were classified
    correct: int  # how many of them correctly
    unreadable: int


def select_images(
    classifier: Classifier,
    source: Source,
    rows: Indices,  # of the source that may be used
    *,
    sources: int,  # images for detection, at most; the first that are classified correctly
    calibration: int = 0,  # next images, at most
    extra_clean: int = 0,  # images after those, at most
    seed: int,  # of the order
    known: frozenset[str] = frozenset(),  # content ids that must not be selected; copies are passed over too
    show_progress: bool | None = None,
) -> Selection:
    """Returns the images of a source by their use, in one seeded order with all classes in their shares."""
    limits = {"sources": sources, "calibration": calibration, "extra_clean": extra_clean}
    uses: dict[str, list[tuple[Tensor, int, str]]] = {use: [] for use in (*limits, "misclassified")}
    order = rows[stratified_order([source.ids[row] for row in rows], source.labels[rows], seed=seed)]
    seen, classified, correct, extra = set(known), 0, 0, 0
    images, unreadable = torch.empty(0), list[UnreadableImage]()
    with progress.bar(len(order), f"looking at {source.name}", show=show_progress) as advance:
        for batch in batches(source, order, unreadable, size=BATCH):
            images = load_images(batch.images, classifier, layout="NCHW")
            with torch.no_grad():
                hits = (classifier.logits(images).argmax(1).cpu() == batch.labels).tolist()
            rows_of_batch = zip(images, batch.labels.tolist(), batch.ids, content_ids(images), hits, strict=True)
            for image, label, name, content, hit in rows_of_batch:
                if content in seen:
                    continue
                seen.add(content)
                classified, correct = classified + 1, correct + hit
                use = next((use for use, limit in limits.items() if len(uses[use]) < limit), "")
                if not hit and use in ("sources", ""):
                    use = "misclassified"
                extra += use in ("", "misclassified") and len(uses["calibration"]) >= calibration
                if use:
                    uses[use].append((image, label, name))
            advance(len(images))
            if extra >= EXTRA_IMAGES:
                break
    count = len(uses["sources"])
    if count < min(MIN_SOURCES, sources):
        raise InputError(
            f"the network classifies {count} of {classified} images of {source.name} correctly; detection needs at "
            f"least {MIN_SOURCES}: check the weights, the order of the classes and the network's mean and std, or "
            "train it longer"
        )
    by_use = {use: _to_labelled_images(entries, images) for use, entries in uses.items()}
    return Selection(**by_use, classified=classified, correct=correct, unreadable=len(unreadable))


def _to_labelled_images(entries: Sequence[tuple[Tensor, int, str]], like: Tensor) -> LabelledImages:
    images = torch.stack([image for image, _, _ in entries]) if entries else like[:0]
    labels = torch.tensor([label for _, label, _ in entries], dtype=torch.int64)
    return LabelledImages(images, labels, tuple(name for _, _, name in entries))


def _network_facts(
    plan: Plan, network: OpenNetwork, selection: Selection, from_learned: Selection | None
) -> dict[str, object]:
    classifier, learned = network.classifier, len(network.learned)
    facts: dict[str, object] = {
        "name": plan.network.model,
        "accuracy": selection.correct / selection.classified,
        "interval": list(clopper_pearson(selection.correct, selection.classified)),
        "images": selection.classified,
        "misclassified": len(selection.misclassified),
        "calibration": len(selection.calibration),
        "unreadable": selection.unreadable,
        "weights": weights_digest(classifier.module),
        "parameters": sum(parameter.numel() for parameter in classifier.module.parameters()),
        "layers": classifier.layer_names(),
    }
    if from_learned is not None:
        facts["learned from"] = f"{learned} images, those for detection among them; accuracy is that on other images"
        facts["learned images classified correctly"] = from_learned.correct
    elif learned:
        facts["learned from"] = f"{learned} images, none of them for detection"
    return facts


@dataclass(frozen=True)
class AttackChunk:
    """Neighbours among the images of a source, from the one at `start`, and the attack on them."""

    source: str
    attack: str
    start: int


def attack_chunk(data: EvaluationData, chunk: AttackChunk) -> None:
    """Attacks one chunk of those that the example sets consist of, and leaves the result in the cache."""
    attack, images = data.plan_of(chunk.source).attack(chunk.attack), data.images[chunk.source]
    rows = range(chunk.start, min(chunk.start + data.plan.chunk, attack.sources, len(images)))
    _examples(data, images.take(rows), [attack], False)


def attack_images(
    data: EvaluationData, executor: Executor, report: Report, show_progress: bool | None = None
) -> EvaluationData:
    """Returns the data with its example sets, all images attacked; `report` gets the summary of each attack.

    Processes leave attacked chunks in the cache. One that fails is left to whoever joins the chunks, who says what is
    wrong.
    """
    chunks = [
        AttackChunk(source, attack.label, start)
        for source, images in data.images.items()
        for attack in data.plan_of(source).attacks
        for start in range(0, min(attack.sources, len(images)), data.plan.chunk)
        if data.cache is not None
    ]
    # expensive attacks come first, so that no process waits for them at the end
    chunks.sort(key=lambda chunk: -ATTACKS[data.plan.attack(chunk.attack).name.partition(":")[0]].cost)
    load = partial(EvaluationData.load, plan=data.plan, cache=data.cache, device=data.classifier.device)
    bar = progress.bar(len(chunks), "attacks, in chunks", show=show_progress)
    with work_folder(data.cache) as folder, bar as advance:
        for chunk, _ in executor.run(attack_chunk, SavedFolder(data, folder, load), chunks):
            advance(1, chunk.attack)
    sets: dict[str, tuple[Examples, ...]] = {}
    for source, images in data.images.items():
        plan = data.plan_of(source)
        for group in sorted({attack.noise_group for attack in plan.attacks}, reverse=True):  # the largest set first
            members = [attack for attack in plan.attacks if attack.noise_group == group]
            attacks = sorted(members, key=lambda attack: attack.role == Role.STRENGTH)  # boundary attacks first
            chosen = images.take(range(min(group[0], len(images))))
            examples, results = _examples(data, chosen, attacks, show_progress)
            for attack in attacks:
                report(_summary(attack, source, examples, results[attack.label], plan.seed))
            sets[source] = (*sets.get(source, ()), examples)
    return replace(data, example_sets=sets)


@contextmanager
def work_folder(cache: Cache | None) -> Iterator[Path]:
    """A folder for processes of this run, in the cache if there is one: other machines may share it."""
    home = None if cache is None else cache.folder
    for left in [] if home is None else home.glob(f"{WORK}*"):
        if time.time() - left.stat().st_mtime > OLD:  # of a run that was killed
            shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix=WORK, dir=home) as folder:
        yield Path(folder)


def _examples(
    data: EvaluationData, images: LabelledImages, attacks: Sequence[AttackPlan], show: bool | None
) -> tuple[Examples, dict[str, AttackResult]]:
    """Examples of some images and the results of their attacks; boundary attacks, if there are some, set the noise."""
    results: dict[str, AttackResult] = {}
    mixture = attacks[0].role == Role.MIXTURE
    # noise as long as the changes of such an attack may mislead by itself; it is made weaker for that image then
    own = mixture or attacks[0].own_noise
    examples = make_examples(
        data.classifier,
        images,
        attacks={attack.label: make_attack(attack.name, **attack.options) for attack in attacks},
        noise="each" if own else "median",
        noise_from=None if own else [each.label for each in attacks if each.role == Role.BOUNDARY] or None,
        seed=data.plan.seed,
        cache=data.work_dir or False,
        chunk=data.plan.chunk,
        eight_bit=data.plan.eight_bit,
        report=results.__setitem__,
        show_progress=show,
    )
    return examples, results


def _summary(attack: AttackPlan, source: str, examples: Examples, result: AttackResult, seed: int) -> AttackSummary:
    """How an attack fared on the images that stayed in the set."""
    success, attacked = examples.success[attack.label], examples.adversarial[attack.label]
    added = (attacked.double() - examples.clean.double()).flatten(1)[success]  # (successes, pixels)
    return AttackSummary(
        key=digest_of((source, attack.label, *examples.ids, attacked.numpy(), examples.noisy[NOISY].numpy())),
        source=source,
        attack=attack.label,
        method=attack.name,
        options=attack.options,
        sources=len(examples),
        successes=len(added),
        l2=float(added.norm(dim=1).quantile(0.5)) if len(added) else float("nan"),
        linf=float(added.abs().amax(1).quantile(0.5)) if len(added) else float("nan"),
        calls=float(result.calls.double().mean()),
        noise_level=examples.noise_levels[NOISY],
        remaining=examples.counts,
        seed=seed,
        reduced=attack.reduced,
    )
