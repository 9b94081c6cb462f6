"""The validity study, checked: its cells and truths, and a short form of its coverage.

The short form draws 200 samples in each of 12 cells that are open to tuning, cut to 2,000 rows. It
fails where a coverage leaves the band in which a method of known level stays with 99.9%; seeds are
fixed. The long form, behind the marker ``long``, runs all cells and writes the table.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.stats import binom

from trueup.corrections.registry import NAMES

from . import data, design, run, shards, summary
from .methods import ONE, Result, applies, attempt, known, problem_of, replicate

CELLS = design.read()
REPS = 200

#: The levels between which the coverage of a method is known to lie in these cells. Human-only
#: and expected score: within a point of what is aimed at. "auto" of one LLM is predict-then-
#: debias, whose intervals are short with a handful of errors in the coded rows (.90 in cells of
#: this kind) and wide with errors of another kind (.98).
LEVELS = {"human": (0.935, 0.97), "auto": (0.90, 0.98), "es": (0.935, 0.97)}

SHORT = [
    *(replace(CELLS[key], N=2_000) for key in ("c017", "c031", "c033", "c044", "c066", "c073")),
    *(replace(CELLS[key], N=2_000, p=3) for key in ("c020", "c076", "c103")),
    *(replace(CELLS[key], N=2_000) for key in ("f04", "f19", "f31")),
]


def band(low: float, high: float, reps: int) -> tuple[float, float]:
    """Return the shares of ``reps`` between which 99.9% fall for levels from low to high."""
    return (
        float(binom.ppf(0.0005, reps, low)) / reps,
        float(binom.ppf(0.9995, reps, high)) / reps,
    )


@pytest.mark.parametrize("cell", SHORT, ids=lambda cell: cell.id)
def test_intervals_hold_their_level(cell):
    # "auto" of several LLMs costs more than all else here: it is in the long form.
    auto = "auto@1" if cell.K > 1 else "auto"
    methods = ["human", auto, *(["es"] if "es" in NAMES else [])]
    rows = [
        {"method": method, **asdict(result)}
        for rep in range(REPS)
        for method, result in replicate(cell, rep, methods).items()
    ]
    table = summary.cell_table(cell, pd.DataFrame(rows)).set_index("method")
    for method in methods:
        row = table.loc[method]
        low, high = band(*LEVELS[method.removesuffix("@1")], REPS)
        assert row["failures"] <= 0.02, row.to_string()
        assert low <= row["coverage"] <= high, row.to_string()


def test_the_short_form_spans_the_factors():
    assert not any(cell.held_out for cell in SHORT)
    assert len(SHORT) == 12
    for factor in ("family", "side", "kind", "draw", "quality", "error"):
        assert {getattr(cell, factor) for cell in SHORT} == set(design.LEVELS[factor])


def test_cells_on_file_are_those_of_the_design():
    assert list(CELLS.values()) == design.make()
    assert [design.why_not(cell) for cell in CELLS.values()] == [None] * len(CELLS)


def test_cells_are_balanced_and_show_every_pair_of_levels():
    cells = [cell for cell in CELLS.values() if cell.id.startswith("c")]
    for factor, shares in design.LEVELS.items():
        counts = Counter(getattr(cell, factor) for cell in cells)
        for level, share in shares.items():
            assert abs(counts[level] - share * len(cells)) <= 3, (factor, level)

    def pairs(cell):
        return combinations([(f, getattr(cell, f)) for f in design.LEVELS], 2)

    shown = {pair for cell in cells for pair in pairs(cell)}
    rng = np.random.default_rng(1)
    possible = {pair for _ in range(4_000) for pair in pairs(design._draw(rng))}
    assert len(possible - shown) <= 1  # 663 of 664 pairs


def test_a_quarter_is_held_out_of_the_cells_nobody_had_seen():
    held = [cell.id for cell in CELLS.values() if cell.held_out]
    assert len(held) == round(len(CELLS) / 4)
    assert all(key.startswith("c") for key in held)


def test_a_changed_cell_has_another_folder():
    cell = CELLS["f01"]
    marked = replace(cell, held_out=True)
    assert shards.folder(Path(), cell) == shards.folder(Path(), marked)
    assert shards.folder(Path(), cell) != shards.folder(Path(), replace(cell, N=5_000))


def test_data_depend_on_the_cell_and_the_replication_only():
    cell = CELLS["c002"]
    first, again, other = data.draw(cell, 3), data.draw(cell, 3), data.draw(cell, 4)
    for name, column in first.columns.items():
        assert np.array_equal(column, again.columns[name]), name
    assert not np.array_equal(first.coded, other.coded)


def true_fit(cell, columns, true):
    """Fit the cell's regression to true values; return estimate and standard error."""
    y = columns.get("y", true.get("v"))
    if cell.side == "outcome" and cell.kind == "classes":
        y = y == 1
    N = len(y)
    if cell.side == "outcome":
        focal = [columns["t"]]
    elif cell.kind == "classes":
        focal = [true["w"] == k for k in (1, 2, 3)]
    else:
        focal = [true["w"]]
    controls = [columns[f"x{j}"] for j in range(1, data.n_controls(cell) + 1)]
    fixed = [np.ones(N)]
    if cell.family == "absorb":
        fixed = [columns["school"] == k for k in range(cell.n_groups)]
    parts = fixed if cell.family == "mean" else [*focal, *controls, *fixed]
    families = {"logit": sm.families.Binomial(), "poisson": sm.families.Poisson()}
    family = families.get(cell.family, sm.families.Gaussian())
    fit = sm.GLM(np.asarray(y, float), np.column_stack(parts).astype(float), family=family).fit(
        cov_type="cluster", cov_kwds={"groups": columns["group"]}
    )
    return fit.params[0], fit.bse[0]


