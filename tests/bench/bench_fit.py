"""Time and memory of one corrected fit, as ratios to the bare matrix products on the same arrays.

``python tests/bench/bench_fit.py`` prints a table of times, ``--memory`` a table of peak memory;
``--rows 100000`` for a quick look. "arrays": a fit from arrays in memory; "table": the study, the
formula and the fit from a data frame. Times are medians over fresh fits. ppi_py is timed in the
same process where it is installed. Peaks are taken in fresh processes, on Linux.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from dataclasses import replace
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
FAMILIES = ("ols", "logit")


def median_time(function, repeats):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def made(N, p, family, rng):
    """Return columns, human labels, LLM labels and coded rows, without wasting memory."""
    columns = [np.ones(N)] + [rng.normal(size=N) for _ in range(p - 1)]
    eta = np.zeros(N)
    for beta, column in zip(np.linspace(-0.4, 0.4, p), columns, strict=True):
        eta += beta * column
    if family == "ols":
        v = eta + rng.normal(size=N)
        f = v + 0.3 * columns[1] + 0.5 * rng.normal(size=N)
    else:
        v = (rng.uniform(size=N) < 1 / (1 + np.exp(-eta))).astype(float)
        f = np.where(rng.uniform(size=N) < 0.08, 1 - v, v)
    coded = np.sort(rng.choice(N, N_CODED, replace=False))
    return columns, v, f, coded


def matrix(columns):
    """Return the columns side by side, and forget them one by one."""
    X = np.empty((len(columns[0]), len(columns)))
    for j in range(X.shape[1]):
        X[:, j] = columns[j]
        columns[j] = None
    return X


def array_fit(X, v, f, coded, family):
    N = len(X)
    design = SampleDesign(
        n_rows=N, coded=coded, draw=Draw.SRS, probability=np.full(len(coded), len(coded) / N)
    )
    frame = ArrayFrame(X=X, coded=coded, v=v[coded], llm_outcomes={"f": f})
    problem = Problem(family_for(family), frame, design, ("f",), as_vcov("HC3"))
    # A problem keeps the fits that corrections share: empty, so that each run computes them.
    return lambda: tu.PTD().estimate(replace(problem, cache={}))


def table_fit(columns, v, f, coded, family):
    coder = np.full(len(f), np.nan)
    coder[coded] = v[coded]
    named = {f"x{j}": column for j, column in enumerate(columns) if j > 0}
    formula = "y ~ " + " + ".join(named)
    data = pd.DataFrame({**named, "f": f, "coder": coder}, copy=False)

    def run():
        study = tu.Study(data, human={"y": "coder"}, llm={"y": ["f"]})
        return getattr(tu, family)(formula, study)

    return run


def ppi_time(X, v, f, coded, family):
    try:
        import ppi_py
    except ImportError:
        return None
    rest = np.setdiff1d(np.arange(len(X)), coded)
    function = ppi_py.ppi_ols_ci if family == "ols" else ppi_py.ppi_logistic_ci
    arrays = X[coded], v[coded], f[coded], X[rest], f[rest]
    return median_time(lambda: function(*arrays), 1 if len(X) > 200_000 else 3)


def time_row(N, p, family):
    columns, v, f, coded = made(N, p, family, np.random.default_rng(1))
    repeats = 9 if N <= 200_000 else 5
    table = table_fit(list(columns), v, f, coded, family)
    X = matrix(list(columns))
    arrays = array_fit(X, v, f, coded, family)
    arrays(), table()
    base = median_time(lambda: (X.T @ X, X.T @ f), 3 * repeats)
    ratios = [median_time(arrays, repeats) / base, median_time(table, repeats) / base]
    ppi = ppi_time(X, v, f, coded, family)
    told = "-" if ppi is None else f"{ppi / base:.0f}x"
    shown = " ".join(f"{ratio:>7.1f}x" for ratio in ratios)
    print(f"{N:>9} {p:>3} {family:<6} {1000 * base:>11.1f} {shown} {told:>8}", flush=True)


def _status(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def peak_row(N, p, family, source):
    """Print the peak of this process, which must be fresh, over the size of the design matrix."""
    small = made(2 * N_CODED, p, family, np.random.default_rng(2))
    _make(small, family, source)()  # imports and first-use costs are not the fit's
    before = _status("VmRSS")
    run = _make(made(N, p, family, np.random.default_rng(1)), family, source)
    data = _status("VmRSS") - before
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    result = run()
    peak = _status("VmHWM") - before
    assert result is not None
    size = N * p * 8
    print(
        f"{N:>9} {p:>3} {family:<6} {source:<7} {size / 2**20:>9.0f} {data / size:>9.2f}x "
        f"{(peak - data) / size:>8.2f}x {peak / size:>8.2f}x",
        flush=True,
    )


def _make(data, family, source):
    columns, v, f, coded = data
    if source == "arrays":
        return array_fit(matrix(columns), v, f, coded, family)
    return table_fit(columns, v, f, coded, family)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--columns", type=int, nargs="+", default=[10, 20])
    parser.add_argument("--memory", action="store_true", help="peak memory instead of time")
    parser.add_argument("--peak-of", nargs=2, metavar=("FAMILY", "SOURCE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.peak_of is not None:
        peak_row(options.rows[0], options.columns[0], *options.peak_of)
        return
    if options.memory:
        print(
            f"{'N':>9} {'p':>3} {'family':<6} {'from':<7} {'design MB':>9} {'the data':>10} "
            f"{'the fit':>9} {'together':>9}   (times the design matrix)",
            flush=True,
        )
        for family in FAMILIES:
            for source in ("arrays", "table"):
                sizes = ["--rows", str(max(options.rows)), "--columns", str(max(options.columns))]
                command = [sys.executable, __file__, *sizes, "--peak-of", family, source]
                subprocess.run(command, check=True)
        return
    print(
        f"{'N':>9} {'p':>3} {'family':<6} {'products ms':>11} {'arrays':>8} {'table':>8} "
        f"{'ppi_py':>8}   (times the products)"
    )
    for N in options.rows:
        for p in options.columns:
            for family in FAMILIES:
                time_row(N, p, family)


if __name__ == "__main__":
    main()
