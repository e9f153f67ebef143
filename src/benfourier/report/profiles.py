"""Mean and deviation of every MBF number: the paper's figures."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from benfourier.report.canvas import Stroke, panel, strokes
from benfourier.report.figures import Figure, Panel
from benfourier.report.results import Results
from benfourier.store.records import Profile

if TYPE_CHECKING:
    from benfourier.report.canvas import Axes


def profile_figures(results: Results) -> Iterator[Figure]:
    """Yields the features of every kind of image, one panel per layer; the train side is folded away."""
    groups: dict[tuple[str, str], list[Profile]] = {}
    for profile in results.profiles:
        groups.setdefault((profile.source, profile.split), []).append(profile)
    kinds = tuple(dict.fromkeys(profile.kind for profile in results.profiles))
    legend = strokes(kinds)
    for (source, split), profiles in groups.items():
        layers = dict.fromkeys(layer for profile in profiles for layer in profile.layers)
        images = min(profile.images for profile in profiles)
        yield Figure(
            "features",
            f"Features of {source}, {split}",
            f"Mean ± standard deviation of |â_n| over n, at least {images} images of each kind.",
            tuple(_layer_panel(f"{source} {split}", layer, profiles, legend) for layer in layers),
            tuple(legend[kind] for kind in kinds if any(profile.kind == kind for profile in profiles)),
            folded=split == "train" and len(groups) > 1,
        )


def _layer_panel(name: str, layer: str, profiles: Sequence[Profile], legend: Mapping[str, Stroke]) -> Panel:
    def draw(axes: "Axes") -> None:
        for profile in (profile for profile in profiles if layer in profile.layers):
            start = profile.layers.index(layer) * profile.orders
            mean = profile.mean[start : start + profile.orders]
            deviation = profile.deviation[start : start + profile.orders]
            orders = range(1, profile.orders + 1)
            stroke = legend[profile.kind]
            axes.fill_between(orders, mean - deviation, mean + deviation, color=stroke.colour, alpha=0.12, linewidth=0)
            axes.plot(orders, mean, **stroke.line)
        axes.set_xlabel("n")
        axes.set_xticks(_orders(max(profile.orders for profile in profiles)))

    kinds = ", ".join(profile.kind for profile in profiles)
    alt = f"Mean and standard deviation of the features of layer {layer}, for {kinds}"
    return Panel(layer, alt, panel(f"{name} {layer}", draw, size=(3.0, 2.1), margins=(0.45, 0.08, 0.36, 0.08)))


def _orders(last: int) -> list[int]:
    """A few whole numbers from 1 to the last."""
    step = max(1, round(last / 4))
    return [1, *range(step, last + 1, step)] if step > 1 else list(range(1, last + 1))
