"""`fit`, `detect` and `info`, on small digits."""

import json
import re
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
from sklearn.datasets import load_digits
from torch import Tensor

import benfourier as bf
from benfourier import progress
from benfourier.guard.card import measure
from benfourier.models.weights import save_weights, weights_digest
from tests.attacks.trained import TRAIN
from tests.cli.calling import Outcome, call
from tests.detectors.guarded import detector, guard
from tests.detectors.toys import other_classifier, toys

Capture = pytest.CaptureFixture[str]
MODEL = "tests.attacks.trained:network"
NAMES = tuple("zero one two three four five six seven eight nine".split())


@cache
def named() -> bf.Guard:
    """The guard of small digits, whose classes have names."""
    classifier = replace(toys().classifier, classes=NAMES)
    return bf.Guard.calibrated(replace(detector(), classifier=classifier), toys().tested.clean, 0.1)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with weights, examples and a guard."""
    save_weights(toys().classifier.module, tmp_path / "w.safetensors")
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
    images = torch.cat([toys().tested.clean[:6], toys().tested.adversarial["bim"][:12]])
    files = pictures(folder, images)
    accepted = named().check(bf.load_images(files, named().classifier)).accepted
    accepted_files = [file for file, good in zip(files, accepted, strict=True) if good]
    return accepted_files, [file for file in files if file not in accepted_files]


def detect(capsys: Capture, here: Path, *words: str | Path) -> Outcome:
    return call(capsys, "detect", here / "guard.bf", *words, "--model", MODEL, "--weights", here / "w.safetensors")


def fit(capsys: Capture, here: Path, *words: str | Path) -> Outcome:
    known = ("--model", MODEL, "--weights", here / "w.safetensors", "--size", "8", "--channels", "1")
    result = (
        "--examples",
        here / "examples.bf",
        "--out",
        here / "new.bf",
        "--detector",
        "mbf",
        "--option",
        "C=10",
        "--option",
        "gamma=scale",
    )
    return call(capsys, "fit", *known, *result, *words)


def test_accepted_images_get_their_label_and_code_0(capsys: Capture, here: Path) -> None:
    accepted_files, _ = sorted_out(here / "all")
    result = detect(capsys, here, *accepted_files)
    assert result.code == 0
    verdicts = named().check(bf.load_images(accepted_files, named().classifier))
    first = verdicts[0]
    assert result.out.splitlines()[0] == (
        f"{accepted_files[0]}: accepted, label {first.label} ({NAMES[first.label]}), score {first.score:.6g}, "
        f"threshold {first.threshold:.6g}, p {first.p_value:.3g}"
    )
    assert len(result.out.splitlines()) == len(accepted_files)
    assert result.err == ""


def test_adversarial_images_are_reported_and_give_code_1(capsys: Capture, here: Path) -> None:
    _, rejected_files = sorted_out(here / "all")
    result = detect(capsys, here, rejected_files[0])
    assert result.code == 1
    label = named().check(bf.load_images(rejected_files[:1], named().classifier))[0].label
    assert result.out.startswith(f"{rejected_files[0]}: adversarial, label {label} ({NAMES[label]}), score ")


def test_a_folder_is_looked_through_in_order_of_name(capsys: Capture, here: Path) -> None:
    accepted_files, rejected_files = sorted_out(here / "all")
    (here / "all" / "notes.txt").write_text("no image", encoding="utf-8")
    (here / "all" / ".hidden.png").write_bytes(b"no image")
    result = detect(capsys, here, here / "all", "--json")
    assert result.code == 1
    assert [Path(image["file"]) for image in result.json["images"]] == sorted([*accepted_files, *rejected_files])
    assert {Path(image["file"]) for image in result.json["images"] if not image["accepted"]} == set(rejected_files)
    assert result.json["unreadable"] == []
    expected = named().check(bf.load_images(sorted([*accepted_files, *rejected_files]), named().classifier))
    assert [image["label"] for image in result.json["images"]] == expected.label.tolist()
    assert [image["name"] for image in result.json["images"]] == expected.names
    # another batch size changes the last bits of the network; scores are of the order of 1
    assert [image["score"] for image in result.json["images"]] == pytest.approx(expected.score.tolist(), abs=1e-3)


def test_a_pattern_stands_for_the_files_of_its_name(capsys: Capture, here: Path) -> None:
    accepted_files, rejected_files = sorted_out(here / "all")
    result = detect(capsys, here, here / "*" / "*.png", here / "*.jpg", "--json")
    assert [Path(image["file"]) for image in result.json["images"]] == sorted([*accepted_files, *rejected_files])
    assert [entry["file"] for entry in result.json["unreadable"]] == [str(here / "*.jpg")]


@pytest.mark.parametrize("between", ["\n", "\0"])
def test_names_come_on_standard_input(
    capsys: Capture, here: Path, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    accepted_files, _ = sorted_out(here / "all")
    text = between.join([*map(str, accepted_files[:2]), str(here / "none.png"), ""])
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(text.encode())))
    result = detect(capsys, here, "-", "--json")
    assert [Path(image["file"]) for image in result.json["images"]] == accepted_files[:2]
    assert [entry["file"] for entry in result.json["unreadable"]] == [str(here / "none.png")]


def test_an_image_comes_on_standard_input(capsys: Capture, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accepted_files, _ = sorted_out(here / "all")
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(accepted_files[0].read_bytes())))
    result = detect(capsys, here, "-")
    assert result.out == detect(capsys, here, accepted_files[0]).out.replace(str(accepted_files[0]), "standard input")
    assert result.code == 0


def test_a_broken_image_on_standard_input_is_named_so(
    capsys: Capture, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"\x89PNG\r\n\x1a\n\xff")))
    result = detect(capsys, here, "-")
    assert (result.code, result.out) == (6, "")
    assert result.err.startswith("not readable: standard input: it is ")


def test_nothing_on_standard_input_is_an_error_of_code_6(
    capsys: Capture, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"")))
    result = detect(capsys, here, "-")
    assert (result.code, result.out) == (6, "")
    assert "standard input: it holds neither names of files nor an image" in result.err


@pytest.mark.parametrize("name", ["**.png", "x" * 300])
def test_a_word_that_names_nothing_does_not_stop_the_others(capsys: Capture, here: Path, name: str) -> None:
    accepted_files, _ = sorted_out(here / "all")
    result = detect(capsys, here, name, accepted_files[0], "--json")
    assert result.code == 6
    assert [image["file"] for image in result.json["images"]] == [str(accepted_files[0])]
    assert [entry["file"] for entry in result.json["unreadable"]] == [name]


def test_files_that_cannot_be_read_are_listed_at_the_end_with_code_6(capsys: Capture, here: Path) -> None:
    accepted_files, _ = sorted_out(here / "all")
    (here / "broken.png").write_bytes(b"no picture")
    Image.new("L", (9, 9)).save(here / "large.png")
    (here / "empty").mkdir()
    strays = (here / "broken.png", here / "large.png", here / "none.png", here / "empty")
    result = detect(capsys, here, *strays, accepted_files[0])
    assert result.code == 6
    assert len(result.out.splitlines()) == 1
    lines = result.err.splitlines()
    assert [line.startswith(f"not readable: {stray}: ") for line, stray in zip(lines, strays, strict=True)] == [
        True
    ] * 4
    assert "the image is 9×9, not 8×8" in lines[1]


def test_adversarial_images_win_over_files_that_cannot_be_read(capsys: Capture, here: Path) -> None:
    _, rejected_files = sorted_out(here / "all")
    result = detect(capsys, here, here / "none.png", rejected_files[0], "--json")
    assert result.code == 1
    assert result.json["unreadable"][0]["file"] == str(here / "none.png")


def test_a_batch_that_no_number_of_64_bits_holds_is_refused(capsys: Capture, here: Path) -> None:
    result = detect(capsys, here, pictures(here / "one", toys().tested.clean[:1])[0], "--batch", "9" * 20)
    assert result.code == 2
    assert f"batch is {'9' * 20}; it must be a whole number of at least 1 and at most 9223372036854775807" in result.err


def test_another_rate_can_be_asked_for_without_a_refit(capsys: Capture, here: Path) -> None:
    accepted_files, _ = sorted_out(here / "all")
    result = detect(capsys, here, accepted_files[0], "--false-alarm-rate", "0.5", "--json")
    assert result.json["images"][0]["threshold"] == named().at_rate(0.5).threshold.value
    result = detect(capsys, here, accepted_files[0], "--false-alarm-rate", "0.01")
    assert (result.code, "that rate needs at least 199" in result.err) == (2, True)


def test_a_missing_guard_is_reported_before_the_network_is_loaded(capsys: Capture, here: Path) -> None:
    verbs: dict[str, list[str | Path]] = {
        "detect": [here],
        "calibrate": ["--clean", "digits", "-o", here / "new.bf"],
        "serve": [],
    }
    for verb, words in verbs.items():
        result = call(capsys, verb, here / "none.bf", *words, "-m", "no_such_module:network")
        assert result.code == 4
        assert "none.bf" in result.err


def test_plain_lines_of_progress_leave_standard_output_alone(
    capsys: Capture, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures(here / "many", toys().tested.clean.repeat(20, 1, 1, 1))
    words = ("detect", here / "guard.bf", here / "many", "-m", MODEL, "-w", here / "w.safetensors", "--json")
    silent = call(capsys, *words)
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.02)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.02)
    result = call(capsys, *words)
    assert result.json == silent.json
    assert silent.err == ""
    assert re.search(r"^\d+ s: checked: [\d,]+, [\d.e+]+ a second$", result.err, re.MULTILINE)


def test_a_guard_of_another_network_is_refused_with_code_4(capsys: Capture, here: Path) -> None:
    result = call(capsys, "detect", here / "guard.bf", here, "--model", MODEL)
    assert result.code == 4
    assert "it was fitted to another network: the weights of this one have the digest" in result.err


@pytest.mark.parametrize(("rate", "images"), [("0.05", 39), ("0.1", 24)])
def test_fitting_holds_a_fifth_of_the_examples_out_for_the_threshold_or_what_the_rate_needs(
    capsys: Capture, here: Path, rate: str, images: int
) -> None:
    result = fit(capsys, here, "--json", "--false-alarm-rate", rate)
    assert result.code == 0, result.err
    count = len(toys().fitted.for_attack("bim"))
    assert result.json["threshold"]["images"] == pytest.approx(images, abs=1)
    assert result.json["summary"]["sources"] + result.json["threshold"]["images"] == count
    assert result.json["options"]["C"] == 10
    again = bf.load_guard(here / "new.bf", toys().classifier.module)
    assert again.threshold.value == result.json["threshold"]["value"]
    assert len(again.detector.seen) == 2 * result.json["summary"]["sources"]  # clean and noisy


def test_a_guard_that_was_fitted_here_detects_here(capsys: Capture, here: Path) -> None:
    assert fit(capsys, here).code == 0
    (here / "new.bf").replace(here / "guard.bf")
    files = pictures(here / "some", toys().tested.clean[:3])
    result = detect(capsys, here, *files)
    assert result.code in (0, 1)
    assert len(result.out.splitlines()) == 3


def test_views_are_fitted_if_no_detector_is_named(capsys: Capture, here: Path) -> None:
    words = ("fit", "-m", MODEL, "-w", here / "w.safetensors", "--size", "8", "--channels", "1")
    result = call(capsys, *words, "-e", here / "examples.bf", "-o", here / "views.bf", "--json").json
    assert result["detector"] == "views"
    assert bf.load_guard(here / "views.bf", toys().classifier.module).detector.method == bf.make_method("views")


def test_clean_images_that_the_fit_has_seen_are_left_out_of_the_threshold(capsys: Capture, here: Path) -> None:
    examples = toys().fitted.for_attack("bim")
    clean = torch.from_numpy(pixels(examples.clean)).float().unsqueeze(1) / 255
    replace(examples, clean=clean).save(here / "examples.bf")
    more = np.concatenate([pixels(examples.clean[:7]), pixels(toys().tested.clean)])
    np.savez(here / "clean.npz", x=more, y=np.zeros(len(more), np.int64))
    result = fit(capsys, here, "--clean", here / "clean.npz", "--json")
    assert result.code == 0, result.err
    assert result.json["left_out"] == 7
    assert result.json["threshold"]["images"] == 40
    assert result.json["summary"]["sources"] == len(examples) * 4 // 5  # a fifth measures the guard


def test_what_was_fitted_is_reported(capsys: Capture, here: Path) -> None:
    result = fit(capsys, here, "--clean", "digits", "--limit", "199", "--false-alarm-rate", "0.01")
    assert result.code == 0, result.err
    first, threshold, *card, last = result.out.splitlines()
    assert first == f"mbf fitted to {len(toys().fitted.for_attack('bim')) * 4 // 5} source images, attacked by bim"
    assert threshold.startswith("threshold ")
    assert any(line.startswith("  bim ") for line in card)
    assert "for a false-alarm rate of 0.01: 0 of 199 held-out clean images" in threshold
    assert last == f"written to {here / 'new.bf'}"


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("--false-alarm-rate", "0.01"), 2, "that rate needs at least 199"),
        (("--false-alarm-rate", "1.5"), 2, "it must be a number between 0 and 1"),
        (("--option", "C"), 2, "it must be name=value"),
        (("--option", "octaves=3"), 2, "mbf has no option 'octaves'"),
        (("--detector", "mbff"), 2, "did you mean 'mbf'?"),
        (("--preset", "papr"), 2, "did you mean 'paper'?"),
        (("--labelled", "digits"), 2, "leave clean out"),
        (("--examples", "none.bf"), 4, "none.bf: it cannot be opened"),
        (("--out", "none/guard.bf"), 4, "its folder does not exist"),
        (("--out", "x" * 300), 2, "File name too long"),
        (("--out", "x" * 250), 2, "File name too long"),  # the temporary file's name is longer
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
    result = fit(capsys, here, *words)
    assert result.code == code
    assert complaint in result.err
    assert not (here / "new.bf").exists()
    assert len(bf.Examples.load(here / "examples.bf")) == len(toys().fitted)


def test_examples_of_other_weights_are_refused_unless_they_are_meant(capsys: Capture, here: Path) -> None:
    module = toys().classifier.module
    examples = replace(toys().fitted.for_attack("bim"), options={"weights": weights_digest(module)})
    examples.save(here / "examples.bf")
    assert fit(capsys, here).code == 0
    (here / "new.bf").unlink()
    other = deepcopy(module)
    with torch.no_grad():
        next(other.parameters()).mul_(1.1)
    save_weights(other, here / "w.safetensors")
    result = fit(capsys, here)
    assert (result.code, (here / "new.bf").exists()) == (2, False)
    assert "these examples were made with other weights than the classifier's" in result.err
    assert fit(capsys, here, "--other-weights").code == 0


def test_the_manifest_of_a_guard_is_printed_without_the_network(capsys: Capture, here: Path) -> None:
    result = call(capsys, "info", here / "guard.bf")
    assert result.code == 0
    for words in ("benfourier-guard", "threshold.value", "threshold.rate", "classifier.classes", "calibration/scores"):
        assert words in result.out
    assert call(capsys, "info", here / "guard.bf", "--json").json["manifest"]["classifier"]["classes"] == list(NAMES)


@pytest.mark.parametrize(
    ("name", "code", "complaint"),
    [
        ("card.html", 2, "guard.bf: it has no card; `protect`, `fit` and `calibrate` make guards with cards"),
        ("guard.bf", 4, "this is what --file names, and it would be overwritten"),
        ("none/card.html", 4, "its folder does not exist"),
    ],
)
def test_a_card_that_cannot_be_written_is_an_error(
    capsys: Capture, here: Path, name: str, code: int, complaint: str
) -> None:
    before = (here / "guard.bf").read_bytes()
    result = call(capsys, "info", here / "guard.bf", "--card", here / name)
    assert (result.code, result.out) == (code, "")
    assert complaint in result.err
    assert (here / "guard.bf").read_bytes() == before


def test_info_prints_the_card_and_with_full_everything(capsys: Capture, here: Path) -> None:
    with_card = replace(guard(), card=measure(guard(), None, None, show_progress=False))
    with_card.save(here / "with-card.bf")
    short = call(capsys, "info", here / "with-card.bf")
    assert short.out == f"{with_card.card}\n"
    assert "--full prints all entries" in short.err
    full = call(capsys, "info", here / "with-card.bf", "--full")
    assert full.out.startswith(short.out)
    assert "calibration/scores" in full.out


def test_info_describes_detectors_examples_and_weights_too(capsys: Capture, here: Path) -> None:
    guard().detector.save(here / "mbf.bf")
    save_file({"weight": np.zeros((2, 3))}, here / "foreign.safetensors")
    for name, kind in (
        ("mbf.bf", "benfourier-detector"),
        ("examples.bf", "benfourier-examples"),
        ("w.safetensors", "benfourier-weights"),
        ("foreign.safetensors", None),
    ):
        result = call(capsys, "info", here / name, "--json")
        assert (result.code, result.json["manifest"].get("kind")) == (0, kind)
        assert call(capsys, "info", here / name).code == 0
    assert result.json["arrays"] == {"weight": {"dtype": "F64", "shape": [2, 3]}}


@pytest.mark.parametrize("name", ["guard.bf", "examples.bf"])
def test_info_refuses_a_damaged_file_with_code_4(capsys: Capture, here: Path, name: str) -> None:
    content = bytearray((here / name).read_bytes())
    content[-20] ^= 1
    (here / name).write_bytes(content)
    result = call(capsys, "info", here / name)
    assert result.code == 4
    assert result.out == ""
    assert "its arrays are damaged" in result.err


def test_info_asks_for_an_upgrade_where_a_file_is_newer(capsys: Capture, tmp_path: Path) -> None:
    manifest = json.dumps({"kind": "benfourier-guard", "schema": 7, "something": "new"})
    save_file({"weight": np.zeros(3)}, tmp_path / "guard.bf", metadata={"manifest": manifest})
    result = call(capsys, "info", tmp_path / "guard.bf")
    assert (result.code, "upgrade benfourier" in result.err) == (4, True)


def test_info_refuses_missing_files_and_other_formats(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "a.bf").write_bytes(b"hello, this is text and nothing else")
    for path, complaint in ((tmp_path / "a.bf", "no safetensors file"), (tmp_path / "none", "it cannot be opened")):
        result = call(capsys, "info", path)
        assert (result.code, complaint in result.err) == (4, True)


def test_a_second_opinion_is_fitted_and_asked_from_the_command_line(capsys: Capture, here: Path) -> None:
    save_weights(other_classifier().module, here / "other.safetensors")
    words = ("fit", "-m", MODEL, "-w", here / "w.safetensors", "-e", here / "examples.bf", "-o", here / "second.bf")
    second = ("--second-model", MODEL, "--second-weights", here / "other.safetensors", "--size", "8", "--channels", "1")
    fitted = call(capsys, *words, "--detector", "second-opinion", *second)
    assert fitted.code == 0, fitted.err
    files = pictures(here / "pictures", toys().tested.clean[:3])
    asked: list[str | Path] = [here / "second.bf", *files, "-m", MODEL, "-w", here / "w.safetensors"]
    answer = call(capsys, "detect", *asked, "--second-model", MODEL, "--json")
    images = bf.load_images(files, toys().classifier)
    guard = bf.load_guard(here / "second.bf", toys().classifier.module, second=other_classifier())
    scores = [image["score"] for image in answer.json["images"]]
    assert scores == pytest.approx(guard.check(images).score.tolist(), abs=1e-4)
    without = call(capsys, "detect", *asked)
    assert (without.code, "second-opinion needs 'second'" in without.err) == (2, True)
    lonely = call(capsys, *words, "--detector", "mbf", "--second-weights", here / "other.safetensors")
    assert (lonely.code, "without --second-model" in lonely.err) == (2, True)


def clean_file(here: Path) -> Path:
    """Digits with their labels, as they come."""
    data = load_digits()
    file = here / "digits.npz"
    np.savez(file, x=(data.images[TRAIN:] * 15.9).astype(np.uint8), y=data.target[TRAIN:].astype(np.int64))
    return file


def test_a_network_is_protected_in_one_call_and_calibrated_again(capsys: Capture, here: Path) -> None:
    known = ("--model", MODEL, "--weights", here / "w.safetensors")
    words = ("--data", clean_file(here), "--attack", "none", "--budget", "1 min", "--out", here / "p.bf")
    result = call(capsys, "protect", *known, "--size", "8", "--channels", "1", *words)
    assert result.code == 0, result.err
    assert result.err.startswith("the network is right about 9")
    lines = result.out.splitlines()
    assert lines[0].startswith("guard of Sequential (10 classes, 9")
    assert "false alarms, 5.0% promised on clean images:" in lines
    assert max(map(len, lines)) <= 120
    assert lines[-1] == f"written to {here / 'p.bf'}"
    card = "\n".join(lines[:-2])
    assert call(capsys, "info", here / "p.bf").out.startswith(card)
    assert call(capsys, "info", here / "p.bf", "--card", here / "card.json").err == f"wrote {here / 'card.json'}\n"
    stored = bf.GuardCard.from_json(json.loads((here / "card.json").read_text(encoding="utf-8")))
    assert str(stored) == card
    again = call(capsys, "calibrate", here / "p.bf", *known, "--clean", clean_file(here), "--out", here / "q.bf")
    assert (again.code, "were used to fit the detector" in again.err) == (2, True)
    np.savez(here / "other.npz", x=(load_digits().images[:TRAIN] * 15).astype(np.uint8), y=load_digits().target[:TRAIN])
    other = ("--clean", here / "other.npz", "--limit", "300", "--out", here / "q.bf", "--json")
    renewed = call(capsys, "calibrate", here / "p.bf", *known, *other)
    assert renewed.code == 0, renewed.err
    assert renewed.json["card"]["thresholds"] == 180
    assert bf.load_guard(here / "q.bf", toys().classifier.module).threshold.images == 180


def test_none_stands_alone_among_attacks(capsys: Capture, here: Path) -> None:
    known = ("--model", MODEL, "--weights", here / "w.safetensors", "--size", "8", "--channels", "1")
    words = ("--data", clean_file(here), "--attack", "none", "--attack", "bim", "--out", here / "p.bf")
    result = call(capsys, "protect", *known, *words)
    assert (result.code, "'none' and 'default' stand alone" in result.err) == (2, True)
