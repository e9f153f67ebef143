"""`protect`: a guard in one call, and what it refuses to be fitted to."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import binom, kstest
from torch.utils.data import DataLoader, Dataset, TensorDataset
from transformers import PretrainedConfig

import benfourier as bf
from benfourier.errors import BenfourierError, ImageError, InputError, OptionError
from benfourier.guard.card import measure
from benfourier.guard.inputs import classifier_and_images
from tests.attacks.trained import digits, unseen

BUDGET = 1e-9  # seconds: the least number of images
ROOT = Path(__file__).parents[2]
ATTACKS = {"bim": bf.make_attack("bim", tolerance=0.2)}


def protect(images: Any = None, labels: Any = None, model: Any = None, **options: Any) -> bf.Guard:
    data = unseen().take(range(240)) if images is None else images
    known = {"attacks": None, "budget": BUDGET, "report": lambda _: None, "show_progress": False, **options}
    return bf.protect(digits().classifier if model is None else model, data, labels, **known)


@cache
def attacked() -> bf.Guard:
    return protect(attacks=ATTACKS)


def test_a_guard_has_a_card_of_images_that_it_has_not_seen() -> None:
    card = attacked().card
    assert card is not None
    assert card.fitted == ("bim",)
    assert [rate.attack for rate in card.attacks] == ["bim", "deepfool", "r-pgd 8/255"]
    assert [rate.is_fitted for rate in card.attacks] == [True, False, False]
    assert card.attacks[0].succeeded >= 10
    assert card.attacks[0].share.value > 0.5
    kinds = {alarm.kind: alarm for alarm in card.alarms}
    assert kinds["clean"].images + card.thresholds == 180  # 240 less the 60 that are attacked
    assert kinds["noise of ±8/255"].images <= kinds["clean"].images
    assert {other.kind: other.share.value for other in card.other_kinds} == {
        "one colour": 1.0, "uniform noise": 1.0, "binary noise": 1.0, "checkerboards": 1.0, "inverted": 1.0
    }  # fmt: skip
    assert {other.images for other in card.other_kinds} == {50}
    assert card.accuracy is not None
    assert card.accuracy.value > 0.9
    assert (card.classes, card.informed) == (10, "not measured")
    views = attacked().detector.extractor.feature_names()
    assert card.passes == len(set(views))  # the image and each view


def test_the_same_call_gives_the_same_guard() -> None:
    first, second = attacked(), protect(attacks=ATTACKS)
    images = unseen().images[:20]
    assert np.array_equal(first.check(images).score, second.check(images).score)
    assert first.threshold == second.threshold


def test_a_call_that_was_killed_goes_on_and_gives_the_same_guard(tmp_path: Path) -> None:
    code = f"from tests.guard.test_protect import *; protect(attacks=ATTACKS, work_dir={str(tmp_path)!r})"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment) as run:  # noqa: S603
        deadline = time.monotonic() + 120
        while len(stored(tmp_path)) < 2:  # the number of sources, and the first attack
            assert time.monotonic() < deadline
            with pytest.raises(subprocess.TimeoutExpired):
                run.wait(timeout=0.01)
        run.kill()
    assert run.returncode == -signal.SIGKILL
    before = stored(tmp_path)
    guard = protect(attacks=ATTACKS, work_dir=tmp_path)
    assert before.items() <= stored(tmp_path).items()  # finished work was not done again
    assert len(before) < len(stored(tmp_path))
    images = unseen().images[240:300]
    assert np.array_equal(guard.check(images).score, attacked().check(images).score)
    assert guard.threshold == attacked().threshold
    assert guard.card is not None
    assert repr(guard.card.attacks) == repr(attacked().card.attacks)  # type: ignore[union-attr]  # NaN is not equal


def stored(folder: Path) -> dict[Path, int]:
    """The files of a cache, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("??/*.safetensors")}


def test_an_interrupted_call_has_the_same_images_however_fast_the_machine_is_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = protect(work_dir=tmp_path)
    monkeypatch.setattr("benfourier.guard.protect.ATTACKING", 1e12)  # as if an image took no time
    assert protect(work_dir=tmp_path).threshold == first.threshold
    assert protect(work_dir=tmp_path / "other").threshold.images < first.threshold.images


