"""Plans from TOML files, read by the fields of their dataclasses and refused before anything runs."""

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, asdict, fields, replace
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from benfourier.attacks.catalogue import attack_ids, make_attack
from benfourier.detectors.catalogue import detector_ids
from benfourier.errors import InputError, OptionError, PlanError, check_choice, check_whole
from benfourier.evaluation.plan import HERE, ZOO_WEIGHTS, AttackPlan, DetectorPlan, NetworkPlan, Plan, check_plan
from benfourier.models.classifier import Classifier
from benfourier.models.image_formats import IMAGE_OPTIONS
from benfourier.models.open_classifier import import_model
from benfourier.models.training import TrainingOptions
from benfourier.models.zoo import ZOO
from benfourier.store.vocabulary import BASELINE, CALIBRATION_FLOOR, CLEAN, MIN_SOURCES, NOISY, SECOND

LISTS = ("attacks", "detectors")  # lists of a plan whose entries have labels
Table = dict[str, Any]


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
        content = _overlay(content, scales[scale], where)
    try:
        plan = _plan(content, path.stem)
        check_plan(plan)
    except OptionError as error:
        raise PlanError(f"{where}: {error}") from error
    folder = None if data_dir is None else Path(data_dir).absolute()
    return replace(plan, scale=scale or HERE, folder=path.absolute().parent, data_dir=folder)


def _plan(content: Table, name: str) -> Plan:
    for each in ("network", "data"):
        if each not in content:
            raise OptionError(f"{each} is missing; it must be a table")
    own = {each: value for each, value in content.items() if each not in ("network", *LISTS)}
    values = _read_fields(Plan, own, "")
    network = _network(_check_table("network", content["network"]), values["seed"])
    with _option_paths("network.model", ()):
        import_model(network.model)  # its module may register detectors and attacks
    if values["groups"] and network.classes is None:
        network = replace(network, classes=list(values["groups"]))
    attacks = [_attack(entry, path, values) for path, entry in _entries(content, "attacks")]
    detectors = [_detector(entry, path, values) for path, entry in _entries(content, "detectors")]
    if BASELINE not in {entry.name for entry in detectors}:
        detectors.insert(0, _detector({"name": BASELINE}, "detectors", values))
    values["name"] = values["name"] or name
    return Plan(**values, network=network, attacks=tuple(attacks), detectors=tuple(detectors))


def _entries(content: Table, key: str) -> Iterator[tuple[str, Table]]:
    """The tables of a list, at least one, with their paths."""
    entries = content.get(key, [])
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise OptionError(f"{key} is {entries!r}; it must be one table or more, each under [[{key}]]")
    return ((f"{key}[{place}]", entry) for place, entry in enumerate(entries))


def _check_table(path: str, value: Any) -> Table:
    if not isinstance(value, dict):
        raise OptionError(f"{path} is {value!r}; it must be a table")
    return value


