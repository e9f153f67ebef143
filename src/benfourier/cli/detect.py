"""`benfourier detect`: verdicts on image files."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benfourier.cli import options
from benfourier.cli.codes import ADVERSARIAL, INCOMPLETE
from benfourier.cli.finding import found
from benfourier.cli.printing import print_json
from benfourier.errors import ImageError, SubjectError

if TYPE_CHECKING:
    from torch import Tensor

    from benfourier.data.reading import Refusal
    from benfourier.guard.guard import Guard
    from benfourier.guard.verdicts import Verdict


def detect(
    guard: Annotated[Path, typer.Argument(help="What `benfourier fit` wrote.", show_default=False)],
    images: Annotated[
        list[Path],
        typer.Argument(
            help="Image files, folders of them, patterns such as `photos/**/*.png`, or `-` for names (or one image) on "
            "standard input.",
            show_default=False,
        ),
    ],
    model: options.Model,
    weights: options.Weights = None,
    digest: options.Digest = None,
    classes: options.Classes = None,
    rate: Annotated[
        float | None,
        typer.Option("--false-alarm-rate", help="Another share of clean images that may be rejected."),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", help="Images at once.")] = 16,
    json: options.Json = False,
) -> None:
    """Tell adversarial images from honest ones; leaves with 1 if there are adversarial ones.

    Example: `benfourier detect guard.bf photos/ -m lid-mnist -w lid-mnist.safetensors`
    """
    from benfourier.cli.subjects import subject_of
    from benfourier.guard.saving import load_guard

    keeper = load_guard(guard, subject_of(model, weights, digest, None, None, classes, None, None).module)
    if rate is not None:
        keeper = keeper.rethresholded(rate)
    refusals: list[Refusal] = []
    told: list[dict[str, Any]] = []
    adversarial = False
    for file, verdict in _verdicts(keeper, found(images, refusals), refusals, batch):
        adversarial |= not verdict.accepted
        if json:
            told.append(record(file, verdict))
        else:
            typer.echo(line(file, verdict))
    if json:
        print_json({"images": told, "unreadable": [{"file": r.file, "reason": r.reason} for r in refusals]})
    else:
        for refusal in refusals:
            typer.echo(f"not readable: {refusal}", err=True)
    if adversarial or refusals:
        raise typer.Exit(ADVERSARIAL if adversarial else INCOMPLETE)


def _verdicts(
    guard: "Guard", files: Iterator[tuple[str, Path]], refusals: "list[Refusal]", batch: int
) -> "Iterator[tuple[str, Verdict]]":
    """Yields names of files that can be read with their verdicts; the others become refusals."""
    from benfourier.data.reading import Refusal
    from benfourier.subjects.images import images

    waiting: list[str] = []

    def read() -> "Iterator[Tensor]":
        for name, file in files:
            try:
                (image,) = images(file, guard.subject)
                guard.subject.plan(tuple(image.shape))
            except (ImageError, SubjectError) as error:
                refusals.append(Refusal(name, str(error).removeprefix(f"{file}: ")))
            else:
                waiting.append(name)
                yield image

    for verdict in guard.stream(read(), batch=batch):
        yield waiting.pop(0), verdict


def record(file: str, verdict: "Verdict") -> dict[str, Any]:
    """Returns a verdict as machines read it."""
    return {
        "file": file,
        "adversarial": not verdict.accepted,
        "label": verdict.label,
        "name": verdict.name,
        "score": verdict.score,
        "threshold": verdict.threshold,
    }


def line(file: str, verdict: "Verdict") -> str:
    """Returns a verdict as people read it."""
    label = str(verdict.label) if verdict.name == str(verdict.label) else f"{verdict.label} ({verdict.name})"
    told = "accepted" if verdict.accepted else "adversarial"
    return f"{file}: {told}, label {label}, score {verdict.score:.6g}, threshold {verdict.threshold:.6g}"
