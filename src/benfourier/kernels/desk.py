"""What one thread writes on while it counts rows, laid out once for many rows."""

from collections import namedtuple

import numpy as np

from benfourier.kernels.lanes import LANES, ROWS
from benfourier.kernels.rows import apart, jit
from benfourier.kernels.team import lent
from benfourier.kernels.weights import ABREAST, MARGIN

BATCH = 256  # entries whose places are found before they are counted
Desk = namedtuple(
    "Desk", "sums peaks places words packed counters counts rests weights parts abreast phasors found real imaginary"
)


@jit
def _cut(space, start, count, kind):
    return lent(space[start : start + count].view(kind))


@jit
def space_for(bins, octaves, orders):
    """The memory behind a desk, in bytes; it must outlive the desk."""
    numbers = (ROWS + 1) * bins + 2 * octaves * (bins + 2 * MARGIN) + ABREAST * (bins + bins // 4) + 2 * orders + 1024
    space = apart(4 * numbers + 16 * orders + 12 * BATCH + 2048, np.uint8)
    space[:] = 0
    return space


@jit
def desk_on(space, bins, octaves, orders):
    """A desk whose counters, counts and margins are zero: arrays that begin a cache line each.

    Args:
        space: from `space_for`, with the same numbers.
        bins: per octave.
        octaves: how many are kept side by side.
        orders: number of orders.
    """
    at = 0
    sums = _cut(space, at, 64, np.float64)
    peaks = _cut(space, at + 64, 4 * LANES, np.uint32)
    abreast = _cut(space, at + 192, 8 * ABREAST, np.int64)
    found = _cut(space, at + 256, 256, np.int64)
    places = _cut(space, at + 512, 4 * BATCH, np.uint32)
    words = _cut(space, at + 512 + 4 * BATCH, 4 * (BATCH + LANES), np.uint32)
    at += 512 + 8 * BATCH + 4 * LANES
    packed = _cut(space, at, 4 * (BATCH + 3 * LANES), np.float32)  # pack writes up to LANES beyond what it keeps
    at += 4 * (BATCH + 3 * LANES)
    kept = 4 * octaves * (bins + 2 * MARGIN)
    counters = _cut(space, at, 4 * (ROWS + 1) * bins, np.uint32)
    at += 4 * (ROWS + 1) * bins
    counts, rests = _cut(space, at, kept, np.float32), _cut(space, at + kept, kept, np.float32)
    at += 2 * kept
    weights = _cut(space, at, 4 * ABREAST * bins, np.float32)
    at += 4 * ABREAST * bins
    parts = _cut(space, at, ABREAST * bins, np.float32)  # WAVES for every block, of 64 bins or more
    at += ABREAST * bins
    padded = (orders + 15) // 16 * 16
    phasors = _cut(space, at, 8 * padded, np.float32)
    at += 8 * padded
    real = _cut(space, at, 8 * padded, np.float64)
    imaginary = _cut(space, at + 8 * padded, 8 * padded, np.float64)
    kept = counts, rests, weights, parts, abreast, phasors, found, real, imaginary
    return Desk(sums, peaks, places, words, packed, counters, *kept)
