"""Cells with counts give the sums of the rows they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from trueup.estimation import collapse as collapse_module
from trueup.estimation.collapse import collapse
from trueup.estimation.shared import shared_fits, shared_moments, shared_scores
from trueup.families.registry import family_for
from trueup.formula.rows import MadeBlocks, Rows

N, TERMS = 9_000, ("Intercept", "a", "b")


def made(name, weighted, continuous=False, K=3):
    rng = np.random.default_rng(6)
    a, b = rng.integers(0, 3, N), rng.integers(0, 2, N)
    X = np.column_stack([np.ones(N), a, rng.normal(size=N) if continuous else b]).astype(float)
    eta = X @ np.array([0.2, -0.4, 0.5])
    labels = (rng.uniform(size=(K, N)) < 1 / (1 + np.exp(-eta))).astype(float)
    rows = tuple(Rows(y, X) for y in labels)
    w = np.where(a == 1, 2.5, 0.5) if weighted else None

    def shared(part):
        X_part = X[part]
        return tuple(Rows(r.y[part], X_part) for r in rows)

    return family_for(name), MadeBlocks(N, 3, True, True, 512, shared, 2048), w


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["ols", "logit", "poisson"])
def test_sums_and_fits_are_those_of_all_rows(name, weighted):
    family, blocks, w = made(name, weighted)
    cells = collapse(blocks, w)
    assert cells.blocks.n_rows == 3 * 2 * 2**3
    assert cells.counts.sum() == N
    active, thetas = np.array([0, 2]), np.array([[0.1, -0.2, 0.3], [0.0, 0.2, -0.1]])
    found = shared_scores(family, cells.blocks, thetas, cells.totals, active)
    wanted = shared_scores(family, blocks, thetas, w, active)
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-9)
    ours = shared_moments(family, cells.blocks, thetas, cells.weights, active, cells.counts)
    theirs = shared_moments(family, blocks, thetas, w, active)
    for found, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10)
    np.testing.assert_allclose(
        shared_fits(family, cells.blocks, cells.totals, TERMS),
        shared_fits(family, blocks, w, TERMS),
        rtol=1e-9,
    )


def test_rows_that_hardly_repeat_are_left_as_they_are():
    assert collapse(made("ols", False, continuous=True)[1], None) is None


def test_weights_part_cells():
    _, blocks, w = made("ols", True)
    assert collapse(blocks, w).blocks.n_rows == collapse(blocks, None).blocks.n_rows
    different = np.arange(N) % 2 + 1.0
    assert collapse(blocks, different).blocks.n_rows == 2 * collapse(blocks, None).blocks.n_rows
    assert collapse(blocks, np.random.default_rng(0).uniform(size=N)) is None


def test_rows_that_only_look_alike_are_not_merged(monkeypatch):
    _, blocks, _ = made("ols", False)
    monkeypatch.setattr(collapse_module, "_keys", lambda blocks, w, stride: np.zeros(N // stride))
    assert collapse(blocks, None) is None


def test_missing_values_are_left_to_the_fit():
    _, blocks, _ = made("ols", False)
    spoilt = np.full(N, np.nan)
    assert collapse(blocks, spoilt) is None
    spoilt[1:] = 1.0
    assert collapse(blocks, spoilt) is None
