"""`attack`, on digits."""

import inspect
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import benfourier as bf
from benfourier.attacks.examples import MIXTURE
from benfourier.cli.attack import attack as attack_verb
from benfourier.cli.options import parse_attacks, parse_value
from benfourier.data import Examples
from benfourier.errors import OptionError
from benfourier.models.weights import save_weights
from tests.attacks.trained import digits
from tests.cli.calling import Outcome, call

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]
KNOWN = ("--model", "tests.attacks.trained:network", "--size", "8", "--channels", "1")


@pytest.fixture(name="here")
def folder_with_data(tmp_path: Path) -> Path:
    """A folder with weights, and 24 digits that the network has not seen, 2 of which it misclassifies."""
    data = digits()
    save_weights(data.classifier.module, tmp_path / "w.safetensors")
    pixels = (data.images[:, 0] * 255).round().to(torch.uint8).numpy()
    np.savez(tmp_path / "data.npz", x=pixels, y=data.labels.numpy())
    (tmp_path / "files").mkdir()
    for place, (picture, label) in enumerate(zip(pixels, data.labels.tolist(), strict=True)):
        (tmp_path / "files" / str(label)).mkdir(exist_ok=True)
        Image.fromarray(picture).save(tmp_path / "files" / str(label) / f"{place}.png")
    return tmp_path


def attack(capsys: Capture, here: Path, *words: str | Path, data: str = "data.npz") -> Outcome:
    places = ("--weights", here / "w.safetensors", "--data", here / data, "--out", here / "out.bf")
    return call(capsys, "attack", *KNOWN, *places, "--cache", here / "cache", *words)


def test_examples_are_written_with_counts_and_figures(capsys: Capture, here: Path) -> None:
    result = attack(capsys, here, "--attack", "bim")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[:3] == ["    24  in data", "    22  classified correctly", "    22  noisy twin too"]
    assert "│ bim    │  22 of 22 │" in result.out
    assert lines[-1] == f"written to {here / 'out.bf'}"
    examples = bf.Examples.load(here / "out.bf")
    assert (len(examples), examples.attacks, examples.seed) == (22, ("bim",), 0)
    assert examples.counts == (("in data", 24), ("classified correctly", 22), ("noisy twin too", 22))
    assert examples.ids[0].startswith("data/000")


def test_json_holds_the_same(capsys: Capture, here: Path) -> None:
    result = attack(capsys, here, "--json", "--attack", "bim-fixed", "--option", "bim-fixed.eps=77/255").json
    assert result["funnel"][0] == {"step": "in data", "left": 24}
    assert result["out"] == str(here / "out.bf")
    assert result["refused"] == []
    (row,) = result["attacks"]
    assert row["options"]["eps"] == 77 / 255
    assert row["images"] == 22
    assert row["median_linf"] == pytest.approx(77 / 255, rel=1e-4)
    assert row["median_l2"] > row["median_linf"]
    assert row["calls"] == 23  # a first and a last look, 10 steps of 2, and the judgement of the last
    assert result["noise_levels"]["noisy"] > 0


def test_the_default_mixture_needs_no_word(capsys: Capture, here: Path) -> None:
    result = attack(capsys, here, "--json").json
    assert attack(capsys, here, "--attack", "default", "--json").json["noise_levels"] == result["noise_levels"]
    assert [row["label"] for row in result["attacks"]] == list(MIXTURE)
    assert set(result["noise_levels"]) == set(Examples.load(here / "out.bf").noisy)
    assert len(result["noise_levels"]) == 1 + len(MIXTURE)
    for words in (("--attack", "bim"), ("--option", "weak.factor=3")):
        refused = attack(capsys, here, "--attack", "default", *words)
        assert (refused.code, "leave --option and other attacks out" in refused.err) == (2, True)


def test_attacks_have_options_and_labels(capsys: Capture, here: Path) -> None:
    words = ("--attack", "weak=bim-fixed", "--attack", "strong=bim-fixed", "--option", "weak.eps=0.1")
    assert attack(capsys, here, *words).code == 0
    examples = Examples.load(here / "out.bf")
    assert examples.attacks == ("weak", "strong")
    assert [examples.options["attacks"][name]["options"]["eps"] for name in examples.attacks] == [0.1, 0.3]


def test_a_second_run_takes_everything_from_the_cache(capsys: Capture, here: Path) -> None:
    first, second = (attack(capsys, here, "--json").json["attacks"][0] for _ in range(2))
    assert (first["cached"], second["cached"]) == (0, 22)
    assert first["median_l2"] == second["median_l2"]
    without = call(
        capsys, "attack", *KNOWN, "-w", here / "w.safetensors", "-d", here / "data.npz", "-o", here / "again.bf",
        "--no-cache", "--json",
    )  # fmt: skip
    assert without.json["attacks"][0]["cached"] == 0
    assert (here / "again.bf").read_bytes() == (here / "out.bf").read_bytes()


