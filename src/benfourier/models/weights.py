"""Weights of a module in one safetensors file: loaded only if every tensor fits, never from a pickle."""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from benfourier.errors import ClassifierError, InputError, StoreError
from benfourier.options import check_json
from benfourier.store.artifact import FilePath, digest_of, read_bytes, replace_file

KIND = "benfourier-weights"
COUNTER = "num_batches_tracked"  # of BatchNorm; many files leave it out, and no forward pass in eval mode reads it
DTYPES = {  # as safetensors calls them
    **{"BOOL": torch.bool, "U8": torch.uint8, "U16": torch.uint16, "U32": torch.uint32, "U64": torch.uint64},
    **{"I8": torch.int8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64, "BF16": torch.bfloat16},
    **{"F16": torch.float16, "F32": torch.float32, "F64": torch.float64, "C64": torch.complex64},
    **{"F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2},
}


def save_weights(module: nn.Module, path: FilePath, **metadata: object) -> None:
    """Writes the module's parameters and buffers, each in its own dtype, whole or not at all.

    The metadata are what else the file should tell, as JSON can hold it: the network's id, its options, its training.
    """
    tensors = state_tensors(module)
    for name in ("kind", "tensors"):
        if name in metadata:
            raise InputError(f"metadata holds {name!r}, a name that the file itself uses; use another")
    manifest = json.dumps({"kind": KIND, "tensors": _digest(tensors), **check_json("the metadata", metadata)})
    copies = {name: tensor.cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    replace_file(path, lambda temporary: save_file(copies, temporary, {"format": "pt", "manifest": manifest}))


def load_weights(module: nn.Module, path: FilePath, digest: str | None = None) -> dict[str, Any]:
    """Fills the module from a safetensors file, and returns the file's metadata; those of other programs have none.

    The module is not touched unless all is well. It stays in its own dtypes and on its own devices.
    """
    tensors, metadata = read_weights(path, digest)
    fill_weights(module, tensors, str(path))
    return metadata


def read_weights(path: FilePath, digest: str | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Returns the tensors of a safetensors file by name, and its metadata; digest is the SHA-256 that it must have."""
    if digest is not None and Path(path).is_file():
        read_file(Path(path), digest, "get the right file, or another digest")
    header, content = read_bytes(path)
    tensors: dict[str, Tensor] = {}
    for name in sorted(header.entries):
        entry = header.entries[name]
        if entry.dtype not in DTYPES:
            raise StoreError(f"{path}: {name} is {entry.dtype}; allowed: {', '.join(DTYPES)}; make it again")
        tensors[name] = torch.from_numpy(content[name]).view(DTYPES[entry.dtype]).reshape(entry.shape)
    metadata = header.manifest if header.manifest.pop("kind", None) == KIND else {}  # none if it is another program's
    if metadata.pop("tensors", None) not in (None, _digest(tensors)):
        raise StoreError(f"{path}: its tensors are not those that were written; it is damaged; get or make it again")
    return tensors, metadata


def fill_weights(module: nn.Module, tensors: Mapping[str, Tensor], where: str, *, part: bool = False) -> None:
    """Copies tensors into the module, or raises StoreError, with the module untouched, unless each has its place.

    They are cast to the module's dtypes. BatchNorm's counters may be missing, with part=True others too, which stay as
    they are. Messages say where the tensors were read from.
    """
    own = state_tensors(module)
    missing = [name for name in own if name not in tensors and not name.endswith(COUNTER) and not part]
    unexpected = [name for name in tensors if name not in own]
    if missing or unexpected:
        lists = [
            f"{what} {', '.join(names[:3])}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            for what, names in (("lacks", missing), ("also has", unexpected))
            if names
        ]
        raise StoreError(f"{where}: it {' and '.join(lists)}; give the weights of this very network, or name another")
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            problem = f"{where}: {name} has shape {tuple(tensor.shape)}, and {tuple(own[name].shape)} in the module"
            advice = "give the weights of this very network, or the options that they were made with, such as classes"
            raise StoreError(f"{problem}; {advice}")
        if tensor.is_floating_point() != own[name].is_floating_point():
            raise StoreError(f"{where}: {name} is {tensor.dtype}, and {own[name].dtype} in the module; make it again")
        if bool(tensor.isnan().any()):
            raise StoreError(f"{where}: {name} holds NaN; the training that made it went wrong; make it again")
    module.load_state_dict(dict(tensors), strict=False)


def weights_digest(module: nn.Module) -> str:
    """Returns the SHA-256 of names, dtypes, shapes and values, whatever the device and the layout in memory."""
    return _digest(state_tensors(module))


def state_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Returns the module's parameters and buffers by name, without gradients; they are not copied."""
    state = module.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            problem = f"the module's state holds {name}, a {type(value).__name__}"
            raise ClassifierError(f"{problem}; only tensors can be saved")
    return {name: value.detach() for name, value in state.items()}


def read_file(path: Path, digest: str, advice: str) -> bytes:
    """Returns the content of a file, or raises StoreError unless it has that SHA-256."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: it cannot be opened ({error}); {advice}") from error
    actual = sha256(content).hexdigest()
    if actual != digest.lower():
        raise StoreError(f"{path}: its SHA-256 is {actual}, not {digest}; {advice}")
    return content


def _digest(tensors: Mapping[str, Tensor]) -> str:
    parts: list[Any] = []
    for name, tensor in sorted(tensors.items()):
        content = tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        parts += [f"{name} {tensor.dtype} {tuple(tensor.shape)}", content]
    return digest_of(parts)
