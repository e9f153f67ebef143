"""The loop over rows for a convolution, its ReLU and the batch norm of that: each row is read and written once."""

import math

import numpy as np
from numba import carray

from benfourier.kernels import octaves
from benfourier.kernels.desk import desk_on, space_for
from benfourier.kernels.lanes import LANES
from benfourier.kernels.loops import float_row
from benfourier.kernels.rows import exact_row, jit
from benfourier.kernels.sifting import note, sieve_for, sift, unsifted
from benfourier.kernels.team import at_address, together


@jit
def _chain_rows(first, last, x, channels, scale, shift, centre, policy, ways, target, out):
    length = x.shape[1]
    kept, orders = octaves.kept_octaves(length), out.shape[2]
    space = space_for(ways[0], kept, orders)
    desk, sieve = desk_on(space, ways[0], kept, orders), sieve_for(len(scale), length)
    for i in range(last - 1, first - 1, -1):
        sift(x[i], target[i], channels, scale, shift, sieve)
        for k in range(3):
            note(k, target[i, :channels], shift, sieve)
            start = k * (length + LANES)
            loose = sieve.loose[start : start + sieve.kept[k]]
            sums, peaks = sieve.sums[8 * k : 8 * k + 8], sieve.peaks[LANES * k : LANES * (k + 1)]
            atoms = (2 * len(scale), sieve.few)
            float_row(loose, length, sums, peaks, atoms, centre, policy, ways, desk, out[k, i])
            if math.isnan(out[k, i, 0]):  # entries are too large; the response itself may be overwritten by now
                exact_row(unsifted(k, length, sieve), centre, policy, out[k, i])
    space[0] = 0  # in use until now


@jit
def chain_rows(team, start, stop, addresses, length, channels, scale, shift, kinds, centre, policy, ways, out):
    """What `step_rows` does, where kinds are AS_IS, RECTIFY and SCALE; target may be x, and NaN are final."""
    shape = (out.shape[1], length)
    x = carray(at_address(addresses[0], np.float32(0)), shape)
    target = carray(at_address(addresses[2], np.float32(0)), shape)
    args = (x, channels, scale, shift, centre, policy, ways, target, out)
    together(_chain_rows, team, start, stop, args)
