"""Two-stage least squares against linearmodels, and its influence function against refits."""

import numpy as np
import pytest
from linearmodels.iv import IV2SLS

from trueup.errors import ArgumentError, CollinearityError, FitError
from trueup.estimation.blocks import mean_hessian, score_meat, score_sum
from trueup.estimation.solve import fit
from trueup.families.iv import IV
from trueup.formula.rows import Rows

FAMILY = IV()
TERMS = ("Intercept", "x", "d")


def draw(n=300, instruments=1, seed=0, invalid=False):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, instruments))
    x, hidden = rng.normal(size=n), rng.normal(size=n)
    d = 0.5 * x + z @ np.linspace(1.0, 0.4, instruments) + hidden + rng.normal(size=n)
    y = 1.0 + 0.5 * x - d + hidden + rng.normal(size=n) * (1.0 + x**2)
    if invalid:
        y = y + 0.8 * z[:, -1]
    exog = np.column_stack([np.ones(n), x])
    return Rows(y=y, X=np.column_stack([exog, d]), Z=np.hstack([exog, z]))


def solve(rows, weights=None):
    return fit(FAMILY, FAMILY.prepare(rows, weights), weights, TERMS)


def weights_for(rows):
    return np.random.default_rng(9).uniform(0.3, 3.0, len(rows))


