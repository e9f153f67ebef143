"""Figures of an experiment as files."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benfourier.report.curves import roc_figures
from benfourier.report.figures import Figure
from benfourier.report.maps import heat_figures
from benfourier.report.profiles import profile_figures
from benfourier.report.results import Results
from benfourier.report.sheet import sheet
from benfourier.report.strengths import strength_figures
from benfourier.report.transfer_tables import boundary_attacks
from tools.results.experiments import Experiment

MAKERS = (roc_figures, heat_figures, strength_figures, profile_figures)
MOST = 12  # detectors; more lines cannot be told apart
LARGEST = 300_000  # bytes of a file


@dataclass(frozen=True)
class Drawing:
    """A figure and its file.

    Args:
        figure: what it shows.
        file: its name.
        content: SVG.
    """

    figure: Figure
    file: str
    content: str


def drawings(experiment: Experiment) -> Iterator[Drawing]:
    """Yields the figures of an experiment: curves only, no images of any database; of very many detectors none."""
    results = _readable(experiment.results)
    for make in MAKERS if len(results.detectors) <= MOST else (profile_figures,):
        for place, figure in enumerate(make(results), 1):
            thin, content = _small(figure)
            yield Drawing(thin, f"results-{experiment.name}-{figure.section}-{place}.svg", content)


def _readable(results: Results) -> Results:
    """Without features of attacks at fixed strengths, which would hide the others."""
    shown = {"clean", "noisy", *boundary_attacks(results)}
    return replace(results, profiles=tuple(profile for profile in results.profiles if profile.kind in shown))


def _small(figure: Figure) -> tuple[Figure, str]:
    """A figure and its file, every other panel left out as often as the file is too large; the last one stays."""
    content, step = sheet(figure), 1
    thin = figure
    while len(content.encode()) > LARGEST and len(thin.panels) > 1:
        step *= 2
        kept = figure.panels[::-1][::step][::-1]
        caption = f"{figure.caption} {len(kept)} of {len(figure.panels)} panels are shown."
        thin = replace(figure, panels=kept, caption=caption)
        content = sheet(thin)
    return thin, content
