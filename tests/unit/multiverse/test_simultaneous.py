"""Numerics of joint inference: exact special cases, and brute force on small arrays."""

import numpy as np
import pytest
from scipy import stats

from trueup.errors import ArgumentError, FitError
from trueup.inference import curves
from trueup.inference.curves import curve_test, flip_shares
from trueup.inference.simultaneous import (
    equality_test,
    equivalent_t,
    equivalent_z,
    max_t_p_value,
    max_t_quantile,
    pool_fixed,
    pool_minimum_variance,
    step_down,
)


def covariance(U, seed=0, factor=1.0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(U, U)) + factor * rng.normal(size=(1, U))
    return A @ A.T


class TestMaxT:
    @pytest.mark.parametrize("df", [np.inf, 7.0])
    def test_one_estimate_has_its_own_quantile(self, df):
        c = max_t_quantile(np.array([[4.0]]), 0.9, df)
        assert c == pytest.approx([stats.t.ppf(0.95, df)], rel=1e-9)

    @pytest.mark.parametrize("df", [np.inf, 7.0])
    def test_perfect_correlation_needs_no_adjustment(self, df):
        s = np.array([1.0, 2.0, 0.5])
        c = max_t_quantile(np.outer(s, s) * np.array([1, -1, 1])[:, None] * [1, -1, 1], df=df)
        np.testing.assert_allclose(c, stats.t.ppf(0.975, df), rtol=1e-9)

    @pytest.mark.parametrize("df", [np.inf, 7.0])
    def test_independence_is_sidak(self, df):
        c = max_t_quantile(np.diag([1.0, 4.0, 9.0, 16.0]), 0.95, df)
        tail = (1 - 0.95 ** (1 / 4)) / 2
        np.testing.assert_allclose(c, stats.t.isf(tail, df), rtol=1e-9)

    def test_two_estimates_against_the_bivariate_normal(self):
        for r in (0.3, 0.9, -0.6):
            c = float(max_t_quantile(np.array([[1.0, r], [r, 1.0]]), draws=40_000)[0])
            law = stats.multivariate_normal(cov=[[1.0, r], [r, 1.0]])
            inside = law.cdf([c, c]) - 2 * law.cdf([c, -c]) + law.cdf([-c, -c])
            assert inside == pytest.approx(0.95, abs=1e-3)

    def test_many_estimates_against_plain_draws(self):
        V = covariance(25)
        c = float(max_t_quantile(V)[0])
        root = np.linalg.cholesky(V / np.sqrt(np.outer(np.diag(V), np.diag(V))))
        z = np.random.default_rng(5).standard_normal((200_000, 25)) @ root.T
        assert (np.abs(z).max(axis=1) <= c).mean() == pytest.approx(0.95, abs=0.003)

    def test_each_estimate_keeps_its_own_degrees_of_freedom(self):
        df = np.array([5.0, np.inf, 50.0])
        c = max_t_quantile(covariance(3), df=df)
        tails = stats.t.sf(c, df)
        np.testing.assert_allclose(tails, tails[0], rtol=1e-8)

    def test_copies_change_nothing(self):
        V = covariance(4)
        twice = np.tile(V, (2, 2))
        assert max_t_quantile(twice, seed=1)[0] == pytest.approx(
            max_t_quantile(V, seed=2)[0], rel=5e-3
        )

    def test_scale_and_seed(self):
        V = covariance(6)
        s = np.array([1.0, 10.0, 0.1, 3.0, 5.0, 2.0])
        np.testing.assert_allclose(
            max_t_quantile(V * np.outer(s, s), seed=1), max_t_quantile(V, seed=1)
        )
        assert max_t_quantile(V, seed=1)[0] != max_t_quantile(V, seed=2)[0]

    def test_an_estimate_without_variance_is_refused(self):
        with pytest.raises(FitError, match=r"\[1\]"):
            max_t_quantile(np.diag([1.0, 0.0]))


def test_normal_and_t_statistics_with_equal_p_values():
    t = np.array([-30.0, -2.0, 0.0, 1.5, 3.0])
    df = np.array([3.0, 8.0, 8.0, np.inf, 40.0])
    z = equivalent_z(t, df)
    np.testing.assert_allclose(stats.norm.sf(np.abs(z)), stats.t.sf(np.abs(t), df), rtol=1e-9)
    np.testing.assert_allclose(equivalent_t(z, df), t, rtol=1e-7)


