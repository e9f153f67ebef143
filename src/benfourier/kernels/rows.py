"""What every way of counting a row shares: its survey, exact sums, and the last step to magnitudes."""

import math

import numba
import numpy as np

from benfourier.kernels.lanes import LANES, survey

DROP, COUNT, ONE = 0, 1, 2  # what becomes of zeros after centring
CHUNK = 256  # entries whose phasors are added at a time

jit = numba.njit(cache=True, nogil=True, fastmath={"contract"})
# a desk is a hundred numbers to hand over: for small steps that are taken often the call would cost as much as the step
inlined = numba.njit(cache=True, nogil=True, fastmath={"contract"}, inline="always")
summing = numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"})


@jit
def apart(count, kind):
    """An array for one thread's own use, in cache lines that no other thread's share and no vector of it straddles.

    Small arrays of two threads in one line make every write wait for the other core: up to four times slower. A vector
    written across two lines is not passed on to reads that follow at once: up to three times slower.
    """
    spare = np.empty(count + 192, kind)
    start = np.int64(64 - spare.ctypes.data % 64) // spare.itemsize
    return spare[64 + start : 64 + start + count]


@jit
def last_lanes(x):
    """The entries after the last whole block, followed by zeros."""
    spare = np.zeros(LANES, x.dtype)
    rest = len(x) % LANES
    spare[:rest] = x[len(x) - rest :]
    return spare


@jit
def survey_row(x, sums, peaks):
    """Writes eight sums that add up to the sum of the entries, and the bits of the largest magnitude of each lane."""
    survey(x, x, len(x) // LANES, sums, peaks)
    if len(x) % LANES:
        total, before = sums.sum(), peaks.copy()
        rest = last_lanes(x)
        survey(rest, rest, 1, sums, peaks)
        sums[0] += total
        peaks[:] = np.maximum(peaks, before)


@jit
def add_atom(real, imaginary, weight, turns):
    """Adds weight · e^{−2πj·n·turns} to the n-th phasor sum."""
    angle = -2 * math.pi * (turns - math.floor(turns))
    c, s = math.cos(angle), math.sin(angle)
    c_n, s_n = c, s
    for n in range(len(real)):
        real[n] += weight * c_n
        imaginary[n] += weight * s_n
        c_n, s_n = c_n * c - s_n * s, c_n * s + s_n * c


@summing
def add_phasors(cosine, sine, x, y, real, imaginary):
    """Adds the sums of x + jy, and of what becomes of them when each is turned by its angle again and again.

    Orders are the outer loop, entries the inner one: so the compiler takes several entries at a time.
    """
    for n in range(len(real)):
        one = other = 0.0
        for k in range(len(x)):
            one += x[k]
            other += y[k]
            x[k], y[k] = x[k] * cosine[k] - y[k] * sine[k], x[k] * sine[k] + y[k] * cosine[k]
        real[n] += one
        imaginary[n] += other


@jit
def finish(real, imaginary, entries, zeros, origin, policy, out):
    """Writes magnitudes from the phasor sums of entries, whose phases count from −origin; zeros as the policy says."""
    if policy == ONE:
        add_atom(real, imaginary, zeros, origin)
    total = entries if policy == DROP else entries + zeros
    for n in range(len(out)):
        out[n] = math.sqrt(real[n] * real[n] + imaginary[n] * imaginary[n]) / total if total else 0.0


@jit
def exact_row(x, centre, policy, out):
    """Writes |â_n| of one float64 row by the definition, NaN if an entry is not finite."""
    largest = np.abs(x).max()
    if not math.isfinite(largest):
        out[:] = np.nan
        return
    # a power of two: nothing is rounded, and no difference or sum overflows
    power = min(max(math.frexp(largest)[1] + 32, -900), 1060) if centre else 0
    scale = math.ldexp(1.0, -power)
    first = x[0] * scale if centre else 0.0
    shift = 0.0
    if centre:
        for value in x:
            shift += value * scale - first
        shift /= len(x)
    real, imaginary = np.zeros(len(out)), np.zeros(len(out))
    cosine, sine = np.empty(CHUNK), np.empty(CHUNK)
    entries = 0
    for start in range(0, len(x), CHUNK):
        kept = 0
        for value in x[start : start + CHUNK]:
            r = abs(value * scale - first - shift)
            if r == 0:
                continue
            turns = math.log10(r)
            angle = -2 * math.pi * (turns - math.floor(turns))
            cosine[kept], sine[kept] = math.cos(angle), math.sin(angle)
            kept += 1
        add_phasors(cosine[:kept], sine[:kept], cosine[:kept].copy(), sine[:kept].copy(), real, imaginary)
        entries += kept
    finish(real, imaginary, entries, len(x) - entries, -power * math.log10(2.0), policy, out)
