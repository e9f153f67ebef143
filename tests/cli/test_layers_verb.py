from collections.abc import Iterator
from pathlib import Path

import pytest

from benfourier.models.weights import save_weights
from benfourier.models.zoo import ZOO
from tests.cli.calling import call, file_of_networks

Capture = pytest.CaptureFixture[str]


@pytest.fixture(name="here")
def current_folder_with_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    with file_of_networks(tmp_path, "my_networks"):
        yield tmp_path


def test_layers_of_a_zoo_network_are_a_table(capsys: Capture) -> None:
    result = call(capsys, "layers", "--model", "lid-mnist")
    assert result.code == 0
    assert "12 layers of lid-mnist" in result.out
    assert "43,264" in result.out
    assert "soft-max" in result.out


def test_layers_are_printed_as_json(capsys: Capture) -> None:
    result = call(capsys, "layers", "--model", "lid-mnist", "--json")
    assert result.json[0] == {"name": "0", "kind": "Conv2d", "entries": 43264}
    assert [layer["name"] for layer in result.json][-2:] == ["13", "soft-max"]


def test_layers_that_only_pass_numbers_on_are_listed_when_asked_for(capsys: Capture) -> None:
    result = call(capsys, "layers", "--model", "lid-mnist", "--pass-through", "--json")
    assert len(result.json) == 15
    assert {layer["kind"] for layer in result.json} >= {"Dropout", "Flatten"}


def test_layers_can_be_selected_more_than_once(capsys: Capture) -> None:
    result = call(capsys, "layers", "-m", "lid-mnist", "--select", "type:Conv2d", "--select", "soft-max", "--json")
    assert [layer["name"] for layer in result.json] == ["0", "3", "soft-max"]


def test_a_selection_that_matches_nothing_is_refused(capsys: Capture) -> None:
    result = call(capsys, "layers", "--model", "lid-mnist", "--select", "features.9")
    assert result.code == 2
    assert "features.9" in result.err


@pytest.mark.parametrize("words", ["7.5", "seven"])
def test_classes_are_a_number_or_several_names(capsys: Capture, here: Path, words: str) -> None:
    result = call(capsys, "layers", "-m", "mine:factory", "--classes", words)
    assert (result.code, result.out) == (2, "")
    assert f"classes is '{words}'; it must be a number, or names such as cat,dog" in result.err


def test_a_network_of_the_current_folder_takes_size_channels_and_classes(capsys: Capture, here: Path) -> None:
    words = ("--size", "8", "--channels", "1", "--classes", "7", "--mean", "0.5", "--std", "0.25", "--json")
    result = call(capsys, "layers", "--model", "my_networks:tiny", *words)
    assert result.json[-1] == {"name": "soft-max", "kind": "soft-max", "entries": 7}


def test_weights_are_loaded_and_their_digest_is_checked(capsys: Capture, here: Path) -> None:
    save_weights(ZOO["lid-mnist"].factory(), here / "w.safetensors")
    words = ("layers", "--model", "lid-mnist", "--weights", "w.safetensors")
    assert call(capsys, *words).code == 0
    result = call(capsys, *words, "--digest", "ab" * 32)
    assert result.code == 4
    assert f"not {'ab' * 32}" in result.err


def test_a_mean_that_is_no_list_of_numbers_is_refused(capsys: Capture) -> None:
    result = call(capsys, "layers", "--model", "lid-mnist", "--mean", "half")
    assert result.code == 2
    assert result.err == "error: mean is 'half'; it must be numbers with commas between, such as 0.5,0.5,0.5\n"
