import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import benfourier as bf
from benfourier import kernels
from benfourier.detectors.mbf import Magnitudes
from benfourier.errors import ActivationError, OptionError
from benfourier.models.forward import batch_size, observe
from benfourier.models.zoo import ZOO
from benfourier.theory.coefficients import Zeros
from tests.models.networks import (
    OBSERVED,
    Residual,
    Viewing,
    activations_by_hooks,
    expected_columns,
    inverse,
    noise,
    plain,
    relative,
    resnet,
    seeded,
    stepping,
    tolerance,
    with_black,
)


def assert_layers_agree(
    classifier: bf.Classifier, features: NDArray[np.floating], expected: NDArray[np.floating], orders: int = 16
) -> None:
    """Columns agree within each layer's own tolerance."""
    layers = classifier.layers()
    assert features.shape == expected.shape == (len(features), len(layers) * orders)
    for place, layer in enumerate(layers):
        columns = slice(place * orders, (place + 1) * orders)
        difference = np.abs(features[:, columns].astype(np.float64) - expected[:, columns]).max()
        assert difference <= tolerance(layer.entries), (layer.name, difference)


@pytest.fixture(name="classifier", scope="module")
def plain_classifier() -> bf.Classifier:
    return bf.Classifier(seeded(plain), size=12, channels=3)


@pytest.fixture(name="expected", scope="module")
def features_of_ten(classifier: bf.Classifier) -> NDArray[np.floating]:
    return bf.features(classifier, noise(10), batch=4)


@pytest.mark.parametrize("orders", [1, 16, 20])
def test_features_have_one_row_per_image_and_orders_columns_per_layer(classifier: bf.Classifier, orders: int) -> None:
    assert bf.features(classifier, noise(3), orders).shape == (3, len(OBSERVED) * orders)


@pytest.mark.parametrize(
    ("module", "images"),
    [
        (seeded(plain), noise()),
        (seeded(plain).double(), noise()),
        (seeded(plain).bfloat16(), noise()),
        (seeded(Viewing), noise()),
        (seeded(ZOO["lid-mnist"].factory), noise(2, 1, 28)),
    ],
    ids=["plain", "float64", "bfloat16", "viewing", "lid-mnist"],
)
def test_every_layers_columns_are_the_magnitudes_of_its_activations(module: nn.Module, images: Tensor) -> None:
    classifier = bf.Classifier(module, mean=(0.4,), std=(0.3,), size=images.shape[2], channels=images.shape[1])
    observed = activations_by_hooks(classifier, images)
    expected = torch.cat([expected_columns(observed[name]) for name in classifier.layer_names()], dim=1)
    assert_layers_agree(classifier, bf.features(classifier, images, entries=None), expected.numpy())


def test_4096_entries_of_a_layer_are_read_by_default() -> None:
    classifier = bf.Classifier(seeded(ZOO["lid-mnist"].factory), size=28, channels=1)
    images = noise(2, 1, 28)
    default, some = bf.features(classifier, images), bf.features(classifier, images, entries=4096)
    np.testing.assert_array_equal(default, some)
    assert not np.array_equal(default, bf.features(classifier, images, entries=None))


def test_columns_of_functional_operations_are_the_magnitudes_of_their_activations() -> None:
    net, images = seeded(Residual), noise()
    classifier = bf.Classifier(net, size=12, channels=3)
    observed = net.by_hand(images)
    assert classifier.layer_names() == list(observed)
    expected = torch.cat([expected_columns(activation) for activation in observed.values()], dim=1)
    assert_layers_agree(classifier, bf.features(classifier, images), expected.numpy())


@pytest.mark.parametrize("zeros", ["drop", "count", "one"])
@pytest.mark.parametrize("centre", [True, False])
def test_centring_and_zeros_reach_the_kernel(classifier: bf.Classifier, centre: bool, zeros: Zeros) -> None:
    images = noise(2)
    features = bf.features(classifier, images, layers="act", centre=centre, zeros=zeros)
    activation = activations_by_hooks(classifier, images)["act"]
    expected = kernels.magnitudes(activation, centre=centre, zeros=zeros, backend="reference").numpy()
    assert (activation == 0).any()
    assert np.abs(features - expected).max() <= tolerance(activation[0].numel())


