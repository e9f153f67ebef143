"""Phasor sums of a few weighed values: the entries of a short row, or those that a long row repeats.

Phases come from `lanes.phases`, cosines and sines from two polynomials, all in float32 and several at a time: an order
adds at most 6e-7 to the error of a phasor, 1e-5 at order 16.
"""

import math
from collections import namedtuple

import numpy as np

from benfourier.kernels.lanes import LANES, PHASE_BITS, SCALE, ZERO, phases
from benfourier.kernels.rows import apart, jit, summing

BIAS = math.log10(2) * (127 + 24)  # log10 of SCALE and of the float32 exponent's bias, which phases contain


def _half_turn() -> tuple[list[np.float32], list[np.float32]]:
    """Coefficients of sin(πt)/t and cos(πt) in powers of t², |t| ≤ ½, lowest first; off by 1e-7 at most."""
    square = 0.125 + 0.125 * np.cos(np.pi * (np.arange(64) + 0.5) / 64)
    t = np.sqrt(square)
    fitted = [
        np.polynomial.Chebyshev.fit(square, y, 5, domain=[0, 0.25]) for y in (np.sin(np.pi * t) / t, np.cos(np.pi * t))
    ]
    sine, cosine = ([np.float32(c) for c in f.convert(kind=np.polynomial.Polynomial).coef] for f in fitted)
    return sine, cosine


(_S0, _S1, _S2, _S3, _S4, _S5), (_C0, _C1, _C2, _C3, _C4, _C5) = _half_turn()

# value and weight: as many as there is room for, in whole blocks of lanes; the others are what is found on the way
Few = namedtuple("Few", "value weight phase cosine sine x y")


@jit
def few_for(count):
    """Room for so many values and weights, a multiple of LANES."""
    value, weight, phase = apart(count, np.float32), apart(count, np.float32), apart(count, np.uint32)
    cosine, sine, x, y = (
        apart(count, np.float32),
        apart(count, np.float32),
        apart(count, np.float32),
        apart(count, np.float32),
    )
    return Few(value, weight, phase, cosine, sine, x, y)


@summing
def _turn_to(value, weight, phase, turn, cosine, sine, x, y):
    """Writes each value's phasor, and the same weighed; returns the weight of all, of zeros, and of zeros and ties."""
    total = zeros = left_out = np.float32(0)
    for k in range(len(value)):
        # an angle in units of 2^-32 turns wraps to a signed one by itself
        t = np.float32(np.int32((phase[k] << np.uint32(32 - PHASE_BITS)) + turn)) * np.float32(2.0**-32)
        u = t * t
        s = t * (_S0 + u * (_S1 + u * (_S2 + u * (_S3 + u * (_S4 + u * _S5)))))
        c = _C0 + u * (_C1 + u * (_C2 + u * (_C3 + u * (_C4 + u * _C5))))
        cosine[k], sine[k] = np.float32(1) - np.float32(2) * s * s, np.float32(-2) * s * c
        w = weight[k]
        total += w
        zeros += w if value[k] == 0 else np.float32(0)
        left_out += w if phase[k] >= ZERO else np.float32(0)
        w = np.float32(0) if phase[k] >= ZERO else w
        x[k], y[k] = w * cosine[k], w * sine[k]
    return total, zeros, left_out


@summing
def _add_orders(cosine, sine, x, y, real, imaginary):
    """Adds the sums of x + jy, and of what becomes of them when each is turned by its angle again and again."""
    for n in range(len(real)):
        one = other = np.float32(0)
        for k in range(len(x)):
            one += x[k]
            other += y[k]
            x[k], y[k] = x[k] * cosine[k] - y[k] * sine[k], x[k] * sine[k] + y[k] * cosine[k]
        real[n] += one
        imaginary[n] += other


@jit
def add_few(few, number, mean, origin, real, imaginary):
    """Adds the phasors of the first values, as counted from −origin, that are neither zero nor the mean.

    Returns the weights of these, of the zeros, and of the ties, which are the mean without being zero.

    Args:
        few: from `few_for`, with values and weights.
        number: of values, a multiple of LANES.
        mean: subtracted from the values.
        origin: in turns.
        real: of the phasor sums.
        imaginary: of the same.
    """
    high = np.float32(mean)
    low = np.float32((mean - np.float64(high)) * np.float64(SCALE))
    high *= SCALE
    for k in range(0, number, LANES):
        phases(few.value, k, high, low, few.phase, k)
    turns = origin - BIAS + 2.0 ** -(PHASE_BITS + 1)  # phases were truncated: half a unit is added back
    turn = np.uint32((turns - math.floor(turns)) * 2.0**32)
    cosine, sine, x, y = few.cosine[:number], few.sine[:number], few.x[:number], few.y[:number]
    value, weight, phase = few.value[:number], few.weight[:number], few.phase[:number]
    total, zeros, left_out = _turn_to(value, weight, phase, turn, cosine, sine, x, y)
    _add_orders(cosine, sine, x, y, real, imaginary)
    return np.float64(total - left_out), np.float64(zeros), np.float64(left_out - zeros)
