"""`benfourier layers`: the layers of a network that can be observed."""

from typing import Annotated

import typer

from benfourier.cli import options, output


def layers(
    model: options.Model,
    weights: options.Weights = None,
    digest: options.Digest = None,
    size: options.Size = None,
    channels: options.Channels = None,
    classes: options.Classes = None,
    mean: options.Mean = None,
    std: options.Std = None,
    select: Annotated[
        list[str] | None, typer.Option("--select", help="Name, glob or `type:Conv2d`; may be repeated.")
    ] = None,
    pass_through: Annotated[
        bool, typer.Option("--pass-through", help="Also layers that only pass numbers on (Dropout, Flatten).")
    ] = False,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """List the layers of a network in firing order.

    Example: `benfourier layers --model lid-mnist --pass-through`
    """
    classifier = options.classifier_from(model, weights, digest, size, channels, classes, mean, std, device)
    records = classifier.layers(select or None, pass_through=pass_through)
    if json:
        output.print_json([{"name": layer.name, "kind": layer.kind, "entries": layer.entries} for layer in records])
        return
    rows = [(layer.name, layer.kind, f"{layer.entries:,}") for layer in records]
    output.print_table(f"{len(records)} layers of {model}", ("layer", "kind", "entries per image"), rows)
