"""A ledger: records as JSON lines, appended by one process at a time, whole lines or none."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from mmap import ACCESS_READ, mmap
from os import PathLike
from pathlib import Path
from typing import Self

from benfourier.errors import StoreError
from benfourier.store.artifact import replace_file, sync_folder
from benfourier.store.records import Failure, Record, Run, decode, encode

SCHEMA = 2
HAS_FLOCK = find_spec("fcntl") is not None  # Windows has none
BEGINNING = b'{"record": "'  # of every line
HEADER = json.dumps({"record": "ledger", "schema": SCHEMA}).encode() + b"\n"


class LedgerWriter:
    """Appends records to a ledger, which no other process can write to meanwhile; use it in a `with` statement."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)  # the file is made with the first record
        self.keys: set[str] = set()  # of all records but failures, which are tried again
        self.added: list[Record] = []
        self._lock: ExitStack | None = None

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error
        with ExitStack() as stack:  # unlocks if the ledger cannot be read
            stack.enter_context(_lock(self.path))
            self.keys = {record.key for record in records(self.path) if not isinstance(record, Failure)}
            self._lock = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()
        self._lock = None

    def add(self, record: Record) -> None:
        """Appends a record and waits until it is on disk; half a line of a killed run is cut off first.

        A record whose key is in the ledger is left out; runs and failures are appended every time.
        """
        if self._lock is None:
            raise StoreError(f"{self.path}: the ledger is not open; use `with LedgerWriter(path) as writer`")
        if record.key in self.keys and not isinstance(record, Run | Failure):
            return
        try:
            is_new = not self.path.exists()
            with self.path.open("ab+") as file:
                end = file.seek(0, os.SEEK_END)
                if end:  # nothing can be mapped of an empty file
                    with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
                        end = content.rfind(b"\n") + 1
                    file.truncate(end)
                file.write(_line(record) if end else HEADER + _line(record))
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                sync_folder(self.path.parent)
        except OSError as error:
            raise self._unwritable(error) from error
        self.added.append(record)
        if not isinstance(record, Failure):
            self.keys.add(record.key)

    def _unwritable(self, error: OSError) -> StoreError:
        return StoreError(f"{self.path}: the ledger cannot be written ({error}); check the folder and space")


def read(path: str | PathLike[str]) -> tuple[Record, ...]:
    """Returns all records of a ledger that must exist, each key's last one only, in the order of their lines."""
    if not Path(path).is_file():
        raise StoreError(f"{path}: there is no ledger; `benfourier evaluate plan.toml` makes one")
    last: dict[tuple[type[Record], str], Record] = {}
    for record in records(path):
        last.pop((type(record), record.key), None)
        last[type(record), record.key] = record
    return tuple(last.values())


def records(path: str | PathLike[str]) -> Iterator[Record]:
    """Yields all records in order, none if there is no file; half a line at the end is left out."""
    path = Path(path)
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise StoreError(f"{path}: the ledger cannot be read ({error}); check the permissions") from error
    *lines, half = content.split(b"\n")
    if not BEGINNING.startswith(half[: len(BEGINNING)]):  # not what a killed run leaves
        raise StoreError(f"{path}: this is no ledger, and stays as it is; give another file")
    for number, line in enumerate(lines, 1):
        try:
            parsed = json.loads(line, parse_constant=_refuse_constant)
            if number == 1:
                _check_schema(parsed)
            else:
                yield decode(parsed)
        except (ValueError, RecursionError) as error:
            problem = f"{path}, line {number}: it is no JSON ({error})"
            raise StoreError(f"{problem}; remove the line, and run the plan again") from error
        except StoreError as error:
            raise StoreError(f"{path}, line {number}: {error}") from error


def write(path: str | PathLike[str], content: Iterable[Record]) -> None:
    """Writes a ledger of these records in the place of another, as a whole or not at all."""
    lines = HEADER + b"".join(_line(record) for record in content)
    replace_file(path, lambda temporary: temporary.write_bytes(lines))


@contextmanager
def _lock(ledger: Path) -> Iterator[None]:
    """Locks a file beside a ledger, or raises StoreError with the id of the process that writes to the ledger."""
    path = ledger.with_name(f".{ledger.name}.lock")
    try:
        file = _open_and_lock(path)
        os.ftruncate(file, 0)
        os.write(file, str(os.getpid()).encode())
    except (BlockingIOError, FileExistsError) as error:
        owner = "of unknown id"
        with suppress(OSError, ValueError):
            owner = path.read_text(encoding="ascii") or owner
        # without flock, the file of a killed process stays
        rest = "" if HAS_FLOCK else f", or remove {path} if there is no such process"
        problem = f"{ledger}: process {owner} is writing to this ledger; wait until it has ended{rest}"
        raise StoreError(f"{problem}, or give another ledger") from error
    except OSError as error:
        problem = f"{ledger}: the ledger cannot be locked ({error})"
        raise StoreError(f"{problem}; check the folder, or put it on a local disk") from error
    try:
        yield
    finally:
        if HAS_FLOCK:  # removed while it is locked, so that it can be no other process's file
            path.unlink(missing_ok=True)
        os.close(file)
        if not HAS_FLOCK:  # Windows removes no open files
            path.unlink(missing_ok=True)


def _open_and_lock(path: Path) -> int:
    """The descriptor of a file that this process alone has locked; the kernel unlocks it if the process dies."""
    if not HAS_FLOCK:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    import fcntl

    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), path.stat()):
                    return file
        except OSError:
            os.close(file)
            raise
        os.close(file)  # its owner removed it between our open and our lock


def _line(record: Record) -> bytes:
    return json.dumps(encode(record), ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def _check_schema(content: object) -> None:
    """Raises StoreError unless the first line is that of a ledger of this schema."""
    name = content.get("record") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(name, str):
        raise StoreError("this is no ledger, and stays as it is; give another file")
    schema = content.get("schema") if name == "ledger" else 1  # the ledgers of version 0.1 begin with a run
    if isinstance(schema, int) and schema > SCHEMA:
        raise StoreError(f"the ledger has schema {schema}; this version reads {SCHEMA}; upgrade benfourier")
    if schema != SCHEMA:
        problem = f"the ledger has schema {schema}, of benfourier 0.1; this version reads {SCHEMA}"
        raise StoreError(f"{problem}; run its plan again into another ledger, or show it with benfourier 0.1")
