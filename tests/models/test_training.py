import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import benfourier as bf
from benfourier.data import ArraySource, open_source
from benfourier.errors import ActivationError, ClassifierError, ImageError, InputError, OptionError, StoreError
from benfourier.models.training import TrainingOptions, train
from benfourier.models.weights import weights_digest
from tests.models.networks import seeded

RECIPE = TrainingOptions(epochs=3, batch=64, rate=0.2, shift=1, bf16=False)


class Interrupting(nn.Module):
    """Passes images on, and interrupts the program when it has seen so many batches in training."""

    def __init__(self, stop: Callable[[], None] | None, batches: int) -> None:
        super().__init__()
        self.stop, self.left = stop, batches

    def forward(self, images: Tensor) -> Tensor:
        self.left -= self.training
        if self.stop is not None and self.left < 0:
            self.stop()
        return images


def tiny(stop: Callable[[], None] | None = None, batches: int = 0) -> nn.Sequential:
    """With BatchNorm and dropout, so that running means and draws count."""
    return nn.Sequential(
        Interrupting(stop, batches),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.BatchNorm2d(8),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(128, 10),
    )


def fresh(stop: Callable[[], None] | None = None, batches: int = 0) -> bf.Classifier:
    return bf.Classifier(seeded(lambda: tiny(stop, batches)), mean=[0.5], size=8, channels=1)


def some_digits() -> ArraySource:
    whole = open_source("digits")
    return ArraySource("some-digits", whole.pixels(range(640)), whole.labels[:640], whole.classes)


def other_digits(count: int = 40) -> ArraySource:
    """Digits that are not among those to learn from."""
    whole = open_source("digits")
    return ArraySource("others", whole.pixels(range(640, 640 + count)), whole.labels[640 : 640 + count], whole.classes)


@pytest.fixture(name="digits", scope="module")
def digits_to_learn() -> ArraySource:
    return some_digits()


@pytest.fixture(name="straight", scope="module")
def digest_of_an_uninterrupted_run(digits: ArraySource) -> str:
    classifier = fresh()
    train(classifier, digits, options=RECIPE)
    return weights_digest(classifier.module)


def interrupted(digits: ArraySource, path: Path, batches: int) -> None:
    """A run that is stopped by Ctrl-C after so many batches of nine per epoch."""

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(fresh(stop, batches), digits, options=RECIPE, checkpoint=path)


def test_a_network_learns_digits_and_reports_its_accuracy(digits: ArraySource) -> None:
    classifier = fresh()
    reports: list[tuple[int, int]] = []
    recipe = TrainingOptions(epochs=6, batch=64, rate=0.2, shift=1)
    result = train(
        classifier, digits, options=recipe, report=lambda number, epoch: reports.append((number, epoch.correct))
    )
    assert result.accuracy > 0.8
    assert result.interval[0] < result.accuracy < result.interval[1]
    assert reports == [(number + 1, epoch.correct) for number, epoch in enumerate(result.epochs)]
    assert result.epochs[-1].loss < result.epochs[0].loss
    assert result.epochs[-1].images == 64
    assert result.metadata()["data"] == f"some-digits {digits.digest}"
    assert result.metadata()["recipe"]["epochs"] == 6


def test_accuracy_is_that_of_the_classifier_on_the_images_held_out(digits: ArraySource) -> None:
    test, classifier = other_digits(), fresh()
    result = train(classifier, digits, test, RECIPE)
    guesses = classifier.logits(bf.load_images(test.images, classifier)).argmax(1)
    assert result.epochs[-1].correct == int((guesses == torch.from_numpy(test.labels)).sum())
    assert result.metadata()["held out"] == f"others {test.digest}"


@pytest.mark.parametrize("held_out", [True, False])
def test_few_images_to_measure_on_leave_the_weights_as_they_are(
    digits: ArraySource, straight: str, held_out: bool
) -> None:
    test, classifier = None if held_out else other_digits(), fresh()
    result = train(classifier, digits, test, RECIPE, test_limit=10)
    assert {epoch.images for epoch in result.epochs} == {10}
    assert (weights_digest(classifier.module) == straight) == held_out
    with pytest.raises(OptionError, match="test_limit is 0"):
        train(classifier, digits, options=RECIPE, test_limit=0)


def test_the_module_is_left_in_its_modes_and_without_gradients(digits: ArraySource) -> None:
    classifier = fresh()
    classifier.module.eval()
    classifier.module[6].train()  # type: ignore[index]
    train(classifier, digits, options=TrainingOptions(epochs=1, shift=0))
    assert [part.training for part in classifier.module] == [place == 6 for place in range(8)]  # type: ignore[attr-defined]
    assert all(p.grad is None and p.requires_grad and p.is_contiguous() for p in classifier.module.parameters())


def test_the_same_call_gives_the_same_weights_and_global_draws_are_left_alone(
    digits: ArraySource, straight: str
) -> None:
    before = torch.get_rng_state()
    classifier = fresh()
    train(classifier, digits, options=RECIPE)
    assert weights_digest(classifier.module) == straight
    assert torch.equal(torch.get_rng_state(), before)


