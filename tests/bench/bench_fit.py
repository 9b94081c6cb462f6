"""Time and memory of one corrected fit, as ratios to the bare matrix products on the same arrays.

Run ``python tests/bench/bench_fit.py``; ``--rows 100000`` for a quick look. Each line prints the
median of five runs. ppi_py is timed in the same process where it is installed.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

import trueup as tu
from support.arrays import ArrayFrame
from trueup.corrections.base import Problem
from trueup.families.registry import family_for
from trueup.inference.vcov import as_vcov
from trueup.study.design import Draw, SampleDesign

N_CODED = 1_000


def median_time(function, repeats=5):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def made(N, p, family, rng):
    X = rng.normal(size=(N, p))
    X[:, 0] = 1.0
    eta = X @ np.linspace(-0.4, 0.4, p)
    if family == "ols":
        v = eta + rng.normal(size=N)
        f = v + 0.3 * X[:, 1] + 0.5 * rng.normal(size=N)
    else:
        v = (rng.uniform(size=N) < 1 / (1 + np.exp(-eta))).astype(float)
        f = np.where(rng.uniform(size=N) < 0.08, 1 - v, v)
    coded = np.sort(rng.choice(N, N_CODED, replace=False))
    return X, v, f, coded


def problem(X, v, f, coded, family):
    N = len(X)
    design = SampleDesign(
        n_rows=N,
        coded=coded,
        draw=Draw.SRS,
        probability=np.full(len(coded), len(coded) / N),
        probability_all=np.full(N, len(coded) / N),
    )
    frame = ArrayFrame(X=X, coded=coded, v=v[coded], llm_outcomes={"f": f})
    return Problem(family_for(family), frame, design, ("f",), as_vcov("HC3"))


def frame_fit(X, v, f, coded, family):
    d = pd.DataFrame(X[:, 1:], columns=[f"x{j}" for j in range(1, X.shape[1])])
    d["f"] = f
    d["coder"] = np.nan
    d.loc[coded, "coder"] = v[coded]
    formula = "y ~ " + " + ".join(c for c in d if c.startswith("x"))

    def run():
        study = tu.Study(d, human={"y": "coder"}, llm={"y": ["f"]})
        return getattr(tu, family)(formula, study)

    return run


def ppi_time(X, v, f, coded, family, N):
    try:
        import ppi_py
    except ImportError:
        return None
    rest = np.setdiff1d(np.arange(N), coded)
    function = ppi_py.ppi_ols_ci if family == "ols" else ppi_py.ppi_logistic_ci
    start = time.perf_counter()
    function(X[coded], v[coded], f[coded], X[rest], f[rest])
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--columns", type=int, nargs="+", default=[10, 20])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        f"{'N':>9} {'p':>3} {'family':<6} {'products ms':>11} {'arrays':>8} {'table':>8} "
        f"{'ppi_py':>8}   (times the products)"
    )
    for N in options.rows:
        for p in options.columns:
            for family in ("ols", "logit"):
                X, v, f, coded = made(N, p, family, np.random.default_rng(1))
                base = median_time(lambda X=X, f=f: (X.T @ X, X.T @ f))
                task = problem(X, v, f, coded, family)
                arrays = median_time(lambda task=task: tu.PTD().estimate(task))
                table = median_time(frame_fit(X, v, f, coded, family), 3)
                ppi = ppi_time(X, v, f, coded, family, N)
                told = "-" if ppi is None else f"{ppi / base:.0f}x"
                print(
                    f"{N:>9} {p:>3} {family:<6} {1000 * base:>11.1f} {arrays / base:>7.1f}x "
                    f"{table / base:>7.1f}x {told:>8}",
                    flush=True,
                )
    size = max(options.rows) * max(options.columns) * 8 / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"Peak memory of the whole run {peak:.0f} MB; largest design matrix {size:.0f} MB.")


if __name__ == "__main__":
    main()
