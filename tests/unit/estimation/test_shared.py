"""Shared passes for several annotators give what separate fits give."""

from __future__ import annotations

import numpy as np
import pytest

from trueup.errors import FitError
from trueup.estimation import shared as shared_module
from trueup.estimation.blocks import MANY_COLUMNS, add_gram, score_hessian, score_meat
from trueup.estimation.shared import (
    shareable,
    shared_fits,
    shared_hessians,
    shared_moments,
    shared_scores,
)
from trueup.estimation.solve import fit
from trueup.families.registry import family_for
from trueup.formula.rows import MadeBlocks, Rows

FAMILY = {
    **{name: family_for(name) for name in ("ols", "logit", "probit", "poisson", "mean")},
    "cloglog": family_for("binomial", link="cloglog"),
    "cauchy": family_for("binomial", link="cauchy"),
}
N, K, P = 6_000, 5, 4
TERMS = tuple(f"x{j}" for j in range(P))


def outcome(family, eta, rng):
    if family.name in ("ols", "mean"):
        return eta + rng.normal(size=len(eta))
    if family.name == "poisson":
        return rng.poisson(np.exp(eta)).astype(float)
    return (rng.uniform(size=len(eta)) < family.inverse(eta)).astype(float)


def made(name, moving=False, N=N, seed=3):
    """Return rows under each annotator."""
    rng, family = np.random.default_rng(seed), FAMILY[name]
    p = 1 if name == "mean" else P
    X = np.column_stack([np.ones(N), rng.normal(size=(N, p - 1))])
    eta = X @ np.linspace(0.2, -0.4, p)
    rows = []
    for _ in range(K):
        if moving:
            X = X.copy()
            X[:, -1] = rng.integers(0, 2, N)
        rows.append(Rows(outcome(family, eta, rng), X))
    return family, tuple(rows)


def blocks_of(rows, size=500, made_rows=1_500):
    def make(part):
        cut = [r.take(part) for r in rows]
        same = rows[0].X is rows[-1].X
        return tuple(Rows(c.y, cut[0].X if same else c.X) for c in cut)

    shared = rows[0].X is rows[-1].X
    return MadeBlocks(len(rows[0]), rows[0].n_coef, shared, True, size, make, made_rows)


def weights_of(weighted, n=N):
    return np.random.default_rng(8).uniform(0.2, 3.0, n) if weighted else None


