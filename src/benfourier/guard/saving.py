"""Guards on disk: a detector's file with a threshold, the scores it came from, and how images are prepared."""

from dataclasses import asdict
from os import PathLike

from torch import nn

from benfourier.detectors.likeness import subject_in
from benfourier.detectors.saving import packed, unpacked
from benfourier.detectors.threshold import Threshold
from benfourier.errors import InputError, StoreError
from benfourier.guard.calibration import Calibration
from benfourier.guard.guard import Guard
from benfourier.store import artifact

KIND = "benfourier-guard"
SCHEMA = 1
PARTS = ("scores", "mean", "deviation")


def save_guard(guard: Guard, path: str | PathLike[str]) -> None:
    """Writes a guard to one file, whole or not at all; the network itself is not in it."""
    manifest, arrays = packed(guard.detector)
    found = {f"calibration/{name}": getattr(guard.calibration, name) for name in PARTS}
    artifact.write(path, KIND, SCHEMA, {**manifest, "threshold": asdict(guard.threshold)}, {**arrays, **found})


def load_guard(path: str | PathLike[str], module: nn.Module) -> Guard:
    """Returns the guard in a file that `Guard.save` wrote, or raises StoreError.

    Args:
        path: the file.
        module: the network that was guarded, with the same weights; how its images look is in the file.
    """
    manifest, arrays = artifact.read(path, KIND, SCHEMA)
    subject = subject_in(path, manifest, module)
    detector = unpacked(path, manifest, arrays, subject)
    try:
        wanted = Threshold(**manifest["threshold"])
        calibration = Calibration(*(arrays[f"calibration/{name}"] for name in PARTS))
        shape = (int(detector.summary.get("numbers", calibration.mean.size)),)
        if calibration.scores.ndim != 1 or not calibration.mean.shape == calibration.deviation.shape == shape:
            raise ValueError(f"the clean images have not {shape[0]} numbers each")
        guard = Guard(subject, detector, false_alarm_rate=wanted.rate, clean=calibration)
    except (InputError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path}: its manifest and its arrays do not fit ({error}); make it again") from error
    if guard.threshold.value != wanted.value:
        raise StoreError(
            f"{path}: its threshold is {wanted.value:g}, but its calibration scores give {guard.threshold.value:g}; "
            "make it again"
        )
    return guard
