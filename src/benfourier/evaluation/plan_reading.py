"""Plans from TOML files: read, checked to the last option, and refused before anything runs."""

import re
import tomllib
from dataclasses import asdict, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from benfourier.errors import InputError, PlanError
from benfourier.evaluation.plan import PROTOCOLS, STUDIES, TRIVIAL, DetectorPlan, NetworkPlan, Plan
from benfourier.evaluation.plan_entries import attack_of, detector_of, unlike
from benfourier.evaluation.plan_tables import Table
from benfourier.subjects.naming import LOOK
from benfourier.subjects.recipe import Recipe
from benfourier.subjects.subject import Subject
from benfourier.subjects.zoo import ZOO

HERE = "here"
DATA = "{data}"
LEAST = 10  # source images


def read_plan(
    path: str | PathLike[str], *, scale: str | None = None, data_dir: str | PathLike[str] | None = None
) -> Plan:
    """Returns the plan in a file, or raises PlanError with the path of the key that is wrong.

    Args:
        path: the TOML file; paths inside it start from its folder.
        scale: name of tables under [scales] that are laid over the plan.
        data_dir: folder that stands for {data} in the plan's sources.
    """
    path = Path(path)
    content, where = _content(path), path.name
    scales = content.pop("scales", {})
    if not isinstance(scales, dict) or not all(isinstance(tables, dict) for tables in scales.values()):
        raise PlanError(f"{where}: scales is {scales!r}; it must be tables, such as [scales.paper.sizes]")
    if scale is not None and scale != HERE:
        if scale not in scales:
            raise PlanError(f"{where}: there is no scale {scale!r}; allowed: {', '.join((HERE, *scales))}")
        content, where = _laid_over(content, scales[scale]), f"{where} at scale {scale!r}"
    plan = _plan(Table(content, "", where), path)
    return replace(
        plan,
        scale=scale or HERE,
        folder=path.absolute().parent,
        data_dir=None if data_dir is None else Path(data_dir).absolute(),
    )


def place_of(plan: Plan, text: str) -> str:
    """Returns a source of a plan as `open_source` takes it: embedded, or a path from the plan's folder."""
    if DATA in text:
        if plan.data_dir is None:
            raise PlanError(f"data is {text!r}, and there is no folder for {DATA}; give it with --data-dir")
        return text.replace(DATA, str(plan.data_dir))
    beside = plan.folder / text
    before, _, part = text.rpartition(":")
    exists = beside.exists() or (bool(before) and part.isidentifier() and (plan.folder / before).exists())
    return str(beside) if exists else text


def weights_of(plan: Plan) -> Path:
    """Returns the file of a plan's weights."""
    text = plan.network.weights
    return Path(place_of(plan, text)) if DATA in text else plan.folder / text


def _content(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text)
    except OSError as error:
        raise PlanError(f"{path}: it cannot be read ({error.strerror}); name a TOML file") from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: it is no UTF-8 text ({error.reason}); a plan is a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        told, at, place = str(error).partition(" (at ")
        line = re.search(r"line (\d+)", place)
        number = line.group(1) if line else str(text.count("\n") + 1)
        raise PlanError(f"{path.name}, line {number}: {told}{at}{place}; correct the line") from error


