"""`benfourier serve`: a guard over HTTP."""

import os
from pathlib import Path
from typing import Annotated

import typer

import benfourier as bf
from benfourier.cli import options
from benfourier.errors import MissingExtraError, OptionError, check_whole

TOKEN = "BENFOURIER_TOKEN"  # noqa: S105, the name of a variable


def serve(
    guard: options.Guard,
    model: options.Model,
    weights: options.Weights = None,
    digest: options.Digest = None,
    classes: options.Classes = None,
    second_model: options.SecondModel = None,
    rate: options.OtherRate = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen at; `0.0.0.0` for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen at; 0 for a free one.")] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="Another name that requests may give in Host; may be repeated."),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Of the model in the Open Inference Protocol.")] = "guard",
    batch: Annotated[int, typer.Option("--batch", help="Images judged at once.")] = 32,
    wait_ms: Annotated[float, typer.Option("--wait-ms", help="How long a batch waits for more images.")] = 5.0,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Fill every batch up: scores never depend on other requests.")
    ] = False,
    queue: Annotated[int, typer.Option("--queue", help="Images that may wait; further ones get 429.")] = 512,
    max_images: Annotated[int, typer.Option("--max-images", help="In one request.")] = 64,
    max_pixels: Annotated[int, typer.Option("--max-pixels", help="Of all image files of one request.")] = 2**24,
    max_megabytes: Annotated[int, typer.Option("--max-megabytes", help="Of one request.")] = 64,
    seconds: Annotated[float, typer.Option("--timeout", help="Seconds for one request.")] = 30.0,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help=f"A file with the bearer token; or the variable `{TOKEN}`.")
    ] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Watch the guard's file; SIGHUP works always.")] = False,
    demo: Annotated[
        str | None, typer.Option("--demo", help="A source of samples to attack on the page, such as `mnist-5k`.")
    ] = None,
    device: options.Device = None,
    threads: options.Threads = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve a guard: the Open Inference Protocol, /v1/check, and a page to look at.

    Example: `benfourier serve guard.bf -m lid-mnist -w lid-mnist.safetensors --demo mnist-5k`
    """
    try:
        run = bf.serve
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name} is not installed; run: pip install 'benfourier[serve]'") from error
    bf.inspect(guard)  # a network takes seconds to load: a missing file is reported before
    body = check_whole("max-megabytes", max_megabytes) * 2**20
    run(
        guard,
        options.classifier_from(model, weights, digest, classes=classes, device=device).module,
        host=host,
        port=port,
        allow_hosts=allow_host or (),
        second=options.second_from(second_model, device=device),
        false_alarm_rate=rate,
        demo=demo,
        log_level=log_level,
        threads=threads,
        name=name,
        max_body_bytes=body,
        max_memory_bytes=max(2**29, 2 * body),  # two of the largest requests at once
        max_images=max_images,
        max_pixels=max_pixels,
        timeout_seconds=seconds,
        max_queue=queue,
        max_batch=batch,
        deterministic=deterministic,
        batch_wait_seconds=wait_ms / 1000,
        token=_token(token_file),
        watch_seconds=1.0 if reload else None,
    )


def _token(file: Path | None) -> str | None:
    """The bearer token of a file or of the environment; None if there is neither."""
    if file is None:
        return os.environ.get(TOKEN)
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise OptionError(f"{file}: the token cannot be read ({error}); check the name and permissions") from error
