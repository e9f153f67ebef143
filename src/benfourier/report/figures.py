"""Figures of a report: panels with one legend and one caption."""

from dataclasses import dataclass

from benfourier.report.canvas import Stroke


@dataclass(frozen=True)
class Panel:
    """One picture.

    Args:
        title: above it.
        alt: what it shows, for those who cannot see it.
        svg: safe to stand in HTML.
    """

    title: str
    alt: str
    svg: str


@dataclass(frozen=True)
class Figure:
    """Panels that belong together.

    Args:
        section: id of the section that it stands in.
        title: above all.
        caption: how to read it.
        panels: in order.
        legend: of all panels.
        folded: shown only when asked for.
        scale: of colours: words for its two ends, and the colours between; None if there is none.
    """

    section: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    legend: tuple[Stroke, ...] = ()
    folded: bool = False
    scale: tuple[str, str, str] | None = None
