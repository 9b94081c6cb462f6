"""Coverage of the intervals of agreement measures, by sampling design.

The short form draws 200 samples in each cell and checks the lower end of a 99.9% band; the long
form draws more and writes the table. Seeds are fixed.
"""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from joblib import Parallel, delayed
from scipy.stats import binom

import trueup as tu

REPS = 200
N, PER_AUTHOR = 3_000, 10
DRAWS = ("srs", "unequal", "strata", "units", "clusters")
MEASURES = {
    "class": ["accuracy", "sensitivity", "specificity", "kappa", "alpha_nominal"],
    "score": ["correlation", "mean_error", "mean_abs_error", "alpha_interval"],
}


def population(rng, n=N, alike=0.0):
    """Return n rows: a class and a score with their LLM labels, which err more in some groups.

    Rows of an author share the part ``alike`` of the variance of trait and difficulty.
    """
    author = np.arange(n) // PER_AUTHOR
    shared = rng.normal(size=(author[-1] + 1, 2))[author]
    own = rng.normal(size=(n, 2))
    trait, hard = (np.sqrt(alike) * shared + np.sqrt(1.0 - alike) * own).T
    group = rng.choice(list("abc"), n, p=[0.6, 0.3, 0.1])
    v = (trait + 0.4 * (group == "c") > 0.3).astype(float)
    rate = pd.Series(group).map({"a": -1.2, "b": -0.8, "c": -0.5}).to_numpy() + 0.3 * v
    score = trait + (group == "c")
    return pd.DataFrame(
        {
            "author": author,
            "group": group,
            "v": v,
            "f": np.where(hard < rate, 1.0 - v, v),
            "u": score,
            "g": 0.1 * (group == "b") + 0.8 * score + 0.5 * hard,
        }
    )


@cache
def truth():
    """Return the measures in a million rows, with the formulas of the definitions."""
    d = population(np.random.default_rng(0), 1_000_000)
    v, f, u, g = (d[c].to_numpy() for c in ("v", "f", "u", "g"))
    right = (v == f).mean()
    p, q = v.mean(), f.mean()
    pooled = (p + q) / 2
    both = np.concatenate([u, g])
    return {
        "accuracy": right,
        "sensitivity": f[v == 1].mean(),
        "specificity": 1 - f[v == 0].mean(),
        "kappa": 1 - (1 - right) / (1 - p * q - (1 - p) * (1 - q)),
        "alpha_nominal": 1 - (1 - right) / (2 * pooled * (1 - pooled)),
        "correlation": np.corrcoef(u, g)[0, 1],
        "mean_error": (g - u).mean(),
        "mean_abs_error": np.abs(g - u).mean(),
        "alpha_interval": 1 - ((g - u) ** 2).mean() / (2 * both.var()),
    }


def code(draw, n, rng):
    """Return the study of one population and one coded sample."""
    # Designs without clusters take rows as independent of each other.
    d = population(rng, alike=0.3 if draw in ("units", "clusters") else 0.0)
    coded = np.zeros(N, dtype=bool)
    options = {}
    if draw == "unequal":
        size = 1.0 + 2.0 * d["f"] + (d["group"] == "c")
        d["pi"] = n * size / size.sum()
        coded = rng.random(N) < d["pi"]
        options["sampling"] = tu.Sampling(probability="pi", method="poisson")
    elif draw == "strata":
        for rows in d.groupby("group").indices.values():
            coded[rng.choice(rows, n // 3, replace=False)] = True
        options["sampling"] = tu.Sampling(strata="group")
    elif draw == "units":
        coded = d["author"].isin(rng.choice(N // PER_AUTHOR, n // PER_AUTHOR, replace=False))
        options["sampling"] = tu.Sampling(unit="author")
    else:
        coded[rng.choice(N, n, replace=False)] = True
        if draw == "clusters":
            options["cluster"] = "author"
    for label, column in (("v", "hv"), ("u", "hu")):
        d[column] = d[label].where(coded)
    human, llm = {"class": "hv", "score": "hu"}, {"class": {"m": "f"}, "score": {"m": "g"}}
    return tu.Study(d.drop(columns=["v", "u"]), human=human, llm=llm, **options)


def replicate(draw, n, seed):
    study = code(draw, n, np.random.default_rng([7, seed, n]))
    tables = [tu.agreement(study, v).table.set_index("measure").loc[MEASURES[v]] for v in MEASURES]
    return pd.concat(tables)[["estimate", "std_error", "conf_low", "conf_high"]]


def coverage(draw, n, reps, n_jobs=1):
    """Return for each measure the coverage, and the mean standard error over the spread."""
    target = pd.Series(truth())
    found = Parallel(n_jobs=n_jobs)(delayed(replicate)(draw, n, seed) for seed in range(reps))
    draws = pd.concat(found, keys=range(reps), names=["draw"]).reset_index()
    rows = []
    for measure, part in draws.groupby("measure", sort=False):
        covered = part["conf_low"].le(target[measure]) & part["conf_high"].ge(target[measure])
        bias = (part["estimate"].mean() - target[measure]) / part["estimate"].std()
        ratio = part["std_error"].mean() / part["estimate"].std()
        rows.append((draw, n, measure, bias, ratio, covered.mean()))
    return pd.DataFrame(rows, columns=["draw", "n", "measure", "bias_sd", "se_sd", "coverage"])


@pytest.mark.parametrize("draw", DRAWS)
def test_intervals_hold_their_level(draw):
    table = coverage(draw, 300, REPS)
    # Wilson's interval takes no share to rest on more rows than there are, and so is wide where
    # the draw takes more of the rows that err: only the lower end is checked.
    assert (table["coverage"] >= binom.ppf(0.0005, REPS, 0.95) / REPS).all(), table.to_string()
    # Four Monte Carlo errors of a mean, and of a standard deviation, from 200 draws.
    assert (table["bias_sd"].abs() < 4 / REPS**0.5 + 0.1).all(), table.to_string()
    assert table["se_sd"].between(0.8, 1.2).all(), table.to_string()


@pytest.mark.long
def test_long_form():
    """Write the table: TRUEUP_REPS replications (default 1,000) a cell."""
    reps = int(os.environ.get("TRUEUP_REPS", "1000"))
    tables = [coverage(draw, n, reps, n_jobs=2) for draw in DRAWS for n in (100, 300)]
    table = pd.concat(tables)
    table.round(4).to_csv(Path(__file__).parent / "agreement.csv", index=False)
    assert (table["coverage"] > 0.92).all(), table.to_string()
