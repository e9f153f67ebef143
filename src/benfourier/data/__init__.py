"""Images and where they come from: sources, splits, and the record of examples."""

from benfourier.data.examples import ExamplePart, Examples
from benfourier.data.folders import FolderSource, folder
from benfourier.data.formats import cifar10, embedded, mnist, npz, svhn
from benfourier.data.image_files import read_image
from benfourier.data.images import LabelledImages, UnreadableImage, batches, read
from benfourier.data.open_source import open_source
from benfourier.data.sources import ArraySource, GroupedSource, JoinedSource, Source
from benfourier.data.splits import Fold, folds, split, stratified_order

__all__ = [
    "ArraySource",
    "ExamplePart",
    "Examples",
    "Fold",
    "FolderSource",
    "GroupedSource",
    "JoinedSource",
    "LabelledImages",
    "Source",
    "UnreadableImage",
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
    "stratified_order",
    "svhn",
]
