"""Executors on a Ray cluster: Ray tasks for attacks and trials, Ray Data for verdicts on many images."""

import logging
import os
import secrets
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import fsspec
import torch

from benfourier.errors import InputError, check_number, check_whole, optional_import
from benfourier.evaluation.trials import versions
from benfourier.executors import ONE_THREAD, SavedFolder, Serial, Shared, TaskFailure
from benfourier.guard.detect import DetectJob
from benfourier.store.cache import VARIABLE

CONNECT_SECONDS = 10.0  # Ray itself waits five minutes for an address, and then ends the process
CHECK_SECONDS = 120.0  # a node starts a process and imports torch
WINDOW = 256  # tasks that Ray holds at once: enough for an autoscaler to see what is waiting
# how often a task is handed out again that was lost with its node or process, or ended for its memory
AGAIN = {"lost": 3, "memory": 1}
MARK = ".shared"  # name of a file that the driver writes and every node must be able to read
INSTRUCTIONS = "CPU instructions"
Facts = Mapping[str, str]
Task = TypeVar("Task")
Result = TypeVar("Result")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Terms:
    """What a process of the cluster has in common with the driver, or it may not work for it."""

    facts: Facts  # versions, and for evaluations the instructions of the CPU
    folder: str | None  # that all nodes share, as fsspec opens it; None if they need none
    token: str  # content of a file in it
    home: Path  # current folder of the driver: networks are imported from it, as in a local pool

    def check(self, node: str, facts: Facts, token: str) -> None:
        """Raises InputError unless what was found on a node is as here."""
        for name, here in self.facts.items():
            if facts.get(name) != here:
                other = f"node {node} has {name} {facts.get(name, 'not installed')}, this machine {here}"
                advice = "set ATEN_CPU_CAPABILITY=default everywhere" if name == INSTRUCTIONS else "install the same"
                raise InputError(f"{other}; results would differ: {advice} on all nodes")
        if self.folder is not None and token != self.token:
            problem = f"node {node} cannot read what this machine has written to {self.folder}"
            raise InputError(f"{problem}; give a folder that all nodes share ({VARIABLE} for evaluations)")


@dataclass(frozen=True)
class _Resources:
    """Where the cluster is, and what Ray reserves for every task."""

    address: str | None = None
    num_cpus: float = 1.0
    num_gpus: float = 0.0
    memory: int | None = None

    def __post_init__(self) -> None:
        check_number("num_cpus", self.num_cpus, above=0)
        check_number("num_gpus", self.num_gpus, least=0)
        if self.memory is not None:
            check_whole("memory", self.memory)
        _ray()  # raises if it is not installed, before any work

    @property
    def options(self) -> dict[str, Any]:
        """The same in words of Ray."""
        return {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus, "memory": self.memory}

    def slots(self) -> int:
        """Returns how many tasks the cluster can run at once; one if its nodes have yet to start."""
        total = _ray().cluster_resources()
        counts = [total.get("CPU", 0) / self.num_cpus]
        counts += [total.get("GPU", 0) / self.num_gpus] if self.num_gpus else []
        counts += [total.get("memory", 0) / self.memory] if self.memory else []
        return max(1, int(min(counts)))


@dataclass(frozen=True)
class RayExecutor(_Resources):
    """Runs tasks on a Ray cluster, with one thread each; a task whose node is lost is handed out again.

    Sums are split among threads: with one, results are those of every other executor, to the last bit.

    Args:
        address: of a running cluster, such as "10.0.0.1:6379"; without one, that of RAY_ADDRESS or of this machine, and
            if there is none, Ray is started here.
        num_cpus: that Ray reserves for a task.
        num_gpus: the same.
        memory: bytes that Ray reserves for a task; None for no limit.
    """

    def run(
        self, function: Callable[[Value, Task], Result], shared: Shared[Value], tasks: Sequence[Task]
    ) -> Iterator[tuple[Task, Result | TaskFailure]]:
        """Yields each task with its result, as they are done; leaving the loop early cancels the others."""
        if not tasks:
            return
        ray = _connect(self.address)
        facts = {**versions(), INSTRUCTIONS: torch.backends.cpu.get_cpu_capability()}
        terms = _agree(ray, self, facts, shared)
        handle = ray.put(shared)  # writes the files of a SavedFolder
        work = ray.remote(_work).options(max_retries=0, **self.options)  # what is tried again is decided below
        waiting, losses = deque(range(len(tasks))), Counter[tuple[int, str]]()
        pending: dict[Any, int] = {}
        try:
            while waiting or pending:
                while waiting and len(pending) < WINDOW:
                    place = waiting.popleft()
                    pending[work.remote(function, [handle], tasks[place], terms, 1)] = place
                for reference in ray.wait(list(pending), num_returns=1)[0]:
                    place = pending.pop(reference)
                    result, loss = _result(ray, reference)
                    losses[place, loss] += 1
                    if loss and losses[place, loss] <= AGAIN[loss]:
                        waiting.appendleft(place)
                    else:
                        yield tasks[place], result
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)


