"""A stranger's first ten minutes: install the wheel, protect a network in twelve lines and from the shell, serve it."""

import json
import os
import re
import shutil
import site
import subprocess
import sys
import venv
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import torch
from PIL import Image

from benfourier.models.weights import save_weights
from tests.attacks.trained import digits, unseen

ROOT = Path(__file__).parents[1]
WIDTH = 120  # of a line that is printed
GUARDED = 240  # images for the guard; the others come later
NETWORK = """
from torch import nn


def build():
    layers = [nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(128, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
"""
TWELVE_LINES = """
import benfourier as bf
from my_network import build
from safetensors.torch import load_file

module = build()
module.load_state_dict(load_file("weights.safetensors"))
classifier = bf.Classifier(module, size=8, channels=1)
guard = bf.protect(classifier, "photos", attacks=None, report=print)
guard.save("first.bf")
print(guard.card)
for verdict in guard.check(bf.load_images(["new/0.png", "new/1.png"], classifier)):
    print(verdict)
"""
OPTIONS = ["-m", "my_network:build", "-w", "weights.safetensors"]
SIZE = ["--size", "8", "--channels", "1"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of an environment in which the wheel of this tree is installed."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run(  # noqa: S603
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT], check=True
    )
    (wheel,) = folder.glob("benfourier-*.whl")
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    # what the package needs is that of the tests; the package itself is the wheel's, which comes first
    (packages / "tests.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    subprocess.run(  # noqa: S603
        [*pip, "--python", environment / "bin" / "python", "install", "--no-deps", wheel], check=True
    )
    return environment / "bin"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network, its weights, photos in a folder per class, and new images."""
    folder = tmp_path_factory.mktemp("stranger")
    (folder / "my_network.py").write_text(NETWORK, encoding="utf-8")
    save_weights(digits().classifier.module, folder / "weights.safetensors")
    pixels = (unseen().images[: GUARDED + 6, 0] * 255).round().to(torch.uint8).numpy()
    for row, (image, label) in enumerate(zip(pixels, unseen().labels.tolist(), strict=False)):
        name = f"photos/{label}/{row}.png" if row < GUARDED else f"new/{row - GUARDED}.png"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / name)
    return folder


def surroundings(here: Path) -> dict[str, str]:
    """Environment variables of a stranger: nothing leads to this tree."""
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "COLUMNS")}
    return {**own, "BENFOURIER_CACHE": str(here / "cache"), "OMP_NUM_THREADS": "1"}


def run(here: Path, program: Path, *words: str) -> tuple[int, list[str]]:
    """The exit code of a program, and the lines that it printed."""
    done = subprocess.run(  # noqa: S603
        [program, *words], cwd=here, env=surroundings(here), capture_output=True, text=True, timeout=300
    )
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    assert [line for line in lines if len(line) > WIDTH] == []
    # work that takes long on a busy machine prints how far it is
    return done.returncode, [line for line in lines if not re.match(r"\d+ s: |.*: .*done in ", line)]


def test_the_wheel_is_what_runs(installed: Path, here: Path) -> None:
    code, lines = run(here, installed / "python", "-c", "import benfourier; print(benfourier.__file__)")
    assert (code, Path(lines[0]).is_relative_to(installed.parent)) == (0, True)
    code, (line,) = run(here, installed / "benfourier", "--version")
    assert (code, line.split()[0]) == (0, "benfourier")


def test_twelve_lines_of_python_protect_a_network(installed: Path, here: Path) -> None:
    assert len(TWELVE_LINES.strip().splitlines()) == 12
    (here / "use.py").write_text(TWELVE_LINES, encoding="utf-8")
    code, lines = run(here, installed / "python", "use.py")
    assert code == 0, lines
    assert lines[0].startswith("the network is right about 9")
    assert "false alarms, 5.0% promised on clean images:" in lines
    assert (here / "first.bf").is_file()


def test_the_shell_protects_detects_and_serves(installed: Path, here: Path) -> None:
    verb = installed / "benfourier"
    known = [*OPTIONS, *SIZE, "-d", "photos", "-o", "guard.bf", "--budget", "0.001"]
    code, lines = run(here, verb, "protect", *known)
    assert code == 0, lines
    assert "written to guard.bf" in lines
    code, lines = run(here, verb, "detect", "guard.bf", "new", *OPTIONS)
    assert code == int(any(": accepted" not in line for line in lines))
    assert [line.split(":")[0] for line in lines] == [f"new/{number}.png" for number in range(6)]
    assert sum(": accepted" in line for line in lines) >= 4
    code, lines = run(here, verb, "detect", "guard.bf", "nowhere", *OPTIONS)
    assert (code, len(lines)) == (6, 1)  # an image that cannot be read
    with serving(here, verb) as address:
        answer = json.loads(check(f"{address}/v1/check", here / "new" / "0.png"))
    (image,) = answer["results"]
    assert image["verdict"] in ("accepted", "rejected")
    assert image["label"] in range(10)


@contextmanager
def serving(here: Path, verb: Path) -> Iterator[str]:
    """The address of the service, which stops when it is asked to."""
    command = [str(verb), "serve", "guard.bf", *OPTIONS, "--port", "0"]
    with subprocess.Popen(  # noqa: S603
        command, cwd=here, env=surroundings(here), stderr=subprocess.PIPE, text=True
    ) as service:
        assert service.stderr is not None
        try:
            events = map(json.loads, service.stderr)  # the log is for machines: one event a line
            yield next(event["address"] for event in events if event["event"] == "listening")
            service.terminate()
            assert [event["event"] for event in events][-1] == "stopped"
            assert service.wait(60) == 0
        finally:
            service.kill()


def check(address: str, file: Path) -> str:
    """What the service answers to one image that curl sends; without curl it goes as JSON."""
    curl = shutil.which("curl")
    if curl is None:
        content = {"images": [{"name": file.name, "data": b64encode(file.read_bytes()).decode()}]}
        with urlopen(Request(address, json.dumps(content).encode(), {"Content-Type": "application/json"})) as answer:  # noqa: S310
            return str(answer.read().decode())
    command = [curl, "--silent", "--fail", "-F", f"images=@{file}", address]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
