"""`benfourier train`: weights for a network, from images."""

import time
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benfourier.cli import options
from benfourier.cli.codes import INCOMPLETE, INTERRUPTED
from benfourier.cli.printing import print_json
from benfourier.cli.writing import check_out

if TYPE_CHECKING:
    from benfourier.data.source import Source
    from benfourier.subjects.checkpoint import Epoch
    from benfourier.subjects.recipe import Recipe
    from benfourier.subjects.subject import Subject
    from benfourier.subjects.training import Training

Data = Annotated[str, typer.Option("--data", "-d", help="`mnist-5k`, an .npz file or a folder; `:train` names a part.")]
TestData = Annotated[
    str | None,
    typer.Option("--test-data", help="Images to measure on, instead of a part held out.", show_default=False),
]
Flips = Annotated[
    bool | None,
    typer.Option("--flips/--no-flips", help="Mirror half of the images. [default: as the zoo network says, else not]"),
]
Bf16 = Annotated[
    bool | None, typer.Option("--bf16/--no-bf16", help="Compute in bfloat16. [default: if the CPU has it natively]")
]


def train(
    model: options.Model,
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="The weights' file to write.", show_default=False)],
    test_data: TestData = None,
    held_out: Annotated[float, typer.Option("--held-out", help="Share of the data that is held out.")] = 0.1,
    weights: options.Weights = None,
    digest: options.Digest = None,
    size: options.Size = None,
    channels: options.Channels = None,
    classes: options.Classes = None,
    mean: options.Mean = None,
    std: options.Std = None,
    epochs: Annotated[int, typer.Option("--epochs", help="How often each image is seen.")] = 14,
    batch: Annotated[int, typer.Option("--batch", help="Images per step.")] = 128,
    rate: Annotated[float, typer.Option("--rate", help="The greatest learning rate.")] = 0.05,
    weight_decay: Annotated[float, typer.Option("--weight-decay", help="Pulls parameters to zero.")] = 5e-4,
    shift: Annotated[int, typer.Option("--shift", help="Images are moved by up to so many pixels.")] = 3,
    flips: Flips = None,
    bf16: Bf16 = None,
    seed: options.Seed = 0,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="[default: the weights' file with .checkpoint behind it]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    json: options.Json = False,
) -> None:
    """Train a network and write its weights.

    Example: `benfourier train -m lid-mnist -d mnist-5k --epochs 10 -o lid-mnist.safetensors`
    """
    check_out(out, data=data, **{"test-data": test_data})
    from benfourier.subjects.recipe import Recipe, native_bf16
    from benfourier.subjects.training import train as train_subject
    from benfourier.subjects.weights import save_weights
    from benfourier.subjects.zoo import ZOO

    recipe = Recipe(
        epochs=epochs,
        batch=batch,
        rate=rate,
        weight_decay=weight_decay,
        shift=shift,
        flips=flips if flips is not None else model in ZOO and ZOO[model].flips,
        bf16=bf16 if bf16 is not None else native_bf16(),
        seed=seed,
    )
    subject = _first(seed, model, weights, digest, size, channels, classes, mean, std)
    kept = checkpoint or out.with_name(f"{out.name}.checkpoint")
    try:
        found = train_subject(
            subject,
            _source(data, subject),
            None if test_data is None else _source(test_data, subject),
            recipe,
            held_out=held_out,
            checkpoint=kept,
            resume=resume,
            report=lambda number, epoch: _tell(number, epoch, recipe),
        )
    except KeyboardInterrupt:
        there = f"{kept} holds the last epoch: the same command with --resume goes on"
        typer.echo(f"interrupted; {there if kept.exists() else 'nothing was learned yet'}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    save_weights(subject.module, out, network=model, classes=classes, training=found.facts())
    kept.unlink(missing_ok=True)
    _show(model, out, found, json=json)
    if found.refusals:
        raise typer.Exit(INCOMPLETE)


def _first(seed: int, *described: Any) -> "Subject":
    """The subject with the weights that training begins with: those of a file, or drawn with the seed."""
    import torch

    from benfourier.cli.subjects import subject_of

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return subject_of(*described, pretrained=False)


def _source(text: str, subject: "Subject") -> "Source":
    from benfourier.data.opening import open_source

    channels = subject.known_channels or 3
    return open_source(
        text, classes=subject.classes, channels=channels, size=subject.height_width, resize=subject.resize
    )


def _tell(number: int, epoch: "Epoch", recipe: "Recipe") -> None:
    """One line per epoch, on standard error."""
    typer.echo(
        f"{time.strftime('%H:%M:%S')} epoch {number}/{recipe.epochs}: loss {epoch.loss:.4f}, "
        f"{epoch.accuracy:.2%} right while learning, {epoch.right / epoch.images:.2%} of {epoch.images:,} held-out "
        f"images, {epoch.seconds:.1f} s",
        err=True,
    )


def _show(model: str, out: Path, found: "Training", *, json: bool) -> None:
    """Prints what came of it."""
    refused = [{"file": refusal.file, "reason": refusal.reason} for refusal in found.refusals]
    if json:
        epochs = [asdict(epoch) for epoch in found.epochs]
        written = {"network": model, "weights": str(out), "sha256": sha256(out.read_bytes()).hexdigest()}
        print_json({**written, **found.facts(), "epochs": epochs, "refused": refused})
        return
    low, high = found.interval
    measured = f"{found.accuracy:.2%} of {found.epochs[-1].images:,} held-out images (95 %: {low:.2%} to {high:.2%})"
    typer.echo(f"{model}: {measured}, {len(found.epochs)} epochs, {found.seconds:.0f} s")
    if found.left_out:
        typer.echo(f"{found.left_out:,} of the images to measure on are among those learned from, and were left out")
    typer.echo(f"written to {out}")
    for refusal in found.refusals:
        typer.echo(f"not readable: {refusal}", err=True)