@pytest.mark.parametrize(
    "key", ["f41", "c011", "c026", "c031", "c044", "c054", "c071", "c083", "c088", "c104"]
)
def test_the_true_coefficient_is_true(key):
    cell = CELLS[key]
    columns, true = data.population(cell, np.random.default_rng(5), 60_000)
    estimate, se = true_fit(cell, columns, true)
    assert abs(estimate - data.truth(cell)) < 4 * se
    # A wrong truth would not pass unseen: the standard error is small beside the coefficient.
    assert se < 0.12 * data.truth(cell)


@pytest.mark.parametrize("key", ["f02", "c004", "c035", "c069", "c009"])
def test_llms_are_as_good_as_the_cell_says(key):
    cell = CELLS[key]
    rng = np.random.default_rng(6)
    columns, true = data.population(cell, rng, 60_000)
    for name, value in true.items():
        first = data._labels(cell, name, columns, true, rng)[:, 0]
        if cell.kind == "continuous":
            quality = np.corrcoef(first, value)[0, 1] ** 2
        else:
            quality = (first == value).mean()
        assert quality == pytest.approx(cell.quality, abs=0.02)


def test_errors_are_what_they_are_called():
    rng = np.random.default_rng(7)
    wrong = {}
    for kind in ("nondifferential", "differential", "hard"):
        cell = replace(CELLS["f18"], error=kind)
        columns, true = data.population(cell, rng, 60_000)
        apart = data._labels(cell, "v", columns, true, rng) != true["v"][:, None]
        t, v = columns["t"] == 1, true["v"] == 1
        wrong[kind] = (apart[t & v, 0].mean(), apart[~t & v, 0].mean(), apart.all(axis=1).mean())
    for kind, ratio in (("nondifferential", 1.0), ("hard", 1.0), ("differential", 6.0)):
        assert wrong[kind][0] / wrong[kind][1] == pytest.approx(ratio, rel=0.25), kind
    # LLMs fail on the same items, more so where errors concentrate.
    assert wrong["nondifferential"][2] > 5 * 0.06**3
    assert wrong["hard"][2] > 1.5 * wrong["nondifferential"][2]


def test_statsmodels_on_llm_labels_is_the_naive_estimate():
    for key in ("f26", "c044", "c069"):
        cell = CELLS[key]
        problem = problem_of(cell, data.draw(cell, 0), 0)
        ours, theirs = (attempt(m, cell, problem) for m in ("naive", "statsmodels"))
        assert ours.failure == theirs.failure == ""
        assert theirs.estimate == pytest.approx(ours.estimate, rel=1e-6)
        assert theirs.se == pytest.approx(ours.se, rel=0.05)


def test_ppi_py_is_near_our_ppi():
    pytest.importorskip("ppi_py")
    for key in ("f18", "f26"):
        cell = CELLS[key]
        problem = problem_of(cell, data.draw(cell, 1), 1)
        ours, theirs = (attempt(m, cell, problem) for m in ("ppi++", "ppi_py"))
        assert theirs.failure == ""
        assert theirs.estimate == pytest.approx(ours.estimate, abs=ours.se)