def test_without_attacks_the_guard_is_fitted_to_clean_images_and_its_card_says_so() -> None:
    guard = protect(budget=3600)  # as many images as there are
    assert guard.card is not None
    assert guard.card.attacks == ()
    assert "attacked images rejected: not measured" in str(guard.card)
    assert guard.detector.method == bf.make_method("views", features="drop")
    fresh = unseen().take(range(240, 400))
    attack = bf.attack("bim", guard.classifier, fresh, show_progress=False)
    clean, attacked = (guard.check(images) for images in (fresh.images, attack.images[attack.success]))
    assert attacked.accepted.mean() < clean.accepted.mean() - 0.1
    assert (attacked.score > clean.score[:, np.newaxis]).mean() > 0.85  # AUROC; six views of 8×8 pixels are few


class Pairs(Dataset[tuple[Image.Image, int]]):
    """Images as files give them, with labels."""

    def __len__(self) -> int:
        return 240

    def __getitem__(self, place: int) -> tuple[Image.Image, int]:
        return Image.fromarray(pixels()[place, :, :, 0]), int(unseen().labels[place])


def pixels() -> np.ndarray:
    return (unseen().images[:240, 0] * 255).round().to(torch.uint8).numpy()[..., None]


def folder(path: Path) -> Path:
    for place, (image, label) in enumerate(zip(pixels(), unseen().labels.tolist(), strict=False)):
        (path / str(label)).mkdir(exist_ok=True, parents=True)
        Image.fromarray(image[:, :, 0]).save(path / str(label) / f"{place:03}.png")
    return path


def forms(path: Path) -> Iterator[tuple[str, Any, Any]]:
    images, labels = unseen().images[:240], unseen().labels[:240]
    yield "a tensor", images, labels
    yield "an array of floats", images.numpy(), labels.numpy()
    yield "an array of bytes, channels last", pixels(), labels.tolist()
    yield "a tensor of bytes, channels first", torch.from_numpy(pixels()).permute(0, 3, 1, 2), labels
    yield "a loader", DataLoader(TensorDataset(images, labels), batch_size=32), None
    yield "a data set of files", Pairs(), None
    yield "records", [{"image": image, "label": label} for image, label in map(Pairs().__getitem__, range(240))], None
    yield "a folder", folder(path), None


def test_images_are_taken_in_every_form(tmp_path: Path) -> None:
    module = digits().classifier.module
    for form, images, labels in forms(tmp_path / "digits"):
        options = {"channels": 1} if form == "a folder" else {}
        guard = protect(images, labels, module, **options)
        assert guard.card is not None, form
        assert guard.card.accuracy is not None, form
        assert guard.card.accuracy.value > 0.9, form
        assert (guard.classifier.size, guard.classifier.channels) == ((8, 8), 1), form


BAD = [
    ((unseen().images[:240], None), {}, "have no labels"),
    ((unseen().images[:240] * 2 - 1, unseen().labels[:240]), {}, "from which the bounds of pixels cannot be told"),
    ((unseen().images[:240, 0], unseen().labels[:240]), {}, "with four dimensions"),
    ((unseen().images[:240], unseen().labels[:200]), {}, r"must be whole numbers \(240,\)"),
    ((unseen().images[:240], unseen().labels[:240] + 5), {}, "the network tells 10 classes"),
    ((3, None), {}, "images are a int; they must be"),
    (([1, 2], None), {}, "it must be a pair of image and label"),
    ((unseen().images[:240], unseen().labels[:240]), {"budget": "a day"}, "budget is 'a day'; it must be one of"),
    ((unseen().images[:240], unseen().labels[:240]), {"attacks": []}, "attacks is"),
    ((unseen().images[:60], unseen().labels[:60]), {}, "needs at least 39.* Of 60 images 18 set .*; 134 in all are"),
    ((unseen().images[:240] * torch.nan, unseen().labels[:240]), {}, "the images hold NaN"),
    ((unseen().images[:240], unseen().labels[:240] - 5), {}, "label -5 is unknown; labels count classes from 0"),
]


