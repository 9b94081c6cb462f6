"""Joint statements where universes are many, repeated, renamed, or without variance."""

import warnings

import numpy as np
import pytest
from scipy import stats

import trueup as tu
from support.made import study, texts
from trueup.errors import ArgumentError, CorrectionError, TrueupWarning


@pytest.fixture(scope="module")
def d():
    return texts(N=600, n=150, seed=8, outcome="binary", clusters=50)


def run(d, corrections, llm=("f1", "f2"), formulas="v ~ t + x", how=None, **options):
    s = study(d, llm=list(llm), **(how or {}))
    return tu.multiverse(
        formulas, s, **{"focus": "t", "corrections": corrections, "progress": False} | options
    )


def noisy(d, K, seed=0):
    rng = np.random.default_rng(seed)
    wrong = rng.uniform(size=(len(d), K)) < rng.uniform(0.05, 0.25, K)
    return d.assign(**{f"g{k}": np.where(wrong[:, k], 1 - d["v"], d["v"]) for k in range(K)})


def test_more_annotators_than_coded_rows_can_tell_apart(d):
    d, names = noisy(d, 60), [f"g{k}" for k in range(60)]
    mv = run(d, ["naive", "ptd"], names)
    out = mv.agree_test()
    tests = out.tests.set_index("correction")
    ptd = tests.loc["ptd"]
    assert ptd["distribution"] == "max|z| of 60"
    assert ptd["statistic"] == ptd["largest"]
    assert ptd["p_value"] == ptd["p_largest"]
    assert ptd["p_value"] > 0.001
    assert tests.loc["naive", "distribution"].startswith("F(")
    assert "too many estimates" in str(out)
    # The largest distance from the mean, by hand.
    at = (mv.table()["correction"] == "ptd").to_numpy()
    b, V = mv.table()["estimate"].to_numpy()[at], mv.covariance()[np.ix_(at, at)]
    M = np.eye(60) - 1 / 60
    z = np.abs(M @ b) / np.sqrt(np.diag(M @ V @ M))
    assert ptd["largest"] == pytest.approx(z.max(), rel=1e-9)
    low, high = 2 * stats.norm.sf(z.max()), 60 * 2 * stats.t.sf(z.max(), 147)
    assert low < ptd["p_largest"] < high


def test_the_denominator_counts_what_was_drawn(d):
    p = 3
    rows = run(d, ["ptd"]).agree_test().tests.iloc[0]
    assert rows["df_denom"] == 150 - p
    coded = d.dropna(subset="v_human")["c"].nunique()
    clusters = run(d, ["ptd"], how={"cluster": "c"}).agree_test().tests.iloc[0]
    assert clusters["df_denom"] == coded - p
    drawn = np.random.default_rng(0).choice(50, 15, replace=False)
    units = d.assign(v_human=d["v"].where(d["c"].isin(drawn)))
    found = run(units, ["ptd"], how={"sampling": tu.Sampling(unit="c")}).agree_test().tests.iloc[0]
    assert found["df_denom"] == 15 - p
    assert run(d, ["naive"]).agree_test().tests.iloc[0]["df_denom"] == 600 - p


def test_groups_differ_in_one_dimension_only(d):
    mv = run(d, ["naive", "ptd"], subsets={"low": "x < 0", "high": "x >= 0"})
    tests = mv.agree_test().tests.set_index("correction")
    assert list(tests["universes"]) == [4, 4]
    assert tests.loc["naive", "df"] == 2
    subsets = mv.agree_test(over="subset")
    assert "different coefficients" in str(subsets)
    assert list(subsets.tests["kind"]) == ["LLM-only", "others"]
    # Rows of disjoint subsets are independent: statistics of their groups add up.
    alone = [run(d, ["naive"], subsets={"part": q}, vcov="HC0") for q in ("x < 0", "x >= 0")]
    both = run(d, ["naive"], subsets={"low": "x < 0", "high": "x >= 0"}, vcov="HC0")
    parts = [mv.agree_test().tests.loc[0, "statistic"] for mv in alone]
    assert both.agree_test().tests.loc[0, "statistic"] == pytest.approx(sum(parts), rel=1e-6)
    with pytest.raises(ArgumentError, match="differ in 'formula' alone"):
        mv.agree_test(over="formula")


