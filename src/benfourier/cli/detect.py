"""`benfourier detect`: verdicts on image files."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benfourier.cli import options
from benfourier.cli.codes import ADVERSARIAL, INCOMPLETE
from benfourier.cli.printing import print_json
from benfourier.errors import ImageError, SubjectError

if TYPE_CHECKING:
    from torch import Tensor

    from benfourier.data.reading import Refusal
    from benfourier.guard.guard import Guard
    from benfourier.guard.verdicts import Verdict


def detect(
    guard: Annotated[Path, typer.Argument(help="What `benfourier fit` wrote.", show_default=False)],
    images: Annotated[list[Path], typer.Argument(help="Image files, and folders of them.", show_default=False)],
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
    found: list[dict[str, Any]] = []
    adversarial = False
    for file, verdict in _verdicts(keeper, _files(images, refusals), refusals, batch):
        adversarial |= not verdict.accepted
        if json:
            found.append(_record(file, verdict))
        else:
            typer.echo(_line(file, verdict))
    if json:
        print_json({"images": found, "unreadable": [{"file": r.file, "reason": r.reason} for r in refusals]})
    else:
        for refusal in refusals:
            typer.echo(f"not readable: {refusal}", err=True)
    if adversarial or refusals:
        raise typer.Exit(ADVERSARIAL if adversarial else INCOMPLETE)


def _files(paths: Iterable[Path], refusals: "list[Refusal]") -> Iterator[Path]:
    """Yields files as given, and the images below folders in order of name."""
    from benfourier.data.labels import SUFFIXES
    from benfourier.data.reading import Refusal

    for path in paths:
        if not path.is_dir():
            yield path
            continue
        below = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in SUFFIXES and file.is_file()]
        seen = [file for file in below if not any(word.startswith(".") for word in file.relative_to(path).parts)]
        if not seen:
            refusals.append(Refusal(str(path), "there are no image files in this folder; check the name"))
        yield from seen


def _verdicts(
    guard: "Guard", files: Iterator[Path], refusals: "list[Refusal]", batch: int
) -> "Iterator[tuple[Path, Verdict]]":
    """Yields files that can be read with their verdicts; the others become refusals."""
    from benfourier.data.reading import Refusal
    from benfourier.subjects.images import images

    waiting: list[Path] = []

    def read() -> "Iterator[Tensor]":
        for file in files:
            try:
                (image,) = images(file, guard.subject)
                guard.subject.plan(tuple(image.shape))
            except (ImageError, SubjectError) as error:
                refusals.append(Refusal(str(file), str(error).removeprefix(f"{file}: ")))
            else:
                waiting.append(file)
                yield image

    for verdict in guard.stream(read(), batch=batch):
        yield waiting.pop(0), verdict


def _record(file: Path, verdict: "Verdict") -> dict[str, Any]:
    return {
        "file": str(file),
        "adversarial": not verdict.accepted,
        "label": verdict.label,
        "name": verdict.name,
        "score": verdict.score,
        "threshold": verdict.threshold,
    }


def _line(file: Path, verdict: "Verdict") -> str:
    label = str(verdict.label) if verdict.name == str(verdict.label) else f"{verdict.label} ({verdict.name})"
    told = label if verdict.accepted else "adversarial"
    return f"{file}: {told}, score {verdict.score:.6g}, threshold {verdict.threshold:.6g}"
