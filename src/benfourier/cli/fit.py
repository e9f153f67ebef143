"""`benfourier fit`: a guard for a network, in one file."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benfourier.cli import options
from benfourier.cli.codes import INCOMPLETE
from benfourier.cli.pictures import pictures_of
from benfourier.cli.printing import print_json
from benfourier.cli.wanted import value_of
from benfourier.cli.writing import check_out
from benfourier.errors import OptionError, check_seed

if TYPE_CHECKING:
    from torch import Tensor

    from benfourier.data.examples import Examples
    from benfourier.data.labelled import Labelled
    from benfourier.data.reading import Refusal
    from benfourier.guard.guard import Guard
    from benfourier.subjects.subject import Subject

HELD_OUT = 0.2  # share of the examples' source images that set the threshold if no others are given


def fit(
    model: options.Model,
    examples: Annotated[
        Path, typer.Option("--examples", "-e", help="What `benfourier attack` wrote.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The guard's file to write.", show_default=False)],
    weights: options.Weights = None,
    digest: options.Digest = None,
    size: options.Size = None,
    channels: options.Channels = None,
    classes: options.Classes = None,
    mean: options.Mean = None,
    std: options.Std = None,
    detector: Annotated[str, typer.Option("--detector", help="Id of a detector.")] = "mbf",
    preset: Annotated[
        str | None, typer.Option("--preset", help="A named set of options, such as `paper`.", show_default=False)
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--option", help="An option of the detector: `C=10`; repeatable.")
    ] = None,
    labelled: Annotated[
        str | None,
        typer.Option("--labelled", help="Labelled clean images, for detectors that learn from more than the examples."),
    ] = None,
    clean: Annotated[
        str | None,
        typer.Option("--clean", help="Clean images that set the threshold. [default: a fifth of the examples]"),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="So many of the images of --clean at most.")] = None,
    rate: Annotated[
        float, typer.Option("--false-alarm-rate", help="Share of clean images that may be rejected.")
    ] = 0.05,
    seed: options.Seed = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first image that cannot be read.")] = False,
    foreign: Annotated[
        bool, typer.Option("--foreign", help="The examples may have been made with other weights.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Fit a detector to examples, set its threshold, and write both as a guard.

    Example: `benfourier fit -m lid-mnist -w lid-mnist.safetensors -e examples.bf --clean mnist-5k -o guard.bf`
    """
    check_out(out, examples=examples, weights=weights, clean=clean, labelled=labelled)
    from benfourier.cli.subjects import subject_of
    from benfourier.data.examples import Examples
    from benfourier.detectors.catalogue import method
    from benfourier.detectors.threshold import check_enough, checked_rate
    from benfourier.guard.guard import Guard

    checked_rate(rate)
    if clean is None and (limit is not None or strict):
        raise OptionError(f"{'--limit' if limit is not None else '--strict'} is about the images of --clean; give both")
    given = _settings(settings or [])
    if seed not in (0, given.get("seed", seed)):
        raise OptionError(f"--seed is {seed} and --option seed is {given['seed']!r}; give one of them")
    seed = check_seed(given.pop("seed", seed))
    chosen = method(detector, preset=preset, seed=seed, **given)
    subject = subject_of(model, weights, digest, size, channels, classes, mean, std)
    found = Examples.load(examples)
    more = None if labelled is None else _labelled(subject, labelled, seed)
    if clean is None:
        found, apart = _parted(found, seed)
    else:
        apart = _apart(subject, clean, limit, seed, _seen(found, more), strict=strict)
    check_enough(rate, len(apart.images))
    fitted = chosen.fit(subject, found, clean=more, foreign=foreign)
    guard = Guard(subject, fitted, false_alarm_rate=rate, clean=apart.images)
    guard.save(out)
    _show(guard, apart, out, json=json)
    if apart.refusals:
        raise typer.Exit(INCOMPLETE)


@dataclass(frozen=True, eq=False)
class _Apart:
    """Clean images for the threshold, how many were left out since the fit has them, and which cannot be read."""

    images: "Tensor"
    left_out: int = 0
    refusals: "tuple[Refusal, ...]" = ()


def _settings(words: Sequence[str]) -> dict[str, Any]:
    """Options such as "C=10" by name."""
    pairs = [word.partition("=") for word in words]
    for word, (name, sign, _) in zip(words, pairs, strict=True):
        if not (name and sign):
            raise OptionError(f"option is {word!r}; it must be name=value, such as C=10")
    return {name: value_of(text) for name, _, text in pairs}


def _labelled(subject: "Subject", text: str, seed: int) -> "Labelled":
    from benfourier.data.labelled import Labelled

    found = pictures_of(subject, text, None, seed, strict=True)
    return Labelled(found.images, found.labels, found.ids)


def _parted(examples: "Examples", seed: int) -> "tuple[Examples, _Apart]":
    """The examples to fit to, and the clean images of the others."""
    from benfourier.data.splits import split

    shares = {"fit": 1 - HELD_OUT, "threshold": HELD_OUT}
    parts = split(examples.ids, [0] * len(examples), shares, seed=seed)
    return examples.take(parts["fit"], "fit"), _Apart(examples.clean[parts["threshold"]])


def _seen(examples: "Examples", more: "Labelled | None") -> set[str]:
    """Names of the images that the fit looks at."""
    from benfourier.data.draws import names_by_content

    sets = [examples.clean, examples.noisy] + ([] if more is None else [more.images])
    return {name for images in sets for name in names_by_content(images)}


def _apart(subject: "Subject", text: str, limit: int | None, seed: int, seen: set[str], *, strict: bool) -> _Apart:
    """The images of a source that are not among those seen."""
    from benfourier.data.draws import names_by_content

    found = pictures_of(subject, text, limit, seed, strict=strict)
    new = [row for row, name in enumerate(names_by_content(found.images)) if name not in seen]
    return _Apart(found.images[new], len(found.images) - len(new), found.refusals)


def _show(guard: "Guard", apart: _Apart, out: Path, *, json: bool) -> None:
    """Prints what came of it."""
    summary, name = dict(guard.detector.summary), guard.detector.method.name
    if json:
        refused = [{"file": refusal.file, "reason": refusal.reason} for refusal in apart.refusals]
        facts = {"detector": name, "options": asdict(guard.detector.method), "summary": summary}
        told = {**facts, "threshold": asdict(guard.threshold), "left_out": apart.left_out}
        print_json({**told, "out": str(out), "refused": refused})
        return
    typer.echo(f"{name} fitted to {summary['sources']} source images, attacked by {', '.join(summary['attacks'])}")
    if apart.left_out:
        typer.echo(f"{apart.left_out} clean images are among those fitted to; the threshold does without them")
    typer.echo(f"threshold {guard.threshold}")
    typer.echo(f"written to {out}")
    for refusal in apart.refusals:
        typer.echo(f"not readable: {refusal}", err=True)