def test_mean_and_std_are_applied_before_the_module_sees_the_images() -> None:
    module, images = seeded(plain), noise()
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    scaled = (images - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    raw = bf.Classifier(module, bounds=(-1, 2), size=12, channels=3)
    features = bf.features(bf.Classifier(module, mean=mean, std=std), images)
    assert_layers_agree(raw, features, bf.features(raw, scaled))


@pytest.mark.parametrize("batch", [1, 3, 10])
def test_other_batch_sizes_agree(classifier: bf.Classifier, expected: NDArray[np.floating], batch: int) -> None:
    assert_layers_agree(classifier, bf.features(classifier, noise(10), batch=batch), expected)


def test_order_of_the_images_does_not_matter(classifier: bf.Classifier, expected: NDArray[np.floating]) -> None:
    order = torch.randperm(10, generator=torch.Generator().manual_seed(3))
    features = bf.features(classifier, noise(10)[order], batch=4)
    assert_layers_agree(classifier, features, expected[order.numpy()])


def test_layout_of_the_images_in_memory_does_not_matter(
    classifier: bf.Classifier, expected: NDArray[np.floating]
) -> None:
    images = noise(10).to(memory_format=torch.channels_last)
    assert_layers_agree(classifier, bf.features(classifier, images, batch=4), expected)


def test_the_same_call_gives_bit_equal_features(classifier: bf.Classifier, expected: NDArray[np.floating]) -> None:
    assert np.array_equal(bf.features(classifier, noise(10), batch=4), expected)
    assert np.array_equal(bf.features(bf.Classifier(seeded(plain)), noise(10), batch=4), expected)


def test_features_come_as_float32_unless_float64_is_asked_for(classifier: bf.Classifier) -> None:
    narrow = bf.features(classifier, noise(2), backend="reference")
    wide = bf.features(classifier, noise(2), backend="reference", dtype="float64")
    assert (str(narrow.dtype), str(wide.dtype)) == ("float32", "float64")
    assert np.array_equal(wide.astype(np.float32), narrow)
    assert not np.array_equal(wide, narrow)  # the reference's digits are kept


def test_a_small_memory_makes_small_batches_and_the_same_features(
    classifier: bf.Classifier, expected: NDArray[np.floating]
) -> None:
    largest = 8 * 12 * 12 * 4  # bytes of one image's convolution
    assert [batch_size(classifier, (3, 12, 12), memory=3 * largest * n) for n in (1, 2, 7, 1000)] == [1, 2, 7, 256]
    assert batch_size(classifier, (3, 12, 12), memory=1) == 1
    assert_layers_agree(classifier, bf.features(classifier, noise(10), memory=2 * 3 * largest), expected)


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3e-12, 1e30])
@pytest.mark.parametrize("backend", ["numba", "torch", "reference"])
def test_a_dead_layer_gives_zeros(value: float, backend: kernels.Backend) -> None:
    classifier = bf.Classifier(seeded(lambda: stepping(lambda maps: torch.full_like(maps, value))), size=12, channels=3)
    assert not bf.features(classifier, noise(2), layers="step", backend=backend).any()


@pytest.mark.parametrize("backend", ["auto", "torch", "reference"])
@pytest.mark.parametrize("step", [relative, inverse])
def test_an_activation_that_is_not_finite_is_refused_with_its_layers_name(
    step: Callable[[Tensor], Tensor], backend: kernels.Backend
) -> None:
    classifier = bf.Classifier(seeded(lambda: stepping(step)))
    with pytest.raises(ActivationError, match="image '2' gives NaN or infinity in 'step'"):
        bf.features(classifier, with_black(noise(), 2), backend=backend)


def test_only_the_layers_asked_for_must_be_finite() -> None:
    classifier = bf.Classifier(nn.Sequential(stepping(relative)[0], *stepping(torch.nan_to_num)))
    assert np.isfinite(bf.features(classifier, with_black(noise(), 2), layers=["1", "2"])).all()


def test_a_network_that_returns_nan_for_everything_is_still_observed_in_full() -> None:
    net = seeded(Residual)
    nn.init.constant_(net.stem.weight, torch.nan)
    with pytest.raises(ActivationError, match="in 'stem'"):
        bf.features(bf.Classifier(net), noise())
    with pytest.raises(ActivationError, match="in 'soft-max'"):
        bf.features(bf.Classifier(net), noise(), layers="soft-max")


def test_float64_modules_are_run_in_float64() -> None:
    classifier = bf.Classifier(seeded(plain).double())
    features = bf.features(classifier, noise(), layers="conv", backend="reference", dtype="float64")
    expected = expected_columns(classifier.module.get_submodule("conv")(noise().double())).numpy()
    # rounding of float64 in 27 products moves a phase by about 1e-14; of float32, by about 1e-6
    assert np.abs(features - expected).max() < 1e-10


def test_a_module_that_changed_its_precision_is_observed_anew() -> None:
    net = seeded(lambda: Scaled(0.1))
    classifier = bf.Classifier(net)
    bf.features(classifier, noise())
    net.double()
    net.scale.add_(0.25)
    features = bf.features(classifier, noise(), dtype="float64", backend="reference")
    assert np.array_equal(features, bf.features(bf.Classifier(net), noise(), dtype="float64", backend="reference"))


