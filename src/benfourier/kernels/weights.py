"""The vector steps from an octave's counters to its share of the phasor sums.

The phasors of all orders at BLOCK neighbouring bins are smooth and few: 16 waves make them up, to 2e-6. So counts and
rests are weighed with 16 waves each, whatever the number of orders, and the waves' sums are mixed into orders once per
block.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from benfourier.kernels.lanes import COUNT_SHIFT
from benfourier.kernels.vectors import F32, I32, I64, pointer, same, spread

BLOCK = 64
WAVES = 16
MARGIN = 16  # numbers beside those of an octave
_floats, _ints = ir.VectorType(F32, 16), ir.VectorType(I32, 16)


class _Memory:
    """Vectors of 16 in the array arguments of an intrinsic, by the argument's number."""

    def __init__(self, context, builder, signature, args) -> None:
        self._context, self._builder, self._kinds, self._args = context, builder, signature.args, args

    def _place(self, number, index, offset, kind):
        index = self._builder.add(index, ir.Constant(I64, offset))
        return pointer(self._context, self._builder, self._kinds[number], self._args[number], index, kind)

    def read(self, number, index, offset=0, kind=_floats):
        value = self._builder.load(self._place(number, index, offset, kind))
        value.align = 4
        return value

    def write(self, value, number, index, offset=0):
        self._builder.store(value, self._place(number, index, offset, value.type)).align = 4

    def same(self, number, index, offset=0):
        """One number in every lane."""
        place = self._place(number, index, offset, F32)
        return spread(self._builder, self._builder.load(place), _floats)


def _add_product(builder, total, a, b):
    contract = ("contract",)
    return builder.fadd(total, builder.fmul(a, b, flags=contract), flags=contract)


def _sum(builder, terms):
    """Sum of vectors, in pairs."""
    while len(terms) > 1:
        terms = [builder.fadd(a, b) for a, b in zip(terms[::2], terms[1::2], strict=True)]
    return terms[0]


def _lanes_summed(builder, name, *args):
    kind = args[-1].type.element
    function_type = ir.FunctionType(kind, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), args)


@intrinsic
def unpack(typing, counters, start, bins, counts, rests, to, fresh):
    """Moves counters[start : start + bins] to counts[to:] and rests[to:], or adds them; returns how many there are."""

    def build(context, builder, signature, args):
        memory = _Memory(context, builder, signature, args)
        total = cgutils.alloca_once_value(builder, same(_ints, 0))
        with cgutils.for_range(builder, builder.lshr(args[2], ir.Constant(I64, 4))) as loop:
            index = builder.shl(loop.index, ir.Constant(I64, 4))
            there, to = builder.add(args[1], index), builder.add(args[5], index)
            words = memory.read(0, there, kind=_ints)
            memory.write(same(_ints, 0), 0, there)
            count = builder.lshr(words, same(_ints, COUNT_SHIFT))
            builder.store(builder.add(builder.load(total), count), total)
            rest = builder.and_(words, same(_ints, (1 << COUNT_SHIFT) - 1))
            for number, found in ((3, count), (4, rest)):
                old = builder.select(args[6], same(_floats, 0.0), memory.read(number, to))
                memory.write(builder.fadd(old, builder.sitofp(found, _floats)), number, to)
        found = _lanes_summed(builder, "llvm.vector.reduce.add.v16i32", builder.load(total))
        return builder.zext(found, I64)

    return types.int64(counters, start, bins, counts, rests, to, fresh), build


def _later(builder, now, after, lanes):
    """The lanes of two vectors, laid end to end, from the given one on."""
    mask = ir.Constant(_ints, list(range(lanes, lanes + 16)))
    return builder.shuffle_vector(now, after, mask)


