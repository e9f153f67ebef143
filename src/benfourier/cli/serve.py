"""`benfourier serve`: a guard over HTTP."""

import os
from pathlib import Path
from typing import Annotated

import typer

from benfourier.cli import options
from benfourier.errors import MissingExtraError, OptionError, check_choice, check_whole

TOKEN = "BENFOURIER_TOKEN"  # noqa: S105, the name of a variable
LEVELS = ("debug", "info", "warning", "error")


def serve(
    guard: Annotated[Path, typer.Argument(help="What `benfourier fit` wrote.", show_default=False)],
    model: options.Model,
    weights: options.Weights = None,
    digest: options.Digest = None,
    classes: options.Classes = None,
    rate: Annotated[
        float | None,
        typer.Option("--false-alarm-rate", help="Another share of clean images that may be rejected."),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen at; `0.0.0.0` for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen at; 0 for a free one.")] = 8000,
    name: Annotated[str, typer.Option("--name", help="Of the model in the Open Inference Protocol.")] = "guard",
    batch: Annotated[int, typer.Option("--batch", help="Images judged at once.")] = 32,
    wait_ms: Annotated[float, typer.Option("--wait-ms", help="How long a batch waits for more images.")] = 5.0,
    queue: Annotated[int, typer.Option("--queue", help="Images that may wait; further ones get 429.")] = 512,
    max_images: Annotated[int, typer.Option("--max-images", help="In one request.")] = 64,
    max_pixels: Annotated[int, typer.Option("--max-pixels", help="Of one image.")] = 2**24,
    max_megabytes: Annotated[int, typer.Option("--max-megabytes", help="Of one request.")] = 64,
    seconds: Annotated[float, typer.Option("--timeout", help="Seconds for one request.")] = 30.0,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help=f"A file with the bearer token; or the variable `{TOKEN}`."),
    ] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Watch the guard's file; SIGHUP works always.")] = False,
    demo: Annotated[
        str | None,
        typer.Option("--demo", help="A source of samples to attack on the page, such as `mnist-5k`."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", help="That torch may use. [default: as it is set]", show_default=False)
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve a guard: the Open Inference Protocol, /v1/check, and a page to look at.

    Example: `benfourier serve guard.bf -m lid-mnist -w lid-mnist.safetensors --demo mnist-5k`
    """
    import torch

    check_choice("log level", log_level, LEVELS)
    if threads is not None:
        torch.set_num_threads(check_whole("threads", threads))
    try:
        from benfourier.service.app import make_app
        from benfourier.service.door import listening
        from benfourier.service.door import serve as run
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name} is not installed; run: pip install 'benfourier[serve]'") from error
    from benfourier.cli.subjects import subject_of
    from benfourier.service.demo import load_demo
    from benfourier.service.judge import GuardFile
    from benfourier.service.logs import set_up, tell
    from benfourier.service.settings import Settings

    settings = Settings(
        name=name,
        body=check_whole("max-megabytes", max_megabytes) * 2**20,
        held=max(2**29, 2 * max_megabytes * 2**20),
        images=max_images,
        pixels=max_pixels,
        seconds=seconds,
        queue=queue,
        batch=batch,
        wait=wait_ms / 1000,
        token=_token(token_file),
        watch=1.0 if reload else None,
    )
    origin = GuardFile(guard, subject_of(model, weights, digest, None, None, classes, None, None).module, rate)
    subject = origin.load().guard.subject  # a bad file is told before anything is served
    samples = None if demo is None else load_demo(demo, subject)
    at = listening(host, port)
    set_up(log_level)
    shown = f"[{host}]" if ":" in host else host
    tell("listening", address=f"http://{shown}:{at.getsockname()[1]}", guard=str(guard), demo=demo)
    run(make_app(origin, settings, samples), settings, at)


def _token(file: Path | None) -> str | None:
    """The bearer token of a file or of the environment; None if there is neither."""
    if file is None:
        return os.environ.get(TOKEN)
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise OptionError(f"{file}: the token cannot be read ({error}); check the name and permissions") from error
