"""Design variances against their definitions."""

import itertools

import numpy as np
import pytest

from trueup.errors import SamplingError
from trueup.inference.tuning import least_squares, optimal_tuning, tuning_rank
from trueup.inference.variance import (
    Influence,
    concentration,
    effective_df,
    phase_two_rows,
    tuning_leverage,
    units_are_clusters,
)
from trueup.study.design import Draw, SampleDesign

RNG = np.random.default_rng(3)


def every_srs_variance(values, n):
    """Variance over all samples of size n of N/n times the sample sum, over N."""
    N = len(values)
    means = [values[list(s)].mean() for s in itertools.combinations(range(N), n)]
    return np.var(means)


def test_srs_variance_is_unbiased_over_all_samples():
    values, n = RNG.normal(size=7), 3
    N = len(values)
    estimates = []
    for s in itertools.combinations(range(N), n):
        design = SampleDesign(N, np.array(s), Draw.SRS, np.full(n, n / N))
        E = phase_two_rows(design, values[list(s)][:, None])
        estimates.append(float((E**2).sum()))
    assert np.mean(estimates) == pytest.approx(every_srs_variance(values, n))


def test_poisson_variance_is_unbiased_over_all_samples_with_known_size():
    values, pi = RNG.normal(size=6), np.array([0.2, 0.5, 0.9, 0.4, 0.7, 1.0])
    total, square, expected = 0.0, 0.0, 0.0
    for s in itertools.product([0, 1], repeat=6):
        taken = np.flatnonzero(s)
        p = np.prod(np.where(np.array(s) == 1, pi, 1 - pi))
        if p == 0 or not len(taken):
            continue
        design = SampleDesign(6, taken, Draw.POISSON, pi[taken])
        E = phase_two_rows(design, values[taken][:, None])
        # Undo the division by the estimated size, which is random here.
        expected += p * float((E**2).sum()) * (1 / pi[taken]).sum() ** 2
        t = (values[taken] / pi[taken]).sum()
        total += p * t
        square += p * t**2
    assert expected == pytest.approx(square - total**2)


def test_strata_add_up_and_full_strata_add_nothing():
    values = RNG.normal(size=(9, 2))
    stratum = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2])
    sizes = np.array([10, 20, 3])
    pi = np.array([4 / 10, 2 / 20, 1.0])[stratum]
    design = SampleDesign(33, np.arange(9), Draw.STRATA, pi, stratum=stratum, stratum_sizes=sizes)
    E = phase_two_rows(design, values)
    expected = np.zeros((2, 2))
    for s in range(3):
        v = values[stratum == s]
        n, N = len(v), sizes[s]
        expected += (N / 33) ** 2 * (1 / n - 1 / N) * np.cov(v.T)
    np.testing.assert_allclose(E.T @ E, expected)
    np.testing.assert_allclose(E[stratum == 2], 0.0)


def test_fixed_size_is_srs_where_probabilities_are_equal():
    values = RNG.normal(size=(8, 2))
    values -= values.mean(axis=0)
    pi = np.full(8, 0.2)
    srs = SampleDesign(40, np.arange(8), Draw.SRS, pi)
    fixed = SampleDesign(40, np.arange(8), Draw.FIXED, pi)
    a, b = phase_two_rows(srs, values), phase_two_rows(fixed, values)
    np.testing.assert_allclose(a.T @ a, b.T @ b)


def test_units_are_rows_of_totals():
    values = RNG.normal(size=(6, 1))
    unit = np.array([0, 0, 1, 1, 2, 2])
    design = SampleDesign(20, np.arange(6), Draw.SRS, np.full(6, 0.3), unit=unit, n_units=10)
    E = phase_two_rows(design, values)
    totals = values.reshape(3, 2).sum(axis=1)
    expected = (10 / 20) ** 2 * (1 / 3 - 1 / 10) * np.var(totals, ddof=1)
    assert float((E**2).sum()) == pytest.approx(expected)


def test_clusters_that_split_units_are_refused():
    cluster = np.array([0, 1, 2, 2, 3, 3])
    unit = np.array([0, 0, 1, 1])
    design = SampleDesign(
        6, np.arange(4), Draw.SRS, np.full(4, 2 / 3), unit=unit, n_units=3, cluster=cluster
    )
    with pytest.raises(SamplingError, match="split the units"):
        units_are_clusters(design)


def test_optimal_tuning_is_least_squares_in_the_metric_of_the_design():
    h, phi = RNG.normal(size=(50, 3)), RNG.normal(size=(50, 3))
    full = optimal_tuning(h, phi, "full")
    np.testing.assert_allclose(full, np.linalg.lstsq(phi, h, rcond=None)[0].T)
    diagonal = optimal_tuning(h, phi, "diagonal")
    np.testing.assert_allclose(np.diag(diagonal), (h * phi).sum(0) / (phi**2).sum(0))
    scalar = optimal_tuning(h, phi, "scalar")
    np.testing.assert_allclose(scalar, np.eye(3) * (h * phi).sum() / (phi**2).sum())


def test_a_silent_llm_gets_no_weight():
    h = RNG.normal(size=(50, 2))
    np.testing.assert_array_equal(optimal_tuning(h, 1e-17 * h, "full"), np.zeros((2, 2)))
    assert tuning_rank(np.column_stack([h, h])) == 2
    np.testing.assert_array_equal(least_squares(np.zeros((5, 2)), h[:5]), np.zeros((2, 2)))


@pytest.mark.parametrize("kind", ["full", "scalar", "diagonal", "fixed"])
def test_shares_of_rows_in_their_tuning(kind):
    rows = RNG.normal(size=(40, 3)) * [1.0, 1e-6, 1e3]
    share = tuning_leverage(rows, kind)
    assert (share >= 0).all()
    total = {"full": 3.0, "scalar": 1.0, "diagonal": 1.0, "fixed": 0.0}[kind]
    capped = np.minimum(share, 0.9)
    np.testing.assert_allclose(share, capped)
    np.testing.assert_allclose(share.sum(axis=0), total, atol=0.1 * total + 1e-12)


def test_effective_df_of_equal_and_of_lone_contributions():
    equal, lone = np.ones((50, 1)), np.eye(50)[:, :1]
    assert effective_df(equal, 47)[0] == 47
    assert effective_df(lone, 47)[0] == pytest.approx(2 / (1 - 1 / 50))
    np.testing.assert_allclose(concentration(equal), 1 / 50)
    squares = RNG.normal(size=(100_000, 1)) ** 2
    # Normal contributions: about as many degrees of freedom as rows.
    assert effective_df(squares, 1e9)[0] == pytest.approx(100_000, rel=0.05)


def test_subtracted_blocks_are_subtracted():
    a, b = RNG.normal(size=(5, 2)), RNG.normal(size=(4, 2))
    V = Influence({"cluster": a, "independent": b}).covariance()
    np.testing.assert_allclose(V, a.T @ a - b.T @ b)
