"""RBF support vector machine whose score is closed-form in torch: score = Σ_s w_s exp(−γ‖z − v_s‖²) + b.

Far from every support vector that sum is the bias, whatever the image. So where the largest kernel value is below τ a
term of its own is added, which grows with the distance; τ is such that held-out benign images stay above it, and that
all vectors together move the score by no more than the margin: nearer, the machine is not blind.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

BLOCK = 2**23  # kernel values at once
RARE = 0.001  # share of held-out benign images that may lie in the far field
TAIL = 0.2  # share of them from which the share beyond all of them is told, if they are few
MARGIN = 1.0


@dataclass(frozen=True, eq=False)
class Svm:
    """A fitted machine.

    Args:
        vectors: support vectors (S, D), scaled.
        weights: signed dual coefficients (S,).
        bias: added to the sum.
        gamma: of the kernel.
        shift: subtracted from the numbers, (D,).
        scale: divides them then, (D,).
        log_tau: log of the kernel value below which a row is far; −infinity is written as −1e300.
        lift: by how much a far row is raised at least.
    """

    vectors: Tensor
    weights: Tensor
    bias: float
    gamma: float
    shift: Tensor
    scale: Tensor
    log_tau: float = -1e300
    lift: float = 0.0

    differentiable = True

    def score(self, numbers: Tensor) -> Tensor:
        """Returns one score per row (N,): the machine's own and the far-field term."""
        decision, nearest = self.parts(numbers)
        return decision + self.far(nearest)

    def decision(self, numbers: Tensor) -> Tensor:
        """Returns the machine's own score (N,), equal to scikit-learn's decision function."""
        return self.parts(numbers)[0]

    def far(self, nearest: Tensor) -> Tensor:
        """Returns the far-field term (N,) of rows whose log of the largest kernel value is given: 0 where near."""
        depth = self.log_tau - nearest
        return torch.where(depth > 0, self.lift + depth, torch.zeros_like(depth))

    def parts(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the machine's own score (N,) and the log of the largest kernel value (N,), block by block."""
        rows = (numbers.double() - self.shift) / self.scale
        assert rows.shape[1:] == self.vectors.shape[1:]
        count = max(1, BLOCK // max(1, len(self.vectors)))
        lengths = self.vectors.square().sum(1)
        found = [self._block(rows[start : start + count], lengths) for start in range(0, len(rows), count)]
        decisions, nearest = zip(*found, strict=True)
        return torch.cat(decisions), torch.cat(nearest)

    def _block(self, rows: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        squared = rows.square().sum(1, keepdim=True) + lengths - 2 * rows @ self.vectors.T
        logs = -self.gamma * squared.clamp(min=0)  # (rows, S)
        return logs.exp() @ self.weights + self.bias, logs.max(1).values

    def guarded(self, benign: Tensor, everything: Tensor) -> "Svm":
        """Returns the machine with its far field beyond all but RARE of the held-out benign rows.

        Args:
            benign: held-out benign rows.
            everything: rows with the highest scores that near images reach; far ones are raised above them.
        """
        decision, nearest = self.parts(benign)
        blind = math.log(MARGIN / max(float(self.weights.abs().sum()), MARGIN))
        highest = max(float(self.decision(everything).max()), float(decision.max()))
        return replace(self, log_tau=min(_rare(nearest), blind), lift=max(0.0, highest - self.bias) + MARGIN)


def _rare(nearest: Tensor) -> float:
    """The value that all but RARE of the rows exceed.

    Where rows are too few to tell, their tail is taken to go on as it began, exponentially.
    """
    order = nearest.sort().values
    found = float(order[math.floor(RARE * len(order))])
    if RARE * len(order) >= 1:
        return found
    edge = float(order.quantile(TAIL))
    excess = float((edge - order[order <= edge]).mean())
    return min(found, edge - excess * math.log(TAIL / RARE))
