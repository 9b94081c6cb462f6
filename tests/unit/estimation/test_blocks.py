"""Sums over blocks are the sums over all rows."""

import numpy as np
import pytest

from trueup.estimation import blocks
from trueup.families.registry import family_for
from trueup.formula.rows import BLOCK_ROWS, Rows

N = 2 * BLOCK_ROWS + 17
THETA = np.array([0.2, -0.4, 0.3])


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(N), rng.normal(size=(N, 2))])
    return Rows(y=rng.integers(0, 2, N).astype(float), X=X)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "weighted"])
def weights(request):
    return np.random.default_rng(1).uniform(0.5, 2.0, N) if request.param else None


@pytest.mark.parametrize("name", ["ols", "logit", "probit", "poisson"])
def test_means_are_those_of_the_row_scores(rows, weights, name):
    family = family_for(name)
    w = np.ones(N) if weights is None else weights
    psi = family.score(THETA, rows)
    np.testing.assert_allclose(
        blocks.mean_score(family, THETA, rows, weights), w @ psi / w.sum(), rtol=1e-9, atol=1e-13
    )
    np.testing.assert_allclose(
        blocks.mean_hessian(family, THETA, rows, weights),
        family.hessian_sum(THETA, rows, weights) / w.sum(),
        rtol=1e-10,
        atol=1e-13,
    )


@pytest.mark.parametrize("name", ["ols", "logit"])
def test_one_pass_gives_both_sums(rows, weights, name):
    family = family_for(name)
    score, hessian = blocks.score_hessian(family, THETA, rows, weights)
    total = blocks.total_weight(rows, weights)
    np.testing.assert_allclose(score / total, blocks.mean_score(family, THETA, rows, weights))
    np.testing.assert_allclose(hessian / total, blocks.mean_hessian(family, THETA, rows, weights))


def test_a_family_of_the_bare_protocol_gets_the_same_sums(rows, weights):
    class Bare:
        """Least squares without the one-pass method."""

        def score_sum(self, theta, rows, weights):
            return family_for("ols").score_sum(theta, rows, weights)

        def hessian_sum(self, theta, rows, weights):
            return family_for("ols").hessian_sum(theta, rows, weights)

    bare = blocks.score_hessian(Bare(), THETA, rows, weights)
    fused = blocks.score_hessian(family_for("ols"), THETA, rows, weights)
    for ours, theirs in zip(bare, fused, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_same_rows_give_the_same_bits(rows, weights):
    family = family_for("logit")
    first = blocks.score_hessian(family, THETA, rows, weights)
    second = blocks.score_hessian(family, THETA, rows, weights)
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, two)


def test_memory_order_does_not_matter(rows, weights):
    other = Rows(y=rows.y, X=np.asfortranarray(rows.X))
    for one, two in zip(
        blocks.score_hessian(family_for("logit"), THETA, rows, weights),
        blocks.score_hessian(family_for("logit"), THETA, other, weights),
        strict=True,
    ):
        np.testing.assert_allclose(one, two, rtol=1e-11, atol=1e-10)


def test_cross_product(rows, weights):
    w = np.ones(N) if weights is None else weights
    X, Y = rows.X, rows.X[:, :2] ** 2
    np.testing.assert_allclose(
        blocks.cross_product(X, weights=weights), X.T @ (w[:, None] * X), rtol=1e-10, atol=1e-9
    )
    np.testing.assert_allclose(
        blocks.cross_product(X, Y, weights), X.T @ (w[:, None] * Y), rtol=1e-10, atol=1e-9
    )
    np.testing.assert_allclose(
        blocks.cross_product(X, rows.y, weights), X.T @ (w * rows.y), rtol=1e-10, atol=1e-9
    )


def test_meat_is_the_outer_product_of_weighted_scores(rows, weights):
    family = family_for("logit")
    w = np.ones(N) if weights is None else weights
    psi = family.score(THETA, rows) * w[:, None]
    np.testing.assert_allclose(
        blocks.score_meat(family, THETA, rows, weights), psi.T @ psi, rtol=1e-10, atol=1e-9
    )
    A = np.array([[1.0, 2.0, -1.0]])
    np.testing.assert_allclose(
        blocks.score_meat(family, THETA, rows, weights, A), A @ psi.T @ psi @ A.T, rtol=1e-10
    )


def test_cluster_sums_count_every_row_once(rows, weights):
    family = family_for("logit")
    w = np.ones(N) if weights is None else weights
    psi = family.score(THETA, rows) * w[:, None]
    cluster = np.random.default_rng(3).integers(0, 40, N)
    cluster[cluster == 7] = 8  # a cluster without rows
    sums = blocks.cluster_scores(family, THETA, rows, weights, cluster, 41)
    expected = np.zeros((41, 3))
    np.add.at(expected, cluster, psi)
    np.testing.assert_allclose(sums, expected, rtol=1e-9, atol=1e-10)
    assert not sums[[7, 40]].any()
