"""A device that every machine has: it computes on the CPU, and keeps its tensors apart from the CPU's as a GPU does.

Its tensors say that they are on torch's device "meta"; each has its numbers in a tensor of the CPU, which only this
file reads. An operation on tensors of both devices fails as on a GPU, and so does `numpy`. What is copied to the CPU is
noted, and refused if it is large.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = torch.device("meta")
aten = torch.ops.aten
COPIES = (aten._to_copy.default, aten.copy_.default)
INDEXING = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)  # a GPU takes places from the CPU
NUMBERS = (aten._local_scalar_dense.default, aten.equal.default)  # return a number or a truth value


class CopyError(AssertionError):
    """A tensor of the other device was copied to the CPU, though it is larger than a test allows."""


class DeviceTensor(Tensor):
    """A tensor of the other device."""

    numbers: Tensor  # on the CPU
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, numbers: Tensor) -> "DeviceTensor":
        layout: Any = {"strides": numbers.stride(), "storage_offset": numbers.storage_offset()}
        make = Tensor._make_wrapper_subclass
        tensor: DeviceTensor = make(cls, numbers.shape, dtype=numbers.dtype, device=DEVICE, **layout)
        return tensor

    def __init__(self, numbers: Tensor) -> None:
        self.numbers = numbers

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _compute(func, args, kwargs or {})


def numbers_of(tensor: DeviceTensor) -> Tensor:
    """Returns what a tensor of the other device holds."""
    return tensor.numbers


def _compute(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of an operation, on the device where a GPU would leave it."""
    here = any(isinstance(leaf, DeviceTensor) for leaf in tree_leaves((args, kwargs)))
    if here and func not in COPIES:
        # a GPU takes single numbers from the CPU
        mixed = tree_leaves((args[:1], args[2:]) if func in INDEXING else (args, kwargs))
        if any(isinstance(leaf, Tensor) and not isinstance(leaf, DeviceTensor) and leaf.ndim for leaf in mixed):
            raise RuntimeError(f"{func} expects all tensors on one device")
    plain_args, plain = tree_map_only(DeviceTensor, numbers_of, (args, {**kwargs}))
    device = kwargs.get("device")
    if device is not None:
        plain["device"] = "cpu"
    result = func(*plain_args, **plain)
    stays = here if device is None else torch.device(device) == DEVICE
    if func is aten.copy_.default:  # into its first argument, wherever that is
        return args[0]
    if not stays or func in NUMBERS:
        return result
    result = tree_map_only(Tensor, DeviceTensor, result)
    return return_and_correct_aliasing(func, args, kwargs, result)  # type: ignore[no-untyped-call]


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Brings operations that make tensors on the other device there, and notes copies back."""

    def __init__(self, device: "OtherDevice") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = _compute(func, args, kwargs or {})
        if func in COPIES and not isinstance(result, DeviceTensor):
            source = args[1] if func is aten.copy_.default else args[0]
            if isinstance(source, DeviceTensor):
                self._device.note_copy(source)
        return result


class OtherDevice(TorchFunctionMode):
    """The device can be used in the block; copies to the CPU of more than `largest` numbers are refused."""

    def __init__(self, largest: int | None = None) -> None:
        super().__init__()
        self.largest = largest
        self.copies: list[tuple[int, ...]] = []  # shapes of what was copied to the CPU
        self._operations = ExitStack()

    def __enter__(self) -> Self:
        self._operations.enter_context(_Operations(self))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._operations.close()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, source, kwargs = getattr(func, "__name__", ""), args[0] if args else None, kwargs or {}
        if name in ("tensor", "as_tensor") and torch.device(kwargs.get("device") or "cpu") == DEVICE:
            return func(*args, **{**kwargs, "device": "cpu"}).to(DEVICE)  # torch would make one without numbers
        if isinstance(source, DeviceTensor):
            if name == "new_tensor":
                return source.numbers.new_tensor(*args[1:], **kwargs).to(DEVICE)
            if name in ("numpy", "__array__"):
                raise TypeError("a tensor of another device has no array; copy it to the CPU first")
            if name == "tolist":
                self.note_copy(source)
                return source.numbers.tolist()
        return func(*args, **kwargs)

    def note_copy(self, source: Tensor) -> None:
        """Notes a copy to the CPU, and refuses a large one."""
        self.copies.append(tuple(source.shape))
        if self.largest is not None and source.numel() > self.largest:
            raise CopyError(f"{tuple(source.shape)} are copied to the CPU; at most {self.largest} numbers may be")
