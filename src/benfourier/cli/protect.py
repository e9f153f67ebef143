"""`benfourier protect`: a guard for a network in one call, with a card that says what it catches."""

from pathlib import Path
from typing import Annotated, Any

import typer

import benfourier as bf
from benfourier.cli import options, output
from benfourier.errors import OptionError

WORD_BUDGETS = ("1 min", "5 min", "1 h")


def protect(
    model: options.Model,
    data: Annotated[
        str, typer.Option("--data", "-d", help="Clean labelled images: a folder, an .npz file, `mnist-5k`, `digits`.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The guard's file to write.")],
    weights: options.Weights = None,
    digest: options.Digest = None,
    size: options.Size = None,
    channels: options.Channels = None,
    classes: options.Classes = None,
    mean: options.Mean = None,
    std: options.Std = None,
    detector: Annotated[str, typer.Option("--detector", help="Id of a detector.")] = "views",
    attacks: Annotated[
        list[str] | None,
        typer.Option("--attack", "-a", help="An attack to fit to; repeatable; `none` for none. [default: a mixture]"),
    ] = None,
    rate: Annotated[
        float, typer.Option("--false-alarm-rate", help="Share of clean images that may be rejected.")
    ] = 0.05,
    budget: Annotated[
        str, typer.Option("--budget", help="`1 min`, `5 min`, `1 h`, or seconds: how long it may take, about.")
    ] = "5 min",
    second_model: options.SecondModel = None,
    work_dir: Annotated[
        Path | None, typer.Option("--work-dir", help="Folder for finished work. [default: the cache]")
    ] = None,
    seed: options.Seed = 0,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Attack a network, fit a guard to it, set its thresholds, and measure what it catches.

    Finished work is kept: after an interruption the same command goes on from there.

    Example: `benfourier protect -m lid-mnist -w lid-mnist.safetensors -d mnist-5k -o guard.bf`
    """
    output.check_output_path(out, weights=weights, data=data)
    classifier = options.classifier_from(model, weights, digest, size, channels, classes, mean, std, device)
    with output.resumable(lambda: "finished work is kept; the same command goes on from there"):
        guard = bf.protect(
            classifier,
            data,
            detector=detector,
            attacks=_attacks(attacks),
            false_alarm_rate=rate,
            budget=budget if budget in WORD_BUDGETS else options.parse_value(budget),
            second=options.second_from(second_model, device=device),
            work_dir=work_dir,
            seed=seed,
            report=lambda text: typer.echo(text, err=True),
        )
    guard.save(out)
    if json:
        output.print_json({"card": guard.card and guard.card.as_json(), "out": str(out)})
    else:
        typer.echo(f"{guard.card}\n\nwritten to {out}")


def _attacks(words: list[str] | None) -> Any:
    """What `protect` takes: the mixture, attacks by label, or None for none."""
    if not words:
        return "default"
    if words == ["none"]:
        return None
    if "none" in words or "default" in words:
        raise OptionError(f"attack is {', '.join(words)}; 'none' and 'default' stand alone", "attack")
    return {label: name for label, (name, _) in options.parse_attacks(words, []).items()}
