"""`benfourier attack`: examples to fit and to test detectors with, in one file."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

import benfourier as bf
from benfourier.cli import options, output
from benfourier.errors import OptionError


def attack(
    model: options.Model,
    data: Annotated[
        str, typer.Option("--data", "-d", help="`mnist-5k`, `digits`, an .npz file or a folder; `:test` names a part.")
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
        typer.Option(
            "--attack",
            "-a",
            help="An attack, `bim`, or one with a label, `weak=bim-fixed`; repeatable. [default: a mixture of two]",
        ),
    ] = None,
    attack_options: Annotated[
        list[str] | None,
        typer.Option("--option", help="An option of an attack: `cw-l2.iterations=100`, `weak.eps=8/255`; repeatable."),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option("--noise", help="Noise has the `median` or `mean` L2 of all attacks, or that of `each`."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", help="So many images at most, the classes in their shares.")
    ] = None,
    seed: options.Seed = 0,
    cache: Annotated[Path | None, typer.Option("--cache", help="Folder in which finished work is stored.")] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Store and use nothing but the result.")] = False,
    chunk: Annotated[int, typer.Option("--chunk", help="Images that are finished together.")] = 64,
    batch: Annotated[int | None, typer.Option("--batch", help="Images at once; by default as memory allows.")] = None,
    eight_bit: Annotated[bool, typer.Option("--eight-bit", help="Round new images to 8-bit pixels.")] = False,
    strict: options.Strict = False,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Make adversarial and noisy twins of images, and write them to one file.

    Example: `benfourier attack -m lid-mnist -w lid-mnist.safetensors -d mnist-5k --limit 300 -o examples.bf`
    """
    if cache is not None and no_cache:
        raise OptionError(f"cache is {str(cache)!r} and --no-cache is given too; leave one of them out")
    output.check_output_path(out, weights=weights, data=data)
    whole_mixture = "default" in (attacks or ["default"])
    if whole_mixture and (attacks not in (None, ["default"]) or attack_options):
        raise OptionError(
            "attack is 'default', a mixture with options of its own; leave --option and other attacks out"
        )
    by_label = {} if whole_mixture else options.parse_attacks(attacks or [], attack_options or [])
    # the network first: its module may register an attack of the user's own
    classifier = options.classifier_from(model, weights, digest, size, channels, classes, mean, std, device)
    methods = {label: bf.make_attack(name, **chosen) for label, (name, chosen) in by_label.items()}
    source = classifier.open_source(data)
    unreadable: list[bf.UnreadableImage] = []
    images = bf.read_labelled(classifier, source, limit, seed, None if strict else unreadable)
    results: dict[str, bf.AttackResult] = {}
    again = "finished chunks are kept; the same command goes on from there"
    with output.resumable(lambda: "nothing was kept" if no_cache else again):
        examples = bf.make_examples(
            classifier,
            images,
            attacks="default" if whole_mixture else methods,
            seed=seed,
            noise=noise,
            cache=False if no_cache else cache or True,
            chunk=chunk,
            batch=batch,
            eight_bit=eight_bit,
            report=results.__setitem__,
            say=lambda text: typer.echo(text, err=True),
        )
    counts = [(f"in {source.name}", len(source))]
    if limit is not None:
        counts.append(("chosen", len(images) + len(unreadable)))
    if unreadable:
        counts.append(("readable", len(images)))
    examples = replace(examples, counts=(*counts, *examples.counts[1:]))
    examples.save(out)
    facts = _facts(examples, results)
    if json:
        output.print_json({**facts, "out": str(out), "refused": list(map(asdict, unreadable))})
    else:
        _print(facts, seed)
        typer.echo(f"written to {out}")
        output.print_unreadable(unreadable)
    if unreadable:
        raise typer.Exit(output.INCOMPLETE)


def _facts(examples: "bf.Examples", results: "dict[str, bf.AttackResult]") -> dict[str, Any]:
    """What is printed, as JSON can hold it."""
    return {
        "funnel": [{"step": step, "left": left} for step, left in examples.counts],
        "noise_levels": dict(examples.noise_levels),
        "attacks": [
            {
                "label": label,
                "attack": result.name,
                "options": dict(result.options),
                "images": len(result.success),
                "succeeded": int(result.success.sum()),
                "median_l2": result.median_l2 if result.success.any() else None,
                "median_linf": result.median_linf if result.success.any() else None,
                "calls": float(result.calls.double().mean()),
                "seconds": result.seconds,
                "cached": result.cached,
            }
            for label, result in results.items()
        ],
    }


def _print(facts: dict[str, Any], seed: int) -> None:
    """Prints how many images were left after each step, and one row per attack."""
    typer.echo("\n".join(f"{count['left']:>6}  {count['step']}" for count in facts["funnel"]) + "\n")
    columns = ("attack", "succeeded", "median L2", "median L∞", "calls per image", "seconds", "from the cache")
    rows = []
    for row in facts["attacks"]:
        l2, linf = ("-" if row[name] is None else f"{row[name]:.4g}" for name in ("median_l2", "median_linf"))
        cost = (f"{row['calls']:.0f}", f"{row['seconds']:.1f}", f"{row['cached']}")
        rows.append((row["label"], f"{row['succeeded']} of {row['images']}", l2, linf, *cost))
    output.print_table(f"attacks, seed {seed}", columns, rows)
    levels = ", ".join(f"{level:.4g} ({name})" for name, level in facts["noise_levels"].items())
    typer.echo(f"levels of noise: {levels}")
