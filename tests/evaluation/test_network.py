"""Networks of plans that begin with some weights and learn the rest, also from the images for detection."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from benfourier.data.images import content_ids, read
from benfourier.data.open_source import open_source
from benfourier.errors import InputError, PlanError, StoreError
from benfourier.evaluation.network import new_classifier, open_network
from benfourier.evaluation.plan_file import read_plan
from benfourier.evaluation.prepare import open_images
from benfourier.models.images import load_images
from benfourier.models.weights import weights_digest
from benfourier.store.cache import open_cache
from tests.evaluation.tiny import changed, network, plan_in

OLD = "train = { epochs = 8, share = 0.5, shift = 0, batch = 64, bf16 = false }"
TAUGHT = """weights = "first.st"
[network.train]
epochs = 60
share = 0.3
shift = 0
batch = 32
bf16 = false
rate = 0.1
until_all_correct = true
detection = "learned"
new_layers = { epochs = 2, rate = 0.2 }
"""
GROUPS = """source = "digits"
other = ["other.npz", "digits"]
[data.groups]
few = ["0-4"]
many = ["5-6", 7, 8]
"""


@pytest.fixture(name="first")
def weights_of_the_convolution(tmp_path: Path) -> dict[str, torch.Tensor]:
    draws = torch.Generator().manual_seed(5)
    weights = {"0.weight": torch.randn(4, 1, 3, 3, generator=draws), "0.bias": torch.randn(4, generator=draws)}
    save_file(weights, tmp_path / "first.st")
    return weights


@pytest.fixture(name="file")
def plan_of_a_taught_network(tmp_path: Path, first: dict[str, torch.Tensor]) -> Path:
    assert first
    return plan_in(tmp_path, changed((OLD, TAUGHT)))


def test_a_training_begins_with_the_weights_that_are_given(file: Path, first: dict[str, torch.Tensor]) -> None:
    weights = new_classifier(read_plan(file)).module.state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in first.items())
    assert not torch.equal(weights["5.weight"], network().module.state_dict()["5.weight"])


def test_new_layers_learn_alone_first_and_then_everything(file: Path, first: dict[str, torch.Tensor]) -> None:
    whole, text = read_plan(file), file.read_text(encoding="utf-8")
    assert whole.network.new_layers is not None
    assert (whole.network.new_layers["epochs"], whole.network.new_layers["batch"]) == (2, 32)
    trained = open_network(whole, open_cache(True), False).classifier.module.state_dict()
    assert not torch.equal(trained["0.weight"], first["0.weight"])
    # a training so slow that it changes no number is left with what the new layers have learned
    still = text.replace("rate = 0.1", "rate = 1e-30").replace("epochs = 60", "epochs = 1")
    file.write_text(still, encoding="utf-8")
    alone = open_network(read_plan(file), open_cache(True), False).classifier.module.state_dict()
    assert torch.equal(alone["0.weight"], first["0.weight"])
    assert not torch.equal(alone["5.weight"], new_classifier(whole).module.state_dict()["5.weight"])


def test_all_images_for_detection_are_learned_from_and_right_and_the_record_says_so(file: Path) -> None:
    plan, cache = read_plan(file), open_cache(True)
    images, opened = open_images(plan, cache, False), open_network(plan, cache, False)
    learned = {opened.source.ids[row] for row in opened.learned}
    assert set(images.images[images.source].ids) <= learned
    assert len(images.images[images.source]) == plan.sources
    facts = images.network_facts
    assert facts["learned images classified correctly"] == len(learned)
    assert str(facts["learned from"]).startswith(f"{len(learned)} images, those for detection among them")
    assert facts["images"] == len(opened.held_out)


def test_thresholds_are_set_by_images_that_the_network_has_not_learned_from(file: Path) -> None:
    plan, cache = read_plan(file), open_cache(True)
    images, opened = open_images(plan, cache, False), open_network(plan, cache, False)
    batch = read(opened.source, opened.learned, [], show=False)
    learned = set(content_ids(load_images(batch.images, opened.classifier, layout="NCHW")))
    assert learned >= set(content_ids(images.images[images.source].images))
    assert not learned & set(images.calibration.content_ids)
    assert not learned & set(images.misclassified.content_ids)


def test_the_same_plan_gives_the_same_network_also_without_a_cache(file: Path) -> None:
    plan = read_plan(file)
    cached = open_network(plan, open_cache(True), False).classifier.module
    assert weights_digest(cached) == weights_digest(open_network(plan, None, False).classifier.module)


def test_new_layers_need_something_that_the_weights_leave_open(file: Path) -> None:
    save_file(network().module.state_dict(), file.parent / "first.st")
    with pytest.raises(PlanError, match="these weights leave nothing open"):
        open_network(read_plan(file), None, False)
    save_file({"0.weights": torch.zeros(4, 1, 3, 3)}, file.parent / "first.st")
    with pytest.raises(StoreError, match=r"also has 0\.weights"):
        new_classifier(read_plan(file))


def test_groups_make_coarse_classes_and_what_is_left_is_for_data_transfer(file: Path) -> None:
    text = file.read_text(encoding="utf-8").replace('source = "digits"\n', GROUPS)
    file.write_text(text.replace("calibration = 220", "calibration = 100\nother = 40"), encoding="utf-8")
    whole = open_source("digits")
    dark = whole.pixels(range(20)) // 2
    np.savez(file.parent / "other.npz", x=dark, y=whole.labels[:20])
    plan = read_plan(file)
    data, plan_network = open_images(plan, open_cache(True), False), open_network(plan, open_cache(True), False)
    assert data.classifier.classes == ("few", "many")
    assert 9 not in {whole.labels[whole.ids.index(name)] for name in data.images[data.source].ids}
    second = data.images[data.other]
    assert len(second) == 40
    assert list(data.images) == ["digits", "other + digits"]
    used = {f"digits/{name}" for name in data.images[data.source].ids}
    used |= {f"digits/{plan_network.source.ids[row]}" for row in plan_network.learned}
    assert not used & set(second.ids)
    assert any(name.startswith("digits/") for name in second.ids)


def test_another_source_has_the_same_classes_in_the_same_order(tmp_path: Path) -> None:
    for folder, names in (("near", ("ant", "bee")), ("far", ("bee", "cat"))):
        for name in names:
            (tmp_path / folder / name).mkdir(parents=True)
            for place in range(4):
                Image.new("L", (8, 8), 10 * place).save(tmp_path / folder / name / f"{place}.png")
    text = changed(('source = "digits"', 'source = "near"\nother = "far"'), ("[network]", "[network]\nclasses = 2"))
    with pytest.raises(PlanError, match="which is far, have 'ant' and 'bee' as class 0; data-transfer needs the same"):
        open_network(read_plan(plan_in(tmp_path, text)), None, False)


@pytest.mark.parametrize(("skip", "left"), [("3", range(3, 1797)), ('["0-1", "4-4"]', [2, 3, *range(5, 1797)])])
def test_images_that_a_plan_skips_are_in_no_set(tmp_path: Path, skip: str, left: list[int]) -> None:
    plan = read_plan(plan_in(tmp_path, changed(('source = "digits"', f'source = "digits"\nskip = {skip}'))))
    whole = open_source("digits")
    opened = open_network(plan, open_cache(tmp_path / "cache"), show_progress=False)
    assert len(whole) == 1797
    assert opened.source.ids == tuple(whole.ids[row] for row in left)
    assert opened.source.digest != whole.digest
    np.testing.assert_array_equal(opened.source.pixels([0, 2]), whole.pixels([left[0], left[2]]))


def test_a_plan_that_skips_every_image_is_refused(tmp_path: Path) -> None:
    plan = read_plan(plan_in(tmp_path, changed(('source = "digits"', 'source = "digits"\nskip = 100000'))))
    with pytest.raises(InputError, match=r"all of its .* images are skipped by 0-99999; skip fewer"):
        open_network(plan, None, show_progress=False)
