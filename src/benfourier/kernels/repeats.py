"""Entries that repeat a value of their channel, taken out of a row: a thousand equal entries are one atom.

Flat parts of a picture, such as a digit's background, give the same response again and again, that of the row's first
pixel, another one in each channel. What batch norm makes of a ReLU's zeros is another such value. Counted one by one
these entries would take most of the time and, being lumps, the slower way; so they are counted by channel, and each
value's phasor is computed once.
"""

from collections import namedtuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from benfourier.kernels.lanes import LANES
from benfourier.kernels.packing import moving
from benfourier.kernels.phasors import few_for
from benfourier.kernels.rows import apart, inlined, jit
from benfourier.kernels.vectors import F32, I32, I64, pointer

SEEN = 64  # entries by which it is guessed if many repeat
LEAST = 128  # entries of a channel from which its values are worth their phasors
STRANGE, ZERO, SHIFTED = 0, 1, 2  # what became of a ReLU's zeros: nothing known, still zero, the channel's shift

_floats, _ints = ir.VectorType(F32, 16), ir.VectorType(I32, 16)

# few: the value that each channel has where the row begins, then what became of zeros, each repeated to whole blocks of
# lanes, with phasors; count: entries that have it; loose: all other entries
Repeats = namedtuple("Repeats", "few count loose")


@intrinsic
def _sift(typing, x, index, first, second, place, count, half, loose, at):
    """Writes those of LANES entries that are neither first[place:] nor second[place:] to loose[at:]; returns how many.

    The others are added to count[place:] and count[half + place:]. Up to 16 numbers after the written are overwritten.
    """

    def build(context, builder, signature, args):
        def at_lane(number, index, lanes):
            where = pointer(context, builder, signature.args[number], args[number], index, lanes)
            value = builder.load(where)
            value.align = 4
            return value, where

        write, end = moving(context), args[8]
        data = context.make_array(signature.args[7])(context, builder, args[7]).data
        for start in range(0, LANES, 16):
            offset = ir.Constant(I64, start)
            spot = builder.add(args[4], offset)
            value, _ = at_lane(0, builder.add(args[1], offset), _floats)
            kept = ir.Constant(ir.VectorType(ir.IntType(1), 16), [1] * 16)
            for number, to in ((2, spot), (3, builder.add(spot, args[6]))):
                like, _ = at_lane(number, spot, _floats)
                equal = builder.and_(builder.fcmp_ordered("==", value, like), kept)
                kept = builder.xor(kept, equal)
                before, where = at_lane(5, to, _ints)
                builder.store(builder.add(before, builder.zext(equal, _ints)), where).align = 4
            end = write(builder, value, kept, data, end)
        return builder.sub(end, args[8])

    return types.int64(x, index, first, second, place, count, half, loose, at), build


@jit
def repeats_for(channels, length):
    """What one thread writes on: for rows of that length with so many channels, last in memory; empty if of no use.

    Only rows of whole blocks are sifted.
    """
    whole = channels
    while whole % LANES:
        whole += channels
    worth = length >= LEAST * channels > 0 and length % LANES == 0
    several = 2 * whole if worth else 0
    return Repeats(few_for(several), apart(several, np.uint32), apart(length + LANES if worth else 0, np.float32))


@inlined
def look(row, channels, zero, shift, repeats):
    """Returns True if many entries repeat the first pixel or what became of a ReLU's zeros, and notes both values.

    Args:
        row: of the response.
        channels: how many.
        zero: STRANGE, ZERO or SHIFTED.
        shift: what SHIFTED means, by channel, repeated to whole blocks.
        repeats: from `repeats_for`.
    """
    half = len(repeats.count) // 2
    if half == 0:
        return False
    first, second = repeats.few.value[:half], repeats.few.value[half:]
    for c in range(half):
        first[c] = row[c % channels]
        second[c] = shift[c] if zero == SHIFTED else np.float32(0) if zero == ZERO else first[c]
    again, step = 0, (len(row) - 7) // SEEN
    for k in range(SEEN):
        i = k * step + k % 7
        value, c = row[i], i % channels
        again += value != 0 and (value == first[c] or value == second[c])
    return 16 * again > SEEN


@jit
def note_lowest(row, channels, repeats):
    """Notes each channel's lowest value in place of what became of zeros: often just that."""
    half = len(repeats.count) // 2
    second = repeats.few.value[half:]
    second[:channels] = row[:channels]
    for i in range(channels, len(row), channels):
        for c in range(channels):
            value, least = row[i + c], second[c]
            second[c] = value if value < least else least
    for c in range(channels, half):
        second[c] = second[c - channels]


@jit
def take_out(row, repeats):
    """Moves the entries that repeat nothing together and returns their number; the others become weights of values."""
    half, kept, place = len(repeats.count) // 2, 0, 0
    first, second = repeats.few.value[:half], repeats.few.value[half:]
    repeats.count[:] = 0
    for i in range(0, len(row), LANES):
        kept += _sift(row, i, first, second, place, repeats.count, half, repeats.loose, kept)
        place = place + LANES if place + LANES < half else 0
    for k in range(len(repeats.count)):
        repeats.few.weight[k] = repeats.count[k]
    return kept
