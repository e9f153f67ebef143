"""`benfourier serve` as a process: its signals and exit codes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from benfourier.models.weights import save_weights
from tests.cli.calling import call, file_of_networks
from tests.detectors.guarded import other_guard
from tests.detectors.toys import toys
from tests.service.serving import INFER, asked, clean, guard

ROOT = Path(__file__).parents[2]
MODEL = ("--model", "tests.attacks.trained:network", "--weights")
Process = subprocess.Popen[str]
PLAIN = """
from torch import nn


def plain():
    layers = [nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(128, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_weights(toys().classifier.module, tmp_path / "w.safetensors")
    guard().save(tmp_path / "guard.bf")
    return tmp_path


@contextmanager
def serving(folder: Path, *words: str, before: str = "") -> Iterator[tuple[Process, str]]:
    """A process that serves, and its address; before is code that it runs first."""
    command = [sys.executable, "-c", f"{before}from benfourier.cli.main import main; main()"]
    options = [str(folder / "guard.bf"), *MODEL, str(folder / "w.safetensors"), "--port", "0", *words]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "BENFOURIER_TOKEN": "t"}
    with subprocess.Popen(  # noqa: S603
        [*command, "serve", *options], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process, next_event(process, "listening")["address"]
        finally:
            process.kill()


def next_event(process: Process, event: str) -> dict[str, Any]:
    """The facts of the next event of that name in the log."""
    assert process.stderr is not None
    for line in process.stderr:
        fields: dict[str, Any] = json.loads(line)
        if fields["event"] == event:
            return fields
    raise AssertionError(f"the log ends without {event!r}")


def test_it_serves_loads_a_new_guard_at_sighup_and_ends_with_0_at_sigterm(folder: Path) -> None:
    with serving(folder) as (process, address):
        first = next_event(process, "guard loaded")["version"]
        with httpx.Client(base_url=address, headers={"Authorization": "Bearer t"}, timeout=60) as client:
            assert client.post(INFER, json=asked(clean(1))).json()["model_version"] == first
            guard(0.3).save(folder / "guard.bf")
            process.send_signal(signal.SIGHUP)
            second = next_event(process, "guard loaded")["version"]
            assert client.post(INFER, json=asked(clean(1))).json()["model_version"] == second != first
        process.send_signal(signal.SIGTERM)
        assert next_event(process, "stopped")["requests"] == 2
        assert process.wait(30) == 0


def test_a_damaged_guard_ends_it_with_4_before_it_listens(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "guard.bf").write_bytes(b"no guard")
    outcome = call(capsys, "serve", folder / "guard.bf", *MODEL, folder / "w.safetensors", "--port", "0")
    assert outcome.code == 4
    assert "guard.bf" in outcome.err


def test_a_guard_that_turns_bad_while_the_network_is_loaded_ends_it_with_4(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "from pathlib import Path\nfrom tests.attacks.trained import network\n"
    text += "def slow():\n    Path('guard.bf').write_bytes(b'no guard')\n    return network()\n"
    monkeypatch.chdir(folder)
    with file_of_networks(folder, "slow_networks", text):
        outcome = call(capsys, "serve", "guard.bf", "-m", "slow_networks:slow", "-w", "w.safetensors", "--port", "0")
    assert outcome.code == 4
    assert "guard.bf" in outcome.err


def test_a_guard_of_views_is_served_without_numba_and_scikit_learn(folder: Path) -> None:
    other_guard("views").save(folder / "views.bf")
    code = (
        "import sys\n"
        "from benfourier.service.app import make_app\n"
        "from benfourier.service.engine import Engine, GuardFile\n"
        "from benfourier.service.server import make_server\n"
        "from benfourier.service.settings import Settings\n"
        "from benfourier.models.open_classifier import open_classifier\n"
        "from pathlib import Path\n"
        "model = open_classifier('plain:plain', weights='w.safetensors')\n"
        "engine = Engine(GuardFile(Path('views.bf'), model.module), Settings())\n"
        "make_server(make_app(engine), engine.settings)\n"
        "verdicts = engine.current.guard.judge(list(engine.current.guard.classifier.noise(3)))\n"
        "engine.current.guard.evidence(verdicts.features[0])\n"
        "assert len(verdicts) == 3\n"
        "print([name for name in ('numba', 'sklearn', 'matplotlib') if name in sys.modules])\n"
    )
    (folder / "plain.py").write_text(PLAIN, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on descriptors")
def test_idle_connections_beyond_the_descriptors_are_closed_and_the_service_answers_again(folder: Path) -> None:
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60)); "
    with serving(folder, before=few) as (process, address), httpx.Client(base_url=address, timeout=60) as client:
        assert client.get("/v2/health/live").status_code == 200
        with ExitStack() as idle:
            for _ in range(56):
                idle.enter_context(socket.create_connection((client.base_url.host, client.base_url.port or 0), 30))
            assert client.get("/v2/health/live").status_code == 200  # on the connection that it had before
        with httpx.Client(base_url=address, timeout=60) as other:
            deadline = time.monotonic() + 30
            while True:
                try:
                    assert other.get("/v2/health/live").status_code == 200
                    break
                except httpx.TransportError:  # the idle ones are not all closed yet
                    assert time.monotonic() < deadline
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        lines = process.stderr.read().splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert 1 <= events.count("too many connections") <= 10
    assert len(events) < 30


def test_without_the_extra_it_says_how_to_install_it_and_ends_with_3(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    for name in [name for name in sys.modules if name.startswith("benfourier.service.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    outcome = call(capsys, "serve", folder / "guard.bf", *MODEL, folder / "w.safetensors")
    assert outcome.code == 3
    assert "pip install 'benfourier[serve]'" in outcome.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--batch", "0"], "batch is 0"),
        (["--log-level", "loud"], "log level"),
        (["--token-file", "nowhere"], "nowhere: the token cannot be read"),
        (["--port", "70000"], "70000"),
        (["--host", "a\nb"], "cannot listen at 'a\\nb':8000"),
        (["--host", "a\x00b"], "cannot listen at 'a\\x00b':8000"),
        (["--threads", "99999999999999999999"], "threads is 99999999999999999999"),
        (["--threads", "100000"], "at most 1024"),
        (["--batch", "99999999999999999999"], "batch is 99999999999999999999"),
        (["--demo", "nothing"], "nothing"),
    ],
)
def test_options_that_cannot_work_end_it_with_2(
    capsys: pytest.CaptureFixture[str], folder: Path, words: list[str], complaint: str
) -> None:
    outcome = call(capsys, "serve", folder / "guard.bf", *MODEL, folder / "w.safetensors", *words)
    assert outcome.code == 2
    assert complaint in outcome.err
