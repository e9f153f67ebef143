"""|â_n| of many responses at once on the CPU: rows and pieces of long rows shared among threads.

Long float32, float16 and bfloat16 rows are counted on a circle fine enough for |fused − reference| ≤ a tenth of the
noise floor ½√(π/M); rows of up to SHORT entries and float64 rows are summed exactly.
"""

import os
import threading
from types import FunctionType
from typing import Any

import numba
import numpy as np
import torch
from numba import prange
from torch import Tensor

from benfourier.kernels import circle
from benfourier.kernels.circle import count_row, exact_row, spectrum, survey_row, unpack
from benfourier.theory.coefficients import Zeros

SHORT = 256
PIECE = 1 << 18  # entries of a long row that one thread takes at a time; a counter has room for 2^20
_TOO_LARGE = np.uint32(0x71800000)  # bits of 2^100: SCALE times such entries could overflow
_lock = threading.Lock()  # not every numba threading layer may be entered by two threads at once
_forked = False


def _note_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_note_fork)


def _whole_rows(rows, centre, policy, bins, table, out):
    """Writes |â_n| of every row; NaN where a row holds entries that the circle cannot take."""
    length = rows.shape[1]
    for i in prange(rows.shape[0]):
        total, peak = survey_row(rows[i])
        if peak >= _TOO_LARGE:
            out[i] = np.nan
        else:
            mean = total / length if centre else 0.0
            counters, circle = np.zeros(2 * bins, np.uint64), np.zeros(2 * bins, np.float32)
            count_row(rows[i], mean, bins, counters)
            entries, ties = unpack(counters, bins, circle)
            spectrum(circle, length, entries, ties, mean, bins, table, policy, out[i])


def _pieces(rows, piece, centre, policy, bins, table, out):
    """The same for rows so long, or so few, that several threads share one."""
    number, length = rows.shape
    per_row = (length + piece - 1) // piece
    totals, peaks = np.empty((number, per_row)), np.empty((number, per_row), np.uint32)
    for k in prange(number * per_row):
        i, j = k // per_row, k % per_row
        totals[i, j], peaks[i, j] = survey_row(rows[i, j * piece : (j + 1) * piece])
    circles = np.zeros((number * per_row, 2 * bins), np.float32)
    entries, ties = np.zeros(number * per_row, np.int64), np.zeros(number * per_row, np.int64)
    for k in prange(number * per_row):
        i, j = k // per_row, k % per_row
        if peaks[i].max() < _TOO_LARGE:
            mean = totals[i].sum() / length if centre else 0.0
            counters = np.zeros(2 * bins, np.uint64)
            count_row(rows[i, j * piece : (j + 1) * piece], mean, bins, counters)
            entries[k], ties[k] = unpack(counters, bins, circles[k])
    for i in prange(number):
        if peaks[i].max() < _TOO_LARGE:
            mean = totals[i].sum() / length if centre else 0.0
            first = i * per_row
            for k in range(first + 1, first + per_row):
                circles[first] += circles[k]
                entries[first] += entries[k]
                ties[first] += ties[k]
            spectrum(circles[first], length, entries[first], ties[first], mean, bins, table, policy, out[i])
        else:
            out[i] = np.nan


def _exact_rows(rows, centre, policy, out):
    """Writes |â_n| of every float64 row by the definition."""
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
        # GNU OpenMP ends a forked child that enters it, so such a child works alone
        threads = 1 if _forked else min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)
        if threads == 1:
            self._alone(*args)
            return
        with _lock:
            numba.set_num_threads(threads)
            self._shared(*args)


_whole_rows_loop = _Threaded(_whole_rows)
_pieces_loop = _Threaded(_pieces)
_exact_rows_loop = _Threaded(_exact_rows)


def magnitudes(rows: Tensor, orders: int, *, centre: bool, zeros: Zeros) -> Tensor:
    """Returns |â_n| as float32 (rows, orders); NaN for rows with entries that are not finite.

    Args:
        rows: contiguous CPU tensor (rows, entries) of any floating dtype.
        orders: number of orders, 1..orders.
        centre: subtract each row's mean first.
        zeros: what becomes of exact zeros, "drop", "count" or "one".
    """
    assert rows.ndim == 2
    assert rows.is_contiguous()
    policy = {"drop": circle.DROP, "count": circle.COUNT, "one": circle.ONE}[zeros]
    number, length = rows.shape
    out = np.zeros((number, orders), np.float32)
    bins = circle.bins_for(length, orders) if length > SHORT and rows.dtype != torch.float64 else 0
    if not bins:
        _exact_rows_loop(rows.double().numpy(), centre, policy, out)
        return torch.from_numpy(out)
    table = circle.table_for(bins, orders)
    threads = torch.get_num_threads()
    if length <= PIECE and (number >= threads or length < PIECE // 8):
        _whole_rows_loop(_words(rows), centre, policy, bins, table, out)
    else:
        piece = min(PIECE, -(-length // (2 * threads) // 1024) * 1024)
        _pieces_loop(_words(rows), piece, centre, policy, bins, table, out)
    result = torch.from_numpy(out)
    refused = result[:, 0].isnan()
    if refused.any():  # too large for the circle, or not finite
        result[refused] = magnitudes(rows[refused].double(), orders, centre=centre, zeros=zeros)
    return result


def _words(rows: Tensor) -> np.ndarray[Any, Any]:
    """The rows as an array whose dtype tells the lanes how to widen them; nothing is copied."""
    views = {torch.float16: torch.int16, torch.bfloat16: torch.uint16}
    return rows.view(views.get(rows.dtype, torch.float32)).numpy()
