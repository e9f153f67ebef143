"""Element-wise steps of a network, and the survey of what they give, in one pass over memory."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from benfourier.kernels.lanes import LANES, surveying
from benfourier.kernels.vectors import F32, I64, pointer, same

AS_IS, SCALE, ADD, RECTIFY = 0, 1, 2, 3
_floats = ir.VectorType(F32, LANES)


def _at(context, builder, signature, args, number, index):
    """LANES numbers of an array argument, from an index on."""
    value = builder.load(pointer(context, builder, signature.args[number], args[number], index, _floats))
    value.align = 4
    return value


def _stored(context, builder, signature, args, index, value):
    place = pointer(context, builder, signature.args[1], args[1], index, _floats)
    builder.store(value, place).align = 4
    return value


@intrinsic
def scaled(typing, x, target, blocks, sums, peaks, scale, shift, period):
    """Writes scale·x + shift to target and surveys it; scale and shift repeat after period blocks."""

    def build(context, builder, signature, args):
        turn = cgutils.alloca_once_value(builder, ir.Constant(I64, 0))

        def value_at(index):
            value = _at(context, builder, signature, args, 0, index)
            now = builder.load(turn)
            place = builder.mul(now, ir.Constant(I64, LANES))
            factor, term = (_at(context, builder, signature, args, number, place) for number in (5, 6))
            after = builder.add(now, ir.Constant(I64, 1))
            again = builder.icmp_signed("==", after, args[7])
            builder.store(builder.select(again, ir.Constant(I64, 0), after), turn)
            product = builder.fmul(value, factor, flags=("contract",))
            value = builder.fadd(product, term, flags=("contract",))
            return _stored(context, builder, signature, args, index, value)

        return surveying(context, builder, signature, args, value_at)

    return types.void(x, target, blocks, sums, peaks, scale, shift, period), build


@intrinsic
def rectified(typing, x, target, blocks, sums, peaks):
    """Writes max(x, 0) to target and surveys it; NaN stays NaN."""

    def build(context, builder, signature, args):
        def value_at(index):
            value = _at(context, builder, signature, args, 0, index)
            zero = same(_floats, 0.0)
            value = builder.select(builder.fcmp_ordered("<=", value, zero), zero, value)
            return _stored(context, builder, signature, args, index, value)

        return surveying(context, builder, signature, args, value_at)

    return types.void(x, target, blocks, sums, peaks), build


@intrinsic
def added(typing, x, target, blocks, sums, peaks, other):
    """Writes x + other to target and surveys it."""

    def build(context, builder, signature, args):
        def value_at(index):
            terms = (_at(context, builder, signature, args, number, index) for number in (0, 5))
            return _stored(context, builder, signature, args, index, builder.fadd(*terms))

        return surveying(context, builder, signature, args, value_at)

    return types.void(x, target, blocks, sums, peaks, other), build
