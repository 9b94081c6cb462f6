"""Absorbed effects against explicit dummies and against linearmodels."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from linearmodels.iv import AbsorbingLS

from trueup.errors import CollinearityError, FitError, FormulaError
from trueup.estimation.rank import check_rank
from trueup.estimation.solve import fit
from trueup.families import absorb
from trueup.families.absorb import AbsorbedOLS
from trueup.families.linear import OLS
from trueup.formula.rows import Rows

FAMILY = AbsorbedOLS()
TERMS = ("x", "z")


def panel(n=240, effects=2, seed=0, gaps=False):
    """Unbalanced groups with effects that are correlated with the covariates."""
    rng = np.random.default_rng(seed)
    groups = tuple(rng.integers(0, size, n) for size in (15, 6, 4)[:effects])
    shift = sum(rng.normal(size=g.max() + 1)[g] for g in groups)
    X = rng.normal(size=(n, 2)) + shift[:, None] + 50.0
    y = X @ np.array([1.0, -0.5]) + 3.0 * shift + rng.normal(size=n)
    if gaps:
        groups = tuple(1000 * g + 7 for g in groups)
    return Rows(y=y, X=X, groups=groups), rng.uniform(0.2, 3.0, n)


def dummies(groups):
    """One column for each level of each effect."""
    return np.hstack([(g[:, None] == np.unique(g)).astype(float) for g in groups])


def residuals(values, groups, weights):
    root = np.sqrt(weights)[:, None]
    D = dummies(groups) * root
    coef = np.linalg.lstsq(D, values * root, rcond=None)[0]
    return values - dummies(groups) @ coef


@pytest.fixture(params=["sweep", "sparse"])
def _projection(request, monkeypatch):
    """Both ways to project several effects out: few levels, and very many."""
    monkeypatch.setattr(absorb, "MAX_DENSE_LEVELS", 4000 if request.param == "sweep" else 0)


@pytest.mark.usefixtures("_projection")
@pytest.mark.parametrize("effects", [1, 2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("gaps", [False, True])
def test_demeaning_is_the_residual_on_dummies(effects, weighted, gaps):
    rows, w = panel(effects=effects, gaps=gaps)
    weights = w if weighted else None
    prepared = FAMILY.prepare(rows, weights)
    expected = residuals(
        np.column_stack([rows.y, rows.X]), rows.groups, w if weighted else np.ones(len(rows))
    )
    np.testing.assert_allclose(prepared.y, expected[:, 0], atol=1e-10)
    np.testing.assert_allclose(prepared.X, expected[:, 1:], atol=1e-10)


@pytest.mark.parametrize("effects", [1, 2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_coefficients_are_those_of_linearmodels_and_of_dummies(effects, weighted):
    rows, w = panel(effects=effects)
    weights = w if weighted else None
    theta = fit(FAMILY, FAMILY.prepare(rows, weights), weights, TERMS)
    absorbed = pd.DataFrame({str(k): pd.Categorical(g) for k, g in enumerate(rows.groups)})
    peer = AbsorbingLS(rows.y, rows.X, absorb=absorbed, weights=weights).fit(
        method="lsmr", absorb_options={"atol": 1e-14, "btol": 1e-14}, use_cache=False
    )
    np.testing.assert_allclose(theta, peer.params, rtol=1e-9)
    full = np.hstack([rows.X, dummies(rows.groups)])
    root = np.sqrt(w if weighted else np.ones(len(rows)))
    wide = np.linalg.lstsq(full * root[:, None], rows.y * root, rcond=None)[0]
    np.testing.assert_allclose(theta, wide[:2], rtol=1e-10)


@given(st.integers(0, 1000), st.floats(-1e3, 1e3))
def test_adding_a_constant_to_a_group_changes_nothing(seed, shift):
    rows, w = panel(n=60, seed=seed)
    moved = Rows(y=rows.y + shift * (rows.groups[0] == 3), X=rows.X, groups=rows.groups)
    np.testing.assert_allclose(
        FAMILY.prepare(moved, w).y, FAMILY.prepare(rows, w).y, atol=1e-9 * (1 + abs(shift))
    )


@pytest.mark.parametrize("effects", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_shared_centring_solves_the_corrected_equation_with_dummies(effects, weighted):
    """Same root as least squares with explicit dummies, which need no centring."""
    rng = np.random.default_rng(5)
    every, a = panel(n=200, effects=effects)
    weights = a if weighted else None
    coded = np.sort(rng.choice(200, 80, replace=False))
    machine = every.take(coded)
    human = Rows(
        y=machine.y + rng.normal(size=80),
        X=machine.X + rng.normal(size=(80, 2)) * [1.0, 0.0],
        groups=machine.groups,
    )
    c = rng.uniform(1.0, 4.0, 80)
    ready = FAMILY.prepare_pair(every, human, machine, coded, c, weights)
    score, hessian = combined(FAMILY, ready, c, weights)
    theta = np.linalg.solve(hessian, score)

    D = dummies(every.groups)
    wide = [
        Rows(y=part.y, X=np.hstack([part.X, D[index]]))
        for part, index in ((every, slice(None)), (human, coded), (machine, coded))
    ]
    score, hessian = combined(OLS(), wide, c, weights)
    expected = np.linalg.lstsq(hessian, score, rcond=1e-12)[0]
    np.testing.assert_allclose(theta, expected[:2], rtol=1e-8)


def combined(family, parts, c, weights):
    """Score at zero and Hessian of the sum over all rows plus the correction."""
    zero = np.zeros(parts[0].n_coef)
    signs = ((parts[0], weights), (parts[1], c), (parts[2], -c))
    return (
        sum(family.score_sum(zero, rows, w) for rows, w in signs),
        sum(family.hessian_sum(zero, rows, w) for rows, w in signs),
    )


def test_group_means_of_the_pair_are_those_of_the_corrected_values():
    """One effect: the centre of a group is mean(machine + c (human - machine)) over its rows."""
    rng = np.random.default_rng(2)
    every, _ = panel(n=100, effects=1)
    coded = np.arange(0, 100, 4)
    machine = every.take(coded)
    human = Rows(y=machine.y + 1.5, X=machine.X, groups=machine.groups)
    c = rng.uniform(2.0, 5.0, 25)
    ready, _, _ = FAMILY.prepare_pair(every, human, machine, coded, c, None)
    corrected = every.y.copy()
    corrected[coded] += 1.5 * c
    g = every.groups[0]
    means = np.array([corrected[g == k].mean() for k in range(g.max() + 1)])
    np.testing.assert_allclose(ready.y, every.y - means[g], rtol=1e-12, atol=1e-12)


def expected_leverage(rows, w):
    """1 - h = (1 - own) sqrt(1 - effects), with hat values of explicit dummies."""
    groups = dummies(rows.groups) * np.sqrt(w)[:, None]
    full = np.hstack([rows.X * np.sqrt(w)[:, None], groups])
    effects = np.einsum("ij,ji->i", groups, np.linalg.pinv(groups))
    own = np.einsum("ij,ji->i", full, np.linalg.pinv(full)) - effects
    return 1.0 - (1.0 - own) * np.sqrt(1.0 - effects)


def test_leverage_with_one_effect_is_that_of_the_dummies():
    rows, w = panel(effects=1)
    prepared = FAMILY.prepare(rows, w)
    hat = FAMILY.leverage(np.zeros(2), prepared, w)
    np.testing.assert_allclose(hat, expected_leverage(rows, w), atol=1e-9)


def test_the_effects_of_pairs_count_once_in_the_variance():
    # Groups of two rows: HC3 must double the squared residuals for the effects, not fourfold them.
    rng = np.random.default_rng(0)
    rows = Rows(rng.normal(size=400), rng.normal(size=(400, 1)), groups=(np.arange(400) // 2,))
    hat = FAMILY.leverage(np.zeros(1), FAMILY.prepare(rows, None), np.ones(400))
    np.testing.assert_allclose(np.median(1 / (1 - hat) ** 2), 2.0, rtol=0.02)


def test_leverage_with_two_effects_is_exact_for_an_even_crossing():
    rng = np.random.default_rng(0)
    first, second = np.divmod(np.arange(60) % 20, 5)
    rows = Rows(y=rng.normal(size=60), X=rng.normal(size=(60, 2)), groups=(first, second))
    prepared = FAMILY.prepare(rows, None)
    hat = FAMILY.leverage(np.zeros(2), prepared, np.ones(60))
    np.testing.assert_allclose(hat, expected_leverage(rows, np.ones(60)), atol=1e-9)


def test_rows_that_the_effects_fit_perfectly_contribute_nothing():
    # The row of group 3 is alone. Without it, the row of level 2 of the second effect is.
    rows = Rows(
        y=np.array([1.0, 2.0, 4.0, 3.0, 9.0, 5.0, 2.5]),
        X=np.array([[0.0], [1.0], [1.0], [3.0], [2.0], [7.0], [1.0]]),
        groups=(np.array([0, 0, 1, 1, 3, 1, 0]), np.array([0, 1, 0, 1, 2, 2, 1])),
    )
    prepared = FAMILY.prepare(rows, None)
    theta = fit(FAMILY, prepared, None, ("x",))
    hat = FAMILY.leverage(theta, prepared, np.ones(7))
    np.testing.assert_array_equal(np.flatnonzero(hat == 0.0), [4, 5])
    np.testing.assert_allclose(FAMILY.score(theta, prepared)[[4, 5]], 0.0, atol=1e-12)
    without = rows.take(np.array([0, 1, 2, 3, 6]))
    again = fit(FAMILY, FAMILY.prepare(without, None), None, ("x",))
    np.testing.assert_allclose(theta, again, rtol=1e-10)


def test_hat_values_stay_below_one():
    rows = Rows(
        y=np.array([1.0, 2.0, 4.0, 3.0]),
        X=np.array([[0.0], [1.0], [0.0], [0.0]]),
        groups=(np.array([0, 0, 1, 1]),),
    )
    hat = FAMILY.leverage(np.zeros(1), FAMILY.prepare(rows, None), np.ones(4))
    assert hat.max() < 1.0


@pytest.mark.usefixtures("_projection")
@pytest.mark.parametrize("effects", [1, 2])
def test_a_column_constant_within_groups_is_named(effects):
    rows, w = panel(effects=effects)
    level = np.random.default_rng(0).normal(size=20)[rows.groups[0]] * 1e4
    rows = Rows(y=rows.y, X=np.column_stack([rows.X, level]), groups=rows.groups)
    with pytest.raises(CollinearityError, match="'size' is 0 in every row"):
        check_rank(FAMILY.prepare(rows, w).X, (*TERMS, "size"), weights=w)


def test_without_effects_says_how_to_write_them():
    with pytest.raises(FormulaError, match=r"y ~ x \| group"):
        FAMILY.prepare(Rows(y=np.ones(3), X=np.ones((3, 1))), None)


def test_groups_of_one_row_each_leave_nothing():
    rows = Rows(y=np.ones(3), X=np.ones((3, 1)), groups=(np.arange(3),))
    with pytest.raises(FitError, match="alone in its group"):
        FAMILY.prepare(rows, None)


def test_weight_zero_with_a_correction_is_refused():
    rows, _ = panel(n=40, effects=1)
    part = rows.take(np.array([0, 1]))
    weights = np.ones(40)
    weights[1] = 0.0
    with pytest.raises(FitError, match="weight 0"):
        FAMILY.prepare_pair(rows, part, part, np.array([0, 1]), np.ones(2), weights)


@pytest.mark.usefixtures("_projection")
@pytest.mark.parametrize("effects", [1, 2])
def test_rows_of_weight_zero_change_nothing(effects):
    rows, w = panel(effects=effects)
    w[:40] = 0.0
    rest = rows.take(np.arange(40, len(rows)))
    theta = fit(FAMILY, FAMILY.prepare(rows, w), w, TERMS)
    expected = fit(FAMILY, FAMILY.prepare(rest, w[40:]), w[40:], TERMS)
    np.testing.assert_allclose(theta, expected, rtol=1e-10)
