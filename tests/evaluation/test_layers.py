"""Fits of each layer, and mbf on noise with the same shapes."""

from collections.abc import Collection
from functools import cache

import numpy as np
import torch
from torch import nn

import benfourier as bf
from benfourier.evaluation.studies.layers import fit_layers, layer_jobs
from benfourier.evaluation.studies.study import DataPart, run_jobs
from benfourier.store.records import LayerFit, NoiseControl, Record
from benfourier.store.vocabulary import ACTIVATIONS, NOISE_CONTROLS, SAME_SHAPES
from benfourier.theory import GGD
from tests.detectors.toys import toys


def parts() -> list[DataPart]:
    return [DataPart("digits", "train", toys().fitted), DataPart("digits", "test", toys().tested)]


@cache
def all_records() -> list[Record]:
    return study(["bim", "deepfool"])


def study(attacks: list[str], known: Collection[str] = (), seed: int = 0) -> list[Record]:
    jobs = layer_jobs(toys().classifier, parts(), attacks, seed=seed)
    return list(run_jobs(jobs, "layers", known=known, show_progress=False))


def test_activations_that_are_drawn_from_a_ggd_fit_it() -> None:
    classifier = bf.Classifier(nn.Flatten(), size=32, channels=1)
    random = np.random.default_rng(0)
    for shape in (0.7, 1.0, 2.0):
        drawn = GGD(shape).sample((20, 32 * 32), random)
        drawn /= 2 * abs(drawn).max(axis=1, keepdims=True)
        images = torch.from_numpy(drawn + 0.5).float().reshape(20, 1, 32, 32)
        fits = fit_layers(classifier, images)
        assert abs(np.median(fits.shapes[:, 0]) / shape - 1) < 0.15
        assert fits.distances[:, 0].mean() < 0.08  # the mean of heavy tails is no good middle


def test_an_activation_that_no_ggd_fits_is_far_from_its_fit_and_a_constant_one_has_none() -> None:
    classifier = bf.Classifier(nn.Flatten(), size=32, channels=1)
    two = (torch.rand(4, 1, 32, 32, generator=torch.Generator().manual_seed(0)) < 0.2).float()
    assert (fit_layers(classifier, two).distances[:, 0] > 0.2).all()
    flat = fit_layers(classifier, torch.full((1, 1, 32, 32), 0.5))
    assert np.isnan([flat.shapes[0, 0], flat.distances[0, 0], flat.offsets[0, 0]]).all()


def test_every_kind_has_its_fits_and_mbf_detects_nothing_in_noise_of_one_shape() -> None:
    records = all_records()
    fits = [record for record in records if isinstance(record, LayerFit)]
    assert [(fit.split, fit.kind) for fit in fits] == [
        (split, kind) for split in ("train", "test") for kind in ("clean", "noisy", "bim", "deepfool")
    ]
    layers = tuple(toys().classifier.layer_names())
    assert all(fit.layers == layers and len(fit.distance) == len(fit.shape) == len(layers) for fit in fits)
    controls = {(c.attack, c.features): c for c in records if isinstance(c, NoiseControl)}
    assert set(controls) == {(attack, what) for attack in ("bim", "deepfool") for what in NOISE_CONTROLS}
    for attack in ("bim", "deepfool"):
        same = controls[attack, SAME_SHAPES].auroc
        assert same.low <= 0.5 <= same.high
        assert controls[attack, ACTIVATIONS].auroc.value > same.high


def test_known_records_are_not_made_again() -> None:
    keys = [record.key for record in all_records()]
    assert len(set(keys)) == len(keys)
    assert not study(["bim", "deepfool"], keys)
    assert study([], keys, seed=1)
