import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.svm import SVC
from torch import Tensor

from benfourier.detectors import heads
from benfourier.detectors.heads import Svm


def machine(rows: int = 200, columns: int = 6, *, gamma: float = 0.3, seed: int = 0) -> tuple[Svm, SVC, Tensor]:
    """The same machine in torch and in scikit-learn, and rows it was not fitted to."""
    random = np.random.default_rng(seed)
    bad = np.arange(rows) % 3 == 0
    data = random.normal(size=(rows, columns)) + bad[:, None]
    theirs = SVC(C=2.0, gamma=gamma).fit(data, bad)
    zeros, ones = torch.zeros(columns).double(), torch.ones(columns).double()
    vectors, weights = torch.from_numpy(theirs.support_vectors_), torch.from_numpy(theirs.dual_coef_[0].copy())
    ours = Svm(vectors, weights, float(theirs.intercept_[0]), gamma, zeros, ones)
    return ours, theirs, torch.from_numpy(random.normal(size=(57, columns)))


@pytest.mark.parametrize("gamma", [0.01, 0.3, 5.0])
def test_the_decision_equals_that_of_scikit_learn(gamma: float) -> None:
    ours, theirs, rows = machine(gamma=gamma)
    assert np.abs(ours.parts(rows)[0].numpy() - theirs.decision_function(rows.numpy())).max() < 1e-9


def test_the_decision_equals_that_of_scikit_learn_for_rows_far_from_the_origin() -> None:
    """‖a‖² + ‖b‖² − 2ab loses digits: at 1e3 from the origin 1e6 · 2^-52, far below 1e-6."""
    ours, theirs, rows = machine()
    far = 1000.0
    moved = Svm(ours.vectors + far, ours.weights, ours.bias, ours.gamma, ours.shift, ours.scale)
    assert (moved.parts(rows + far)[0] - torch.from_numpy(theirs.decision_function(rows.numpy()))).abs().max() < 1e-6


def test_features_are_shifted_and_scaled_first() -> None:
    ours, _, rows = machine()
    shift, scale = torch.arange(6).double(), torch.arange(1, 7).double()
    scaled = Svm(ours.vectors, ours.weights, ours.bias, ours.gamma, shift, scale)
    assert torch.allclose(scaled.parts(rows * scale + shift)[0], ours.parts(rows)[0])


def test_blocks_give_what_one_block_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, _, rows = machine()
    whole = ours.parts(rows)[0]
    monkeypatch.setattr(heads, "BLOCK", 5 * len(ours.vectors))
    assert torch.allclose(ours.parts(rows)[0], whole, rtol=0, atol=1e-12)


def test_the_score_is_differentiable() -> None:
    ours, _, rows = machine()
    guarded = ours.with_held_out(rows, rows)
    leaf = torch.cat([rows[:4], rows[:2] + 30]).requires_grad_()
    assert torch.autograd.gradcheck(guarded.score, (leaf,))
    (slope,) = torch.autograd.grad(guarded.score(leaf).sum(), leaf)
    assert (slope.abs().sum(1) > 0).all()


def test_near_rows_keep_the_score_of_the_machine() -> None:
    ours, _, rows = machine()
    guarded = ours.with_held_out(rows, rows)
    assert torch.equal(guarded.score(rows), ours.parts(rows)[0])


def test_far_rows_score_above_every_near_one_whatever_the_bias() -> None:
    ours, _, rows = machine()
    blind = Svm(ours.vectors, ours.weights, -1.0, ours.gamma, ours.shift, ours.scale).with_held_out(rows, rows)
    away = torch.full((1, 6), 50.0, dtype=torch.float64)
    assert float(blind.parts(away)[0]) == pytest.approx(-1.0)
    assert float(blind.score(away)) > float(blind.score(rows).max())
    assert float(blind.score(2 * away)) > float(blind.score(away))


@pytest.mark.parametrize(("count", "allowed"), [(50, 0), (999, 0), (1000, 1), (4000, 4)])
def test_at_most_one_in_a_thousand_held_out_benign_rows_is_far(count: int, allowed: int) -> None:
    ours, _, _ = machine()
    weak = replace(ours, weights=ours.weights / ours.weights.abs().sum())  # it is blind as soon as it is far
    benign = torch.from_numpy(np.random.default_rng(4).normal(size=(count, 6)))
    for one in (ours, weak):
        guarded = one.with_held_out(benign, benign)
        far = guarded.far(guarded.parts(benign)[1]) > 0
        assert int(far.sum()) <= allowed
    assert int(far.sum()) == math.floor(heads.RARE * count)


def test_a_few_held_out_rows_are_enough_to_keep_other_benign_ones_out_of_the_far_field() -> None:
    ours, _, _ = machine()
    weak = replace(ours, weights=ours.weights / ours.weights.abs().sum())
    random = np.random.default_rng(5)
    others = torch.from_numpy(random.normal(size=(4000, 6)))
    shares = []
    for _ in range(20):
        few = torch.from_numpy(random.normal(size=(50, 6)))
        guarded = weak.with_held_out(few, few)
        shares.append(float((guarded.far(guarded.parts(others)[1]) > 0).double().mean()))
    assert np.mean(shares) < 0.01  # the least of 50 rows would leave one in 51 beyond it


def test_rows_that_the_machine_can_separate_are_not_far() -> None:
    ours, _, rows = machine()
    guarded = ours.with_held_out(rows[:5], rows)
    decision, nearest = guarded.parts(torch.cat([3 * rows, 6 * rows]))
    far = guarded.far(nearest) > 0
    assert far.any()
    assert (decision[far] - guarded.bias).abs().max() <= heads.MARGIN


def test_memory_is_bounded_by_the_block_and_not_by_rows_times_vectors() -> None:
    """30 000 × 20 000 kernel values would take 4.8 GB; a block of 2^23 and what is made of it, less than 0.5."""
    program = """
import resource, torch
from benfourier.detectors.heads import Svm
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
zeros, ones = torch.zeros(4).double(), torch.ones(4).double()
machine = Svm(torch.rand(20000, 4).double(), torch.randn(20000).double(), 0.0, 1.0, zeros, ones)
rows = torch.rand(30000, 4).double()
machine.score(rows[:2])
before = peak()
assert machine.score(rows).shape == (30000,)
print((peak() - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603
    assert int(done.stdout) < 500
