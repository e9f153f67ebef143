from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.svm import SVC

from benfourier.detectors import features, heads
from benfourier.detectors.detector import Sigmoid, fit_sigmoid
from benfourier.detectors.features import FeatureTable
from benfourier.detectors.heads import HEADS, Boosted, Head, Logistic, Mixture, Svm, fit_head
from benfourier.detectors.mbf import MBF
from benfourier.detectors.state import record_from_state, record_state
from benfourier.errors import FitError


def rows(sources: int = 90, columns: int = 5, *, seed: int = 0, shift: float = 1.5) -> FeatureTable:
    """Three twins of each source, the last one adversarial; columns of very different widths."""
    random = np.random.default_rng(seed)
    bad = np.repeat([False, False, True], sources)
    values = (random.normal(size=(3 * sources, columns)) + shift * bad[:, None]) * 10.0 ** np.arange(columns)
    names = tuple(map(str, range(sources))) * 3
    return FeatureTable(
        torch.from_numpy(values), bad, names, ("clean",) * sources + ("noisy",) * sources + ("bim",) * sources
    )


def train(method: MBF, table: FeatureTable) -> tuple[Head, dict[str, Any]]:
    return fit_head(method.head_options, table)


def scaled(table: FeatureTable) -> np.ndarray:
    values = table.features.numpy()
    return np.asarray((values - values.mean(0)) / values.std(0))


@pytest.mark.parametrize("limit", [10**6, 0])
def test_the_svm_is_the_one_scikit_learn_fits(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "KERNEL_ROWS", limit)
    table = rows()
    head = train(MBF(scaling="standard", C=3.0, gamma=0.2), table)[0]
    theirs = SVC(C=3.0, gamma=0.2).fit(scaled(table), table.adversarial)
    assert isinstance(head, Svm)
    assert np.abs(head.parts(table.features)[0].numpy() - theirs.decision_function(scaled(table))).max() < 1e-6


def test_gamma_scale_is_that_of_scikit_learn() -> None:
    table = rows()
    head = train(MBF(scaling="standard", C=1.0, gamma="scale"), table)[0]
    theirs = SVC(C=1.0, gamma="scale").fit(scaled(table), table.adversarial)
    assert isinstance(head, Svm)
    assert head.gamma == pytest.approx(theirs._gamma)


def test_the_logistic_regression_is_the_one_scikit_learn_fits() -> None:
    table = rows()
    head = train(MBF(scaling="standard", head="logistic", C=0.5), table)[0]
    theirs = LogisticRegression(C=0.5, max_iter=2000).fit(scaled(table), table.adversarial)
    assert isinstance(head, Logistic)
    assert np.allclose(head.score(table.features).numpy(), theirs.decision_function(scaled(table)))


def test_boosted_trees_as_arrays_score_as_scikit_learn_does() -> None:
    table, others = rows(), rows(seed=1)
    theirs = HistGradientBoostingClassifier(random_state=0, early_stopping=False)
    theirs.fit(table.features.numpy(), table.adversarial)
    head = train(MBF(head="boosted"), table)[0]
    for values in (table.features, others.features):
        assert np.allclose(head.score(values).numpy(), theirs.decision_function(values.numpy()))


def test_boosted_trees_declare_that_they_have_no_gradient() -> None:
    head = train(MBF(head="boosted"), rows())[0]
    assert isinstance(head, Boosted)
    assert not head.differentiable
    leaf = rows().features.clone().requires_grad_()
    assert not head.score(leaf).requires_grad


@pytest.mark.parametrize("options", [{}, {"head": "logistic"}])
def test_cross_validation_chooses_what_is_best_on_other_sources(options: dict[str, Any]) -> None:
    table = rows(shift=0.7)
    head, facts = train(MBF(scaling="standard", C="cv", gamma="cv", **options), table)
    assert facts["C"] in heads.COSTS
    scores = head.score(rows(seed=9, shift=0.7).features).numpy()
    assert roc_auc_score(table.adversarial, scores) > 0.8


def test_cross_validation_never_separates_twins() -> None:
    table = rows(40)
    for fold in features.source_folds(table, seed=0):
        train_sources = {table.sources[row] for row in fold.train}
        assert train_sources.isdisjoint(table.sources[row] for row in fold.test)
        assert set(table.adversarial[fold.test]) == {False, True}


def test_cross_validation_takes_part_of_many_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "SOURCES", 12)
    used = {row for fold in features.source_folds(rows(40), seed=0) for row in fold.test}
    assert len(used) == 36


def test_a_column_that_never_changes_is_left_alone() -> None:
    table = rows()
    values = torch.cat([table.features, torch.full((len(table), 1), 0.1).double()], dim=1)
    method = MBF(scaling="standard", C=1.0, gamma="scale")
    head = train(method, FeatureTable(values, table.adversarial, table.sources, table.kinds))[0]
    assert isinstance(head, Svm)
    assert float(head.scale[-1]) == 1.0
    assert torch.isfinite(head.score(values)).all()


