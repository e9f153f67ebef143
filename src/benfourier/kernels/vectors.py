"""Vectors as LLVM writes them, for the steps in `lanes` and `weights`."""

from llvmlite import ir

I32, I64, F32, F64 = ir.IntType(32), ir.IntType(64), ir.FloatType(), ir.DoubleType()


def same(kind: ir.VectorType, value: float) -> ir.Constant:
    """A constant vector with one value in every lane."""
    return ir.Constant(kind, [value] * kind.count)


def spread(builder: ir.IRBuilder, value: ir.Value, kind: ir.VectorType) -> ir.Value:
    """A vector with the run-time value in every lane."""
    empty = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(empty, value, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, empty, same(ir.VectorType(I32, kind.count), 0))


def pointer(context, builder, kind, array, index, vector) -> ir.Value:
    """Address of array[index] as a pointer to a vector."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


def part(builder: ir.IRBuilder, value: ir.Value, start: int, count: int) -> ir.Value:
    """Lanes start..start+count of a vector."""
    mask = ir.Constant(ir.VectorType(I32, count), list(range(start, start + count)))
    return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), mask)
