"""The examples of a plan: attacks with the same number of source images share clean and noisy twins."""

from collections.abc import Callable, Iterator

from benfourier.attacks.examples import make_examples
from benfourier.attacks.stock import Crafted as Made
from benfourier.data.examples import Examples
from benfourier.data.labelled import Labelled
from benfourier.evaluation.plan import ROLES, AttackPlan, Plan
from benfourier.store.cache import Cache
from benfourier.store.digest import digest_of
from benfourier.store.records import Crafted
from benfourier.subjects.subject import Subject


def craft(
    plan: Plan,
    subject: Subject,
    source: str,
    images: Labelled,
    report: Callable[[Crafted], object],
    cache: Cache | None = None,
    show_progress: bool | None = None,
) -> tuple[Examples, ...]:
    """Returns an example set for every number of source images that attacks of the plan have, the largest first.

    Attacks with noise of their own have a set of their own.

    Args:
        plan: says which attacks.
        subject: the network.
        source: label of the data.
        images: that are classified correctly; each set is made of a beginning of them.
        report: called with the record of each attack.
        cache: where attacked images are kept.
        show_progress: True or False to force the bars; None draws them on a terminal.
    """
    found = []
    for circle in sorted({attack.circle for attack in plan.attacks}, reverse=True):
        count = circle[0]
        near, far = ([a for a in plan.attacks if a.circle == circle and a.role == role] for role in ROLES)
        made: dict[str, Made] = {}
        examples = make_examples(
            subject,
            images.images[:count],
            images.labels[:count],
            ids=images.ids[:count],
            attack={attack.label: (attack.name, attack.options) for attack in near},
            beside={attack.label: (attack.name, attack.options) for attack in far},
            seed=plan.seed,
            cache=False if cache is None else cache.folder,
            chunk=plan.chunk,
            report=lambda one: made.update({one.entry.label: one}),  # noqa: B023
            show_progress=show_progress,
        )
        for record in _records((*near, *far), source, examples, made, plan.seed):
            report(record)
        found.append(examples)
    return tuple(found)


def _records(
    attacks: tuple[AttackPlan, ...], source: str, examples: Examples, made: dict[str, Made], seed: int
) -> Iterator[Crafted]:
    """How each attack fared on the images that stayed in the set."""
    for attack in attacks:
        won = examples.success[attack.label]
        added = (examples.attacked[attack.label].double() - examples.clean.double()).flatten(1)[won]
        nothing = not len(added)
        yield Crafted(
            key=digest_of(
                (source, attack.label, *examples.ids, examples.attacked[attack.label].numpy(), examples.noisy.numpy())
            ),
            source=source,
            attack=attack.label,
            method=attack.name,
            options=attack.options,
            sources=len(examples),
            successes=int(won.sum()),
            l2=float("nan") if nothing else float(added.norm(dim=1).quantile(0.5)),
            linf=float("nan") if nothing else float(added.abs().amax(1).quantile(0.5)),
            calls=float(made[attack.label].calls.double().mean()),
            noise_level=examples.noise_level,
            funnel=examples.funnel.steps,
            seed=seed,
            reduced=attack.reduced,
        )
