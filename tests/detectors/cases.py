"""What the battery fits each detector with, and how well it must tell attacked digits from clean ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Case:
    """Options that make a detector quick, and the AUROC that it must reach on bim, or on negatives of the images."""

    auroc: float
    options: Mapping[str, Any] = field(default_factory=dict)
    against: Literal["bim", "negatives"] = "bim"


# What bim adds to digits does not stand out of the errors of a generator that learned for seconds; negatives do.
GAN = {
    "iterations": 60,
    "width": 16,
    "train_lr": 2e-3,
    "search_steps": 15,
    "restarts": 2,
}

CASES: dict[str, Case] = {
    "c1c2": Case(0.9, {"sigma": 0.03, "step_t": 0.005, "step_u": 0.1, "cap_t": 40, "cap_u": 40}),
    "defense-gan": Case(0.95, GAN, "negatives"),
    "feature-squeezing": Case(0.6, {"bits": 2}),  # digits of 8×8 pixels bear little
    "kd-bu": Case(0.9, {"C": 1.0, "gamma": "scale"}),
    "lid": Case(0.9, {"C": 1.0, "gamma": "scale"}),
    "mahalanobis": Case(0.8, {"C": 1.0, "gamma": "scale"}),
    "max-softmax": Case(0.95),
    "mbf": Case(0.95, {"C": 10.0, "gamma": "scale"}),
    "odds": Case(0.6, {"draws": 8, "noise": ("normal 0.1", "sign 0.1")}),
    "second-opinion": Case(0.9),
    "views": Case(0.95, {"C": 1.0, "agreement": 0.3}),  # digits of 8×8 pixels bear little
}