class TestStepDown:
    def test_one_estimate_keeps_its_p_value(self):
        for df in (np.inf, 6.0):
            p = step_down(np.array([-2.3]), np.eye(1), df)
            assert p[0] == pytest.approx(2 * stats.t.sf(2.3, df), rel=1e-9)

    def test_independent_estimates(self):
        t = np.array([1.0, -3.0, 2.0])
        p = step_down(t, np.eye(3), draws=40_000)
        alone = 2 * stats.norm.sf(np.abs(t))
        first = 1 - (1 - alone[1]) ** 3
        second = max(first, 1 - (1 - alone[2]) ** 2)
        np.testing.assert_allclose(p, [max(second, alone[0]), first, second], rtol=0.02)

    def test_agrees_with_the_bands(self):
        V = covariance(8)
        se = np.sqrt(np.diag(V))
        c = max_t_quantile(V, 0.95, seed=3)
        b = np.zeros(8)
        b[2] = c[2] * se[2]
        assert step_down(b / se, V, seed=3)[2] == pytest.approx(0.05, rel=1e-6)

    def test_the_least_p_value_is_that_of_the_largest_statistic(self):
        V, t = covariance(6), np.array([0.3, -2.2, 1.0, 1.9, 0.1, -0.4])
        for df in (np.inf, np.array([5.0, 30.0, np.inf, 9.0, 40.0, 300.0])):
            least = step_down(t, V, df, seed=3).min()
            assert max_t_p_value(t, V, df, seed=3) == pytest.approx(least, rel=1e-4)

    def test_bounds_and_order(self):
        V = covariance(12)
        t = np.random.default_rng(1).normal(size=12) * 2.5
        p = step_down(t, V)
        alone = 2 * stats.norm.sf(np.abs(t))
        assert (p >= alone).all()
        assert (p <= np.minimum(12 * alone, 1.0)).all()
        assert (np.diff(p[np.argsort(-np.abs(t))]) >= 0).all()


class TestEquality:
    def test_two_estimates_are_a_z_test(self):
        V = covariance(2)
        b = np.array([1.0, -0.5])
        z = (b[0] - b[1]) / np.sqrt(V[0, 0] + V[1, 1] - 2 * V[0, 1])
        test = equality_test(b, V, np.array([[2.0, -2.0]]))
        assert test.statistic == pytest.approx(z**2)
        assert test.p_value == pytest.approx(2 * stats.norm.sf(abs(z)))
        exact = equality_test(b, V, np.array([[1.0, -1.0]]), df=9.0)
        assert exact.statistic == pytest.approx(z**2)
        assert exact.p_value == pytest.approx(2 * stats.t.sf(abs(z), 9))

    def test_the_basis_of_contrasts_does_not_matter(self):
        V, b = covariance(5), np.arange(5.0) ** 2
        first = np.column_stack([-np.ones(4), np.eye(4)])
        chain = np.eye(5)[:-1] - np.eye(5)[1:]
        every = np.array([np.eye(5)[i] - np.eye(5)[j] for i in range(5) for j in range(i)])
        tests = [equality_test(b, V, L) for L in (first, chain, every, np.eye(5) - 0.2)]
        assert [t.df for t in tests] == [4] * 4
        np.testing.assert_allclose([t.statistic for t in tests], tests[0].statistic, rtol=1e-8)
        L = first
        W = (L @ b) @ np.linalg.solve(L @ V @ L.T, L @ b)
        assert tests[0].statistic == pytest.approx(W)

    def test_hotelling(self):
        V, b = covariance(4), np.array([1.0, 2.0, 0.0, 1.0])
        L = np.eye(4)[1:] - np.eye(4)[[0]]
        W = equality_test(b, V, L).statistic
        test = equality_test(b, V, L, df=20.0)
        assert test.statistic == pytest.approx(W * 18 / (20 * 3))
        assert test.p_value == pytest.approx(stats.f.sf(test.statistic, 3, 18))
        assert test.distribution == "F(3, 18)"

    def test_copies_are_left_out(self):
        V = covariance(3)
        twice = np.tile(V, (2, 2))
        b = np.array([1.0, 2.0, 4.0])
        L = np.eye(6)[1:] - np.eye(6)[[0]]
        test = equality_test(np.tile(b, 2), twice, L)
        assert test.df == 2
        assert test.statistic == pytest.approx(equality_test(b, V, L[:2, :3]).statistic)

    def test_no_test_without_variance_or_degrees_of_freedom(self):
        L = np.array([[1.0, -1.0]])
        assert np.isnan(equality_test(np.ones(2), np.ones((2, 2)), L).p_value)
        L = np.eye(5)[1:] - np.eye(5)[[0]]
        assert np.isnan(equality_test(np.ones(5), covariance(5), L, df=3.0).p_value)


