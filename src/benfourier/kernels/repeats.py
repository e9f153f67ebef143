"""Entries that repeat a value of their channel, taken out of a row: a thousand equal entries are one atom.

Flat parts of a picture, such as a digit's background, give the same response again and again, that of the row's first
pixel, another one in each channel. What batch norm makes of a ReLU's zeros is another such value. Counted one by one
these entries would take most of the time and, being lumps, the slower way; so they are counted by channel, and each
value's phasor is computed once.
"""

import math
from collections import namedtuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from benfourier.kernels.lanes import LANES
from benfourier.kernels.packing import moving
from benfourier.kernels.rows import add_phasors, apart, inlined, jit
from benfourier.kernels.vectors import F32, I32, I64, pointer

SEEN = 64  # entries by which it is guessed if many repeat
LEAST = 256  # entries of a channel from which its values are worth their phasors
STRANGE, ZERO, SHIFTED = 0, 1, 2  # what became of a ReLU's zeros: nothing known, still zero, the channel's shift

_floats, _ints = ir.VectorType(F32, 16), ir.VectorType(I32, 16)

# value: of each channel where the row begins, then what became of zeros, each repeated to whole blocks of lanes
# count: entries that have it; loose: all other entries; numbers: phase, weight and phasor of each value
Repeats = namedtuple("Repeats", "value count loose numbers")


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
    """What one thread writes on: for rows of that length with so many channels, last in memory; empty if of no use."""
    whole = channels
    while whole % LANES:
        whole += channels
    worth = length >= LEAST * channels > 0
    several = 2 * whole if worth else 0
    value, count = apart(several, np.float32), apart(several, np.uint32)
    return Repeats(value, count, apart(length + LANES if worth else 0, np.float32), apart(6 * several, np.float64))


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
    half = len(repeats.value) // 2
    if half == 0:
        return False
    first, second = repeats.value[:half], repeats.value[half:]
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
def take_out(row, mean, repeats):
    """Moves the entries that repeat nothing together; returns their number, that of other values, and ties.

    Values are noted with their phases, in turns, and weights; ties are the entries that are the mean itself.
    """
    several = len(repeats.value)
    half, kept, place = several // 2, 0, 0
    first, second = repeats.value[:half], repeats.value[half:]
    turns, weight = repeats.numbers[:several], repeats.numbers[several : 2 * several]
    repeats.count[:] = 0
    for i in range(0, len(row), LANES):
        kept += _sift(row, i, first, second, place, repeats.count, half, repeats.loose, kept)
        place = place + LANES if place + LANES < half else 0
    found, ties, last = 0, 0.0, np.float32(np.nan)
    for k in range(several):
        value, count = repeats.value[k], repeats.count[k]
        away = abs(np.float64(value) - mean)
        if count == 0:
            continue
        if away == 0.0:
            ties += count
        elif value == last:
            weight[found - 1] += count
        else:
            turns[found], weight[found] = math.log10(away), count
            found, last = found + 1, value
    return kept, found, ties


@jit
def add_atoms(real, imaginary, number, origin, repeats):
    """Adds the phasors of so many noted values, whose phases count from −origin; returns how many entries they are."""
    several, numbers = len(repeats.value), repeats.numbers
    turns, weight = numbers[:number], numbers[several : several + number]
    cosine, sine = numbers[2 * several :][:number], numbers[3 * several :][:number]
    x, y = numbers[4 * several :][:number], numbers[5 * several :][:number]
    total = 0.0
    for k in range(number):
        angle = -2 * math.pi * (turns[k] + origin - math.floor(turns[k] + origin))
        cosine[k], sine[k] = math.cos(angle), math.sin(angle)
        x[k], y[k] = weight[k] * cosine[k], weight[k] * sine[k]
        total += weight[k]
    add_phasors(cosine, sine, x, y, real, imaginary)
    return total
