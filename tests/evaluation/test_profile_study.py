from dataclasses import replace

import numpy as np
import torch

import benfourier as bf
from benfourier.evaluation.parts import Part
from benfourier.evaluation.profile_study import profile_study
from tests.detectors.toys import toys


def parts() -> list[Part]:
    made = toys()
    won = torch.arange(len(made.tested)) % 3 == 0
    half = replace(made.tested, success={**made.tested.success, "bim": won})
    return [Part("digits", "train", made.fitted), Part("digits", "test", half)]


def test_profiles_are_the_means_and_deviations_of_the_features() -> None:
    subject, given = toys().subject, parts()
    found = {(profile.split, profile.kind): profile for profile in profile_study(subject, given, show_progress=False)}
    assert list(found) == [(part.split, kind) for part in given for kind in ("clean", "noisy", "bim", "deepfool")]
    examples = given[1].examples
    for kind, images in {
        "clean": examples.clean,
        "noisy": examples.noisy,
        "bim": examples.attacked["bim"][examples.success["bim"]],
    }.items():
        expected = bf.features(subject, images, show_progress=False).astype(np.float64)
        profile = found["test", kind]
        assert profile.images == len(images)
        assert (profile.orders, profile.layers) == (16, tuple(subject.layers()))
        assert np.allclose(profile.mean, expected.mean(0), atol=1e-6)
        assert np.allclose(profile.deviation, expected.std(0), atol=1e-6)


def test_options_change_the_numbers_and_the_key_and_known_ones_are_not_made_again() -> None:
    subject, given = toys().subject, parts()[1:]
    usual = list(profile_study(subject, given, show_progress=False))
    few = list(profile_study(subject, given, orders=2, pass_through=True, show_progress=False))
    assert few[0].layers == tuple(subject.layers(pass_through=True))
    assert few[0].mean.shape == few[0].deviation.shape == (2 * len(few[0].layers),)
    assert not {profile.key for profile in usual} & {profile.key for profile in few}
    known = {profile.key for profile in usual if profile.kind != "noisy"}
    assert [p.kind for p in profile_study(subject, given, known=known, show_progress=False)] == ["noisy"]