@pytest.mark.parametrize(("scaling", "least", "greatest"), [("min-max", 0.0, 1.0), ("none", None, None)])
def test_scaling_is_as_asked(scaling: str, least: float | None, greatest: float | None) -> None:
    table = rows()
    head = train(MBF(C=1.0, gamma="scale", scaling=scaling), table)[0]
    assert isinstance(head, Svm)
    seen = (table.features - head.shift) / head.scale
    if least is None:
        assert torch.equal(seen, table.features)
    else:
        assert float(seen.amin()) == least
        assert float(seen.amax()) == greatest


def test_examples_of_one_kind_are_refused() -> None:
    table = rows()
    benign = FeatureTable(table.features, np.zeros(len(table), bool), table.sources, table.kinds)
    with pytest.raises(FitError, match="there are no adversarial examples; head 'svm' needs"):
        train(MBF(), benign)


def test_plain_takes_one_number_only() -> None:
    with pytest.raises(FitError, match="mbf gives 5 features; head 'plain' takes one"):
        train(MBF(head="plain"), rows())


def test_too_few_sources_for_cross_validation_are_refused() -> None:
    with pytest.raises(FitError, match="cross-validation needs 3"):
        train(MBF(C="cv"), rows(2))


def test_the_sigmoid_gives_the_rate_that_scores_have() -> None:
    """Scores drawn with P(adversarial) = 1/(1 + e^{−(2s − 1)}): 4000 of them give slope and offset to about 0.1."""
    random = np.random.default_rng(0)
    scores = random.normal(size=4000)
    bad = random.random(4000) < 1 / (1 + np.exp(-(2 * scores - 1)))
    sigmoid = fit_sigmoid(scores, bad)
    assert sigmoid.slope == pytest.approx(2, abs=0.3)
    assert sigmoid.offset == pytest.approx(-1, abs=0.2)
    assert sigmoid.posterior(np.array([0.5]))[0] == pytest.approx(0.5, abs=0.05)


def test_scores_that_are_perfectly_apart_give_no_certainty() -> None:
    sigmoid = fit_sigmoid(np.array([0.0, 0.1, 0.2, 1.0, 1.1]), np.array([False, False, False, True, True]))
    assert isinstance(sigmoid, Sigmoid)
    posteriors = sigmoid.posterior(np.array([0.0, 1.1]))
    assert 0 < posteriors[0] < 0.35
    assert 0.65 < posteriors[1] < 1


def test_a_posterior_never_falls_with_the_score() -> None:
    scores = np.linspace(0, 1, 40)
    posteriors = fit_sigmoid(scores, scores < 0.5).posterior(scores)
    assert (np.diff(posteriors) > 0).all()
    assert np.ptp(posteriors) < 0.01


def clean_only(table: FeatureTable) -> FeatureTable:
    return table.take(np.flatnonzero([kind == "clean" for kind in table.kinds]))


def test_the_mixture_is_the_one_scikit_learn_fits() -> None:
    for columns, count in ((2, 300), (40, 30)):
        table = rows(count, columns, shift=0.0)
        head, facts = train(MBF(head="mixture", scaling="standard"), clean_only(table))
        assert isinstance(head, Mixture)
        clean = table.clean.numpy()
        data = (clean - clean.mean(0)) / clean.std(0)
        theirs = GaussianMixture(facts["components"], covariance_type=facts["covariances"], reg_covar=1e-3).fit(data)
        expected = np.log(clean.std(0)).sum() - theirs.score_samples(data)
        if facts["components"] == 1:
            assert np.allclose(head.score(table.clean).numpy(), expected, rtol=1e-6)


def test_the_mixture_is_fitted_to_clean_images_only() -> None:
    table = rows(shift=4.0)
    alone, _ = train(MBF(head="mixture", scaling="standard"), clean_only(table))
    beside, _ = train(MBF(head="mixture", scaling="standard"), table)
    assert torch.equal(alone.score(table.features), beside.score(table.features))
    assert roc_auc_score(table.adversarial, alone.score(table.features).numpy()) > 0.95


def test_the_mixture_finds_two_groups_of_clean_images() -> None:
    table = rows(200, 2)
    features = table.features.clone()
    features[:200:2] += torch.tensor([30.0, 300.0])
    head, facts = train(MBF(head="mixture"), FeatureTable(features, table.adversarial, table.sources, table.kinds))
    assert facts["components"] >= 2
    between = head.score(torch.tensor([[15.0, 150.0]]))
    assert float(between) > float(head.score(features[:200]).max())


@pytest.mark.parametrize("kind", sorted(HEADS))
def test_a_head_is_restored_from_its_state(kind: str) -> None:
    table = rows(columns=1)
    head, _ = train(MBF(head=kind, scaling="standard", C=1.0, gamma="scale"), table)
    again = record_from_state(HEADS[kind], record_state(head))
    assert torch.equal(again.score(table.features), head.score(table.features))
    assert head.differentiable == (kind != "boosted")


def test_a_state_that_does_not_fit_is_refused() -> None:
    head, _ = train(MBF(head="logistic", C=1.0), rows())
    state = record_state(head)
    for name, value in (("bias", "high"), ("weights", 3.0), ("weights", torch.full((5,), torch.nan))):
        with pytest.raises(ValueError, match=name):
            record_from_state(Logistic, {**state, name: value})
    with pytest.raises(ValueError, match="has the fields"):
        record_from_state(Logistic, {"bias": 1.0})
