"""The covariance between universes against formulas written out by hand, design by design."""

import numpy as np
import pandas as pd
import pytest

import trueup as tu
from support.made import poisson, study, texts

N, n = 600, 200
CLUSTERS = 60


def made(draw="srs", **how):
    return texts(N=N, n=n, seed=5, outcome="binary", draw=draw, clusters=CLUSTERS, **how)


def fit(d, corrections, how=None, formulas="v ~ t + x", **options):
    s = study(d, llm=["f1", "f2"], **(how or {}))
    settings = {"focus": "t", "vcov": "HC0", "progress": False} | options
    return tu.multiverse(formulas, s, corrections=corrections, **settings)


def where(mv, **levels):
    table = mv.table()
    hit = np.logical_and.reduce([table[k] == v for k, v in levels.items()])
    return int(np.flatnonzero(hit)[0])


def regressors(d):
    return np.column_stack([np.ones(len(d)), d["t"], d["x"]])


def weighted(X, y, w, total):
    """Return coefficients of weighted least squares and influences scaled to a mean over rows."""
    bread = np.linalg.inv(X.T @ (w[:, None] * X) / total)
    theta = bread @ (X.T @ (w * y)) / total
    return theta, (y - X @ theta)[:, None] * X @ bread


def corrected_parts(d, llm, omega):
    """Return coded rows, weights, and h and d of the coefficient of t, at the tuning given."""
    g = d.dropna(subset="v_human")
    w = 1 / g["pi"].to_numpy()
    h = weighted(regressors(g), g["v"].to_numpy(), w, w.sum())[1]
    phi = weighted(regressors(g), g[llm].to_numpy(), w, w.sum())[1]
    return g, w, h[:, 1], (h - phi @ omega.T)[:, 1]


def simple_random(d, size):
    return d / size * np.sqrt((1 - size / N) * size / (size - 1))


def second_phase(name, g, w, d):
    """Return factor rows of the second phase from the textbook formula of the design."""
    if name == "srs":
        return simple_random(d - d.mean(), len(d))
    if name == "poisson":
        return np.sqrt(1 - 1 / w) * w * d / w.sum()
    out = np.zeros(len(d))
    for s in (0.0, 1.0):
        at = (g["t"] == s).to_numpy()
        n_s, N_s = at.sum(), at.sum() * w[at][0]
        out[at] = (d[at] - d[at].mean()) * N_s / N
        out[at] *= np.sqrt((1 / n_s - 1 / N_s) / (n_s - 1))
    return out


@pytest.mark.parametrize("name", ["srs", "poisson", "strata"])
def test_corrected_universes_of_two_annotators(name):
    d = made("poisson" if name == "poisson" else "srs")
    how = {"poisson": {"sampling": poisson()}, "strata": {"sampling": tu.Sampling(strata="t")}}
    if name == "strata":
        d["pi"] = d.groupby("t")["v_human"].transform(lambda v: v.notna().mean())
    mv = fit(d, ["ptd", "human"], how.get(name))
    rows, first = {}, {}
    for llm in ("f1", "f2"):
        k = where(mv, llm=llm, correction="ptd")
        omega = mv.outcomes[k].estimate.tuning
        g, w, h, rest = corrected_parts(d, llm, omega)
        rest = rest - (w @ rest) / w.sum()
        first[k], rows[k] = np.sqrt(w) * h / w.sum(), second_phase(name, g, w, rest)
    k = where(mv, correction="human")
    first[k], rows[k] = np.sqrt(w) * h / w.sum(), second_phase(name, g, w, h)
    V = mv.covariance()
    for i in first:
        for j in first:
            expected = first[i] @ first[j] + rows[i] @ rows[j]
            assert V[i, j] == pytest.approx(expected, rel=1e-6), (i, j)


def all_rows(d, llm, keep=None, w=None):
    """Return (N,) influences of an LLM-only fit on its estimate, 0 for rows left out."""
    keep = np.ones(len(d), dtype=bool) if keep is None else keep
    w = np.ones(len(d)) if w is None else w
    out = np.zeros(len(d))
    part = d[keep]
    raw = weighted(regressors(part), part[llm].to_numpy(), w[keep], w[keep].sum())[1][:, 1]
    out[keep] = raw * w[keep] / w[keep].sum()
    return out


def test_llm_only_universes_without_some_labels():
    d = made()
    lost = np.random.default_rng(0).uniform(size=N) < 0.2
    d["f1"] = d["f1"].where(~lost)
    V = fit(d, ["naive"]).covariance()
    phi = np.column_stack([all_rows(d, "f1", ~lost), all_rows(d, "f2")])
    np.testing.assert_allclose(V, phi.T @ phi, rtol=1e-8)


def test_llm_only_universes_of_subsets_that_overlap():
    d = made()
    mv = fit(d, ["naive"], subsets={"a": "x < 0.5", "b": "x > -0.5"})
    parts = {"a": (d["x"] < 0.5).to_numpy(), "b": (d["x"] > -0.5).to_numpy()}
    order = [(r["llm"], r["subset"]) for r in mv.table().to_dict("records")]
    phi = np.column_stack([all_rows(d, llm, parts[part]) for llm, part in order])
    np.testing.assert_allclose(mv.covariance(), phi.T @ phi, rtol=1e-8)


