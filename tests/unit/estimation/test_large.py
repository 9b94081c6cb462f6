"""Shortcuts for large tables change the work, not the result."""

import numpy as np
import pytest

from trueup.estimation import solve
from trueup.estimation.blocks import score_hessian
from trueup.estimation.solve import fit, newton, newton_joint, rough_fit
from trueup.families.registry import family_for
from trueup.formula.rows import Rows

TERMS = ("Intercept", "x")
LOGIT = family_for("logit")


@pytest.fixture
def rows(monkeypatch):
    monkeypatch.setattr(solve, "START_ROWS", 500)
    rng = np.random.default_rng(3)
    x = rng.normal(size=4_000)
    y = (rng.random(4_000) < 1.0 / (1.0 + np.exp(0.5 - x))).astype(float)
    return Rows(y=y, X=np.column_stack([np.ones(4_000), x]))


def counted(monkeypatch):
    sizes = []

    def count(family, theta, rows, weights):
        sizes.append(len(rows))
        return score_hessian(family, theta, rows, weights)

    monkeypatch.setattr(solve, "score_hessian", count)
    return sizes


@pytest.mark.parametrize("start", [None, np.array([2.0, -1.0])])
def test_a_part_comes_first_whether_or_not_a_start_is_given(rows, start, monkeypatch):
    sizes = counted(monkeypatch)
    theta = fit(LOGIT, rows, None, TERMS, start)
    assert sizes[0] == 500
    np.testing.assert_allclose(LOGIT.score_sum(theta, rows, None), 0.0, atol=1e-8)


def test_a_rough_fit_is_that_of_the_part(rows, monkeypatch):
    sizes = counted(monkeypatch)
    found = rough_fit(LOGIT, rows, None, TERMS)
    assert set(sizes) == {500}
    part = rows.take(slice(None, None, 8))
    np.testing.assert_allclose(found, fit(LOGIT, part, None, TERMS), atol=1e-12)


def test_a_rough_fit_takes_all_rows_where_the_part_cannot_be_fitted(rows):
    X = np.column_stack([rows.X, np.arange(4_000) % 8 == 1])
    with_rare = Rows(y=rows.y, X=X)
    terms = (*TERMS, "rare")
    assert not X[::8, 2].any()
    found = rough_fit(LOGIT, with_rare, None, terms)
    np.testing.assert_allclose(found, fit(LOGIT, with_rare, None, terms), atol=1e-12)


def test_score_and_hessian_may_come_from_one_function():
    start = np.array([0.3])
    apart = newton(lambda t: 2.0 - np.exp(t), lambda t: np.diag(np.exp(t)), start)
    joint = newton_joint(lambda t: (2.0 - np.exp(t), np.diag(np.exp(t))), start)
    assert apart.theta == joint.theta
    assert apart.iterations == joint.iterations
