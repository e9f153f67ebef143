"""`benfourier detect`: verdicts on image files, printed, or written to Parquet files if they are many."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from glob import has_magic
from pathlib import Path
from typing import Annotated, Any

import typer

import benfourier as bf
from benfourier.cli import options, output
from benfourier.errors import ClassifierError, ImageError, OptionError

STDIN, STDIN_NAME = "-", "standard input"
MOST_FAILURES = 20  # that are printed


def detect(
    guard: options.Guard,
    images: Annotated[
        list[str],
        typer.Argument(
            help="Image files, folders of them, patterns such as `photos/**/*.png`, or `-` for names (or one image) on "
            "standard input. With --out one of these, a Parquet file of images, or an address such as `s3://bucket/a`.",
        ),
    ],
    model: options.Model,
    weights: options.Weights = None,
    digest: options.Digest = None,
    classes: options.Classes = None,
    second_model: options.SecondModel = None,
    rate: options.OtherRate = None,
    batch: Annotated[int, typer.Option("--batch", help="Images at once.")] = 16,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Folder for Parquet files; the same command goes on with it.")
    ] = None,
    chunk: Annotated[int | None, typer.Option("--chunk", help="With --out: images per file. [default: 1024]")] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="With --out: processes, one thread each. [default: this one]")
    ] = None,
    executor: options.Executor = "local",
    address: options.Address = None,
    task_cpus: options.TaskCpus = None,
    task_gpus: options.TaskGpus = None,
    task_memory: options.TaskMemory = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Accept or reject image files; leaves with 1 if some are rejected, as adversarial or unfamiliar.

    Example: `benfourier detect guard.bf photos/ -m lid-mnist -w lid-mnist.safetensors`
    """
    ray = options.ray_options(executor, workers, address, task_cpus, task_gpus, task_memory)
    if out is None and (ray is not None or workers is not None or chunk is not None):
        raise OptionError("executor, workers and chunk are for many images; name a folder for verdicts with --out")
    if out is not None and len(images) != 1:
        raise OptionError(f"there are {len(images)} sources; with --out give one, such as a folder or a pattern")
    place = options.executor_from(workers or 1) if ray is None else bf.RayDataExecutor(**ray)
    loaded = options.guard_from(guard, model, weights, digest, classes, second_model, rate, device)
    if out is not None:
        with output.resumable(lambda: f"{out} holds what was done, and the same command goes on from there"):
            result = bf.detect(loaded, images[0], out, executor=place, batch=batch, chunk=chunk or 1024)
        _print_detection(result, json=json)
        return
    unreadable: list[bf.UnreadableImage] = []
    records: list[dict[str, Any]] = []
    rejected = False
    # verdicts that run over a terminal are progress enough, and a bar would break their lines
    show = None if json or not sys.stdout.isatty() else False
    for name, verdict in _verdicts(loaded, _image_inputs(images, unreadable), unreadable, batch, show):
        rejected |= not verdict.accepted
        if json:
            records.append(verdict_json(name, verdict))
        else:
            typer.echo(verdict_line(name, verdict))
    if json:
        output.print_json({"images": records, "unreadable": list(map(asdict, unreadable))})
    else:
        output.print_unreadable(unreadable)
    if rejected or unreadable:
        raise typer.Exit(output.ADVERSARIAL if rejected else output.INCOMPLETE)


def _print_detection(detection: "bf.Detection", *, json: bool) -> None:
    """Prints what was written, and leaves with the code for it."""
    if json:
        output.print_json(asdict(detection))
    else:
        typer.echo(
            f"{detection.out}: {detection.images} images, {detection.rejected} rejected, {detection.unreadable} not "
            f"readable; looked at {detection.new} now, left out {detection.duplicates} repeated ids"
        )
        output.print_unreadable(detection.first_unreadable)
        for failure in detection.failures[:MOST_FAILURES]:
            typer.echo(f"failed: {failure}", err=True)
        if detection.failures:
            typer.echo("the same command tries again what failed", err=True)
    if detection.rejected or detection.unreadable or detection.failures:
        raise typer.Exit(output.ADVERSARIAL if detection.rejected else output.INCOMPLETE)