@dataclass(frozen=True)
class RayDataExecutor(_Resources):
    """Runs tasks through Ray Data, in processes that stay: what is shared is loaded once in each of them.

    Args:
        address: as of `RayExecutor`.
        num_cpus: that Ray reserves for a process; it computes with as many threads.
        num_gpus: the same.
        memory: bytes that Ray reserves for a process; None for no limit.
    """

    def run(
        self, function: Callable[[Value, Task], Result], shared: Shared[Value], tasks: Sequence[Task]
    ) -> Iterator[tuple[Task, Result | TaskFailure]]:
        """Yields each task with its result, as they are done; Ray Data restarts processes that are lost."""
        if not tasks:
            return
        ray = _connect(self.address)
        from ray import data

        terms, handle = _agree(ray, self, versions(), shared), ray.put(shared)
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context = data.DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        size = min(self.slots(), len(tasks))
        # Ray writes and reads tasks and results as it does those of its own tasks
        rows = [{"place": place, "task": task} for place, task in enumerate(tasks)]
        results = data.from_items(rows, override_num_blocks=len(rows)).map(
            _Worker,
            fn_constructor_args=(function, [handle], terms, max(1, int(self.num_cpus))),
            compute=data.ActorPoolStrategy(min_size=1, initial_size=size, max_size=size),
            **{name: value for name, value in self.options.items() if value is not None},
        )
        try:
            for row in results.iter_rows():
                yield tasks[row["place"]], row["result"]
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", error)
            reason = cause if isinstance(cause, InputError) else str(error).strip().splitlines()[-1]
            raise InputError(f"{reason}; what was done is stored, and the same call goes on from there") from error


class _Worker:
    """A process of Ray Data."""

    def __init__(self, *arguments: Any) -> None:
        self.function, self.handle, self.terms, self.threads = arguments

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the row of a task's result."""
        result = _work(self.function, self.handle, row["task"], self.terms, self.threads)
        return {"place": row["place"], "result": result}


@dataclass(frozen=True)
class _OncePerProcess:
    """What is shared, loaded once in this process; only what was asked for last is held."""

    handle: Any

    def load(self) -> Any:
        """Returns the value itself."""
        if self.handle not in _loaded:
            value = _ray().get(self.handle).load()
            _loaded.clear()  # attacks and trials share other values: both at once take twice the memory
            _loaded[self.handle] = value
        return _loaded[self.handle]


_loaded: dict[Any, Any] = {}


def _work(function: Callable[..., Any], handle: Sequence[Any], task: object, terms: Terms, threads: int) -> object:
    """Runs a task in a process of the cluster; what is wrong with the process is raised, not returned."""
    _prepare_process(handle[0], terms, threads)
    ((_, result),) = Serial().run(function, _OncePerProcess(handle[0]), [task])
    return result


def _prepare_process(handle: Any, terms: Terms, threads: int) -> None:
    """Sets threads and folder once in a process, after a look at it: nodes may have joined since the driver looked."""
    if handle in _prepared:
        return
    terms.check(_ray().util.get_node_ip_address(), *_inspector()(terms.facts, terms.folder))
    os.environ.update(dict.fromkeys(ONE_THREAD, str(threads)))  # numba and others read these when they are loaded
    torch.set_num_threads(threads)
    with suppress(OSError):  # a node without this folder has the network installed
        os.chdir(terms.home)
    _prepared.add(handle)


_prepared: set[Any] = set()


