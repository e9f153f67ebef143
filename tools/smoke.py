"""Tries an installed benfourier: trains a small network, protects it, checks images; `make release-check` runs it."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import nn

import benfourier as bf


def main(version: str) -> None:
    """Ends with an error unless the package that is installed here has this version and can do its main job."""
    environment = Path(sys.prefix)
    assert bf.__version__ == version, f"version {bf.__version__} is installed, not {version}"
    assert Path(bf.__file__).is_relative_to(environment), f"{bf.__file__} is not what was installed"
    module = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    classifier = bf.Classifier(module, size=8, channels=1)
    bf.train(classifier, "digits", options=bf.TrainingOptions(epochs=10))
    images = bf.read_labelled(classifier, "digits", limit=400)
    with TemporaryDirectory() as folder:
        # mbf, since its kernel is compiled
        guard = bf.protect(
            classifier, images, detector="mbf", attacks={"bim": "bim"}, budget=1e-9, work_dir=Path(folder, "work")
        )
        file = Path(folder, "guard.bf")
        guard.save(file)
        again = bf.load_guard(file, module)
        assert (again.check(images.images).label == guard.check(images.images).label).all()
        subprocess.run([environment / "bin" / "benfourier", "info", file], check=True)  # noqa: S603


if __name__ == "__main__":
    main(sys.argv[1])
