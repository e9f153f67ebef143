"""|â_n| of one row by counting the float's own bits: one row of bins for each octave.

Exponent and leading bits of the mantissa of a centred float32 entry index a counter, the bits left over are summed in
the same 64-bit word. Bins times phasors, with the in-bin offset to first order, give the sum of each octave; octaves
are turned by log10 2 and added. It is quicker than the circle, whose polynomial it does without, but bins are coarser:

Error: with D = πn/(ln 10·bins) the phasor of an entry is off by up to D²/3, and on average over a bin by nothing.
Where entries spread evenly inside their bins these errors are independent and have a deviation of 0.15·D²; at 128
bins and order 16 that is a twentieth of a tenth of the noise floor. Lumps narrower than a bin (atoms of equal entries,
or a bulk that an outlier has pushed far from the mean) would not average out. They show as roughness: the squared
second differences of the counts, over six times the counts, are 1 for an even spread and grow with the lumps, and the
deviation grows with their root. Rows too rough for eight deviations to stay within the bound are left to the circle,
and so are rows with entries far below the largest.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from benfourier.kernels.lanes import LANES, ROWS, SCALE, WORD_SHIFT, fetch, octave_words, weigh
from benfourier.kernels.rows import add_atom, apart, finish, jit, last_lanes, summing

COUNT_SHIFT = np.uint64(40)  # words are below 2^18, so 2^22 of them leave room for their count
UNIT = np.uint64(1 << 40)
OCTAVE = 1 << (23 - WORD_SHIFT)  # words in an octave
BIAS = math.log10(2) * (127 + 24)  # log10 of SCALE and of the float32 exponent's bias


def bins_for(length: int, orders: int) -> int:
    """Bins per octave: enough for the orders, more for long rows, which hardly feel it and may then be rougher."""
    least = 128 if length <= 1 << 15 else 256
    return least << max(0, math.ceil(math.log2(orders / 16)))


def roughness_for(bins: int, orders: int) -> float:
    """The roughness at which eight deviations of the error reach a tenth of the noise floor, 0.05·√(π/M)."""
    deviation = 0.15 * (math.pi * orders / (math.log(10) * bins)) ** 2
    return (0.05 * math.sqrt(math.pi) / (8 * deviation)) ** 2


@lru_cache(maxsize=64)
def table_for(bins: int, orders: int) -> NDArray[np.float32]:
    """16 cosines and 16 sines per bin for each group of 16 orders, in-bin average included."""
    order = np.arange(1, -(-orders // 16) * 16 + 1)
    middle = 1 + (np.arange(bins) + 0.5) / bins
    angle = 2 * np.pi * order * np.log10(middle)[:, None]  # (bins, orders)
    half = np.pi * order / math.log(10) / (bins * middle[:, None])
    average = np.sinc(half / np.pi)
    waves = np.stack([average * np.cos(angle), average * np.sin(angle)], axis=1)  # (bins, 2, orders)
    groups = waves.reshape(bins, 2, -1, 16).transpose(2, 0, 1, 3)  # (groups, bins, 2, 16)
    return np.ascontiguousarray(groups, np.float32).ravel()


@lru_cache(maxsize=64)
def turns_for(orders: int) -> NDArray[np.float32]:
    """Real and imaginary parts of e^{−2πj·n·row·log10 2}, and slopes 2πn/ln 10: 16 each, by row and group of orders."""
    order = np.arange(1, -(-orders // 16) * 16 + 1)
    angle = -2 * np.pi * ((np.arange(ROWS)[:, None] * math.log10(2) * order) % 1)
    slope = np.broadcast_to(2 * np.pi * order / math.log(10), angle.shape)
    vectors = np.stack([np.cos(angle), np.sin(angle), slope], axis=1)  # (rows, 3, orders)
    return np.ascontiguousarray(vectors.reshape(ROWS, 3, -1, 16).transpose(0, 2, 1, 3), np.float32).ravel()


@lru_cache(maxsize=8)
def inverses_for(bins: int) -> NDArray[np.float32]:
    """1/mantissa at the middle of each bin, per word."""
    return (1 / (OCTAVE * (1 + (np.arange(bins) + 0.5) / bins))).astype(np.float32)


@jit
def count_row(x, mean, base, bins, counters):
    """Adds every entry to counters, (ROWS + 1) · bins words."""
    high = np.float32(mean)
    low = np.float32((mean - np.float64(high)) * np.float64(SCALE))
    high *= SCALE
    shift = np.uint32(23 - WORD_SHIFT - round(math.log2(bins)))
    buffer = apart(2 * LANES, np.uint32)
    buffer[:] = ROWS * OCTAVE
    at = 0
    # words of one block are made while those of the block before are counted
    for i in range(0, len(x) - LANES + 1, LANES):
        octave_words(x, i, high, low, base, buffer, at)
        fetch(x, i + len(x))  # the next row's: counting leaves the memory idle
        at = LANES - at
        for k in range(LANES):
            word = buffer[np.uint64(at + k)]
            counters[word >> shift] += UNIT | np.uint64(word)
    at = LANES - at
    for k in range(LANES):
        word = buffer[np.uint64(at + k)]
        counters[word >> shift] += UNIT | np.uint64(word)
    if len(x) % LANES:
        octave_words(last_lanes(x), 0, high, low, base, buffer, 0)
        for k in range(len(x) % LANES):
            word = buffer[np.uint64(k)]
            counters[word >> shift] += UNIT | np.uint64(word)


@jit
def base_of(peaks, mean):
    """Bits of the least entry that is counted: ROWS − 1 octaves below the largest that centring can leave."""
    largest = (np.float64(peaks.view(np.float32).max()) + abs(mean)) * np.float64(SCALE)
    return np.int32(max(math.frexp(largest)[1] + 126 - (ROWS - 1), 0) << 23)


@summing
def _unpack(counters, row, inverses, counts, offsets):
    """Writes counts and offsets, relative to the mantissa, of one octave; returns how many entries it holds."""
    bins = len(inverses)
    width = np.float64(OCTAVE // bins)
    start = np.float64(row) * OCTAVE + 0.5 * width - 0.5  # words were truncated: half a unit is added back
    first = np.uint64(row) * np.uint64(bins)
    mask = UNIT - np.uint64(1)
    entries = 0.0
    for k in range(bins):
        word = counters[first + np.uint64(k)]
        count = np.float64(np.int64(word >> COUNT_SHIFT))
        total = np.float64(np.int64(word & mask))
        entries += count
        counts[k] = np.float32(count)
        offsets[k] = np.float32(total - count * (start + np.float64(k) * width)) * inverses[k]
    return entries


@summing
def _roughness(counts):
    """Sum of the squared second differences of the counts."""
    squares = np.float32(0)
    for k in range(np.uint64(len(counts) - 2)):
        middle, right = counts[k + np.uint64(1)], counts[k + np.uint64(2)]
        difference = counts[k] - middle - middle + right
        squares += difference * difference
    return squares


@jit
def spectrum(counters, length, mean, base, tables, roughest, policy, out):
    """Writes |â_n| of one row from its counters, unless they are too rough or too many entries too small to count."""
    table, turns, inverses = tables
    bins = len(inverses)
    groups = len(turns) // (48 * ROWS)
    counts, offsets = apart(bins, np.float32), apart(bins, np.float32)
    sums = apart(groups * 32, np.float32)
    sums[:] = 0
    small = _unpack(counters, 0, inverses, counts, offsets)
    if small * 100 > math.sqrt(length):  # each could be off by 2/M, together by a fifth of a tenth of the floor
        return
    entries, squares = 0.0, 0.0
    for row in range(1, ROWS):
        found = _unpack(counters, row, inverses, counts, offsets)
        if found > 0:
            entries += found
            squares += _roughness(counts)
            for group in range(groups):
                turn = (row * groups + group) * 48
                weigh(counts, offsets, bins, table, group * bins * 32, turns, turn, sums, group * 32)
    if squares > 6 * roughest * entries:
        return
    real, imaginary = np.empty(len(out)), np.empty(len(out))
    for n in range(len(out)):
        real[n], imaginary[n] = sums[n // 16 * 32 + n % 16], sums[n // 16 * 32 + 16 + n % 16]
    zeros = length - entries - small
    # counted phases are log10|r| + BIAS, from the exponent of base
    origin = BIAS - (base >> 23) * math.log10(2.0)
    if mean != 0.0:
        if zeros > 0:
            add_atom(real, imaginary, zeros, math.log10(abs(mean)) + origin)
        entries, zeros = entries + zeros, 0.0
    finish(real, imaginary, entries, zeros, origin, policy, out)
