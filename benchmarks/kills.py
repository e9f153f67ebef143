"""Kills five verbs with SIGKILL at random times, starts each again, and compares with the undisturbed run.

`python -m benchmarks.kills [--kills 100] [--seed 0]`. Kills take turns: of one process of `evaluate`, its workers among
them, or of all processes at once. Exit code 1 if a result differs in a byte, other than dates and seconds.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from safetensors import safe_open
from torch import nn

import benfourier as bf
from benfourier.data.formats import embedded

MODEL = "benchmarks.kills:network"
NETWORK = ("--model", MODEL, "--data", "images.npz")
TIMES = ("date", "seconds", "digests")  # keys whose values differ between equal runs: digests are of dates too
PLAN = f"""
protocols = ["non-transfer", "attack-transfer"]
network = {{ model = "{MODEL}", train = {{ epochs = 20, share = 0.5, shift = 0, batch = 64 }} }}
data = {{ source = "digits" }}
sizes = {{ sources = 120, calibration = 220, chunk = 16 }}
attacks = [{{ name = "bim" }}, {{ name = "deepfool" }}]
detectors = [{{ name = "mbf" }}, {{ name = "lid" }}]
"""


def network() -> bf.Classifier:
    """Returns a small network for digits of 8×8 pixels."""
    convolutions = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU()]
    return bf.Classifier(nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(512, 10)), size=8, channels=1)


@dataclass(frozen=True)
class Verb:
    """One verb, what it needs in its folder, and what of its result must be equal."""

    words: Sequence[str]
    inputs: Sequence[str]  # results of other verbs
    result: str  # file that it writes
    content: Callable[[Path], object]


def main() -> int:
    """Prints a line for each kill, and a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw, counts = np.random.default_rng(options.seed), {name: Counter[str]() for name in VERBS}
    with TemporaryDirectory() as folder:
        whole, seconds = Path(folder, "whole"), {}
        whole.mkdir()
        dataset = embedded("digits")
        np.savez(whole / "images.npz", x=dataset.images[:600], y=dataset.labels[:600])
        (whole / "plan.toml").write_text(PLAN, encoding="utf-8")
        for name, verb in VERBS.items():
            start = time.monotonic()
            assert run(verb, whole).wait() == 0, name
            seconds[name] = time.monotonic() - start
        for place in range(options.kills):
            name = tuple(VERBS)[place % len(VERBS)]
            outcome = disturb(VERBS[name], whole, Path(folder, str(place)), draw.uniform(0.2, 1) * seconds[name], draw)
            counts[name][outcome] += 1
            print(f"{place + 1}: {name}, {outcome}", flush=True)
    print("\n| verb | kills while it ran | ended before | different results |\n|---|---|---|---|")
    for name, each in counts.items():
        killed = sum(count for outcome, count in each.items() if outcome.startswith("killed"))
        print(f"| {name} | {killed} | {each['ended before']} | {different(each)} |")
    return int(any(map(different, counts.values())))


def different(outcomes: Counter[str]) -> int:
    """Returns how many results were not those of the undisturbed run."""
    return sum(count for outcome, count in outcomes.items() if outcome.endswith("DIFFERENT"))


def disturb(verb: Verb, whole: Path, folder: Path, delay: float, draw: np.random.Generator) -> str:
    """Returns what became of a verb that is killed after some seconds, and started again."""
    folder.mkdir()
    for name in ("images.npz", "plan.toml", *verb.inputs):
        (folder / name).symlink_to(whole / name)
    process = run(verb, folder)
    with suppress(subprocess.TimeoutExpired):
        process.wait(delay)
    if process.poll() is not None:
        return "ended before"
    members = sorted(processes(process.pid))
    if len(members) > 1 and draw.random() < 0.5:
        victim = int(draw.choice(members))
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        words = "killed the parent" if victim == process.pid else "killed a worker"
    else:
        os.killpg(process.pid, signal.SIGKILL)
        words = f"killed {len(members)} of {len(members)} processes"
    process.wait()
    again = ["--resume"] if (folder / f"{verb.result}.checkpoint").exists() else []
    if run(verb, folder, again).wait() != 0:
        return f"{words}: FAILED and so DIFFERENT"
    equal = verb.content(folder / verb.result) == verb.content(whole / verb.result)
    return f"{words}: {'equal' if equal else 'DIFFERENT'}"


def run(verb: Verb, folder: Path, more: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Starts a verb in a folder, with a cache and a process group of its own."""
    environment = {**os.environ, "BENFOURIER_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    code = "from benfourier.cli.main import main; main()"
    command = [sys.executable, "-c", code, *verb.words, *more]
    root = str(Path(__file__).parents[1])
    environment["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    with (folder / "output.txt").open("ab") as output:
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )


def processes(group: int) -> set[int]:
    """Returns the living processes of a group; Linux only."""
    members = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):
            state, _, own = path.read_text().rpartition(")")[2].split()[:3]
            members |= {int(path.parent.name)} if int(own) == group and state != "Z" else set()
    return members


def records(path: Path) -> object:
    """Returns the outcomes of a ledger in one order: workers end in any."""
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return sorted(json.dumps(untimed(line), sort_keys=True) for line in lines if line["record"] != "run")


def arrays(path: Path) -> object:
    """Returns the arrays of a safetensors file and what it says of itself."""
    with safe_open(path, "np") as file:
        metadata = file.metadata() or {}
        manifest = untimed(json.loads(metadata.pop("manifest", "{}")))
        return manifest, metadata, {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118


def untimed(content: Any) -> Any:
    """Returns JSON without dates and seconds."""
    if isinstance(content, dict):
        return {key: untimed(value) for key, value in content.items() if key not in TIMES}
    return [untimed(each) for each in content] if isinstance(content, list) else content


WEIGHTS = ("--weights", "weights.safetensors")
# in the order of their inputs; `protect` has time enough to attack all images, however fast the machine is
VERBS = {
    "train": Verb(
        ("train", *NETWORK, "--out", "weights.safetensors", "--epochs", "60", "--shift", "0"),
        (),
        "weights.safetensors",
        arrays,
    ),
    "attack": Verb(
        ("attack", *NETWORK, *WEIGHTS, "--out", "examples.bf", "--chunk", "16"),
        ("weights.safetensors",),
        "examples.bf",
        arrays,
    ),
    "fit": Verb(
        ("fit", "--model", MODEL, *WEIGHTS, "--examples", "examples.bf", "--out", "guard.bf"),
        ("weights.safetensors", "examples.bf"),
        "guard.bf",
        arrays,
    ),
    "protect": Verb(
        ("protect", *NETWORK, *WEIGHTS, "--out", "protected.bf", "--budget", "1 h"),
        ("weights.safetensors",),
        "protected.bf",
        arrays,
    ),
    "evaluate": Verb(
        ("evaluate", "plan.toml", "--ledger", "ledger.jsonl", "--workers", "2"), (), "ledger.jsonl", records
    ),
}


if __name__ == "__main__":
    sys.exit(main())
