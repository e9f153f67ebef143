"""The baseline detector: one less the largest posterior (Hendrycks 2017, arXiv:1610.02136)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from benfourier.detectors.extractor import Extractor, ObservingExtractor
from benfourier.detectors.method import FitData, Method, register_detector
from benfourier.models.classifier import Classifier
from benfourier.models.device import wide


@dataclass(frozen=True, eq=False)
class LogUncertainty(ObservingExtractor):
    """The log of the sum of all posteriors but the largest."""

    layers: tuple[str, ...] = ()

    pixels_only: ClassVar[bool] = True

    def join(self, values: Mapping[str, Tensor], logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns (N, 1), with all digits where 1 − p would round to 0."""
        logs = torch.log_softmax(wide(logits), dim=1)
        others = logs.scatter(1, logs.argmax(1, keepdim=True), -torch.inf)
        return others.logsumexp(1, keepdim=True)


@register_detector
@dataclass(frozen=True, kw_only=True)
class MaxSoftmax(Method):
    """1 − max_c p_c(x): an uncertain answer is adversarial. Nothing is learned."""

    id: ClassVar[str] = "max-softmax"
    extractors: ClassVar[tuple[type[Extractor], ...]] = (LogUncertainty,)
    paper_head: ClassVar[str] = "plain"
    authors_head: ClassVar[str] = "plain"
    baseline: ClassVar[bool] = True

    def fit_extractor(self, classifier: Classifier, data: FitData) -> LogUncertainty:
        """Returns the extractor."""
        return LogUncertainty()
