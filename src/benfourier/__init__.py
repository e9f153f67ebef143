"""Detects adversarial images: give it a PyTorch classifier, and it returns a guard that accepts or rejects images.

Every name below loads on first use, so that `import benfourier` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from benfourier.version import __version__ as __version__

if TYPE_CHECKING:
    from benfourier.attacks.apply import attack as attack
    from benfourier.attacks.attack import AttackResult as AttackResult
    from benfourier.attacks.attack import register_attack as register_attack
    from benfourier.attacks.catalogue import make_attack as make_attack
    from benfourier.attacks.examples import make_examples as make_examples
    from benfourier.cluster.executor import RayDataExecutor as RayDataExecutor
    from benfourier.cluster.executor import RayExecutor as RayExecutor
    from benfourier.data.examples import Examples as Examples
    from benfourier.data.folders import image_files as image_files
    from benfourier.data.images import LabelledImages as LabelledImages
    from benfourier.data.images import UnreadableImage as UnreadableImage
    from benfourier.data.open_source import open_source as open_source
    from benfourier.data.sources import Source as Source
    from benfourier.detectors.catalogue import load as load
    from benfourier.detectors.catalogue import make_method as make_method
    from benfourier.detectors.detector import Detector as Detector
    from benfourier.detectors.detector import score_many as score_many
    from benfourier.detectors.fit import fit as fit
    from benfourier.detectors.mbf import MBF as MBF
    from benfourier.detectors.mbf import features as features
    from benfourier.detectors.method import Method as Method
    from benfourier.detectors.method import register_detector as register_detector
    from benfourier.errors import BenfourierError as BenfourierError
    from benfourier.evaluation.evaluation_data import EvaluationData as EvaluationData
    from benfourier.evaluation.plan import Plan as Plan
    from benfourier.evaluation.plan_file import read_plan as read_plan
    from benfourier.evaluation.run import DryRun as DryRun
    from benfourier.evaluation.run import Evaluation as Evaluation
    from benfourier.evaluation.run import Summary as Summary
    from benfourier.evaluation.run import dry_run as dry_run
    from benfourier.evaluation.run import evaluate as evaluate
    from benfourier.executors import LocalPool as LocalPool
    from benfourier.executors import Serial as Serial
    from benfourier.guard.bench import Timing as Timing
    from benfourier.guard.bench import bench as bench
    from benfourier.guard.detect import Detection as Detection
    from benfourier.guard.detect import detect as detect
    from benfourier.guard.fit import fit_guard as fit_guard
    from benfourier.guard.guard import Guard as Guard
    from benfourier.guard.guard import load_guard as load_guard
    from benfourier.guard.protect import protect as protect
    from benfourier.guard.protect import recalibrate as recalibrate
    from benfourier.guard.verdicts import Verdict as Verdict
    from benfourier.guard.verdicts import Verdicts as Verdicts
    from benfourier.models.checkpoint import Epoch as Epoch
    from benfourier.models.classifier import Classifier as Classifier
    from benfourier.models.images import encode_png as encode_png
    from benfourier.models.images import load_images as load_images
    from benfourier.models.images import read_labelled as read_labelled
    from benfourier.models.open_classifier import open_classifier as open_classifier
    from benfourier.models.open_classifier import training_options as training_options
    from benfourier.models.training import TrainingOptions as TrainingOptions
    from benfourier.models.training import TrainingResult as TrainingResult
    from benfourier.models.training import train as train
    from benfourier.models.weights import save_weights as save_weights
    from benfourier.progress import progress_lines as progress_lines
    from benfourier.report.card import write_card as write_card
    from benfourier.report.files import read_report as read_report
    from benfourier.report.files import write_report as write_report
    from benfourier.report.registry import Report as Report
    from benfourier.report.render import print_report as print_report
    from benfourier.report.render import report_json as report_json
    from benfourier.service.server import serve as serve
    from benfourier.store.artifact import inspect as inspect
    from benfourier.store.card import GuardCard as GuardCard
    from benfourier.theory.coefficients import coefficient_magnitudes as coefficient_magnitudes
    from benfourier.theory.coefficients import estimate_magnitudes as estimate_magnitudes

_NAMES = {  # module: its public names
    "attacks.apply": "attack",
    "attacks.attack": "AttackResult register_attack",
    "attacks.catalogue": "make_attack",
    "attacks.examples": "make_examples",
    "cluster.executor": "RayDataExecutor RayExecutor",
    "data.examples": "Examples",
    "data.folders": "image_files",
    "data.images": "LabelledImages UnreadableImage",
    "data.open_source": "open_source",
    "data.sources": "Source",
    "detectors.catalogue": "load make_method",
    "detectors.detector": "Detector score_many",
    "detectors.fit": "fit",
    "detectors.mbf": "MBF features",
    "detectors.method": "Method register_detector",
    "errors": "BenfourierError",
    "evaluation.evaluation_data": "EvaluationData",
    "evaluation.plan": "Plan",
    "evaluation.plan_file": "read_plan",
    "evaluation.run": "DryRun Evaluation Summary dry_run evaluate",
    "executors": "LocalPool Serial",
    "guard.bench": "Timing bench",
    "guard.detect": "Detection detect",
    "guard.fit": "fit_guard",
    "guard.guard": "Guard load_guard",
    "guard.protect": "protect recalibrate",
    "guard.verdicts": "Verdict Verdicts",
    "models.checkpoint": "Epoch",
    "models.classifier": "Classifier",
    "models.images": "encode_png load_images read_labelled",
    "models.open_classifier": "open_classifier training_options",
    "models.training": "TrainingOptions TrainingResult train",
    "models.weights": "save_weights",
    "progress": "progress_lines",
    "report.card": "write_card",
    "report.files": "read_report write_report",
    "report.registry": "Report",
    "report.render": "print_report report_json",
    "service.server": "serve",
    "store.artifact": "inspect",
    "store.card": "GuardCard",
    "theory.coefficients": "coefficient_magnitudes estimate_magnitudes",
}
_HOMES = {name: f"benfourier.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_HOMES, "catalogue"])


def catalogue() -> list[str]:
    """Returns the ids of all detectors and attacks."""
    attacks, detectors = (import_module(f"benfourier.{package}.catalogue") for package in ("attacks", "detectors"))
    return sorted([*attacks.attack_ids(), *detectors.detector_ids()])


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'benfourier' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
