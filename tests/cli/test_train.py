import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import benfourier as bf
from benfourier.data import open_source
from benfourier.models.weights import load_weights, weights_digest
from benfourier.models.zoo import ZOO
from tests.cli.calling import call, file_of_networks

Capture = pytest.CaptureFixture[str]
NETWORKS = '''
from torch import nn

def tiny(classes=10):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, classes))

class Stopping(nn.Sequential):
    """Interrupts in its second epoch, of eight batches each."""
    seen = 0

    def forward(self, images):
        Stopping.seen += self.training
        if self.training and Stopping.seen == 12:
            raise KeyboardInterrupt
        return super().forward(images)

def stopping():
    return Stopping(*tiny())

class Early(nn.Sequential):
    def forward(self, images):
        raise KeyboardInterrupt

def early():
    return Early(*tiny())
'''
OPTIONS = ("--epochs", "2", "--batch", "30", "--rate", "0.1", "--shift", "1", "--size", "8", "--channels", "1")


@pytest.fixture(name="here")
def current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    digits = open_source("digits")
    x, y = digits.pixels(range(360)), digits.labels[:360]
    np.savez(tmp_path / "data.npz", x_train=x[:240], y_train=y[:240], x_test=x[240:], y_test=y[240:])
    monkeypatch.chdir(tmp_path)
    with file_of_networks(tmp_path, "my_learners", NETWORKS):
        yield tmp_path


def trained(capsys: Capture, *words: str, model: str = "tiny", out: str = "w.safetensors") -> Any:
    data = ("--data", "data.npz:train", "--test-data", "data.npz:test", "--out", out)
    return call(capsys, "train", "--model", f"my_learners:{model}", *data, *OPTIONS, *words)


def test_training_writes_weights_and_says_how_good_they_are(capsys: Capture, here: Path) -> None:
    result = trained(capsys)
    assert result.code == 0
    assert result.out.startswith("my_learners:tiny: ")
    assert "of 120 held-out images (95 %: " in result.out
    assert re.search(r"2 epochs, \d+ s\nwritten to w\.safetensors\n$", result.out)
    lines = result.err.splitlines()
    assert [line.split()[1:3] for line in lines] == [["epoch", "1/2:"], ["epoch", "2/2:"]]
    assert sorted(path.name for path in here.glob("w*")) == ["w.safetensors"]


def test_the_report_and_the_file_hold_the_same_facts(capsys: Capture, here: Path) -> None:
    result = trained(capsys, "--json").json
    classifier = bf.open_classifier("my_learners:tiny", size=8, channels=1)
    facts = load_weights(classifier.module, here / "w.safetensors")
    assert facts["network"] == result["network"] == "my_learners:tiny"
    assert facts["training"] == {name: result[name] for name in facts["training"]}
    test = open_source("data.npz:test")
    guesses = classifier.logits(bf.load_images(test.pixels(range(120)), classifier)).argmax(1).numpy()
    assert result["accuracy"] == pytest.approx(float((guesses == test.labels).mean()))
    assert result["interval"][0] < result["accuracy"] < result["interval"][1]
    assert result["recipe"]["seed"] == 0
    assert open_source("data.npz:train").digest in result["data"]
    assert len(result["epochs"]) == 2
    assert result["sha256"] == hashlib.sha256((here / "w.safetensors").read_bytes()).hexdigest()


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(capsys: Capture, here: Path) -> None:
    digests = []
    for name, seed in (("a", "0"), ("b", "0"), ("c", "1")):
        trained(capsys, "--seed", seed, out=name)
        digests.append(weights_digest(bf.open_classifier("my_learners:tiny", weights=here / name).module))
    assert digests[0] == digests[1] != digests[2]


def test_an_interrupted_training_says_how_to_go_on_and_does(capsys: Capture, here: Path) -> None:
    result = trained(capsys, model="stopping")
    assert result.code == 130
    line = "interrupted; w.safetensors.checkpoint holds the last epoch: the same command with --resume goes on\n"
    assert result.err.endswith(line)
    assert not (here / "w.safetensors").exists()
    again = trained(capsys, model="stopping")
    assert again.code == 2
    assert "a run that has not finished; resume it, or delete it" in again.err
    other = trained(capsys, "--resume", "--seed", "1", model="stopping")
    assert (other.code, "seed was 0 and is 1" in other.err) == (2, True)
    resumed = trained(capsys, "--resume", "--json", model="stopping")
    assert resumed.code == 0
    assert resumed.err.count("epoch") == 1
    straight = trained(capsys, "--json", model="stopping", out="straight.safetensors")
    for one, same in zip(resumed.json["epochs"], straight.json["epochs"], strict=True):
        assert {**one, "seconds": 0} == {**same, "seconds": 0}
    assert not (here / "w.safetensors.checkpoint").exists()


