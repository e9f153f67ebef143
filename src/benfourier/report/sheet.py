"""A figure as one SVG file, with its legend and its own colours, for pages that only show pictures."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from importlib.resources import files

from benfourier.report.canvas import Stroke
from benfourier.report.figures import Figure, Panel

ACROSS = 4  # panels beside each other, at most
GAP, LINE, LETTER = 14.0, 18.0, 6.2  # points: between panels, of a line of text, of a letter at most
PANEL = re.compile(r'<svg viewBox="0 0 ([\d.]+) ([\d.]+)" aria-hidden="true">')


def sheet(figure: Figure) -> str:
    """Returns the file: legend, panels in rows, and words for those who cannot see it."""
    sizes = [_size(panel) for panel in figure.panels]
    across = min(ACROSS, len(sizes))
    width = across * max(size[0] for size in sizes) + (across + 1) * GAP
    parts, below = list(_legend(figure.legend, width)), GAP
    below += LINE * (1 + max((part[0] for part in parts), default=-1))
    drawn = [text for _, text in parts]
    if figure.scale:
        drawn.append(_scale(figure.scale, below))
        below += LINE
    for start in range(0, len(sizes), across):
        row = list(zip(figure.panels, sizes, strict=True))[start : start + across]
        step = (width - GAP) / across
        drawn += [_panel(panel, size, GAP + place * step, below) for place, (panel, size) in enumerate(row)]
        below += max(size[1] for _, size in row) + LINE + GAP
    style, content = _classes("\n".join(drawn))
    words = " ".join([figure.caption, *(f"{panel.alt}." for panel in figure.panels)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {below:.0f}" width="{width:.0f}" '
        f'height="{below:.0f}" role="img" font-family="sans-serif" font-size="11" stroke-linejoin="round">\n'
        f"<title>{escape(figure.title)}</title>\n<desc>{escape(words)}</desc>\n<style>{style}</style>\n"
        f'<rect width="100%" height="100%" fill="{_colours()["--page"]}"/>\n{content}\n</svg>\n'
    )


@cache
def _colours() -> dict[str, str]:
    """The page's colours by day."""
    style = (files("benfourier.report") / "page.css").read_text(encoding="utf-8")
    return dict(re.findall(r"(--[\w-]+): (#\w+);", style[: style.index("}")]))


def _classes(content: str) -> tuple[str, str]:
    """A style sheet, and the drawing with its classes in the place of styles that are repeated."""
    counts = Counter(re.findall(r' style="([^"]*)"', content))
    names = {style: f"s{place}" for place, (style, count) in enumerate(counts.most_common()) if count > 2}
    rules = "".join(f".{name}{{{style}}}" for style, name in names.items())
    named = re.sub(r' style="([^"]*)"', lambda s: f' class="{names[s[1]]}"' if s[1] in names else s[0], content)
    return rules, named


def _size(panel: Panel) -> tuple[float, float]:
    found = PANEL.match(panel.svg)
    assert found, panel.title
    return float(found[1]), float(found[2])


def _legend(strokes: Sequence[Stroke], width: float) -> Iterator[tuple[int, str]]:
    """The line and the drawing of each entry; a new line begins where the next would not fit."""
    row, right = 0, GAP
    for stroke in strokes:
        needed = 34 + LETTER * len(stroke.label) + GAP
        if right > GAP and right + needed > width:
            row, right = row + 1, GAP
        y, colour = GAP + LINE * row, _colours()[stroke.variable]
        yield (
            row,
            f'<path d="M{right:.0f} {y:.0f}h28" stroke="{colour}" stroke-width="2" stroke-dasharray="{stroke.dashes}"/>'
            f'<text x="{right + 34:.0f}" y="{y + 4:.0f}" fill="{_colours()["--ink"]}">{escape(stroke.label)}</text>',
        )
        right += needed


def _scale(scale: tuple[str, str, str], y: float) -> str:
    low, high, colours = scale
    ink, left = _colours()["--ink"], GAP + LETTER * len(low) + 6
    boxes = "".join(
        f'<rect x="{left + 16 * place:.0f}" y="{y - 4:.0f}" width="16" height="10" fill="{colour}"/>'
        for place, colour in enumerate(colours.split(", "))
    )
    after = left + 16 * len(colours.split(", ")) + 6
    return (
        f'<text x="{GAP:.0f}" y="{y + 5:.0f}" fill="{ink}">{escape(low)}</text>{boxes}'
        f'<text x="{after:.0f}" y="{y + 5:.0f}" fill="{ink}">{escape(high)}</text>'
    )


def _panel(panel: Panel, size: tuple[float, float], x: float, y: float) -> str:
    """A panel under its title, moved to its place; curves to a tenth of a point."""
    place = f'x="{x:.1f}" y="{y + LINE:.1f}" width="{size[0]:g}" height="{size[1]:g}" overflow="visible"'
    svg = PANEL.sub(f'<svg {place} viewBox="0 0 {size[0]:g} {size[1]:g}">', panel.svg, count=1)
    svg = re.sub(r"var\((--[\w-]+)\)", lambda found: _colours()[found[1]], svg)
    svg = svg.replace("font-family: inherit", "font-family: sans-serif")
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"\d+\.\d+", lambda n: f"{float(n[0]):.1f}", path[0]), svg)
    title = f'<text x="{x:.1f}" y="{y + 11:.1f}" font-weight="bold" fill="{_colours()["--ink"]}">'
    return f"{title}{escape(panel.title)}</text>{svg}"
