"""One pass for several observers, and batches."""

import pytest
import torch
from torch import Tensor

import benfourier as bf
from benfourier.errors import ActivationError
from benfourier.models.forward import INPUT, SOFTMAX, batch_size, observe
from tests.models.networks import activations_by_hooks, noise, plain, seeded


class Copies:
    """An observer that copies the activations of its layers."""

    def __init__(self, *layers: str) -> None:
        self.layers = layers

    def reduce(self, layer: str, activation: Tensor) -> Tensor:
        return activation.clone()


def classifier() -> bf.Classifier:
    return bf.Classifier(seeded(plain).eval(), size=12, channels=3, mean=(0.4,), std=(0.2,))


def test_several_observers_share_one_pass() -> None:
    network, images, passes = classifier(), noise(), list[int]()
    network.layer_list()
    expected = activations_by_hooks(network, images)
    network.module.register_forward_hook(lambda *_: passes.append(1))
    with torch.no_grad():
        observation = observe(network, images, [Copies("conv", "head"), Copies("head", SOFTMAX, INPUT), Copies()])
    assert passes == [1]
    first, second, third = observation.values
    assert (set(first), set(second), set(third)) == ({"conv", "head"}, {"head", SOFTMAX, INPUT}, set())
    assert torch.equal(first["conv"], expected["conv"])
    assert torch.equal(second[INPUT], network.normalise(images))
    assert torch.equal(second["head"], observation.logits)
    assert torch.equal(second[SOFTMAX], observation.logits.double().softmax(1))


def test_a_layer_that_does_not_fire_is_named() -> None:
    with pytest.raises(ActivationError, match=r"layers \['conv9'\] did not fire"):
        observe(classifier(), noise(), [Copies("conv", "conv9")])


def test_gradients_need_memory_for_every_activation() -> None:
    network, memory = classifier(), 2**20
    sizes = [layer.entries for layer in network.layers(pass_through=True)]
    assert batch_size(network, (3, 12, 12), memory=memory) == memory // (3 * max(sizes) * 4)
    assert batch_size(network, (3, 12, 12), memory=memory, gradients=True) == memory // (2 * sum(sizes) * 4)
