"""How many images were left after each step."""

from dataclasses import dataclass

from benfourier.errors import InputError, check_whole


@dataclass(frozen=True)
class Funnel:
    """Steps with the number of images left after each, never rising.

    Args:
        steps: names and counts, in the order of the work.
    """

    steps: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        counts = [check_whole(f"count of {name!r}", count, least=0) for name, count in self.steps]
        names = [str(name) for name, _ in self.steps]
        for place in range(1, len(counts)):
            if counts[place] > counts[place - 1]:
                raise InputError(
                    f"{counts[place]} images are left after {names[place]!r} and {counts[place - 1]} before; "
                    "a step can only let images fall"
                )
        object.__setattr__(self, "steps", tuple(zip(names, counts, strict=True)))

    def then(self, name: str, left: int) -> "Funnel":
        """Returns the funnel with one more step."""
        return Funnel((*self.steps, (name, left)))

    def __str__(self) -> str:
        width = max((len(name) for name, _ in self.steps), default=0)
        digits = max((len(str(count)) for _, count in self.steps), default=0)
        before = [count for _, count in self.steps[:1]] + [count for _, count in self.steps]
        return "\n".join(
            f"{name:<{width}}  {left:>{digits}}" + (f"  ({had - left} fell)" if had > left else "")
            for (name, left), had in zip(self.steps, before, strict=False)
        )