def test_fields_of_the_annotator_move_together(d):
    d = d.rename(columns={"f1": "a__p", "f2": "b__p"}).assign(a__q=d["f2"])
    s = tu.Study(d.drop(columns="v"), human={"v": "v_human"}, llm={"v": "{model}__{prompt}"})
    mv = tu.multiverse("v ~ t", s, focus="t", corrections=["naive"], progress=False)
    assert mv.agree_test().tests.loc[0, "universes"] == 3
    # a__p and b__p differ in the model alone, a__p and a__q in the prompt alone.
    assert mv.agree_test(over="model").tests.loc[0, "universes"] == 2
    assert mv.agree_test(over="prompt").tests.loc[0, "universes"] == 2


def test_corrections_are_compared_within_annotators_and_with_human_only(d):
    mv = run(d, ["naive", "human", "ppi", "ptd"])
    out = mv.agree_test(over="correction")
    assert list(out.tests["correction"]) == ["others"]
    assert out.tests.loc[0, "universes"] == 5
    assert "represent the corpus" in str(out)
    table, V = mv.table(), mv.covariance()
    pair = run(d, ["human", "ptd"], llm=["f1"], vcov="HC0")
    table, V = pair.table(), pair.covariance()
    z = np.diff(table["estimate"])[0] / np.sqrt(V[0, 0] + V[1, 1] - 2 * V[0, 1])
    found = pair.agree_test(over="correction").tests.loc[0]
    assert found["statistic"] == pytest.approx(z**2, rel=1e-6)


def test_kinds_of_covariance_do_not_repeat_a_test(d):
    one = run(d, ["ptd"], vcov="HC3").agree_test().tests
    two = run(d, ["ptd"], vcov=["HC3", "HC0"])
    assert two.agree_test().tests.loc[0, "df"] == one.loc[0, "df"]
    assert two.agree_test().tests.loc[0, "p_value"] == pytest.approx(one.loc[0, "p_value"])
    with pytest.raises(ArgumentError, match="standard errors, not estimates"):
        two.agree_test(over="vcov")
    with pytest.raises(CorrectionError, match="repeat the same estimates"):
        two.pool()


def test_copies_have_no_difference_to_test(d):
    mv = run(d.assign(f2=d["f1"]), ["ptd"])
    assert np.isnan(mv.agree_test().tests.loc[0, "p_value"])
    assert "no difference between them" in str(mv.agree_test())
    assert "no difference to test" in mv.summary() or "no difference between" in mv.summary()


def test_an_llm_only_correction_is_known_whatever_it_is_called(d):
    mv = run(d, {"as it comes": tu.Naive(), "mended": tu.PTD()})
    tests = mv.agree_test().tests.set_index("correction")
    assert tests.loc["as it comes", "kind"] == "LLM-only"
    assert set(mv.pool().weights["correction"]) == {"mended"}
    with pytest.raises(CorrectionError, match="LLM-only"):
        mv.pool(where={"correction": "as it comes"})
    assert set(mv.curve_test().tests["universes"]) == {"LLM-only", "others"}


def test_an_estimate_without_variance_is_left_out_aloud(d):
    mv = run(d.assign(f2=d["t"]), ["naive", "ptd"])
    with pytest.warns(TrueupWarning, match="without sampling variance"):
        bands = mv.bands()
    assert len(bands) == 3
    assert not bands["simultaneous_low"].isna().any()
    tidy = mv.tidy().set_index("universe")
    exact = tidy.loc[2]
    assert exact["simultaneous_low"] == pytest.approx(1.0)
    np.testing.assert_allclose(
        bands["simultaneous_low"], tidy.loc[bands["universe"], "simultaneous_low"]
    )


def test_levels(d):
    mv = run(d, ["ptd"])
    wide, narrow = mv.bands(level=0.99), mv.bands(level=0.5)
    assert (wide["critical_value"] > narrow["critical_value"]).all()
    with pytest.raises(ArgumentError, match="level"):
        mv.bands(level=0)


