"""The loop over short float32 rows, whose phasors are added one by one."""

import numpy as np

from benfourier.kernels.lanes import LANES, survey
from benfourier.kernels.loops import TOO_LARGE, TOO_SMALL
from benfourier.kernels.phasors import BIAS, add_few, few_for
from benfourier.kernels.rows import add_atom, apart, finish, jit
from benfourier.kernels.team import together

MOST_ORDERS = 1000  # their error, 6e-7 each, stays a tenth of what a row of 256 entries may be off by


@jit
def _short_rows(first, last, rows, centre, policy, out):
    length = rows.shape[1]
    whole = (length + LANES - 1) // LANES * LANES
    few, sums, peaks = few_for(whole), apart(8, np.float64), apart(LANES, np.uint32)
    few.value[:], few.weight[:], few.weight[:length] = 0, 0, 1
    real, imaginary = apart(out.shape[1], np.float64), apart(out.shape[1], np.float64)
    for i in range(first, last):
        few.value[:length] = rows[i]
        survey(few.value, few.value, whole // LANES, sums, peaks)
        out[i] = np.nan
        if not TOO_SMALL <= peaks.max() < TOO_LARGE:
            continue
        mean = sums.sum() / length if centre else 0.0
        real[:], imaginary[:] = 0, 0
        entries, zeros, ties = add_few(few, whole, mean, BIAS, real, imaginary)
        if mean != 0.0 and zeros > 0:
            add_atom(real, imaginary, zeros, np.log10(abs(mean)) + BIAS)
            entries, zeros = entries + zeros, 0.0
        finish(real, imaginary, entries, zeros + ties, BIAS, policy, out[i])


@jit
def short_rows(team, start, stop, rows, centre, policy, out):
    """Writes |â_n| of every row, NaN for rows whose largest entries are too large or too small."""
    together(_short_rows, team, start, stop, (rows, centre, policy, out))
