"""The network of a plan's file: where its weights come from, and how it is trained."""

from dataclasses import asdict, fields
from typing import Any

from torch import nn

from benfourier.errors import InputError
from benfourier.evaluation.plan import DETECTION, ZOOS, NetworkPlan
from benfourier.evaluation.plan_tables import Table
from benfourier.subjects.naming import LOOK
from benfourier.subjects.recipe import Recipe
from benfourier.subjects.subject import Subject
from benfourier.subjects.zoo import ZOO

OWN = ("share", "head", "until_right", "detection")


def network_of(table: Table, seed: int) -> NetworkPlan:
    """Returns the network, all its options checked."""
    model = table.take("model", str)
    if model not in ZOO and ":" not in model:
        table.word_of("model", model, [*ZOO, "package.module:factory"])
    weights, digest = table.take("weights", str, ""), table.take("digest", str, "")
    trained = _training(table.table("train"), model, weights, seed) if table.has("train") else {}
    _check_weights(table, model, weights, digest, trained=bool(trained))
    given = table.rest()
    classes = given.pop("classes", None)
    for key in given:
        if key not in LOOK:
            allowed = ["model", "weights", "digest", "train", "classes", *LOOK]
            table.word_of(key, key, allowed, told="is no key of a plan")
    try:
        Subject(nn.Identity(), **given)
    except InputError as error:
        table.retell(error, given)
    except (TypeError, ValueError) as error:
        table.refuse("", f"has a value of the wrong type ({error})")
    return NetworkPlan(model, weights, digest, classes, given, **trained)


def _training(train: Table, model: str, weights: str, seed: int) -> dict[str, Any]:
    """What NetworkPlan holds of a training."""
    share = train.take("share", float, 0.6)
    if not 0.05 <= share <= 0.95:
        train.refuse("share", f"is {share}; it must be from 0.05 to 0.95: the rest is for detection")
    until_right, detection = train.take("until_right", bool, False), train.word("detection", DETECTION, DETECTION[0])
    head = train.table("head") if train.has("head") else None
    if head is not None and not weights:
        train.refuse("head", "is given without network.weights; it is what such weights leave open")
    usual = {"seed": seed, "flips": model in ZOO and ZOO[model].flips}
    recipe = _recipe(train, usual, OWN)
    if head is not None and head.has("seed"):
        head.refuse("seed", "is given; both trainings learn from the same images, so they have one seed")
    first = None if head is None else _recipe(head, recipe)
    return {
        "train": recipe,
        "share": float(share),
        "head": first,
        "until_right": until_right,
        "detection": detection,
    }


def _recipe(table: Table, usual: dict[str, Any], own: tuple[str, ...] = ()) -> dict[str, Any]:
    """All fields of a recipe, those that are not given as usual."""
    given = table.rest()
    known = [part.name for part in fields(Recipe)]
    for key in given:
        if key not in known:
            table.word_of(key, key, [*own, *known], told="is no key of a plan")
    try:
        return asdict(Recipe(**{**usual, **given}))
    except InputError as error:
        table.retell(error, given)
    except TypeError as error:
        table.refuse("", f"has a value of the wrong type ({error})")


def _check_weights(table: Table, model: str, weights: str, digest: str, *, trained: bool) -> None:
    """Raises PlanError if weights that come with the zoo are asked for where there are none."""
    if weights != ZOOS:
        return
    having = [entry.name for entry in ZOO.values() if entry.trunk is not None]
    if model not in having:
        table.refuse("weights", f"is 'zoo', and {model} comes without; those with convolutions: {', '.join(having)}")
    if not trained:
        table.refuse("weights", "is 'zoo': those are of convolutions only; give network.train for the others")
    if digest:
        table.refuse("digest", "is given beside weights 'zoo', whose digest is in the code; leave it out")
