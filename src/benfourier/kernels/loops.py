"""The loops over rows behind the fused kernel, each for a team of threads.

`name(team, start, stop, …)` is called by `team.share`; the `_name(first, last, …)` before it is one thread's part.
Float32 rows are taken from the last to the first: a network writes the last one last, so it is still in cache, and
begins with the first one when it goes on.
"""

import math

import numpy as np
from numba import carray

from benfourier.kernels import circle, octaves
from benfourier.kernels.counting import base_of
from benfourier.kernels.desk import desk_on, space_for
from benfourier.kernels.lanes import LANES, survey
from benfourier.kernels.phasors import few_for
from benfourier.kernels.repeats import SHIFTED, STRANGE, ZERO, look, note_lowest, repeats_for, take_out
from benfourier.kernels.rows import apart, exact_row, inlined, jit, survey_row
from benfourier.kernels.steps import ADD, AS_IS, RECTIFY, SCALE, added, rectified, scaled
from benfourier.kernels.team import at_address, together

TOO_LARGE = np.uint32(0x71800000)  # bits of 2^100: SCALE times such entries could overflow
TOO_SMALL = np.uint32(0x21800000)  # bits of 2^-60: entries may come as near to the mean as 2^-53 of that, and be normal


@inlined
def within_reach(peak):
    """True if float32 holds a row with such a largest entry, and what centring leaves of it."""
    return peak == 0 or TOO_SMALL <= peak < TOO_LARGE


@inlined
def float_row(row, length, sums, peaks, atoms, centre, policy, ways, desk, out):
    """Writes |â_n| of a surveyed float32 row: by octaves, or by the circle if they refuse; NaN if both do.

    Atoms are entries that were taken out before: how many values they have, and where these are noted.
    """
    bins, tables, roughest, circle_bins, circle_table = ways
    out[:] = np.nan
    if within_reach(peaks.max()):
        mean = sums.sum() / length if centre else 0.0
        base = base_of(peaks, mean)
        octaves.magnitudes_of_row(row, mean, base, bins, tables, roughest, policy, desk, atoms, out)
        if math.isnan(out[0]):
            circle.magnitudes_of_row(row, mean, circle_bins, circle_table, policy, atoms, out)


@jit
def _octave_rows(first, last, rows, centre, policy, channels, ways, out):
    length = rows.shape[1]
    kept, orders = octaves.kept_octaves(length), out.shape[1]
    space = space_for(ways[0], kept, orders)
    desk, repeats = desk_on(space, ways[0], kept, orders), repeats_for(channels, length)
    for i in range(last - 1, first - 1, -1):
        row, number = rows[i], 0
        survey_row(row, desk.sums, desk.peaks)
        if look(row, channels, STRANGE, row, repeats):
            note_lowest(row, channels, repeats)
            row, number = repeats.loose[: take_out(row, repeats)], len(repeats.count)
        atoms = (number, repeats.few)
        float_row(row, length, desk.sums, desk.peaks, atoms, centre, policy, ways, desk, out[i])
    space[0] = 0  # in use until now


@jit
def octave_rows(team, start, stop, rows, centre, policy, channels, ways, out):
    """Writes |â_n| of every float32 row, NaN for rows whose largest entries are too large or too small.

    Channels, if they are last in memory, are looked at for values that they repeat; else their number is 0.
    """
    together(_octave_rows, team, start, stop, (rows, centre, policy, channels, ways, out))


@jit
def _step_rows(first, last, x, channels, other, scale, shift, kinds, centre, policy, ways, target, out):
    length = x.shape[1]
    kept, orders = octaves.kept_octaves(length), out.shape[2]
    space = space_for(ways[0], kept, orders)
    desk, repeats = desk_on(space, ways[0], kept, orders), repeats_for(channels, length)
    blocks, period = length // LANES, len(scale) // LANES
    sums, peaks = desk.sums, desk.peaks
    for i in range(last - 1, first - 1, -1):
        row = x[i]
        for k in range(len(kinds)):
            zero = STRANGE
            if kinds[k] == AS_IS:
                survey(row, row, blocks, sums, peaks)
            elif kinds[k] == SCALE:
                scaled(row, target[i], blocks, sums, peaks, scale, shift, period)
                zero = SHIFTED if k > 0 and kinds[k - 1] == RECTIFY else STRANGE
            elif kinds[k] == ADD:
                added(row, target[i], blocks, sums, peaks, other[i])
            else:
                rectified(row, target[i], blocks, sums, peaks)
                zero = ZERO
            if kinds[k] != AS_IS:
                row = target[i]
            loose, number = row, 0
            if look(row, channels, zero, shift, repeats):
                loose, number = repeats.loose[: take_out(row, repeats)], len(repeats.count)
            atoms = (number, repeats.few)
            float_row(loose, length, sums, peaks, atoms, centre, policy, ways, desk, out[k, i])
    space[0] = 0  # in use until now


