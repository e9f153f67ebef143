"""A training between two epochs, on disk: enough to go on as if it had never stopped."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benfourier.errors import OptionError, StoreError
from benfourier.store import artifact
from benfourier.subjects.weights import fill, tensors_of

KIND = "benfourier-training"
SCHEMA = 1
WEIGHT, MOMENTUM = "weight:", "momentum:"


@dataclass(frozen=True)
class Epoch:
    """What one epoch came to: loss and accuracy while learning, then right answers to held-out images."""

    loss: float
    accuracy: float
    right: int
    images: int
    seconds: float


def save_checkpoint(
    path: Path, run: Mapping[str, object], epochs: Sequence[Epoch], module: nn.Module, optimiser: torch.optim.SGD
) -> None:
    """Writes the state after some epochs; draws need no state, since each epoch has generators of its own.

    Args:
        path: the file.
        run: what decides the outcome: network, recipe, data.
        epochs: those that are done.
        module: with the weights reached.
        optimiser: with the momenta reached.
    """
    held = {f"{WEIGHT}{name}": tensor for name, tensor in tensors_of(module).items()}
    for name, parameter in module.named_parameters():
        momentum = optimiser.state[parameter].get("momentum_buffer") if parameter in optimiser.state else None
        if momentum is not None:
            held[f"{MOMENTUM}{name}"] = momentum
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in held.items()}
    manifest = {"run": dict(run), "epochs": [asdict(epoch) for epoch in epochs]}
    artifact.write(path, KIND, SCHEMA, manifest, arrays)


def load_checkpoint(
    path: Path, run: Mapping[str, Any], module: nn.Module, optimiser: torch.optim.SGD
) -> tuple[Epoch, ...]:
    """Returns the epochs that are done, with module and optimiser as they were then; refuses another run's file."""
    if not path.exists():
        raise StoreError(f"{path}: there is no such checkpoint; begin anew, without resume")
    manifest, arrays = artifact.read(path, KIND, SCHEMA)
    _refuse_other(path, manifest["run"], run)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    fill(module, _part(tensors, WEIGHT), str(path))
    momenta = _part(tensors, MOMENTUM)
    for name, parameter in module.named_parameters():
        if name in momenta:
            optimiser.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(momenta[name])
    return tuple(Epoch(**epoch) for epoch in manifest["epochs"])


def refuse_unfinished(path: Path) -> None:
    """Raises OptionError if a checkpoint is there that a new run would overwrite."""
    if path.exists():
        raise OptionError(
            f"{path}: this is the checkpoint of a run that has not finished; resume it, or delete it to begin anew"
        )


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _refuse_other(path: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises OptionError unless the checkpoint is of this very run."""
    differ = [f"{name} was {then.get(name)} and is {now.get(name)}" for name in now if then.get(name) != now[name]]
    if differ:
        raise OptionError(
            f"{path}: it is of another run: {'; '.join(differ)}; "
            "give the same options, network and data, or begin anew in another place"
        )
