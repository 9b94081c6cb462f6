"""The error regression is the bias of LLM-only least squares, exactly; its tests hold level."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import trueup as tu
from trueup.errors import ArgumentError, FormulaError

BY = "~ t + C(g)"


def made(seed=0, N=900, n=200, draw="srs", clusters=None, differential=0.25, text=False):
    """Return rows whose annotator ``bad`` misses positives with t = 1, ``fair`` errs at random."""
    rng = np.random.default_rng(seed)
    d = pd.DataFrame({"t": rng.integers(0, 2, N).astype(float), "g": rng.choice(list("abc"), N)})
    if clusters:
        d["c"] = np.arange(N) % clusters
    v = (rng.random(N) < 0.4).astype(float)
    flip = rng.random((N, 2)) < 0.1
    d["bad"] = np.where(
        rng.random(N) < differential * d["t"] * 2, 0.0, np.where(flip[:, 0], 1 - v, v)
    )
    d["fair"] = np.where(flip[:, 1], 1 - v, v)
    coded = np.zeros(N, dtype=bool)
    if draw == "srs":
        coded[rng.choice(N, n, replace=False)] = True
    elif draw == "strata":
        for g in "abc":
            coded[rng.choice(np.flatnonzero(d["g"] == g), n // 3, replace=False)] = True
    else:
        d["pi"] = np.where(d["t"] == 1, 0.3, 0.15)
        coded = rng.random(N) < d["pi"]
    d["h"] = np.where(coded, v, np.nan)
    d["y"] = 0.5 * v + 0.2 * d["t"] + rng.normal(size=N)
    if text:
        for c in ("h", "bad", "fair"):
            d[c] = d[c].map({0.0: "no", 1.0: "yes"}).astype(object)
            d[c] = d[c].where(d[c].notna(), None)
    return d


def study(data, **options):
    samplings = {"strata": tu.Sampling(strata="g")}
    if "pi" in data:
        options["sampling"] = tu.Sampling(probability="pi", method="poisson")
    elif options.pop("strata", False):
        options["sampling"] = samplings["strata"]
    return tu.Study(data, human={"v": "h"}, llm={"v": ["bad", "fair"]}, **options)


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (made(), {}),
        (made(draw="strata"), {"strata": True}),
        (made(draw="poisson"), {}),
        (made(clusters=60), {"cluster": "c"}),
    ],
    ids=["srs", "strata", "poisson", "clusters"],
)
def test_implied_bias_is_llm_only_less_the_untuned_correction(data, options):
    s = study(data, **options)
    found = tu.error_profile(s, "v", BY)
    for llm in ("bad", "fair"):
        naive = tu.ols(f"v {BY}", s, llm=llm, correction="naive").coef()
        corrected = tu.ols(f"v {BY}", s, llm=llm, correction=tu.PTD(tuning="identity")).coef()
        ours = found.implied_bias.query("annotator == @llm").set_index("term")
        expected = (naive - corrected).loc[ours.index]
        np.testing.assert_allclose(ours["bias"], expected, atol=1e-8)
        np.testing.assert_allclose(ours["llm_only"], naive.loc[ours.index], atol=1e-8)
        np.testing.assert_allclose(ours["corrected"], corrected.loc[ours.index], atol=1e-8)


def test_slopes_and_errors_match_weighted_least_squares_of_statsmodels():
    data = made(draw="poisson")
    found = tu.error_profile(study(data), "v", "~ t", llm="bad", vcov="HC0").table
    coded = data[data["h"].notna()]
    w = 1 / coded["pi"]
    X = sm.add_constant(coded["t"])
    e = coded["bad"] - coded["h"]
    theirs = sm.WLS(e, X, weights=w).fit(cov_type="HC0")
    np.testing.assert_allclose(found["estimate"], theirs.params, atol=1e-12)
    # With V1 and V2 of independent draws, sum h^2/pi + (1-pi)/pi^2 h^2 = sum h^2/pi^2.
    np.testing.assert_allclose(found["std_error"], theirs.bse, rtol=1e-10)


def test_differential_error_is_told_from_random_error():
    found = tu.error_profile(study(made(n=400)), "v", BY, focus="t")
    p = found.tests.set_index("annotator")["p_value"]
    assert p["bad"] < 1e-3
    assert p["all"] < 5e-3
    assert p["fair"] > 0.05
    assert found.implied_bias["term"].tolist() == ["t", "t"]
    text = str(found)
    assert "Bias of the LLM-only coefficient" in text
    assert max(map(len, text.splitlines())) <= 100


def test_one_slope_is_tested_by_its_squared_t_statistic():
    found = tu.error_profile(study(made()), "v", "~ t", llm="bad")
    z = found.table.set_index("term").loc["t", "statistic"]
    test = found.tests.iloc[0]
    assert test["statistic"] == pytest.approx(z**2, rel=1e-10)
    assert (test["df_num"], test["df_denom"]) == (1, 198)


def test_joint_test_counts_a_copied_annotator_once():
    data = made()
    s = tu.Study(data.assign(copy=data["bad"]), {"v": "h"}, {"v": ["bad", "copy"]})
    tests = tu.error_profile(s, "v", BY).tests.set_index("annotator")
    assert tests.loc["all", "df_num"] == 3
    assert tests.loc["all", "statistic"] == pytest.approx(tests.loc["bad", "statistic"])


@pytest.mark.parametrize("draw", ["srs", "strata"])
def test_tests_hold_their_level_where_errors_are_random(draw):
    """80 draws at 5%: three Monte Carlo errors above .05 is .123."""
    rejected = []
    for seed in range(80):
        s = study(made(seed, draw=draw, differential=0.0), strata=draw == "strata")
        tests = tu.error_profile(s, "v", BY).tests.set_index("annotator")
        rejected.append(tests["p_value"] < 0.05)
    share = pd.DataFrame(rejected).mean()
    assert (share <= 0.123).all()
    assert share.sum() > 0.0


def test_intervals_of_the_implied_bias_cover_the_true_bias():
    """At t = 1 a share .5 of the labels (positive: .9 * .4 + .1 * .6 = .42) is lost: -.21."""
    covered = []
    for seed in range(200):
        found = tu.error_profile(study(made(seed)), "v", "~ t", llm="bad", focus="t")
        row = found.implied_bias.iloc[0]
        covered.append(row["conf_low"] <= -0.21 <= row["conf_high"])
    assert 0.90 <= np.mean(covered) <= 0.995


def test_classes_have_an_error_each_and_two_classes_one():
    numbers = tu.error_profile(study(made()), "v", BY)
    text = tu.error_profile(study(made(text=True)), "v", BY)
    np.testing.assert_allclose(text.table["estimate"], numbers.table["estimate"], atol=1e-12)
    assert text.table["label_class"].unique().tolist() == ["yes"]
    data = made()
    rng = np.random.default_rng(1)
    cut = rng.choice(["x", "y", "z"], len(data)).astype(object)
    data["h"] = np.where(data["h"].notna(), cut, None)
    data["bad"] = np.where(rng.random(len(data)) < 0.2, "x", cut)
    three = tu.error_profile(tu.Study(data, {"v": "h"}, {"v": ["bad"]}), "v", "~ t")
    assert three.table["label_class"].unique().tolist() == ["x", "y", "z"]
    by_term = three.table.groupby("term")["estimate"].sum()
    np.testing.assert_allclose(by_term, 0.0, atol=1e-12)  # errors of all classes add up to zero
    assert three.tests.iloc[0]["df_num"] == 2


def test_groups_show_accuracy_or_how_few_rows_there_are():
    data = made()
    few = np.flatnonzero(data["h"].notna())[:6]
    data.loc[few, "g"] = "rare"
    found = tu.error_profile(study(data), "v", BY, llm="fair").groups
    accuracy = found[found["measure"] == "accuracy"].set_index(["variable", "group"])
    rare = accuracy.loc[("g", "rare")]
    assert rare["n"] == 6
    assert np.isnan(rare["estimate"])
    assert "only 6 coded rows" in rare["note"]
    coded = data[data["h"].notna()]
    for t in (0.0, 1.0):
        part = coded[coded["t"] == t]
        expected = (part["fair"] == part["h"]).mean()
        assert accuracy.loc[("t", t), "estimate"] == pytest.approx(expected)
    assert "n = 6" in str(tu.error_profile(study(data), "v", BY, llm="fair"))


def test_a_label_that_will_be_a_covariate_has_its_error_on_the_outcome():
    data = made()
    found = tu.error_profile(study(data), "v", "~ y + t", llm="fair")
    coded = data[data["h"].notna()]
    X = sm.add_constant(coded[["y", "t"]])
    theirs = sm.OLS(coded["fair"] - coded["h"], X).fit()
    np.testing.assert_allclose(found.table["estimate"], theirs.params, atol=1e-10)


def test_labelled_variables_in_by_leave_no_implied_bias():
    data = made()
    data["h2"] = data["h"]
    data["m"] = data["fair"]
    s = tu.Study(data, {"v": "h", "u": "h2"}, {"v": {"k": "bad"}, "u": {"k": "m"}})
    found = tu.error_profile(s, "v", "~ u + t")
    assert found.implied_bias is None
    coded = data[data["h"].notna()]
    theirs = sm.OLS(coded["bad"] - coded["h"], sm.add_constant(coded[["h2", "t"]])).fit()
    np.testing.assert_allclose(found.table["estimate"], theirs.params, atol=1e-10)


def test_a_perfect_annotator_has_nothing_to_test():
    data = made()
    data["bad"] = data["h"].fillna(0.0)
    found = tu.error_profile(study(data), "v", BY, llm="bad")
    assert (found.implied_bias["bias"].abs() < 1e-12).all()
    assert "nothing to test" in found.tests.iloc[0]["reason"]


def test_filled_labels_are_counted():
    data = made()
    data.loc[data["h"].notna().to_numpy().nonzero()[0][:4], "bad"] = np.nan
    found = tu.error_profile(study(data), "v", BY)
    assert found.n_missing == {"bad": 4, "fair": 0}
    assert "4 coded rows without a label" in str(found)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"by": "v ~ t"}, FormulaError, "has an outcome"),
        ({"by": ""}, FormulaError, "must be text"),
        ({"by": "~ nothing"}, FormulaError, "nothing"),
        ({"by": BY, "focus": "treat"}, ArgumentError, "no coefficient"),
        ({"by": BY, "variable": "w"}, ArgumentError, "none of them"),
        ({"by": BY, "vcov": "HC9"}, ArgumentError, "HC9"),
        ({"by": "~ t | g"}, FormulaError, "absorb"),
    ],
)
def test_bad_input_says_what_is_wrong(options, error, words):
    with pytest.raises(error, match=words):
        tu.error_profile(study(made()), **options)


@pytest.mark.parametrize("rare", ["zz", "a"], ids=["a level", "the reference level"])
def test_a_slope_of_a_group_with_one_coded_row_shows_its_count_and_is_not_tested(rare):
    data = made()
    data["g"] = np.where(data["t"] == 1, "m", "n")
    data.loc[data.index[data["h"].notna()][0], "g"] = rare
    found = tu.error_profile(study(data), "v", "~ g + y")
    table = found.table.set_index(["annotator", "term"]).loc["bad"]
    alone = [f"g[T.{rare}]"] if rare == "zz" else ["g[T.m]", "g[T.n]"]
    assert (table.loc[alone, "rests_on"] == 1).all()
    assert table.loc[alone, ["std_error", "p_value", "conf_low"]].isna().all().all()
    assert table["note"].loc[alone].str.contains("fewer than 10 coded rows").all()
    assert np.isfinite(table.loc["y", "p_value"])
    tests = found.tests.set_index("annotator")
    assert (tests["left_out"] == ", ".join(alone)).all()
    assert tests.loc["bad", "df_num"] == 4 - 1 - len(alone)
    text = str(found)
    assert "n = 1" in text
    assert f"Not tested, since resting on fewer than 10 coded rows: {', '.join(alone)}" in text


def test_the_bias_of_a_slope_with_few_rows_is_still_exact():
    data = made()
    few = data.index[data["h"].notna()][:4]
    data["rare"] = data.index.isin(few).astype(float)
    s = study(data)
    bias = tu.error_profile(s, "v", "~ rare + t", llm="bad").implied_bias.set_index("term")
    fit = tu.ols("v ~ rare + t", s, llm="bad", correction=tu.PTD(tuning="identity"))
    naive = tu.ols("v ~ rare + t", s, llm="bad", correction="naive")
    assert bias.loc["rare", "bias"] == pytest.approx((naive.coef() - fit.coef())["rare"], abs=1e-9)
    assert bias.loc["rare", "rests_on"] == 4
    assert np.isnan(bias.loc["rare", "p_value"])


def test_a_profile_without_any_slope_to_test_says_so():
    data = made()
    data["rare"] = data.index.isin(data.index[data["h"].notna()][:3]).astype(float)
    tests = tu.error_profile(study(data), "v", "~ rare").tests
    assert tests["p_value"].isna().all()
    assert tests["reason"].str.contains("fewer than 10 coded rows each").all()


@pytest.mark.parametrize("missing", ["level", "fill"])
def test_a_class_that_only_the_llm_gives_has_its_error_too(missing):
    data = made()
    for column in ("h", "fair"):
        data[column] = data[column].map({1.0: "yes", 0.0: "no"})
    stray = data.index % 7 == 0
    data.loc[stray, "fair"] = None if missing == "level" else "unsure"
    name = "refused" if missing == "level" else "unsure"
    s = tu.Study(data, {"v": "h"}, {"v": ["fair"]}, missing=missing)
    found = tu.error_profile(s, "v", "~ t").table
    assert list(dict.fromkeys(found["label_class"])) == ["no", "yes", name]
    coded = data[data["h"].notna()]
    theirs = sm.OLS((stray[data["h"].notna()]).astype(float), sm.add_constant(coded["t"])).fit()
    ours = found[found["label_class"] == name]
    np.testing.assert_allclose(ours["estimate"], theirs.params, atol=1e-10)
    # One for each row and class: what one class gains the others lose.
    assert found.groupby("term")["estimate"].sum().abs().max() < 1e-10


def test_a_reason_of_one_annotator_hides_no_statistic_of_another_and_all_are_shown():
    data = made()
    data["perfect"] = data["h"].fillna(0.0)
    names = ["perfect", "bad", "fair", "copy"]
    s = tu.Study(data.assign(copy=data["bad"]), {"v": "h"}, {"v": names})
    text = str(tu.error_profile(s, "v", "~ t"))
    tests = text.split("Tests that")[1].split("Within groups")[0]
    assert "-  " in next(line for line in tests.splitlines() if line.startswith("perfect"))
    line = next(line for line in tests.splitlines() if line.startswith("bad"))
    assert f"{tu.error_profile(s, 'v', '~ t').tests.loc[1, 'statistic']:.2f}" in line
    assert all(name in text.split("Within groups")[1].split("Bias of")[0] for name in names)
