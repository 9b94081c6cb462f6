"""The scorecard of annotators, against fits and counts made one by one."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import trueup as tu
from support.made import poisson, texts
from trueup.errors import ArgumentError
from trueup.report.scorecard import Criterion, scorecard

NAMES = ["random", "under_treated", "under_control"]


@pytest.fixture(scope="module")
def reports():
    data = tu.simulate.antibiotics(3000, seed=4)
    data["y"] = data["reaction"].where(np.arange(3000) < 600)
    return data.drop(columns="reaction")


@pytest.fixture(scope="module")
def study(reports):
    return tu.Study(reports, human={"y": "y"}, llm={"y": NAMES})


@pytest.fixture(scope="module")
def card(study):
    return tu.alignment(tu.logit("y ~ treated", study, llm="random"))


def row(card, annotator):
    return card.table.set_index("annotator").loc[annotator]


@pytest.mark.parametrize("annotator", NAMES)
def test_bias_and_effective_labels_are_those_of_the_single_fit(study, card, annotator):
    fit = tu.logit("y ~ treated", study, llm=annotator)
    naive = tu.logit("y ~ treated", study, llm=annotator, correction="naive")
    human = tu.logit("y ~ treated", study, llm=annotator, correction="human")
    found = row(card, annotator)
    bias = naive.coef()["treated"] - fit.coef()["treated"]
    assert found["bias"] == pytest.approx(bias, rel=1e-9)
    assert found["bias_in_se"] == pytest.approx(bias / fit.se()["treated"], rel=1e-9)
    worth = 600 * (human.se()["treated"] / fit.se()["treated"]) ** 2
    assert found["effective_n"] == pytest.approx(worth, rel=1e-9)
    side = fit.compare().tidy().query("term == 'treated' and source == 'LLM-only'")
    assert found["bias_p"] == pytest.approx(side["bias_p_value"].item(), rel=1e-9)


@pytest.mark.parametrize("annotator", NAMES)
def test_accuracy_and_agreement_by_counting(reports, card, annotator):
    found = row(card, annotator)
    coded = reports[:600]
    assert found["accuracy"] == pytest.approx((coded[annotator] == coded["y"]).mean())
    assert found["conf_low"] < found["accuracy"] < found["conf_high"]
    strong = {"under_treated", "under_control"}
    assert found["strong"] == (annotator in strong)
    others = [(reports[annotator] == reports[s]).mean() for s in strong - {annotator}]
    assert found["strong_agreement"] == pytest.approx(np.mean(others))


def test_differential_error_is_the_test_of_the_error_profile(study, card):
    tests = tu.error_profile(study, "y", by="~ treated").tests.set_index("annotator")
    for annotator in NAMES:
        expected = tests.loc[annotator, "p_value"]
        assert row(card, annotator)["differential_p"] == pytest.approx(expected)


def test_rows_are_ordered_by_accuracy_and_the_bias_has_the_known_signs(card):
    assert card.table["accuracy"].is_monotonic_decreasing
    assert row(card, "under_treated")["bias"] < 0 < row(card, "under_control")["bias"]


def test_change_is_the_share_of_flips_against_the_other_prompts(data, small):
    card = tu.alignment(tu.ols("v ~ t + x", small, llm="gpt__short"))
    flips = (data["gpt__short"] != data["gpt__long"]).mean()
    assert row(card, "gpt__short")["change"] == pytest.approx(flips)
    assert row(card, "gpt__long")["change"] == pytest.approx(flips)
    assert np.isnan(row(card, "llama__short")["change"])
    assert list(card.missing[["annotator", "criterion"]].iloc[0]) == ["llama__short", "change"]
    assert "alone in its model" in card.missing["reason"].iloc[0]
    by_prompt = tu.alignment(tu.ols("v ~ t + x", small, llm="gpt__short"), within="prompt")
    flips = (data["gpt__short"] != data["llama__short"]).mean()
    assert row(by_prompt, "llama__short")["change"] == pytest.approx(flips)


def test_change_with_three_prompts_weighs_pairs_by_their_items():
    data = texts(N=300, n=100, outcome="binary", seed=1)
    data["m__a"], data["m__b"], data["m__c"] = data["f1"], data["f2"], 1 - data["f1"]
    data.loc[:99, "m__b"] = np.nan
    study = tu.Study(data, human={"v": "v_human"}, llm={"v": "{model}__{prompt}"})
    card = tu.alignment(tu.ols("v ~ t", study, llm="m__a"))
    flips = (data["m__a"] != data["m__b"])[100:].sum()
    assert row(card, "m__a")["change"] == pytest.approx((flips + 300) / 500)


def test_a_multiverse_gives_the_scorecard_of_its_first_place_with_the_focus(mv, small):
    card = tu.alignment(mv)
    first = mv.tidy()
    assert (card.formula, card.family, card.subset) == ("v ~ t", "ols", "all")
    assert card.correction == "ptd"
    assert len(card.table) == 3
    for annotator in small.annotators:
        mine = first[(first["llm"] == annotator) & (first["formula"] == "v ~ t")]
        mine = mine[(mine["family"] == "ols") & (mine["subset"] == "all")]
        mine = mine.set_index("correction")["estimate"]
        found = row(card, annotator)
        assert found["corrected"] == pytest.approx(mine["ptd"], rel=1e-12)
        assert found["llm_only"] == pytest.approx(mine["naive"], rel=1e-12)
    single = tu.alignment(tu.ols("v ~ t", small, llm="gpt__long", correction="ptd", seed=7))
    columns = ["accuracy", "strong_agreement", "differential_p", "bias_p", "effective_n"]
    np.testing.assert_allclose(card.table[columns], single.table[columns], rtol=1e-9)


def test_a_focus_of_a_later_formula_moves_to_that_formula_and_subset(small, data):
    mv = tu.multiverse(
        ["v ~ t", "v ~ t + x"],
        small,
        family="ols",
        focus="t",
        corrections=["naive"],
        subsets={"land": "place == 'land'"},
        progress=False,
    )
    card = tu.alignment(mv, "x")
    assert (card.formula, card.subset, card.correction) == ("v ~ t + x", "land", "auto")
    land = data[data["place"] == "land"]
    assert card.n_rows == len(land)
    coded = land[land["v_human"].notna()]
    right = (coded["gpt__long"] == coded["v_human"]).mean()
    assert row(card, "gpt__long")["accuracy"] == pytest.approx(right)
    with pytest.raises(ArgumentError, match="No fitted universe has a term 'y'"):
        tu.alignment(mv, "y")


def test_numbers_are_scored_by_correlation_and_mean_error():
    data = texts(N=500, n=150, draw="poisson", seed=2)
    study = tu.Study(
        data.drop(columns="v"), human={"v": "v_human"}, llm={"v": ["f1", "f2"]}, sampling=poisson()
    )
    card = tu.alignment(tu.ols("v ~ t + x", study, llm="f1"))
    assert card.measure == "correlation"
    coded = data[data["v_human"].notna()]
    w = 1 / coded["pi"]
    cov = np.cov(coded["f1"], coded["v_human"], aweights=w)
    found = row(card, "f1")
    assert found["correlation"] == pytest.approx(cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1]))
    error = np.average(coded["f1"] - coded["v_human"], weights=w)
    assert found["mean_error"] == pytest.approx(error)
    assert "correlation" in card.summary().lower()
    agree = np.corrcoef(data["f1"], data["f2"])[0, 1]
    assert row(card, "f2")["strong"]
    assert found["strong_agreement"] == pytest.approx(agree)


def test_probabilities_beside_classes_have_no_accuracy_and_say_so():
    data = texts(N=400, n=120, outcome="binary", seed=5)
    data["p"] = np.clip(data["f2"] * 0.7 + 0.1 + 0.01 * data["x"], 0, 1)
    study = tu.Study(data, human={"v": "v_human"}, llm={"v": ["f1", "p"]})
    card = tu.alignment(tu.ols("v ~ t", study, llm="f1"))
    assert np.isnan(row(card, "p")["accuracy"])
    assert not row(card, "p")["strong"]
    assert np.isfinite(row(card, "p")["bias_in_se"])
    said = card.missing.query("annotator == 'p' and criterion == 'accuracy'")["reason"].item()
    assert "none is right or wrong" in said


def test_one_annotator_gets_a_scorecard_that_says_what_cannot_be_known(reports):
    alone = tu.Study(reports, human={"y": "y"}, llm={"y": ["random"]})
    card = tu.alignment(tu.logit("y ~ treated", alone))
    assert np.isnan(card.table["strong_agreement"].item())
    assert "no other strong annotator" in card.summary()
    assert np.isfinite(card.table["bias_p"].item())
    card.plot().draw_without_rendering()


def test_a_labelled_covariate_is_tested_against_outcome_and_other_terms():
    data = texts(N=500, n=200, outcome="binary", seed=6).rename(columns={"x": "an x"})
    study = tu.Study(data.drop(columns="v"), human={"v": "v_human"}, llm={"v": ["f1", "f2"]})
    card = tu.alignment(tu.ols("z ~ v * t + `an x`", study, llm="f1"), focus="v")
    tests = tu.error_profile(study, "v", by="~ z + t + `an x`").tests.set_index("annotator")
    for annotator in ("f1", "f2"):
        expected = tests.loc[annotator, "p_value"]
        assert row(card, annotator)["differential_p"] == pytest.approx(expected)


def test_text_classes_with_refusals():
    data = texts(N=600, n=240, outcome="binary", seed=10)
    for name in ("v_human", "f1", "f2"):
        data[name] = data[name].map({0.0: "calm", 1.0: "angry"})
    data.loc[::10, "f1"] = None
    study = tu.Study(data.drop(columns="v"), human={"v": "v_human"}, llm={"v": ["f1", "f2"]})
    card = tu.alignment(tu.logit("I(v == 'angry') ~ t + x", study, llm="f2"))
    both = data.dropna(subset=["v_human", "f1"])
    right = (both["f1"] == both["v_human"]).mean()
    assert row(card, "f1")["accuracy"] == pytest.approx(right)
    known = data.dropna(subset=["f1"])
    assert row(card, "f2")["strong_agreement"] == pytest.approx((known["f1"] == known["f2"]).mean())
    assert np.isfinite(card.table[["differential_p", "bias_p", "effective_n"]]).all(axis=None)
    assert np.isnan(row(card, "f1")["mean_error"])


def test_absorbed_effects_and_instruments():
    data = texts(N=600, n=240, outcome="numeric", seed=8)
    data["g"] = np.arange(600) % 4
    data["d"] = data["t"] + data["x"] + np.random.default_rng(1).normal(size=600)
    study = tu.Study(data.drop(columns="v"), human={"v": "v_human"}, llm={"v": ["f1", "f2"]})
    for fit, by in (
        (tu.absorb("v ~ t + x | g", study, llm="f1"), "~ t + x"),
        (tu.iv("v ~ x + [d ~ t]", study, llm="f1"), "~ x + t"),
    ):
        expected = tu.error_profile(study, "v", by=by).tests["p_value"].iloc[:2]
        found = tu.alignment(fit).table.set_index("annotator").loc[["f1", "f2"], "differential_p"]
        np.testing.assert_allclose(found, expected)


def test_an_annotator_whose_fit_fails_keeps_the_rest(reports):
    spoilt = reports.assign(same=0)
    study = tu.Study(spoilt, human={"y": "y"}, llm={"y": ["random", "same"]})
    card = tu.alignment(tu.logit("y ~ treated", study, llm="random"))
    found = row(card, "same")
    assert np.isnan(found["bias"])
    assert found["accuracy"] == pytest.approx((spoilt["y"][:600] == 0).mean())
    assert np.isfinite(row(card, "random")["bias"])
    reason = card.missing.query("annotator == 'same' and criterion.str.contains('bias')")
    assert "every row the same" in reason["reason"].item()
    assert "every row the same" in " ".join(card.summary().split())
    card.plot().draw_without_rendering()


def test_several_labelled_variables_need_one_named():
    data = texts(N=400, n=150, outcome="binary", seed=9)
    data["u"] = data["t"].where(data["v_human"].notna())
    data["u_llm"], data["u_llm2"] = data["t"], 1 - data["t"]
    study = tu.Study(
        data,
        human={"v": "v_human", "u": "u"},
        llm={"v": {"a": "f1", "b": "f2"}, "u": {"a": "u_llm", "b": "u_llm2"}},
    )
    fit = tu.ols("v ~ u + x", study, llm="a")
    with pytest.raises(ArgumentError, match=r"labelled variables .*: say which one"):
        tu.alignment(fit)
    with pytest.raises(ArgumentError, match="'w' is no labelled variable"):
        tu.alignment(fit, variable="w")
    right = tu.alignment(fit, variable="u").table.set_index("annotator")["accuracy"]
    assert right["a"] == pytest.approx(1.0)
    assert right["b"] == 0.0


def test_bad_arguments(study):
    fit = tu.logit("y ~ treated", study, llm="random")
    with pytest.raises(ArgumentError, match="takes a fit or a multiverse, not Study"):
        tu.alignment(study)
    with pytest.raises(ArgumentError, match=r"focus='traeted' is no coefficient.*'treated'"):
        tu.alignment(fit, "traeted")
    with pytest.raises(ArgumentError, match="margin=-1"):
        tu.alignment(fit, margin=-1)
    with pytest.raises(ArgumentError, match="level"):
        tu.alignment(fit, level=95)
    own = tu.DSL(predictions=np.full(3000, 0.3) + 0.01 * np.arange(3000) / 3000)
    fitted = tu.ols("y ~ treated", study, llm="random", correction=own)
    with pytest.raises(ArgumentError, match="given predictions="):
        tu.alignment(fitted)


@pytest.mark.parametrize("correction", ["naive", "human"])
def test_an_uncorrected_fit_is_scored_with_the_default_correction(study, card, correction):
    fit = tu.logit("y ~ treated", study, llm="random", correction=correction)
    pd.testing.assert_frame_equal(tu.alignment(fit).table, card.table)


def test_the_printed_scorecard_fits_a_terminal(card):
    text = card.summary()
    assert max(map(len, text.splitlines())) <= 88
    assert "by smallest bias it is" in " ".join(text.split())
    assert str(card) == repr(card) == text


def test_the_figure_has_a_panel_for_each_known_criterion(card):
    figure = card.plot()
    assert [a.get_title().split("\n")[0] for a in figure.axes] == [
        "Accuracy,",
        "Agreement with",
        "Differential",
        "Bias, in",
        "Effective labels",
    ]
    bias = figure.axes[3]
    plain, flagged = bias.lines[-2:]
    assert len(plain.get_xdata()) == (card.table["bias_p"] >= 0.05).sum()
    np.testing.assert_allclose(
        flagged.get_xdata(), card.table.loc[card.table["bias_p"] < 0.05, "bias_in_se"]
    )


@pytest.mark.parametrize("k", [1, 3, 40])
def test_names_of_any_number_of_annotators_do_not_overlap(k):
    table = pd.DataFrame(
        {
            "annotator": [f"some-vendor/a-long-name-of-model-{i}" for i in range(k)],
            "q": np.linspace(0.5, 0.9, k),
            "p": np.where(np.arange(k) % 2, 1e-12, np.nan),
        }
    )
    criteria = [Criterion("q", "Quality", "more"), Criterion("p", "p", "more", scale="p-value")]
    figure = scorecard(table, criteria, title="Cost: $1 or $2")
    figure.draw_without_rendering()
    labels = figure.axes[0].get_yticklabels()
    assert len({t.get_text() for t in labels}) == k
    boxes = sorted((t.get_window_extent() for t in labels), key=lambda b: b.y0)
    assert all(low.y1 <= high.y0 + 0.5 for low, high in pairwise(boxes))
    assert min(b.x0 for b in boxes) >= 0
    dashes = [t for t in figure.axes[1].texts if t.get_text() == "–"]
    assert len(dashes) == (k + 1) // 2


def test_a_scorecard_names_what_is_missing():
    table = pd.DataFrame({"annotator": ["a"], "q": [1.0]})
    with pytest.raises(ArgumentError, match="lacks the column 'r'"):
        scorecard(table, [Criterion("r", "R", "more")], title="")
    with pytest.raises(ArgumentError, match="at least one annotator"):
        scorecard(table[:0], [Criterion("q", "Q", "more")], title="")


def test_the_test_of_differential_error_says_which_small_group_it_leaves_out():
    data = tu.simulate.antibiotics(2_000, seed=3)
    data["ward"] = np.where(data.index < 4, "rare", np.where(data.index % 2, "a", "b"))
    data.loc[400:, "reaction"] = None
    study = tu.Study(data, human={"y": "reaction"}, llm={"y": ["random", "under_treated"]})
    card = tu.alignment(tu.ols("y ~ treated + ward", study, llm="random"))
    left_out = card.missing[card.missing["criterion"] == "differential error"]
    assert left_out["annotator"].tolist() == ["random", "under_treated"]
    assert left_out["reason"].str.contains("without ward[T.rare]", regex=False).all()
    assert card.table["differential_p"].notna().all()


def test_a_margin_that_is_no_number_is_refused(study):
    with pytest.raises(ArgumentError, match="margin='wide'"):
        tu.alignment(tu.logit("y ~ treated", study, llm="random"), margin="wide")