def test_a_method_that_fails_says_why():
    cell = replace(CELLS["f26"], n=4)
    results = replicate(cell, 0, ["human", "auto"])
    assert all(r.failure for r in results.values())
    assert all(np.isnan(r.estimate) for r in results.values())
    nested = CELLS["c069"]
    refused = attempt("pspa", nested, problem_of(nested, data.draw(nested, 0), 0))
    assert refused.failure.startswith("CorrectionError: PSPA does not support clustered rows")


def test_methods_run_where_they_exist():
    assert "auto@1" in known()
    assert "human@1" not in known()
    assert set(ONE) >= {"human", "naive", "ptd"}
    assert applies("auto@1", CELLS["f01"])
    assert not applies("auto@1", replace(CELLS["f01"], K=1))
    assert not applies("ppi_py", CELLS["f01"])  # no labelled covariates


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "BATCH", 3)
    monkeypatch.setattr(run, "BATCH", 3)
    work, table = tmp_path / "work", tmp_path / "table.csv"
    common = ["--cells", "c045", "--work", str(work), "--table", str(table), "--jobs", "1"]
    run.main([*common, "--reps", "3", "--methods", "human"])
    first = shards.load(work, CELLS["c045"])
    run.main([*common, "--reps", "6", "--methods", "human,ptd"])
    second = shards.load(work, CELLS["c045"])
    assert len(first) == 3
    assert second.groupby("method")["rep"].apply(sorted).to_dict() == {
        "human": list(range(6)),
        "ptd": list(range(6)),
    }
    human = second[second["method"] == "human"].sort_values("rep").head(3)
    assert human["estimate"].tolist() == first["estimate"].tolist()
    written = pd.read_csv(table)
    monkeypatch.setattr(shards, "replicate", lambda cell, rep, methods: {"ptd": Result(rep)})
    run.main([*common, "--reps", "6", "--methods", "human", "--again", "ptd"])
    third = shards.load(work, CELLS["c045"]).sort_values("rep")
    assert third.loc[third["method"] == "ptd", "estimate"].tolist() == list(range(6))
    assert (third["method"] == "human").sum() == 6
    assert written[["method", "reps"]].to_numpy().tolist() == [["human", 6], ["ptd", 6]]
    assert "| human | 1 | 6-6 |" in (tmp_path / "summary.md").read_text()


def test_measures_of_made_numbers():
    cell = replace(CELLS["f18"])
    target = data.truth(cell)
    at = pd.DataFrame(
        {
            "method": "human",
            "estimate": target + np.array([-1.0, 1.0, -1.0, 1.0]),
            "se": 0.5,
            "low": target + np.array([-3.0, 0.5, -3.0, -1.0]),
            "high": target + np.array([-0.5, 3.0, 1.0, 3.0]),
            "informative": 7.0,
            "warned": [True, False, False, False],
            "failure": "",
        }
    )
    gone = pd.DataFrame({"method": ["human"], "failure": ["FitError: no"], "warned": [False]})
    row = summary.cell_table(cell, pd.concat([at, gone])).iloc[0]
    sd = 2.0 / 3**0.5
    expected = {
        "reps": 5,
        "failures": 0.2,
        "bias_sd": 0.0,
        "se_sd": 0.5 / sd,
        "coverage": 0.5,
        "mc_error": 0.25,
        "below": 0.25,
        "above": 0.25,
        "width": 3.25,
        "sd_human": 1.0,
        "warned": 0.25,
    }
    assert row[list(expected)].to_dict() == pytest.approx(expected)
    assert row["reason"] == "FitError: no"


@pytest.mark.long
def test_long_form():
    """Run all cells, TRUEUP_REPS replications each (default 1,000), and write the table.

    Where "auto" does not reach what is aimed at, it must warn.
    """
    reps = os.environ.get("TRUEUP_REPS", "1000")
    run.main(["--reps", reps, "--jobs", "2", "--budget", "1e9"])
    table = pd.read_csv(summary.TABLE)
    auto = table[table["method"] == "auto"]
    assert set(auto["cell"]) == set(CELLS)
    low = auto["coverage"] + 2 * auto["mc_error"] < summary.AIM[0]
    silent = auto[low & (auto["warned"] < 0.5)]
    assert silent.empty, silent.to_string()
