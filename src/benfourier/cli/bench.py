"""`benfourier bench`: what detection costs on a network, on this machine."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import benfourier as bf
from benfourier.cli import options, output
from benfourier.errors import OptionError, check_threads, check_whole


def bench(
    model: options.Model,
    weights: options.Weights = None,
    digest: options.Digest = None,
    size: options.Size = None,
    channels: options.Channels = None,
    classes: options.Classes = None,
    mean: options.Mean = None,
    std: options.Std = None,
    guard: Annotated[Path | None, typer.Option("--guard", help="Time this guard of the network too.")] = None,
    second_model: options.SecondModel = None,
    batch: Annotated[int, typer.Option("--batch", help="Images at once.")] = 8,
    rounds: Annotated[int, typer.Option("--rounds", help="In which all take turns.")] = 11,
    threads: options.Threads = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Time a network alone, with the features of all its layers, and behind a guard.

    Images are noise, which takes as long as photographs. The benchmarks of the package itself are `make bench`.

    Example: `benfourier bench -m alexnet --batch 8 --threads 2`
    """
    for name, value in (("batch", batch), ("rounds", rounds)):
        check_whole(name, value)
    if threads is not None:
        check_threads(threads)
    classifier = options.classifier_from(model, weights, digest, size, channels, classes, mean, std, device)
    if classifier.size is None or classifier.channels is None:
        raise OptionError("the network does not say which images it takes; give --size and --channels")
    second = options.second_from(second_model, device=device)
    loaded = None if guard is None else bf.load_guard(guard, classifier.module, second=second)
    timing = bf.bench(classifier, loaded, batch=batch, rounds=rounds, threads=threads)
    if json:
        output.print_json({"model": model, "batch": batch, "rounds": rounds, **asdict(timing)})
        return
    alone = timing.ms_per_image["network"]
    rows = [(name, f"{ms:.3g}", f"{ms / alone - 1:+.0%}") for name, ms in timing.ms_per_image.items()]
    how = f"{batch} images at once, {timing.threads} threads, medians of {rounds} rounds"
    output.print_table(f"{model}: {how}", ("timed", "ms per image", "beside the network"), rows)
    typer.echo(f"{timing.layers} layers with {timing.activations:,} activations per image")
