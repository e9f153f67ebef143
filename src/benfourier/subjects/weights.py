"""Weights of a module in one safetensors file: loaded only if every tensor fits, never from a pickle."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from benfourier.errors import InputError, StoreError, SubjectError
from benfourier.store.artifact import put
from benfourier.store.digest import Part, digest_of

KIND = "benfourier-weights"
COUNTER = "num_batches_tracked"  # of BatchNorm; many files leave it out, and no forward pass in eval mode reads it
OWN = ("kind", "tensors")


def save_weights(module: nn.Module, path: str | PathLike[str], **facts: object) -> None:
    """Writes the module's weights, whole or not at all.

    Args:
        module: whose parameters and buffers are written, each in its own dtype.
        path: the file.
        facts: what else the file should tell, as JSON can hold it: the network's id, its options, its training.
    """
    tensors = tensors_of(module)
    clash = sorted(set(facts) & set(OWN))
    if clash:
        raise InputError(f"a fact is called {clash[0]!r}; that name is taken; use another")
    try:
        manifest = json.dumps({"kind": KIND, "tensors": _digest(tensors), **facts}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the facts cannot be written as JSON ({error}); use texts, finite numbers and lists"
        ) from error
    held = {name: tensor.cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    put(path, lambda beside: save_file(held, beside, metadata={"format": "pt", "manifest": manifest}))


def load_weights(module: nn.Module, path: str | PathLike[str], digest: str | None = None) -> dict[str, Any]:
    """Fills the module from a file and returns the file's facts; the module is not touched unless all is well.

    Args:
        module: gets the weights, in its own dtypes and on its own devices.
        path: a safetensors file; those of other programs have no facts.
        digest: SHA-256 that the file must have.
    """
    tensors, facts = read_weights(path, digest)
    fill(module, tensors, str(path))
    return facts


def read_weights(path: str | PathLike[str], digest: str | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Returns the tensors of a safetensors file by name, and the file's facts.

    Args:
        path: the file.
        digest: SHA-256 that it must have.
    """
    path = Path(path)
    try:
        if digest is not None:
            check_digest(path, digest)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise StoreError(
            f"{path}: it is cut short, damaged or no safetensors file ({error}); get or make it again"
        ) from error
    except OSError as error:
        raise StoreError(f"{path}: it cannot be opened ({error}); check the name and the permissions") from error
    facts = _facts(metadata.get("manifest"), path)
    if facts.pop("tensors", None) not in (None, _digest(tensors)):
        raise StoreError(f"{path}: its tensors are not those that were written; it is damaged; get or make it again")
    return tensors, facts


def fill(module: nn.Module, tensors: Mapping[str, Tensor], where: str, *, part: bool = False) -> None:
    """Copies tensors into the module, or raises StoreError, with the module untouched, unless each has its place.

    Args:
        module: gets the tensors, cast to its own dtypes.
        tensors: by the names of the module's state; BatchNorm's counters may be missing.
        where: what they were read from, for messages.
        part: whether others may be missing too, and stay as they are.
    """
    own = tensors_of(module)
    missing = [name for name in own if name not in tensors and not name.endswith(COUNTER) and not part]
    unexpected = [name for name in tensors if name not in own]
    if missing or unexpected:
        told = [f"{what} {_some(names)}" for what, names in (("lacks", missing), ("also has", unexpected)) if names]
        raise StoreError(f"{where}: it {' and '.join(told)}; give the weights of this very network, or name another")
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            raise StoreError(
                f"{where}: {name} has shape {tuple(tensor.shape)}, and {tuple(own[name].shape)} in the module; "
                "give the weights of this very network, or the options that they were made with, such as classes"
            )
        if tensor.is_floating_point() != own[name].is_floating_point():
            raise StoreError(f"{where}: {name} is {tensor.dtype}, and {own[name].dtype} in the module; make it again")
        if bool(tensor.isnan().any()):
            raise StoreError(f"{where}: {name} holds NaN; the training that made it went wrong; make it again")
    module.load_state_dict(dict(tensors), strict=False)


def digest_of_weights(module: nn.Module) -> str:
    """Returns the SHA-256 of names, dtypes, shapes and values, whatever the device and the layout in memory."""
    return _digest(tensors_of(module))


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Returns the module's parameters and buffers by name, without gradients; they are not copied."""
    state = module.state_dict()
    foreign = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if foreign:
        raise SubjectError(
            f"the module's state holds {foreign[0]}, a {type(state[foreign[0]]).__name__}; only tensors can be kept"
        )
    return {name: value.detach() for name, value in state.items()}


def check_digest(path: Path, digest: str) -> None:
    """Raises StoreError unless the file has that SHA-256."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != digest.lower():
        raise StoreError(f"{path}: its SHA-256 is {found}, not {digest}; get the right file, or another digest")


def _facts(manifest: str | None, path: Path) -> dict[str, Any]:
    """The facts in a manifest; none if it is another program's."""
    try:
        facts = json.loads(manifest or "null")
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: its manifest is no JSON ({error}); get or make it again") from error
    ours = isinstance(facts, dict) and facts.pop("kind", None) == KIND
    return facts if ours else {}


def _digest(tensors: Mapping[str, Tensor]) -> str:
    def parts() -> Iterable[Part]:
        for name in sorted(tensors):
            tensor = tensors[name]
            yield f"{name} {tensor.dtype} {tuple(tensor.shape)}"
            yield tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()

    return digest_of(parts())


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
