"""Joint inference by simulation: 200 draws, bands of 99.9%, seeds fixed."""

import warnings

import numpy as np
import pytest
from scipy.stats import binom

import trueup as tu
from simulation.cells import Cell, code, population, truth

REPS = 200
CELL = Cell("outcome", "ols", "srs", 500, 10_000)


@pytest.fixture(scope="module")
def draws():
    out = []
    target = truth("outcome", "ols", "srs")
    for seed in range(REPS):
        rng = np.random.default_rng([11, seed])
        d, options = code(CELL, population(CELL, CELL.N, rng), rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tu.errors.TrueupWarning)
            s = tu.Study(d, human={"v": "coder"}, llm={"v": ["a", "b", "c"]}, **options)
            mv = tu.multiverse(
                "v ~ t + x", s, focus="t", corrections=["naive", "human", "ptd"], progress=False
            )
        table = mv.tidy().set_index("correction")
        fair = table.loc[["human", "ptd"]]
        inside = (fair["simultaneous_low"] <= target) & (target <= fair["simultaneous_high"])
        tests = mv.agree_test().tests.set_index("correction")["p_value"]
        out.append((inside.all(), tests["ptd"] < 0.05, tests["naive"] < 0.05))
    return np.array(out).mean(axis=0)


def test_sup_t_intervals_hold_jointly(draws):
    # They are made for LLM-only universes too, and so are wider than these alone need.
    assert draws[0] >= binom.ppf(0.0005, REPS, 0.95) / REPS


def test_equality_of_corrected_universes_is_rejected_at_its_level(draws):
    # The t reference errs on the safe side: the upper end of the band only.
    assert draws[1] <= binom.ppf(0.9995, REPS, 0.05) / REPS


def test_equality_of_llm_only_universes_is_rejected(draws):
    assert draws[2] > 0.5