def test_pooling_chosen_universes(d):
    mv = run(d, ["naive", "human", "ppi", "ptd"], formulas=["v ~ t", "v ~ t + x"])
    with pytest.raises(CorrectionError, match=r"differ in formula .* where=\{'formula': 'v ~ t'\}"):
        mv.pool()
    chosen = mv.pool(where={"formula": "v ~ t", "correction": ["human", "ptd"]})
    assert len(chosen.weights) == 3
    table = mv.table()
    at = table.index[table["universe"].isin(chosen.weights["universe"])]
    w = chosen.weights["weight"].to_numpy()
    assert chosen.estimate == pytest.approx(w @ table.loc[at, "estimate"])
    assert chosen.std_error == pytest.approx(np.sqrt(w @ mv.covariance()[np.ix_(at, at)] @ w))
    numbers = chosen.weights["universe"].tolist()
    fixed = mv.pool(
        weights={numbers[0]: 3.0, numbers[1]: 1.0}, method="fixed", where={"formula": "v ~ t"}
    )
    assert fixed.weights["weight"].sum() == pytest.approx(1.0)
    assert fixed.weights["weight"].max() == pytest.approx(0.75)
    with pytest.raises(ArgumentError, match="no dimension"):
        mv.pool(where={"colour": "red"})
    with pytest.raises(ArgumentError, match="which no universe has"):
        mv.pool(where={"formula": "v ~ y"})
    with pytest.raises(ArgumentError, match="leaves no universe"):
        mv.pool(where={"correction": "human", "llm": "f1"})


def test_flips_against_a_universe(d):
    mv = run(d, ["naive", "ptd"])
    table = mv.table()
    for number, b in zip(table["universe"], table["estimate"], strict=True):
        flips = mv.flips(reference=number)
        assert flips.sign == np.sign(b)
        for row in flips.shares.to_dict("records"):
            part = table[(table["correction"] == "naive") == (row["kind"] == "LLM-only")]
            assert row["flipped"] == (part["estimate"] * flips.sign <= 0).mean()
            wrong = (part["conf_high"] if flips.sign > 0 else -part["conf_low"]) < 0
            assert row["significant_opposite"] == wrong.mean()


def test_the_same_seed_gives_the_same_numbers(d):
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrueupWarning)
        one, two = (run(d, ["naive", "human"], seed=4) for _ in range(2))
    assert one.curve_test().tests.equals(two.curve_test().tests)
    assert one.adjusted().equals(two.adjusted())


def test_joint_statements_are_computed_once_and_copies_may_be_changed(d, monkeypatch):
    from trueup.multiverse import joint

    mv = run(d, ["naive", "human", "ptd"])
    calls = []
    for name in ("agree_test", "curve_test", "flips"):
        known = getattr(joint, name)
        monkeypatch.setattr(joint, name, lambda *a, _f=known: calls.append(_f.__name__) or _f(*a))
    first = mv.summary()
    assert mv.summary() == first
    assert sorted(calls) == ["agree_test", "curve_test", "flips"]
    tests, bands = mv.agree_test().tests, mv.bands()
    tests["p_value"] = -1.0
    bands["estimate"] = 0.0
    assert mv.summary() == first
    assert mv.bands()["estimate"].abs().min() > 0


def test_groups_are_reported_by_the_one_that_reaches_farthest(d):
    mv = run(d, ["naive"], formulas=["v ~ t", "v ~ t + x"])
    row = mv.agree_test(over="formula").tests.iloc[0]
    table = mv.table().groupby("llm")["estimate"]
    reach = table.max() - table.min()
    assert row["groups"] == 2
    assert row["universes"] == 4
    assert row["high"] - row["low"] == pytest.approx(reach.max())
    assert "4 estimates in 2 groups, the widest from" in str(mv.agree_test(over="formula"))


def test_few_universes_are_counted_not_given_in_percent(d):
    text = str(run(d, ["human", "naive"], llm=["f1"]).flips())
    assert "others: 0 of 1 universe on the other side" in text
    assert "%" not in text