def _laid_over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Tables are joined key by key, everything else is replaced."""
    joined = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(joined.get(key), dict)
        joined[key] = _laid_over(joined[key], value) if both else value
    return joined


def _plan(table: Table, path: Path) -> Plan:
    name, seed = table.take("name", str, path.stem), table.whole("seed", 0, least=0)
    protocols = table.words("protocols", PROTOCOLS, ["non-transfer"])
    studies = table.words("studies", STUDIES, [])
    network = _network(table.table("network"), seed)
    source, other, credit = _data(table.table("data"), protocols)
    sizes = table.table("sizes", {})
    sources = sizes.whole("sources", 300, least=LEAST)
    calibration = sizes.whole("calibration", 1200, least=0)
    sizes.done()
    attacks = tuple(attack_of(entry, sources) for entry in table.tables("attacks"))
    detectors = tuple(detector_of(entry, seed, sources, calibration) for entry in table.tables("detectors"))
    if TRIVIAL not in {entry.name for entry in detectors}:
        detectors = (DetectorPlan(TRIVIAL, TRIVIAL, {"seed": seed}, None, sources, calibration), *detectors)
    ledger = table.take("ledger", str, "")
    table.done()
    unlike(table, "attacks", attacks)
    unlike(table, "detectors", detectors)
    plan = Plan(
        name=name,
        seed=seed,
        protocols=protocols,
        studies=studies,
        network=network,
        source=source,
        other=other,
        sources=sources,
        calibration=calibration,
        attacks=attacks,
        detectors=detectors,
        credit=credit,
        ledger=ledger,
    )
    _check_roles(table, plan)
    return plan


def _network(table: Table, seed: int) -> NetworkPlan:
    model = table.take("model", str)
    if model not in ZOO and ":" not in model:
        table.word_of("model", model, [*ZOO, "package.module:factory"])
    weights, digest = table.take("weights", str, ""), table.take("digest", str, "")
    train = table.table("train", {}) if table.has("train") else None
    share, recipe = 0.6, None
    if train is not None:
        if weights:
            table.refuse("train", f"is given beside weights {weights!r}; leave one of them out")
        share = train.take("share", float, 0.6)
        if not 0.05 <= share <= 0.95:
            train.refuse("share", f"is {share}; it must be from 0.05 to 0.95: the rest is for detection")
        recipe = _recipe(train, model, seed)
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
    return NetworkPlan(model, weights, digest, classes, given, recipe, float(share))


def _recipe(train: Table, model: str, seed: int) -> dict[str, Any]:
    given = train.rest()
    known = [part.name for part in fields(Recipe)]
    for key in given:
        if key not in known:
            train.word_of(key, key, ["share", *known], told="is no key of a plan")
    flips = model in ZOO and ZOO[model].flips
    try:
        return asdict(Recipe(**{"seed": seed, "flips": flips, **given}))
    except InputError as error:
        train.retell(error, given)
    except TypeError as error:
        train.refuse("", f"has a value of the wrong type ({error})")


def _data(table: Table, protocols: tuple[str, ...]) -> tuple[str, str, str]:
    source, other, credit = table.take("source", str), table.take("other", str, ""), table.take("credit", str, "")
    table.done()
    if "data-transfer" in protocols and not other:
        table.refuse("other", "is missing; data-transfer needs a second source with the same classes")
    return source, other, credit


def _check_roles(table: Table, plan: Plan) -> None:
    """Raises PlanError if the attacks are not enough for the protocols."""
    sizes = {attack.sources for attack in plan.attacks if attack.role == "boundary"}
    if not sizes:
        table.refuse("attacks", "are all of role 'strength'; one at least must be 'boundary', it sets the noise level")
    for place, attack in enumerate(plan.attacks):
        if attack.role == "strength" and attack.sources not in sizes:
            allowed = ", ".join(map(str, sorted(sizes)))
            told = f"is {attack.sources}; a strength attack shares the images of boundary ones; allowed: {allowed}"
            table.refuse(f"attacks[{place}].sources", told)
    if "strength-transfer" in plan.protocols and not plan.labels("strength"):
        table.refuse("protocols", "hold strength-transfer, but no attack has role = 'strength'; add one")


def check_opens(plan: Plan) -> None:
    """Raises PlanError if a source, or a file of weights, is not there."""
    from benfourier.data.opening import open_source

    for key, text in (("data.source", plan.source), ("data.other", plan.other)):
        if text and not Path(place_of(plan, text)).is_dir():  # folders are looked at once the images' size is known
            try:
                open_source(place_of(plan, text), channels=plan.network.look.get("channels", 3))
            except InputError as error:
                raise PlanError(f"{key}: {error}") from error
    if plan.network.weights and not Path(weights_of(plan)).is_file():
        raise PlanError(f"network.weights is {plan.network.weights!r}; there is no such file beside the plan")
