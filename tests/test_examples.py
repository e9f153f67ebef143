import importlib.util
import re
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"
REDUCED = {"features": ["--epochs", "15", "--images", "60", "--samples", "4096"]}


def run(name: str, arguments: list[str]) -> None:
    """Runs an example's main in this process, and gives torch back the threads that it had."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    threads = torch.get_num_threads()
    try:
        module.main(arguments)
    finally:
        torch.set_num_threads(threads)


def test_every_example_is_run_here() -> None:
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == sorted(REDUCED)


def test_the_features_example_trains_a_network_and_shows_finite_features(capsys: pytest.CaptureFixture[str]) -> None:
    run("features", REDUCED["features"])
    out = capsys.readouterr().out
    accuracy = re.search(r"test accuracy ([\d.]+)", out)
    assert accuracy is not None
    assert float(accuracy[1]) > 0.9
    cells = re.findall(r"([\w.-]+) ± ([\w.-]+) │", out)
    assert len(cells) == 7 * 3  # layers times kinds of images
    assert all(0 <= float(mean) <= 1 and 0 <= float(error) < 1 for mean, error in cells)
    assert not re.search(r"\b(nan|inf)\b", out)