@pytest.fixture(params=[False, True], ids=["", "many"])
def many(request, monkeypatch):
    """Take the path of large tables for these small ones."""
    if request.param:
        monkeypatch.setattr(shared_module, "FEW_ROWS", 0)
        monkeypatch.setattr(shared_module, "START_ROWS", 700)
    return request.param


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("name", FAMILY)
def test_coefficients_are_those_of_separate_fits(name, moving, weighted, many):
    family, rows = made(name, moving)
    w = weights_of(weighted)
    found = shared_fits(family, blocks_of(rows), w, TERMS)
    for theta, r in zip(found, rows, strict=True):
        wanted = fit(family, r, w, TERMS)
        np.testing.assert_allclose(theta, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("name", FAMILY)
def test_sums_are_those_of_separate_passes(name, moving):
    family, rows = made(name, moving)
    w, blocks = weights_of(True), blocks_of(rows)
    active = np.array([0, 3])
    rng = np.random.default_rng(1)
    thetas = rng.normal(scale=0.3, size=(2, rows[0].n_coef))
    scores = shared_scores(family, blocks, thetas, w, active)
    hessians, meats = shared_moments(family, blocks, thetas, w, active)
    alone = shared_hessians(family, blocks, thetas, w, active)
    for j, k in enumerate(active):
        s, H = score_hessian(family, thetas[j], rows[k], w)
        np.testing.assert_allclose(scores[j], s, rtol=1e-11, atol=1e-9)
        np.testing.assert_allclose(hessians[j], H, rtol=1e-11, atol=1e-9)
        np.testing.assert_array_equal(alone[j], hessians[j])
        meat = score_meat(family, thetas[j], rows[k], w)
        np.testing.assert_allclose(meats[j], meat, rtol=1e-11, atol=1e-9)


def test_least_squares_reads_the_rows_once(many):
    family, rows = made("ols")
    blocks, passes = counted(blocks_of(rows))
    shared_fits(family, blocks, None, TERMS)
    assert len(passes) == 1


def test_least_squares_on_nearly_collinear_columns_is_refined():
    family, rows = made("ols")
    X = rows[0].X.copy()
    X[:, 2] = X[:, 1] + 1e-4 * X[:, 2]
    X[:, 3] += 1e4
    rows = tuple(Rows(r.y, X) for r in rows)
    blocks, passes = counted(blocks_of(rows))
    found = shared_fits(family, blocks, None, TERMS)
    assert len(passes) == 2
    for theta, r in zip(found, rows, strict=True):
        exact = np.linalg.lstsq(X, r.y, rcond=None)[0]
        np.testing.assert_allclose(X @ theta, X @ exact, rtol=0, atol=1e-8)


def counted(blocks):
    passes = []

    class Counted:
        n_rows, n_coef = blocks.n_rows, blocks.n_coef
        shared_design, stored = blocks.shared_design, blocks.stored

        def __iter__(self):
            return iter(blocks)

        def total(self, sums):
            passes.append(1)
            return blocks.total(sums)

    return Counted(), passes


def test_a_logit_needs_few_passes():
    family, rows = made("logit", N=shared_module.FEW_ROWS)
    blocks, passes = counted(blocks_of(rows))
    assert all(theta is not None for theta in shared_fits(family, blocks, None, TERMS))
    assert len(passes) <= 8


def test_a_far_start_is_mended_by_exact_hessians(monkeypatch):
    monkeypatch.setattr(shared_module, "FEW_ROWS", 0)
    family, rows = made("logit")
    wanted = [fit(family, r, None, TERMS) for r in rows]
    poor = lambda family, rows, w, terms, start=None: np.array([0.9, -0.9, 0.9, 0.4])  # noqa: E731
    monkeypatch.setattr(shared_module, "fit", poor)
    refreshed = []
    exact = shared_module.shared_hessians
    monkeypatch.setattr(
        shared_module, "shared_hessians", lambda *args: refreshed.append(1) or exact(*args)
    )
    found = shared_fits(family, blocks_of(rows), None, TERMS)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    assert refreshed


@pytest.mark.parametrize("name", ["ols", "logit"])
def test_an_annotator_that_fails_leaves_the_others_alone(name, many):
    family, rows = made(name)
    bad = rows[1].y.copy()
    bad[17] = np.nan
    rows = (rows[0], Rows(bad, rows[0].X), *rows[2:])
    found = shared_fits(family, blocks_of(rows), None, TERMS)
    assert found[1] is None
    for k in (0, 2, 3, 4):
        np.testing.assert_allclose(found[k], fit(family, rows[k], None, TERMS), rtol=1e-9)


def test_separated_labels_are_left_to_the_fit_that_explains_them(many):
    family, rows = made("logit")
    split = Rows((rows[0].X[:, 1] > 0).astype(float), rows[0].X)
    found = shared_fits(family, blocks_of((rows[0], split)), None, TERMS)
    assert found[1] is None
    assert found[0] is not None
    with pytest.raises(FitError, match="predicted perfectly"):
        fit(family, split, None, TERMS)


def test_collinear_columns_are_left_to_the_fit_that_explains_them(many):
    for name in ("ols", "logit"):
        family, rows = made(name)
        X = rows[0].X.copy()
        X[:, 3] = X[:, 1] - X[:, 2]
        assert (
            shared_fits(family, blocks_of(tuple(Rows(r.y, X) for r in rows)), None, TERMS)
            == [None] * K
        )


def test_sums_do_not_depend_on_the_number_of_threads(monkeypatch):
    family, rows = made("logit")
    thetas = np.full((K, P), 0.1)
    seen = []
    for threads in (1, 3):
        monkeypatch.setattr("trueup.formula.passes._threads", lambda _, n=threads: n)
        seen.append(shared_scores(family, blocks_of(rows), thetas, None, np.arange(K)))
    np.testing.assert_array_equal(seen[0], seen[1])


def test_families_with_nuisance_parts_are_not_shared():
    assert [n for n in ("ols", "logit", "mean", "absorb", "iv") if shareable(family_for(n))] == [
        "ols",
        "logit",
        "mean",
    ]


@pytest.mark.parametrize("weighted", [False, True])
def test_a_block_of_dummies_has_the_products_of_any_other(weighted):
    rng = np.random.default_rng(2)
    X = np.zeros((300, MANY_COLUMNS))
    X[:, 0] = 1.0
    X[np.arange(300), rng.integers(1, MANY_COLUMNS, 300)] = rng.normal(size=300)
    w = weights_of(weighted, 300)
    found = np.ones((MANY_COLUMNS, MANY_COLUMNS))
    add_gram(found, X, w)
    wanted = 1.0 + X.T @ (X if w is None else X * w[:, None])
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
