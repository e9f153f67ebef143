"""The subject that a verb's options describe."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benfourier.errors import OptionError

if TYPE_CHECKING:
    from benfourier.subjects.subject import Subject


def subject_of(
    model: str,
    weights: Path | None,
    digest: str | None,
    size: int | None,
    channels: int | None,
    classes: int | None,
    mean: str | None,
    std: str | None,
    *,
    pretrained: bool = True,
) -> "Subject":
    """Returns the subject; options left out are the zoo network's own, and so are weights if it has some."""
    from benfourier.subjects.naming import open_subject

    look = {"size": size, "channels": channels, "mean": numbers("mean", mean), "std": numbers("std", std)}
    given: dict[str, Any] = {name: value for name, value in look.items() if value is not None}
    return open_subject(model, weights=weights, digest=digest, classes=classes, pretrained=pretrained, **given)


def numbers(name: str, text: str | None) -> list[float] | None:
    """Returns the numbers in a text such as "0.5,0.5,0.5"."""
    if text is None:
        return None
    try:
        return [float(word) for word in text.split(",")]
    except ValueError as error:
        raise OptionError(f"{name} is {text!r}; it must be numbers with commas between, such as 0.5,0.5,0.5") from error