def test_another_seed_gives_other_weights(digits: ArraySource, straight: str) -> None:
    classifier = fresh()
    train(classifier, digits, options=TrainingOptions(epochs=3, batch=64, rate=0.2, shift=1, seed=1))
    assert weights_digest(classifier.module) != straight


@pytest.mark.parametrize("batches", [0, 4, 9, 25])
def test_a_resumed_run_ends_with_the_very_weights_of_an_uninterrupted_one(
    digits: ArraySource, straight: str, tmp_path: Path, batches: int
) -> None:
    path = tmp_path / "checkpoint"
    interrupted(digits, path, batches)
    other = bf.Classifier(tiny(), mean=[0.5], size=8, channels=1)  # what it begins with does not matter
    result = train(other, digits, options=RECIPE, checkpoint=path, resume=True)
    assert len(result.epochs) == 3
    assert weights_digest(other.module) == straight


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_a_run_that_was_killed_in_the_middle_of_an_epoch_can_be_resumed(
    digits: ArraySource, straight: str, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint"
    program = f"""
import os, signal, torch
from tests.models.test_training import RECIPE, fresh, some_digits, train
torch.set_num_threads({torch.get_num_threads()})
classifier = fresh(lambda: os.kill(os.getpid(), signal.SIGKILL), 13)
train(classifier, some_digits(), options=RECIPE, checkpoint={str(path)!r})
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)  # noqa: S603
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]
    classifier = fresh()
    train(classifier, digits, options=RECIPE, checkpoint=path, resume=True)
    assert weights_digest(classifier.module) == straight


def test_resuming_a_run_that_is_done_changes_nothing(digits: ArraySource, straight: str, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    train(fresh(), digits, options=RECIPE, checkpoint=path)
    classifier = fresh()
    result = train(classifier, digits, options=RECIPE, checkpoint=path, resume=True)
    assert len(result.epochs) == 3
    assert weights_digest(classifier.module) == straight


def test_a_checkpoint_of_another_run_is_refused_and_the_difference_named(digits: ArraySource, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    interrupted(digits, path, 9)
    fewer = ArraySource("fewer", digits.pixels(range(500)), digits.labels[:500])
    wider = bf.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), mean=[0.5])
    lighter = bf.Classifier(seeded(tiny), size=8, channels=1)
    tries: tuple[tuple[bf.Classifier, ArraySource, TrainingOptions, float, str], ...] = (
        (fresh(), digits, TrainingOptions(**{**vars(RECIPE), "rate": 0.1}), 0.1, r"rate was 0\.2 and is 0\.1"),
        (
            fresh(),
            digits,
            TrainingOptions(**{**vars(RECIPE), "epochs": 9, "seed": 4}),
            0.1,
            "epochs was 3 and is 9; seed was 0",
        ),
        (fresh(), digits, RECIPE, 0.2, r"held out was 0\.1 of it and is 0\.2 of it"),
        (fresh(), fewer, RECIPE, 0.1, f"data was some-digits {digits.digest} and is fewer {fewer.digest}"),
        (wider, digits, RECIPE, 0.1, r"network was Sequential with 1,3\d\d parameters .* and is Sequential with 650"),
        (lighter, digits, RECIPE, 0.1, r"images was .* mean \(0\.5,\), std None and is .* mean None"),
    )
    for classifier, source, recipe, held_out, message in tries:
        with pytest.raises(OptionError, match=message):
            train(classifier, source, options=recipe, held_out=held_out, checkpoint=path, resume=True)
    train(fresh(), digits, options=RECIPE, checkpoint=path, resume=True)


def test_a_new_run_does_not_overwrite_the_checkpoint_of_one_that_has_not_finished(
    digits: ArraySource, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint"
    interrupted(digits, path, 9)
    with pytest.raises(OptionError, match="a run that has not finished; resume it, or delete it to begin anew"):
        train(fresh(), digits, options=RECIPE, checkpoint=path)


def test_a_checkpoint_that_is_missing_or_damaged_is_refused(digits: ArraySource, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    with pytest.raises(StoreError, match="there is no such checkpoint; begin anew, without resume"):
        train(fresh(), digits, options=RECIPE, checkpoint=path, resume=True)
    interrupted(digits, path, 9)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        train(fresh(), digits, options=RECIPE, checkpoint=path, resume=True)


def test_resume_needs_a_checkpoint(digits: ArraySource) -> None:
    with pytest.raises(OptionError, match="resume is asked for without a checkpoint"):
        train(fresh(), digits, resume=True)


def test_a_place_that_cannot_be_written_is_noticed_before_the_first_step(digits: ArraySource, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="it cannot be written"):
        train(fresh(lambda: pytest.fail("it learned"), 0), digits, checkpoint=tmp_path / "none" / "checkpoint")


def test_a_loss_that_is_no_number_ends_the_run_and_keeps_earlier_epochs(digits: ArraySource, tmp_path: Path) -> None:
    classifier = fresh()
    head: Any = classifier.module

    def spoil() -> None:
        with torch.no_grad():
            head[7].bias.fill_(math.nan)

    head[0].stop, head[0].left = spoil, 9
    with pytest.raises(ActivationError, match=r"the loss became nan in epoch 2/3, step 1; the greatest rate is 0\.2"):
        train(classifier, digits, options=RECIPE, checkpoint=tmp_path / "checkpoint")
    result = train(fresh(), digits, options=RECIPE, checkpoint=tmp_path / "checkpoint", resume=True)
    assert len(result.epochs) == 3


def test_weights_that_overflow_in_the_last_step_are_not_kept(digits: ArraySource) -> None:
    classifier = fresh()
    bias: Any = classifier.module.get_parameter("7.bias")
    bias.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(ActivationError, match=r"7\.bias holds NaN or infinity after epoch 1/1"):
        train(classifier, digits, options=TrainingOptions(epochs=1, batch=576))


def test_training_can_end_as_soon_as_all_images_are_right(digits: ArraySource) -> None:
    few = ArraySource("few", digits.pixels(range(40)), digits.labels[:40])
    classifier, recipe = fresh(), TrainingOptions(epochs=200, batch=20, rate=0.2, shift=0, bf16=False)
    images, labels, known = bf.load_images(few.images, classifier), torch.from_numpy(few.labels), list[bool]()

    def note(*_: object) -> None:
        known.append(torch.equal(classifier.logits(images).argmax(1), labels))

    result = train(classifier, few, other_digits(), recipe, stop_when_fitted=True, report=note)
    assert 1 < len(result.epochs) < 200
    assert known == [False] * (len(result.epochs) - 1) + [True]


def test_trainings_that_follow_one_another_have_draws_of_their_own(digits: ArraySource, straight: str) -> None:
    classifier = fresh()
    train(classifier, digits, options=RECIPE, stage="second ")
    assert weights_digest(classifier.module) != straight


def test_a_source_smaller_than_a_batch_is_one_batch(digits: ArraySource) -> None:
    few = ArraySource("few", digits.pixels(range(30)), digits.labels[:30])
    result = train(fresh(), few, other_digits(), TrainingOptions(epochs=1, batch=64, shift=0))
    assert 0 <= result.epochs[0].accuracy <= 1


def test_double_precision_can_be_asked_for(digits: ArraySource) -> None:
    few = ArraySource("few", digits.pixels(range(60)), digits.labels[:60])
    classifier = fresh()
    classifier.module.double()
    train(classifier, few, other_digits(), TrainingOptions(epochs=1, batch=20, bf16=False))
    assert classifier.dtype == torch.float64


def bf16_works() -> bool:
    """False on virtual machines that claim to have AMX and end every process that uses it."""
    code = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0  # noqa: S603


@pytest.mark.skipif(not bf16_works(), reason="this machine ends processes that multiply bfloat16")
def test_bfloat16_products_can_be_asked_for(digits: ArraySource) -> None:
    few = ArraySource("few", digits.pixels(range(60)), digits.labels[:60])
    result = train(fresh(), few, other_digits(), TrainingOptions(epochs=1, batch=20, bf16=True))
    assert math.isfinite(result.epochs[0].loss)


def test_frozen_parameters_stay_as_they_are(digits: ArraySource) -> None:
    classifier = fresh()
    frozen = classifier.module.get_parameter("1.weight").requires_grad_(False)
    before = frozen.clone()
    train(classifier, digits, options=TrainingOptions(epochs=1))
    assert torch.equal(frozen, before)
    assert not frozen.requires_grad


def test_what_cannot_be_trained_is_refused(digits: ArraySource) -> None:
    large = ArraySource("large", np.zeros((4, 9, 9, 1), np.uint8), np.array([0, 0, 1, 1]))
    lonely = ArraySource("lonely", large.images[:1], large.labels[:1])
    many = ArraySource("many", other_digits(4).images, np.array([0, 0, 12, 12]))
    still = fresh()
    still.module.requires_grad_(False)
    half = fresh()
    half.module.bfloat16()
    cases: tuple[tuple[bf.Classifier, ArraySource, ArraySource | None, type[Exception], str], ...] = (
        (fresh(), large, None, ImageError, r"images have size \(9, 9\); this classifier takes \(8, 8\)"),
        (bf.Classifier(nn.Linear(3, 2)), large, None, ClassifierError, r"cannot be run on images of shape \(1, 9, 9\)"),
        (fresh(), many, None, InputError, "label 12 is unknown to a network of 10 classes, 0 to 9"),
        (fresh(), digits, many, InputError, "label 12 is unknown"),
        (still, digits, None, ClassifierError, "the module has 0 parameters that learn"),
        (half, digits, None, ClassifierError, r"is torch\.bfloat16"),
        (fresh(), lonely, digits, InputError, "lonely: there is one image to learn from"),
    )
    for classifier, source, test, error, message in cases:
        with pytest.raises(error, match=message):
            train(classifier, source, test, RECIPE)
    with pytest.raises(OptionError, match=r"held_out is 1\.5; it must be a number above 0 and below 1"):
        train(fresh(), digits, held_out=1.5)
