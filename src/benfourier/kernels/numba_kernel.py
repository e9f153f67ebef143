"""|â_n| of many float32 rows on the CPU: phases are counted in bins, rows are shared among Python threads.

log10|x| mod 1 comes from the bits of x: the exponent times log10(2) plus a polynomial in the mantissa, in units of
2⁻³² turns, so that integer overflow is the "mod 1". A counter holds, in one 64-bit word, how many phases fell into its
bin (upper 24 bits) and the sum of their offsets in it (lower 40). The sum of offsets makes the first-order term exact
whatever the data, repeated values included; what is left is at most ½(πn/bins)² at order n.

Counting is done in integers, and so is the mean: magnitudes do not depend on the order of entries, on the batch, on the
memory layout or on the number of threads. Rows of up to SHORT entries are summed phasor by phasor, in their order.
"""

import math
import multiprocessing
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numba
import numpy as np
import torch
from numba.core import event
from numpy.typing import NDArray
from torch import Tensor

from benfourier.theory.coefficients import Zeros

SHORT = 256  # rows of up to so many entries are summed directly: there bins would cost more than entries
LARGEST_TABLE = 1 << 21  # numbers in a table of phasors; where more would be needed, phasors are summed directly
BLOCK = 512  # entries whose phases are computed at a time
FLUSH = 1 << 18  # entries after which counters are emptied: 2^18 offsets of up to 2^22 fill 40 bits
SHARED = 1 << 15  # entries for each thread at least
CHUNK = 4  # rows that a thread takes at a time: torch's own threads may keep a core busy while they wait for work
RULES: dict[Zeros, int] = {"drop": 0, "count": 1, "one": 2}


def _log_polynomial() -> list[np.float32]:
    """Coefficients of log10(1 + m), 0 ≤ m < 1, in units of 2⁻³² turns; off by at most 1e-7 turns."""
    x = 0.5 + 0.5 * np.cos(np.pi * (np.arange(256) + 0.5) / 256)
    fit = np.polynomial.Chebyshev.fit(x, np.log10(1 + x) * 2.0**32, 8, domain=[0, 1])
    return [np.float32(value) for value in fit.convert(kind=np.polynomial.Polynomial).coef]


L0, L1, L2, L3, L4, L5, L6, L7, L8 = _log_polynomial()
OCTAVE = np.uint32(round(math.log10(2) * 2**32))
ORIGIN = np.uint32(1023 * int(OCTAVE) % 2**32)  # phase of 1.0, whose exponent is stored as 1023
ZERO = np.uint32(max(0, int(L0)))  # phase that the bits of 0.0 give
INFINITY = np.int32(0x7F800000)  # bits of it; those of NaN are above
ONE = np.uint64(1 << 40)
OFFSETS = np.uint64((1 << 40) - 1)
# "reassoc" lets the compiler add several numbers at a time; nothing here adds floats in an order that matters
jit = numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"})

Array = NDArray[Any]


def magnitudes(rows: Tensor, orders: int, *, centre: bool, zeros: Zeros, offsets: Tensor | None = None) -> Tensor:
    """Returns |â_n| of float32 rows, or of their entries at `offsets`, as float32 (rows, orders)."""
    values = rows.detach().numpy()
    places = np.empty(0, np.int64) if offsets is None else offsets.numpy()
    entries = rows.shape[1] if offsets is None else len(places)
    out = np.empty((len(values), orders), np.float32)
    table = _table(_bins(entries, orders), orders)
    chunks = iter(range(0, len(values), CHUNK))  # shared: each thread takes the next chunk until none is left

    def fill() -> None:
        for first in chunks:
            last = min(first + CHUNK, len(values))
            _row_range(first, last, values, places, centre, RULES[zeros], table, out)

    helpers = min(_threads(), math.ceil(len(values) * entries / SHARED)) - 1
    others = [_pool(helpers).submit(fill) for _ in range(helpers)]
    fill()
    for other in others:
        if not other.cancel():  # it had begun
            other.result()
    return torch.from_numpy(out)


