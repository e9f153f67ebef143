"""Loops over rows shared among torch's own threads.

A second pool of threads beside torch's would cost more than it brings: the idle threads of one spin, for the next loop
to come soon, on the cores that the other needs. So loops are handed to the OpenMP that torch itself runs on, through
GOMP_parallel, which GNU's, LLVM's and Intel's have on Linux. Where it is not found, Python's threads take its place.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_forked = False


def _note_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


class Team(NamedTuple):
    """Addresses of GOMP_parallel, omp_get_thread_num and omp_get_num_threads, or zeros; and how many threads to ask."""

    parallel: int
    which: int
    size: int
    threads: int


ALONE = Team(0, 0, 0, 1)


def threads() -> int:
    """As many threads as torch uses; one in a forked child, which GNU OpenMP would end if it entered."""
    return 1 if _forked else torch.get_num_threads()


def share(loop: Callable[..., None], count: int, *args: Any) -> None:
    """Calls loop(team, 0, count, *args), or loop(ALONE, first, last, *args) for several ranges at a time."""
    number = min(threads(), count)
    team = _torch_team(number)
    if number == 1 or team.parallel:
        loop(team, 0, count, *args)
        return
    ends = [count * k // number for k in range(number + 1)]
    list(_pool(number).map(lambda first, last: loop(ALONE, first, last, *args), ends, ends[1:]))


@cache
def _torch_team(number: int) -> Team:
    """Torch's own threads, or ALONE if one thread is enough or its OpenMP cannot be reached."""
    if number == 1:
        return ALONE
    try:
        home = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
        found = [ctypes.cast(getattr(home, name), ctypes.c_void_p).value or 0 for name in names]
    except (OSError, AttributeError):
        return ALONE
    return Team(found[0], found[1], found[2], number)


@cache
def _pool(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number)


def _called(builder: ir.IRBuilder, address: ir.Value, result: ir.Type, *args: ir.Value) -> ir.Value:
    """Result of the C function at an address."""
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(builder.inttoptr(address, kind.as_pointer()), args)


def _borrowed(context, builder, kind, value) -> ir.Value:
    """An argument whose arrays are not counted as used: threads that count in one place wait for one another."""
    if isinstance(kind, types.BaseTuple):
        parts = [_borrowed(context, builder, k, builder.extract_value(value, i)) for i, k in enumerate(kind.types)]
        return context.make_tuple(builder, kind, parts)
    if not isinstance(kind, types.Array):
        return value
    array = context.make_array(kind)(context, builder, value)
    array.meminfo = cgutils.get_null_value(array.meminfo.type)
    return array._getvalue()


@intrinsic
def lent(typing, array):
    """The same array, not counted as used; whoever owns it must outlive it."""

    def build(context, builder, signature, args):
        return _borrowed(context, builder, signature.args[0], args[0])

    return array(array), build


@intrinsic
def at_address(typing, address, like):
    """A pointer to numbers like the given one."""

    def build(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(like)(address, like), build


@intrinsic
def together(typing, loop, team, start, stop, args):
    """Calls loop(first, last, *args) in every thread of a team, each with its part of start..stop."""
    python_loop = loop.dispatcher.py_func
    inner = types.void(types.int64, types.int64, *args.types)

    def build(context, builder, signature, values):
        _, team, start, stop, args = values
        whole = context.get_value_type(signature.args[4])
        args = _borrowed(context, builder, signature.args[4], args)
        compiled = context.compile_subroutine(builder, python_loop, inner)
        address, which, size, threads = (builder.extract_value(team, k) for k in range(4))
        parcel = cgutils.alloca_once_value(builder, cgutils.pack_struct(builder, [start, stop, which, size, args]))

        def call(builder, first, last, args):
            members = [builder.extract_value(args, k) for k in range(len(whole.elements))]
            context.call_internal_no_propagate(builder, compiled.fndesc, inner, [first, last, *members])

        name = f"{builder.function.name}.part"
        part = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [_I8.as_pointer()]), name)
        part.linkage = "internal"
        inside = ir.IRBuilder(part.append_basic_block())
        content = inside.load(inside.bitcast(part.args[0], parcel.type))
        start_, stop_, which_, size_, args_ = (inside.extract_value(content, k) for k in range(5))
        mine = inside.zext(_called(inside, which_, _I32), _I64)
        members = inside.zext(_called(inside, size_, _I32), _I64)
        length = inside.sub(stop_, start_)
        ends = [
            inside.add(start_, inside.sdiv(inside.mul(length, number), members))
            for number in (mine, inside.add(mine, ir.Constant(_I64, 1)))
        ]
        call(inside, *ends, args_)
        inside.ret_void()

        with builder.if_else(cgutils.is_null(builder, address)) as (alone, shared):
            with alone:
                call(builder, start, stop, args)
            with shared:
                data = builder.bitcast(parcel, _I8.as_pointer())
                number = builder.trunc(threads, _I32)
                _called(builder, address, ir.VoidType(), part, data, number, ir.Constant(_I32, 0))
        return context.get_dummy_value()

    return types.void(loop, team, start, stop, args), build
