"""Work on all rows for K annotators at once, beside the bare products of the same arrays.

``python tests/bench/bench_scale.py`` prints, for N = 1e5 and 1e6, p = 10 and 20, K = 1 and 8,
least squares and logit:

- "one": LLM-only and corrected (power-tuned difference) fits of all K annotators, and the joint
  covariance of the K LLM-only estimates of one coefficient, from arrays in memory;
- "six": the same with six corrections for each annotator;
- how often the time of ``X.T @ X`` and ``X.T @ F`` that is, the bytes of X and F read by these
  products against the time (GB/s), and the peak memory beside that of the data;
- growth exponents of the time in N, p and K;
- other software in the same process, where it is installed: statsmodels on the LLM labels of one
  annotator, ppi_py once for each annotator; and the times of the R packages dsl and ipd that are
  kept in ``tests/reference/data/timings_r.json`` (other machines may be faster).

``--large`` adds N = 1e7, ``--levels`` times a factor of 2,000 levels, ``--first`` the way from
``import`` to the first result of a study of 5,000 rows. Times are the least of several runs;
``--cpu`` counts processor seconds instead, for a machine that others use at the same time.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import threading
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
from trueup.multiverse.covariance import joint_covariance
from trueup.multiverse.universe import Located, Outcome, Universe
from trueup.study.design import Draw, SampleDesign

N_CODED = 1_000
ONE = {"ptd": tu.PTD()}
SIX = {
    **ONE,
    "ptd scalar": tu.PTD(tuning="scalar"),
    "ppi": tu.PPI(tuning=1.0, form="difference"),
    "ppi++": tu.PPI(form="difference"),
    "coordinate": tu.PPI(tuning="coordinate", form="difference"),
    "human": tu.Human(),
}
TIMINGS = Path(__file__).parents[1] / "reference" / "data" / "timings_r.json"


clock = [time.perf_counter]


def least(function, repeats):
    """Return the least time of several runs, and what the last one returned."""
    times, out = [], None
    for _ in range(repeats):
        gc.collect()
        start = clock[0]()
        out = function()
        times.append(clock[0]() - start)
    return min(times), out


def made(N, p, K, family, seed=1):
    """Return the design matrix, human labels, K columns of LLM labels and the coded rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, p))
    X[:, 0] = 1.0
    eta = X @ np.linspace(-0.4, 0.4, p)
    if family == "ols":
        v = eta + rng.normal(size=N)
        F = {f"f{k}": v + 0.3 * X[:, 1] + 0.5 * rng.normal(size=N) for k in range(K)}
    else:
        v = (rng.uniform(size=N) < 1 / (1 + np.exp(-eta))).astype(float)
        F = {f"f{k}": np.where(rng.uniform(size=N) < 0.08, 1 - v, v) for k in range(K)}
    return X, v, F, np.sort(rng.choice(N, N_CODED, replace=False))


def problem_of(X, v, F, coded, family):
    N = len(X)
    pi = np.full(len(coded), len(coded) / N)
    design = SampleDesign(n_rows=N, coded=coded, draw=Draw.SRS, probability=pi)
    frame = ArrayFrame(X=X, coded=coded, v=v[coded], llm_outcomes=F)
    names = tuple(F)
    return Problem(family_for(family), frame, design, names, as_vcov("HC1"), together=names)


def run(problem, corrections):
    """Return every estimate and the joint covariance of the LLM-only ones."""
    problem = replace(problem, cache={})
    naive, corrected = [], []
    for number, name in enumerate(problem.together):
        alone = replace(problem, annotators=(name,))
        estimate = tu.Naive().estimate(alone)
        universe = Universe(
            number, (name,), "y ~ x", problem.family, tu.Naive(), "all", problem.vcov, {}
        )
        naive.append(Located(Outcome(universe, "ok", problem.frame.terms, estimate), alone))
        corrected += [correction.estimate(alone) for correction in corrections.values()]
    V = joint_covariance(naive, [problem.frame.terms[1]] * len(naive), problem.design)
    return naive, corrected, V


class Peak:
    """The most resident memory while a block runs, over that before it; Linux only."""

    def __enter__(self):
        self._stop, self.before = threading.Event(), self._now()
        self.most = self.before
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._watch.join()

    def _look(self):
        while not self._stop.wait(0.002):
            self.most = max(self.most, self._now())

    @staticmethod
    def _now():
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * 4096

    @property
    def megabytes(self):
        return (self.most - self.before) / 2**20


def bandwidth(X):
    """Return the GB/s at which this process reads the matrix."""
    seconds, _ = least(X.sum, 5)
    return X.nbytes / seconds / 1e9


def ppi_seconds(X, v, F, coded, family, limit):
    """Return the time of ppi_py for all annotators; it has no joint covariance."""
    try:
        import ppi_py
    except ImportError:
        return None
    if len(X) * X.shape[1] > limit:
        return None
    rest = np.setdiff1d(np.arange(len(X)), coded)
    function = ppi_py.ppi_ols_ci if family == "ols" else ppi_py.ppi_logistic_ci
    return least(
        lambda: [function(X[coded], v[coded], f[coded], X[rest], f[rest]) for f in F.values()], 1
    )[0]


def statsmodels_seconds(X, F, family):
    """Return the time of one fit to the LLM labels of one annotator."""
    import statsmodels.api as sm

    f = next(iter(F.values()))
    if family == "ols":
        return least(lambda: sm.OLS(f, X).fit(cov_type="HC1").bse, 2)[0]
    return least(lambda: sm.Logit(f, X).fit(disp=0).bse, 2)[0]


