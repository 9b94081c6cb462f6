"""Coverage by simulation: a short form here, the long form behind the marker ``long``.

The short form draws 200 samples in each cell. A correct 95% interval misses the band checked
here (binomial, 99.9%) about once in a thousand runs; seeds are fixed.
"""

import os
from pathlib import Path

import pandas as pd
import pytest
from scipy.stats import binom

from simulation.cells import CORRECTIONS, Cell, run

REPS = 200
SHORT = [
    Cell("outcome", "ols", "srs", 100, 2_000),
    Cell("outcome", "logit", "unequal", 500, 2_000),
    Cell("covariate", "ols", "srs", 500, 2_000),
    Cell("covariate", "logit", "strata", 500, 2_000),
    Cell("outcome", "ols", "clusters", 500, 2_000),
    Cell("covariate", "ols", "units", 500, 2_000),
]
FAST = {k: CORRECTIONS[k] for k in ("naive", "human", "ppi", "ppi++", "ptd", "auto, 1 LLM")}


def band(reps: int, level: float = 0.95) -> tuple[float, float]:
    low, high = binom.ppf([0.0005, 0.9995], reps, level) / reps
    return float(low), float(high)


@pytest.mark.parametrize("cell", SHORT, ids=lambda c: c.name)
def test_default_intervals_hold_their_level(cell):
    table = run(cell, FAST, REPS).set_index("correction")
    low, _ = band(REPS)
    for name in ("human", "auto, 1 LLM"):
        assert table.loc[name, "coverage"] >= low, table.to_string()
        assert abs(table.loc[name, "bias_sd"]) < 4 / REPS**0.5 + 0.1, table.to_string()
    assert table.loc["auto, 1 LLM", "sd_human"] < 0.9, table.to_string()
    # 20% for the Monte Carlo error of a standard deviation from 200 draws, and then some.
    assert table.loc["auto, 1 LLM", "se_sd"] == pytest.approx(1.0, abs=0.2), table.to_string()


def test_taking_llm_labels_for_truth_does_not():
    table = run(SHORT[1], FAST, REPS).set_index("correction")
    assert table.loc["naive", "coverage"] < 0.5


LONG = [
    Cell(side, family, draw, n)
    for side in ("outcome", "covariate")
    for family in ("ols", "logit")
    for draw in ("srs", "unequal", "strata", "clusters", "units")
    for n in (100, 500)
    if not (draw == "units" and n == 100)
]


@pytest.mark.long
def test_long_form():
    """Write the table that the README quotes: TRUEUP_REPS replications (default 1,000) a cell."""
    reps = int(os.environ.get("TRUEUP_REPS", "1000"))
    out = Path(__file__).parent / "coverage.csv"
    tables = []
    for cell in LONG:
        tables.append(run(cell, CORRECTIONS, reps, n_jobs=2))
        pd.concat(tables).round(4).to_csv(out, index=False)
    table = pd.concat(tables)
    default = table[table["correction"].isin(["human", "auto, 1 LLM"])]
    assert (default["coverage"] > 0.90).all(), default.to_string()
