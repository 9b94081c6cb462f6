"""Formulas whose variables were coded on different rows: what can still be said jointly."""

import warnings

import numpy as np
import pytest

import trueup as tu
from support.made import texts
from trueup.errors import TrueupWarning

N = 600


@pytest.fixture(scope="module")
def d():
    d = texts(N=N, n=150, outcome="binary", seed=3, clusters=60)
    rng = np.random.default_rng(1)
    d["m"] = (rng.uniform(size=N) < 0.4 + 0.2 * d["t"]).astype(float)
    for k in (1, 2):
        d[f"m{k}"] = np.where(rng.uniform(size=N) < 0.15, 1 - d["m"], d["m"])
    coded = rng.choice(N, 120, replace=False)
    d["m_human"] = d["m"].where(np.isin(np.arange(N), coded))
    return d


def run(d, formulas=("v ~ t", "v ~ t + x", "m ~ t"), *, how=None, **options):
    s = tu.Study(
        d.drop(columns=["v", "m"]),
        human={"v": "v_human", "m": "m_human"},
        llm={"v": {"a": "f1", "b": "f2"}, "m": {"a": "m1", "b": "m2"}},
        **(how or {}),
    )
    settings = {"corrections": ["naive", "human", "ptd"], "focus": "t", "progress": False}
    return tu.multiverse(list(formulas), s, **settings | options)


def test_universes_of_the_larger_sample_are_joint_and_the_others_are_named(d):
    mv = run(d)
    with pytest.warns(TrueupWarning, match=r"leave out 3 universes \(11, 12, 14; m ~ t\)"):
        table = mv.tidy().set_index("universe")
    assert table.index[table["simultaneous_low"].isna()].tolist() == [11, 12, 14]
    assert table["conf_low"].notna().all()
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrueupWarning)  # it was said
        assert len(mv.bands()) == len(mv.adjusted()) == 12
        assert mv.agree_test().tests["universes"].tolist() == [6, 4]
        assert mv.flips().shares["universes"].sum() == 12
        assert mv.curve_test().tests["p_value"].notna().all()
        assert mv.decompose().universes == 10
        assert "leave out 3 universes" in mv.summary()
        assert list(mv.vcov().index) == [u for u in range(15) if u not in (11, 12, 14)]


def test_they_are_as_joint_as_without_the_others(d):
    with pytest.warns(TrueupWarning, match="leave out"):
        V = run(d).vcov()
    alone = run(d, ["v ~ t", "v ~ t + x"]).vcov()
    np.testing.assert_allclose(V.loc[alone.index, alone.index], alone, rtol=1e-10)


def test_llm_only_universes_of_other_variables_stay_in(d):
    with pytest.warns(TrueupWarning, match="leave out 1 universe "):
        V = run(d, ["v ~ t", "m ~ t"], corrections=["naive", "human"], vcov="HC0").vcov()
    X = np.column_stack([np.ones(N), d["t"]])

    def influence(rows, y):
        X_, y_ = X[rows], y[rows].to_numpy()
        bread = np.linalg.inv(X_.T @ X_)
        return (y_ - X_ @ (bread @ X_.T @ y_)) * (X_ @ bread)[:, 1]

    phi = influence(np.arange(N), d["m1"])
    coded = np.flatnonzero(d["v_human"].notna())
    h = influence(coded, d["v_human"])
    # Influences on the mean over rows are N phi and n h; each coded row stands for N/n rows.
    expected = (N * phi[coded] * len(coded) * h * N / len(coded)).sum() / N**2
    m_naive, v_human = 3, 1
    assert V.loc[m_naive, v_human] == pytest.approx(expected, rel=1e-8)
    assert V.loc[m_naive, 0] == pytest.approx((phi * influence(np.arange(N), d["f1"])).sum())


def test_with_clusters_and_subsets(d):
    d = d.assign(place=np.where(d["m_human"].isna() & (d["x"] > 0), "town", "land"))
    subsets = {"all": None, "town": "place == 'town'"}
    mv = run(d, how={"cluster": "c"}, subsets=subsets)
    with pytest.warns(TrueupWarning, match="leave out"):
        V = mv.vcov()
    assert np.linalg.eigvalsh(V.to_numpy())[0] > -1e-12
    table = mv.tidy().set_index("universe")
    np.testing.assert_allclose(np.sqrt(np.diag(V)), table.loc[V.index, "std_error"], rtol=1e-8)
    # No row of the town was coded for m, so that nothing of it can be corrected.
    town = table[(table["subset"] == "town") & (table["formula"] == "m ~ t")]
    assert town["estimate"].isna().all()


def test_llm_only_multiverses_leave_nothing_out(d):
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrueupWarning)
        mv = run(d, corrections=["naive"])
        assert len(mv.vcov()) == 6
        assert mv.left_out() == ""