def _verdicts(
    guard: "bf.Guard",
    inputs: Iterable[Path | bytes],
    unreadable: "list[bf.UnreadableImage]",
    batch: int,
    show_progress: bool | None,
) -> "Iterator[tuple[str, bf.Verdict]]":
    """Yields names of images that can be read with their verdicts; the others are added to unreadable."""
    waiting: list[str] = []  # names of images that the guard has taken and not yet judged

    def read() -> Iterator[Any]:
        for file in inputs:
            name = STDIN_NAME if isinstance(file, bytes) else str(file)
            try:
                (image,) = bf.load_images(file, guard.classifier)
                guard.classifier.layer_list(tuple(image.shape))  # a size that the network cannot run on
            except (ImageError, ClassifierError) as error:
                prefix = "the image: " if isinstance(file, bytes) else f"{file}: "
                unreadable.append(bf.UnreadableImage(name, str(error).removeprefix(prefix)))
            else:
                waiting.append(name)
                yield image

    for verdict in guard.stream(read(), batch=batch, show_progress=show_progress):
        yield waiting.pop(0), verdict


def verdict_json(name: str, verdict: "bf.Verdict") -> dict[str, Any]:
    """Returns a verdict as machines read it."""
    return {
        "file": name,
        "accepted": verdict.accepted,
        "reason": str(verdict.reason),
        "label": verdict.label,
        "name": verdict.name,
        "score": verdict.score,
        "threshold": verdict.threshold,
        "p_value": verdict.p_value,
    }


def verdict_line(name: str, verdict: "bf.Verdict") -> str:
    """Returns a verdict as people read it."""
    label = str(verdict.label) if verdict.name == str(verdict.label) else f"{verdict.label} ({verdict.name})"
    numbers = f"score {verdict.score:.6g}, threshold {verdict.threshold:.6g}, p {verdict.p_value:.3g}"
    return f"{name}: {verdict.reason or 'accepted'}, label {label}, {numbers}"


def _image_inputs(words: Iterable[str], unreadable: "list[bf.UnreadableImage]") -> Iterator[Path | bytes]:
    """Yields the image files that words name, or the content of one; adds words that name nothing to unreadable.

    Words are files, folders, patterns, or `-` for standard input, which holds names of these, one per line or with NUL
    between, or one image.
    """
    for word in words:
        if word != STDIN:
            yield from _files_of(Path(word), unreadable)
            continue
        content = sys.stdin.buffer.read()
        try:
            text = content.decode()
        except UnicodeDecodeError:  # an image: every format has bytes near its beginning that are no text
            yield content
            continue
        names = list(filter(None, text.split("\0") if "\0" in text else text.splitlines()))
        if not names:
            reason = "it holds neither names of files nor an image; check what writes it"
            unreadable.append(bf.UnreadableImage(STDIN_NAME, reason))
        for name in names:
            yield from _files_of(Path(name), unreadable)


def _files_of(word: Path, unreadable: "list[bf.UnreadableImage]") -> list[Path]:
    """The files that one word stands for."""
    try:
        if word.exists() or not has_magic(str(word)):
            matches = [word]
        else:
            matches = sorted(Path(word.anchor or ".").glob(str(word.relative_to(word.anchor))))
        files = [file for match in matches for file in (bf.image_files(match) if match.is_dir() else [match])]
    except (OSError, ValueError) as error:  # too long for a name, or no pattern that Python knows
        unreadable.append(bf.UnreadableImage(str(word), f"this is no name of a file or folder ({error}); check it"))
        return []
    if not files:
        pattern = "no file has a name of this pattern; check it"
        reason = "there are no image files in this folder; check the name" if word.is_dir() else pattern
        unreadable.append(bf.UnreadableImage(str(word), reason))
    return files
