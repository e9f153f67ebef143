"""Fits: which images take part, what is refused, and what is supplied from outside."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import benfourier as bf
from benfourier.data.examples import Examples
from benfourier.detectors.catalogue import make_method
from benfourier.detectors.extractor import Concatenated, Extractor, RunningExtractor
from benfourier.detectors.features import extract
from benfourier.detectors.fit import fit, with_distinct_ids
from benfourier.detectors.heads import HEADS
from benfourier.detectors.kd_bu import KDBU
from benfourier.detectors.lid import LID
from benfourier.detectors.max_softmax import MaxSoftmax
from benfourier.detectors.mbf import MBF
from benfourier.detectors.method import DETECTORS, Combined, FitData, Method
from benfourier.errors import FitError, InputError, OptionError
from tests.detectors.toys import toys


def clean_examples() -> Examples:
    """Examples that nothing was attacked for."""
    return replace(toys().fitted, adversarial={}, success={})


def test_clean_images_alone_fit_a_mixture(tmp_path: Path) -> None:
    toy_data = toys()
    detector = fit("max-softmax", toy_data.classifier, clean_examples(), head="mixture", show_progress=False)
    tested = toy_data.tested
    scores = [detector.score(images) for images in (tested.clean, tested.adversarial["bim"])]
    assert roc_auc_score(np.repeat([0, 1], len(tested)), np.concatenate(scores)) > 0.8
    with pytest.raises(InputError, match="scores have no posterior; use score"):
        detector.posterior(tested.clean)
    detector.save(tmp_path / "d.bf")
    again = bf.load(tmp_path / "d.bf", toy_data.classifier)
    assert again.sigmoid is None
    assert np.array_equal(again.score(tested.clean), scores[0])


@pytest.mark.parametrize("head", sorted(set(HEADS) - {"mixture", "plain"}))
def test_other_heads_need_adversarial_images(head: str) -> None:
    with pytest.raises(FitError, match=f"fitting head '{head}' needs at least 2: .* set head='mixture'"):
        fit("max-softmax", toys().classifier, clean_examples(), head=head)


def test_options_are_not_chosen_without_adversarial_images() -> None:
    with pytest.raises(FitError, match="no adversarial examples to choose an option by"):
        fit("lid", toys().classifier, clean_examples(), head="mixture", k="cv")


def test_several_levels_of_noise_take_part() -> None:
    toy_data = toys()
    few = toy_data.fitted.for_attack("bim")
    more = (few.clean + 0.1 * torch.randn(few.clean.shape, generator=torch.Generator().manual_seed(1))).clamp(0, 1)
    levels = {"weak": few.noisy["noisy"], "strong": more}
    examples = replace(few, noisy=levels, noise_levels={"weak": 0.05, "strong": 0.1})
    detector = fit("max-softmax", toy_data.classifier, examples, show_progress=False)
    fitted = detector.summary["rows fitted"]
    assert fitted["weak"] == fitted["strong"] == fitted["clean"]
    assert detector.summary["noise levels"] == {"weak": 0.05, "strong": 0.1}
    assert len(detector.seen) == 3 * len(few)


def test_an_equal_id_does_not_make_another_image_the_source() -> None:
    toy_data = toys()
    ids = tuple(map(str, range(len(toy_data.fitted))))  # those that images get by themselves
    examples = replace(toy_data.fitted, ids=ids)
    clean = bf.LabelledImages(toy_data.clean.images, toy_data.clean.labels)
    distinct = with_distinct_ids(clean, examples)
    assert not set(distinct.ids) & set(ids)
    assert distinct.ids[len(ids) :] == clean.ids[len(ids) :]
    own = bf.LabelledImages(examples.clean, examples.labels, ids)
    assert with_distinct_ids(own, examples).ids == ids
    options = KDBU(rules="authors", bu=False, bandwidth=1.0, C=1.0)
    extractor = fit(options, toy_data.classifier, examples, clean=clean, show_progress=False).extractor
    images, others = examples.clean[:20], [f"query-{row}" for row in range(20)]
    one, other = (
        extract(toy_data.classifier, [extractor], images, names, show_progress=False)[0] for names in (ids[:20], others)
    )
    assert torch.equal(one, other)  # no image of another source is left out


def test_a_method_and_its_id_give_the_same_detector() -> None:
    toy_data = toys()
    examples, images = toy_data.fitted.for_attack("bim"), toy_data.tested.clean
    one = fit(MBF(orders=3, C=1.0), toy_data.classifier, examples, show_progress=False)
    other = fit("mbf", toy_data.classifier, examples, orders=3, C=1.0, show_progress=False)
    assert np.array_equal(one.score(images), other.score(images))
    with pytest.raises(OptionError, match="orders is given beside MBF"):
        fit(MBF(), toy_data.classifier, examples, orders=3)
    with pytest.raises(OptionError, match="method is 3; it must be the id of a detector"):
        fit(3, toy_data.classifier, examples)  # type: ignore[arg-type]


def test_methods_add_up_to_one_whose_name_and_options_reproduce_it() -> None:
    both = MBF(orders=4, seed=3) + LID(k=10, C=1.0)
    assert isinstance(both, Combined)
    assert both.name == "mbf+lid"
    assert (both.as_dict()["mbf.orders"], both.as_dict()["lid.k"], both.seed) == (4, 10, 3)
    assert make_method(both.name, **both.as_dict()) == both
    assert all(part.seed == 3 for part in both.parts)
    assert (both + MaxSoftmax()).name == "mbf+lid+max-softmax"


def test_a_sum_has_the_head_of_its_first_part() -> None:
    heads = {name: make_method(name).head_options.kind for name in ("views+mbf", "mbf+views", "max-softmax+views")}
    assert heads == {"views+mbf": "logistic", "mbf+views": "svm", "max-softmax+views": "logistic"}
    assert make_method("views+mbf", head="boosted").head_options.kind == "boosted"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mbf+mbf", {}, "each once"),
        ("mbf+nothing", {}, "detector is 'nothing'; allowed"),
        ("mbf+lid", {"orders": 3}, "has no option 'orders'.*mbf.<option>"),
        ("mbf+lid", {"mbf.k": 3}, "mbf has no option 'k'"),
        ("mbf+lid", {"mbf.C": 3}, "has no option 'mbf.C'"),
        ("mbf+lid", {"preset": "paper"}, "preset is 'paper', and mbf.lid has none"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make_method(name, **options)


@dataclass(frozen=True, eq=False)
class Disagreement(RunningExtractor):
    """How far a second network's logits are from the first one's."""

    second: nn.Module

    not_in_files: ClassVar[tuple[str, ...]] = ("second",)

    def extract(self, classifier: bf.Classifier, images: Tensor, logits: Tensor, ids: Sequence[str]) -> Tensor:
        other: Tensor = self.second(images)
        return (other - logits).abs().sum(1, keepdim=True)


@dataclass(frozen=True, kw_only=True)
class SecondNetwork(Method):
    """A detector that needs a second network, which no file holds."""

    id: ClassVar[str] = "test-second-network"
    extractors: ClassVar[tuple[type[Extractor], ...]] = (Disagreement,)
    paper_head: ClassVar[str] = "plain"

    @property
    def supplied_names(self) -> tuple[str, ...]:
        return ("second",)

    def fit_extractor(self, classifier: bf.Classifier, data: FitData) -> Disagreement:
        return Disagreement(data.supplied["second"])


def test_what_no_file_can_hold_is_supplied_and_missed_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DETECTORS._classes, SecondNetwork.id, SecondNetwork)  # for this test only
    toy_data = toys()
    examples = toy_data.fitted.for_attack("bim")
    supplied = {"second": nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).requires_grad_(False)}
    missing = r"needs 'second', which neither options nor files can hold; pass supplied=\{'second': ...\}"
    with pytest.raises(InputError, match=missing):
        fit("test-second-network", toy_data.classifier, examples)
    with pytest.raises(InputError, match="mbf does not take 'second' in supplied; leave supplied out"):
        fit("mbf", toy_data.classifier, examples, supplied=supplied)
    detector = fit("test-second-network", toy_data.classifier, examples, supplied=supplied, show_progress=False)
    detector.save(tmp_path / "d.bf")
    with pytest.raises(InputError, match=missing):
        bf.load(tmp_path / "d.bf", toy_data.classifier)
    again = bf.load(tmp_path / "d.bf", toy_data.classifier, supplied=supplied)
    images = toy_data.tested.clean
    assert np.array_equal(again.score(images), detector.score(images))
    both = fit(SecondNetwork() + MaxSoftmax(), toy_data.classifier, examples, supplied=supplied, show_progress=False)
    assert isinstance(both.extractor, Concatenated)
