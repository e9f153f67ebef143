"""Tables of how well generalized Gaussian distributions fit the layers, and of noise in their place."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from benfourier.report.entries import number
from benfourier.report.results import Results
from benfourier.report.table import Entry, Row, Table
from benfourier.store.records import Control, Floats, LayerFit

SMALL = 0.1  # offset
FEATURES = ("responses", "own shapes", "same shapes")
FITS = (
    "D: Kolmogorov-Smirnov distance of an image's responses to the generalized Gaussian distribution that fits them "
    "best, mean over images; c: median of its shape, which is sought up to 100; offset: |mean| / standard deviation of "
    "the responses before the mean is removed, mean over images."
)
CONTROL = (
    "Noise has nothing of the network but how many numbers a layer gives, and the shape of the distribution that fits "
    "them best: each image's own, or for adversarial images that of their clean twins, which no detector can tell."
)


def layers(results: Results) -> Iterator[Table]:
    """Yields a table of fits for every part of the data, then the table of controls."""
    for source, split in dict.fromkeys((fit.source, fit.split) for fit in results.fits):
        found = [fit for fit in results.fits if (fit.source, fit.split) == (source, split)]
        yield _fits(source, split, found)
    if results.controls:
        yield _control(results.controls)


def _fits(source: str, split: str, found: Sequence[LayerFit]) -> Table:
    columns = tuple(f"{fit.kind}, {figure}" for figure in ("D", "c", "offset") for fit in found)
    columns_of = [[fit.distance for fit in found], [fit.shape for fit in found], [fit.offset for fit in found]]
    names = found[0].layers
    rows = tuple(
        Row(name, tuple(number(float(values[place]), ".2f") for group in columns_of for values in group))
        for place, name in enumerate(names)
    )
    images = f"Images: {', '.join(f'{fit.images} {fit.kind}' for fit in found)}."
    title = f"How well a GGD fits each layer, {source}, {split}"
    notes = (FITS, *_said(found[0]), images)
    return Table(f"layers-{split}", title, "layer", columns, rows, notes, fold=f"{title} ({len(names)} rows)")


def _said(fit: LayerFit) -> Iterator[str]:
    """Yields the fits of one kind of images in short; nothing if no layer has one."""
    if np.isfinite(fit.distance).any() and np.isfinite(fit.offset).any():
        far, off = (_most(name, values, fit.layers) for name, values in (("D", fit.distance), ("offset", fit.offset)))
        yield f"Of {fit.kind} images, {far}; {off}."
        few = f"{int((fit.offset < SMALL).sum())} of {int(np.isfinite(fit.offset).sum())}"
        yield f"The theory takes the mean for 0; the offset is below {SMALL:g} in {few} layers."


def _most(figure: str, values: Floats, names: Sequence[str]) -> str:
    most = int(np.nanargmax(values))
    median = f"{np.nanmedian(values):.2f}"
    return f"{figure} is {median} in the median layer and at most {values[most]:.2f}, in {names[most]}"


def _control(found: Sequence[Control]) -> Table:
    attacks = tuple(dict.fromkeys(control.attack for control in found))
    known = {(control.attack, control.features): control for control in found}
    rows = tuple(Row(what, tuple(_entry(known.get((attack, what))) for attack in attacks)) for what in FEATURES)
    sources = f"Fitted to {found[0].sources} source images at most, tested on {found[0].tested}."
    return Table(
        "control", "AUROC of mbf on noise instead of responses", "features of", attacks, rows, (CONTROL, sources)
    )


def _entry(control: Control | None) -> Entry:
    if control is None:
        return number(math.nan)
    value, low, high = (100 * end for end in (control.auroc.value, control.auroc.low, control.auroc.high))
    return Entry(f"{value:.1f}", value, low, high)