@jit
def step_rows(team, start, stop, addresses, length, channels, scale, shift, kinds, centre, policy, ways, out):
    """Takes steps from every row, one after the other, and writes |â_n| after each, NaN as above, to out.

    The addresses are those of the rows, of what is added to them, and of what they become: arrays of their own would
    take Python longer to make than some rows take to count.
    """
    shape = (out.shape[1], length)
    x = carray(at_address(addresses[0], np.float32(0)), shape)
    other = carray(at_address(addresses[1], np.float32(0)), shape)
    target = carray(at_address(addresses[2], np.float32(0)), shape)
    args = (x, channels, other, scale, shift, kinds, centre, policy, ways, target, out)
    together(_step_rows, team, start, stop, args)


@jit
def any_refused(out):
    """True if a row of any step has NaN."""
    refused = False
    for k in range(out.shape[0]):
        for i in range(out.shape[1]):
            refused |= math.isnan(out[k, i, 0])
    return refused


@jit
def _circle_rows(first, last, rows, centre, policy, bins, table, out):
    none = (0, few_for(0))
    sums, peaks = apart(8, np.float64), apart(LANES, np.uint32)
    for i in range(first, last):
        out[i] = np.nan
        survey_row(rows[i], sums, peaks)
        if within_reach(peaks.max()):
            mean = sums.sum() / rows.shape[1] if centre else 0.0
            circle.magnitudes_of_row(rows[i], mean, bins, table, policy, none, out[i])


@jit
def circle_rows(team, start, stop, rows, centre, policy, bins, table, out):
    """Writes |â_n| of every row, NaN for rows whose largest entries are too large or too small."""
    together(_circle_rows, team, start, stop, (rows, centre, policy, bins, table, out))


@jit
def _survey_pieces(first, last, rows, piece, totals, peaks):
    per_row = totals.shape[1]
    sums, lanes = apart(8, np.float64), apart(LANES, np.uint32)
    for k in range(first, last):
        i, j = k // per_row, k % per_row
        survey_row(rows[i, j * piece : (j + 1) * piece], sums, lanes)
        totals[i, j], peaks[i, j] = sums.sum(), lanes.max()


@jit
def survey_pieces(team, start, stop, rows, piece, totals, peaks):
    """Writes the sum and the bits of the largest magnitude of every piece."""
    together(_survey_pieces, team, start, stop, (rows, piece, totals, peaks))


@jit
def _count_pieces(first, last, rows, piece, means, highest, bins, filled, found):
    per_row = filled.shape[1]
    counters = apart(2 * bins, np.uint64)
    for k in range(first, last):
        i, j = k // per_row, k % per_row
        if within_reach(highest[i]):
            counters[:] = 0
            circle.count_row(rows[i, j * piece : (j + 1) * piece], means[i], bins, counters)
            found[i, j, 0], found[i, j, 1] = circle.unpack(counters, bins, filled[i, j])


@jit
def count_pieces(team, start, stop, rows, piece, means, highest, bins, filled, found):
    """Adds every piece to a circle of its own, and writes its entries and ties."""
    together(_count_pieces, team, start, stop, (rows, piece, means, highest, bins, filled, found))


@jit
def _join_pieces(first, last, length, means, highest, policy, bins, table, filled, found, out):
    none = (0, few_for(0))
    for i in range(first, last):
        out[i] = np.nan
        if within_reach(highest[i]):
            for j in range(1, filled.shape[1]):
                filled[i, 0] += filled[i, j]
                found[i, 0] += found[i, j]
            entries, ties = found[i, 0, 0], found[i, 0, 1]
            circle.spectrum(filled[i, 0], length, entries, ties, means[i], bins, table, policy, none, out[i])


@jit
def join_pieces(team, start, stop, length, means, highest, policy, bins, table, filled, found, out):
    """Writes |â_n| of every row from the circles of its pieces, NaN for rows with entries out of reach."""
    together(_join_pieces, team, start, stop, (length, means, highest, policy, bins, table, filled, found, out))


@jit
def _exact_rows(first, last, rows, centre, policy, out):
    for i in range(first, last):
        exact_row(rows[i], centre, policy, out[i])


@jit
def exact_rows(team, start, stop, rows, centre, policy, out):
    """Writes |â_n| of every float64 row by the definition, NaN for rows that are not finite."""
    together(_exact_rows, team, start, stop, (rows, centre, policy, out))
