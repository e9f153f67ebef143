"""Two vector steps of the fused kernel, written for 32 entries at a time.

Numba's own vectoriser stops at 256 bits and loads half floats one by one; on the machine where both were measured these
steps take 0.2 ns per entry where plain numba loops take 0.3 to 0.7. LLVM lowers the same text to AVX-512, AVX2 or NEON.

Entries arrive as float32 (a float32 array), float16 (an int16 view) or bfloat16 (a uint16 view).
"""

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from benfourier.kernels.vectors import F32, F64, I32, part, pointer, same, spread

LANES = 32
PHASE_BITS = 24  # log10|x| mod 1 is kept in units of 2^-24
ZERO = 1 << PHASE_BITS  # first of eight slots above the circle, an eighth of the circle apart
TIE = ZERO + (1 << (PHASE_BITS - 4))
ROWS = 24  # octaves counted below the largest entry; the lowest takes all that is smaller still
WORD_SHIFT = 10  # bits of the mantissa that octave_words leaves out
COUNT_SHIFT = 19  # a counter's word holds a count of up to 2^13 above a sum of rests

# Entries are scaled by a power of two before their exponent is read, so that float32 denormals become normal numbers.
SCALE = np.float32(2.0**24)

_OCTAVE = round(math.log10(2) * 2**32)
_ints, _floats = ir.VectorType(I32, LANES), ir.VectorType(F32, LANES)


def _log10_polynomial(degree: int) -> list[float]:
    """Coefficients of log10(1 + f) on [0, 1) in units of 2^-32, lowest first."""
    nodes = 0.5 + 0.5 * np.cos(np.pi * (np.arange(256) + 0.5) / 256)
    fitted = np.polynomial.Chebyshev.fit(nodes, np.log10(1 + nodes), degree, domain=[0, 1])
    coefficients = np.asarray(fitted.convert(kind=np.polynomial.Polynomial).coef, np.float64)
    return [float(np.float32(c)) for c in coefficients * 2**32]


# Degree 8 is off by at most 1.5e-8, a phase error of 1.5e-6 at order 16.
_LOG10 = _log10_polynomial(8)


def _load(context, builder, kind, array, index) -> ir.Value:
    """LANES entries from array[index] on, widened to float32."""
    if kind.dtype == types.float32:
        value = builder.load(pointer(context, builder, kind, array, index, _floats))
        value.align = 4
        return value
    halves = ir.VectorType(ir.HalfType() if kind.dtype == types.int16 else ir.IntType(16), LANES)
    value = builder.load(pointer(context, builder, kind, array, index, halves))
    value.align = 2
    if kind.dtype == types.int16:
        return builder.fpext(value, _floats)
    return builder.bitcast(builder.shl(builder.zext(value, _ints), same(_ints, 16)), _floats)


def _centred(builder, value, high, low) -> ir.Value:
    """SCALE·value − high − low, where high + low is SCALE times a mean that float32 cannot hold by itself."""
    scaled = builder.fmul(value, same(_floats, float(SCALE)), flags=("contract",))
    rough = builder.fsub(scaled, spread(builder, high, _floats), flags=("contract",))
    return builder.fsub(rough, spread(builder, low, _floats))


def surveying(context, builder, signature, args, value_at) -> ir.Value:
    """The body of a survey: arguments 2, 3 and 4 are blocks, sums and peaks; value_at(index) gives LANES entries."""
    doubles = ir.VectorType(F64, 8)
    start = ir.Constant(ir.IntType(64), 0)
    total, peak = cgutils.alloca_once(builder, doubles), cgutils.alloca_once(builder, _ints)
    builder.store(same(doubles, 0.0), total)
    builder.store(same(_ints, 0), peak)
    with cgutils.for_range(builder, args[2]) as loop:
        value = value_at(builder.mul(loop.index, ir.Constant(ir.IntType(64), LANES)))
        bits = builder.and_(builder.bitcast(value, _ints), same(_ints, 0x7FFFFFFF))
        old = builder.load(peak)
        builder.store(builder.select(builder.icmp_unsigned(">", bits, old), bits, old), peak)
        eighths = [builder.fpext(part(builder, value, i, 8), doubles) for i in range(0, LANES, 8)]
        four = builder.fadd(builder.fadd(eighths[0], eighths[1]), builder.fadd(eighths[2], eighths[3]))
        builder.store(builder.fadd(builder.load(total), four), total)
    place = pointer(context, builder, signature.args[3], args[3], start, doubles)
    builder.store(builder.load(total), place).align = 8
    place = pointer(context, builder, signature.args[4], args[4], start, _ints)
    builder.store(builder.load(peak), place).align = 4
    return context.get_dummy_value()


@intrinsic
def survey(typing, x, same_x, blocks, sums, peaks):
    """Writes the sum of blocks · LANES entries to sums (8 × float64), their largest |bits| to peaks (LANES × uint32).

    In float64 the sum of up to 2^29 equal float32 numbers is exact, so a constant response has its value as mean.
    """

    def build(context, builder, signature, args):
        def value_at(index):
            return _load(context, builder, signature.args[0], args[0], index)

        return surveying(context, builder, signature, args, value_at)

    return types.void(x, same_x, blocks, sums, peaks), build


