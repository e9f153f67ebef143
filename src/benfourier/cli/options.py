"""Options that several verbs share, written once."""

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="A network of the zoo, such as `lid-mnist`, or your own as `package.module:factory`.",
        show_default=False,
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option("--weights", "-w", help="A safetensors file with the network's weights.", show_default=False),
]
Digest = Annotated[
    str | None,
    typer.Option("--digest", help="SHA-256 that the weights' file must have.", show_default=False),
]
Size = Annotated[
    int | None,
    typer.Option("--size", help="Height and width of the images; a zoo network knows its own.", show_default=False),
]
Channels = Annotated[
    int | None,
    typer.Option("--channels", help="Channels of the images; a zoo network knows its own.", show_default=False),
]
Classes = Annotated[
    int | None,
    typer.Option("--classes", help="Number of classes, given to the network's factory.", show_default=False),
]
Mean = Annotated[
    str | None,
    typer.Option("--mean", help="Subtracted from pixels in [0, 1], one number per channel: `0.5,0.5,0.5`."),
]
Std = Annotated[
    str | None,
    typer.Option("--std", help="Divides what is left, one number per channel: `0.2,0.2,0.2`."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Seed = Annotated[int, typer.Option("--seed", help="Of all random draws.")]