@pytest.mark.parametrize(("data", "options", "complaint"), BAD)
def test_what_cannot_be_a_guard_is_refused_with_what_to_do(
    data: tuple[Any, Any], options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(BenfourierError, match=complaint):
        protect(*data, digits().classifier.module, **options)


def test_options_of_images_are_refused_beside_a_classifier() -> None:
    with pytest.raises(OptionError, match="mean is given beside a Classifier"):
        protect(mean=(0.5,))


def test_a_second_network_is_asked_for_before_any_work() -> None:
    said: list[str] = []
    with pytest.raises(OptionError, match="second-opinion needs a second network; pass it as second="):
        protect(detector="second-opinion", report=said.append)
    with pytest.raises(OptionError, match="views does not take a second network; leave second out"):
        protect(second=digits().classifier, report=said.append)
    with pytest.raises(OptionError, match="budget is '10m'"):
        protect(budget="10m", report=said.append)
    assert said == []


def test_without_attacks_other_detectors_have_a_head_that_needs_none() -> None:
    assert protect(detector="mbf").detector.method == bf.make_method("mbf", head="mixture")


def test_stages_are_printed_unless_silence_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    protect(report=None, show_progress=None)
    text = capsys.readouterr().err
    assert text.startswith("the network is right about 9")
    assert "fitting views to" in text
    protect(report=None, show_progress=False)
    assert capsys.readouterr().err == ""


def test_labels_in_another_order_than_the_classes_of_the_network_are_refused() -> None:
    order = torch.tensor([3, 9, 1, 0, 2, 8, 4, 5, 7, 6])
    with pytest.raises(
        InputError, match=r"its classes in another order: label 0 where the network says 3 \(3\)"
    ) as error:
        protect(bf.LabelledImages(unseen().images[:240], order[unseen().labels[:240]]))
    assert "give these (classes=, or --classes cat,dog), or other labels" in str(error.value)


def test_two_classes_in_the_place_of_each_other_are_noticed() -> None:
    # accuracy stays near 80 %, so that only the better order shows it
    labels = unseen().labels.clone()
    labels[unseen().labels == 1], labels[unseen().labels == 7] = 7, 1
    labels[unseen().labels == 2], labels[unseen().labels == 5] = 5, 2
    with pytest.raises(InputError, match="its classes in another order"):
        protect(bf.LabelledImages(unseen().images, labels))


def test_labels_drawn_at_random_are_refused() -> None:
    labels = torch.randint(0, 10, (240,), generator=torch.Generator().manual_seed(0))
    with pytest.raises(InputError, match="hardly more often than by chance"):
        protect(bf.LabelledImages(unseen().images[:240], labels))


def test_the_accuracy_is_the_first_thing_reported_and_a_low_one_is_a_warning() -> None:
    labels = unseen().labels[:240].clone()
    labels[::2] = torch.randint(0, 10, (120,), generator=torch.Generator().manual_seed(0))
    lines: list[str] = []
    protect(bf.LabelledImages(unseen().images[:240], labels), report=lines.append)
    assert lines[0].startswith("the network is right about 5")
    assert lines[1].startswith("warning: an accuracy of 5")


def test_new_clean_images_are_rejected_as_often_as_promised_and_have_uniform_p_values() -> None:
    images = unseen().images
    half = len(images) // 2
    guard = protect(unseen().take(range(half)), false_alarm_rate=0.1)
    verdicts = guard.check(images[half:])
    # The rate of one guard varies with the n images of its thresholds: Beta(k, n + 1 - k). A bound at 0.999 of both
    # draws together, so it fails by chance with a probability of at most 0.002.
    n = guard.threshold.images
    assert (~verdicts.accepted).mean() <= 0.1 + 3.1 * np.sqrt(0.1 * 0.9 * (1 / n + 1 / half))
    assert (~verdicts.accepted).sum() >= binom.ppf(0.001, half, 0.03)
    spread = np.sqrt(1 / n + 1 / half)  # two samples: the distance of their distributions, Kolmogorov's law at 0.001
    assert kstest(verdicts.p_value, "uniform").statistic <= 1.95 * spread + 1 / n


def test_a_guard_for_new_images_needs_no_new_fit() -> None:
    old, darker = attacked(), replace(unseen(), images=unseen().images * 0.6)
    assert (~old.check(darker.images[240:]).accepted).mean() > 0.2
    renewed = bf.recalibrate(old, darker.take(range(240, 480)), show_progress=False)
    assert renewed.detector is old.detector
    assert (~renewed.check(darker.images[480:]).accepted).mean() < 0.15
    assert renewed.card is not None
    assert old.card is not None
    assert renewed.card.thresholds == 144
    assert renewed.card.attacked == old.card.date
    assert f"by scores of {old.card.date[:10]}, at thresholds of {renewed.card.date[:10]}" in str(renewed.card)
    assert [rate.succeeded for rate in renewed.card.attacks] == [rate.succeeded for rate in old.card.attacks]
    assert renewed.card.attacks[0].rejected < old.card.attacks[0].rejected  # the thresholds are higher
    with pytest.raises(InputError, match="were used to fit the detector"):
        bf.recalibrate(old, unseen().take(range(240)), show_progress=False)


def test_another_rate_has_the_card_of_that_rate(tmp_path: Path) -> None:
    guard = attacked()
    wary = guard.at_rate(0.2)
    assert guard.card is not None
    assert wary.card is not None
    assert wary.card.false_alarm_rate == 0.2
    pairs = zip(wary.card.alarms, guard.card.alarms, strict=True)
    assert all(one.rejected >= other.rejected for one, other in pairs)
    assert wary.card.alarms[0].rejected > guard.card.alarms[0].rejected
    wary.save(tmp_path / "guard.bf")
    again = bf.load_guard(tmp_path / "guard.bf", digits().classifier.module)
    assert again.card is not None
    assert str(again.card) == str(wary.card)
    assert again.card.as_json() == wary.card.as_json()


def test_the_card_has_the_name_on_the_hub_that_a_network_was_loaded_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = attacked()
    assert guard.card is not None
    assert guard.card.base_model == ""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "mine").mkdir(parents=True)
    for name, known in (("microsoft/resnet-50", "microsoft/resnet-50"), ("models/mine", ""), ("/models/mine", "")):
        config = PretrainedConfig(name_or_path=name)  # as from_pretrained sets it
        monkeypatch.setattr(guard.classifier.module, "config", config, raising=False)
        assert measure(guard, None, None).base_model == known


