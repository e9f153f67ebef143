"""`bench`: what features cost, as a table and as JSON."""

from pathlib import Path

import pytest

from tests.cli.calling import call, file_of_networks

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.chdir(tmp_path)
    with file_of_networks(tmp_path, "timed_networks"):
        yield


def test_the_network_is_timed_alone_and_with_features(capsys: Capture) -> None:
    words = ("bench", "--model", "timed_networks:tiny", "--size", "8", "--channels", "1", "--rounds", "2")
    result = call(capsys, *words, "--json")
    assert result.code == 0
    assert (result.json["layers"], result.json["activations"]) == (4, 16 + 16 + 10 + 10)
    ms = result.json["ms_per_image"]
    assert 0 < ms["network"] < ms["with features"]
    assert "with features" in call(capsys, *words).out


def test_a_network_that_does_not_say_its_images_is_asked_for_them(capsys: Capture) -> None:
    result = call(capsys, "bench", "--model", "timed_networks:tiny")
    assert result.code == 2
    assert "give --size and --channels" in result.err


@pytest.mark.parametrize("option", ["--batch", "--rounds", "--threads"])
def test_counts_below_one_are_refused(capsys: Capture, option: str) -> None:
    result = call(capsys, "bench", "--model", "timed_networks:tiny", option, "0")
    assert result.code == 2
    assert option[2:] in result.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--size", "9" * 20), "size is 9999"),
        (("--size", "9" * 9), "do not fit the memory"),
        (("--channels", "9" * 12), "do not fit the memory"),
        (("--threads", "9" * 20), "threads is 9999"),
        (("--threads", "100000"), "at most 1024"),
    ],
)
def test_counts_that_no_machine_holds_are_refused(capsys: Capture, words: tuple[str, str], complaint: str) -> None:
    options = {"--size": "8", "--channels": "1", "--rounds": "1", words[0]: words[1]}
    result = call(
        capsys, "bench", "--model", "timed_networks:tiny", *(word for pair in options.items() for word in pair)
    )
    assert result.code == 2
    assert complaint in result.err
