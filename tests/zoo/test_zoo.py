import math

import pytest
import torch
from torch import Tensor, fx, nn

from benfourier.models.zoo import ZOO, ZooEntry
from benfourier.models.zoo.resnet import ResidualBlock, cifar_resnet20, shortcut
from benfourier.models.zoo.vgg import cifar_vgg19

# Parameters as published or, for LID's and the CIFAR networks, counted from the layers' sizes.
PARAMETERS = {
    "lid-mnist": 1_219_146,
    "lid-cifar10": 2_919_082,
    "lid-svhn": 6_530_250,
    "small-mnist": 61_098,
    "alexnet": 61_100_840,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "cifar-vgg19": 20_040_522,
    "cifar-resnet20": 269_722,
    "cifar-resnet56": 853_018,
    "efficientnet-lite0": 4_652_008,
}


def bare(name: str, **options: int) -> nn.Module:
    """A network without memory for its weights."""
    with torch.device("meta"):
        return ZOO[name].factory(**options).eval()


def zeroed(block: ResidualBlock) -> ResidualBlock:
    """The block with convolutions that return zero."""
    nn.init.zeros_(block.bn2.weight)
    return block.eval()


@pytest.fixture(name="maps")
def maps_of_two_images() -> Tensor:
    return torch.randn(2, 16, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("entry", ZOO.values(), ids=ZOO)
def test_every_network_turns_its_images_into_logits(entry: ZooEntry) -> None:
    images = torch.empty(2, entry.channels, entry.size, entry.size, device="meta")
    assert bare(entry.name)(images).shape == (2, entry.classes)


@pytest.mark.parametrize("name", ["lid-mnist", "lid-cifar10", "lid-svhn", "small-mnist", "cifar-resnet20"])
def test_small_networks_give_finite_logits(name: str) -> None:
    entry = ZOO[name]
    images = torch.rand(2, entry.channels, entry.size, entry.size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits = ZOO[name].factory().eval()(images)
    assert logits.shape == (2, 10)
    assert logits.isfinite().all()


def test_the_small_network_takes_about_two_million_multiply_adds() -> None:
    multiply_adds = 0

    def count(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal multiply_adds
        multiply_adds += output[0].numel() * layer.weight[0].numel()  # type: ignore[index]

    net = bare("small-mnist")
    for layer in net.children():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(count)
    net(torch.empty(1, 1, 28, 28, device="meta"))
    assert 1.8e6 < multiply_adds < 2.2e6


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_every_network_has_its_known_number_of_parameters(name: str, count: int) -> None:
    assert sum(parameter.numel() for parameter in bare(name).parameters()) == count


def test_every_network_has_a_known_number_of_parameters() -> None:
    assert PARAMETERS.keys() == ZOO.keys()
    assert all(name == entry.name for name, entry in ZOO.items())


@pytest.mark.parametrize(("name", "count"), [("lid-mnist", 14), ("lid-cifar10", 32), ("lid-svhn", 18)])
def test_lid_networks_are_one_plain_sequence(name: str, count: int) -> None:
    net = bare(name)
    assert type(net) is nn.Sequential
    assert len(net) == count
    assert not any(list(module.children()) for module in net)


@pytest.mark.parametrize("name", ["lid-mnist", "lid-cifar10", "lid-svhn"])
def test_lid_networks_normalise_after_the_relu(name: str) -> None:
    modules = list(bare(name).children())
    norms = [place for place, module in enumerate(modules) if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]
    assert norms
    assert all(isinstance(modules[place - 1], nn.ReLU) for place in norms)


@pytest.mark.parametrize(("name", "weighted"), [("lid-cifar10", 17), ("lid-svhn", 9)])
def test_lid_keys_are_positions(name: str, weighted: int) -> None:
    weights = [key for key in bare(name).state_dict() if key.endswith(".weight")]
    assert len(weights) == weighted
    assert all(key.split(".")[0].isdecimal() for key in weights)


@pytest.mark.parametrize(
    ("name", "features", "linear"),
    [
        ("alexnet", [0, 3, 6, 8, 10], [1, 4, 6]),
        ("vgg16", [0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28], [0, 3, 6]),
        ("vgg19", [0, 2, 5, 7, 10, 12, 14, 16, 19, 21, 23, 25, 28, 30, 32, 34], [0, 3, 6]),
    ],
)
def test_large_networks_have_the_customary_keys(name: str, features: list[int], linear: list[int]) -> None:
    net = bare(name)
    places = [f"features.{place}" for place in features] + [f"classifier.{place}" for place in linear]
    assert list(net.state_dict()) == [f"{place}.{kind}" for place in places for kind in ("weight", "bias")]
    assert [part for part, _ in net.named_children()] == ["features", "avgpool", "classifier"]


def test_cifar_vgg_ends_in_one_linear_layer() -> None:
    keys = bare("cifar-vgg19").state_dict()
    assert keys["features.0.weight"].shape == (64, 3, 3, 3)
    assert keys["features.1.running_mean"].shape == (64,)
    assert keys["classifier.weight"].shape == (10, 512)


def test_vgg_weights_are_drawn_by_kaimings_rule() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        net = cifar_vgg19()
    conv = net.get_submodule("features.49")
    assert isinstance(conv, nn.Conv2d)
    # A sample deviation of n normals is off by 1/√(2n) of itself; five of those fail six times in ten million.
    slack = 5 / math.sqrt(2 * conv.weight.numel())
    assert conv.weight.std().item() == pytest.approx(math.sqrt(2 / (9 * 512)), rel=slack)
    assert conv.bias is not None
    assert not conv.bias.any()
    assert not net.get_parameter("classifier.bias").any()


def test_resnet_keys_name_stage_block_and_layer() -> None:
    blocks = [f"layer{stage}.{block}" for stage in (1, 2, 3) for block in range(3)]
    inner = [f"{block}.{layer}" for block in blocks for layer in ("conv1", "bn1", "conv2", "bn2")]
    weights = [key for key in bare("cifar-resnet20").state_dict() if key.endswith(".weight")]
    assert weights == [f"{layer}.weight" for layer in ("conv1", "bn1", *inner, "linear")]


def test_shortcut_keeps_every_second_pixel_between_zero_channels(maps: Tensor) -> None:
    short = shortcut(maps, 16)
    assert short.shape == (2, 32, 4, 4)
    assert torch.equal(short[:, 8:24], maps[:, :, ::2, ::2])
    assert not short[:, :8].any()
    assert not short[:, 24:].any()


def test_block_with_zeroed_convolutions_passes_its_shortcut(maps: Tensor) -> None:
    with torch.no_grad():
        assert torch.equal(zeroed(ResidualBlock(16, 16))(maps), maps.relu())
        assert torch.equal(zeroed(ResidualBlock(16, 32))(maps), shortcut(maps, 16).relu())


def test_resnet_can_be_traced_and_shows_its_functional_relus() -> None:
    net = cifar_resnet20().eval()
    traced = fx.symbolic_trace(net)
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.equal(traced(images), net(images))
    relus = [node for node in traced.graph.nodes if node.target is torch.nn.functional.relu]
    assert len(relus) == 1 + 2 * 9
    assert not any(isinstance(module, nn.ReLU) for module in net.modules())


def test_classes_can_be_chosen() -> None:
    assert bare("alexnet", classes=8).get_parameter("classifier.6.weight").shape == (8, 4096)


def test_entries_and_zoo_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ZOO["vgg16"].classes = 8  # type: ignore[misc]
    with pytest.raises(TypeError):
        ZOO["vgg16"] = ZOO["vgg19"]  # type: ignore[index]