def fetching(builder, data, index, size) -> None:
    """Asks for the LANES entries of so many bytes at data[index:] to be brought into the second cache."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    for line in range(0, LANES * size, 64):
        place = builder.gep(data, [builder.add(index, ir.Constant(ir.IntType(64), line // size))])
        words = [ir.Constant(I32, word) for word in (0, 2, 1)]  # to read, second cache, data
        builder.call(function, [builder.bitcast(place, byte), *words])


@intrinsic
def fetch(typing, x, index):
    """Asks for the LANES entries at x[index:], which may lie beyond the array, to be brought into the second cache."""

    def build(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        fetching(builder, data, args[1], 4 if signature.args[0].dtype == types.float32 else 2)
        return context.get_dummy_value()

    return types.void(x, index), build


@intrinsic
def phases(typing, x, index, high, low, out, at):
    """Writes log10|SCALE·x − high − low| mod 1, in units of 2^-24, for LANES entries to out[at:].

    Entries that are exactly zero get slot ZERO instead, those that are zero after centring slot TIE, each in one of
    eight places by lane: so many equal phases in a row would make the counter that follows wait for itself.
    """

    def build(context, builder, signature, args):
        contract = ("contract",)
        value = _load(context, builder, signature.args[0], args[0], args[1])
        centred = _centred(builder, value, args[2], args[3])
        bits = builder.bitcast(centred, _ints)
        exponent = builder.and_(builder.lshr(bits, same(_ints, 23)), same(_ints, 0xFF))
        mantissa = builder.or_(builder.and_(bits, same(_ints, 0x7FFFFF)), same(_ints, 0x3F800000))
        fraction = builder.fsub(builder.bitcast(mantissa, _floats), same(_floats, 1.0))
        logarithm = same(_floats, _LOG10[-1])
        for coefficient in _LOG10[-2::-1]:
            product = builder.fmul(logarithm, fraction, flags=contract)
            logarithm = builder.fadd(product, same(_floats, coefficient), flags=contract)
        # unsigned 32-bit addition wraps, which is the "mod 1"
        phase = builder.add(builder.mul(exponent, same(_ints, _OCTAVE)), builder.fptosi(logarithm, _ints))
        phase = builder.lshr(phase, same(_ints, 32 - PHASE_BITS))
        for tested, slot in ((centred, TIE), (value, ZERO)):
            apart = [slot + ((lane % 8) << (PHASE_BITS - 3)) for lane in range(LANES)]
            zero = builder.fcmp_ordered("==", tested, same(_floats, 0.0))
            phase = builder.select(zero, ir.Constant(_ints, apart), phase)
        builder.store(phase, pointer(context, builder, signature.args[4], args[4], args[5], _ints)).align = 4
        return context.get_dummy_value()

    return types.void(x, index, high, low, out, at), build


@intrinsic
def octave_words(typing, x, index, high, low, base, shift, places, words, at):
    """Writes which counter is meant, and what to add to it, for LANES entries to places[at:] and words[at:].

    The float32 bits of |SCALE·x − high − low| less base, in units of 2^WORD_SHIFT, less their last shift bits, are the
    place. Those last bits and a count of one are added. Values below base have place 0. Entries that are exactly zero
    have places in row ROWS, sixteen of them: so many equal ones would make the counter that follows wait for itself.
    """

    def build(context, builder, signature, args):
        value = _load(context, builder, signature.args[0], args[0], args[1])
        centred = _centred(builder, value, args[2], args[3])
        bits = builder.and_(builder.bitcast(centred, _ints), same(_ints, 0x7FFFFFFF))
        bits = builder.sub(bits, spread(builder, args[4], _ints))
        bits = builder.select(builder.icmp_signed(">", bits, same(_ints, 0)), bits, same(_ints, 0))
        bits = builder.lshr(bits, same(_ints, WORD_SHIFT))
        apart = [(ROWS << (23 - WORD_SHIFT)) + ((lane % 16) << (19 - WORD_SHIFT)) for lane in range(LANES)]
        zero = builder.fcmp_ordered("==", value, same(_floats, 0.0))
        bits = builder.select(zero, ir.Constant(_ints, apart), bits)
        place = builder.lshr(bits, spread(builder, args[5], _ints))
        rest = builder.sub(bits, builder.shl(place, spread(builder, args[5], _ints)))
        word = builder.or_(rest, same(_ints, 1 << COUNT_SHIFT))
        for result, number in ((place, 6), (word, 7)):
            builder.store(
                result, pointer(context, builder, signature.args[number], args[number], args[8], _ints)
            ).align = 4
        return context.get_dummy_value()

    return types.void(x, index, high, low, base, shift, places, words, at), build


@intrinsic
def tally(typing, places, words, at, counters):
    """Adds each of LANES words to the counter at its place."""

    def build(context, builder, signature, args):
        data = [context.make_array(signature.args[k])(context, builder, args[k]).data for k in (0, 1, 3)]
        first_place, first_word = (builder.gep(start, [args[2]]) for start in data[:2])
        for lane in range(LANES):
            offset = ir.Constant(ir.IntType(64), lane)
            place = builder.zext(builder.load(builder.gep(first_place, [offset])), ir.IntType(64))
            word = builder.load(builder.gep(first_word, [offset]))
            counter = builder.gep(data[2], [place])
            builder.store(builder.add(builder.load(counter), word), counter)
        return context.get_dummy_value()

    return types.void(places, words, at, counters), build
