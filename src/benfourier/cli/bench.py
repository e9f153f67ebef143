"""`benfourier bench`: what listening costs on a network, on this machine."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from benfourier.cli import options
from benfourier.cli.printing import print_json, print_table
from benfourier.errors import OptionError, check_whole

if TYPE_CHECKING:
    from torch import Tensor

    from benfourier.subjects.subject import Subject


def bench(
    model: options.Model,
    weights: options.Weights = None,
    digest: options.Digest = None,
    size: options.Size = None,
    channels: options.Channels = None,
    classes: options.Classes = None,
    mean: options.Mean = None,
    std: options.Std = None,
    guard: Annotated[
        Path | None, typer.Option("--guard", help="Time this guard of the network too.", show_default=False)
    ] = None,
    batch: Annotated[int, typer.Option("--batch", help="Images at once.")] = 8,
    rounds: Annotated[int, typer.Option("--rounds", help="In which all take turns.")] = 11,
    threads: Annotated[
        int | None, typer.Option("--threads", help="That torch may use. [default: as it is set]", show_default=False)
    ] = None,
    json: options.Json = False,
) -> None:
    """Time a network alone, with the features of all its layers, and behind a guard.

    Images are noise, which takes as long as photographs. The benchmarks of the package itself are `make bench`.

    Example: `benfourier bench -m alexnet --batch 8 --threads 2`
    """
    import torch

    from benfourier.cli.subjects import subject_of

    check_whole("batch", batch)
    check_whole("rounds", rounds)
    if threads is not None:
        torch.set_num_threads(check_whole("threads", threads))
    subject = subject_of(model, weights, digest, size, channels, classes, mean, std)
    images = _noise(subject, batch)
    seconds = _take_turns(_calls(subject, images, guard), rounds)
    ms = {name: 1000 * value / batch for name, value in seconds.items()}
    layers = subject.describe()
    entries = sum(layer.entries for layer in layers)
    if json:
        settings = {"model": model, "batch": batch, "rounds": rounds, "threads": torch.get_num_threads()}
        print_json({**settings, "layers": len(layers), "responses": entries, "ms_per_image": ms})
        return
    plain = ms["network"]
    rows = [(name, f"{value:.3g}", f"{value / plain - 1:+.0%}") for name, value in ms.items()]
    told = f"{batch} images at once, {torch.get_num_threads()} threads, medians of {rounds} rounds"
    print_table(f"{model}: {told}", ("timed", "ms per image", "beside the network"), rows)
    typer.echo(f"{len(layers)} layers with {entries:,} responses per image")


def _noise(subject: "Subject", batch: int) -> "Tensor":
    import torch

    if subject.height_width is None or subject.known_channels is None:
        raise OptionError("the network does not say which images it takes; give --size and --channels")
    shape = (batch, subject.known_channels, *subject.height_width)
    low, high = subject.bounds
    return low + (high - low) * torch.rand(shape, generator=torch.Generator().manual_seed(0))


def _calls(subject: "Subject", images: "Tensor", guard: Path | None) -> Mapping[str, Callable[[], object]]:
    """What is timed, by name."""
    from benfourier.guard.saving import load_guard
    from benfourier.subjects.features import features

    calls: dict[str, Callable[[], object]] = {
        "network": lambda: subject.logits(images),
        "with features": lambda: features(subject, images, batch=len(images), show_progress=False),
    }
    if guard is not None:
        loaded = load_guard(guard, subject.module)
        calls["behind the guard"] = lambda: loaded.check(images)
    return calls


def _take_turns(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each call, after one round that is not counted."""
    import torch

    taken: dict[str, list[float]] = {name: [] for name in calls}
    with torch.no_grad():
        for turn in range(rounds + 1):
            for name, call in calls.items():
                start = time.perf_counter()
                call()
                if turn:
                    taken[name].append(time.perf_counter() - start)
    return {name: median(times) for name, times in taken.items()}
