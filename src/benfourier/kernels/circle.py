"""|â_n| of one row by counting its phases on a circle of bins.

|â_n| needs only z = log10|r| mod 1 of each centred entry r. One pass finds the mean; a second one reads exponent and
mantissa of each r, turns them into z with one polynomial, and adds (1, z) to one of B counters: the count and the sum
of z share a 64-bit word, so both cost one addition. The counters times a table give all orders at once, with e^{jδ}
inside a bin replaced by A + jCδ. No log, sin or cos is taken per entry.

Error: with D = π·orders/B no entry's phasor is off by more than D²/4 + PHASE_ERROR·orders, whatever the data. The zeros
of a ReLU map form one atom at −mean after centring; it is counted apart and added exactly.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from benfourier.kernels.lanes import LANES, PHASE_BITS, SCALE, TIE, ZERO, phases
from benfourier.kernels.phasors import BIAS, add_few
from benfourier.kernels.rows import add_atom, apart, finish, jit, last_lanes, summing

PHASE_ERROR = 5e-7  # per order: polynomial, rounding and truncation of z, times 2π
MOST_BINS = 1 << 15
UNIT = np.uint64(1 << 44)  # a count of one in a counter's word; a word has room for 2^20 counts


@lru_cache(maxsize=1024)
def bins_for(length: int, orders: int) -> int:
    """Fewest bins that keep the error below a tenth of the noise floor, or 0 if no circle is fine enough."""
    room = 0.05 * math.sqrt(math.pi / length) - PHASE_ERROR * orders
    if room <= 0:
        return 0
    bins = 1 << max(6, math.ceil(math.log2(math.pi * orders / (2 * math.sqrt(room)))))
    return bins if bins <= MOST_BINS else 0


@lru_cache(maxsize=64)
def table_for(bins: int, orders: int) -> NDArray[np.float32]:
    """Quarter waves cos and sin of the odd multiples in each octave of orders, laid end to end."""
    waves = []
    period, octave = bins, 1
    while octave <= orders:
        angle = 2 * np.pi * np.arange(period // 4) / period
        for multiple in range(1, orders // octave + 1, 2):
            waves += [np.cos(multiple * angle), np.sin(multiple * angle)]
        period, octave = period // 2, octave * 2
    return np.concatenate(waves).astype(np.float32)


@jit
def count_row(x, mean, bins, counters):
    """Adds every entry to counters: 2·bins words, the upper half for zeros and ties."""
    high = np.float32(mean)
    low = np.float32((mean - np.float64(high)) * np.float64(SCALE))
    high *= SCALE
    shift = np.uint32(PHASE_BITS - round(math.log2(bins)))
    buffer = apart(2 * LANES, np.uint32)
    buffer[:] = ZERO
    at = 0
    # phases of one block are made while those of the block before are counted
    for i in range(0, len(x) - LANES + 1, LANES):
        phases(x, i, high, low, buffer, at)
        at = LANES - at
        for k in range(LANES):
            phase = buffer[np.uint64(at + k)]
            counters[phase >> shift] += UNIT | np.uint64(phase)
    at = LANES - at
    for k in range(LANES):
        phase = buffer[np.uint64(at + k)]
        counters[phase >> shift] += UNIT | np.uint64(phase)
    if len(x) % LANES:
        phases(last_lanes(x), 0, high, low, buffer, 0)
        for k in range(len(x) % LANES):
            phase = buffer[np.uint64(k)]
            counters[phase >> shift] += UNIT | np.uint64(phase)


@summing
def unpack(counters, bins, circle):
    """Adds counts to circle[:bins], offsets from bin centres (in bins) to circle[bins:]; returns entries and ties."""
    width = (1 << PHASE_BITS) // bins
    mask = UNIT - np.uint64(1)
    counts, offsets = circle[:bins], circle[bins:]
    entries, unit, middle = 0.0, 1.0 / width, 0.5 - 0.5 / width
    for b in range(bins):
        count = np.float64(np.int64(counters[b] >> np.uint64(44)))
        total = np.float64(np.int64(counters[b] & mask))
        entries += count
        counts[b] += np.float32(count)
        # phases were truncated to whole units: half a unit is added back
        offsets[b] += np.float32(total * unit - count * (np.float64(b) + middle))
    ties = np.int64(0)
    for place in range(8):
        ties += np.int64(counters[TIE // width + place * (bins // 8)] >> np.uint64(44))
    return np.int64(entries), ties


@jit
def _fold(circle, start, period, work, even, odd):
    """Folds circle[start : start + period] to work[even:] and work[odd:], a quarter each, for odd multiples.

    An odd multiple changes sign by half a period, so only the difference of the halves counts; mirrored about a quarter
    its cosine changes sign and its sine does not. The circle is left folded to half, for even multiples. Returns the
    difference at the quarter, where the mirror stands.
    """
    half, quarter = period // np.uint64(2), period // np.uint64(4)
    for i in range(half):
        left, right = circle[start + i], circle[start + half + i]
        circle[start + i] = left + right
        circle[start + half + i] = left - right
    middle = start + half
    work[even], work[odd] = circle[middle], np.float32(0)
    for i in range(np.uint64(1), quarter):
        left, right = circle[middle + i], circle[middle + half - i]
        work[even + i] = left - right
        work[odd + i] = left + right
    return circle[middle + quarter]


@summing
def _dots(work, quarter, table, place):
    """Sums of the four parts of work, in turn, times a cosine, sine, cosine and sine quarter wave."""
    a = b = c = d = np.float32(0)
    for i in range(quarter):
        cosine, sine = table[place + i], table[place + quarter + i]
        a += work[i] * cosine
        b += work[quarter + i] * sine
        c += work[quarter + quarter + i] * cosine
        d += work[quarter + quarter + quarter + i] * sine
    return a, b, c, d


@jit
def transform(circle, bins, table, real, imaginary):
    """Writes Σ e^{−jnθ} of all counted entries for n = 1, 2, …, θ from the first bin's centre; overwrites circle."""
    orders = len(real)
    work = apart(bins, np.float32)
    period, octave, place = np.uint64(bins), 1, np.uint64(0)
    while octave <= orders:
        quarter = period // np.uint64(4)
        top_count = _fold(circle, np.uint64(0), period, work, np.uint64(0), quarter)
        top_offset = _fold(circle, np.uint64(bins), period, work, np.uint64(2) * quarter, np.uint64(3) * quarter)
        for multiple in range(1, orders // octave + 1, 2):
            c, s, offset_c, offset_s = _dots(work, quarter, table, place)
            place += np.uint64(2) * quarter
            sign = 1 if multiple % 4 == 1 else -1
            s += sign * top_count
            offset_s += sign * top_offset
            order = multiple * octave
            # minimax over |δ| ≤ D: cos δ ≈ 1 − D²/4, and sin δ ≈ δ(1 − D²/8)
            squared = (math.pi * order / bins) ** 2
            steady, slope = 1 - squared / 4, 2 * math.pi * order / bins * (1 - squared / 8)
            real[order - 1] = steady * c - slope * offset_s
            imaginary[order - 1] = -(steady * s + slope * offset_c)
        period, octave = period // np.uint64(2), octave * 2


@jit
def spectrum(circle, length, entries, ties, mean, bins, table, policy, atoms, out):
    """Writes |â_n| of one row of the given length and mean from its unpacked circle, and atoms out of `repeats`."""
    real, imaginary = np.empty(len(out)), np.empty(len(out))
    transform(circle, bins, table, real, imaginary)
    zeros = length - entries - ties  # exact zeros before centring
    origin = BIAS - 0.5 / bins  # counted phases are log10|r| + BIAS, from the first bin's centre
    number, few = atoms
    if number > 0:
        weight, more, further = add_few(few, number, mean, origin, real, imaginary)
        entries, zeros, ties = entries + weight, zeros + more, ties + further
    if mean == 0.0:
        finish(real, imaginary, entries, zeros + ties, origin, policy, out)
        return
    if zeros:
        add_atom(real, imaginary, zeros, math.log10(abs(mean)) + origin)
    finish(real, imaginary, entries + zeros, ties, origin, policy, out)


@jit
def magnitudes_of_row(x, mean, bins, table, policy, atoms, out):
    """Writes |â_n| of one row of the given mean, and of atoms that `repeats` took out of it."""
    counters, filled = apart(2 * bins, np.uint64), apart(2 * bins, np.float32)
    counters[:], filled[:] = 0, 0
    count_row(x, mean, bins, counters)
    entries, ties = unpack(counters, bins, filled)
    spectrum(filled, len(x), entries, ties, mean, bins, table, policy, atoms, out)
