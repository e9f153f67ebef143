"""Images and where they come from: sources, splits, and the record of examples."""

from benfourier.data.arrays import ArraySource, npz
from benfourier.data.embedded import embedded
from benfourier.data.examples import Examples
from benfourier.data.files import read_image
from benfourier.data.folders import FolderSource, folder
from benfourier.data.funnel import Funnel
from benfourier.data.official import cifar10, mnist, svhn
from benfourier.data.opening import open_source
from benfourier.data.reading import Batch, Reading, Refusal, batches, read
from benfourier.data.source import Source
from benfourier.data.splits import Fold, folds, split, spread

__all__ = [
    "ArraySource",
    "Batch",
    "Examples",
    "Fold",
    "FolderSource",
    "Funnel",
    "Reading",
    "Refusal",
    "Source",
    "batches",
    "cifar10",
    "embedded",
    "folder",
    "folds",
    "mnist",
    "npz",
    "open_source",
    "read",
    "read_image",
    "split",
    "spread",
    "svhn",
]
