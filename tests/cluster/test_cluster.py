"""Evaluations and verdicts on one Ray cluster of three nodes, all on this machine, of which one is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import pytest

import benfourier as bf
from benfourier.cluster.executor import INSTRUCTIONS, Terms
from benfourier.errors import InputError
from benfourier.executors import Executor, Shared, TaskFailure
from benfourier.store.ledger import read
from benfourier.store.records import Outcome
from tests import test_executors as contract
from tests.cli.calling import call
from tests.detectors.guarded import guard
from tests.detectors.toys import toys
from tests.evaluation.test_run import BROKEN, SMALL, lines
from tests.evaluation.tiny import plan_in
from tests.guard.test_detect import command, folder, kill_after_first_file, rows

pytest.importorskip("ray", reason="Ray is missing; install it with pip install 'benfourier[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray has many of its own

ROOT = Path(__file__).parents[2]
STORE = 200 * 2**20  # bytes for objects on each node
T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")


@dataclass
class Nodes:
    """A cluster, and the nodes of it that may be killed."""

    cluster: Any
    expendable: list[Any]

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def kill(self) -> None:
        self.cluster.remove_node(self.expendable.pop(), allow_graceful=False)


@pytest.fixture(scope="module", name="nodes")
def cluster_of_three_nodes() -> Iterator[Nodes]:
    import ray
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))  # of the nodes
        head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            yield Nodes(cluster, [cluster.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(2)])
        finally:
            ray.shutdown()
            cluster.shutdown()


@pytest.fixture(scope="module", name="local")
def ledger_of_one_process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("local")
    plan = bf.read_plan(plan_in(place, SMALL))
    return bf.evaluate(plan, place / "l.jsonl", cache=place / "cache", show_progress=False).summary.ledger


def check_nothing_twice(ledger: Path) -> None:
    keys = [record.key for record in read(ledger) if isinstance(record, Outcome)]
    assert len(keys) == len(set(keys)) == 8
    assert ledger.read_text(encoding="utf-8").count('"record": "outcome"') == 8


def test_an_address_that_does_not_answer_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_in(tmp_path, SMALL)
    for address, problem in (("127.0.0.1:1", "at 127.0.0.1:1 does not answer"), ("here", "it must be host:port")):
        with pytest.raises(InputError, match=problem):
            list(bf.RayExecutor(address).run(contract.times, contract.InMemory(1), [1]))
    result = call(capsys, "evaluate", plan, "--executor", "ray", "--address", "127.0.0.1:1")
    assert (result.code, "does not answer" in result.err) == (2, True)


@pytest.mark.parametrize("kind", [bf.RayExecutor, bf.RayDataExecutor])
def test_the_contract_of_executors_holds(nodes: Nodes, kind: Callable[[str], Executor]) -> None:
    contract.test_a_task_that_fails_does_not_stop_the_others(kind(nodes.address))
    contract.test_without_tasks_nothing_is_loaded(kind(nodes.address))
    contract.test_what_cannot_be_loaded_is_the_failure_of_every_task(kind(nodes.address))
    assert dict(kind(nodes.address).run(contract.threads, contract.InMemory(None), [0])) == {0: (1, "1")}


def test_what_is_shared_is_loaded_once_in_a_process(nodes: Nodes, tmp_path: Path) -> None:
    (tmp_path / "loads").touch()
    executor = bf.RayExecutor(nodes.address)
    results = dict(executor.run(contract.times, contract.Logged(tmp_path / "loads"), list(range(4, 13))))
    assert results == {number: 2 * number for number in range(4, 13)}
    assert 1 <= len((tmp_path / "loads").read_text(encoding="utf-8")) <= 3  # processes


def test_a_task_that_ends_its_process_is_tried_four_times(nodes: Nodes) -> None:
    results = dict(bf.RayExecutor(nodes.address).run(contract.times, contract.InMemory(10), [13, 1]))
    assert results == {13: TaskFailure("WorkerCrashedError: its node or process was lost 4 times"), 1: 10}


def test_a_folder_that_is_not_shared_is_refused_before_any_work(nodes: Nodes, tmp_path: Path) -> None:
    source = folder(tmp_path / "all", toys().clean.images[:2])
    with pytest.raises(InputError, match="cannot read what this machine has written to memory://"):
        bf.detect(guard(), source, "memory://out", executor=bf.RayDataExecutor(nodes.address), show_progress=False)


def test_a_node_with_another_version_is_refused(nodes: Nodes, tmp_path: Path) -> None:
    other = tmp_path / "scipy-0.0.1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: scipy\nVersion: 0.0.1\n", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src"), str(ROOT)])
    node = nodes.cluster.add_node(num_cpus=1, object_store_memory=STORE, env_vars={"PYTHONPATH": path})
    try:
        with pytest.raises(InputError, match=r"node \S+ has scipy 0\.0\.1, this machine .*install the same"):
            list(bf.RayExecutor(nodes.address).run(contract.times, contract.InMemory(1), [1]))
    finally:
        nodes.cluster.remove_node(node)


def test_a_killed_driver_goes_on_and_ends_with_the_ledger_of_one_process(
    nodes: Nodes, local: Path, tmp_path: Path
) -> None:
    words = ["evaluate", str(plan_in(tmp_path, SMALL)), "--executor", "ray", "--address", nodes.address]
    program = [sys.executable, "-c", "from benfourier.cli.main import main; main()", *words]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "BENFOURIER_CACHE": str(tmp_path / "cache"), "PYTHONPATH": path}
    ledger = tmp_path / "tiny.jsonl"
    with subprocess.Popen(program, cwd=ROOT, env=environment) as driver:  # noqa: S603
        until = time.monotonic() + 300
        while driver.poll() is None and time.monotonic() < until:
            if ledger.exists() and '"record": "outcome"' in ledger.read_text(encoding="utf-8"):
                driver.kill()
            time.sleep(0.01)
    assert driver.returncode == -signal.SIGKILL
    done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    assert "were done before" in done.stdout
    check_nothing_twice(ledger)
    assert lines(ledger) == lines(local)


def test_a_killed_detection_goes_on_with_the_scores_of_one_process(
    nodes: Nodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = folder(tmp_path / "all", toys().clean.images)  # 400
    (source / "text.png").write_bytes(b"no image")
    words = command(source, tmp_path / "out", "--chunk", "5", "--executor", "ray", "--address", nodes.address)
    kill_after_first_file(words, tmp_path / "out")
    done = len(rows(tmp_path / "out"))
    executor = bf.RayDataExecutor(nodes.address)
    result = bf.detect(guard(), source, tmp_path / "out", chunk=5, executor=executor, show_progress=False)
    assert (result.images, result.unreadable, result.failures) == (401, 1, ())
    assert 0 < done < 401
    bf.detect(guard(), source, tmp_path / "one", show_progress=False)
    one, ray = rows(tmp_path / "one"), rows(tmp_path / "out")
    assert one.keys() == ray.keys()
    assert all(ray[name]["score"] == pytest.approx(one[name]["score"], abs=1e-3) for name in one if name != "text.png")


class KillingNode:
    """Runs tasks on a cluster, and kills one of its nodes when the first trials are done."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.has_killed = False

    def run(
        self, function: Callable[[V, T], R], shared: Shared[V], tasks: Sequence[T]
    ) -> Iterator[tuple[T, R | TaskFailure]]:
        for pair in bf.RayExecutor(self.nodes.address).run(function, shared, tasks):
            yield pair
            if not self.has_killed and isinstance(pair[0], tuple):
                self.nodes.kill()
                self.has_killed = True


