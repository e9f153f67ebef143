from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import benfourier as bf
from benfourier.evaluation.studies.profile import profile_jobs
from benfourier.evaluation.studies.study import DataPart, run_jobs
from benfourier.store.records import Profile
from tests.detectors.toys import toys


def parts() -> list[DataPart]:
    toy_data = toys()
    succeeded = torch.arange(len(toy_data.tested)) % 3 == 0
    half = replace(toy_data.tested, success={**toy_data.tested.success, "bim": succeeded})
    return [DataPart("digits", "train", toy_data.fitted), DataPart("digits", "test", half)]


def study(data_parts: list[DataPart], known: Collection[str] = (), **options: Any) -> list[Profile]:
    jobs = profile_jobs(toys().classifier, data_parts, **options)
    records = run_jobs(jobs, "profiles", known=known, show_progress=False)
    return [record for record in records if isinstance(record, Profile)]


def test_profiles_are_the_means_and_deviations_of_the_features() -> None:
    classifier, data_parts = toys().classifier, parts()
    profiles = {(profile.split, profile.kind): profile for profile in study(data_parts)}
    assert list(profiles) == [
        (part.split, kind) for part in data_parts for kind in ("clean", "noisy", "bim", "deepfool")
    ]
    examples = data_parts[1].examples
    for kind, images in {
        "clean": examples.clean,
        "noisy": examples.noisy["noisy"],
        "bim": examples.adversarial["bim"][examples.success["bim"]],
    }.items():
        expected = bf.features(classifier, images, show_progress=False).astype(np.float64)
        profile = profiles["test", kind]
        assert profile.images == len(images)
        assert (profile.orders, profile.layers) == (16, tuple(classifier.layer_names()))
        assert np.allclose(profile.mean, expected.mean(0), atol=1e-6)
        assert np.allclose(profile.deviation, expected.std(0), atol=1e-6)


def test_options_change_the_profile_and_the_key_and_known_ones_are_not_made_again() -> None:
    classifier, data_parts = toys().classifier, parts()[1:]
    usual = study(data_parts)
    few = study(data_parts, orders=2, pass_through=True)
    assert few[0].layers == tuple(classifier.layer_names(pass_through=True))
    assert few[0].mean.shape == few[0].deviation.shape == (2 * len(few[0].layers),)
    assert not {profile.key for profile in usual} & {profile.key for profile in few}
    known = {profile.key for profile in usual if profile.kind != "noisy"}
    assert [p.kind for p in study(data_parts, known)] == ["noisy"]
