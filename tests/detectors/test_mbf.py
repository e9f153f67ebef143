from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import benfourier as bf
from benfourier.detectors.catalogue import make_method
from benfourier.detectors.features import extract
from benfourier.detectors.fit import fit
from benfourier.detectors.max_softmax import LogUncertainty
from benfourier.detectors.mbf import ENTRIES, JOINED, MBF, Magnitudes
from benfourier.errors import FitError, InputError, LayerError, OptionError
from tests.detectors.toys import toys

QUICK: dict[str, Any] = {"C": 1.0, "gamma": "scale", "show_progress": False}


def test_its_features_are_those_of_bf_features() -> None:
    toy_data = toys()
    detector = fit("mbf", toy_data.classifier, toy_data.fitted.for_attack("bim"), orders=5, pass_through=True, **QUICK)
    images = toy_data.tested.clean[:7]
    (features,) = extract(toy_data.classifier, [detector.extractor], images, [str(n) for n in range(7)])
    assert np.array_equal(features.numpy(), bf.features(toy_data.classifier, images, 5, pass_through=True))


def test_layers_can_be_chosen_by_glob_and_type() -> None:
    toy_data = toys()
    detector = fit("mbf", toy_data.classifier, toy_data.fitted, layers=["type:Linear", "soft-max"], **QUICK)
    assert isinstance(detector.extractor, Magnitudes)
    assert detector.extractor.layers == ("5", "8", "soft-max")
    assert detector.summary["features"] == 48


def test_the_preset_of_the_paper_is_its_setting() -> None:
    paper = make_method("mbf", preset="paper")
    assert isinstance(paper, MBF)
    assert (paper.orders, paper.layers, paper.pass_through, paper.centre) == (16, None, True, True)
    assert (paper.head_options.kind, paper.scaling, paper.C, paper.gamma) == ("svm", "none", 1.0, 1.0)


def test_options_override_a_preset() -> None:
    assert make_method("mbf", preset="paper", orders=4).orders == 4  # type: ignore[attr-defined]


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(OptionError, match="preset of mbf is 'papre'; allowed: paper; did you mean 'paper'"):
        make_method("mbf", preset="papre")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"orders": 0}, "orders is 0"),
        ({"zeros": "keep"}, "zeros is 'keep'"),
        ({"entries": 0}, "entries is 0"),
        ({"entries": "most"}, "entries is 'most'"),
        ({"layers": ()}, "layers is ()"),
        ({"layers": (3.5,)}, "layers is"),
        ({"C": 0}, "C is 0"),
        ({"C": "best"}, "C is 'best'"),
        ({"gamma": -1.0}, "gamma is -1.0"),
        ({"scaling": "robust"}, "scaling is 'robust'"),
        ({"head": "forest"}, "head is 'forest'"),
        ({"rules": "ours"}, "rules is 'ours'"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_options_outside_their_range_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OptionError) as caught:
        make_method("mbf", **options)
    assert str(caught.value).startswith(complaint)


def test_a_layer_that_is_not_there_is_refused() -> None:
    toy_data = toys()
    with pytest.raises(LayerError, match="layer 'conv7' not found"):
        fit("mbf", toy_data.classifier, toy_data.fitted, layers="conv7", **QUICK)


def test_one_detector_can_be_fitted_to_several_attacks() -> None:
    toy_data = toys()
    detector = fit("mbf", toy_data.classifier, toy_data.fitted, **QUICK)
    assert detector.summary["attacks"] == ["bim", "deepfool"]
    fitted, held_out = detector.summary["rows fitted"], detector.summary["rows held out"]
    assert fitted["clean"] + held_out["clean"] == len(toy_data.fitted)
    for attack in ("bim", "deepfool"):
        assert fitted[attack] + held_out[attack] == int(toy_data.fitted.success[attack].sum())


def test_too_few_examples_are_refused() -> None:
    toy_data = toys()
    with pytest.raises(FitError, match="there are 9 source images; fitting needs at least 10"):
        fit("mbf", toy_data.classifier, toy_data.fitted.take(range(9)), **QUICK)


def test_images_of_another_size_are_refused() -> None:
    toy_data = toys()
    other = bf.Classifier(toy_data.classifier.module, size=12, channels=1)
    with pytest.raises(InputError, match="size"):
        fit("mbf", other, toy_data.fitted, **QUICK)


def test_the_baseline_ranks_by_the_largest_posterior() -> None:
    logits = torch.randn(50, 10, generator=torch.Generator().manual_seed(0)) * 3
    largest = torch.softmax(logits.double(), 1).max(1).values
    log_uncertainty = LogUncertainty().join({}, logits, [])[:, 0]
    assert torch.allclose(log_uncertainty.exp(), 1 - largest)


def test_the_baseline_separates_posteriors_that_round_to_one() -> None:
    logits = torch.tensor([[80.0, 0.0, 0.0], [90.0, 0.0, 0.0]])
    less_confident, more_confident = LogUncertainty().join({}, logits, [])[:, 0].tolist()
    assert less_confident > more_confident


@pytest.mark.parametrize("entries", [None, "all"])
def test_all_entries_have_two_spellings(entries: str | None) -> None:
    options = make_method("mbf", entries=entries)
    assert options == MBF(entries=None)
    assert options.as_dict()["entries"] == "all"


def test_a_part_of_large_layers_is_read_unless_the_preset_is_the_papers() -> None:
    assert MBF().as_dict()["entries"] == 4096
    assert make_method("mbf", preset="paper").as_dict()["entries"] == "all"


def test_each_feature_has_the_name_of_its_layer() -> None:
    toy_data = toys()
    detector = fit(
        "mbf", toy_data.classifier, toy_data.fitted.for_attack("bim"), orders=2, layers="type:Linear", **QUICK
    )
    assert detector.feature_names == ("5", "5", "8", "8")


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_layers_computed_in_one_call_give_the_same_features(layout: torch.memory_format) -> None:
    """A batch of 2 joins the layers of one width, a batch of 20 computes each by itself; in-place layers overwrite."""
    torch.manual_seed(0)
    # element by element and exact: sums, as in convolutions, may be rounded differently in a batch of another size
    exact = nn.Sequential(nn.Hardtanh(0.1, 0.9), nn.LeakyReLU(inplace=True), nn.MaxPool2d(2), nn.ReLU6(inplace=True))
    classifier = bf.Classifier(nn.Sequential(*exact, nn.Flatten(), nn.Linear(1728, 10)), bounds=(0.0, 1.0))
    images = torch.rand(20, 3, 48, 48).contiguous(memory_format=layout)
    assert 2 * ENTRIES <= JOINED < 20 * ENTRIES < 20 * images[0].numel()
    joined, single = (
        bf.features(classifier, images, layers=list("0123"), batch=size, show_progress=False) for size in (2, 20)
    )
    assert np.array_equal(joined, single)
