"""|â_n| of many responses at once on the CPU: rows, and pieces of long rows, shared among threads.

Three ways, each quicker and less general than the next; rows that one refuses (it leaves NaN) go on to the next.

1. `octaves` counts the bits of float32 entries, if they spread evenly.
2. `circle` counts phases: any float32, float16 or bfloat16 row, with an error bound that holds whatever the data.
3. exact sums: rows of up to SHORT entries, float64 rows, and entries near the limits of float32.

All keep |fused − reference| ≤ max(1e-6, a tenth of the noise floor ½√(π/M)): the last two for any data, `octaves` with
eight deviations to spare, by a check that it makes on each row.
"""

import math
import os
import threading
from contextlib import nullcontext
from functools import lru_cache
from types import FunctionType
from typing import Any

import numba
import numpy as np
import torch
from numba import prange
from numpy.typing import NDArray
from torch import Tensor

from benfourier.kernels import circle, octaves
from benfourier.kernels.lanes import LANES
from benfourier.kernels.rows import COUNT, DROP, ONE, apart, exact_row, survey_row
from benfourier.progress import spinner
from benfourier.theory.coefficients import Zeros

SHORT = 256
LONG = 1 << 22  # a counter of octaves has room for 2^22 entries
PIECE = 1 << 18  # entries of a row that one thread takes at a time
_TOO_LARGE = np.uint32(0x71800000)  # bits of 2^100: SCALE times such entries could overflow
_POLICIES: dict[Zeros, int] = {"drop": DROP, "count": COUNT, "one": ONE}
_lock = threading.Lock()  # not every numba threading layer may be entered by two threads at once
_forked = False
_COMPILING = "compiling the fused kernel (once on this machine)"

Out = NDArray[np.float32]


def _note_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def _octave_rows(rows, centre, policy, bins, tables, roughest, out):
    """Writes |â_n| of every row, NaN for rows too rough or with entries that are too large or too small."""
    length = rows.shape[1]
    for i in prange(rows.shape[0]):
        out[i] = np.nan
        sums, peaks = apart(8, np.float64), apart(LANES, np.uint32)
        survey_row(rows[i], sums, peaks)
        if peaks.max() < _TOO_LARGE:
            mean = sums.sum() / length if centre else 0.0
            base = octaves.base_of(peaks, mean)
            counters = apart((octaves.ROWS + 1) * bins, np.uint64)
            counters[:] = 0
            octaves.count_row(rows[i], mean, base, bins, counters)
            octaves.spectrum(counters, length, mean, base, tables, roughest, policy, out[i])


def _circle_rows(rows, centre, policy, bins, table, out):
    """Writes |â_n| of every row, NaN for rows with entries that are too large."""
    length = rows.shape[1]
    for i in prange(rows.shape[0]):
        out[i] = np.nan
        sums, peaks = apart(8, np.float64), apart(LANES, np.uint32)
        survey_row(rows[i], sums, peaks)
        if peaks.max() < _TOO_LARGE:
            mean = sums.sum() / length if centre else 0.0
            counters, filled = apart(2 * bins, np.uint64), apart(2 * bins, np.float32)
            counters[:], filled[:] = 0, 0
            circle.count_row(rows[i], mean, bins, counters)
            entries, ties = circle.unpack(counters, bins, filled)
            circle.spectrum(filled, length, entries, ties, mean, bins, table, policy, out[i])


def _circle_pieces(rows, centre, policy, piece, bins, table, out):
    """The same for rows so long, or so few, that several threads share one."""
    number, length = rows.shape
    per_row = (length + piece - 1) // piece
    totals, peaks = np.empty((number, per_row)), np.empty((number, per_row), np.uint32)
    for k in prange(number * per_row):
        i, j = k // per_row, k % per_row
        sums, lanes = apart(8, np.float64), apart(LANES, np.uint32)
        survey_row(rows[i, j * piece : (j + 1) * piece], sums, lanes)
        totals[i, j], peaks[i, j] = sums.sum(), lanes.max()
    filled = np.zeros((number * per_row, 2 * bins), np.float32)
    entries, ties = np.zeros(number * per_row, np.int64), np.zeros(number * per_row, np.int64)
    for k in prange(number * per_row):
        i, j = k // per_row, k % per_row
        if peaks[i].max() < _TOO_LARGE:
            mean = totals[i].sum() / length if centre else 0.0
            counters = apart(2 * bins, np.uint64)
            counters[:] = 0
            circle.count_row(rows[i, j * piece : (j + 1) * piece], mean, bins, counters)
            entries[k], ties[k] = circle.unpack(counters, bins, filled[k])
    for i in prange(number):
        out[i] = np.nan
        if peaks[i].max() < _TOO_LARGE:
            mean = totals[i].sum() / length if centre else 0.0
            first = i * per_row
            for k in range(first + 1, first + per_row):
                filled[first] += filled[k]
                entries[first] += entries[k]
                ties[first] += ties[k]
            circle.spectrum(filled[first], length, entries[first], ties[first], mean, bins, table, policy, out[i])


