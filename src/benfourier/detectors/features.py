"""Images to features, batch by batch; and the features of examples as a table."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.data.examples import Examples
from benfourier.data.splits import hash_rank
from benfourier.detectors.extractor import Extractor, ObservingExtractor, RunningExtractor
from benfourier.errors import ActivationError, FitError
from benfourier.models.classifier import Classifier
from benfourier.models.forward import batch_slices, observe

FEW = 200  # source images that the choice of an option looks at


def extract_batch(
    classifier: Classifier, extractors: Sequence[Extractor], images: Tensor, ids: Sequence[str]
) -> tuple[Tensor, list[Tensor]]:
    """Returns the logits of one batch and each extractor's features (N, D), float64 on the CPU."""
    # All extractors that observe share one forward pass; those that run the network get its logits.
    leaves = [leaf for extractor in extractors for leaf in extractor.leaves()]
    observers = [leaf for leaf in leaves if isinstance(leaf, ObservingExtractor)]
    observation = observe(classifier, images, observers)
    logits, values = observation.logits, iter(observation.values)

    def features(leaf: Extractor) -> Tensor:
        if isinstance(leaf, ObservingExtractor):
            rows = leaf.join(next(values), logits, ids)
        else:
            assert isinstance(leaf, RunningExtractor)
            rows = leaf.extract(classifier, images, logits, ids)
        return finite(rows, ids, leaf.feature_names())

    return logits, [torch.cat([features(leaf) for leaf in extractor.leaves()], 1) for extractor in extractors]


def extract(
    classifier: Classifier,
    extractors: Sequence[Extractor],
    images: Tensor,
    ids: Sequence[str],
    *,
    batch: int | None = None,
    label: str = "features",
    show_progress: bool | None = None,
) -> list[Tensor]:
    """Returns each extractor's features (N, D) of checked images, batch by batch, without gradients."""
    # The ids name the source image of each row. A batch has as many images as fit the memory, unless it is given.
    with torch.no_grad():
        batches = [
            extract_batch(classifier, extractors, images[part], ids[part])[1]
            for part in batch_slices(classifier, images, batch, label=label, show_progress=show_progress)
        ]
    return [torch.cat(column) for column in zip(*batches, strict=True)]


def finite(features: Tensor, ids: Sequence[str], names: Sequence[str] = ()) -> Tensor:
    """Returns features as float64 on the CPU, or raises ActivationError if one of them is NaN or infinite."""
    assert features.ndim == 2
    assert len(features) == len(ids)
    bad = ~features.detach().isfinite()
    if bool(bad.any()):
        row, column = bad.nonzero()[0].tolist()
        where = f" in {names[column]!r}" if len(names) == features.shape[1] else ""
        raise ActivationError(
            f"image {ids[row]!r} gives NaN or infinity{where}; check the image, its scaling and the network's weights"
        )
    return features.to("cpu", torch.float64)


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features of examples, row by row."""

    features: Tensor  # float64 (N, D)
    adversarial: NDArray[np.bool_]  # bool (N,)
    sources: tuple[str, ...]  # source image of each row; twins share it
    kinds: tuple[str, ...]  # "clean", "noisy" or the name of an attack, one per row

    def __len__(self) -> int:
        return len(self.features)

    @property
    def benign(self) -> Tensor:
        """The features of clean and noisy images."""
        return self.features[torch.from_numpy(~self.adversarial)]

    @property
    def clean(self) -> Tensor:
        """The features of clean images."""
        return self.features[torch.from_numpy(np.array([kind == "clean" for kind in self.kinds]))]

    def take(self, indices: NDArray[np.intp]) -> "FeatureTable":
        """Returns some of the rows."""
        return FeatureTable(
            self.features[torch.from_numpy(indices)],
            self.adversarial[indices],
            tuple(self.sources[row] for row in indices),
            tuple(self.kinds[row] for row in indices),
        )


def few_sources(examples: Examples, seed: int, most: int = FEW) -> Examples:
    """Returns the examples of a few sources, drawn from those with an adversarial twin."""
    # Sets that share most of their sources, as the folds of one set do, share most of the few.
    rows = has_adversarial_twin(examples).nonzero().flatten().tolist()
    if not rows:
        raise FitError("there are no adversarial examples to choose an option by; set the option to a value")
    return examples.take(np.sort(sorted(rows, key=lambda row: hash_rank(seed, examples.ids[row]))[:most]))


def has_adversarial_twin(examples: Examples) -> Tensor:
    """Returns bool (N,): the source images that at least one attack succeeded on."""
    masks = list(examples.success.values())
    return torch.stack(masks).any(0) if masks else torch.zeros(len(examples), dtype=torch.bool)