@pytest.mark.parametrize("instruments", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_point_is_that_of_linearmodels(instruments, weighted):
    rows = draw(instruments=instruments)
    w = weights_for(rows) if weighted else None
    peer = IV2SLS(rows.y, rows.X[:, :2], rows.X[:, 2:], rows.Z[:, 2:], weights=w).fit()
    np.testing.assert_allclose(solve(rows, w), peer.params, rtol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_robust_covariance_is_that_of_linearmodels_when_just_identified(weighted):
    rows = draw()
    w = weights_for(rows) if weighted else None
    peer = IV2SLS(rows.y, rows.X[:, :2], rows.X[:, 2:], rows.Z[:, 2:], weights=w).fit(
        cov_type="robust", debiased=False
    )
    theta, prepared = solve(rows, w), FAMILY.prepare(rows, w)
    total = len(rows) if w is None else w.sum()
    bread = np.linalg.inv(mean_hessian(FAMILY, theta, prepared, w)) / total
    hc0 = bread @ score_meat(FAMILY, theta, prepared, w) @ bread.T
    np.testing.assert_allclose(hc0, peer.cov, rtol=1e-8)


@pytest.mark.parametrize(("instruments", "invalid"), [(1, False), (3, False), (3, True)])
@pytest.mark.parametrize("weighted", [False, True])
def test_influence_is_the_derivative_of_the_estimate_by_a_row_weight(
    instruments, invalid, weighted
):
    """Also over-identified and misspecified, where the first stage adds its own part."""
    rows = draw(instruments=instruments, invalid=invalid)
    w = weights_for(rows) if weighted else np.ones(len(rows))
    theta, prepared = solve(rows, w), FAMILY.prepare(rows, w)
    bread = FAMILY.hessian_sum(theta, prepared, w)
    influence = np.linalg.solve(bread, FAMILY.score(theta, prepared).T).T
    for i in range(0, len(rows), 37):
        up, down = w.copy(), w.copy()
        up[i] += 1e-4
        down[i] -= 1e-4
        numeric = (solve(rows, up) - solve(rows, down)) / 2e-4
        np.testing.assert_allclose(influence[i], numeric, rtol=1e-6, atol=1e-9)


def test_first_stage_part_matters_when_over_identified_and_vanishes_when_not():
    for instruments, zero in ((1, True), (3, False)):
        rows = draw(instruments=instruments, invalid=True)
        prepared = FAMILY.prepare(rows, None)
        theta = solve(rows)
        plain = (rows.Z @ prepared.first_stage) * (rows.y - rows.X @ theta)[:, None]
        part = FAMILY.score(theta, prepared) - plain
        assert (np.abs(part).max() < 1e-9) == zero


@pytest.mark.parametrize("instruments", [1, 3])
def test_first_stage_part_sums_to_zero_at_any_theta(instruments):
    rows = draw(instruments=instruments)
    w = weights_for(rows)
    prepared = FAMILY.prepare(rows, w)
    theta = np.array([3.0, -2.0, 1.0])
    fitted = rows.Z @ prepared.first_stage
    plain = fitted.T @ (w * (rows.y - rows.X @ theta))
    np.testing.assert_allclose(score_sum(FAMILY, theta, prepared, w), plain, rtol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_hessian_is_minus_the_derivative_of_the_score(weighted):
    """On any subset of the prepared rows, not only on their sum."""
    rows = draw(instruments=3)
    prepared = FAMILY.prepare(rows, None).take(np.arange(50))
    w = weights_for(prepared) if weighted else None
    theta = np.array([0.3, -2.0, 1.0])
    exact = FAMILY.hessian_sum(theta, prepared, w)
    # The score is affine in theta, so differences are the derivative.
    at = FAMILY.score_sum(theta, prepared, w)
    numeric = [at - FAMILY.score_sum(theta + e, prepared, w) for e in np.eye(3)]
    np.testing.assert_allclose(exact, np.column_stack(numeric), rtol=1e-9, atol=1e-9)
    score, hessian = FAMILY.sums(theta, prepared, w)
    np.testing.assert_allclose(score, at, rtol=1e-12)
    np.testing.assert_allclose(hessian, exact, rtol=1e-12)
    heavy = FAMILY.score(theta, prepared) * (1.0 if w is None else w[:, None])
    np.testing.assert_allclose(at, heavy.sum(axis=0), rtol=1e-9)


def test_pair_with_equal_labels_is_the_plain_fit():
    rows = draw(instruments=2)
    coded = np.arange(0, 300, 5)
    part = rows.take(coded)
    every, human, machine = FAMILY.prepare_pair(rows, part, part, coded, np.full(60, 5.0), None)
    theta = solve(rows)
    np.testing.assert_allclose(FAMILY.score_sum(theta, every, None), 0.0, atol=1e-9)
    np.testing.assert_array_equal(FAMILY.score(theta, human), FAMILY.score(theta, machine))
    expected = FAMILY.prepare(rows, None).first_stage
    np.testing.assert_allclose(every.first_stage, expected, rtol=1e-10, atol=1e-14)


def test_pair_solves_the_corrected_moment_equation():
    rng = np.random.default_rng(4)
    rows, a = draw(instruments=2), np.random.default_rng(8).uniform(0.5, 2.0, 300)
    coded = np.arange(0, 300, 3)
    machine = rows.take(coded)
    X = machine.X + rng.normal(size=machine.X.shape) * [0.0, 0.0, 0.5]
    human = Rows(y=machine.y + rng.normal(size=100), X=X, Z=machine.Z)
    c = rng.uniform(2.0, 4.0, 100)
    ready = FAMILY.prepare_pair(rows, human, machine, coded, c, a)
    parts = list(zip(ready, (a, c, -c), strict=True))
    zero = np.zeros(3)
    score = sum(FAMILY.score_sum(zero, r, w) for r, w in parts)
    hessian = sum(FAMILY.hessian_sum(zero, r, w) for r, w in parts)
    zz = sum(r.Z.T @ (w[:, None] * r.Z) for r, w in parts)
    zx = sum(r.Z.T @ (w[:, None] * r.X) for r, w in parts)
    zy = sum(r.Z.T @ (w * r.y) for r, w in parts)
    stage = np.linalg.solve(zz, zx)
    expected = np.linalg.solve(stage.T @ zx, stage.T @ zy)
    np.testing.assert_allclose(np.linalg.solve(hessian, score), expected, rtol=1e-9)


def test_leverage_is_that_of_the_fitted_columns():
    rows = draw(instruments=2)
    w = weights_for(rows)
    hat = FAMILY.leverage(np.zeros(3), FAMILY.prepare(rows, w), w)
    assert hat.sum() == pytest.approx(3.0)
    assert hat.min() > 0.0


def test_blocks_do_not_matter():
    rows = draw(n=20_000, instruments=2)
    prepared = FAMILY.prepare(rows, None)
    theta = np.array([0.5, 0.1, -1.0])
    np.testing.assert_allclose(
        score_sum(FAMILY, theta, prepared, None),
        FAMILY.score_sum(theta, prepared, None),
        rtol=1e-10,
    )


def test_too_few_instruments():
    rows = draw()
    with pytest.raises(FitError, match="fewer instruments than endogenous"):
        FAMILY.prepare(Rows(y=rows.y, X=rows.X, Z=rows.Z[:, :2]), None)


def test_no_instruments():
    rows = draw()
    with pytest.raises(FitError, match=r"\[d ~ z\]"):
        FAMILY.prepare(Rows(y=rows.y, X=rows.X), None)


def test_collinear_instruments_are_counted_out():
    rows = draw(instruments=2)
    Z = np.column_stack([rows.Z, rows.Z[:, 1] + rows.Z[:, 2]])
    with pytest.raises(CollinearityError, match="Column 5 of the instruments"):
        FAMILY.prepare(Rows(y=rows.y, X=rows.X, Z=Z), None)
    Z[:, 2] = 0.0
    with pytest.raises(CollinearityError, match=r"Column 3 of the instruments.*is 0 in every row"):
        FAMILY.prepare(Rows(y=rows.y, X=rows.X, Z=Z), None)


def test_unprepared_rows_are_refused():
    with pytest.raises(ArgumentError, match="no first stage"):
        FAMILY.score(np.zeros(3), draw())


def test_instruments_unrelated_to_the_endogenous_column_are_noticed():
    rows = draw()
    d = np.tile([1.0, -1.0, 0.0], 100)
    z = np.tile([1.0, 1.0, -2.0], 100)  # orthogonal to d and to the intercept
    exog = np.ones((300, 1))
    rows = Rows(y=rows.y, X=np.column_stack([exog, d]), Z=np.column_stack([exog, z]))
    with pytest.raises(CollinearityError, match="'d'"):
        fit(FAMILY, FAMILY.prepare(rows, None), None, ("Intercept", "d"))
