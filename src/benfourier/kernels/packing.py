"""Entries that are not zero, written one after the other: the zeros of a ReLU are one atom and need no counting."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from benfourier.kernels.lanes import LANES
from benfourier.kernels.vectors import F32, I32, I64, pointer, same

_floats = ir.VectorType(F32, 16)


@intrinsic
def pack(typing, x, index, packed, at):
    """Writes those of LANES float32 entries that are not zero to packed[at:]; returns how many.

    Up to 16 numbers after them are overwritten.
    """

    def build(context, builder, signature, args):
        write, end = moving(context), args[3]
        for start in range(0, LANES, 16):
            index = builder.add(args[1], ir.Constant(I64, start))
            value = builder.load(pointer(context, builder, signature.args[0], args[0], index, _floats))
            value.align = 4
            kept = builder.fcmp_unordered("!=", value, same(_floats, 0.0))
            data = context.make_array(signature.args[2])(context, builder, args[2]).data
            end = write(builder, value, kept, data, end)
        return builder.sub(end, args[3])

    return types.int64(x, index, packed, at), build


def moving(context):
    """What moves the kept lanes of 16 together, as write(builder, value, kept, data, at); it returns the next place."""
    return _write_at_once if "+avx512f" in context.codegen()._tm_features else _write_singly


def _write_at_once(builder, value, kept, data, at):
    """Where the next entry goes, after the kept lanes of a vector were moved together and stored."""
    kind = ir.FunctionType(_floats, [_floats, _floats, kept.type])
    compress = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.mask.compress.v16f32")
    together = builder.call(compress, [value, same(_floats, 0.0), kept])
    builder.store(together, builder.bitcast(builder.gep(data, [at]), _floats.as_pointer())).align = 4
    number = builder.ctpop(builder.bitcast(kept, ir.IntType(16)))
    return builder.add(at, builder.zext(number, I64))


def _write_singly(builder, value, kept, data, at):
    """The same lane by lane, for machines that cannot move them together."""
    for lane in range(16):
        index = ir.Constant(I32, lane)
        builder.store(builder.extract_element(value, index), builder.gep(data, [at]))
        at = builder.add(at, builder.zext(builder.extract_element(kept, index), I64))
    return at
