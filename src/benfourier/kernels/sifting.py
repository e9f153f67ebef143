"""A convolution's response, its ReLU and the batch norm of that, in one pass: stepped, surveyed and sifted.

The three have their repeated values in the same places: where the response is that of the first pixel, or not above
zero. So two comparisons and two counts serve all of them.
"""

from collections import namedtuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from benfourier.kernels.lanes import LANES, fetching
from benfourier.kernels.packing import moving
from benfourier.kernels.phasors import few_for
from benfourier.kernels.rows import apart, jit
from benfourier.kernels.vectors import F32, F64, I32, I64, part, pointer, same

HALF = LANES // 2
_floats, _ints, _doubles = ir.VectorType(F32, HALF), ir.VectorType(I32, HALF), ir.VectorType(F64, 8)

# first: the first pixel of x; count: how many entries of a channel have its value, how many are not above zero; few:
# the values of one response with their weights; the others: as `step_and_sift` writes them
Sieve = namedtuple("Sieve", "first count few sums peaks loose kept")


@intrinsic
def step_and_sift(typing, x, target, blocks, scale, shift, first, period, count, sums, peaks, loose, size, kept):
    """Writes b = scale·max(x, 0) + shift to target, surveys x, max(x, 0) and b, and sifts each.

    Of the three, in this order: 8 numbers that add up to the sum go to sums, LANES whose largest is the largest |bits|
    to peaks, loose entries to loose[k · size:], their number to kept. Entries of x are loose unless they are those of
    first; the other two's, unless that or x ≤ 0. What is not loose is counted, in the first and the second half of
    count. Scale, shift, first and the halves of count repeat after period blocks.
    """

    def build(context, builder, signature, args):
        def place(number, index, kind):
            return pointer(context, builder, signature.args[number], args[number], index, kind)

        def read(number, index, kind=_floats):
            value = builder.load(place(number, index, kind))
            value.align = 4
            return value

        data = [context.make_array(signature.args[k])(context, builder, args[k]).data for k in (0, 10)]
        starts = [builder.gep(data[1], [builder.mul(args[11], ir.Constant(I64, k))]) for k in range(3)]
        length = builder.mul(args[2], ir.Constant(I64, LANES))
        whole = builder.mul(args[6], ir.Constant(I64, LANES))
        totals = [cgutils.alloca_once_value(builder, same(_doubles, 0.0)) for _ in range(3)]
        highest = [cgutils.alloca_once_value(builder, same(_ints, 0)) for _ in range(3)]
        ends = [cgutils.alloca_once_value(builder, ir.Constant(I64, 0)) for _ in range(2)]
        turn = cgutils.alloca_once_value(builder, ir.Constant(I64, 0))
        write = moving(context)

        def add(place, by):
            builder.store(builder.add(builder.load(place), builder.zext(by, _ints)), place).align = 4

        def step(index, spot):
            """Takes HALF entries; returns the three responses."""
            value, like = read(0, index), read(5, spot)
            flat = builder.fcmp_ordered("<=", value, same(_floats, 0.0))
            again = builder.fcmp_ordered("==", value, like)
            add(place(7, spot, _ints), again)
            add(place(7, builder.add(spot, whole), _ints), flat)
            rectified = builder.select(flat, same(_floats, 0.0), value)
            product = builder.fmul(rectified, read(3, spot), flags=("contract",))
            normed = builder.fadd(product, read(4, spot), flags=("contract",))
            builder.store(normed, place(1, index, _floats)).align = 4
            builder.store(write(builder, value, builder.not_(again), starts[0], builder.load(ends[0])), ends[0])
            loose, end = builder.not_(builder.or_(again, flat)), builder.load(ends[1])
            write(builder, value, loose, starts[1], end)
            builder.store(write(builder, normed, loose, starts[2], end), ends[1])
            return value, rectified, normed

        with cgutils.for_range(builder, args[2]) as loop:
            index, spot = builder.mul(loop.index, ir.Constant(I64, LANES)), builder.load(turn)
            fetching(builder, data[0], builder.sub(index, length), 4)  # the row before, which is next
            low = step(index, spot)
            high = step(*(builder.add(i, ir.Constant(I64, HALF)) for i in (index, spot)))
            after = builder.add(spot, ir.Constant(I64, LANES))
            again = builder.icmp_signed("==", after, whole)
            builder.store(builder.select(again, ir.Constant(I64, 0), after), turn)
            for k in range(3):
                _survey(builder, low[k], high[k], totals[k], highest[k])
        for k in range(3):
            builder.store(builder.load(totals[k]), place(8, ir.Constant(I64, 8 * k), _doubles)).align = 8
            for start, value in ((0, builder.load(highest[k])), (HALF, same(_ints, 0))):
                builder.store(value, place(9, ir.Constant(I64, LANES * k + start), _ints)).align = 4
            builder.store(builder.load(ends[min(k, 1)]), place(12, ir.Constant(I64, k), I64))
        return context.get_dummy_value()

    return types.void(x, target, blocks, scale, shift, first, period, count, sums, peaks, loose, size, kept), build


