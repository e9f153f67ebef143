"""`benfourier train`: weights for a network, from images."""

import time
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer

import benfourier as bf
from benfourier.cli import options, output

Data = Annotated[str, typer.Option("--data", "-d", help="`mnist-5k`, an .npz file or a folder; `:train` names a part.")]
TestData = Annotated[str | None, typer.Option("--test-data", help="Images to measure on, instead of a part held out.")]
Flips = Annotated[
    bool | None,
    typer.Option("--flips/--no-flips", help="Mirror half of the images. [default: as the zoo network says, else not]"),
]
Bf16 = Annotated[bool, typer.Option("--bf16/--no-bf16", help="Compute in bfloat16, which gives other weights.")]


def train(
    model: options.Model,
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="The weights' file to write.")],
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
    bf16: Bf16 = False,
    seed: options.Seed = 0,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="[default: the weights' file with .checkpoint behind it]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Train a network and write its weights.

    Example: `benfourier train -m lid-mnist -d mnist-5k --epochs 10 -o lid-mnist.safetensors`
    """
    output.check_output_path(out, data=data, test_data=test_data)
    settings = {"epochs": epochs, "batch": batch, "rate": rate, "weight_decay": weight_decay, "shift": shift}
    training_options = bf.training_options(model, flips=flips, bf16=bf16, seed=seed, **settings)
    classifier = options.classifier_from(model, weights, digest, size, channels, classes, mean, std, device, seed=seed)
    saved = checkpoint or out.with_name(f"{out.name}.checkpoint")
    there = f"{saved} holds the last epoch: the same command with --resume goes on"
    with output.resumable(lambda: there if saved.exists() else "nothing was learned yet"):
        result = bf.train(
            classifier,
            data,
            test_data,
            training_options,
            held_out=held_out,
            checkpoint=saved,
            resume=resume,
            report=lambda number, epoch: _print_epoch(number, epochs, epoch),
        )
    bf.save_weights(classifier.module, out, network=model, classes=classes, training=result.metadata())
    saved.unlink(missing_ok=True)
    _print_result(model, out, result, json=json)
    if result.unreadable:
        raise typer.Exit(output.INCOMPLETE)


def _print_epoch(number: int, epochs: int, epoch: "bf.Epoch") -> None:
    """One line per epoch, on standard error."""
    typer.echo(
        f"{time.strftime('%H:%M:%S')} epoch {number}/{epochs}: loss {epoch.loss:.4f}, "
        f"{epoch.accuracy:.2%} right while learning, {epoch.correct / epoch.images:.2%} of {epoch.images:,} held-out "
        f"images, {epoch.seconds:.1f} s",
        err=True,
    )


def _print_result(model: str, out: Path, result: "bf.TrainingResult", *, json: bool) -> None:
    if json:
        file = {"network": model, "weights": str(out), "sha256": sha256(out.read_bytes()).hexdigest()}
        lists = {"epochs": list(map(asdict, result.epochs)), "refused": list(map(asdict, result.unreadable))}
        output.print_json({**file, **result.metadata(), **lists})
        return
    low, high = result.interval
    accuracy = f"{result.accuracy:.2%} of {result.epochs[-1].images:,} held-out images (95 %: {low:.2%} to {high:.2%})"
    typer.echo(f"{model}: {accuracy}, {len(result.epochs)} epochs, {result.seconds:.0f} s")
    if result.left_out:
        typer.echo(f"{result.left_out:,} of the images to measure on are among those learned from, and were left out")
    typer.echo(f"written to {out}")
    output.print_unreadable(result.unreadable)
