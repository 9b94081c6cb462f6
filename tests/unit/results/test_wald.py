"""Wald tests against statsmodels, and the ways to write a constraint."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trueup.errors import ArgumentError
from trueup.results.wald import quadratic_form, wald_test

ROWS = {
    "x = 0": ([[0, 1, 0, 0]], [0]),
    "x = Intercept": ([[-1, 1, 0, 0]], [0]),
    "C(group)[T.b] = 0.1": ([[0, 0, 1, 0]], [0.1]),
    "x:C(group)[T.b] = 0": ([[0, 0, 0, 1]], [0]),
    "`x:C(group)[T.b]` = x": ([[0, -1, 0, 1]], [0]),
    "2 * x = C(group)[T.b] + 1": ([[0, 2, -1, 0]], [1]),
    "x": ([[0, 1, 0, 0]], [0]),
    "x = 0, C(group)[T.b] = 0": ([[0, 1, 0, 0], [0, 0, 1, 0]], [0, 0]),
    "x + x:C(group)[T.b] = 0.5": ([[0, 1, 0, 1]], [0.5]),
}


@pytest.mark.parametrize("text", ROWS)
def test_text_equals_statsmodels_f(world, text):
    R, r = map(np.array, ROWS[text])
    expected = world.reference.wald_test((R, r), use_f=True, scalar=True)
    found = world.fit.wald_test(text)
    assert found.statistic == pytest.approx(float(expected.statistic), rel=1e-9)
    assert found.p_value == pytest.approx(float(expected.pvalue), rel=1e-8)
    assert (found.df_num, found.df_denom) == (len(R), world.reference.df_resid)
    assert found.reason is None


@pytest.mark.parametrize("text", ROWS)
def test_normal_reference_is_chi_squared(make, text):
    R, r = map(np.array, ROWS[text])
    w = make(df=np.inf)
    expected = w.reference.wald_test((R, r), use_f=False, scalar=True)
    found = w.fit.wald_test(text)
    assert found.statistic == pytest.approx(float(expected.statistic), rel=1e-9)
    assert found.p_value == pytest.approx(float(expected.pvalue), rel=1e-8)
    assert found.distribution == f"chi2({len(R)})"


def test_list_matrix_and_tuple_are_the_same(world):
    test = world.fit.wald_test
    by_text = test("x = 0, C(group)[T.b] = 0")
    R = np.array([[0, 1, 0, 0], [0, 0, 1, 0]])
    for spec in (["x = 0", "C(group)[T.b] = 0"], R, (R, [0, 0]), (R, 0), R.tolist()):
        assert test(spec).statistic == pytest.approx(by_text.statistic, rel=1e-12)


def test_one_constraint_is_the_square_of_t(world):
    table = world.fit.tidy()
    found = world.fit.wald_test("x = 0")
    assert found.statistic == pytest.approx(table.loc[1, "statistic"] ** 2, rel=1e-12)
    assert found.p_value == pytest.approx(table.loc[1, "p_value"], rel=1e-10)


def test_the_smallest_df_of_the_coefficients_tested(make):
    fit = make(df=np.array([3.0, 50.0, np.inf, 20.0])).fit
    assert fit.wald_test("x = 0").df_denom == 50
    assert fit.wald_test("x = x:C(group)[T.b]").df_denom == 20
    assert np.isinf(fit.wald_test("C(group)[T.b] = 0").df_denom)
    assert fit.wald_test(["x = 0", "x = 0", "C(group)[T.b] = 0"]).df_denom == 50


@given(st.lists(st.lists(st.integers(-3, 3), min_size=2, max_size=2), min_size=1, max_size=3))
def test_redundant_constraints_change_nothing(weights):
    theta, df = np.array([1.0, -0.4, 0.2]), np.full(3, 17.0)
    root = np.array([[1.0, 0.2, 0.0], [0.0, 1e-4, 2e-5], [0.0, 0.0, 50.0]])
    V = root.T @ root
    R, r = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, 1e-3]]), np.array([0.3, -1.0])
    W = np.array(weights, dtype=float)
    W = W[np.abs(W).sum(axis=1) > 0]
    plain = wald_test(theta, V, df, ("a", "b", "c"), (R, r))
    more = (np.vstack([R, W @ R]), np.concatenate([r, W @ r]))
    found = wald_test(theta, V, df, ("a", "b", "c"), more)
    assert found.df_num == 2
    assert found.statistic == pytest.approx(plain.statistic, rel=1e-6)


def test_independent_of_the_units_of_a_coefficient():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(6, 3))
    theta, V, df = rng.normal(size=3), A.T @ A, np.full(3, np.inf)
    scale = np.array([1.0, 1e-6, 1e5])
    R = rng.normal(size=(2, 3))
    one = wald_test(theta, V, df, "abc", R)
    two = wald_test(theta * scale, V * np.outer(scale, scale), df, "abc", R / scale)
    assert two.statistic == pytest.approx(one.statistic, rel=1e-8)


def test_contradicting_constraints(world):
    with pytest.raises(ArgumentError, match="contradict"):
        world.fit.wald_test(["x = 0", "x = 1"])
    with pytest.raises(ArgumentError, match="contradict"):
        world.fit.wald_test(["x = 0", "C(group)[T.b] = 0", "x = C(group)[T.b] + 2"])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nosuch = 0", r"no term 'nosuch'.*'x'"),
        ("x = C(group)[T.b] = 0", "2 signs '='"),
        ("x =", "cannot be read"),
        ("x > 0", "cannot be read"),
        ("x * C(group)[T.b] = 0", "not linear"),
        ("", "empty"),
        ([], "shape|empty|cannot be read"),
        ("3 = 3", "involves no coefficient|cannot be read"),
        (np.zeros((1, 4)), "involves no coefficient"),
        (np.ones((1, 3)), r"shape \(1, 3\).*4"),
        (np.array([[0, 1, np.nan, 0]]), "missing or infinite"),
        (({"x": 1},), "cannot be read"),
        (None, "cannot be read|shape"),
    ],
)
def test_bad_constraints(world, spec, message):
    with pytest.raises(ArgumentError, match=message):
        world.fit.wald_test(spec)


def test_a_combination_without_variance_has_a_reason():
    V = np.array([[1.0, 1.0], [1.0, 1.0]])
    found = wald_test(np.array([1.0, 0.5]), V, np.full(2, 9.0), ("a", "b"), "a = b")
    assert np.isnan(found.statistic)
    assert np.isnan(found.p_value)
    assert "no sampling variance" in str(found)


def test_a_singular_covariance_has_a_reason():
    load = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    V = load @ load.T
    found = wald_test(np.ones(3), V, np.full(3, np.inf), ("a", "b", "c"), np.eye(3))
    assert np.isnan(found.p_value)
    assert "singular" in found.reason


def test_a_term_name_with_commas_and_equals_signs():
    terms = ("C(s)[T.a, b]", "I(z == 'q, r')", "log(w)")
    V, df = np.eye(3), np.full(3, np.inf)
    theta = np.array([1.0, 2.0, 3.0])
    for j, term in enumerate(terms):
        found = wald_test(theta, V, df, terms, f"{term} = 0")
        assert found.statistic == pytest.approx(theta[j] ** 2)
    assert wald_test(theta, V, df, terms, f"{terms[0]} = 0, {terms[1]} = 0").df_num == 2


def test_terms_that_begin_alike_are_not_mixed_up():
    terms = ("a", "a:b", "a:b:c", "aa")
    theta, df = np.array([1.0, 2.0, 3.0, 4.0]), np.full(4, np.inf)
    for j, term in enumerate(terms):
        assert wald_test(theta, np.eye(4), df, terms, f"{term} = 0").statistic == (j + 1) ** 2


def test_words(world):
    assert world.fit.wald_test("2*x = C(group)[T.b] + 1").constraint == ("2 x - C(group)[T.b] = 1")
    text = str(world.fit.wald_test("x = 0"))
    assert text.startswith("F(1, 56) = ")
    assert text.endswith("for x = 0")


def test_quadratic_form_counts_the_rank():
    rng = np.random.default_rng(1)
    L = rng.normal(size=(5, 2))
    z = rng.normal(size=2)
    # The difference lies in the range of the covariance: both ways to compute it agree.
    statistic, rank = quadratic_form(L @ z, L @ L.T)
    assert rank == 2
    assert statistic == pytest.approx(z @ z, rel=1e-8)
    assert quadratic_form(np.zeros(2), np.zeros((2, 2))) == (0.0, 0)


def test_size_of_the_chi_squared_test():
    rng = np.random.default_rng(2)
    A = rng.normal(size=(8, 3))
    V = A.T @ A
    draws = rng.multivariate_normal([1.0, 0.0, 0.0], V, size=2000)
    p = [
        wald_test(b, V, np.full(3, np.inf), ("a", "b", "c"), "b = 0, c = 0").p_value for b in draws
    ]
    assert stats.kstest(p, "uniform").pvalue > 0.001
