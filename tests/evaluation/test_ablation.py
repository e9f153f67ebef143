from typing import Any

import numpy as np
import pytest

from benfourier.detectors.catalogue import fit
from benfourier.errors import OptionError
from benfourier.evaluation.ablation import SETTINGS, ablate
from benfourier.evaluation.metrics import auroc
from benfourier.evaluation.sample import Sample
from tests.detectors.toys import toys

QUICK: dict[str, Any] = {"C": 1.0, "gamma": "scale"}


def test_every_setting_is_measured_on_sources_it_was_not_fitted_to() -> None:
    made = toys()
    settings: dict[str, dict[str, Any]] = {
        "few": {"orders": 2, **QUICK},
        "many": {"orders": 16, **QUICK},
        "boosted": {"classifier": "boosted"},
    }
    found = ablate(made.subject, made.fitted.for_attack("bim"), settings, number=3, show_progress=False)
    assert [row.label for row in found] == list(settings)
    assert found[1].numbers == 8 * found[0].numbers
    for row in found:
        assert 0.85 < row.auroc.low <= row.auroc.value <= row.auroc.high <= 1


def test_cross_validation_foretells_what_a_test_set_shows() -> None:
    made = toys()
    options = {"orders": 4, **QUICK}
    (row,) = ablate(made.subject, made.fitted.for_attack("bim"), {"one": options}, show_progress=False)
    detector = fit("mbf", made.subject, made.fitted.for_attack("bim"), show_progress=False, **options)
    tested = made.tested
    scores = np.concatenate(
        [detector.score(tested.clean), detector.score(tested.noisy), detector.score(tested.attacked["bim"])]
    )
    bad = np.repeat([False, False, True], len(tested))
    assert auroc(Sample(scores, bad, tested.ids * 3))[0] == pytest.approx(row.auroc.value, abs=0.06)


def test_labels_that_carry_no_signal_give_one_half() -> None:
    """Twins of 120 sources without any difference: the AUROC of a fold has a deviation of about 0.04."""
    made = toys()
    same = made.fitted.for_attack("bim")
    blind = type(same)(
        clean=same.clean,
        noisy=same.noisy,
        attacked={"bim": same.noisy.flip(0)},
        success={"bim": same.success["bim"]},
        labels=same.labels,
        ids=same.ids,
        noise_level=same.noise_level,
        funnel=same.funnel,
        seed=0,
    )
    (row,) = ablate(made.subject, blind, {"one": {"orders": 4, **QUICK}}, show_progress=False)
    assert row.auroc.value < 0.62


def test_the_settings_name_what_the_paper_leaves_open() -> None:
    assert SETTINGS["default"] == {}
    varied = {
        option
        for options in SETTINGS.values()
        for option, value in options.items()
        if SETTINGS["paper"].get(option) != value
    }
    assert varied == {"orders", "gamma", "C", "scaling", "pass_through", "centre", "zeros", "classifier", "layers"}


def test_an_unknown_option_in_a_setting_is_refused_before_anything_runs() -> None:
    made = toys()
    with pytest.raises(OptionError, match="has no option 'kernel'"):
        ablate(made.subject, made.fitted, {"one": {"kernel": "rbf"}})
