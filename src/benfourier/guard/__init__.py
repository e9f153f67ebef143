"""A classifier behind a detector: labels for the images it accepts, rejection for the others."""

from benfourier.guard.calibration import Calibration
from benfourier.guard.guard import Guard
from benfourier.guard.saving import load_guard
from benfourier.guard.verdicts import Verdict, Verdicts

__all__ = ["Calibration", "Guard", "Verdict", "Verdicts", "load_guard"]
