"""Final classifiers besides the SVM that are plain formulas: a logistic regression, and the number itself."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Logistic:
    """A logistic regression: its score is the log of the odds.

    Args:
        weights: (D,).
        bias: added to the sum.
        shift: subtracted from the numbers, (D,).
        scale: divides them then, (D,).
    """

    weights: Tensor
    bias: float
    shift: Tensor
    scale: Tensor

    differentiable = True

    def score(self, numbers: Tensor) -> Tensor:
        """Returns one score per row, (N,)."""
        return (numbers.double() - self.shift) / self.scale @ self.weights + self.bias


@dataclass(frozen=True, eq=False)
class Plain:
    """The one number of a row is its score."""

    differentiable = True

    def score(self, numbers: Tensor) -> Tensor:
        """Returns one score per row, (N,)."""
        assert numbers.shape[1] == 1
        return numbers.double()[:, 0]
