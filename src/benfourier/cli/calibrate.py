"""`benfourier calibrate`: new thresholds and a new card for a guard, from new clean images."""

from pathlib import Path
from typing import Annotated

import typer

import benfourier as bf
from benfourier.cli import options, output


def calibrate(
    guard: options.Guard,
    model: options.Model,
    clean: Annotated[str, typer.Option("--clean", help="Clean labelled images, as the guard will see them.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The guard's file to write.")],
    weights: options.Weights = None,
    digest: options.Digest = None,
    classes: options.Classes = None,
    second_model: options.SecondModel = None,
    rate: options.OtherRate = None,
    limit: Annotated[int | None, typer.Option("--limit", help="So many of the images at most.")] = None,
    seed: options.Seed = 0,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Set the thresholds of a guard from new clean images, without a new fit, and measure its false alarms.

    Example: `benfourier calibrate guard.bf -m lid-mnist -w lid-mnist.safetensors --clean new_photos -o new.bf`
    """
    output.check_output_path(out, weights=weights, clean=clean)
    loaded = options.guard_from(guard, model, weights, digest, classes, second_model, rate, device)
    renewed = bf.recalibrate(loaded, bf.read_labelled(loaded.classifier, clean, limit, seed))
    renewed.save(out)
    if json:
        output.print_json({"card": renewed.card and renewed.card.as_json(), "out": str(out)})
    else:
        typer.echo(f"{renewed.card}\n\nwritten to {out}")
