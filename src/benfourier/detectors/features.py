"""Images to features, batch by batch; and the features of examples as a table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.data.examples import Examples
from benfourier.data.splits import Fold, folds, hash_rank
from benfourier.detectors.extractor import Extractor, ObservingExtractor, RunningExtractor
from benfourier.detectors.state import on_device
from benfourier.errors import ActivationError, FitError
from benfourier.models.classifier import Classifier
from benfourier.models.device import wide
from benfourier.models.forward import batch_slices, observe

FEW = 200  # source images that the choice of an option looks at
FOLDS = 3
SOURCES = 500  # at most so many source images take part in cross-validation
Floats = NDArray[np.float64]


def extract_batch(
    classifier: Classifier, extractors: Sequence[Extractor], images: Tensor, ids: Sequence[str]
) -> tuple[Tensor, list[Tensor]]:
    """Returns the logits of one batch and each extractor's features (N, D), float64, where the network runs."""
    # All extractors that observe share one forward pass; those that run the network get its logits.
    device = classifier.device
    leaves = [[on_device(leaf, device) for leaf in extractor.leaves()] for extractor in extractors]
    observers = [leaf for each in leaves for leaf in each if isinstance(leaf, ObservingExtractor)]
    observation = observe(classifier, images, observers)
    logits, values = observation.logits, iter(observation.values)

    def features(leaf: Extractor) -> Tensor:
        if isinstance(leaf, ObservingExtractor):
            rows = leaf.join(next(values), logits, ids)
        else:
            assert isinstance(leaf, RunningExtractor)
            rows = leaf.extract(classifier, images, logits, ids)
        return finite(rows, ids, leaf.feature_names())

    return logits, [torch.cat([features(leaf) for leaf in each], 1) for each in leaves]


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
    # They stay where the network runs; tables of features, which heads are fitted to, are on the CPU. The ids name the
    # source image of each row. A batch has as many images as fit the memory, unless it is given.
    with torch.no_grad():
        batches = [
            extract_batch(classifier, extractors, images[part], ids[part])[1]
            for part in batch_slices(classifier, images, batch, label=label, show_progress=show_progress)
        ]
    return [torch.cat(column) for column in zip(*batches, strict=True)]


def finite(features: Tensor, ids: Sequence[str], names: Sequence[str] = ()) -> Tensor:
    """Returns features as float64, or raises ActivationError if one of them is NaN or infinite."""
    assert features.ndim == 2
    assert len(features) == len(ids)
    bad = ~features.detach().isfinite()
    if bool(bad.any()):
        row, column = bad.nonzero()[0].tolist()
        where = f" in {names[column]!r}" if len(names) == features.shape[1] else ""
        raise ActivationError(
            f"image {ids[row]!r} gives NaN or infinity{where}; check the image, its scaling and the network's weights"
        )
    return wide(features)


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
        sources, kinds = (tuple(column[row] for row in indices) for column in (self.sources, self.kinds))
        return FeatureTable(self.features[torch.from_numpy(indices)], self.adversarial[indices], sources, kinds)


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


def mean_auroc(model: Any, data: Floats, adversarial: NDArray[np.bool_], rounds: Iterable[Fold]) -> float:
    """Returns the AUROC of a scikit-learn model on rows that it was not fitted to, the mean over folds."""
    from sklearn.model_selection import cross_val_score

    pairs = [(fold.train, fold.test) for fold in rounds]
    return float(cross_val_score(model, data, adversarial, scoring="roc_auc", cv=pairs, error_score="raise").mean())


def held_out_auroc(features: Floats, table: FeatureTable, seed: int) -> float:
    """Returns the mean AUROC of a logistic regression on sources that it was not fitted to."""
    # The features (N, D) take the place of the table's own; every source of the table has both kinds.
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rounds = folds(table.sources, np.zeros(len(table), np.int64), FOLDS, seed=seed)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    return mean_auroc(model, features, table.adversarial, rounds)


def source_folds(table: FeatureTable, seed: int) -> tuple[Fold, ...]:
    """Returns folds by source image, over SOURCES of them at most; both kinds are in every part of each."""
    drawn = set(np.random.default_rng(seed).permutation(sorted(set(table.sources)))[:SOURCES])
    places = np.array([place for place, source in enumerate(table.sources) if source in drawn])
    attacked = {source for source, bad in zip(table.sources, table.adversarial, strict=True) if bad}
    sources, count = [table.sources[place] for place in places], len(attacked & drawn)
    if count < FOLDS:
        raise FitError(f"{count} source images have an adversarial twin; cross-validation needs {FOLDS}")
    stratify = len(drawn - attacked) >= FOLDS
    classes = [int(source in attacked) if stratify else 1 for source in sources]
    return tuple(Fold(places[fold.train], places[fold.test]) for fold in folds(sources, classes, FOLDS, seed=seed))
