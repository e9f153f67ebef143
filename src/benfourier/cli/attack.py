"""`benfourier attack`: examples to fit and to measure detectors with, in one file."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benfourier.cli import options
from benfourier.cli.codes import INCOMPLETE, INTERRUPTED
from benfourier.cli.pictures import pictures_of
from benfourier.cli.printing import print_json, print_table
from benfourier.cli.wanted import wanted
from benfourier.cli.writing import check_out
from benfourier.errors import OptionError

if TYPE_CHECKING:
    from benfourier.attacks.stock import Crafted
    from benfourier.data.examples import Examples


def attack(
    model: options.Model,
    data: Annotated[
        str,
        typer.Option("--data", "-d", help="`mnist-5k`, `digits`, an .npz file or a folder; `:test` names a part."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")],
    weights: options.Weights = None,
    digest: options.Digest = None,
    size: options.Size = None,
    channels: options.Channels = None,
    classes: options.Classes = None,
    mean: options.Mean = None,
    std: options.Std = None,
    attacks: Annotated[
        list[str] | None,
        typer.Option("--attack", "-a", help="An attack, `bim`, or one with a label, `weak=bim-fixed`; repeatable."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--option", help="An option of an attack: `cw-l2.iterations=100`, `weak.eps=8/255`; repeatable."),
    ] = None,
    noise: Annotated[str, typer.Option("--noise", help="Noise has the `median` or the `mean` L2.")] = "median",
    limit: Annotated[
        int | None, typer.Option("--limit", help="So many images at most, the classes in their shares.")
    ] = None,
    seed: options.Seed = 0,
    cache: Annotated[Path | None, typer.Option("--cache", help="Folder in which finished work is kept.")] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep and use nothing but the result.")] = False,
    chunk: Annotated[int, typer.Option("--chunk", help="Images that are finished together.")] = 64,
    batch: Annotated[int | None, typer.Option("--batch", help="Images at once; by default as memory allows.")] = None,
    eight_bit: Annotated[bool, typer.Option("--eight-bit", help="Round what is made to 8-bit pixels.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first image that cannot be read.")] = False,
    json: options.Json = False,
) -> None:
    """Make adversarial and noisy twins of images, and keep them in one file.

    Example: `benfourier attack -m lid-mnist -w lid-mnist.safetensors -d mnist-5k -a bim --limit 300 -o examples.bf`
    """
    if cache is not None and no_cache:
        raise OptionError(f"cache is {str(cache)!r} and --no-cache is given too; leave one of them out")
    check_out(out, weights=weights, data=data)
    chosen = wanted(attacks or ["bim"], settings or [])
    from benfourier.attacks.examples import make_examples
    from benfourier.cli.subjects import subject_of

    subject = subject_of(model, weights, digest, size, channels, classes, mean, std)
    pictures = pictures_of(subject, data, limit, seed, strict=strict)
    crafted: list[Crafted] = []
    try:
        found = make_examples(
            subject,
            pictures.images,
            pictures.labels,
            attack=chosen,
            seed=seed,
            ids=pictures.ids,
            noise=noise,
            cache=False if no_cache else cache or True,
            chunk=chunk,
            batch=batch,
            eight_bit=eight_bit,
            report=crafted.append,
        )
    except KeyboardInterrupt:
        kept = "nothing was kept" if no_cache else "finished chunks are kept; the same command goes on from there"
        typer.echo(f"interrupted; {kept}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    for step, left in found.funnel.steps[1:]:
        pictures = replace(pictures, funnel=pictures.funnel.then(step, left))
    found = replace(found, funnel=pictures.funnel)
    found.save(out)
    if json:
        refused = [{"file": refusal.file, "reason": refusal.reason} for refusal in pictures.refusals]
        print_json({**_summary(found, crafted), "out": str(out), "refused": refused})
    else:
        _show(found, crafted)
        typer.echo(f"written to {out}")
        for refusal in pictures.refusals:
            typer.echo(f"not readable: {refusal}", err=True)
    if pictures.refusals:
        raise typer.Exit(INCOMPLETE)


def _summary(found: "Examples", crafted: "list[Crafted]") -> dict[str, Any]:
    """What is printed, as JSON can hold it."""
    return {
        "funnel": [{"step": step, "left": left} for step, left in found.funnel.steps],
        "noise_level": found.noise_level,
        "attacks": [
            {
                "label": made.entry.label,
                "attack": made.entry.name,
                "options": dict(made.entry.options),
                "images": len(made.success),
                "succeeded": int(made.success.sum()),
                "median_l2": made.l2_centre() if made.success.any() else None,
                "median_linf": made.linf_centre() if made.success.any() else None,
                "calls": float(made.calls.double().mean()),
                "seconds": made.seconds,
                "cached": made.cached,
            }
            for made in crafted
        ],
    }


def _show(found: "Examples", crafted: "list[Crafted]") -> None:
    """Prints the funnel and one row per attack."""
    typer.echo(f"{found.funnel}\n")
    columns = ("attack", "succeeded", "median L2", "median L∞", "calls per image", "seconds", "from the cache")
    rows = [
        (
            made.entry.label,
            f"{int(made.success.sum())} of {len(made.success)}",
            f"{made.l2_centre():.4g}" if made.success.any() else "-",
            f"{made.linf_centre():.4g}" if made.success.any() else "-",
            f"{float(made.calls.double().mean()):.0f}",
            f"{made.seconds:.1f}",
            f"{made.cached}",
        )
        for made in crafted
    ]
    print_table(f"attacks, seed {found.seed}", columns, rows)
    typer.echo(f"noise of level {found.noise_level:.4g}")
