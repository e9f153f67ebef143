import os
import subprocess
import sys
from pathlib import Path

import pytest

import benfourier as bf
from benfourier.cli.main import VERBS

HEAVY = ("numba", "scipy", "sklearn", "foolbox", "matplotlib", "fastapi", "torch", "numpy", "PIL", "rich")


def run(program: str) -> str:
    """What a program prints in an interpreter of its own."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = f"import benfourier, sys; print([name for name in {HEAVY} if name in sys.modules])"
    assert run(program) == "[]\n"


@pytest.mark.parametrize("words", [[], *[[verb.__name__] for verb in VERBS]], ids=lambda words: " ".join(words) or "-")
def test_help_loads_neither_torch_nor_numba(words: list[str]) -> None:
    program = f"""
import sys
from benfourier.cli.main import main
try:
    main({[*words, "--help"]})
except SystemExit as left:
    print(left.code, [name for name in ("torch", "numba", "scipy", "numpy", "sklearn") if name in sys.modules])
"""
    text = run(program)
    assert "Usage: benfourier" in text
    assert text.endswith("\n0 []\n")


def test_the_kernel_says_once_that_it_compiles(tmp_path: Path) -> None:
    program = """
import torch
from benfourier.kernels import magnitudes
magnitudes(torch.rand(2, 1000))
magnitudes(torch.rand(3, 2000))
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    notices = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)  # noqa: S603
        for _ in range(2)
    ]
    assert [done.stderr for done in notices] == ["compiling the kernel once, about 4 seconds\n", ""]
    assert [done.stdout for done in notices] == ["", ""]


def test_numba_is_loaded_only_when_features_are_computed() -> None:
    program = (
        "import benfourier, sys; [getattr(benfourier, n) for n in benfourier.__all__]; print('numba' in sys.modules)"
    )
    assert run(program) == "False\n"


def test_without_numba_the_torch_kernel_answers_as_the_reference_does() -> None:
    program = """
import sys
sys.modules["numba"] = None  # as if it were not installed
import torch
import benfourier as bf
from benfourier.cli.main import VERBS
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(800, 5))
classifier, images = bf.Classifier(net, size=12), torch.rand(4, 3, 12, 12)
features, expected = (bf.features(classifier, images, backend=backend) for backend in ("auto", "reference"))
for place, layer in enumerate(classifier.layers()):
    columns = slice(16 * place, 16 * place + 16)
    floor = 0.5 * (torch.pi / layer.entries) ** 0.5
    assert abs(features[:, columns] - expected[:, columns]).max() <= max(1e-6, floor / 10), layer
assert "benfourier.kernels.numba_kernel" not in sys.modules
assert "benfourier.kernels.torch_kernel" in sys.modules
print(features.shape)
"""
    assert run(program) == "(4, 64)\n"


def test_the_public_list_is_sorted_and_every_name_resolves() -> None:
    assert bf.__all__ == sorted(bf.__all__)
    assert {name: getattr(bf, name).__name__ for name in bf.__all__} == {name: name for name in bf.__all__}


def test_dir_lists_the_public_names_and_the_version() -> None:
    assert dir(bf) == sorted([*bf.__all__, "__version__"])


def test_names_that_are_not_there_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="module 'benfourier' has no attribute 'Classifer'"):
        _ = bf.Classifer


def test_the_catalogue_lists_detectors_and_attacks_in_order() -> None:
    assert bf.catalogue() == sorted(bf.catalogue())
    assert {"mbf", "max-softmax", "bim", "cw-l2"} < set(bf.catalogue())
