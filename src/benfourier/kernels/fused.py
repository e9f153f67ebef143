"""|â_n| of many responses at once on the CPU: rows, and pieces of long rows, shared among threads.

Four ways, the first three quicker than the last; rows that one refuses (it leaves NaN) go on to the next that suits.

1. `octaves` counts the bits of float32 entries, if they spread evenly.
2. `circle` counts phases: any float32, float16 or bfloat16 row, with an error bound that holds whatever the data.
3. `short` adds the phasors of float32 rows of up to SHORT entries, several at a time.
4. exact sums: other rows of up to SHORT entries, float64 rows, and entries near the limits of float32.

All keep |fused − reference| ≤ max(1e-6, a tenth of the noise floor ½√(π/M)): the last three for any data, `octaves`
with eight deviations to spare, by a check that it makes on each row.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.kernels import circle, loops, octaves, short
from benfourier.kernels.rows import COUNT, DROP, ONE
from benfourier.kernels.team import share, threads
from benfourier.theory.coefficients import Zeros

SHORT = 256
LONG = 1 << 22  # a counter of octaves has room for 2^22 entries
PIECE = 1 << 18  # entries of a row that one thread takes at a time
POLICIES: dict[Zeros, int] = {"drop": DROP, "count": COUNT, "one": ONE}

Out = NDArray[np.float32]
Way = tuple[Callable[..., None], tuple[Any, ...]]


def magnitudes(rows: Tensor, orders: int, *, centre: bool, zeros: Zeros, channels: int = 0) -> Tensor:
    """Returns |â_n| as float32 (rows, orders); NaN for rows with entries that are not finite.

    Args:
        rows: contiguous CPU tensor (rows, entries) of any floating dtype.
        orders: number of orders, 1..orders.
        centre: subtract each row's mean first.
        zeros: what becomes of exact zeros, "drop", "count" or "one".
        channels: how many are last in memory, 0 if they are not.
    """
    number, length = rows.shape
    out = np.empty((number, orders), np.float32)
    several = threads()
    ways = _ways(rows.dtype, length, orders, several, number >= several, channels)
    _fill(rows.detach(), centre, POLICIES[zeros], out, ways)
    return torch.from_numpy(out)


@lru_cache(maxsize=1024)
def _ways(dtype: torch.dtype, length: int, orders: int, several: int, enough: bool, channels: int) -> tuple[Way, ...]:
    """The ways that suit rows of this kind, quickest first, each with its tables.

    Args:
        dtype: of the entries.
        length: entries in a row.
        orders: number of orders.
        several: threads at work.
        enough: there is a row for each thread.
        channels: how many are last in memory.
    """
    ways: list[Way] = [(_exactly, ())]
    bins = circle.bins_for(length, orders)
    if length <= SHORT and dtype == torch.float32 and orders <= short.MOST_ORDERS:
        ways.insert(0, (_one_by_one, ()))
    if length <= SHORT or dtype == torch.float64 or not bins:
        return tuple(ways)
    table = circle.table_for(bins, orders)
    if length <= PIECE and (enough or length < PIECE // 8):
        ways.insert(0, (_by_circle, (bins, table)))
    else:
        piece = min(PIECE, -(-length // (2 * several) // 1024) * 1024)
        ways.insert(0, (_by_pieces, (piece, bins, table)))
    if dtype == torch.float32 and length <= LONG and enough:
        ways.insert(0, (_by_octaves, (channels, float_ways(length, orders))))
    return tuple(ways)


@lru_cache(maxsize=1024)
def float_ways(length: int, orders: int) -> tuple[Any, ...]:
    """Bins, tables and greatest roughness for octaves, bins and table for the circle."""
    bins, round_bins = octaves.bins_for(length, orders), circle.bins_for(length, orders)
    tables, roughest = octaves.tables_for(bins, orders), octaves.roughness_for(bins, orders)
    return bins, tables, roughest, round_bins, circle.table_for(round_bins, orders)


def _fill(rows: Tensor, centre: bool, policy: int, out: Out, ways: tuple[Way, ...]) -> None:
    """Writes the magnitudes by the first way, and those of the rows that it refuses by the next."""
    way, tables = ways[0]
    way(rows.double().numpy() if way is _exactly else _words(rows), centre, policy, *tables, out)
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


def _by_octaves(rows: NDArray[Any], *args: Any) -> None:
    share(loops.octave_rows, len(rows), rows, *args)


def _by_circle(rows: NDArray[Any], *args: Any) -> None:
    share(loops.circle_rows, len(rows), rows, *args)


def _one_by_one(rows: NDArray[Any], *args: Any) -> None:
    share(short.short_rows, len(rows), rows, *args)


def _exactly(rows: NDArray[Any], *args: Any) -> None:
    share(loops.exact_rows, len(rows), rows, *args)


def _by_pieces(
    rows: NDArray[Any], centre: bool, policy: int, piece: int, bins: int, table: NDArray[np.float32], out: Out
) -> None:
    """The circle for rows so long, or so few, that several threads share one."""
    number, length = rows.shape
    per_row = -(-length // piece)
    totals, peaks = np.empty((number, per_row)), np.empty((number, per_row), np.uint32)
    share(loops.survey_pieces, number * per_row, rows, piece, totals, peaks)
    means = totals.sum(axis=1) / length if centre else np.zeros(number)
    highest = peaks.max(axis=1)
    filled = np.zeros((number, per_row, 2 * bins), np.float32)
    found = np.zeros((number, per_row, 2), np.int64)
    share(loops.count_pieces, number * per_row, rows, piece, means, highest, bins, filled, found)
    share(loops.join_pieces, number, length, means, highest, policy, bins, table, filled, found, out)
