"""Time that features of all layers add to the forward pass."""

import torch

import benfourier as bf
from benchmarks.networks import Bench
from benchmarks.results import Case
from benchmarks.timing import take_turns


def measure(bench: Bench, limit: float, rounds: int) -> Case:
    """Returns milliseconds per image and the share that features add to the plain forward pass."""
    subject, images = bench.subject(), bench.images()
    channels_last = images.contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        seconds = take_turns(
            {
                "plain": lambda: subject.module(images),
                "features": lambda: bf.features(subject, images, batch=bench.batch, show_progress=False),
                "plain_channels_last": lambda: subject.module(channels_last),
            },
            rounds,
        )
    figures = {f"{name}_ms_per_image": 1000 * value / bench.batch for name, value in seconds.items()}
    figures["added"] = seconds["features"] / seconds["plain"] - 1
    figures["added_same_layout"] = seconds["features"] / seconds["plain_channels_last"] - 1
    return Case(f"features/{bench.name}", figures, "added", limit, "at most")
