"""`benfourier fit`: a guard for a network, in one file."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import benfourier as bf
from benfourier.cli import options, output
from benfourier.errors import OptionError, check_seed


def fit(
    model: options.Model,
    examples: Annotated[Path, typer.Option("--examples", "-e", help="What `benfourier attack` wrote.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The guard's file to write.")],
    weights: options.Weights = None,
    digest: options.Digest = None,
    size: options.Size = None,
    channels: options.Channels = None,
    classes: options.Classes = None,
    mean: options.Mean = None,
    std: options.Std = None,
    detector: Annotated[str, typer.Option("--detector", help="Id of a detector.")] = "views",
    preset: Annotated[str | None, typer.Option("--preset", help="A named set of options, such as `paper`.")] = None,
    detector_options: Annotated[
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
    strict: options.Strict = False,
    second_model: options.SecondModel = None,
    second_weights: Annotated[
        Path | None, typer.Option("--second-weights", help="A safetensors file with that network's weights.")
    ] = None,
    other_weights: Annotated[
        bool, typer.Option("--other-weights", help="The examples may have been made with other weights.")
    ] = False,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Fit a detector to examples, set its threshold, and write both as a guard.

    Example: `benfourier fit -m lid-mnist -w lid-mnist.safetensors -e examples.bf --clean mnist-5k -o guard.bf`
    """
    output.check_output_path(out, examples=examples, weights=weights, clean=clean, labelled=labelled)
    if clean is None and (limit is not None or strict):
        raise OptionError(f"{'--limit' if limit is not None else '--strict'} is about the images of --clean; give both")
    chosen = options.parse_options(detector_options or [])
    if seed not in (0, chosen.get("seed", seed)):
        raise OptionError(f"--seed is {seed} and --option seed is {chosen['seed']!r}; give one of them")
    seed = check_seed(chosen.pop("seed", seed))
    # the network first: its module may register a detector of the user's own
    classifier = options.classifier_from(model, weights, digest, size, channels, classes, mean, std, device)
    method = bf.make_method(detector, preset=preset, seed=seed, **chosen)
    unreadable: list[bf.UnreadableImage] = []
    data = None if clean is None else bf.read_labelled(classifier, clean, limit, seed, None if strict else unreadable)
    guard = bf.fit_guard(
        classifier,
        method,
        bf.Examples.load(examples),
        clean=None if data is None else data.images,
        labelled=None if labelled is None else bf.read_labelled(classifier, labelled, seed=seed),
        second=options.second_from(second_model, second_weights, device=device),
        false_alarm_rate=rate,
        other_weights=other_weights,
    )
    guard.save(out)
    left_out = 0 if data is None else len(data) - guard.threshold.images
    summary, threshold = guard.detector.summary, guard.threshold
    if json:
        facts = {"detector": method.name, "options": method.as_dict(), "summary": dict(summary)}
        written = {"left_out": left_out, "out": str(out), "refused": list(map(asdict, unreadable))}
        output.print_json(
            {**facts, "threshold": asdict(threshold), "card": guard.card and guard.card.as_json(), **written}
        )
    else:
        attacks = ", ".join(summary["attacks"])
        typer.echo(f"{method.name} fitted to {summary['sources']} source images, attacked by {attacks}")
        if left_out:
            typer.echo(f"{left_out} clean images are among those of the examples; the threshold is set without them")
        typer.echo(f"threshold {threshold}\n\n{guard.card}\nwritten to {out}")
        output.print_unreadable(unreadable)
    if unreadable:
        raise typer.Exit(output.INCOMPLETE)
