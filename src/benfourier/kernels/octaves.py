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

from benfourier.kernels.counting import count_row
from benfourier.kernels.lanes import COUNT_SHIFT, ROWS, WORD_SHIFT
from benfourier.kernels.phasors import BIAS, add_few
from benfourier.kernels.rows import add_atom, finish, inlined, jit
from benfourier.kernels.weights import ABREAST, MARGIN, WAVES, counted, mix, settle, settle_words, unpack, weigh

PIECE = 1 << 16  # entries after which counters are emptied
USUAL = 128  # bins per octave
OCTAVE = 1 << (23 - WORD_SHIFT)  # words in an octave

Table = NDArray[np.float32]


def bins_for(length: int, orders: int) -> int:
    """Bins per octave: enough for the orders, more for long rows, which hardly feel it and may then be rougher."""
    return (64 if length <= 1 << 15 else 128) * _blocks_for(orders)


def _blocks_for(orders: int) -> int:
    """Blocks per octave: half an octave of 16 orders is smooth enough for WAVES waves."""
    return 2 << max(0, math.ceil(math.log2(orders / 16)))


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
    phasors = np.stack([average * np.cos(angle), average * np.sin(angle)], axis=1).reshape(
        _blocks_for(orders), -1, 2 * padded
    )
    basis = np.linalg.svd(phasors, full_matrices=False)[2][:, :WAVES]  # (blocks, waves, 2 · orders)
    waves = phasors @ basis.transpose(0, 2, 1)
    shares = basis.reshape(-1, WAVES, 2, padded // 16, 16).transpose(3, 0, 1, 2, 4)  # (groups, blocks, waves, 2, 16)
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
def kept_octaves(length):
    """Octaves kept side by side: all of a row that is counted in pieces."""
    return ROWS + 1 if length > PIECE else 1


@jit
def _count(word):
    return np.float32(word >> np.uint32(COUNT_SHIFT))


@jit
def _rest(word):
    return np.float32(word & np.uint32((1 << COUNT_SHIFT) - 1))


@jit
def _settle_edge(count, rest, width, weights, edge, inwards):
    """Moves the offset of an outermost bin, which has a neighbour on one side only, to the next two."""
    offset = (rest + np.float32(0.5) * count) / width - np.float32(0.5) * count
    weights[edge] -= np.float32(1.5) * offset * inwards
    weights[edge + inwards] += np.float32(1.5) * offset * inwards
    weights[edge + 2 * inwards] -= np.float32(0.5) * offset * inwards


@inlined
def _settle_octave(row, bins, step, desk, to):
    """Writes the weights of an octave's bins; returns the squared second differences of its counts."""
    counts, rests, weights, width = desk.counts, desk.rests, desk.weights, np.float32(OCTAVE // bins)
    if step:
        first, last = MARGIN + row * step, MARGIN + row * step + bins - 1
        ends = counts[first], rests[first], counts[last], rests[last]
        squares = settle(counts, rests, first, bins, width, weights, to)
    else:
        lowest, highest = desk.counters[row * bins], desk.counters[(row + 1) * bins - 1]
        ends = _count(lowest), _rest(lowest), _count(highest), _rest(highest)
        squares = settle_words(desk.counters, row * bins, bins, width, weights, to)
    _settle_edge(ends[0], ends[1], width, weights, to, 1)
    _settle_edge(ends[2], ends[3], width, weights, to + bins - 1, -1)
    return squares


@inlined
def _add_octaves(bins, tables, desk):
    """Adds the phasors of the ABREAST octaves whose weights are on the desk."""
    waves, shares, turns = tables
    groups = len(turns) // (32 * ROWS)
    count = len(shares) // (32 * groups)  # parts of an octave
    size = bins * WAVES // count
    for block in range(count // WAVES):
        start = block * size
        weigh(desk.weights, start, bins, waves, start * WAVES, size, desk.parts, block * WAVES, count)
    for group in range(groups):
        place = group * count * 32
        mix(desk.parts, count, shares, place, turns, group * 32, groups * 32, desk.abreast, desk.phasors, group * 32)


@inlined
def _sum_octaves(bins, step, tables, desk):
    """Adds every octave's phasors; returns the sum of the squared second differences of the counts.

    Octaves lie step apart, or are taken from the counters if step is 0.
    """
    found, squares, abreast = desk.found, 0.0, 0
    for row in range(ROWS + 1):
        if not step:
            found[row] += counted(desk.counters, row * bins, bins)
        if 0 < row < ROWS and found[row]:
            squares += _settle_octave(row, bins, step, desk, abreast * bins)
            desk.abreast[abreast] = row
            abreast += 1
        elif not step and found[row]:
            desk.counters[row * bins : (row + 1) * bins] = 0
        if abreast == ABREAST or (row == ROWS and abreast):
            if abreast < ABREAST:
                desk.weights[abreast * bins :] = 0
            _add_octaves(bins, tables, desk)
            abreast = 0
    return squares


@inlined
def magnitudes_of_row(x, mean, base, bins, tables, roughest, policy, desk, atoms, out):
    """Writes |â_n| of one row, unless it is too rough or too many entries are too small.

    Atoms are what `repeats` took out of the row: how many values, and where they are noted.
    """
    length, found, sums = len(x), desk.found, desk.phasors
    step = bins + 2 * MARGIN if length > PIECE else 0
    found[:], sums[:] = 0, 0
    for start in range(0, length, PIECE):
        found[ROWS] += count_row(x, start, min(start + PIECE, length), mean, base, bins, desk)
        if step:
            for row in range(ROWS + 1):
                to = MARGIN + row * step
                found[row] += unpack(desk.counters, row * bins, bins, desk.counts, desk.rests, to, start == 0)
    # the usual case once more, with numbers that the compiler knows
    usual = bins == USUAL and not step
    squares = _sum_octaves(USUAL, 0, tables, desk) if usual else _sum_octaves(bins, step, tables, desk)
    zeros, small = np.float64(found[ROWS]), found[0]
    entries = length - zeros - small
    if found.sum() != length:  # a word overflowed: what is left of it may look empty
        desk.counters[:] = 0
        return
    # entries too small could each be off by 2/M, together by a fifth of a tenth of the floor
    if small * 100 > math.sqrt(length) or squares > 6 * roughest * entries:
        return
    real, imaginary = desk.real[: len(out)], desk.imaginary[: len(out)]
    for n in range(len(out)):
        real[n], imaginary[n] = sums[n // 16 * 32 + n % 16], sums[n // 16 * 32 + 16 + n % 16]
    # counted phases are log10|r| + BIAS, from the exponent of base
    origin = BIAS - (base >> 23) * math.log10(2.0)
    number, few = atoms
    ties = 0.0
    if number > 0:
        weight, more, ties = add_few(few, number, mean, origin, real, imaginary)
        entries, zeros = entries + weight, zeros + more
    if mean != 0.0:
        if zeros > 0:
            add_atom(real, imaginary, zeros, math.log10(abs(mean)) + origin)
        entries, zeros = entries + zeros, 0.0
    finish(real, imaginary, entries, zeros + ties, origin, policy, out)