def test_an_interruption_before_the_first_step_leaves_nothing(capsys: Capture, here: Path) -> None:
    result = trained(capsys, model="early")
    assert (result.code, result.err) == (130, "interrupted; nothing was learned yet\n")
    assert list(here.glob("w*")) == []


def test_training_goes_on_from_given_weights(capsys: Capture, here: Path) -> None:
    trained(capsys, out="first.safetensors")
    result = trained(capsys, "--weights", "first.safetensors", "--json").json
    cold = trained(capsys, "--json", out="cold.safetensors").json
    assert result["epochs"][0]["loss"] < cold["epochs"][0]["loss"]


def test_a_part_is_held_out_without_test_data_and_unreadable_images_are_reported(capsys: Capture, here: Path) -> None:
    digits = open_source("digits")
    for place, (pixels, label) in enumerate(zip(digits.pixels(range(40)), digits.labels, strict=False)):
        folder = here / "pictures" / ("even", "odd")[label % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[..., 0]).save(folder / f"{place}.png")
    (here / "pictures" / "odd" / "broken.png").write_bytes(b"no picture")
    words = ("--model", "my_learners:tiny", "--data", "pictures", "--out", "w.safetensors", "--held-out", "0.25")
    result = call(capsys, "train", *words, *OPTIONS, "--classes", "2", "--json")
    assert result.code == 6
    assert result.json["images"] == 10
    assert result.json["held out"] == "0.25 of it"
    assert [refusal["file"] for refusal in result.json["refused"]] == ["odd/broken.png"]
    plain = call(capsys, "train", *words, *OPTIONS, "--classes", "2")
    assert plain.code == 6
    assert "not readable: odd/broken.png: " in plain.err


@pytest.mark.parametrize(("words", "flips"), [((), False), (("--flips",), True), (("--no-flips",), False)])
def test_a_users_images_are_mirrored_only_when_asked_for(
    capsys: Capture, here: Path, words: tuple[str, ...], flips: bool
) -> None:
    assert trained(capsys, *words, "--json").json["recipe"]["flips"] is flips


def test_digits_are_not_mirrored_and_photographs_are() -> None:
    assert {name for name, entry in ZOO.items() if not entry.flips} == {"lid-mnist", "lid-svhn", "small-mnist"}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--out", "none/w.safetensors"), 4, "none/w.safetensors: it is a folder, or its folder does not exist"),
        (("--out", "."), 4, ".: it is a folder, or"),
        (("--data", "nothing"), 2, "source 'nothing' is neither"),
        (("--rate", "0"), 2, "rate is 0.0; it must be a number above 0"),
        (("--rate", "1e30"), 2, "the loss became nan|holds NaN or infinity"),
        (("--classes", "3"), 2, "label 9 is unknown to a network of 3 classes"),
        (("--test-data", "data.npz:train"), 2, "data.npz: it holds all images to measure on|it holds all images"),
        (("--seed", "99999999999999999999999"), 2, "seed is 99999999999999999999999; it must be"),
        (("--resume",), 4, "w.safetensors.checkpoint: there is no such checkpoint"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    capsys: Capture, here: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    result = trained(capsys, *words)
    assert result.code == code
    assert any(part in result.err for part in message.split("|"))
    assert list(here.glob("w.safetensors*")) == []


def test_images_that_were_learned_from_do_not_count_as_held_out(capsys: Capture, here: Path) -> None:
    arrays = np.load(here / "data.npz")
    mixed = {name: np.concatenate([arrays[f"{name}_train"][:7], arrays[f"{name}_test"]]) for name in "xy"}
    np.savez(here / "mixed.npz", x=mixed["x"], y=mixed["y"])
    result = trained(capsys, "--test-data", "mixed.npz", "--json")
    assert (result.json["images"], result.json["left out"]) == (120, 7)
    assert "7 of the images to measure on are among those" in trained(capsys, "--test-data", "mixed.npz").out
