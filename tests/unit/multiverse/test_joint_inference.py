"""Covariance between universes against brute force, and the tests made of it."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import trueup as tu
from support.made import poisson, study, texts
from trueup.errors import ArgumentError, CorrectionError

HC0 = {"vcov": "HC0", "progress": False}


def designs():
    d = texts(N=600, n=200, seed=5, outcome="binary", clusters=60)
    p = texts(N=600, n=200, seed=5, outcome="binary", draw="poisson", clusters=60)
    drawn = np.random.default_rng(1).choice(60, 20, replace=False)
    units = d.assign(v_human=d["v"].where(d["c"].isin(drawn)))
    weights = {"weights": np.random.default_rng(2).uniform(0.5, 2.0, 600)}
    return {
        "srs": (d, {}),
        "poisson": (p, {"sampling": poisson()}),
        "strata": (d, {"sampling": tu.Sampling(strata="t")}),
        "units": (units, {"sampling": tu.Sampling(unit="c")}),
        "clusters": (d, {"cluster": "c"}),
        "weights": (d, weights),
    }


def run(name, corrections, formulas=("v ~ t + x",), **options):
    d, how = designs()[name]
    s = study(d, llm=["f1", "f2"], **how)
    return tu.multiverse(
        list(formulas), s, focus="t", corrections=corrections, **{**HC0, **options}
    )


@pytest.mark.parametrize("name", designs())
def test_the_diagonal_is_the_squared_error_and_the_matrix_is_valid(name):
    mv = run(name, ["naive", "human", "ptd", "ppi"])
    V = mv.covariance()
    np.testing.assert_allclose(np.diag(V), mv.table()["std_error"] ** 2, rtol=1e-9)
    values = np.linalg.eigvalsh(V)
    assert values.min() >= -1e-10 * values.max()


@pytest.mark.parametrize("name", ["srs", "poisson", "weights"])
def test_llm_only_universes_against_all_rows_by_hand(name):
    mv = run(name, ["naive"], formulas=("v ~ t + x", "v ~ t"))
    d, how = designs()[name]
    a = np.asarray(how.get("weights", np.ones(len(d))))
    columns = []
    for llm, names in (("f1", "tx"), ("f1", "t"), ("f2", "tx"), ("f2", "t")):
        X = np.column_stack([np.ones(len(d)), *(d[c] for c in names)])
        bread = np.linalg.inv(X.T @ (a[:, None] * X))
        residual = d[llm] - X @ (bread @ X.T @ (a * d[llm]))
        columns.append(((a * residual).to_numpy()[:, None] * X) @ bread[:, 1])
    phi = np.column_stack(columns)
    expected = phi.T @ phi
    table = mv.table()
    order = [
        table.index[(table["llm"] == llm) & (table["formula"] == f)][0]
        for llm in ("f1", "f2")
        for f in ("v ~ t + x", "v ~ t")
    ]
    np.testing.assert_allclose(mv.covariance()[np.ix_(order, order)], expected, rtol=1e-8)


def test_llm_only_and_human_meet_on_the_coded_rows():
    mv = run("poisson", ["naive", "human"])
    d, _ = designs()["poisson"]
    g = d.dropna(subset="v_human")
    w = 1 / g["pi"].to_numpy()
    X, Xg = (np.column_stack([np.ones(len(f)), f["t"], f["x"]]) for f in (d, g))
    gamma = np.linalg.lstsq(X, d["f1"], rcond=None)[0]
    phi = ((g["f1"] - Xg @ gamma).to_numpy()[:, None] * Xg) @ np.linalg.inv(X.T @ X / len(d))
    A = Xg.T @ (w[:, None] * Xg)
    theta = np.linalg.solve(A, Xg.T @ (w * g["v"]))
    h = ((g["v"] - Xg @ theta).to_numpy()[:, None] * Xg) @ np.linalg.inv(A / w.sum())
    expected = (phi[:, 1] * h[:, 1] * w).sum() / w.sum() ** 2
    table = mv.table()
    i = table.index[(table["llm"] == "f1")][0]
    j = table.index[table["correction"] == "human"][0]
    assert mv.covariance()[i, j] == pytest.approx(expected, rel=1e-8)


def test_disjoint_subsets_are_uncorrelated_and_overlapping_ones_are_not():
    d, how = designs()["srs"]
    s = study(d, llm=["f1"], **how)
    subsets = {"low": "x < 0", "high": "x >= 0", "all": None}
    mv = tu.multiverse("v ~ t", s, focus="t", corrections=["naive", "ptd"], subsets=subsets, **HC0)
    table, V = mv.table(), mv.covariance()
    r = V / np.sqrt(np.outer(np.diag(V), np.diag(V)))

    def at(subset, correction):
        return table.index[(table["subset"] == subset) & (table["correction"] == correction)][0]

    for correction in ("naive", "ptd"):
        low, high, whole = (at(k, correction) for k in ("low", "high", "all"))
        assert abs(r[low, high]) < 1e-9
        assert 0.4 < r[low, whole] < 1.0
        assert 0.4 < r[high, whole] < 1.0


@pytest.mark.parametrize("correction", ["naive", "ptd"])
def test_two_universes_make_a_z_test(correction):
    mv = run("srs", [correction], vcov="HC0")
    table, V = mv.table(), mv.covariance()
    b = table["estimate"].to_numpy()
    z = (b[1] - b[0]) / np.sqrt(V[0, 0] + V[1, 1] - 2 * V[0, 1])
    row = mv.agree_test().tests.iloc[0]
    assert row["statistic"] == pytest.approx(z**2, rel=1e-8)
    assert row["df"] == 1
    if correction == "ptd":
        assert row["p_value"] == pytest.approx(stats.chi2.sf(z**2, 1), rel=1e-6)
        assert "represent the corpus" in str(mv.agree_test())
    else:
        assert "depends on which llm" in str(mv.agree_test())


def test_a_perfectly_correlated_pair_has_pointwise_bands():
    d, how = designs()["srs"]
    s = study(d.assign(f2=d["f1"]), llm=["f1", "f2"], **how)
    mv = tu.multiverse("v ~ t", s, focus="t", corrections=["ptd"], **HC0)
    table = mv.bands()
    np.testing.assert_allclose(table["critical_value"], stats.norm.ppf(0.975), rtol=1e-3)


def test_bands_adjusted_flips_and_curve():
    mv = run("srs", ["naive", "human", "ptd"], vcov="HC3")
    bands, adjusted = mv.bands(), mv.adjusted()
    tidy = mv.tidy()
    np.testing.assert_allclose(bands["simultaneous_low"], tidy["simultaneous_low"])
    assert (adjusted["p_adjusted"] >= adjusted["p_value"] - 1e-12).all()
    flips = mv.flips()
    assert flips.reference == "human-only"
    assert (flips.shares["bound_low"] <= flips.shares["flipped"] + 1e-12).all()
    tests = mv.curve_test().tests
    assert set(tests["universes"]) == {"LLM-only", "others"}
    assert tests["p_value"].between(0, 1).all()
    for said in (flips, mv.curve_test(), mv.agree_test()):
        assert "'t'" in str(said)
    with pytest.raises(ArgumentError, match="no fitted universe"):
        mv.flips(reference=99)
    with pytest.raises(ArgumentError, match="no dimension"):
        mv.agree_test(over="colour")


def test_pooling():
    mv = run("srs", ["human", "ptd"])
    table, V = mv.table(), mv.covariance()
    fixed = mv.pool(method="fixed")
    w = np.full(len(table), 1 / len(table))
    assert fixed.estimate == pytest.approx(w @ table["estimate"])
    assert fixed.std_error == pytest.approx(np.sqrt(w @ V @ w))
    least = mv.pool()
    assert least.std_error <= table["std_error"].min() * 1.01
    assert least.weights["weight"].sum() == pytest.approx(1.0)
    with pytest.raises(CorrectionError, match="LLM-only"):
        run("srs", ["naive"]).pool()
    with pytest.raises(CorrectionError, match="differ in formula"):
        run("srs", ["ptd"], formulas=("v ~ t", "v ~ t + x")).pool()
    with pytest.raises(ArgumentError, match="weights="):
        mv.pool(weights=[1.0], method="fixed")


def test_the_decomposition_adds_up():
    mv = run("srs", ["naive", "ptd"], formulas=("v ~ t", "v ~ t + x"), family=["ols", "logit"])
    out = mv.decompose()
    assert out.table["share"].sum() == pytest.approx(1.0)
    assert (out.table["share"] >= -1e-12).all()
    share = out.table.set_index("source")["share"]
    # The family changes the scale of the coefficient: nothing else comes near it.
    assert share["family"] == share.max()
    with pytest.raises(ArgumentError, match="cannot be decomposed"):
        run("srs", ["human"]).decompose()


def test_a_dimension_that_changes_nothing_has_no_share():
    mv = run("srs", ["naive", "human"], formulas=("v ~ t", "v ~ 1 + t"))
    table = mv.decompose().table.set_index("source")
    assert table.loc["formula", "share"] == pytest.approx(0.0, abs=1e-12)


def test_the_table_of_the_illusion():
    mv = run("poisson", ["naive", "ptd"])
    out = mv.illusion()
    d, _ = designs()["poisson"]
    g = d.dropna(subset="v_human")
    w = 1 / g["pi"]
    for llm in ("f1", "f2"):
        row = out.annotators.set_index("llm").loc[llm]
        assert row["accuracy"] == pytest.approx(np.average(g[llm] == g["v"], weights=w))
    pair = out.pairs.iloc[0]
    assert pair["disagreement"] == pytest.approx((d["f1"] != d["f2"]).mean())
    V, table = mv.covariance(), mv.table()
    i, j = table.index[table["correction"] == "naive"]
    assert pair["std_error"] == pytest.approx(np.sqrt(V[i, i] + V[j, j] - 2 * V[i, j]))
    assert isinstance(out.pairs, pd.DataFrame)
