"""A ledger: records as JSON lines, only ever appended to, whole lines or none."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from benfourier.errors import StoreError
from benfourier.store.coding import KINDS, plain, record_of
from benfourier.store.records import Record

BEGINNING = b'{"record": "'  # of every line
NAMES = {kind: name for name, kind in KINDS.items()}


@dataclass(frozen=True)
class Ledger:
    """Records in a file.

    Args:
        path: of the file; it is made with the first record.
    """

    path: Path

    def append(self, record: Record) -> None:
        """Writes one record and waits until it is on disk; what a killed run left half-written is cut off first."""
        line = json.dumps({"record": NAMES[type(record)], **plain(record)}, ensure_ascii=False, allow_nan=False)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                self._cut_half_a_line(file.fileno())
                file.write(line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(
                f"{self.path}: the ledger cannot be written ({error}); check the folder and space"
            ) from error

    def records(self) -> Iterator[Record]:
        """Yields all records in order; half a line at the end is passed over."""
        try:
            content = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise StoreError(f"{self.path}: the ledger cannot be read ({error}); check the permissions") from error
        *lines, half = content.split(b"\n")
        self._check_half(half)
        for number, line in enumerate(lines, 1):
            try:
                yield record_of(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise StoreError(
                    f"{self.path}, line {number}: it is no JSON ({error}); remove the line, and run the plan again"
                ) from error
            except StoreError as error:
                raise StoreError(f"{self.path}, line {number}: {error}") from error

    def _cut_half_a_line(self, file: int) -> None:
        """Shortens a file to its last whole line."""
        size = os.fstat(file).st_size
        end = size
        while end:
            start = max(0, end - 65536)
            found = os.pread(file, end - start, start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        if end != size:
            self._check_half(os.pread(file, len(BEGINNING), end))
            os.ftruncate(file, end)

    def _check_half(self, half: bytes) -> None:
        """Raises StoreError unless a last line without its end is one that a killed run has left."""
        if not BEGINNING.startswith(half[: len(BEGINNING)]):
            raise StoreError(f"{self.path}: this is no ledger, and stays as it is; give another file")


def read(path: str | PathLike[str]) -> tuple[Record, ...]:
    """Returns all records of a ledger that must exist, each key's last one only, in the order of their lines."""
    ledger = Ledger(Path(path))
    if not ledger.path.is_file():
        raise StoreError(f"{path}: there is no ledger; `benfourier evaluate plan.toml` makes one")
    last: dict[tuple[type[Record], str], Record] = {}
    for record in ledger.records():
        last.pop((type(record), record.key), None)
        last[type(record), record.key] = record
    return tuple(last.values())
