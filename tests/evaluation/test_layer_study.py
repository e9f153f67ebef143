"""Fits of each layer, and mbf on noise with the same shapes."""

from functools import cache

import numpy as np
import torch
from torch import nn

import benfourier as bf
from benfourier.evaluation.layer_study import OWN, RESPONSES, SAME, layer_study
from benfourier.evaluation.parts import Part
from benfourier.evaluation.responses import fitted
from benfourier.store.records import Control, LayerFit
from benfourier.theory import GGD
from tests.detectors.toys import toys


def parts() -> list[Part]:
    return [Part("digits", "train", toys().fitted), Part("digits", "test", toys().tested)]


@cache
def found() -> list[LayerFit | Control]:
    return list(layer_study(toys().subject, parts(), ["bim", "deepfool"], show_progress=False))


def test_responses_that_are_drawn_from_a_ggd_are_found_to_be() -> None:
    subject = bf.Subject(nn.Flatten(), size=32, channels=1)
    random = np.random.default_rng(0)
    for shape in (0.7, 1.0, 2.0):
        drawn = GGD(shape).sample((20, 32 * 32), random)
        drawn /= 2 * abs(drawn).max(axis=1, keepdims=True)
        images = torch.from_numpy(drawn + 0.5).float().reshape(20, 1, 32, 32)
        fits = fitted(subject, images)
        assert abs(np.median(fits.shapes[:, 0]) / shape - 1) < 0.15
        assert fits.distances[:, 0].mean() < 0.08  # the mean of heavy tails is no good middle


def test_a_response_that_no_ggd_fits_is_far_from_its_fit_and_a_constant_one_has_none() -> None:
    subject = bf.Subject(nn.Flatten(), size=32, channels=1)
    two = (torch.rand(4, 1, 32, 32, generator=torch.Generator().manual_seed(0)) < 0.2).float()
    assert (fitted(subject, two).distances[:, 0] > 0.2).all()
    flat = fitted(subject, torch.full((1, 1, 32, 32), 0.5))
    assert np.isnan([flat.shapes[0, 0], flat.distances[0, 0], flat.offsets[0, 0]]).all()


def test_every_kind_has_its_fits_and_noise_with_one_shape_tells_nothing() -> None:
    records = found()
    fits = [record for record in records if isinstance(record, LayerFit)]
    assert [(fit.split, fit.kind) for fit in fits] == [
        (split, kind) for split in ("train", "test") for kind in ("clean", "noisy", "bim", "deepfool")
    ]
    layers = tuple(toys().subject.layers())
    assert all(fit.layers == layers and len(fit.distance) == len(fit.shape) == len(layers) for fit in fits)
    controls = {(c.attack, c.features): c for c in records if isinstance(c, Control)}
    assert set(controls) == {(attack, what) for attack in ("bim", "deepfool") for what in (RESPONSES, OWN, SAME)}
    for attack in ("bim", "deepfool"):
        same = controls[attack, SAME].auroc
        assert same.low <= 0.5 <= same.high
        assert controls[attack, RESPONSES].auroc.value > same.high


def test_known_records_are_not_made_again() -> None:
    keys = [record.key for record in found()]
    assert len(set(keys)) == len(keys)
    assert not list(layer_study(toys().subject, parts(), ["bim", "deepfool"], known=keys, show_progress=False))
    assert list(layer_study(toys().subject, parts(), [], seed=1, known=keys, show_progress=False))
