"""Newton, linear solves, separation and the fits that stand in for it."""

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import linprog

from trueup.errors import CollinearityError, ConvergenceError, FitError, SeparationError
from trueup.estimation import solve
from trueup.estimation.solve import firth_logit, fit, newton, one_step
from trueup.families.registry import family_for, glm_family
from trueup.formula.rows import Rows

TERMS = ("Intercept", "x", "d")


def draw(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=n), rng.integers(0, 2, n)])
    p = 1.0 / (1.0 + np.exp(-X @ [-0.3, 0.8, 0.5]))
    return Rows(y=(rng.random(n) < p).astype(float), X=X), rng.uniform(0.5, 3.0, n)


@given(st.integers(0, 1000), st.sampled_from(["ols", "logit", "probit", "poisson"]))
def test_solution_is_a_root_and_does_not_depend_on_the_start(seed, name):
    rows, w = draw(seed=seed)
    family = family_for(name)
    theta = fit(family, rows, w, TERMS)
    np.testing.assert_allclose(family.score_sum(theta, rows, w), 0.0, atol=1e-8)
    other = fit(family, rows, w, TERMS, start=np.array([0.5, -0.5, 0.5]))
    np.testing.assert_allclose(theta, other, atol=1e-9)


@given(st.integers(0, 1000), st.sampled_from(["ols", "logit", "poisson"]))
def test_coefficients_follow_a_change_of_columns(seed, name):
    rows, w = draw(seed=seed)
    M = np.array([[1.0, 5.0, 0.0], [0.0, 100.0, 1.0], [0.0, 0.0, 0.01]])
    moved = Rows(y=rows.y, X=rows.X @ M)
    family = family_for(name)
    np.testing.assert_allclose(
        M @ fit(family, moved, w, TERMS), fit(family, rows, w, TERMS), rtol=1e-7, atol=1e-8
    )


@pytest.mark.parametrize("name", ["ols", "logit", "probit", "poisson"])
def test_large_tables_start_from_a_part_and_end_at_the_same_root(name, monkeypatch):
    rows, w = draw(n=4000)
    expected = fit(family_for(name), rows, w, TERMS)
    monkeypatch.setattr(solve, "START_ROWS", 500)
    np.testing.assert_allclose(fit(family_for(name), rows, w, TERMS), expected, rtol=1e-9)


def test_a_rare_level_that_the_part_misses_is_no_obstacle(monkeypatch):
    rows, _ = draw(n=4000)
    X = rows.X.copy()
    X[:, 2] = 0.0
    X[[1, 2, 3, 5, 6, 9], 2] = 1.0  # none of them at the stride of 8
    y = rows.y.copy()
    y[[1, 2, 3, 5, 6, 9]] = [0, 1, 0, 1, 1, 0]
    rare = Rows(y=y, X=X)
    expected = fit(family_for("logit"), rare, None, TERMS)
    monkeypatch.setattr(solve, "START_ROWS", 500)
    np.testing.assert_allclose(fit(family_for("logit"), rare, None, TERMS), expected, rtol=1e-9)


def test_least_squares_keeps_its_digits_on_steep_polynomials():
    year = np.arange(1990.0, 2021.0)
    X = np.column_stack([np.ones(31), year, year**2])
    y = 3.0 + 0.5 * (year - 2005.0) ** 2 + np.sin(year)
    theta = fit(family_for("ols"), Rows(y=y, X=X), None, ("Intercept", "year", "year2"))
    t = year - 2005.0
    centred = np.linalg.lstsq(np.column_stack([np.ones(31), t, t**2]), y, rcond=None)[0]
    np.testing.assert_allclose(
        X @ theta, centred[0] + centred[1] * t + centred[2] * t**2, rtol=1e-6
    )
    assert theta[2] == pytest.approx(centred[2], rel=1e-7)


def test_newton_finds_the_root_of_any_function():
    solution = newton(
        lambda t: np.array([4.0 - t[0] ** 2, t[0] - t[1]]),
        lambda t: np.array([[2.0 * t[0], 0.0], [-1.0, 1.0]]),
        np.array([9.0, -3.0]),
    )
    np.testing.assert_allclose(solution.theta, [2.0, 2.0], rtol=1e-12)
    np.testing.assert_allclose(solution.hessian, [[4.0, 0.0], [-1.0, 1.0]], rtol=1e-8)
    assert solution.iterations < 12


def test_newton_halves_steps_that_overshoot():
    # From 3, the full Newton steps of arctan diverge.
    solution = newton(
        lambda t: -np.arctan(t), lambda t: np.diag(1.0 / (1.0 + t**2)), np.array([3.0])
    )
    assert abs(solution.theta[0]) < 1e-10


def test_newton_backs_off_from_values_that_are_not_finite():
    with np.errstate(all="ignore"):
        solution = newton(lambda t: -np.log(t) - 5.0, lambda t: np.diag(1.0 / t), np.array([50.0]))
    assert solution.theta[0] == pytest.approx(np.exp(-5.0), rel=1e-10)