def test_a_killed_node_loses_nothing_and_a_trial_that_fails_is_recorded(
    nodes: Nodes, local: Path, tmp_path: Path
) -> None:
    plan = bf.read_plan(plan_in(tmp_path, SMALL + BROKEN))
    executor, cache = KillingNode(nodes), tmp_path / "cache"
    run = bf.evaluate(plan, tmp_path / "l.jsonl", executor=executor, cache=cache, show_progress=False)
    assert ["90 neighbours" in failure.error for failure in run.summary.failures] == [True] * 4
    check_nothing_twice(tmp_path / "l.jsonl")
    compared = [line for line in lines(tmp_path / "l.jsonl") if line["record"] not in ("run", "failure")]
    assert compared == [line for line in lines(local) if line["record"] != "run"]


def begin_and_wait(shared: tuple[Path, int], number: int) -> int:
    """Leaves a mark with its process when it begins; the first tasks wait until a node was killed, at most a minute."""
    folder, waiting = shared
    (folder / f"{number}-{os.getpid()}-{time.time_ns()}").touch()
    until = time.monotonic() + 60
    while number < waiting and not (folder / "killed").exists() and time.monotonic() < until:
        time.sleep(0.05)
    return number


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which processes live")
def test_tasks_that_ran_on_a_killed_node_begin_again(nodes: Nodes, tmp_path: Path) -> None:
    count = 1 + len(nodes.expendable)  # one CPU each

    def kill_when_all_have_begun() -> None:
        until = time.monotonic() + 300
        while len(list(tmp_path.iterdir())) < count and time.monotonic() < until:
            time.sleep(0.05)
        processes = [int(file.name.split("-")[1]) for file in tmp_path.iterdir()]
        nodes.kill()
        while all(map(is_alive, processes)) and time.monotonic() < until:  # they outlive their node by a moment
            time.sleep(0.05)
        (tmp_path / "killed").touch()

    thread = Thread(target=kill_when_all_have_begun)
    thread.start()
    shared = contract.InMemory((tmp_path, count))
    results = list(bf.RayExecutor(nodes.address).run(begin_and_wait, shared, list(range(6))))
    thread.join()
    assert sorted(results) == [(number, number) for number in range(6)]
    assert len([file for file in tmp_path.iterdir() if file.name != "killed"]) == 7  # one began twice


def test_without_ray_the_command_that_installs_it_is_named(tmp_path: Path) -> None:
    code = "import sys; sys.modules['ray'] = None; from benfourier.cli.main import main; main()"
    program = [sys.executable, "-c", code, "evaluate", str(plan_in(tmp_path)), "--executor", "ray"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.returncode, "pip install 'benfourier[ray]'" in done.stderr) == (3, True), done.stderr


def test_terms_name_what_differs() -> None:
    terms = Terms({"torch": "2", INSTRUCTIONS: "AVX2"}, "file:///x", "mark", Path())
    same = {"torch": "2", INSTRUCTIONS: "AVX2"}
    terms.check("a", same, "mark")
    for facts, mark, problem in (
        ({INSTRUCTIONS: "AVX2"}, "mark", "node a has torch not installed, this machine 2"),
        ({**same, INSTRUCTIONS: "AVX512"}, "mark", "set ATEN_CPU_CAPABILITY=default everywhere"),
        (same, "", "node a cannot read what this machine has written to file:///x"),
    ):
        with pytest.raises(InputError, match=problem):
            terms.check("a", facts, mark)
