"""|â_n| of one row by counting the float's own bits: one row of bins for each octave.

Exponent and leading bits of the mantissa of a centred float32 entry index a counter; the bits left over, to 1/OCTAVE of
an octave, are summed in the same 32-bit word. Bins times phasors, with the in-bin offset to first order, give the sum
of each octave; octaves are turned by log10 2 and added. It is quicker than the circle, whose polynomial it does
without, but bins are coarser:

Error: with D = πn/(ln 10·bins) the phasor of an entry is off by up to D²/3, and on average over a bin by nothing.
Where entries spread evenly inside their bins these errors are independent and have a deviation of 0.15·D². Offsets are
moved to the bins above and below instead of being weighed themselves, which adds one of 0.39·D³. At 128 bins and order
16 both make an eighteenth of a tenth of the noise floor. Lumps narrower than a bin (atoms of equal entries,
or a bulk that an outlier has pushed far from the mean) would not average out. They show as roughness: the squared
second differences of the counts, over six times the counts, are 1 for an even spread and grow with the lumps, and the
deviation grows with their root. Rows too rough for eight deviations to stay within the bound are left to the circle,
and so are rows with entries far below the largest, and rows with so many entries in one bin that its word overflows.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from benfourier.kernels.desk import BATCH
from benfourier.kernels.lanes import LANES, ROWS, SCALE, WORD_SHIFT, fetch, octave_words, tally
from benfourier.kernels.rows import add_atom, finish, jit, last_lanes
from benfourier.kernels.weights import BLOCK, MARGIN, WAVES, mix, settle, unpack, weigh

PIECE = 1 << 16  # entries after which counters are emptied
OCTAVE = 1 << (23 - WORD_SHIFT)  # words in an octave
BIAS = math.log10(2) * (127 + 24)  # log10 of SCALE and of the float32 exponent's bias

Table = NDArray[np.float32]


def bins_for(length: int, orders: int) -> int:
    """Bins per octave: enough for the orders, more for long rows, which hardly feel it and may then be rougher."""
    least = 128 if length <= 1 << 15 else 256
    return least << max(0, math.ceil(math.log2(orders / 16)))


def roughness_for(bins: int, orders: int) -> float:
    """The roughness at which eight deviations of the error reach a tenth of the noise floor, 0.05·√(π/M)."""
    half = math.pi * orders / (math.log(10) * bins)
    deviation = math.hypot(0.15 * half**2, 0.39 * half**3)
    return (0.05 * math.sqrt(math.pi) / (8 * deviation)) ** 2


@lru_cache(maxsize=64)
def tables_for(bins: int, orders: int) -> tuple[Table, Table, Table]:
    """Waves of each bin, shares of each block's waves in the orders, turns of the octaves."""
    padded = -(-orders // 16) * 16
    order = np.arange(1, padded + 1) * (np.arange(padded) < orders)
    middle = 1 + (np.arange(bins)[:, None] + 0.5) / bins
    angle = 2 * np.pi * order * np.log10(middle)
    average = np.sinc(order / math.log(10) / (bins * middle))  # of a phasor over its bin
    phasors = np.stack([average * np.cos(angle), average * np.sin(angle)], axis=1).reshape(-1, BLOCK, 2 * padded)
    basis = np.linalg.svd(phasors, full_matrices=False)[2][:, :WAVES]  # (blocks, waves, 2 · orders)
    waves = phasors @ basis.transpose(0, 2, 1)
    shares = basis.reshape(-1, WAVES, 2, padded // 16, 16).transpose(0, 3, 1, 2, 4)  # (blocks, groups, waves, 2, 16)
    turn = -2 * np.pi * ((np.arange(ROWS)[:, None] * math.log10(2) * order) % 1)
    turns = np.stack([np.cos(turn), np.sin(turn)], axis=1).reshape(ROWS, 2, -1, 16).transpose(0, 2, 1, 3)
    return _aligned(waves), _aligned(shares), _aligned(turns)


def _aligned(table: NDArray[np.float64]) -> Table:
    """The table in a row, its vectors in one cache line each."""
    spare = np.empty(table.size + 16, np.float32)
    start = -spare.ctypes.data % 64 // 4
    spare[start : start + table.size] = table.ravel()
    return spare[start : start + table.size]


@jit
def count_row(x, start, stop, mean, base, bins, desk):
    """Adds every entry of x[start:stop] to the desk's counters; start is a multiple of LANES."""
    high = np.float32(mean)
    low = np.float32((mean - np.float64(high)) * np.float64(SCALE))
    high *= SCALE
    shift = np.uint32(23 - WORD_SHIFT - round(math.log2(bins)))
    places, words = desk.places, desk.words
    for i in range(start, stop, BATCH):
        number = min(BATCH, stop - i)
        whole = number - number % LANES
        for j in range(0, whole, LANES):
            octave_words(x, i + j, high, low, base, shift, places, words, j)
            fetch(x, i + j - len(x))  # the row before, which is next: counting leaves the memory idle
        if whole < number:
            octave_words(last_lanes(x), 0, high, low, base, shift, places, words, whole)
            words[number : whole + LANES] = 0
        for j in range(0, number, LANES):
            tally(places, words, j, desk.counters)


@jit
def base_of(peaks, mean):
    """Bits of the least entry that is counted: ROWS − 1 octaves below the largest that centring can leave."""
    largest = (np.float64(peaks.view(np.float32).max()) + abs(mean)) * np.float64(SCALE)
    return np.int32(max(math.frexp(largest)[1] + 126 - (ROWS - 1), 0) << 23)


@jit
def kept_octaves(length):
    """Octaves kept side by side: all of a row that is counted in pieces."""
    return ROWS + 1 if length > PIECE else 1


@jit
def _settle_edge(counts, rests, at, width, weights, edge, inwards):
    """Moves the offset of an outermost bin, which has a neighbour on one side only, to the next two."""
    offset = (rests[at] + np.float32(0.5) * counts[at]) / width - np.float32(0.5) * counts[at]
    weights[edge] -= np.float32(1.5) * offset * inwards
    weights[edge + inwards] += np.float32(1.5) * offset * inwards
    weights[edge + 2 * inwards] -= np.float32(0.5) * offset * inwards


@jit
def _sum_octaves(bins, step, tables, desk):
    """Adds every octave's phasors; returns the sum of the squared second differences of the counts.

    Octaves lie step apart, or are taken from the counters one by one if step is 0.
    """
    waves, shares, turns = tables
    counts, rests, weights, parts, found = desk.counts, desk.rests, desk.weights, desk.parts, desk.found
    groups = len(turns) // (32 * ROWS)
    width = np.float32(OCTAVE // bins)
    squares = 0.0
    for row in range(ROWS + 1):
        first = MARGIN + row * step
        if not step:
            found[row] = unpack(desk.counters, row * bins, bins, counts, rests, first, True)
        if row == 0 or row == ROWS or found[row] == 0:
            continue
        squares += settle(counts, rests, first, bins, width, weights)
        _settle_edge(counts, rests, first, width, weights, 0, 1)
        _settle_edge(counts, rests, first + bins - 1, width, weights, bins - 1, -1)
        for block in range(bins // BLOCK):
            weigh(weights, block * BLOCK, waves, block * BLOCK * WAVES, parts)
            for group in range(groups):
                share = (block * groups + group) * WAVES * 32
                mix(parts, shares, share, turns, (row * groups + group) * 32, desk.phasors, group * 32)
    return squares


@jit
def magnitudes_of_row(x, mean, base, bins, tables, roughest, policy, desk, out):
    """Writes |â_n| of one row, unless it is too rough or too many entries are too small."""
    length, found, sums = len(x), desk.found, desk.phasors
    step = bins + 2 * MARGIN if length > PIECE else 0
    found[:], sums[:] = 0, 0
    for start in range(0, length, PIECE):
        count_row(x, start, min(start + PIECE, length), mean, base, bins, desk)
        if step:
            for row in range(ROWS + 1):
                to = MARGIN + row * step
                found[row] += unpack(desk.counters, row * bins, bins, desk.counts, desk.rests, to, start == 0)
    squares = _sum_octaves(bins, step, tables, desk)
    zeros, small = np.float64(found[ROWS]), found[0]
    entries = length - zeros - small
    # entries too small could each be off by 2/M, together by a fifth of a tenth of the floor
    if found.sum() != length or small * 100 > math.sqrt(length) or squares > 6 * roughest * entries:
        return
    real, imaginary = desk.real[: len(out)], desk.imaginary[: len(out)]
    for n in range(len(out)):
        real[n], imaginary[n] = sums[n // 16 * 32 + n % 16], sums[n // 16 * 32 + 16 + n % 16]
    # counted phases are log10|r| + BIAS, from the exponent of base
    origin = BIAS - (base >> 23) * math.log10(2.0)
    if mean != 0.0:
        if zeros > 0:
            add_atom(real, imaginary, zeros, math.log10(abs(mean)) + origin)
        entries, zeros = entries + zeros, 0.0
    finish(real, imaginary, entries, zeros, origin, policy, out)
