"""Entries of a float32 row counted by their bits, a batch at a time: places are found first, then counted."""

import math

import numpy as np

from benfourier.kernels.desk import BATCH
from benfourier.kernels.lanes import LANES, ROWS, SCALE, WORD_SHIFT, fetch, octave_words, tally
from benfourier.kernels.packing import pack
from benfourier.kernels.rows import inlined, jit, last_lanes

SEEN = 64  # entries by which it is guessed if many are zero


@jit
def _count_filled(x, start, stop, high, low, base, shift, desk):
    """Adds the entries that are not zero; returns how many are."""
    packed, places, words = desk.packed, desk.places, desk.words
    kept = filled = 0
    for i in range(start, stop, LANES):
        if i + LANES <= stop:
            kept += pack(x, i, packed, kept)
            fetch(x, i - len(x))
        else:
            kept += pack(last_lanes(x[:stop]), 0, packed, kept)
        if kept >= BATCH:
            for j in range(0, BATCH, LANES):
                octave_words(packed, j, high, low, base, shift, places, words, j)
            for j in range(0, BATCH, LANES):
                tally(places, words, j, desk.counters)
            for k in range(LANES):
                packed[k] = packed[BATCH + k]
            kept -= BATCH
            filled += BATCH
    packed[kept : kept + LANES] = 0
    for j in range(0, kept, LANES):
        octave_words(packed, j, high, low, base, shift, places, words, j)
    words[kept : kept + LANES] = 0
    for j in range(0, kept, LANES):
        tally(places, words, j, desk.counters)
    return stop - start - filled - kept


@inlined
def _count_all(x, start, stop, high, low, base, shift, desk):
    """Adds every entry, zeros in a row of their own."""
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


@inlined
def count_row(x, start, stop, mean, base, bins, desk):
    """Adds every entry of x[start:stop] to the desk's counters; start is a multiple of LANES.

    Returns how many zeros were left out: all, where they seem many.
    """
    high = np.float32(mean)
    low = np.float32((mean - np.float64(high)) * np.float64(SCALE))
    high *= SCALE
    shift = np.uint32(23 - WORD_SHIFT - round(math.log2(bins)))
    zeros = 0
    for i in range(start, min(start + SEEN, stop)):
        zeros += x[i] == 0
    if 4 * zeros > SEEN:
        zeros = _count_filled(x, start, stop, high, low, base, shift, desk)
    else:
        zeros = 0
        _count_all(x, start, stop, high, low, base, shift, desk)
    return zeros


@inlined
def base_of(peaks, mean):
    """Bits of the least entry that is counted: ROWS − 1 octaves below the largest that centring can leave."""
    largest = (np.float64(peaks.view(np.float32).max()) + abs(mean)) * np.float64(SCALE)
    return np.int32(max(math.frexp(largest)[1] + 126 - (ROWS - 1), 0) << 23)