class Scaled(nn.Module):
    """A buffer used outside any leaf."""

    scale: Tensor

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(scale))
        self.head = nn.Linear(3 * 12 * 12, 5)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head((images - self.scale).flatten(1))
        return logits


def test_progress_is_drawn_on_standard_error_when_asked_for(
    classifier: bf.Classifier, capsys: pytest.CaptureFixture[str]
) -> None:
    bf.features(classifier, noise(5), batch=2, show_progress=True)
    out, err = capsys.readouterr()
    assert re.search(r"features .*5/5", err)
    assert not out


@pytest.mark.parametrize("show", [None, False])
def test_features_print_nothing_otherwise(
    classifier: bf.Classifier, capsys: pytest.CaptureFixture[str], show: bool | None
) -> None:
    bf.features(classifier, noise(2), show_progress=show)
    assert capsys.readouterr() == ("", "")


@pytest.fixture(name="_frequent_switches")
def threads_that_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_frequent_switches")
def test_threads_that_share_a_classifier_get_the_features_of_one_alone() -> None:
    net, batches = resnet().eval(), [noise(2, side=32, seed=seed) for seed in (1, 2)]
    alone = [bf.features(bf.Classifier(net), images) for images in batches]
    shared, results = bf.Classifier(net), dict[int, NDArray[np.floating]]()
    barrier = threading.Barrier(2)

    def compute(place: int) -> None:
        barrier.wait()
        for _ in range(3):
            results[place] = bf.features(shared, batches[place])

    threads = [threading.Thread(target=compute, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(results[0], alone[0])
    assert np.array_equal(results[1], alone[1])


def smooth() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(32, 3)).double()


@pytest.mark.parametrize("layer", ["0", "1", "3", "soft-max"])
def test_gradients_of_features_flow_to_the_images(layer: str) -> None:
    classifier, orders = bf.Classifier(seeded(smooth), size=6, channels=1), 3
    images = noise(2, 1, 6).double().requires_grad_()
    observation = observe(classifier, images, [Magnitudes((layer,), orders, backend="torch")])
    assert torch.equal(observation.logits, classifier.logits(images))
    observation.values[0][layer].sum().backward()  # type: ignore[no-untyped-call]
    assert images.grad is not None
    direction = torch.randn(images.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)

    def slope(step: float) -> float:
        def total(sign: int) -> float:
            moved = images.detach() + sign * step * direction
            return float(
                bf.features(classifier, moved, orders, layers=layer, backend="reference", dtype="float64").sum()
            )

        return (total(1) - total(-1)) / (2 * step)

    near, far = slope(1e-5), slope(2e-5)
    # a central difference errs by step², so three times more differs between the two steps; rounding by 1e-16/1e-5
    slack = abs(near - far) + 1e-8
    assert slack < 1e-3 * abs(near)
    assert float((images.grad * direction).sum()) == pytest.approx(near, abs=slack)


def test_gradients_flow_through_in_place_layers() -> None:
    classifier, images = bf.Classifier(seeded(plain), size=12, channels=3), noise(2).requires_grad_()
    (values,) = observe(classifier, images, [Magnitudes(tuple(classifier.layer_names()), 4)]).values
    torch.cat(list(values.values())).sum().backward()  # type: ignore[no-untyped-call]
    assert images.grad is not None
    assert images.grad.isfinite().all()
    assert images.grad.flatten(1).any(dim=1).all()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"orders": 0}, "orders is 0; it must be a whole number of at least 1"),
        ({"orders": -3}, "orders is -3"),
        ({"orders": 1.5}, "orders is 1.5"),
        ({"orders": True}, "orders is True"),
        ({"orders": "16"}, "orders is '16'"),
        ({"dtype": "float16"}, "dtype is 'float16'; allowed: float32, float64"),
        ({"dtype": np.float32}, "dtype is <class 'numpy.float32'>; allowed: float32, float64"),
        ({"batch": 0}, "batch is 0"),
        ({"batch": 2.0}, "batch is 2.0"),
        ({"memory": 0}, "memory is 0"),
        ({"memory": 1e9}, "memory is 1000000000.0"),
        ({"backend": "nunba"}, "backend is 'nunba'; allowed: auto, reference, numba, torch; did you mean"),
        ({"zeros": "keep"}, "zeros is 'keep'; allowed: drop, count, one"),
    ],
)
def test_an_option_outside_its_range_is_refused_with_its_value(
    classifier: bf.Classifier, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(OptionError, match=re.escape(complaint)):
        bf.features(classifier, noise(2), **options)


def test_whole_numbers_of_numpy_are_orders_too(classifier: bf.Classifier) -> None:
    assert bf.features(classifier, noise(2), np.int64(3)).shape == (2, len(OBSERVED) * 3)  # type: ignore[arg-type]
