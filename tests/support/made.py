"""Small made studies with a known way of drawing the coded rows."""

from __future__ import annotations

import numpy as np
import pandas as pd

import trueup as tu


def texts(N=400, n=120, seed=0, *, outcome="numeric", draw="srs", clusters=None) -> pd.DataFrame:
    """Return N rows: x, t, label ``v`` (coder ``v_human``), LLM labels ``f1``, ``f2``, ``pi``.

    ``outcome`` is the kind of label: "numeric" or "binary". ``draw``: "srs" or "poisson".
    """
    rng = np.random.default_rng(seed)
    d = pd.DataFrame({"x": rng.normal(size=N), "t": rng.integers(0, 2, N).astype(float)})
    if clusters:
        d["c"] = np.arange(N) % clusters
        d["x"] += rng.normal(size=clusters)[d["c"]] * 0.5
    index = 0.3 + 0.5 * d["x"] - 0.4 * d["t"]
    if outcome == "numeric":
        d["v"] = index + rng.normal(size=N)
        d["f1"] = 0.7 * d["v"] + 0.3 * d["t"] + 0.4 * rng.normal(size=N)
        d["f2"] = d["v"] - 0.2 * d["x"] + 0.6 * rng.normal(size=N)
    else:
        d["v"] = (rng.uniform(size=N) < 1 / (1 + np.exp(-index))).astype(float)
        flip = rng.uniform(size=(N, 2)) < np.column_stack([0.1 + 0.1 * d["t"], np.full(N, 0.2)])
        d["f1"] = np.where(flip[:, 0], 1 - d["v"], d["v"])
        d["f2"] = np.where(flip[:, 1], 1 - d["v"], d["v"])
    d["z"] = 0.5 + 0.8 * d["v"] + 0.3 * d["x"] + rng.normal(size=N)
    if draw == "srs":
        d["pi"] = n / N
        coded = np.zeros(N, dtype=bool)
        coded[rng.choice(N, n, replace=False)] = True
    else:
        raw = np.exp(0.5 * rng.normal(size=N))
        d["pi"] = np.clip(n * raw / raw.sum(), 0.02, 0.95)
        coded = rng.uniform(size=N) < d["pi"].to_numpy()
    d["v_human"] = d["v"].where(coded)
    return d


def study(data: pd.DataFrame, llm=("f1",), sampling=None, **options) -> tu.Study:
    """Return the study of such data, label variable ``v``."""
    data = data.drop(columns="v")
    sampling = tu.Sampling() if sampling is None else sampling
    return tu.Study(
        data, human={"v": "v_human"}, llm={"v": list(llm)}, sampling=sampling, **options
    )


def poisson(**options) -> tu.Sampling:
    """Return independent draws with the probabilities of column ``pi``."""
    return tu.Sampling(probability="pi", method="poisson", **options)
