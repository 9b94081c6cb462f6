"""Collinear columns are found and named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.errors import CollinearityError, FitError
from trueup.estimation.rank import check_gram, check_rank, well_conditioned

TERMS = ("Intercept", "age", "income", "wealth")


def columns(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([np.ones(n), rng.normal(40, 10, n), rng.normal(size=(n, 2))])


@given(st.integers(0, 10_000), st.floats(-8, 8))
def test_full_rank_passes_whatever_the_units(seed, digits):
    X = columns(seed=seed) * [1.0, 10.0**digits, 1.0, 10.0**-digits]
    check_rank(X, TERMS)
    check_gram(X.T @ X, TERMS)
    assert well_conditioned(X.T @ X)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("check", ["rows", "gram"])
def test_a_combination_is_named_with_what_it_is_made_of(scale, check):
    X = columns()
    X[:, 3] = scale * (2 * X[:, 1] - X[:, 2])
    with pytest.raises(
        CollinearityError, match=r"'wealth' is a linear combination of 'age', 'income'\."
    ):
        check_rank(X, TERMS) if check == "rows" else check_gram(X.T @ X, TERMS)


def test_dummies_of_all_levels_beside_the_intercept():
    level = np.arange(30) % 3
    X = np.column_stack([np.ones(30), level == 0, level == 1, level == 2]).astype(float)
    with pytest.raises(CollinearityError, match=r"'c' is a linear combination of 'Intercept', "):
        check_rank(X, ("Intercept", "a", "b", "c"))


def test_constant_zero_and_repeated_columns_are_told_apart():
    X = columns()
    X[:, 1] = 3.0
    X[:, 2] = 0.0
    X = np.column_stack([X, X[:, 3]])
    with pytest.raises(CollinearityError) as caught:
        check_rank(X, (*TERMS, "again"), where="the coded rows (human labels)")
    said = str(caught.value)
    assert "In the coded rows (human labels) " in said
    assert "'age' is constant, as the intercept is" in said
    assert "'income' is 0 in every row" in said
    assert "'again' is a linear combination of 'wealth'" in said


def test_collinear_only_where_the_weights_are_not_zero():
    X = columns()
    X[:30, 3] = X[:30, 2]
    check_rank(X, TERMS)
    weights = np.r_[np.ones(30), np.zeros(30)]
    with pytest.raises(CollinearityError, match="'wealth'"):
        check_rank(X, TERMS, weights=weights)


def test_steep_but_full_rank_polynomials_pass():
    year = np.arange(1990.0, 2021.0)
    check_rank(np.column_stack([np.ones(31), year, year**2]), ("Intercept", "year", "year2"))


def test_many_rows_of_collinear_columns():
    X = columns(n=30_000)
    X[:, 3] = X[:, 1] + 1.0
    with pytest.raises(CollinearityError, match=r"'wealth' is a linear comb.*'Intercept', 'age'"):
        check_rank(X, TERMS)


@pytest.mark.parametrize("weights", [None, np.array([1.0, 2.0, 3.0, 0.0])])
def test_fewer_rows_than_coefficients(weights):
    n = 3 if weights is None else 4
    X = columns(n=n)
    with pytest.raises(FitError, match=r"the coded rows: 3 row\(s\) for 4 coefficients"):
        check_rank(X, TERMS, weights=weights)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_named(value):
    X = columns()
    X[4, 2] = value
    with pytest.raises(FitError, match="'income' has missing or infinite"):
        check_rank(X, TERMS)
