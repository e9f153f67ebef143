"""Plans from TOML files: read, checked to the last option, and refused before anything runs."""

import json
import re
import tomllib
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from benfourier.attacks.examples import CHUNK
from benfourier.detectors.listening import INPUT
from benfourier.errors import InputError, PlanError
from benfourier.evaluation.plan import PROTOCOLS, ROLES, STUDIES, TRIVIAL, ZOOS, DetectorPlan, Plan
from benfourier.evaluation.plan_data import data_of
from benfourier.evaluation.plan_entries import attack_of, detector_of, unlike
from benfourier.evaluation.plan_network import network_of
from benfourier.evaluation.plan_scales import laid_over
from benfourier.evaluation.plan_tables import Table

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
        where = f"{where} at scale {scale!r}"
        content = laid_over(content, scales[scale], where)
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


def _plan(table: Table, path: Path) -> Plan:
    name, seed = table.take("name", str, path.stem), table.whole("seed", 0, least=0, most=2**32 - 1)
    protocols = table.words("protocols", PROTOCOLS, ["non-transfer"])
    studies = table.words("studies", STUDIES, [])
    network = network_of(table.table("network"), seed)
    data = data_of(table.table("data"), protocols)
    if data.groups and network.classes is None:
        network = replace(network, classes=list(data.groups))
    sizes = table.table("sizes", {})
    sources = sizes.whole("sources", 300, least=LEAST)
    calibration = sizes.whole("calibration", 1200, least=0)
    transferred = sizes.whole("other", sources, least=LEAST, most=sources)
    chunk = sizes.whole("chunk", CHUNK)
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
        source=data.source,
        other=data.other,
        sources=sources,
        calibration=calibration,
        transferred=transferred,
        chunk=chunk,
        attacks=attacks,
        detectors=detectors,
        credit=data.credit,
        groups=data.groups,
        ledger=ledger,
    )
    _check_roles(table, plan)
    _check_twins(table, plan)
    return plan


def _check_roles(table: Table, plan: Plan) -> None:
    """Raises PlanError if the attacks are not enough for the protocols."""
    near = {attack.circle for attack in plan.attacks if attack.role == "boundary"}
    if not near:
        table.refuse("attacks", "are all of role 'strength'; one at least must be 'boundary', it sets the noise level")
    for place, attack in enumerate(plan.attacks):
        if attack.role == "strength" and attack.own_noise:
            table.refuse(f"attacks[{place}].own_noise", "is true; a strength attack has the noise of boundary ones")
        if attack.role == "strength" and attack.circle not in near:
            allowed = ", ".join(str(sources) for sources, own in sorted(near) if not own) or "none, they have own noise"
            told = f"is {attack.sources}; a strength attack shares the images of boundary ones; allowed: {allowed}"
            table.refuse(f"attacks[{place}].sources", told)
    if "data-transfer" in plan.protocols and not any(plan.attack(label).transfer for label in plan.labels("boundary")):
        table.refuse(
            "protocols", "hold data-transfer, but every boundary attack has transfer = false; let one take part"
        )
    there = {attack.circle for attack in plan.elsewhere.attacks if attack.role == "boundary"}
    for place, attack in enumerate(plan.attacks if plan.other else ()):
        if attack.role == "strength" and attack.transfer and attack.elsewhere.circle not in there:
            told = f"is {json.dumps(attack.transfer)}; no boundary attack has the same images of the second source"
            table.refuse(f"attacks[{place}].transfer", f"{told}; write what one with as many sources has, or false")
    if "strength-transfer" in plan.protocols and not plan.labels("strength"):
        table.refuse("protocols", "hold strength-transfer, but no attack has role = 'strength'; add one")


def _check_twins(table: Table, plan: Plan) -> None:
    """Raises PlanError if a detector is only for fits to several attacks and there is no such fit."""
    several = "mixed" in plan.protocols and len(plan.attacks) > 1
    if "strength-transfer" in plan.protocols:
        several |= any(len(plan.labels(role)) > 1 for role in ROLES)
    for entry in plan.detectors:
        if entry.twins != "one" and not several:
            told = f"of {entry.label!r} is {entry.twins!r}, which is about fits to several attacks; no protocol has one"
            table.refuse("detectors.twins", f"{told}: add 'mixed' and a second attack, or leave twins out")


def check_opens(plan: Plan) -> None:
    """Raises PlanError if a source, a column of its credit, a file of weights, or a layer is not there."""
    from benfourier.data.credits import credit_of
    from benfourier.data.opening import open_source

    for key, text in (("data.source", plan.source), *(("data.other", text) for text in plan.other)):
        if not Path(place_of(plan, text)).is_dir():  # folders are looked at once the images' size is known
            try:
                open_source(place_of(plan, text), channels=plan.network.look.get("channels", 3))
            except InputError as error:
                raise PlanError(f"{key}: {error}") from error
    try:
        credit_of(place_of(plan, plan.source), plan.credit)
    except InputError as error:
        raise PlanError(f"data.{error}") from error
    if plan.network.weights not in ("", ZOOS) and not Path(weights_of(plan)).is_file():
        raise PlanError(f"network.weights is {plan.network.weights!r}; there is no such file beside the plan")
    _check_layers(plan)


def _check_layers(plan: Plan) -> None:
    """Raises PlanError if a detector names layers that the network does not have."""
    from benfourier.evaluation.network import fresh

    named = [
        (f"{option} of detector {entry.label!r}", getattr(entry.method, option))
        for entry in plan.detectors
        for option in ("layers", "layer")
        if getattr(entry.method, option, None) is not None
    ]
    subject = fresh(plan) if named else None
    for key, layers in named:
        words = [layers] if isinstance(layers, str) else [word for word in layers if word != INPUT]
        try:
            if subject is not None and words:
                subject.layers(words, pass_through=True)
        except InputError as error:
            raise PlanError(f"{key}: {error}") from error