def _bins(entries: int, orders: int) -> int:
    """The least power of two that keeps the error below a tenth of ½√(π/M); 0 to sum phasors one by one."""
    # rounding takes 1e-7 turns of each phase and 4e-6 of the sums; the rest is left to the bins, ½(πn/bins)²
    limit = 0.05 * math.sqrt(math.pi / entries) - (2 * math.pi * orders * 1e-7 + 4e-6)
    if entries <= SHORT or limit <= 0:
        return 0
    bins = 1 << max(10, math.ceil(math.log2(math.pi * orders / math.sqrt(2 * limit))))
    return 0 if bins * 4 * orders > LARGEST_TABLE else bins


@lru_cache(16)
def _table(bins: int, orders: int) -> Array:
    """Phasors at the centres of bins: float32 (2·orders, bins), cosines before sines."""
    n, centres = np.arange(1, orders + 1)[:, None], (np.arange(bins) + 0.5) / max(1, bins)
    phasors = np.exp(-2j * np.pi * centres * n)
    return np.concatenate([phasors.real, phasors.imag]).astype(np.float32)


_is_forked_child = False


def _use_one_thread() -> None:
    """Called in a forked child, which has none of the pool's threads."""
    global _is_forked_child
    _is_forked_child = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_use_one_thread)


def _threads() -> int:
    return 1 if _is_forked_child else torch.get_num_threads()


@lru_cache(4)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="benfourier-kernel")


@jit
def _mean(x, exponent):
    """Mean of entries below 2^exponent, off by at most 2^(exponent−56); a constant row gives its value exactly.

    The sum is one of integers: it is the same in any order, for up to 2^30 entries.
    """
    scale = math.ldexp(1.0, 56 - exponent)
    high = low = np.int64(0)
    for value in x:
        fixed = np.int64(np.float64(value) * scale)
        high += fixed >> 24
        low += fixed & 0xFFFFFF
    return (np.float64(high) * 2.0**24 + np.float64(low)) / len(x) / scale


@jit
def _to_phases(x, mean, centred, bits, phase):
    """Writes the phases of up to BLOCK entries of x − mean; returns how many of them are zero."""
    zeros = 0
    for i in range(len(x)):
        centred[i] = np.float64(x[i]) - mean  # in float64: nothing is subnormal or overflows
    for i in range(len(x)):
        word = bits[i] + np.uint64(1 << 28)  # rounds the mantissa to 23 bits
        m = np.float32(np.int32((word >> np.uint64(29)) & np.uint64(0x7FFFFF))) * np.float32(2.0**-23)
        log = L0 + m * (L1 + m * (L2 + m * (L3 + m * (L4 + m * (L5 + m * (L6 + m * (L7 + m * L8)))))))
        exponent = np.uint32((word >> np.uint64(52)) & np.uint64(0x7FF))
        # numba widens uint32 arithmetic to 64 bits: narrow it before it is used as an index
        phase[i] = np.uint32(np.uint32(exponent * OCTAVE) + np.uint32(np.int32(max(log, np.float32(0)))))
        zeros += centred[i] == 0
    return zeros


@jit
def _count(x, mean, shift, work, number, offset):
    """Adds the entries of x − mean to the counts of bins and their sums of offsets; returns how many are zero."""
    centred, bits, phase, counters = work
    low = np.uint32((1 << shift) - 1)
    zeros = 0
    counters[:] = 0
    for start in range(0, len(x), BLOCK):
        n = min(BLOCK, len(x) - start)
        zeros += _to_phases(x[start : start + n], mean, centred, bits, phase)
        for p in phase[:n]:
            counters[p >> shift] += ONE + np.uint64(p & low)
    counters[ZERO >> shift] -= np.uint64(zeros) * (ONE + np.uint64(ZERO & low))
    for k in range(len(number)):
        number[k] += np.int64(counters[k] >> np.uint64(40))
        offset[k] += np.int64(counters[k] & OFFSETS)
    return zeros


@jit
def _add_bins(number, offset, table, sums):
    """Adds the phasors of counted entries to the sums; float32, whose rounding is far below the bound."""
    bins, orders = len(number), len(sums) // 2
    weight, turns = np.empty(bins, np.float32), np.empty(bins, np.float32)
    for k in range(bins):
        weight[k] = number[k]
        turns[k] = offset[k] * 2.0**-32 - number[k] * (0.5 / bins)  # offsets count from the start of a bin
    for n in range(orders):
        cosine, sine, slope = table[n], table[orders + n], 2 * math.pi * (n + 1)
        a = b = c = d = np.float32(0)
        for k in range(bins):
            a += weight[k] * cosine[k]
            b += weight[k] * sine[k]
            c += turns[k] * cosine[k]
            d += turns[k] * sine[k]
        sums[n] += a + slope * d  # the slope of exp(−j2πn·t) is −j2πn times it
        sums[orders + n] += b - slope * c


