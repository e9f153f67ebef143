"""Feature squeezing: what each squeezer does, and the score as its authors define it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.ndimage import median_filter
from torch import Tensor

import benfourier as bf
from benfourier.detectors.feature_squeezing import FeatureSqueezing, fewer_bits, median, non_local_means
from benfourier.detectors.method import FitData
from benfourier.errors import OptionError
from tests.detectors.toys import toys


def images_of(count: int = 2, channels: int = 3, side: int = 12) -> Tensor:
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(0))


def test_one_bit_is_black_or_white() -> None:
    assert fewer_bits(torch.tensor([0.0, 0.4, 0.6, 1.0]), 1).tolist() == [0.0, 0.0, 1.0, 1.0]
    assert len(set(fewer_bits(torch.linspace(0, 1, 1000), 5).tolist())) == 32


def test_the_median_is_that_of_scipy_which_the_authors_use() -> None:
    images = images_of()
    expected = median_filter(images.numpy(), size=(1, 1, 2, 2), mode="reflect")
    np.testing.assert_array_equal(median(images).numpy(), expected)


def test_non_local_means_leave_a_flat_image_and_take_noise_away() -> None:
    flat = torch.full((1, 3, 16, 16), 0.5)
    assert torch.allclose(non_local_means(flat, 2 / 255), flat)
    noisy = flat + 0.01 * torch.randn(flat.shape, generator=torch.Generator().manual_seed(1))
    assert float(non_local_means(noisy, 10 / 255).std()) < 0.5 * float(noisy.std())


def test_non_local_means_keep_an_edge() -> None:
    image = torch.zeros(1, 1, 16, 16)
    image[..., 8:] = 1.0
    assert torch.allclose(non_local_means(image, 2 / 255), image, atol=1e-4)


def test_the_score_is_the_largest_l1_distance_of_the_posteriors() -> None:
    data = toys()
    detector = bf.fit("feature-squeezing", data.classifier, data.fitted.for_attack("bim"), bits=2, show_progress=False)
    images = data.tested.adversarial["bim"][:6]
    own, *others = (
        data.classifier.logits(each).double().softmax(1) for each in (images, fewer_bits(images, 2), median(images))
    )
    expected = torch.stack([(other - own).abs().sum(1) for other in others]).amax(0)
    np.testing.assert_allclose(detector.score(images), expected.detach().numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("channels", "squeezers", "bits"), [(1, ("bits", "median"), 1), (3, ("bits", "median", "non-local"), 5)]
)
def test_squeezers_are_the_authors_for_grey_and_for_colour_images(
    channels: int, squeezers: tuple[str, ...], bits: int
) -> None:
    data = toys()
    clean = data.fitted.clean.expand(-1, channels, -1, -1)
    examples = replace(data.fitted, clean=clean, noisy={}, noise_levels={}, adversarial={}, success={})
    extractor = FeatureSqueezing().fit_extractor(data.classifier, FitData(examples))
    assert (extractor.squeezers, extractor.bits) == (squeezers, bits)


def test_an_unknown_squeezer_is_refused() -> None:
    with pytest.raises(OptionError, match="squeezers hold 'mean'; allowed: bits, median, non-local"):
        bf.make_method("feature-squeezing", squeezers=("mean",))