def _check_known(path: str, names: Iterable[str], allowed: Sequence[str]) -> None:
    """Raises OptionError for the first key of a table that a plan does not have."""
    for name in names:
        if name not in allowed:
            near = get_close_matches(name, allowed, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            key = f"{path}.{name}".lstrip(".")
            raise OptionError(f"{key} is no key of a plan; allowed: {', '.join(allowed)}{hint}")


def _read_fields(kind: type, content: Table, path: str, limits: Table | None = None) -> Table:
    """The values of all fields that are keys of a table, checked; `limits` bound those of attacks and detectors."""
    rules = [(each, each.metadata) for each in fields(kind) if each.metadata]
    tables = {rule["table"] for _, rule in rules} - {""}
    left = {("", name): value for name, value in content.items() if name not in tables}  # what no field has taken yet
    for table in tables:
        inside = _check_table(f"{path}.{table}".lstrip("."), content.get(table, {}))
        left |= {(table, name): value for name, value in inside.items()}
    values: Table = {}
    for each, rule in rules:
        table, name = rule["table"], rule.get("name") or each.name
        key = ".".join(part for part in (path, table, name) if part)
        if "remaining" in rule:  # the last field of its table
            rest = {place[1]: left.pop(place) for place in list(left) if place[0] == table}
            values[each.name] = rest if not table or table in content else None
        elif rule["up_to"]:
            most = {**(limits or {}), **values}[rule["up_to"]]
            values[each.name] = check_whole(key, left.pop((table, name), most), least=rule["least"], most=most)
        elif (table, name) in left:
            values[each.name] = rule["check"](key, left.pop((table, name)))
        elif each.default_factory is not MISSING:
            values[each.name] = each.default_factory()
        elif each.default is MISSING:
            raise OptionError(f"{key} is missing; it must be text")
        else:
            values[each.name] = each.default
    for table, name in left:
        known = [rule["name"] or each.name for each, rule in rules if rule["table"] == table]
        _check_known(table, [name], sorted(known if table else [*known, *tables, "network", *LISTS]))
    return values


def _network(content: Table, seed: int) -> NetworkPlan:
    """The network, all its options checked."""
    values = _read_fields(NetworkPlan, content, "network")
    model, first = values["model"], values["new_layers"]
    if model not in ZOO and ":" not in model:
        check_choice("network.model", model, [*ZOO, "package.module:factory"])
    if values["train"] is not None:
        own = [each.name for each in fields(NetworkPlan) if each.metadata["table"] == "train" and each.name != "train"]
        usual = {"seed": seed, "flips": model in ZOO and ZOO[model].flips}
        if first is not None and not values["weights"]:
            raise OptionError(
                "network.train.new_layers is a training of what network.weights leave open; give weights too"
            )
        values["train"] = _training("network.train", values["train"], usual, own)
    if first is not None:
        if "seed" in _check_table("network.train.new_layers", first):
            same = "both trainings learn from the same images, so they have one seed; leave it out"
            raise OptionError(f"network.train.new_layers.seed is {first['seed']!r}; {same}")
        values["new_layers"] = _training("network.train.new_layers", first, values["train"], [])
    if values["weights"] == ZOO_WEIGHTS:
        _check_zoo_weights(values)
    _check_known("network", values["input"], ["model", "weights", "digest", "train", "classes", *IMAGE_OPTIONS])
    with _option_paths("network", values["input"]):
        Classifier(nn.Identity(), **values["input"])
    return NetworkPlan(**values)


def _training(path: str, options: Table, usual: Table, own: list[str]) -> Table:
    """All fields of TrainingOptions; those that the plan does not have as usual."""
    _check_known(path, options, [*own, *(each.name for each in fields(TrainingOptions))])
    with _option_paths(path, options):
        return asdict(TrainingOptions(**{**usual, **options}))


def _check_zoo_weights(values: Table) -> None:
    """Raises OptionError if weights that come with the zoo are asked for where there are none."""
    available = [entry.name for entry in ZOO.values() if entry.trunk is not None]
    if values["model"] not in available:
        problem = f"and {values['model']} comes without; those with convolutions: {', '.join(available)}"
        raise OptionError(f"network.weights is 'zoo', {problem}")
    if values["train"] is None:
        raise OptionError("network.weights is 'zoo': those are of convolutions only; give network.train for the others")
    if values["digest"]:
        problem = "the digest of weights 'zoo' is in the code; leave it out"
        raise OptionError(f"network.digest is {values['digest']!r}; {problem}")


def _attack(content: Table, path: str, limits: Table) -> AttackPlan:
    """One attack, all its options checked."""
    values = _read_fields(AttackPlan, content, path, limits)
    name, transfer = values["name"], values["transfer"]
    if ":" not in name:
        check_choice(f"{path}.name", name, [*attack_ids(), "foolbox:<class>"])
    if not isinstance(transfer, bool) and not (type(transfer) is int and MIN_SOURCES <= transfer <= values["sources"]):
        allowed = f"true, false, or a whole number of at least {MIN_SOURCES} and at most {values['sources']}"
        raise OptionError(f"{path}.transfer is {transfer!r}; it must be {allowed}")
    options = {option: _fraction(value) for option, value in values["options"].items()}
    with _option_paths(path, options):
        every_option = make_attack(name, **options).as_dict()
    texts = {option: f"{value:.4g}" if isinstance(value, float) else value for option, value in options.items()}
    label = values["label"] or f"{name} {', '.join(f'{option}={text}' for option, text in texts.items())}".strip()
    if label in (CLEAN, NOISY):
        raise OptionError(f"{path}.label is {label!r}, which names images that are not attacked; choose another")
    return AttackPlan(**{**values, "label": label, "options": every_option})


def _detector(content: Table, path: str, limits: Table) -> DetectorPlan:
    """One detector, all its options checked."""
    values = _read_fields(DetectorPlan, content, path, limits)
    for part in values["name"].split("+"):  # "mbf+lid" has the features of both
        check_choice(f"{path}.name", part, detector_ids())
    if "sources" in content and "calibration" not in content:  # an expensive one needs few of both
        values["calibration"] = min(values["calibration"], max(CALIBRATION_FLOOR, values["sources"]))
    overrides = {"seed": limits["seed"], **values["overrides"]}
    entry = DetectorPlan(**{**values, "label": values["label"] or values["name"], "overrides": overrides})
    with _option_paths(path, ["preset", *values["overrides"]]):
        supplied = [name for part in entry.method.parts_of_fit() for name in part.supplied_names]
    if bool(entry.second_model) != (SECOND in supplied):
        wrong = f"is {entry.second_model!r}, and {entry.name} has no second network; leave it out"
        missing = f"is missing; {entry.name} needs another network: its id in the zoo, or package.module:factory"
        raise OptionError(f"{path}.second_model {wrong if entry.second_model else missing}")
    if others := [name for name in supplied if name != SECOND]:
        raise OptionError(f"{path}: {entry.name} needs {others[0]!r}, a function, which a plan cannot hold; use Python")
    return entry


@contextmanager
def _option_paths(path: str, options: Collection[str]) -> Iterator[None]:
    """Names the key of a plan in errors about options; most of these begin with the option."""
    try:
        yield
    except InputError as error:
        option = error.option if isinstance(error, OptionError) else ""
        if option not in options:
            raise OptionError(f"{path}: {error}") from error
        key = "" if str(error).startswith(f"{option} ") else f"{option}: "
        raise OptionError(f"{path}.{key}{error}") from error
    except (TypeError, ValueError) as error:
        raise OptionError(f"{path} has a value of the wrong type ({error})") from error


def _fraction(value: Any) -> Any:
    """The number that a text such as "8/255" stands for; every other value as it is."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)", value) if isinstance(value, str) else None
    return float(match.group(1)) / float(match.group(2)) if match and float(match.group(2)) else value


def _content(path: Path, above: tuple[Path, ...] = ()) -> Table:
    """What a file holds, laid over the file that it extends."""
    content = _parse_toml(path)
    if "extends" not in content:
        return content
    name = content.pop("extends")
    if not isinstance(name, str):
        raise PlanError(f"{path.name}: extends is {name!r}; it must be the name of a file beside this one")
    below = path.parent / name
    if below in (*above, path):
        raise PlanError(f"{path.name}: extends is {name!r}, which extends this file; leave one of them out")
    return _extend(_content(below, (*above, path)), content, path.name)


def _parse_toml(path: Path) -> Table:
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text)
    except OSError as error:
        raise PlanError(f"{path}: it cannot be read ({error.strerror}); name a TOML file") from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: it is no UTF-8 text ({error.reason}); a plan is a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"\(at line (\d+)", str(error))
        number = line.group(1) if line else text.count("\n") + 1  # the end of the document has no number
        raise PlanError(f"{path.name}, line {number}: {error}; correct the line") from error


def _extend(below: Table, above: Table, where: str) -> Table:
    """A plan laid over another. If it lists its own entries, scales of the other one are only about those."""
    joined = _overlay(below, above, where)
    for key in (key for key in LISTS if isinstance(above.get(key), list)):
        for name in below.get("scales", {}):
            known = {*_labels(joined[key]), *above.get("scales", {}).get(name, {}).get(key, {})}
            changes = joined["scales"][name].get(key, {})
            changes = {label: change for label, change in changes.items() if label in known}
            joined["scales"][name] = {**joined["scales"][name], key: changes}
    return joined


def _overlay(below: Table, above: Table, where: str, path: str = "") -> Table:
    """Tables joined key by key; entries of a list are reached by label, everything else is replaced."""
    joined = dict(below)
    for key, value in above.items():
        under, place = joined.get(key), f"{path}.{key}".lstrip(".")
        if isinstance(value, dict) and isinstance(under, list):
            joined[key] = _change_entries(under, value, where, place)
        elif isinstance(value, list) and isinstance(under, list) and key in LISTS:
            joined[key] = _choose_entries(under, value, where, place)
        elif isinstance(value, dict) and isinstance(under, dict):
            joined[key] = _overlay(under, value, where, place)
        else:
            joined[key] = value
    return joined


def _labels(entries: list[Any]) -> list[Any]:
    return [entry.get("label", entry.get("name")) if isinstance(entry, dict) else None for entry in entries]


def _change_entries(below: list[Any], above: Table, where: str, path: str) -> list[Any]:
    """A table changes all entries of its label; with a name and a label that is not there yet it is one more entry."""
    joined = [dict(entry) if isinstance(entry, dict) else entry for entry in below]
    labels = _labels(below)
    for label, changes in above.items():
        if not isinstance(changes, dict):
            raise PlanError(f"{where}: {path}.{label} is {changes!r}; it must be a table of what changes in that entry")
        if label in labels:
            named = [entry for entry, known in zip(joined, labels, strict=True) if known == label]
            for entry in named:
                entry.update(({"label": label} if len(named) == 1 else {}) | changes)  # its label stays
        elif "name" in changes:
            joined.append({"label": label, **changes})
            labels.append(label)
        else:
            allowed = ", ".join(dict.fromkeys(str(known) for known in labels if known is not None))
            problem = f"is laid over an entry that is not there; labels: {allowed}; for one more entry, give its name"
            raise PlanError(f"{where}: {path}.{label} {problem}")
    return joined


def _choose_entries(below: list[Any], above: list[Any], where: str, path: str) -> list[Any]:
    """A list chooses entries: a label, or a table without a name, takes one from below; others are new."""
    known = dict(zip(_labels(below), below, strict=True))
    chosen = []
    for place, entry in enumerate(above):
        changes = {"label": entry} if isinstance(entry, str) else entry
        if not isinstance(changes, dict) or "name" in changes:
            chosen.append(changes)
        elif changes.get("label") in known:
            chosen.append({**known[changes["label"]], **changes})
        else:
            allowed = ", ".join(str(label) for label in known)
            problem = f"is {entry!r}, which is not in the plan below; labels: {allowed}; for a new entry, give its name"
            raise PlanError(f"{where}: {path}[{place}] {problem}")
    return chosen