def test_pictures_of_a_data_set_get_the_networks_channels_as_files_do(tmp_path: Path) -> None:
    colour = np.stack([np.roll(pixels()[..., 0], shift, 0) for shift in range(3)], -1)  # (240, 8, 8, 3)
    records: list[dict[str, Any]] = [
        {"image": Image.fromarray(each), "label": place % 10} for place, each in enumerate(colour)
    ]
    for place, record in enumerate(records):
        (tmp_path / str(record["label"])).mkdir(exist_ok=True)
        record["image"].save(tmp_path / str(record["label"]) / f"{place:03}.png")
    known: dict[str, Any] = {"most": 240, "seed": 0}
    for classifier in (digits().classifier, bf.Classifier(digits().classifier.module, size=8)):
        _, of_set = classifier_and_images(classifier, records, None, {}, **known)
        _, of_files = classifier_and_images(classifier, tmp_path, None, {}, **known)
        assert of_set.images.shape == (240, 1, 8, 8)
        assert sorted(of_set.content_ids) == sorted(of_files.content_ids)


def test_arrays_in_colour_are_refused_for_a_grey_network_as_they_are_by_the_service() -> None:
    classifier = replace(digits().classifier, channels=1)
    with pytest.raises(ImageError, match=r"shape \(4, 8, 8, 3\); this classifier takes channels 1: convert it"):
        bf.load_images(np.zeros((4, 8, 8, 3), np.uint8), classifier)
    with pytest.raises(ImageError, match="images have channels 3; this classifier takes 1"):
        bf.load_images(np.zeros((4, 8, 8, 3), np.uint8), classifier, layout="NHWC")