class TestCurve:
    def test_one_universe_is_its_own_test(self):
        result = curve_test(np.array([2.0]), np.array([[1.0]]), draws=40_000)
        p = dict(zip(result.names, result.p_values, strict=True))
        assert p["median"] == pytest.approx(2 * stats.norm.sf(2.0), abs=0.005)
        assert p["mean z"] == pytest.approx(p["median"], abs=1e-12)
        assert p["share of dominant sign"] == 1.0
        assert p["share significant"] == pytest.approx(0.05, abs=0.006)

    def test_one_sided(self):
        b, V = np.array([2.0]), np.array([[1.0]])
        up, down = (curve_test(b, V, direction=s, draws=40_000).p_values[0] for s in (1, -1))
        assert up == pytest.approx(stats.norm.sf(2.0), abs=0.004)
        assert down == pytest.approx(1 - up, abs=0.004)
        with pytest.raises(ArgumentError, match="direction"):
            curve_test(b, V, direction=2)

    def test_few_degrees_of_freedom_widen_the_law_of_the_median(self):
        b, V = np.array([2.5]), np.array([[1.0]])
        p = curve_test(b, V, df=5.0, draws=40_000).p_values[0]
        assert p == pytest.approx(2 * stats.t.sf(2.5, 5), abs=0.005)

    def test_many_degrees_of_freedom_by_formula_agree_with_the_table(self, monkeypatch):
        V, b = covariance(5), np.full(5, 3.0)
        df = np.array([100.0, 150.0, 400.0, 99.0, np.inf])
        by_formula = curve_test(b, V, df, seed=1).p_values
        monkeypatch.setattr(curves, "MANY_DF", np.inf)
        np.testing.assert_allclose(by_formula, curve_test(b, V, df, seed=1).p_values, atol=3e-4)

    def test_size_and_observed(self):
        V = covariance(9)
        root = np.linalg.cholesky(V)
        rng = np.random.default_rng(0)
        p = np.array(
            [
                curve_test(root @ rng.normal(size=9), V, seed=1, draws=999).p_values
                for _ in range(400)
            ]
        )
        low, high = stats.binom.ppf([0.0005, 0.9995], 400, 0.05) / 400
        # Shares are discrete, so their tests may reject less often.
        assert ((p[:, [0, 3]] < 0.05).mean(axis=0) >= low).all()
        assert ((p < 0.05).mean(axis=0) <= high).all()
        b = np.array([-1.0, -2.0, 3.0])
        seen = curve_test(b, np.eye(3) * 0.25).observed
        np.testing.assert_allclose(seen, [-1.0, 2 / 3, 2 / 3, 0.0], atol=1e-12)


class TestFlips:
    def test_shares_by_hand(self):
        b = np.array([5.0, 4.0, -6.0, 0.5])
        shares = flip_shares(b, np.eye(4), 1.0)
        assert (shares.share, shares.bound_low, shares.bound_high) == (0.25, 0.25, 0.5)
        assert shares.expected == pytest.approx(stats.norm.cdf(-b).mean())
        other = flip_shares(b, np.eye(4), -1.0)
        assert other.share == 1 - shares.share
        assert (other.bound_low, other.bound_high) == (0.5, 0.75)

    def test_the_expected_share_is_the_mean_of_the_draws(self):
        b, V = np.array([0.4, -0.2, 1.0]), covariance(3)
        mean = np.random.default_rng(3).multivariate_normal(b, V, 200_000)
        assert flip_shares(b, V, 1.0).expected == pytest.approx((mean <= 0).mean(), abs=0.003)

    def test_perfectly_correlated_estimates_flip_together(self):
        shares = flip_shares(np.full(5, 0.1), np.ones((5, 5)), 1.0)
        assert (shares.low, shares.high) == (0.0, 1.0)
        assert (shares.bound_low, shares.bound_high) == (0.0, 1.0)

    def test_few_degrees_of_freedom(self):
        b = np.array([1.0, -1.0, 2.0])
        shares = flip_shares(b, np.eye(3), 1.0, df=4.0)
        assert shares.expected == pytest.approx(stats.t.cdf(-b, 4).mean())


class TestPooling:
    def test_fixed(self):
        V, b, w = covariance(3), np.array([1.0, 2.0, 3.0]), np.array([0.2, 0.3, 0.5])
        assert pool_fixed(b, V, w) == pytest.approx((w @ b, np.sqrt(w @ V @ w)))

    def test_minimum_variance(self):
        V, b = covariance(3), np.array([1.0, 2.0, 3.0])
        estimate, se, w = pool_minimum_variance(b, V)
        one = np.linalg.solve(V, np.ones(3))
        np.testing.assert_allclose(w, one / one.sum())
        assert estimate == pytest.approx(w @ b)
        assert se == pytest.approx(one.sum() ** -0.5)
        for u in np.random.default_rng(0).dirichlet(np.ones(3), 50):
            assert u @ V @ u >= se**2 - 1e-12

    def test_full_shrinkage_gives_inverse_variances(self):
        V, b = covariance(3), np.array([1.0, 2.0, 3.0])
        estimate, se, w = pool_minimum_variance(b, V, 1.0)
        inverse = 1 / np.diag(V)
        np.testing.assert_allclose(w, inverse / inverse.sum())
        assert se == pytest.approx(np.sqrt(w @ V @ w))
        assert estimate == pytest.approx(w @ b)

    def test_copies_share_their_weight(self):
        V, b = covariance(2), np.array([1.0, 2.0])
        twice = pool_minimum_variance(np.tile(b, 2), np.tile(V, (2, 2)))
        assert twice[:2] == pytest.approx(pool_minimum_variance(b, V)[:2])
