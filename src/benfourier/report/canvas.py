"""Small panels as SVG that takes its colours from the page; the only door to matplotlib."""

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benfourier.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes

# Drawn in these, and then replaced by the page's own variables, which differ in light and dark.
VARIABLES = {"#a00000": "--ink", "#a0000a": "--muted", "#a0000b": "--line"} | {
    f"#a0000{place}": f"--series-{place}" for place in range(1, 9)
}
INK, MUTED, LINE = "#a00000", "#a0000a", "#a0000b"
SERIES = tuple(f"#a0000{place}" for place in range(1, 9))
DASHES = ("", "5 2", "1.5 1.5", "7 2 1.5 2")
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "grid.color": LINE,
    "grid.linewidth": 0.4,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 1.4,
}
LONGEST = 22  # letters of a label


@dataclass(frozen=True)
class Stroke:
    """How one series is drawn: by colour and by dashes, so that it can be told without colours."""

    label: str
    place: int

    @property
    def colour(self) -> str:
        """As matplotlib is told."""
        return SERIES[self.place % len(SERIES)]

    @property
    def variable(self) -> str:
        """As the page knows it."""
        return VARIABLES[self.colour]

    @property
    def dashes(self) -> str:
        """As SVG has them; empty for a whole line."""
        return DASHES[(self.place + self.place // len(SERIES)) % len(DASHES)]

    @property
    def line(self) -> dict[str, Any]:
        """Keywords for a line."""
        dashes = [float(part) for part in self.dashes.split()]
        return {"color": self.colour, "linestyle": (0, dashes) if dashes else "-"}


def strokes(labels: list[str] | tuple[str, ...]) -> dict[str, Stroke]:
    """Returns a stroke for every label."""
    return {label: Stroke(label, place) for place, label in enumerate(labels)}


def short(label: str) -> str:
    """Returns a label that fits beside an axis."""
    flat = " ".join(label.split())
    return flat if len(flat) <= LONGEST else flat[: LONGEST - 1] + "…"


def panel(
    name: str,
    draw: "Callable[[Axes], None]",
    *,
    size: tuple[float, float] = (3.3, 2.5),
    margins: tuple[float, float, float, float] = (0.48, 0.08, 0.4, 0.08),
) -> str:
    """Returns one picture as SVG without outside addresses, bit-equal from call to call.

    Args:
        name: its own among all on a page.
        draw: what is in it.
        size: width and height in inches.
        margins: left, right, bottom and top, in inches.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            "matplotlib is not installed, and the page needs it for its figures; pip install 'benfourier[report]'"
        ) from error
    left, right, bottom, top = margins
    width, height = size
    out = io.StringIO()
    with mpl.rc_context({**SETTINGS, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that its own font lacks; the page's font draws them
        figure = Figure(figsize=size)
        axes = figure.add_axes((left / width, bottom / height, 1 - (left + right) / width, 1 - (bottom + top) / height))
        draw(axes)
        figure.savefig(
            out, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    return _for_the_page(out.getvalue())


def _for_the_page(svg: str) -> str:
    """SVG as it stands inside HTML: no header, no style for all, no ids but those referred to, the page's colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', svg, count=1)
    svg = re.sub(r'<g id="[^"]*"(/?)>', r"<g\1>", svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: inherit", svg)
    svg = re.sub(r' transform="rotate\(-0 [^)]*\)"', "", svg)
    svg = re.sub(r"\s*\n\s*", " ", svg).replace('xlink:href="#', 'href="#')
    return re.sub(
        "#a0000[0-9ab]", lambda found: f"var({VARIABLES[found[0]]})" if found[0] in VARIABLES else found[0], svg
    )