HEAD = (
    f"{'N':>9} {'p':>3} {'K':>2} {'family':<6} {'products':>9} {'one':>9} {'':>7} {'six':>9} "
    f"{'':>7} {'GB/s':>5} {'of':>5} {'peak MB':>8} {'statsm.':>9} {'ppi_py':>9}"
)


def row(N, p, K, family, limit):
    X, v, F, coded = made(N, p, K, family)
    problem = problem_of(X, v, F, coded, family)
    Y = np.column_stack(list(F.values()))
    repeats = 7 if N <= 200_000 else 3
    run(replace(problem, annotators=tuple(F)[:1]), ONE)
    base, _ = least(lambda: (X.T @ X, X.T @ Y), 3 * repeats)
    one, _ = least(lambda: run(problem, ONE), repeats)
    six, _ = least(lambda: run(problem, SIX), repeats)
    with Peak() as peak:
        run(problem, ONE)
    read = (X.nbytes + Y.nbytes) / one / 1e9
    theirs = statsmodels_seconds(X, F, family)
    ppi = ppi_seconds(X, v, F, coded, family, limit)
    print(
        f"{N:>9} {p:>3} {K:>2} {family:<6} {base:>8.3f}s {one:>8.3f}s {one / base:>6.1f}x "
        f"{six:>8.3f}s {six / base:>6.1f}x {read:>5.1f} {bandwidth(X):>5.1f} "
        f"{peak.megabytes:>8.0f} {theirs:>8.3f}s {'-' if ppi is None else f'{ppi:>8.2f}s'}",
        flush=True,
    )
    return one, theirs, ppi


def exponents(times, sizes):
    """Print by which power the time grows from the smaller to the larger size."""
    for family in ("ols", "logit"):
        for at, name in enumerate(("N", "p", "K")):
            pairs = []
            for key, seconds in times.items():
                if key[3] != family:
                    continue
                index = sizes[at].index(key[at])
                if index + 1 < len(sizes[at]):
                    larger = (*key[:at], sizes[at][index + 1], *key[at + 1 :])
                    growth = np.log(times[larger] / seconds) / np.log(larger[at] / key[at])
                    pairs.append(growth)
            if pairs:
                shown = ", ".join(f"{x:.2f}" for x in pairs)
                print(f"  {family:<6} time grows as {name}^({shown})")


def r_timings():
    """Print the times of the R packages."""
    for entry in json.loads(TIMINGS.read_text())["timings"]:
        print(
            f"  R {entry['package']:<4} {entry['call']:<46} N={entry['N']:>7,} {entry['s']:>8.2f}s"
        )


def levels(N=1_000_000, n_levels=2_000, each=5):
    """Time a factor of many levels, from the table to the estimate."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, n_levels, N)
    x = rng.normal(size=N)
    v = 0.5 * x + 0.001 * codes + rng.normal(size=N)
    data = pd.DataFrame({"x": x, "group": codes, "f": v + 0.3 * rng.normal(size=N)})
    data["coder"] = np.nan
    coded = data.groupby("group").head(each).index  # every level needs coded rows
    data.loc[coded, "coder"] = v[coded]
    study = tu.Study(data, human={"y": "coder"}, llm={"y": ["f"]})
    with Peak() as peak:
        seconds, fit = least(
            lambda: tu.ols("y ~ x + C(group)", study, correction="naive", vcov="HC1"), 1
        )
    dense = 8 * N * n_levels / 2**20
    print(
        f"  {N:,} rows, C(group) of {n_levels:,} levels, LLM-only: {seconds:.1f} s, peak "
        f"{peak.megabytes:,.0f} MB (dense columns of all rows: {dense:,.0f} MB); "
        f"x {fit.tidy().set_index('term').loc['x', 'estimate']:.4f}"
    )


FIRST = """
import numpy as np, pandas as pd, trueup as tu
rng = np.random.default_rng(0)
d = pd.DataFrame({"x": rng.normal(size=5000)})
v = (rng.uniform(size=5000) < 1 / (1 + np.exp(-d.x))) * 1.0
d["f"] = np.where(rng.uniform(size=5000) < .1, 1 - v, v)
d["coder"] = np.where(rng.uniform(size=5000) < .1, v, np.nan)
print(tu.logit("y ~ x", tu.Study(d, human={"y": "coder"}, llm={"y": ["f"]})).tidy())
"""


def first(repeats=5):
    """Time a fresh process from import to the printed table of a small study."""
    command = [sys.executable, "-c", FIRST]
    seconds, _ = least(lambda: subprocess.run(command, check=True, capture_output=True), repeats)
    print(f"  import to first result, 5,000 rows: {seconds:.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--columns", type=int, nargs="+", default=[10, 20])
    parser.add_argument("--annotators", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--large", action="store_true", help="10 million rows too")
    parser.add_argument("--levels", action="store_true", help="a factor of 2,000 levels instead")
    parser.add_argument("--first", action="store_true", help="import to first result instead")
    parser.add_argument("--ppi-limit", type=float, default=2.1e7, help="entries of X for ppi_py")
    parser.add_argument("--cpu", action="store_true", help="processor seconds")
    options = parser.parse_args()
    if options.cpu:
        clock[0] = time.process_time
    warnings.simplefilter("ignore")
    if options.levels or options.first:
        if options.levels:
            levels()
        if options.first:
            first()
        return
    rows = [*options.rows, *([10_000_000] if options.large else [])]
    print(HEAD)
    times = {}
    for family in ("ols", "logit"):
        for N in rows:
            for p in options.columns:
                for K in options.annotators:
                    times[N, p, K, family] = row(N, p, K, family, options.ppi_limit)[0]
    exponents(times, (rows, options.columns, options.annotators))
    r_timings()


if __name__ == "__main__":
    main()