def test_a_limit_takes_so_many_images_of_all_classes(capsys: Capture, here: Path) -> None:
    result = attack(capsys, here, "--limit", "12", "--json").json
    assert [step["left"] for step in result["funnel"]][:2] == [24, 12]
    first = Examples.load(here / "out.bf").ids
    attack(capsys, here, "--limit", "20")
    assert Examples.load(here / "out.bf").ids[: len(first)] == first
    attack(capsys, here, "--limit", "12", "--seed", "1")
    assert Examples.load(here / "out.bf").ids != first


def test_eight_bit_images_are_written(capsys: Capture, here: Path) -> None:
    attack(capsys, here, "--eight-bit")
    noisy = 255 * Examples.load(here / "out.bf").noisy["noisy"]
    assert torch.allclose(noisy, noisy.round(), atol=1e-4)


def test_files_that_cannot_be_read_are_listed_and_give_code_6(capsys: Capture, here: Path) -> None:
    (here / "files" / "1" / "broken.png").write_bytes(b"no picture")
    result = attack(capsys, here, data="files")
    assert result.code == 6
    assert "\nnot readable: 1/broken.png: it is not an image" in result.err
    assert "    24  readable" in result.out
    assert len(Examples.load(here / "out.bf")) == 22
    result = attack(capsys, here, "--json", data="files")
    assert result.code == 6
    assert [refusal["file"] for refusal in result.json["refused"]] == ["1/broken.png"]


def test_strict_stops_at_the_first_file_that_cannot_be_read(capsys: Capture, here: Path) -> None:
    (here / "files" / "1" / "broken.png").write_bytes(b"no picture")
    result = attack(capsys, here, "--strict", data="files")
    assert result.code == 2
    assert "broken.png" in result.err
    assert not (here / "out.bf").exists()


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("--attack", "bin"), 2, "did you mean 'bim'?"),
        (("--attack", "bim", "--attack", "bim"), 2, "attack 'bim' is given twice; give each a label"),
        (("--option", "cw-l2.iterations=5"), 2, "attack is 'default', a mixture with options of its own"),
        (("-a", "bim", "--option", "cw-l2.iterations=5"), 2, "must be label.option=value, with a label among bim"),
        (("-a", "bim", "--option", "bim.iterations"), 2, "it must be label.option=value"),
        (("--limit", "0"), 2, "limit is 0"),
        (("--noise", "mode"), 2, "noise is 'mode'; allowed: median, mean"),
        (("--no-cache",), 2, "leave one of them out"),
        (("--out", "nowhere/out.bf"), 4, "its folder does not exist"),
        (("--out", "."), 4, "it is a folder"),
        (("--weights", __file__, "--out", __file__), 4, "this is what --weights names, and it would be overwritten"),
        (("--data", f"{__file__}:test", "--out", __file__), 4, "this is what --data names"),
        (("--weights", "nothing.safetensors"), 4, "nothing.safetensors"),
        (("--data", "nothing"), 2, "source 'nothing' is neither"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_cannot_be_done_is_said_in_one_line(
    capsys: Capture, here: Path, words: tuple[str, ...], code: int, complaint: str
) -> None:
    result = attack(capsys, here, *words)
    assert (result.code, result.out) == (code, "")
    assert complaint in result.err
    assert result.err.count("\n") == 1


def test_an_interrupted_run_says_how_to_go_on(here: Path) -> None:
    words = [*KNOWN, "-w", here / "w.safetensors", "-d", here / "data.npz", "-o", here / "out.bf", "--chunk", "2"]
    words += ["--cache", here / "cache", "--attack", "r-pgd"]
    # a process that a shell has put into the background hands down that SIGINT is ignored
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heeding}; from benfourier.cli.main import main; main()"
    command = [sys.executable, "-c", program, "attack", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as run:  # noqa: S603
        deadline = time.monotonic() + 120
        while len(list((here / "cache").glob("??/*.safetensors"))) < 1:
            assert time.monotonic() < deadline
            with pytest.raises(subprocess.TimeoutExpired):
                run.wait(timeout=0.01)
        run.send_signal(signal.SIGINT)
        _, err = run.communicate()
    assert run.returncode == 130
    accuracy, interruption = err.splitlines()
    assert accuracy.startswith("the network is right about 91.7%")
    assert interruption == "interrupted; finished chunks are kept; the same command goes on from there"
    assert not (here / "out.bf").exists()
    assert list((here / "cache").glob("??/.*")) == []


def test_values_are_numbers_quotients_truths_or_words() -> None:
    texts = ("3", "0.5", "8/255", "true", "False", "none", "L2", "[1, 2]", "1/0", "a/b")
    assert [parse_value(text) for text in texts] == [3, 0.5, 8 / 255, True, False, None, "L2", [1, 2], "1/0", "a/b"]


def test_the_chunk_is_that_of_the_library() -> None:
    verb, library = (inspect.signature(function).parameters["chunk"] for function in (attack_verb, bf.make_examples))
    assert verb.default == library.default


def test_a_label_may_hold_dots() -> None:
    assert parse_attacks(["bim@0.1=bim-fixed"], ["bim@0.1.eps=0.1"]) == {"bim@0.1": ("bim-fixed", {"eps": 0.1})}
    with pytest.raises(OptionError, match="with a label among bim"):
        parse_attacks(["bim"], ["eps=1"])
