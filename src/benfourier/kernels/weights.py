"""The vector steps from an octave's counters to its share of the phasor sums.

The phasors of all orders in a block of neighbouring bins are smooth and few: 16 waves make them up, to 2e-6. So counts
are weighed with 16 waves each, whatever the number of orders, and the waves' sums are mixed into orders once per block.
Octaves are weighed and mixed ABREAST at a time, so that a wave or share is read once for all of them.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from benfourier.kernels.lanes import COUNT_SHIFT
from benfourier.kernels.vectors import F32, I32, I64, pointer, same, spread

WAVES = 16
ABREAST = 4
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


def _parted(builder, words):
    """The counts and the rests in counters."""
    return builder.lshr(words, same(_ints, COUNT_SHIFT)), builder.and_(words, same(_ints, (1 << COUNT_SHIFT) - 1))


@intrinsic
def counted(typing, counters, start, bins):
    """How many there are in counters[start : start + bins]."""

    def build(context, builder, signature, args):
        memory = _Memory(context, builder, signature, args)
        total = cgutils.alloca_once_value(builder, same(_ints, 0))
        with cgutils.for_range(builder, builder.lshr(args[2], ir.Constant(I64, 4))) as loop:
            words = memory.read(0, builder.add(args[1], builder.shl(loop.index, ir.Constant(I64, 4))), kind=_ints)
            builder.store(builder.add(builder.load(total), _parted(builder, words)[0]), total)
        return builder.zext(_lanes_summed(builder, "llvm.vector.reduce.add.v16i32", builder.load(total)), I64)

    return types.int64(counters, start, bins), build


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
            count, rest = _parted(builder, words)
            builder.store(builder.add(builder.load(total), count), total)
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


def _settling(builder, read, bins, write):
    """The body of settling: read(index) gives 16 counts and offsets, write(weights, index) takes 16; returns squares.

    Neighbours are shuffled in registers: memory just written is slow to read at other places.
    """
    none, half = same(_floats, 0.0), same(_floats, 0.5)
    last = builder.sub(bins, ir.Constant(I64, 16))
    count, offset = (cgutils.alloca_once_value(builder, value) for value in read(ir.Constant(I64, 0)))
    before, squares = (cgutils.alloca_once_value(builder, none) for _ in range(2))
    with cgutils.for_range(builder, builder.lshr(bins, ir.Constant(I64, 4))) as loop:
        index = builder.shl(loop.index, ir.Constant(I64, 4))
        now, its_offset = builder.load(count), builder.load(offset)
        after, next_offset = read(builder.add(index, ir.Constant(I64, 16)))
        lower = _later(builder, builder.load(before), its_offset, 15)
        moved = builder.fsub(lower, _later(builder, its_offset, next_offset, 1))
        write(_add_product(builder, now, moved, half), index)
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


def _offset(builder, count, rest, width):
    """A bin's first moment about its middle, in bins; words were truncated, so half a unit is missing from each."""
    unit = spread(builder, builder.fdiv(ir.Constant(F32, 1.0), width), _floats)
    middle = builder.fsub(same(_floats, 0.5), builder.fmul(same(_floats, 0.5), unit))
    return builder.fsub(builder.fmul(rest, unit), builder.fmul(count, middle))


@intrinsic
def settle(typing, counts, rests, start, bins, width, weights, to):
    """Writes counts with the rests in them to weights[to : to + bins]; returns the counts' squared second differences.

    A rest is a bin's first moment: half of it goes to the bin above, and as much is taken from the one below. Beside
    the bins stand zeros.
    """

    def build(context, builder, signature, args):
        memory = _Memory(context, builder, signature, args)

        def read(index):
            at = builder.add(args[2], index)
            count = memory.read(0, at)
            return count, _offset(builder, count, memory.read(1, at), args[4])

        def write(value, index):
            memory.write(value, 5, builder.add(args[6], index))

        return _settling(builder, read, args[3], write)

    return types.float32(counts, rests, start, bins, width, weights, to), build