def _exact_rows(rows, centre, policy, out):
    """Writes |â_n| of every float64 row by the definition, NaN for rows that are not finite."""
    for i in prange(rows.shape[0]):
        exact_row(rows[i], centre, policy, out[i])


class _Threaded:
    """A loop over rows, compiled twice: for one thread, and shared among several."""

    def __init__(self, loop: Any) -> None:
        options = {"cache": True, "nogil": True, "fastmath": {"contract"}}
        self._shared = numba.njit(parallel=True, **options)(loop)
        # numba's cache tells functions apart by name, not by options
        twin = FunctionType(loop.__code__, loop.__globals__, f"{loop.__name__}_alone")
        twin.__qualname__ = twin.__name__
        self._alone = numba.njit(**options)(twin)

    def __call__(self, *args: Any) -> None:
        threads = _threads()
        loop = self._alone if threads == 1 else self._shared
        with nullcontext() if loop.signatures else spinner(_COMPILING):
            if threads == 1:
                loop(*args)
                return
            with _lock:
                numba.set_num_threads(threads)
                loop(*args)
        # numba's first launch sets the number of threads of an OpenMP that it shares with torch
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


_by_octaves = _Threaded(_octave_rows)
_by_circle = _Threaded(_circle_rows)
_by_pieces = _Threaded(_circle_pieces)
_exactly = _Threaded(_exact_rows)


def _threads() -> int:
    """As many threads as torch uses; one in a forked child, which GNU OpenMP would end if it entered."""
    return 1 if _forked else min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)


def magnitudes(rows: Tensor, orders: int, *, centre: bool, zeros: Zeros) -> Tensor:
    """Returns |â_n| as float32 (rows, orders); NaN for rows with entries that are not finite.

    Args:
        rows: contiguous CPU tensor (rows, entries) of any floating dtype.
        orders: number of orders, 1..orders.
        centre: subtract each row's mean first.
        zeros: what becomes of exact zeros, "drop", "count" or "one".
    """
    number, length = rows.shape
    out = np.empty((number, orders), np.float32)
    threads = _threads()
    ways = _ways(rows.dtype, length, orders, threads, number >= threads)
    _fill(rows.detach(), centre, _POLICIES[zeros], out, ways)
    return torch.from_numpy(out)


Way = tuple[_Threaded, tuple[Any, ...]]


@lru_cache(maxsize=1024)
def _ways(dtype: torch.dtype, length: int, orders: int, threads: int, enough: bool) -> tuple[Way, ...]:
    """The loops that suit rows of this kind, quickest first, each with its tables.

    Args:
        dtype: of the entries.
        length: entries in a row.
        orders: number of orders.
        threads: threads at work.
        enough: there is a row for each thread.
    """
    ways: list[Way] = [(_exactly, ())]
    bins = circle.bins_for(length, orders)
    if length <= SHORT or dtype == torch.float64 or not bins:
        return tuple(ways)
    table = circle.table_for(bins, orders)
    if length <= PIECE and (enough or length < PIECE // 8):
        ways.insert(0, (_by_circle, (bins, table)))
    else:
        piece = min(PIECE, -(-length // (2 * threads) // 1024) * 1024)
        ways.insert(0, (_by_pieces, (piece, bins, table)))
    if dtype == torch.float32 and length <= LONG and enough:
        bins = octaves.bins_for(length, orders)
        tables = octaves.table_for(bins, orders), octaves.turns_for(orders), octaves.inverses_for(bins)
        ways.insert(0, (_by_octaves, (bins, tables, octaves.roughness_for(bins, orders))))
    return tuple(ways)


def _fill(rows: Tensor, centre: bool, policy: int, out: Out, ways: tuple[Way, ...]) -> None:
    """Writes the magnitudes by the first way, and those of the rows that it refuses by the next."""
    loop, tables = ways[0]
    words = rows.double().numpy() if loop is _exactly else _words(rows)
    loop(words, centre, policy, *tables, out)
    if len(ways) > 1 and math.isnan(out[:, 0].sum()):
        refused = np.isnan(out[:, 0])
        again = out[refused]
        _fill(rows[torch.from_numpy(refused)], centre, policy, again, ways[1:])
        out[refused] = again


def _words(rows: Tensor) -> NDArray[Any]:
    """The rows as an array whose dtype tells the lanes how to widen them; nothing is copied."""
    if rows.dtype != torch.float32:
        rows = rows.view(torch.int16 if rows.dtype == torch.float16 else torch.uint16)
    return rows.numpy()
