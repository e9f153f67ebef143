"""A plan that runs in seconds: scikit-learn's digits, a small network, few images."""

from functools import cache
from pathlib import Path

from torch import nn

import benfourier as bf
from benfourier.evaluation.evaluation_data import EvaluationData
from benfourier.evaluation.plan_file import read_plan
from benfourier.evaluation.prepare import attack_images, open_images
from benfourier.executors import Serial
from benfourier.store.cache import open_cache

PLAN = """
name = "tiny"
seed = 3
protocols = ["non-transfer", "attack-transfer", "strength-transfer", "mixed"]

[network]
model = "tests.evaluation.tiny:network"
train = { epochs = 8, share = 0.5, shift = 0, batch = 64, bf16 = false }

[data]
source = "digits"

[sizes]
sources = 70
calibration = 220

[[attacks]]
name = "bim"
[[attacks]]
name = "deepfool"
sources = 50
[[attacks]]
name = "bim-fixed"
eps = 0.2
label = "strong"
role = "strength"

[[detectors]]
name = "mbf"
orders = 2
C = 1.0
gamma = "scale"
"""


MIXTURE = """
[[attacks]]
name = "r-pgd-beyond"
label = "weak"
role = "mixture"
[[attacks]]
name = "bim"
label = "boundary"
role = "mixture"
[[attacks]]
name = "bim-fixed"
eps = 0.4
label = "other"
role = "unseen"
"""


def network(classes: int = 10) -> bf.Classifier:
    head = nn.Linear(16, classes)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 16), nn.ReLU(), head)
    return bf.Classifier(module, size=8, channels=1)


def plan_in(folder: Path, text: str = PLAN) -> Path:
    file = folder / "tiny.toml"
    file.write_text(text, encoding="utf-8")
    return file


def changed(*pairs: tuple[str, str]) -> str:
    """The plan with some texts in the place of others."""
    text = PLAN
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


@cache
def prepared(folder: Path, text: str = PLAN) -> EvaluationData:
    """The data of a plan, made once per process."""
    images = open_images(read_plan(plan_in(folder, text)), open_cache(True), False)
    return attack_images(images, Serial(), lambda _: None, False)
