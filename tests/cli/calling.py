"""The command line, called in this process."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benfourier.cli.main import main

NETWORKS = """
import torch
from torch import nn

def tiny(classes=10):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, classes))

class Surprising(nn.Module):
    def forward(self, images):
        raise KeyError("a surprise")

surprising = Surprising
"""


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: object
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def call(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Outcome:
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    return Outcome(left.value.code, out, err)


@contextmanager
def file_of_networks(folder: Path, name: str, text: str = NETWORKS) -> Iterator[None]:
    """A module of that name in a folder; forgotten afterwards, so that another test may use the name."""
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    try:
        yield
    finally:
        sys.modules.pop(name, None)