@jit
def _add_phasors(x, mean, work, sums):
    """Adds the phasors of x − mean to the sums one by one; returns how many entries are zero."""
    centred, bits, phase, _ = work
    orders = len(sums) // 2
    cosine, sine, a, b = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    zeros = 0
    for start in range(0, len(x), BLOCK):
        n = min(BLOCK, len(x) - start)
        zeros += _to_phases(x[start : start + n], mean, centred, bits, phase)
        for i in range(n):
            angle = phase[i] * (-2 * math.pi * 2.0**-32)
            cosine[i], sine[i] = math.cos(angle), math.sin(angle)
            a[i], b[i] = (cosine[i], sine[i]) if centred[i] != 0 else (0.0, 0.0)
        for order in range(orders):
            real = imaginary = 0.0
            for i in range(n):
                real += a[i]
                imaginary += b[i]
                a[i], b[i] = a[i] * cosine[i] - b[i] * sine[i], a[i] * sine[i] + b[i] * cosine[i]
            sums[order] += real
            sums[orders + order] += imaginary
    return zeros


@jit
def _finish(sums, entries, zeros, rule, out):
    """Writes magnitudes from the sums of phasors of all entries but zeros."""
    orders = len(out)
    if rule == 2:  # a zero counts as the phasor 1
        for n in range(orders):
            angle = -2 * math.pi * (np.uint32((n + 1) * ORIGIN) * 2.0**-32)
            sums[n] += zeros * math.cos(angle)
            sums[orders + n] += zeros * math.sin(angle)
    total = entries - zeros if rule == 0 else entries
    for n in range(orders):
        out[n] = math.sqrt(sums[n] ** 2 + sums[orders + n] ** 2) / total if total else 0.0


@jit
def _row_range(first, last, rows, places, centre, rule, table, out):
    """Writes |â_n| of rows first to last; a row with NaN or infinity gives NaN."""
    bins, orders = table.shape[1], out.shape[1]
    shift = np.uint32(32)
    for _ in range(round(math.log2(max(1, bins)))):
        shift -= np.uint32(1)
    centred = np.empty(BLOCK)
    work = (centred, centred.view(np.uint64), np.empty(BLOCK, np.uint32), np.empty(bins, np.uint64))
    number, offset, sums = np.empty(bins, np.int64), np.empty(bins, np.int64), np.empty(2 * orders)
    sample = np.empty(len(places), np.float32)
    for r in range(first, last):
        x = rows[r]
        if len(places):
            for i in range(len(places)):
                sample[i] = x[places[i]]
            x = sample
        largest = np.int32(0)
        for word in x.view(np.int32):  # without their sign, the bits of floats are in the order of the floats
            largest = max(largest, word & np.int32(0x7FFFFFFF))
        if largest >= INFINITY:
            out[r] = np.nan
            continue
        mean = _mean(x, (largest >> 23) - 126) if centre else 0.0
        sums[:] = 0
        zeros = 0
        if bins == 0:
            zeros = _add_phasors(x, mean, work, sums)
        else:
            number[:] = 0
            offset[:] = 0
            for start in range(0, len(x), FLUSH):
                zeros += _count(x[start : start + FLUSH], mean, shift, work, number, offset)
            _add_bins(number, offset, table, sums)
        _finish(sums, len(x), zeros, rule, out[r])


class _CompileNotice(event.Listener):
    """Says on standard error that the kernel compiles; the result is stored, so that it happens once."""

    def on_start(self, event: event.Event) -> None:
        # processes of a pool compile side by side: one notice each would tell nothing more
        if event.data["dispatcher"] is _row_range and multiprocessing.parent_process() is None:
            sys.stderr.write("compiling the kernel once, about 4 seconds\n")

    def on_end(self, event: event.Event) -> None:
        """Says nothing more."""


event.register("numba:compile", _CompileNotice())  # it is triggered only where no stored result fits