@intrinsic
def settle(typing, counts, rests, start, bins, width, weights):
    """Writes counts with the rests in them to weights[:bins]; returns the squared second differences of the counts.

    A rest is a bin's first moment: half of it goes to the bin above, and as much is taken from the one below. Beside
    the bins stand zeros. Neighbours are shuffled in registers: memory just written is slow to read at other places.
    """

    def build(context, builder, signature, args):
        memory = _Memory(context, builder, signature, args)
        none = same(_floats, 0.0)
        unit = spread(builder, builder.fdiv(ir.Constant(F32, 1.0), args[4]), _floats)
        half = same(_floats, 0.5)
        # words were truncated: half a unit is missing
        middle = builder.fsub(half, builder.fmul(half, unit))
        last = builder.sub(args[3], ir.Constant(I64, 16))

        def read(at):
            count = memory.read(0, at)
            return count, builder.fsub(builder.fmul(memory.read(1, at), unit), builder.fmul(count, middle))

        count, offset = (cgutils.alloca_once_value(builder, value) for value in read(args[2]))
        before, squares = (cgutils.alloca_once_value(builder, none) for _ in range(2))
        with cgutils.for_range(builder, builder.lshr(args[3], ir.Constant(I64, 4))) as loop:
            index = builder.shl(loop.index, ir.Constant(I64, 4))
            now, its_offset = builder.load(count), builder.load(offset)
            after, next_offset = read(builder.add(builder.add(args[2], index), ir.Constant(I64, 16)))
            lower = _later(builder, builder.load(before), its_offset, 15)
            moved = builder.fsub(lower, _later(builder, its_offset, next_offset, 1))
            memory.write(_add_product(builder, now, moved, half), 5, index)
            middle_count, right = (_later(builder, now, after, lanes) for lanes in (1, 2))
            difference = builder.fsub(builder.fsub(now, middle_count), builder.fsub(middle_count, right))
            whole = ir.Constant(_floats, [1.0] * 14 + [0.0] * 2)  # the last two bins have no two neighbours above
            ends = builder.icmp_signed("==", index, last)
            difference = builder.fmul(difference, builder.select(ends, whole, same(_floats, 1.0)))
            builder.store(_add_product(builder, builder.load(squares), difference, difference), squares)
            for place, value in ((before, its_offset), (count, after), (offset, next_offset)):
                builder.store(value, place)
        parts = [builder.extract_element(builder.load(squares), ir.Constant(I32, lane)) for lane in range(16)]
        return _sum(builder, parts)

    return types.float32(counts, rests, start, bins, width, weights), build


@intrinsic
def weigh(typing, weights, start, waves, place, parts):
    """Writes Σ weight·wave over a block of bins to parts, for the 16 waves of each bin from waves[place] on."""

    def build(context, builder, signature, args):
        memory = _Memory(context, builder, signature, args)
        # eight bins at a time, each with sums of its own: a sum waits four cycles for its last addition
        sums = [cgutils.alloca_once_value(builder, same(_floats, 0.0)) for _ in range(8)]
        with cgutils.for_range(builder, ir.Constant(I64, BLOCK // 8)) as loop:
            index = builder.add(args[1], builder.shl(loop.index, ir.Constant(I64, 3)))
            wave = builder.add(args[3], builder.shl(loop.index, ir.Constant(I64, 7)))
            for k, total in enumerate(sums):
                product = _add_product(
                    builder, builder.load(total), memory.same(0, index, k), memory.read(2, wave, 16 * k)
                )
                builder.store(product, total)
        memory.write(_sum(builder, [builder.load(total) for total in sums]), 4, ir.Constant(I64, 0))
        return context.get_dummy_value()

    return types.void(weights, start, waves, place, parts), build


@intrinsic
def mix(typing, parts, shares, place, turns, at, sums, to):
    """Adds 16 orders of a block, turned, to 16 real and 16 imaginary sums[to:].

    From shares[place] on stand the cosines and sines of 16 orders in each wave, 16 and 16; from turns[at] on the real
    and imaginary parts of the turn.
    """

    def build(context, builder, signature, args):
        memory = _Memory(context, builder, signature, args)
        weights = [memory.same(0, ir.Constant(I64, wave)) for wave in range(WAVES)]
        kinds = []
        for offset in (0, 16):
            chains = [same(_floats, 0.0)] * 4
            for wave, weight in enumerate(weights):
                share = memory.read(1, args[2], 32 * wave + offset)
                chains[wave % 4] = _add_product(builder, chains[wave % 4], weight, share)
            kinds.append(_sum(builder, chains))
        real, minus = kinds  # the imaginary part is −minus
        cosine, sine = memory.read(3, args[4]), memory.read(3, args[4], 16)
        for offset, a, b in ((0, real, minus), (16, builder.fneg(minus), real)):
            total = _add_product(builder, memory.read(5, args[6], offset), a, cosine)
            memory.write(_add_product(builder, total, b, sine), 5, args[6], offset)
        return context.get_dummy_value()

    return types.void(parts, shares, place, turns, at, sums, to), build
