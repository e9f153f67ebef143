"""Studies of a plan beside its trials."""

from collections.abc import Callable, Iterable
from pathlib import Path

from benfourier.data.open_source import image_credits
from benfourier.evaluation.evaluation_data import EvaluationData
from benfourier.evaluation.studies.cost import plan_cost_job
from benfourier.evaluation.studies.ks import ks_jobs
from benfourier.evaluation.studies.layers import layer_jobs
from benfourier.evaluation.studies.pictures import picture_jobs
from benfourier.evaluation.studies.profile import profile_jobs
from benfourier.evaluation.studies.study import Job, data_parts
from benfourier.store.vocabulary import Role, StudyName


def _picture_jobs(data: EvaluationData, folder: Path) -> Iterable[Job]:
    credit = image_credits(data.plan.locate(data.plan.source), data.plan.credit)
    return picture_jobs(data.classifier, data_parts(data), folder, seed=data.plan.seed, credit=credit)


def _layer_jobs(data: EvaluationData, folder: Path) -> Iterable[Job]:
    return layer_jobs(data.classifier, data_parts(data), data.plan.labels(Role.BOUNDARY), seed=data.plan.seed)


# By name: the title of the progress bar, and what yields the jobs; the folder is for pictures.
STUDIES: dict[str, tuple[str, Callable[[EvaluationData, Path], Iterable[Job]]]] = {
    StudyName.KS: ("KS tests", lambda data, _: ks_jobs(data.classifier, data_parts(data), seed=data.plan.seed)),
    StudyName.PROFILE: ("profiles", lambda data, _: profile_jobs(data.classifier, data_parts(data))),
    StudyName.LAYERS: ("layers", _layer_jobs),
    StudyName.COST: ("costs", lambda data, _: [plan_cost_job(data)]),
    StudyName.PICTURES: ("pictures", _picture_jobs),
}