@pytest.mark.parametrize("how", [{"cluster": "c"}, {"sampling": tu.Sampling(unit="c")}])
def test_llm_only_universes_with_clusters(how):
    d = made()
    if "sampling" in how:
        drawn = np.random.default_rng(1).choice(CLUSTERS, 20, replace=False)
        d["v_human"] = d["v"].where(d["c"].isin(drawn))
    V = fit(d, ["naive"], how).covariance()
    phi = pd.DataFrame({k: all_rows(d, k) for k in ("f1", "f2")}).groupby(d["c"]).sum()
    expected = phi.T @ phi * CLUSTERS / (CLUSTERS - 1)
    np.testing.assert_allclose(V, expected, rtol=1e-8)


def test_llm_only_and_corrected_universes_with_clusters():
    d = made()
    mv = fit(d, ["naive", "ptd"], {"cluster": "c"})
    V = mv.covariance()
    for one in ("f1", "f2"):
        k = where(mv, llm=one, correction="ptd")
        omega = mv.outcomes[k].estimate.tuning
        g, w, _, rest = corrected_parts(d, one, omega)
        X, Xg = regressors(d), regressors(g)
        gamma = np.linalg.lstsq(X, d[one], rcond=None)[0]
        bread = np.linalg.inv(Xg.T @ (w[:, None] * Xg) / w.sum())
        xi = (((d[one] - X @ gamma).to_numpy()[:, None] * X) @ bread @ omega.T)[:, 1] / N
        rest = rest - (w @ rest) / w.sum()
        xi[g.index] += w * rest / w.sum()
        xi = pd.Series(xi).groupby(d["c"]).sum()
        for other in ("f1", "f2"):
            phi = pd.Series(all_rows(d, other)).groupby(d["c"]).sum()
            expected = xi @ phi * CLUSTERS / (CLUSTERS - 1)
            found = V[where(mv, llm=other, correction="naive"), k]
            assert found == pytest.approx(expected, rel=1e-6)


def test_drawn_units_meet_by_their_totals():
    d = made()
    drawn = np.random.default_rng(1).choice(CLUSTERS, 20, replace=False)
    d["v_human"] = d["v"].where(d["c"].isin(drawn))
    d["pi"] = 20 / CLUSTERS
    mv = fit(d, ["naive", "human"], {"sampling": tu.Sampling(unit="c")})
    g, w, h, _ = corrected_parts(d, "f1", np.zeros((3, 3)))
    units = pd.Series(w * h / w.sum()).groupby(g["c"].to_numpy()).sum()
    phi = pd.Series(all_rows(d, "f1")).groupby(d["c"]).sum()
    expected = units @ phi[units.index] * 20 / 19
    found = mv.covariance()[where(mv, llm="f1"), where(mv, correction="human")]
    # The second phase of LLM-only fits is none: drawn units stand for all with weight 1/pi.
    assert found == pytest.approx(expected, rel=1e-6)


def test_logit_universes_of_two_families():
    d = made()
    mv = fit(d, ["naive"], family=["ols", "logit"])
    X = regressors(d)
    columns = []
    for row in mv.table().to_dict("records"):
        if row["family"] == "ols":
            columns.append(all_rows(d, row["llm"]))
            continue
        theta = mv.fit(row["universe"]).coef().to_numpy()
        mu = 1 / (1 + np.exp(-X @ theta))
        bread = np.linalg.inv(X.T @ ((mu * (1 - mu))[:, None] * X))
        columns.append(((d[row["llm"]] - mu).to_numpy()[:, None] * X @ bread)[:, 1])
    phi = np.column_stack(columns)
    np.testing.assert_allclose(mv.covariance(), phi.T @ phi, rtol=1e-5)


def test_absorbed_effects_without_some_labels():
    d = made()
    lost = np.random.default_rng(0).uniform(size=N) < 0.2
    d["f1"] = d["f1"].where(~lost)
    d["z2"] = d["x"].round()
    mv = fit(d, ["naive"], formulas="v ~ t + x | c", family="absorb")
    columns = []
    for llm, keep in (("f1", ~lost), ("f2", np.ones(N, dtype=bool))):
        part = d[keep]
        centred = part[["t", "x", llm]] - part.groupby("c")[["t", "x", llm]].transform("mean")
        X = centred[["t", "x"]].to_numpy()
        bread = np.linalg.inv(X.T @ X)
        residual = centred[llm].to_numpy() - X @ bread @ X.T @ centred[llm].to_numpy()
        phi = np.zeros(N)
        phi[keep] = (residual[:, None] * X @ bread)[:, 0]
        columns.append(phi)
    phi = np.column_stack(columns)
    found = mv.covariance()
    r = found[0, 1] / np.sqrt(found[0, 0] * found[1, 1])
    expected = phi[:, 0] @ phi[:, 1] / np.linalg.norm(phi[:, 0]) / np.linalg.norm(phi[:, 1])
    assert r == pytest.approx(expected, rel=1e-8)


def test_a_copy_of_an_annotator_is_perfectly_correlated():
    d = made().assign(f2=lambda d: d["f1"])
    for how in ({}, {"cluster": "c"}, {"sampling": tu.Sampling(strata="t")}):
        V = fit(d, ["naive", "ptd"], how, vcov="HC3").covariance()
        r = V / np.sqrt(np.outer(np.diag(V), np.diag(V)))
        assert r[0, 2] == pytest.approx(1.0, abs=1e-9)
        assert r[1, 3] == pytest.approx(1.0, abs=1e-9)
