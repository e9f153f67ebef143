"""A training between two epochs, on disk: enough to go on as if it had never stopped."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benfourier.errors import OptionError, StoreError
from benfourier.models.classifier import Classifier
from benfourier.models.weights import fill_weights, state_tensors
from benfourier.store import artifact

KIND = "benfourier-training"
SCHEMA = 2
WEIGHT, MOMENTUM = "weight:", "momentum:"


@dataclass(frozen=True)
class Epoch:
    """Result of one epoch: loss and accuracy on the training images, then correct answers on held-out images."""

    loss: float
    accuracy: float
    correct: int
    images: int
    seconds: float


def describe_network(classifier: Classifier) -> dict[str, str]:
    """Returns what a training depends on besides options, data and weights: structure of the network, images."""
    tensors = state_tensors(classifier.module)
    shapes = [f"{name} {tensor.dtype} {tuple(tensor.shape)}" for name, tensor in tensors.items()]
    mark = artifact.digest_of((*shapes, repr(classifier.module)))[:12]
    count = sum(parameter.numel() for parameter in classifier.module.parameters())
    return {
        "network": f"{type(classifier.module).__name__} with {count:,} parameters ({mark})",
        "images": f"bounds {classifier.bounds}, mean {classifier.mean}, std {classifier.std}",
    }


def save_checkpoint(
    path: Path, run: Mapping[str, object], epochs: Sequence[Epoch], module: nn.Module, optimiser: torch.optim.SGD
) -> None:
    """Writes the state after some epochs of a run, which is all that decides the outcome: network, options, data.

    Draws need no state, since each epoch has generators of its own.
    """
    tensors = {f"{WEIGHT}{name}": tensor for name, tensor in state_tensors(module).items()}
    for name, parameter in module.named_parameters():
        momentum = optimiser.state.get(parameter, {}).get("momentum_buffer")
        if momentum is not None:
            tensors[f"{MOMENTUM}{name}"] = momentum
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    manifest = {"run": dict(run), "epochs": [asdict(epoch) for epoch in epochs]}
    artifact.write(path, KIND, SCHEMA, manifest, arrays)


def load_checkpoint(
    path: Path, run: Mapping[str, Any], module: nn.Module, optimiser: torch.optim.SGD
) -> tuple[Epoch, ...]:
    """Returns the epochs that are done, with module and optimiser as they were then; refuses another run's file."""
    if not path.exists():
        raise StoreError(f"{path}: there is no such checkpoint; begin anew, without resume")
    manifest, arrays = artifact.read(path, KIND, SCHEMA)
    then = manifest["run"]
    differences = [f"{name} was {then.get(name)} and is {now}" for name, now in run.items() if then.get(name) != now]
    if differences:
        advice = "give the same options, network and data, or begin anew in another place"
        raise OptionError(f"{path}: it is of another run: {'; '.join(differences)}; {advice}")
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    weights = {name.removeprefix(WEIGHT): tensor for name, tensor in tensors.items() if name.startswith(WEIGHT)}
    fill_weights(module, weights, str(path))
    for name, parameter in module.named_parameters():
        if f"{MOMENTUM}{name}" in tensors:
            momentum = torch.empty_like(parameter).copy_(tensors[f"{MOMENTUM}{name}"])
            optimiser.state[parameter]["momentum_buffer"] = momentum
    return tuple(Epoch(**epoch) for epoch in manifest["epochs"])