def _survey(builder, low, high, total, highest):
    """Adds LANES entries to a sum, in pairs, and to the largest bits; a pair of equal numbers is exact in float32."""
    pairs = builder.fadd(low, high)
    eight = builder.fadd(*(builder.fpext(part(builder, pairs, i, 8), _doubles) for i in (0, 8)))
    builder.store(builder.fadd(builder.load(total), eight), total)
    for value in (low, high):
        bits, old = builder.and_(builder.bitcast(value, _ints), same(_ints, 0x7FFFFFFF)), builder.load(highest)
        builder.store(builder.select(builder.icmp_unsigned(">", bits, old), bits, old), highest)


@jit
def sieve_for(half, length):
    """What one thread writes on, for rows of that length whose channels, repeated to whole blocks, are half."""
    first, count, few = apart(half, np.float32), apart(2 * half, np.uint32), few_for(2 * half)
    sums, peaks = apart(24, np.float64), apart(3 * LANES, np.uint32)
    return Sieve(first, count, few, sums, peaks, apart(3 * (length + LANES), np.float32), apart(3, np.int64))


@jit
def sift(x, target, channels, scale, shift, sieve):
    """Takes the steps from a row x to a row target, and fills the sieve."""
    half = len(scale)
    for c in range(half):
        sieve.first[c] = x[c % channels]
    sieve.count[:] = 0
    numbers = sieve.sums, sieve.peaks, sieve.loose, len(sieve.loose) // 3, sieve.kept
    step_and_sift(x, target, len(x) // LANES, scale, shift, sieve.first, half // LANES, sieve.count, *numbers)


@jit
def note(which, normed, shift, sieve):
    """Notes the values that response 0, 1 or 2 repeats, and their weights.

    Args:
        which: the response itself, its ReLU, or the batch norm of that.
        normed: the first pixel of the last.
        shift: what became of zeros there, by channel, repeated to whole blocks.
        sieve: filled by `sift`.
    """
    half, few = len(shift), sieve.few
    for c in range(half):
        first = sieve.first[c]
        few.value[c] = normed[c % len(normed)] if which == 2 else first
        few.value[half + c] = shift[c] if which == 2 else np.float32(0)
        few.weight[c] = sieve.count[c] if which == 0 or first > 0 else 0
        few.weight[half + c] = sieve.count[half + c] if which > 0 else 0


@jit
def unsifted(which, length, sieve):
    """All entries of response 0, 1 or 2, whose values were noted, in another order and as float64."""
    found, at = np.empty(length), sieve.kept[which]
    found[:at] = sieve.loose[which * (len(sieve.loose) // 3) :][:at]
    for k in range(len(sieve.count)):
        number = np.int64(sieve.few.weight[k])
        found[at : at + number] = sieve.few.value[k]
        at += number
    return found
