"""Boosted trees kept as arrays: no pickle, no scikit-learn needed to score, and no gradient."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees whose leaves add up to the log of the odds; nodes of all trees stand in one row.

    Args:
        roots: node of each tree at which it begins, (T,).
        feature: column that a node looks at, (nodes,).
        threshold: rows at or below it go left, (nodes,).
        left: next node to the left, (nodes,); a leaf names itself.
        right: next node to the right, (nodes,); a leaf names itself.
        value: what a leaf adds, (nodes,).
        depth: steps after which every row is at a leaf.
        base: what is there before any tree.
    """

    roots: Tensor
    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    depth: int
    base: float

    differentiable = False

    def score(self, numbers: Tensor) -> Tensor:
        """Returns one score per row, (N,)."""
        rows = numbers.detach().double()
        place = self.roots.expand(len(rows), -1)  # (N, T)
        for _ in range(self.depth):
            goes_left = rows.gather(1, self.feature[place]) <= self.threshold[place]
            place = torch.where(goes_left, self.left[place], self.right[place])
        return self.base + self.value[place].sum(1)


def trees_of(model: Any) -> Trees:
    """Returns a fitted HistGradientBoostingClassifier of two classes as arrays.

    scikit-learn has no public way to its nodes; a test holds this one against `decision_function`.
    """
    every = [predictor.nodes for (predictor,) in model._predictors]
    roots = np.cumsum([0] + [len(nodes) for nodes in every[:-1]])
    nodes = np.concatenate(every)
    first = np.repeat(roots, [len(tree) for tree in every])
    leaf = nodes["is_leaf"].astype(bool)
    itself = np.arange(len(nodes))
    return Trees(
        roots=torch.from_numpy(roots),
        feature=torch.from_numpy(np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64)),
        threshold=torch.from_numpy(np.where(leaf, 0.0, nodes["num_threshold"])),
        left=torch.from_numpy(np.where(leaf, itself, first + nodes["left"]).astype(np.int64)),
        right=torch.from_numpy(np.where(leaf, itself, first + nodes["right"]).astype(np.int64)),
        value=torch.from_numpy(np.where(leaf, nodes["value"], 0.0)),
        depth=int(nodes["depth"].max()),
        base=float(np.ravel(model._baseline_prediction)[0]),
    )
