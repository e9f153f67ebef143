"""`fit`, `detect` and `info`, on small digits."""

import json
import sys
from copy import deepcopy
from dataclasses import replace
from functools import cache
from io import BytesIO, TextIOWrapper
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import save_file
from torch import Tensor

import benfourier as bf
from benfourier.subjects.weights import digest_of_weights, save_weights
from tests.cli.calling import Outcome, call
from tests.detectors.guarded import detector, guard
from tests.detectors.toys import toys

Capture = pytest.CaptureFixture[str]
MODEL = "tests.attacks.trained:network"
NAMES = tuple("zero one two three four five six seven eight nine".split())


@cache
def named() -> bf.Guard:
    """The guard of small digits, whose classes have names."""
    subject = replace(toys().subject, classes=NAMES)
    return bf.Guard(subject, replace(detector(), subject=subject), false_alarm_rate=0.1, clean=toys().tested.clean)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with weights, examples and a guard."""
    save_weights(toys().subject.module, tmp_path / "w.safetensors")
    toys().fitted.for_attack("bim").save(tmp_path / "examples.bf")
    named().save(tmp_path / "guard.bf")
    return tmp_path


def pixels(images: Tensor) -> NDArray[np.uint8]:
    return (images[:, 0] * 255).round().to(torch.uint8).numpy()


def pictures(folder: Path, images: Tensor) -> list[Path]:
    """Image files in a new folder, in order of name."""
    folder.mkdir()
    files = [folder / f"{place:02d}.png" for place in range(len(images))]
    for file, picture in zip(files, pixels(images), strict=True):
        Image.fromarray(picture).save(file)
    return files


def sorted_out(folder: Path) -> tuple[list[Path], list[Path]]:
    """Files of digits that the guard accepts, and of others that it rejects."""
    images = torch.cat([toys().tested.clean[:6], toys().tested.attacked["bim"][:12]])
    files = pictures(folder, images)
    accepted = named().check(bf.images(files, named().subject)).accepted
    honest = [file for file, good in zip(files, accepted, strict=True) if good]
    return honest, [file for file in files if file not in honest]


def detect(capsys: Capture, here: Path, *words: str | Path) -> Outcome:
    return call(capsys, "detect", here / "guard.bf", *words, "--model", MODEL, "--weights", here / "w.safetensors")


def fit(capsys: Capture, here: Path, *words: str | Path) -> Outcome:
    known = ("--model", MODEL, "--weights", here / "w.safetensors", "--size", "8", "--channels", "1")
    told = ("--examples", here / "examples.bf", "--out", here / "new.bf", "--option", "C=10", "--option", "gamma=scale")
    return call(capsys, "fit", *known, *told, *words)


def test_honest_images_get_their_label_and_code_0(capsys: Capture, here: Path) -> None:
    honest, _ = sorted_out(here / "all")
    told = detect(capsys, here, *honest)
    assert told.code == 0
    verdicts = named().check(bf.images(honest, named().subject))
    first = verdicts[0]
    assert told.out.splitlines()[0] == (
        f"{honest[0]}: accepted, label {first.label} ({NAMES[first.label]}), score {first.score:.6g}, "
        f"threshold {first.threshold:.6g}"
    )
    assert len(told.out.splitlines()) == len(honest)
    assert told.err == ""


def test_adversarial_images_are_called_so_and_give_code_1(capsys: Capture, here: Path) -> None:
    _, bad = sorted_out(here / "all")
    told = detect(capsys, here, bad[0])
    assert told.code == 1
    label = named().check(bf.images(bad[:1], named().subject))[0].label
    assert told.out.startswith(f"{bad[0]}: adversarial, label {label} ({NAMES[label]}), score ")


def test_a_folder_is_looked_through_in_order_of_name(capsys: Capture, here: Path) -> None:
    honest, bad = sorted_out(here / "all")
    (here / "all" / "notes.txt").write_text("no image", encoding="utf-8")
    (here / "all" / ".hidden.png").write_bytes(b"no image")
    told = detect(capsys, here, here / "all", "--json")
    assert told.code == 1
    assert [Path(found["file"]) for found in told.json["images"]] == sorted([*honest, *bad])
    assert {Path(found["file"]) for found in told.json["images"] if found["adversarial"]} == set(bad)
    assert told.json["unreadable"] == []
    wanted = named().check(bf.images(sorted([*honest, *bad]), named().subject))
    assert [found["label"] for found in told.json["images"]] == wanted.label.tolist()
    assert [found["name"] for found in told.json["images"]] == wanted.names
    # another batch size changes the last bits of the network; scores are of the order of 1
    assert [found["score"] for found in told.json["images"]] == pytest.approx(wanted.score.tolist(), abs=1e-3)


def test_a_pattern_stands_for_the_files_of_its_name(capsys: Capture, here: Path) -> None:
    honest, bad = sorted_out(here / "all")
    told = detect(capsys, here, here / "*" / "*.png", here / "*.jpg", "--json")
    assert [Path(found["file"]) for found in told.json["images"]] == sorted([*honest, *bad])
    assert [entry["file"] for entry in told.json["unreadable"]] == [str(here / "*.jpg")]


@pytest.mark.parametrize("between", ["\n", "\0"])
def test_names_come_on_standard_input(
    capsys: Capture, here: Path, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    honest, _ = sorted_out(here / "all")
    text = between.join([*map(str, honest[:2]), str(here / "none.png"), ""])
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(text.encode())))
    told = detect(capsys, here, "-", "--json")
    assert [Path(found["file"]) for found in told.json["images"]] == honest[:2]
    assert [entry["file"] for entry in told.json["unreadable"]] == [str(here / "none.png")]


def test_an_image_comes_on_standard_input(capsys: Capture, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, _ = sorted_out(here / "all")
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(honest[0].read_bytes())))
    told = detect(capsys, here, "-")
    assert told.out == detect(capsys, here, honest[0]).out.replace(str(honest[0]), "standard input")
    assert told.code == 0


def test_nothing_on_standard_input_is_no_acquittal(
    capsys: Capture, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"")))
    told = detect(capsys, here, "-")
    assert (told.code, told.out) == (6, "")
    assert "standard input: it holds neither names of files nor an image" in told.err


@pytest.mark.parametrize("name", ["**.png", "x" * 300])
def test_a_word_that_names_nothing_does_not_stop_the_others(capsys: Capture, here: Path, name: str) -> None:
    honest, _ = sorted_out(here / "all")
    told = detect(capsys, here, name, honest[0], "--json")
    assert told.code == 6
    assert [found["file"] for found in told.json["images"]] == [str(honest[0])]
    assert [entry["file"] for entry in told.json["unreadable"]] == [name]


def test_files_that_cannot_be_read_are_listed_at_the_end_with_code_6(capsys: Capture, here: Path) -> None:
    honest, _ = sorted_out(here / "all")
    (here / "broken.png").write_bytes(b"no picture")
    Image.new("L", (9, 9)).save(here / "large.png")
    (here / "empty").mkdir()
    strays = (here / "broken.png", here / "large.png", here / "none.png", here / "empty")
    told = detect(capsys, here, *strays, honest[0])
    assert told.code == 6
    assert len(told.out.splitlines()) == 1
    lines = told.err.splitlines()
    assert [line.startswith(f"not readable: {stray}: ") for line, stray in zip(lines, strays, strict=True)] == [
        True
    ] * 4
    assert "the picture is 9×9, the subject takes 8×8" in lines[1]


def test_adversarial_images_win_over_files_that_cannot_be_read(capsys: Capture, here: Path) -> None:
    _, bad = sorted_out(here / "all")
    told = detect(capsys, here, here / "none.png", bad[0], "--json")
    assert told.code == 1
    assert told.json["unreadable"][0]["file"] == str(here / "none.png")


def test_another_rate_can_be_asked_for_without_a_refit(capsys: Capture, here: Path) -> None:
    honest, _ = sorted_out(here / "all")
    told = detect(capsys, here, honest[0], "--false-alarm-rate", "0.5", "--json")
    assert told.json["images"][0]["threshold"] == named().rethresholded(0.5).threshold.value
    told = detect(capsys, here, honest[0], "--false-alarm-rate", "0.01")
    assert (told.code, "that rate needs at least 99" in told.err) == (2, True)


def test_a_guard_of_another_network_is_refused_with_code_4(capsys: Capture, here: Path) -> None:
    told = call(capsys, "detect", here / "guard.bf", here, "--model", MODEL)
    assert told.code == 4
    assert "it was fitted to another network: the weights of this one have the digest" in told.err


def test_fitting_holds_a_fifth_of_the_examples_out_for_the_threshold(capsys: Capture, here: Path) -> None:
    told = fit(capsys, here, "--json")
    assert told.code == 0, told.err
    count = len(toys().fitted.for_attack("bim"))
    assert told.json["threshold"]["images"] == pytest.approx(count / 5, abs=1)
    assert told.json["summary"]["sources"] + told.json["threshold"]["images"] == count
    assert told.json["options"]["C"] == 10
    again = bf.load_guard(here / "new.bf", toys().subject.module)
    assert again.threshold.value == told.json["threshold"]["value"]
    assert len(again.detector.seen) == 2 * told.json["summary"]["sources"]  # clean and noisy


def test_a_guard_that_was_fitted_here_detects_here(capsys: Capture, here: Path) -> None:
    assert fit(capsys, here).code == 0
    (here / "new.bf").replace(here / "guard.bf")
    files = pictures(here / "some", toys().tested.clean[:3])
    told = detect(capsys, here, *files)
    assert told.code in (0, 1)
    assert len(told.out.splitlines()) == 3


def test_clean_images_that_the_fit_has_seen_are_left_out_of_the_threshold(capsys: Capture, here: Path) -> None:
    examples = toys().fitted.for_attack("bim")
    clean = torch.from_numpy(pixels(examples.clean)).float().unsqueeze(1) / 255
    replace(examples, clean=clean).save(here / "examples.bf")
    more = np.concatenate([pixels(examples.clean[:7]), pixels(toys().tested.clean)])
    np.savez(here / "clean.npz", x=more, y=np.zeros(len(more), np.int64))
    told = fit(capsys, here, "--clean", here / "clean.npz", "--json")
    assert told.code == 0, told.err
    assert told.json["left_out"] == 7
    assert told.json["threshold"]["images"] == 40
    assert told.json["summary"]["sources"] == len(examples)


def test_what_was_fitted_is_told(capsys: Capture, here: Path) -> None:
    told = fit(capsys, here, "--clean", "digits", "--limit", "99", "--false-alarm-rate", "0.01")
    assert told.code == 0, told.err
    first, *_, threshold, last = told.out.splitlines()
    assert first == f"mbf fitted to {len(toys().fitted.for_attack('bim'))} source images, attacked by bim"
    assert threshold.startswith("threshold ")
    assert "for a false-alarm rate of 0.01: 0 of 99 held-out clean images" in threshold
    assert last == f"written to {here / 'new.bf'}"


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("--false-alarm-rate", "0.01"), 2, "that rate needs at least 99"),
        (("--false-alarm-rate", "1.5"), 2, "it must be a number between 0 and 1"),
        (("--option", "C"), 2, "it must be name=value"),
        (("--option", "octaves=3"), 2, "mbf has no option 'octaves'"),
        (("--detector", "mbff"), 2, "did you mean 'mbf'?"),
        (("--preset", "papr"), 2, "did you mean 'paper'?"),
        (("--labelled", "digits"), 2, "leave clean out"),
        (("--examples", "none.bf"), 4, "none.bf: it cannot be opened"),
        (("--out", "none/guard.bf"), 4, "its folder does not exist"),
        (("--out", "."), 4, "it is a folder"),
        (("--out", "examples.bf"), 4, "examples.bf: this is what --examples names, and it would be overwritten"),
        (("--out", "w.safetensors"), 4, "w.safetensors: this is what --weights names, and it would be overwritten"),
        (("--limit", "3"), 2, "--limit is about the images of --clean; give both"),
        (("--strict",), 2, "--strict is about the images of --clean; give both"),
        (("--option", "seed=3", "--seed", "5"), 2, "--seed is 5 and --option seed is 3; give one of them"),
        (("--seed", "5000000000"), 2, "seed is 5000000000; it must be a whole number of at least 0 and at most"),
        (("--option", "centre=maybe"), 2, "centre is 'maybe'; it must be True or False"),
        (("--option", "layers=99"), 2, "layer '99' not found"),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    capsys: Capture, here: Path, words: tuple[str, ...], code: int, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here)
    told = fit(capsys, here, *words)
    assert told.code == code
    assert complaint in told.err
    assert not (here / "new.bf").exists()
    assert len(bf.Examples.load(here / "examples.bf")) == len(toys().fitted)


def test_examples_of_other_weights_are_refused_unless_they_are_meant(capsys: Capture, here: Path) -> None:
    module = toys().subject.module
    made = replace(toys().fitted.for_attack("bim"), options={"weights": digest_of_weights(module)})
    made.save(here / "examples.bf")
    assert fit(capsys, here).code == 0
    (here / "new.bf").unlink()
    other = deepcopy(module)
    with torch.no_grad():
        next(other.parameters()).mul_(1.1)
    save_weights(other, here / "w.safetensors")
    told = fit(capsys, here)
    assert (told.code, (here / "new.bf").exists()) == (2, False)
    assert "these examples were made with other weights than the subject's" in told.err
    assert fit(capsys, here, "--foreign").code == 0


def test_the_manifest_of_a_guard_is_printed_without_the_network(capsys: Capture, here: Path) -> None:
    told = call(capsys, "info", here / "guard.bf")
    assert told.code == 0
    for words in ("benfourier-guard", "threshold.value", "threshold.rate", "subject.classes", "calibration/scores"):
        assert words in told.out
    assert call(capsys, "info", here / "guard.bf", "--json").json["manifest"]["subject"]["classes"] == list(NAMES)


def test_detectors_examples_and_weights_tell_of_themselves_too(capsys: Capture, here: Path) -> None:
    guard().detector.save(here / "mbf.bf")
    save_file({"weight": np.zeros((2, 3))}, here / "foreign.safetensors")
    for name, kind in (
        ("mbf.bf", "benfourier-detector"),
        ("examples.bf", "benfourier-examples"),
        ("w.safetensors", "benfourier-weights"),
        ("foreign.safetensors", None),
    ):
        told = call(capsys, "info", here / name, "--json")
        assert (told.code, told.json["manifest"].get("kind")) == (0, kind)
        assert call(capsys, "info", here / name).code == 0
    assert told.json["arrays"] == {"weight": {"dtype": "F64", "shape": [2, 3]}}


@pytest.mark.parametrize("name", ["guard.bf", "examples.bf"])
def test_info_refuses_a_damaged_file_with_code_4(capsys: Capture, here: Path, name: str) -> None:
    content = bytearray((here / name).read_bytes())
    content[-20] ^= 1
    (here / name).write_bytes(content)
    told = call(capsys, "info", here / name)
    assert told.code == 4
    assert told.out == ""
    assert "its arrays are damaged" in told.err


def test_info_asks_for_an_upgrade_where_a_file_is_newer(capsys: Capture, tmp_path: Path) -> None:
    manifest = json.dumps({"kind": "benfourier-guard", "schema": 7, "something": "new"})
    save_file({"weight": np.zeros(3)}, tmp_path / "guard.bf", metadata={"manifest": manifest})
    told = call(capsys, "info", tmp_path / "guard.bf")
    assert (told.code, "upgrade benfourier" in told.err) == (4, True)


def test_info_refuses_what_is_no_file_of_ours(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "a.bf").write_bytes(b"hello, this is text and nothing else")
    for path, complaint in ((tmp_path / "a.bf", "no safetensors file"), (tmp_path / "none", "it cannot be opened")):
        told = call(capsys, "info", path)
        assert (told.code, complaint in told.err) == (4, True)
