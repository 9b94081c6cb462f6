"""Joint inference by simulation: 200 draws, bands of 99.9%, seeds fixed."""

import os
import warnings

import numpy as np
import pandas as pd
import pytest
from joblib import Parallel, delayed
from scipy.stats import binom

import trueup as tu
from simulation.cells import Cell, code, population, truth

REPS = 200
CELL = Cell("outcome", "ols", "srs", 500, 10_000)
SMALL = Cell("outcome", "ols", "srs", 40, 2_000)
STATISTICS = ("median", "share of dominant sign", "share significant", "mean z")
CURVES = [
    f"curve, {kind}, {statistic}" for kind in ("LLM-only", "others") for statistic in STATISTICS
]


def draw(seed, target, cell=CELL):
    """Return what joint inference says of one draw; ``u`` is a covariate without effect."""
    rng = np.random.default_rng([11, seed])
    d, options = code(cell, population(cell, cell.N, rng), rng)
    d["u"] = rng.normal(size=cell.N)
    corrections = ["naive", "human", "ptd"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tu.errors.TrueupWarning)
        s = tu.Study(d, human={"v": "coder"}, llm={"v": ["a", "b", "c"]}, **options)
        mv = tu.multiverse("v ~ t + x + u", s, focus="t", corrections=corrections, progress=False)
    fair = mv.tidy().set_index("correction").loc[["human", "ptd"]]
    inside = (fair["simultaneous_low"] <= target) & (target <= fair["simultaneous_high"])
    agree = mv.agree_test().tests.set_index("correction")
    pooled = mv.pool()
    curve = mv.curve_test("u").tests.set_index(["universes", "statistic"])["p_value"]
    effect = mv.curve_test("t").tests.set_index(["universes", "statistic"])["p_value"]
    return {
        "joint": inside.all(),
        "corrected": agree.loc["ptd", "p_value"] < 0.05,
        "corrected, largest": agree.loc["ptd", "p_largest"] < 0.05,
        "LLM-only": agree.loc["naive", "p_value"] < 0.05,
        "pooled": pooled.conf_low <= target <= pooled.conf_high,
        **{f"curve, {kind}, {name}": p < 0.05 for (kind, name), p in curve.items()},
        "effect": effect["others", "median"] < 0.05,
    }


@pytest.fixture(scope="module")
def shares():
    target = truth("outcome", "ols", "srs")
    return pd.DataFrame([draw(seed, target) for seed in range(REPS)]).mean()


def band(level, reps=REPS):
    low, high = binom.ppf([0.0005, 0.9995], reps, level) / reps
    return float(low), float(high)


def test_sup_t_intervals_hold_jointly(shares):
    # They are made for LLM-only universes too, and so are wider than these alone need.
    assert shares["joint"] >= band(0.95)[0]


def test_pooled_intervals_hold_their_level(shares):
    low, high = band(0.95)
    assert low <= shares["pooled"] <= high


@pytest.mark.parametrize("name", ["corrected", "corrected, largest"])
def test_equality_of_corrected_universes_is_rejected_at_its_level(shares, name):
    low, high = band(0.05)
    assert low <= shares[name] <= high


def test_equality_of_llm_only_universes_is_rejected(shares):
    assert shares["LLM-only"] > 0.5


@pytest.mark.parametrize("name", CURVES)
def test_curves_without_effect_are_rejected_at_their_level(shares, name):
    low, high = band(0.05)
    assert shares[name] <= high
    # Shares of few universes take few values: their tests reject less often than they may.
    if "share" not in name:
        assert low <= shares[name]


def test_a_curve_with_an_effect_is_rejected(shares):
    assert shares["effect"] > 0.99


def test_sup_t_intervals_hold_jointly_with_forty_coded_rows():
    target = truth("outcome", "ols", "srs")
    joint = [draw(seed, target, SMALL)["joint"] for seed in range(REPS)]
    assert np.mean(joint) >= band(0.95)[0]


@pytest.mark.long
@pytest.mark.parametrize("cell", [CELL, SMALL], ids=lambda c: c.name)
def test_long_form(cell):
    """TRUEUP_REPS replications (default 1,000): joint coverage, and size of the curve's tests."""
    reps = int(os.environ.get("TRUEUP_REPS", "1000"))
    target = truth("outcome", "ols", "srs")
    draws = Parallel(n_jobs=2)(delayed(draw)(1_000 + seed, target, cell) for seed in range(reps))
    found = pd.DataFrame(draws).mean()
    assert found["joint"] >= band(0.94, reps)[0], found.to_string()
    assert (found[CURVES] <= band(0.06, reps)[1]).all(), found.to_string()
