"""Figures as SVG: panels for the page, whole figures as files. The only module that imports matplotlib."""

import io
import re
import warnings
from collections.abc import Callable
from html import escape
from importlib.resources import files
from typing import Any

from benfourier.errors import MissingExtraError
from benfourier.report.registry import SERIES_COLOURS, Figure, LineStyle, Palette, Panel, Scale

# The page's drawings are made in these colours, which are then replaced by variables that differ in light and dark.
VARIABLES = {"#a00000": "--ink", "#a0000a": "--muted", "#a0000b": "--line"} | {
    f"#a0000{place}": f"--series-{place}" for place in range(1, SERIES_COLOURS + 1)
}
PAGE = Palette("#a00000", "#a0000a", "#a0000b", "none", tuple(VARIABLES)[3:])  # "none" keeps the page's own background
ACROSS = 4  # panels beside each other in a file, at most
GAP, LINE = 0.16, 0.22  # inches: between panels, of a line of text
LETTER = 0.082  # inches, the width of a letter of a legend at most
SETTINGS: dict[Any, Any] = {"svg.fonttype": "none", "text.parse_math": False, "font.size": 9, "lines.linewidth": 1.4}
SETTINGS |= {"axes.grid": True, "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False}
SETTINGS |= {"axes.facecolor": "none", "axes.linewidth": 0.8, "axes.unicode_minus": True, "grid.linewidth": 0.4}
Place = tuple[float, float]  # in inches: width and height, or left and bottom


def svg(panel: Panel, name: str) -> str:
    """Returns a panel as SVG for a page: no outside address, the page's colours, bytes that depend on the name only."""

    def draw(canvas: Any) -> None:
        _draw_panel(canvas, panel, PAGE, (0.0, 0.0), panel.size)
        # what cannot be seen, or lies inside the axes anyway, would be half of the page's bytes
        for part in (canvas, *canvas.axes):
            part.patch.set_visible(False)
        for axes in canvas.axes:
            axes.tick_params(which="both", length=0)
            for line in (*axes.get_xgridlines(), *axes.get_ygridlines()):
                line.set_clip_on(False)

    text = _render(name, panel.size, PAGE, draw)
    # a style sheet inside the SVG would hold for the whole page, and ids of groups would collide
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', text, count=1)
    text = re.sub(r'<g id="[^"]*"(/?)>', r"<g\1>", text)
    text = re.sub(r"font-family: [^;\"]*", "font-family: inherit", text)
    text = re.sub(r' transform="rotate\(-0 [^)]*\)"', "", text)
    text = re.sub(r"\s*\n\s*", " ", text).replace('xlink:href="#', 'href="#')
    text = re.sub("#a0000[0-9ab]", lambda colour: f"var({VARIABLES[colour[0]]})", text)
    return _shorten(text)


def share_styles(drawings: dict[str, tuple[str, ...]]) -> tuple[dict[str, tuple[str, ...]], str]:
    """Returns the drawings of a page with classes instead of styles, which most parts share, and the classes' rules."""
    names: dict[str, str] = {}

    def name(tag: re.Match[str]) -> str:
        return f'{tag[1]}class="{names.setdefault(tag[2], f"s{len(names)}")}"'

    # only inside a tag: a label may hold the word too, and must not get into the style sheet
    style = '(<[a-z][^<>]* )style="([^"<>]*)"'
    shared = {key: tuple(re.sub(style, name, text) for text in texts) for key, texts in drawings.items()}
    return shared, "".join(f".{name} {{ {style} }}\n" for style, name in names.items())


def _shorten(text: str) -> str:
    """A drawing of the page in half the bytes."""
    text = _round(text, "d|x|y").replace("> <", "><").replace("<g/>", "")
    # lines need no letter between their points, nor zeros behind whole numbers
    lines = r'(<path [^<>]*?d=)("M [-\d. LMz]*")'
    text = re.sub(lines, lambda d: d[1] + d[2].replace("L ", "").replace(".0 ", " ").replace(' "', '"'), text)
    open_groups, parts = [], []
    for part in re.split("(<g>|<g [^>]*>|</g>)", text):  # groups that say nothing of their parts are left out
        if part.startswith("<g"):
            open_groups.append(part)
        if "<g>" not in (part, open_groups.pop() if part == "</g>" else ""):
            parts.append(part)
    # neighbours that are clipped alike become one group
    clip = r' clip-path="(url\([^)]*\))"'
    neighbours = rf'<path [^<>]*?{clip}[^<>]*>(?:<path [^<>]*? clip-path="\1"[^<>]*>)+'
    return re.sub(neighbours, lambda run: f'<g clip-path="{run[1]}">{re.sub(clip, "", run[0])}</g>', "".join(parts))


def _round(text: str, attributes: str) -> str:
    """A drawing with coordinates in tenths of a point, which is finer than any screen."""

    def shorten(tag: re.Match[str]) -> str:
        return re.sub(f' (?:{attributes})="[^"]*"', lambda a: re.sub(r"\d+\.\d+", tenths, a[0]), tag[0])

    def tenths(number: re.Match[str]) -> str:
        return f"{float(number[0]):.1f}"

    return re.sub("<[^<>]*>", shorten, text)


def file(figure: Figure) -> str:
    """Returns a whole figure as an SVG file: legend, panels in rows, and words for readers who cannot see it."""
    across = min(ACROSS, len(figure.panels))
    rows = [figure.panels[start : start + across] for start in range(0, len(figure.panels), across)]
    widest = max(panel.size[0] for panel in figure.panels)
    width = across * widest + (across + 1) * GAP
    legend = _legend_places(figure, width)
    lines = legend[-1][1] + 1 if legend else 0
    top = GAP + LINE * (lines + (figure.scale is not None))
    size = (width, top + sum(max(panel.size[1] for panel in row) + LINE + GAP for row in rows))
    style = (files("benfourier.report") / "page.css").read_text(encoding="utf-8")  # its first block has light colours
    colours = dict(re.findall(r"--([\w-]+): (#\w+);", style[: style.index("}")]))
    series = tuple(colours[f"series-{place}"] for place in range(1, SERIES_COLOURS + 1))
    palette = Palette(colours["ink"], colours["muted"], colours["line"], colours["page"], series)

    def draw(canvas: Any) -> None:
        _draw_legend(canvas, legend, palette, size)
        if figure.scale is not None:
            _draw_scale(canvas, figure.scale, palette, size, GAP + LINE * (lines + 0.5))
        below = top
        for row in rows:
            for place, panel in enumerate(row):
                left = GAP + place * (widest + GAP)
                canvas.text(left / width, 1 - (below + LINE / 2) / size[1], panel.title, weight="bold", va="center")
                _draw_panel(canvas, panel, palette, (left, size[1] - below - LINE - panel.size[1]), size)
            below += max(panel.size[1] for panel in row) + LINE + GAP

    text = _render(figure.id, size, palette, draw)
    text = _round(text, "d")
    words = " ".join([figure.caption, *(f"{panel.alt}." for panel in figure.panels)])
    return text.replace(">", f">\n<title>{escape(figure.title)}</title>\n<desc>{escape(words)}</desc>", 1)


def _render(name: str, size: Place, palette: Palette, draw: Callable[[Any], None]) -> str:
    """SVG of that size, without dates and with ids that depend on the name only."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        message = "matplotlib is not installed, and figures need it; pip install 'benfourier[report]'"
        raise MissingExtraError(message) from error
    out, ink, line = io.StringIO(), palette.ink, palette.line
    colours = {"axes.edgecolor": line, "axes.labelcolor": ink, "grid.color": line, "text.color": ink}
    settings: dict[Any, Any] = {**SETTINGS, **colours, "xtick.color": ink, "ytick.color": ink, "svg.hashsalt": name}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that its own font lacks; the reader's font draws them
        canvas = Canvas(figsize=size, facecolor=palette.page)
        draw(canvas)
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        canvas.savefig(out, format="svg", facecolor=palette.page, metadata=metadata)
    return out.getvalue()[out.getvalue().index("<svg") :]


def _draw_panel(canvas: Any, panel: Panel, palette: Palette, corner: Place, size: Place) -> None:
    """Draws a panel whose lower left corner is at that place of a canvas of that size."""
    left, right, bottom, top = panel.margins
    width, height = panel.size[0] - left - right, panel.size[1] - bottom - top
    place = ((corner[0] + left) / size[0], (corner[1] + bottom) / size[1], width / size[0], height / size[1])
    panel.draw(canvas.add_axes(place), palette)


def _legend_places(figure: Figure, width: float) -> list[tuple[float, int, LineStyle]]:
    """Where each entry of the legend begins, in inches, and on which line; a line ends where the next would not fit."""
    places: list[tuple[float, int, LineStyle]] = []
    left, line = width, -1
    for style in figure.legend:
        needed = 0.5 + LETTER * len(style.label) + GAP
        left, line = (GAP, line + 1) if left + needed > width else (left, line)
        places.append((left, line, style))
        left += needed
    return places


def _draw_legend(canvas: Any, places: list[tuple[float, int, LineStyle]], palette: Palette, size: Place) -> None:
    from matplotlib.lines import Line2D

    for left, line, style in places:
        x, y, end = left / size[0], 1 - (GAP + LINE * (line + 0.5)) / size[1], (left + 0.4) / size[0]
        canvas.add_artist(Line2D([x, end], [y, y], **style.keywords(palette), linewidth=2))
        canvas.text((left + 0.48) / size[0], y, style.label, va="center")


def _draw_scale(canvas: Any, scale: Scale, palette: Palette, size: Place, below: float) -> None:
    from matplotlib.patches import Rectangle

    (low, high, colours), (width, height) = scale, size
    y, left = 1 - below / height, GAP + LETTER * len(low) + 0.08
    canvas.text(GAP / width, y, low, va="center", color=palette.ink)
    for place, colour in enumerate(colours):
        corner = ((left + 0.22 * place) / width, y - 0.07 / height)
        canvas.add_artist(Rectangle(corner, 0.22 / width, 0.14 / height, facecolor=colour, linewidth=0))
    canvas.text((left + 0.22 * len(colours) + 0.08) / width, y, high, va="center", color=palette.ink)
