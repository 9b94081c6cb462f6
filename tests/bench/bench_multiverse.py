"""Time of a multiverse, as ratios to named baselines measured in the same process.

Run ``python tests/bench/bench_multiverse.py`` (one BLAS thread: set OPENBLAS_NUM_THREADS=1).

1. 8 annotators x 2 formulas x 4 corrections on N rows, against the 8 LLM-only fits of the longer
   formula, and against the same fits one by one. A fit to human labels alone uses no LLM and is
   made once, so 8 x 2 x 4 combinations are 50 universes.
2. 1,000 universes on 5,000 rows, in seconds.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import pandas as pd

import trueup as tu

CORRECTIONS = ["naive", "human", "ppi++", "ptd"]
P = 20


def made(N, annotators, rng, n=1_000):
    X = rng.normal(size=(N, P - 1))
    v = X @ np.linspace(-0.4, 0.4, P - 1) + rng.normal(size=N)
    d = pd.DataFrame(X, columns=[f"x{j}" for j in range(1, P)])
    for k in range(annotators):
        d[f"a{k}"] = v + 0.1 * k * d["x1"] + 0.5 * rng.normal(size=N)
    d["coder"] = np.nan
    coded = rng.choice(N, n, replace=False)
    d.loc[coded, "coder"] = v[coded]
    return tu.Study(d, human={"y": "coder"}, llm={"y": [f"a{k}" for k in range(annotators)]})


def formula(p):
    return "y ~ " + " + ".join(f"x{j}" for j in range(1, p))


def timed(function):
    start = time.perf_counter()
    out = function()
    return time.perf_counter() - start, out


def large(N):
    study = made(N, 8, np.random.default_rng(1))
    formulas = [formula(P), formula(P - 5)]

    def naive_fits():
        return [tu.ols(formulas[0], study, llm=a, correction="naive") for a in study.annotators]

    def single_fits():
        return [
            tu.ols(f, study, llm=a, correction=c)
            for f in formulas
            for a in study.annotators
            for c in CORRECTIONS
        ]

    def universes():
        return tu.multiverse(
            formulas, study, focus="x1", corrections=CORRECTIONS, progress=False, n_jobs=1
        )

    base, _ = timed(naive_fits)
    one_by_one, _ = timed(single_fits)
    together, mv = timed(universes)
    joint, _ = timed(mv.covariance)
    print(f"N = {N:,}, p = {P}, n = 1,000, {len(mv.outcomes)} universes")
    print(f"  8 LLM-only fits          {base:7.2f} s")
    print(f"  64 fits one by one       {one_by_one:7.2f} s   {one_by_one / base:5.1f}x")
    print(f"  the multiverse           {together:7.2f} s   {together / base:5.1f}x")
    print(f"  joint covariance         {joint:7.2f} s   {joint / base:5.1f}x")


def many():
    study = made(5_000, 20, np.random.default_rng(2), n=500)
    formulas = [formula(p) for p in range(3, 20)]

    def universes():
        return tu.multiverse(
            formulas,
            study,
            focus="x1",
            corrections=["naive", "ppi", "ptd"],
            progress=False,
            n_jobs=2,
        )

    seconds, mv = timed(universes)
    joint, _ = timed(mv.bands)
    print(f"{len(mv.outcomes)} universes on 5,000 rows: {seconds:.1f} s; bands {joint:.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    large(options.rows)
    many()
