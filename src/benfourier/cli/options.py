"""Options that several verbs share, and how their words are read."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import benfourier as bf
from benfourier.errors import OptionError, check_choice, check_number

Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="A network of the zoo, such as `lid-mnist`, or your own as `package.module:factory`: that code is run; "
        "the current folder comes first.",
    ),
]
Weights = Annotated[Path | None, typer.Option("--weights", "-w", help="A safetensors file with the network's weights.")]
Digest = Annotated[str | None, typer.Option("--digest", help="SHA-256 that the weights' file must have.")]
Size = Annotated[int | None, typer.Option("--size", help="Height and width of the images; zoo networks know theirs.")]
Channels = Annotated[int | None, typer.Option("--channels", help="Channels of the images; zoo networks know theirs.")]
Classes = Annotated[
    str | None,
    typer.Option(
        "--classes", help="Number of classes, given to the network's factory, or their names in its order: `cat,dog`."
    ),
]
Mean = Annotated[
    str | None, typer.Option("--mean", help="Subtracted from pixels in [0, 1], one per channel: `0.5,0.5,0.5`.")
]
Std = Annotated[str | None, typer.Option("--std", help="Divides pixels after that, one per channel: `0.2,0.2,0.2`.")]
SecondModel = Annotated[
    str | None, typer.Option("--second-model", help="The other network of `second-opinion`, named as in `--model`.")
]
Guard = Annotated[Path, typer.Argument(help="What `benfourier protect` or `fit` wrote.")]
OtherRate = Annotated[
    float | None, typer.Option("--false-alarm-rate", help="Another share of clean images that may be rejected.")
]
Device = Annotated[
    str | None,
    typer.Option("--device", help="Where networks run, such as `cuda` or `cuda:1`. [default: the CPU]"),
]
Threads = Annotated[int | None, typer.Option("--threads", help="That torch may use. [default: as it is set]")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first image that cannot be read.")]
Executor = Annotated[str, typer.Option("--executor", help="Where tasks run: `local`, or `ray` for a Ray cluster.")]
Address = Annotated[
    str | None,
    typer.Option("--address", help="Of a Ray cluster, such as `10.0.0.1:6379`. [default: the one of this machine]"),
]
TaskCpus = Annotated[float | None, typer.Option("--task-cpus", help="CPUs that Ray reserves for a task. [default: 1]")]
TaskGpus = Annotated[float | None, typer.Option("--task-gpus", help="GPUs, the same. [default: 0]")]
TaskMemory = Annotated[float | None, typer.Option("--task-memory", help="Memory in GB, the same. [default: no limit]")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Seed = Annotated[int, typer.Option("--seed", help="Of all random draws.")]


def classifier_from(
    model: str,
    weights: Path | None = None,
    digest: str | None = None,
    size: int | None = None,
    channels: int | None = None,
    classes: str | None = None,
    mean: str | None = None,
    std: str | None = None,
    device: str | None = None,
    *,
    seed: int | None = None,
) -> "bf.Classifier":
    """Returns the classifier that the options above describe; what is left out is the zoo network's own.

    With a seed, weights that no file gives are drawn, instead of those that come with a zoo network.
    """
    values = {"size": size, "channels": channels, "mean": parse_numbers("mean", mean), "std": parse_numbers("std", std)}
    image_options: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    return bf.open_classifier(
        model,
        weights=weights,
        digest=digest,
        classes=_parse_classes(classes),
        seed=seed,
        device=device,
        **image_options,
    )


def guard_from(
    file: Path,
    model: str,
    weights: Path | None,
    digest: str | None,
    classes: str | None,
    second_model: str | None,
    rate: float | None,
    device: str | None,
) -> "bf.Guard":
    """Returns the guard of a file on its network, at another false-alarm rate if one is given.

    The file is looked at first: a network takes seconds to load.
    """
    bf.inspect(file)
    module = classifier_from(model, weights, digest, classes=classes, device=device).module
    guard = bf.load_guard(file, module, second=second_from(second_model, device=device))
    return guard if rate is None else guard.at_rate(rate)


def second_from(model: str | None, weights: Path | None = None, *, device: str | None = None) -> "bf.Classifier | None":
    """Returns the other network of a second opinion; None if there is none."""
    if model is None and weights is not None:
        raise OptionError(f"--second-weights is {str(weights)!r} without --second-model; name the network too")
    return None if model is None else bf.open_classifier(model, weights=weights, device=device)


def executor_from(workers: int | None) -> "bf.Serial | bf.LocalPool":
    """Returns where trials run: in this process for one worker, else in a pool; None is one worker per core."""
    pool = bf.LocalPool() if workers is None else bf.LocalPool(workers)
    return bf.Serial() if pool.workers == 1 else pool


def _parse_classes(text: str | None) -> int | list[str] | None:
    """Returns the number of classes in a text, or their names with commas between."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if len(names) > 1:
        return names
    try:
        return int(text)
    except ValueError as error:
        raise OptionError(f"classes is {text!r}; it must be a number, or names such as cat,dog", "classes") from error


