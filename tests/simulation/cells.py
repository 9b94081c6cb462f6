"""Monte Carlo cells: data with a known answer, drawn anew in every replication."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

import trueup as tu

FOCUS = {"outcome": "t", "covariate": "v"}
FORMULA = {"outcome": "v ~ t + x", "covariate": "y ~ v + x"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One design of the simulation."""

    side: str
    """Which side of the formula is labelled: "outcome" or "covariate"."""
    family: str
    """ "ols" or "logit" """
    draw: str
    """ "srs", "unequal", "strata", "clusters" (nested) or "units" (whole clusters)"""
    n: int
    N: int = 4_000

    @property
    def name(self) -> str:
        """Name used in tables."""
        return f"{self.side}-{self.family}-{self.draw}-{self.n}"


def population(cell: Cell, N: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return N rows with the true label ``v`` and three annotators of it.

    Annotator ``a`` is right on about 94% and misses more positives where t = 1; ``b`` is right
    on 88%, at random; ``c`` on about 92%, over-reporting where t = 0. Their errors concentrate
    on the same hard texts. For a labelled covariate the errors of ``a`` follow the outcome.
    """
    G = N // 20
    cluster = np.arange(N) % G
    shared = rng.normal(size=G)[cluster] if cell.draw in ("clusters", "units") else np.zeros(N)
    t = (rng.uniform(size=N) < 0.4).astype(float)
    x = 0.8 * rng.normal(size=N) + 0.6 * shared
    hard = rng.uniform(size=N) < 0.3
    if cell.side == "outcome":
        v = rng.uniform(size=N) < _logistic(-0.5 + 1.0 * t + 0.5 * x)
        follows = t
        y = np.zeros(N)
    else:
        v = rng.uniform(size=N) < _logistic(-0.3 + 0.6 * x)
        if cell.family == "ols":
            y = 0.5 + 1.0 * v + 0.5 * x + 0.5 * shared + rng.normal(size=N)
            follows = (y > 1.0).astype(float)
        else:
            y = (rng.uniform(size=N) < _logistic(-0.5 + 1.0 * v + 0.5 * x)).astype(float)
            follows = y
    v = v.astype(float)
    effort = np.where(hard, 2.2, 0.49)
    wrong_a = rng.uniform(size=N) < effort * np.where(v == 1, 0.03 + 0.10 * follows, 0.03)
    wrong_b = rng.uniform(size=N) < 0.12 * effort
    wrong_c = rng.uniform(size=N) < effort * np.where(v == 0, 0.03 + 0.10 * (1 - follows), 0.05)
    return pd.DataFrame(
        {
            "t": t,
            "x": x,
            "y": y,
            "v": v,
            "a": np.where(wrong_a, 1 - v, v),
            "b": np.where(wrong_b, 1 - v, v),
            "c": np.where(wrong_c, 1 - v, v),
            "group": cluster,
        }
    )


def _logistic(eta: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-eta))


@cache
def truth(side: str, family: str, draw: str) -> float:
    """Return the focal coefficient in the population: known, or from three million rows."""
    if family == "logit" or side == "covariate":
        return 1.0
    big = population(Cell(side, family, draw, 0), 3_000_000, np.random.default_rng(0))
    X = np.column_stack([np.ones(len(big)), big["t"], big["x"]])
    return float(np.linalg.lstsq(X, big["v"], rcond=None)[0][1])


def code(cell: Cell, d: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, dict]:
    """Draw the coded rows; return the data and the options of the study."""
    N = len(d)
    options: dict[str, Any] = {}
    if cell.draw == "unequal":
        follows = d["t"] if cell.side == "outcome" else (d["y"] > 0.7)
        raw = 1.0 + 2.0 * (d["a"] != d["c"]) + 0.8 * follows + 0.5 * (np.abs(d["x"]) > 1)
        pi = np.clip(cell.n * raw / raw.sum(), 0.0, 1.0)
        coded = rng.uniform(size=N) < pi
        d = d.assign(pi=pi)
        options["sampling"] = tu.Sampling(probability="pi", method="poisson")
    elif cell.draw == "strata":
        d = d.assign(s=d["a"].astype(int).astype(str) + "/" + (d["x"] > 0).astype(str))
        coded = np.zeros(N, dtype=bool)
        for _, rows in d.groupby("s").indices.items():
            coded[rng.choice(rows, min(cell.n // 4, len(rows)), replace=False)] = True
        options["sampling"] = tu.Sampling(strata="s")
    elif cell.draw == "units":
        drawn = rng.choice(d["group"].nunique(), cell.n // 20, replace=False)
        coded = d["group"].isin(drawn).to_numpy()
        options["sampling"] = tu.Sampling(unit="group")
    else:
        coded = np.zeros(N, dtype=bool)
        coded[rng.choice(N, cell.n, replace=False)] = True
        if cell.draw == "clusters":
            options["cluster"] = "group"
    return d.assign(coder=d["v"].where(coded)).drop(columns="v"), options


def replicate(cell: Cell, corrections: dict[str, tuple[Any, Any]], seed: int) -> list[dict]:
    """Fit every correction to one draw."""
    rng = np.random.default_rng([seed, cell.n, cell.N])
    d, options = code(cell, population(cell, cell.N, rng), rng)
    out = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tu.errors.TrueupWarning)
        study = tu.Study(d, human={"v": "coder"}, llm={"v": ["a", "b", "c"]}, **options)
        for name, (correction, llm) in corrections.items():
            fit = getattr(tu, cell.family)(
                FORMULA[cell.side], study, llm=llm, correction=correction, seed=seed
            )
            row = fit.tidy().set_index("term").loc[FOCUS[cell.side]]
            out.append(
                {
                    "correction": name,
                    "estimate": row["estimate"],
                    "se": row["std_error"],
                    "low": row["conf_low"],
                    "high": row["conf_high"],
                }
            )
    return out


CORRECTIONS: dict[str, tuple[Any, Any]] = {
    "naive": ("naive", "a"),
    "human": ("human", "a"),
    "ppi": ("ppi", "a"),
    "ppi++": ("ppi++", "a"),
    "ptd": ("ptd", "a"),
    "dsl": (tu.DSL(repeats=1), "a"),
    "auto, 1 LLM": ("auto", "a"),
    "auto, 3 LLMs": (tu.DSL(repeats=1, tuning="full"), ["a", "b", "c"]),
}


def run(cell: Cell, corrections: dict, reps: int, seed: int = 1, n_jobs: int = 1) -> pd.DataFrame:
    """Return bias, spread and coverage of each correction over ``reps`` draws.

    Columns: ``bias_sd`` bias over SD; ``sd_human`` SD over that of human-only; ``se_sd`` mean
    standard error over SD; ``coverage`` of the 95% interval; ``below`` and ``above``: shares of
    intervals wholly below and above the truth; ``width`` median width over that of human-only.
    """
    rows = Parallel(n_jobs=n_jobs)(
        delayed(replicate)(cell, corrections, seed * 1_000_000 + r) for r in range(reps)
    )
    draws = pd.DataFrame([r for part in rows for r in part])
    target = truth(cell.side, cell.family, cell.draw)
    table = []
    for name, g in draws.groupby("correction", sort=False):
        table.append(
            {
                "cell": cell.name,
                "correction": name,
                "bias_sd": (g["estimate"].mean() - target) / g["estimate"].std(),
                "sd": g["estimate"].std(),
                "se_sd": g["se"].mean() / g["estimate"].std(),
                "coverage": ((g["low"] <= target) & (target <= g["high"])).mean(),
                "below": (g["high"] < target).mean(),
                "above": (g["low"] > target).mean(),
                "width": (g["high"] - g["low"]).median(),
            }
        )
    out = pd.DataFrame(table)
    if "human" in corrections:
        human = out.set_index("correction").loc["human"]
        out["sd_human"] = out["sd"] / human["sd"]
        out["width_human"] = out["width"] / human["width"]
    return out