@pytest.mark.parametrize(
    ("score", "hessian", "said"),
    [
        (lambda t: 1.0 + t**2, lambda t: np.diag(-2.0 * t), "could not improve|did not converge"),
        (lambda t: t * np.nan, lambda t: np.eye(1), "not finite at the starting"),
    ],
)
def test_newton_says_when_there_is_no_root(score, hessian, said):
    with pytest.raises(ConvergenceError, match=said):
        newton(score, hessian, np.array([0.7]))


def separated(kind):
    rows, _ = draw(n=80)
    X, y = rows.X, rows.y.copy()
    if kind == "level":  # quasi: every row of the level is positive
        y[X[:, 2] == 1] = 1.0
    elif kind == "slope":  # complete: a threshold on x
        y = (X[:, 1] > 0.2).astype(float)
    else:
        y[:] = 0.0
    return Rows(y=y, X=X)


BINARY = [
    family_for("logit"),
    family_for("probit"),
    glm_family("binomial", "cloglog"),
]


@pytest.mark.parametrize("family", BINARY, ids=lambda f: f.name)
@pytest.mark.parametrize(("kind", "blamed"), [("level", "'d'"), ("slope", "'x'")])
@pytest.mark.parametrize("weighted", [False, True])
def test_separation_names_the_columns_that_run_away(family, kind, blamed, weighted):
    rows = separated(kind)
    w = np.random.default_rng(2).uniform(1.0, 30.0, 80) if weighted else None
    with pytest.raises(SeparationError, match=rf"of {blamed} run away.*one-step.*firth"):
        fit(family, rows, w, TERMS)


@pytest.mark.parametrize("family", [*BINARY, family_for("poisson")], ids=lambda f: f.name)
def test_an_outcome_without_positives_is_separated(family):
    with pytest.raises(SeparationError, match="run away"):
        fit(family, separated("none"), None, TERMS)


@given(st.integers(0, 100_000), st.sampled_from(["logit", "probit", "cloglog", "loglog"]))
def test_separation_is_found_exactly_where_a_linear_programme_finds_it(seed, link):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(8, 40))
    level = (rng.random(n) < 0.3).astype(float)
    X = np.column_stack([np.ones(n), rng.normal(size=n), level])
    assume(0 < level.sum() < n)
    y = (rng.random(n) < rng.uniform(0.1, 0.9)).astype(float)
    signed = np.where(y == 1, 1.0, -1.0)[:, None] * X
    # A direction in which no row is predicted worse, and some are predicted better.
    programme = linprog(-signed.sum(axis=0), -signed, np.zeros(n), bounds=[(-1, 1)] * 3)
    family, rows = glm_family("binomial", link), Rows(y=y, X=X)
    if -programme.fun > 1e-7:
        with pytest.raises(SeparationError):
            fit(family, rows, None, TERMS)
    else:
        theta = fit(family, rows, None, TERMS)
        np.testing.assert_allclose(family.score_sum(theta, rows, None), 0.0, atol=1e-7)
    assert np.isfinite(firth_logit(rows, None)).all()


def test_counts_that_are_zero_in_a_level_are_separated():
    rows, _ = draw()
    y = np.where(rows.X[:, 2] == 1, 0.0, 1.0 + rows.y)
    with pytest.raises(SeparationError, match="of 'd' run away"):
        fit(family_for("poisson"), Rows(y=y, X=rows.X), None, TERMS)


@pytest.mark.parametrize("name", ["logit", "probit"])
def test_almost_separated_rows_are_fitted(name):
    rows = separated("slope")
    y = rows.y.copy()
    top = np.argsort(rows.X[:, 1])
    y[top[-1]], y[top[0]] = 0.0, 1.0
    rows = Rows(y=y, X=rows.X)
    link = sm.families.links.Logit() if name == "logit" else sm.families.links.Probit()
    peer = sm.GLM(y, rows.X, family=sm.families.Binomial(link)).fit(
        tol=1e-13, tol_criterion="params", maxiter=200
    )
    np.testing.assert_allclose(fit(family_for(name), rows, None, TERMS), peer.params, rtol=1e-7)


def test_steep_slopes_are_not_taken_for_separation():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 5000)
    y = (rng.random(5000) < 1.0 / (1.0 + np.exp(-60.0 * x))).astype(float)
    theta = fit(
        family_for("logit"), Rows(y=y, X=np.column_stack([np.ones(5000), x])), None, TERMS[:2]
    )
    assert theta[1] == pytest.approx(60.0, rel=0.2)