def _inspector() -> Callable[[Facts, str | None], tuple[dict[str, str], str]]:
    """A function that Ray can run where benfourier is missing: it is sent as code, not as a name."""

    def look(names: Facts, folder: str | None) -> tuple[dict[str, str], str]:
        import platform
        from importlib.metadata import PackageNotFoundError, version

        facts, token = {"python": platform.python_version()}, ""
        for name in names.keys() - {"python", INSTRUCTIONS}:
            with suppress(PackageNotFoundError):
                facts[name] = version(name)
        with suppress(ImportError, OSError, ValueError):
            if INSTRUCTIONS in names:
                import torch

                facts[INSTRUCTIONS] = torch.backends.cpu.get_cpu_capability()
            if folder is not None:
                import fsspec

                with fsspec.open(f"{folder}/{MARK}", "rb") as file:
                    token = file.read().decode()
        return facts, token

    return look


def _agree(ray: Any, resources: _Resources, facts: Facts, shared: object) -> Terms:
    """Returns the terms of a run after a look at every node that may take part in it."""
    folder = str(shared.folder) if isinstance(shared, SavedFolder | DetectJob) else None
    terms = Terms(facts, folder, secrets.token_hex(8), Path.cwd())
    if folder is not None:
        with fsspec.open(f"{folder}/{MARK}", "wb") as file:
            file.write(terms.token.encode())
    looks = {}
    for node in ray.nodes():
        offer, name = node["Resources"], node["NodeID"]
        if node["Alive"] and offer.get("CPU", 0) >= resources.num_cpus and offer.get("GPU", 0) >= resources.num_gpus:
            place = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(name, soft=False)
            look = ray.remote(_inspector()).options(num_cpus=0, max_retries=0, scheduling_strategy=place)
            looks[look.remote(facts, folder)] = node["NodeManagerAddress"]
    for reference, address in looks.items():
        try:
            terms.check(address, *ray.get(reference, timeout=CHECK_SECONDS))
        except ray.exceptions.GetTimeoutError as error:
            raise InputError(f"node {address} did not answer in {CHECK_SECONDS:.0f} s; look at its logs") from error
        except ray.exceptions.RayError:  # it has left the cluster meanwhile, and others do its work
            continue
    return terms


def _result(ray: Any, reference: Any) -> tuple[Any, str]:
    """What became of a task, and if it was lost, to what."""
    errors = ray.exceptions
    try:
        return ray.get(reference), ""
    except errors.RayTaskError as error:
        if isinstance(error.cause, InputError):  # a node that joined later and does not keep the terms
            raise error.cause from error
        return TaskFailure(f"{type(error.cause).__name__}: {error.cause}"), ""
    except errors.OutOfMemoryError:
        return TaskFailure("OutOfMemoryError: its node ran out of memory; state more memory for a task"), "memory"
    except (errors.WorkerCrashedError, errors.NodeDiedError, errors.ObjectLostError) as error:
        reason = f"{type(error).__name__}: its node or process was lost {AGAIN['lost'] + 1} times"
        return TaskFailure(reason), "lost"


def _connect(address: str | None) -> Any:
    """Returns Ray, which is connected to a cluster, or raises InputError if none answers."""
    ray = _ray()
    if ray.is_initialized():
        return ray
    if address is not None:
        _check_answer(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # of a cluster that is started here: it reports to nobody
    options: dict[str, Any] = {} if address else {"include_dashboard": False}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, OSError, RuntimeError, SystemExit, ValueError) as error:
        raise InputError(
            f"{_cluster_name(address)} cannot be joined ({error}); `ray status` shows what runs"
        ) from error
    return ray


def _check_answer(address: str) -> None:
    """Raises InputError unless something listens at an address."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if address in ("auto", "local"):
        return
    if not host or not port.isdecimal():
        raise InputError(f"address is {address!r}; it must be host:port, as `ray start --head` prints it")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        advice = "check it, and that the head node runs: `ray start --head` prints its address"
        raise InputError(f"{_cluster_name(address)} does not answer ({error}); {advice}") from error


def _cluster_name(address: str | None) -> str:
    return f"the Ray cluster at {address}" if address else "the Ray cluster of this machine"


@cache
def _ray() -> Any:
    with optional_import("clusters are run by Ray", "ray"):
        import ray
        import ray.util.scheduling_strategies
    return ray