@intrinsic
def settle_words(typing, counters, start, bins, width, weights, to):
    """The same from counters[start : start + bins], which are emptied."""

    def build(context, builder, signature, args):
        memory = _Memory(context, builder, signature, args)
        none = same(_ints, 0)

        def read(index):
            # the next octave's first counters stand above the last of this one
            inside = builder.icmp_signed("<", index, args[2])
            at = builder.add(args[1], builder.select(inside, index, ir.Constant(I64, 0)))
            words = builder.select(inside, memory.read(0, at, kind=_ints), none)
            memory.write(none, 0, at)
            count, rest = (builder.sitofp(part, _floats) for part in _parted(builder, words))
            return count, _offset(builder, count, rest, args[3])

        def write(value, index):
            memory.write(value, 4, builder.add(args[5], index))

        return _settling(builder, read, args[2], write)

    return types.float32(counters, start, bins, width, weights, to), build


@intrinsic
def weigh(typing, weights, start, step, waves, place, size, parts, to, stride):
    """Writes Σ weight·wave over a block of size bins to parts[to:], for 16 waves and ABREAST octaves.

    The octaves' weights from weights[start] on lie step apart, their parts stride apart. The 16 waves of each bin stand
    from waves[place] on.
    """

    def build(context, builder, signature, args):
        memory = _Memory(context, builder, signature, args)
        octaves = [builder.mul(args[2], ir.Constant(I64, k)) for k in range(ABREAST)]
        # two sums for each octave: a sum waits four cycles for its last addition
        sums = [[cgutils.alloca_once_value(builder, same(_floats, 0.0)) for _ in range(2)] for _ in octaves]
        with cgutils.for_range(builder, builder.lshr(args[5], ir.Constant(I64, 2))) as loop:
            first = builder.add(args[1], builder.shl(loop.index, ir.Constant(I64, 2)))
            wave_at = builder.add(args[4], builder.shl(loop.index, ir.Constant(I64, 6)))
            for bin_ in range(4):
                wave = memory.read(3, wave_at, 16 * bin_)
                for octave, totals in zip(octaves, sums, strict=True):
                    weight = memory.same(0, builder.add(first, octave), bin_)
                    total = totals[bin_ % 2]
                    builder.store(_add_product(builder, builder.load(total), weight, wave), total)
        for k, totals in enumerate(sums):
            at = builder.add(args[7], builder.mul(args[8], ir.Constant(I64, k)))
            memory.write(builder.fadd(*map(builder.load, totals)), 6, at)
        return context.get_dummy_value()

    return types.void(weights, start, step, waves, place, size, parts, to, stride), build


@intrinsic
def mix(typing, parts, count, shares, place, turns, at, stride, rows, sums, to):
    """Adds 16 orders of ABREAST octaves, turned, to 16 real and 16 imaginary sums[to:].

    Each octave has count parts. From shares[place] on stand the cosines and sines of 16 orders in each of them, 16 and
    16; from turns[at + stride·row] on the real and imaginary parts of the turn of each of the rows.
    """

    def build(context, builder, signature, args):
        memory = _Memory(context, builder, signature, args)
        octaves = range(ABREAST)
        totals = [[cgutils.alloca_once_value(builder, same(_floats, 0.0)) for _ in range(2)] for _ in octaves]
        with cgutils.for_range(builder, args[1]) as loop:
            share_at = builder.add(args[3], builder.shl(loop.index, ir.Constant(I64, 5)))
            shares = [memory.read(2, share_at, offset) for offset in (0, 16)]
            for k in octaves:
                weight = memory.same(0, builder.add(loop.index, builder.mul(args[1], ir.Constant(I64, k))))
                for total, share in zip(totals[k], shares, strict=True):
                    builder.store(_add_product(builder, builder.load(total), weight, share), total)
        found = [memory.read(8, args[9], offset) for offset in (0, 16)]
        for k in octaves:
            row = builder.load(pointer(context, builder, signature.args[7], args[7], ir.Constant(I64, k), I64))
            turn = builder.add(args[5], builder.mul(args[6], row))
            cosine, sine = memory.read(4, turn), memory.read(4, turn, 16)
            real, minus = map(builder.load, totals[k])  # the imaginary part is −minus
            for n, a, b in ((0, real, minus), (1, builder.fneg(minus), real)):
                found[n] = _add_product(builder, _add_product(builder, found[n], a, cosine), b, sine)
        for offset, value in zip((0, 16), found, strict=True):
            memory.write(value, 8, args[9], offset)
        return context.get_dummy_value()

    return types.void(parts, count, shares, place, turns, at, stride, rows, sums, to), build
