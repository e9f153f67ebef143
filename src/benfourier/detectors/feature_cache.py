"""Features that many fits ask for: computed once, in chunks of fixed composition, and stored on disk.

The last bits of a feature depend on the batch it was computed in. So an image always gets its features together with
the other images of its chunk, whoever asks first, and a run that was interrupted ends with the same bits.
"""

import os
from collections.abc import Iterable, Sequence
from random import Random
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from benfourier.data.examples import Examples
from benfourier.data.images import LabelledImages, content_ids
from benfourier.detectors.extractor import Extractor
from benfourier.detectors.features import FeatureTable, extract, finite
from benfourier.detectors.state import split_state
from benfourier.models.classifier import Classifier
from benfourier.store.artifact import digest_of
from benfourier.store.cache import Cache

CHUNK = 64  # images
WIDE = 1024  # features per image beyond which they stay in memory, if they take more bytes than the image
VERSION = 3  # of what is computed here; raise it with every change of features


class FeatureCache:
    """The features of some images, by the state of the extractor."""

    def __init__(
        self,
        classifier: Classifier,
        network: str,  # digest of all that decides the classifier's activations
        pool: Iterable[Tensor],  # (N, C, H, W): all images that will be asked for; the same image twice counts once
        cache: Cache | None = None,  # where features are stored for the next run
        reference_pool: LabelledImages | None = None,  # clean images of all fits, which take references from them
    ) -> None:
        self._classifier, self._network, self._cache, self.reference_pool = classifier, network, cache, reference_pool
        self._chunks: list[tuple[list[str], Tensor]] = []
        self._places: dict[str, tuple[int, int]] = {}  # chunk and row of an image by its content id
        self._known: dict[tuple[str, int], Tensor] = {}
        # Equal parts are one object while a fit uses it: LID's holds the activations of all references.
        self._parts: WeakValueDictionary[str, Extractor] = WeakValueDictionary()
        for images in pool:
            names = content_ids(images)
            rows = {name: row for row, name in enumerate(names) if name not in self._places}
            fresh = list(rows.values())
            for start in range(0, len(fresh), CHUNK):
                chunk = sorted(fresh[start : start + CHUNK])
                self._places |= {names[row]: (len(self._chunks), place) for place, row in enumerate(chunk)}
                self._chunks.append(([names[row] for row in chunk], images[chunk]))

    def features(self, extractor: Extractor, images: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the features (N, D), cached where there are cacheable parts; KeyError for images not in the pool."""
        leaves = extractor.leaves()
        if leaves != (extractor,):
            return torch.cat([self.features(leaf, images, ids) for leaf in leaves], 1)
        parts = extractor.cacheable_parts()
        if not parts:
            return extract(self._classifier, [extractor], images, ids, show_progress=False)[0].cpu()
        places = [self._places[name] for name in content_ids(images)]
        features = torch.cat([self._part(part, places) for part in parts], 1)
        return finite(extractor.finish(features, ids), ids, extractor.feature_names())

    def _part(self, part: Extractor, places: list[tuple[int, int]]) -> Tensor:
        plain, arrays = split_state(part.state())
        kind = f"{type(part).__module__}.{type(part).__qualname__} {part.version}"
        digest = digest_of((kind, repr(plain), *(arrays[name] for name in sorted(arrays))))
        part = self._parts.setdefault(digest, part)
        order = sorted({chunk for chunk, _ in places})
        Random(os.getpid()).shuffle(order)  # noqa: S311  processes that share a cache begin at different ends
        chunks = {chunk: self._chunk(part, digest, chunk).double() for chunk in order}
        return torch.stack([chunks[chunk][row] for chunk, row in places])

    def _chunk(self, part: Extractor, digest: str, chunk: int) -> Tensor:
        if (digest, chunk) not in self._known:
            names, images = self._chunks[chunk]
            key = digest_of((f"features {VERSION}", self._network, digest, *names))
            stored = None if self._cache is None else self._cache.get(key)
            if stored is not None:
                features = torch.from_numpy(stored["features"])
            else:
                (features,) = extract(self._classifier, [part], images, names, show_progress=False)
                features = features.cpu()
                narrow = features.float()
                features = narrow if torch.equal(narrow.double(), features) else features
                small = features.shape[1] <= WIDE or features.nbytes <= images.nbytes
                if self._cache is not None and small:
                    self._cache.put(key, {"features": features.numpy()})
            self._known[digest, chunk] = features
        return self._known[digest, chunk]


def feature_table(
    classifier: Classifier,
    extractor: Extractor,
    examples: Examples,
    label: str,
    show_progress: bool | None = None,
    cache: FeatureCache | None = None,
) -> FeatureTable:
    """Returns the features of clean, noisy and adversarial images; twins know their source."""
    parts, columns = list(examples.parts()), []
    for kind, part, _ in parts:
        if cache is not None:
            columns.append(cache.features(extractor, part.images, part.ids))
        else:
            title = f"{label}: {kind}"
            columns += extract(classifier, [extractor], part.images, part.ids, label=title, show_progress=show_progress)
    return FeatureTable(
        torch.cat(columns).cpu(),
        np.concatenate([np.full(len(part), adversarial) for _, part, adversarial in parts]),
        tuple(source for _, part, _ in parts for source in part.ids),
        tuple(kind for kind, part, _ in parts for _ in part.ids),
    )