def test_rates_of_very_different_size_are_not_taken_for_separation():
    level = np.repeat([0.0, 1.0], 500)
    y = np.where(level == 1, 0.0, 40_000.0)
    y[-1] = 1.0
    theta = fit(
        family_for("poisson"), Rows(y=y, X=np.column_stack([np.ones(1000), level])), None, TERMS[:2]
    )
    np.testing.assert_allclose(theta, [np.log(40_000), np.log(1 / 500) - np.log(40_000)], rtol=1e-9)


@pytest.mark.parametrize("name", ["ols", "logit", "probit", "poisson"])
def test_collinear_columns_are_named_whatever_the_family(name):
    rows, w = draw()
    X = np.column_stack([rows.X, 1.0 - rows.X[:, 2]])
    with pytest.raises(CollinearityError, match="'other' is a linear combination of 'Intercept'"):
        fit(family_for(name), Rows(y=rows.y, X=X), w, (*TERMS, "other"), where="all rows")


@pytest.mark.parametrize("name", ["ols", "logit"])
def test_too_few_rows(name):
    rows, _ = draw()
    with pytest.raises(FitError, match=r"2 row\(s\) for 3 coefficients"):
        fit(family_for(name), rows.take(slice(0, 2)), None, TERMS)


def test_missing_values_are_named():
    rows, _ = draw()
    X = rows.X.copy()
    X[3, 1] = np.nan
    y = rows.y.copy()
    y[3] = np.nan
    for name in ("ols", "logit", "probit", "poisson"):
        with pytest.raises(FitError, match="'x' has missing"):
            fit(family_for(name), Rows(y=rows.y, X=X), None, TERMS)
        with pytest.raises(FitError, match="outcome has missing"):
            fit(family_for(name), Rows(y=y, X=rows.X), None, TERMS)


def test_one_step_is_a_newton_step():
    rows, w = draw()
    for name in ("logit", "ols"):
        family = family_for(name)
        theta = fit(family, rows, w, TERMS)
        near = one_step(family, rows, w, theta + 0.05)
        assert np.abs(near - theta).max() < 0.01
        np.testing.assert_allclose(one_step(family, rows, w, theta), theta, atol=1e-9)
    np.testing.assert_allclose(one_step(family_for("ols"), rows, w, np.zeros(3)), theta, rtol=1e-9)


def test_one_step_exists_where_the_fit_does_not():
    rows = separated("level")
    theta = one_step(family_for("logit"), rows, None, np.array([0.1, 0.5, 0.2]))
    assert np.isfinite(theta).all()


def test_one_step_says_when_columns_are_collinear():
    rows, _ = draw()
    X = np.column_stack([rows.X[:, 0], np.zeros(200)])
    with pytest.raises(ConvergenceError, match="singular"):
        one_step(family_for("logit"), Rows(y=rows.y, X=X), None, np.zeros(2))


@given(st.integers(0, 30), st.integers(0, 30))
def test_firth_adds_half_a_count_to_every_cell_of_a_saturated_logit(k, m):
    X = np.column_stack([np.ones(60), np.repeat([0.0, 1.0], 30)])
    y = np.concatenate([np.arange(30) < k, np.arange(30) < m]).astype(float)
    theta = firth_logit(Rows(y=y, X=X), None)
    low, high = np.log((k + 0.5) / (30.5 - k)), np.log((m + 0.5) / (30.5 - m))
    np.testing.assert_allclose(theta, [low, high - low], atol=1e-8)


def test_firth_does_not_depend_on_the_scale_of_the_weights():
    rows, w = draw(n=60)
    np.testing.assert_allclose(firth_logit(rows, w), firth_logit(rows, 25.0 * w), rtol=1e-8)
    np.testing.assert_allclose(
        firth_logit(rows, w, start=np.array([0.3, 0.1, 0.0])), firth_logit(rows, w), rtol=1e-7
    )


@pytest.mark.parametrize("kind", ["level", "slope", "none"])
def test_firth_is_finite_for_separated_rows(kind):
    theta = firth_logit(separated(kind), None)
    assert np.abs(theta).max() < 30.0


def test_firth_maximises_the_penalised_likelihood():
    rows, w = draw(n=60)
    w = w / w.mean()
    theta = firth_logit(rows, w)

    def penalised(t):
        eta = rows.X @ t
        mu = 1.0 / (1.0 + np.exp(-eta))
        information = rows.X.T @ ((w * mu * (1.0 - mu))[:, None] * rows.X)
        return w @ (rows.y * eta - np.logaddexp(0.0, eta)) + 0.5 * np.linalg.slogdet(information)[1]

    slope = [(penalised(theta + e) - penalised(theta - e)) / 2e-5 for e in 1e-5 * np.eye(3)]
    np.testing.assert_allclose(slope, 0.0, atol=1e-7)


def test_firth_says_when_columns_are_collinear():
    rows, _ = draw()
    with pytest.raises(ConvergenceError, match="does not exist at the start"):
        firth_logit(Rows(y=rows.y, X=np.column_stack([rows.X, rows.X[:, 1]])), None)