def ray_options(
    executor: str, workers: int | None, address: str | None, cpus: float | None, gpus: float | None, gb: float | None
) -> dict[str, Any] | None:
    """Returns the options of an executor on Ray, None for a local one; options of the other kind are refused."""
    check_choice("executor", executor, ("local", "ray"))
    memory = None if gb is None else int(check_number("task-memory", gb, above=0) * 1e9)
    every = {"address": address, "num_cpus": cpus, "num_gpus": gpus, "memory": memory}
    chosen = {name: value for name, value in every.items() if value is not None}
    if executor == "ray" and workers is not None:
        raise OptionError(f"workers is {workers}, but Ray has as many as its cluster; leave it out")
    if executor == "local" and chosen:
        name, value = next(iter(chosen.items()))
        raise OptionError(f"{name} is {value!r}, but the executor is local; add --executor ray")
    return chosen if executor == "ray" else None


def parse_numbers(name: str, text: str | None) -> list[float] | None:
    """Returns the numbers in a text such as "0.5,0.5,0.5"."""
    if text is None:
        return None
    try:
        return [float(word) for word in text.split(",")]
    except ValueError as error:
        raise OptionError(f"{name} is {text!r}; it must be numbers with commas between, such as 0.5,0.5,0.5") from error


def parse_value(text: str) -> Any:
    """Returns the number, quotient, truth value or word that a text means; "none" is None."""
    try:
        return json.loads(text.lower() if text in ("True", "False") else text)
    except json.JSONDecodeError:
        pass
    above, bar, below = text.partition("/")
    try:
        if bar:
            return float(above) / float(below)
    except (ValueError, ZeroDivisionError):
        pass
    return None if text in ("none", "None") else text


def parse_options(words: Sequence[str]) -> dict[str, Any]:
    """Returns options such as "C=10" by name."""
    options = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not (name and sign):
            raise OptionError(f"option is {word!r}; it must be name=value, such as C=10")
        options[name] = parse_value(text)
    return options


def parse_attacks(attacks: Sequence[str], options: Sequence[str]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Returns ids and options of attacks by label, from words such as "weak=bim-fixed" and "weak.eps=8/255"."""
    by_label: dict[str, tuple[str, dict[str, Any]]] = {}
    for word in attacks:
        label, _, name = word.rpartition("=")
        if (label or name) in by_label:
            raise OptionError(
                f"attack {label or name!r} is given twice; give each a label, as in --attack weak={name} "
                f"--attack strong={name}"
            )
        by_label[label or name] = (name, {})
    for word in options:
        place, sign, text = word.partition("=")
        label, dot, option = place.rpartition(".")  # a label may hold dots, an option does not
        if not (sign and dot and option) or label not in by_label:
            raise OptionError(
                f"option is {word!r}; it must be label.option=value, with a label among {', '.join(by_label)}"
            )
        by_label[label][1][option] = parse_value(text)
    return by_label
