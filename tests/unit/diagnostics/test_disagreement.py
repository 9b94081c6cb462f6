"""Pairwise disagreement: exact on small tables, equal to published counts on real answers."""

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import trueup as tu
from trueup.diagnostics.pairwise import agreement_counts, wilson
from trueup.errors import ArgumentError, StudyError

DATA = Path(__file__).parents[4] / "shared" / "data"
ANSWERS = DATA / "mmlu_pro_answers.csv.gz"
real = pytest.mark.skipif(not ANSWERS.exists(), reason="the shared data are not here")

WIDE = pd.DataFrame(
    {
        "a": ["x", "y", "x", None, "z"],
        "b": ["x", "y", "y", "z", "x"],
        "c": ["y", "y", None, None, "z"],
        "gold": ["x", "y", "x", "z", "z"],
        "kind": ["p", "p", "q", "q", "q"],
    }
)


def brute(codes):
    """Shares of disagreement by looping over items, for checking."""
    K = len(codes.columns)
    out = np.zeros((K, K))
    for j, a in enumerate(codes):
        for k, b in enumerate(codes):
            both = codes[a].notna() & codes[b].notna()
            out[j, k] = (codes[a][both] != codes[b][both]).mean()
    return out


def test_matrix_counts_and_accuracy_by_hand():
    found = tu.disagreement(WIDE, gold="gold", by="kind", threshold=0.5)
    np.testing.assert_allclose(found.matrix, brute(WIDE[["a", "b", "c"]]))
    assert found.counts.loc["a", "c"] == 3
    assert found.matrix.loc["a", "b"] == 0.5
    accuracy = found.accuracy.set_index("annotator")
    assert accuracy.loc[["a", "b", "c"], "accuracy"].round(4).tolist() == [1.0, 0.6, 0.6667]
    assert accuracy.loc["c", ["n", "n_missing"]].tolist() == [3, 2]
    ab = found.pairs.iloc[0]
    assert ab["discordant"] == 0.5
    assert ab["accuracy_gap"] == pytest.approx(0.4)
    assert found.by.query("by == 'p' and a == 'a' and b == 'c'")["disagreement"].item() == 0.5
    assert len(found.above_threshold) == 3


def test_missing_as_a_category_agrees_with_itself_and_is_wrong():
    found = tu.disagreement(WIDE, gold="gold", by="kind", missing="category")
    filled = WIDE[["a", "b", "c"]].fillna("-")
    np.testing.assert_allclose(found.matrix, brute(filled))
    assert (found.counts == 5).all(axis=None)
    assert found.accuracy.set_index("annotator").loc["c", "accuracy"] == pytest.approx(0.4)


def test_long_table_study_and_frames_of_other_makes_give_the_same():
    pl = pytest.importorskip("polars")
    wide = WIDE[["a", "b", "c"]]
    expected = tu.disagreement(wide).matrix
    long = wide.reset_index().melt("index", var_name="who", value_name="what")
    long = long.sample(frac=1.0, random_state=1)
    found = tu.disagreement(long, item="index", annotator="who", label="what").matrix
    pd.testing.assert_frame_equal(found.loc[list("abc"), list("abc")], expected)
    pd.testing.assert_frame_equal(tu.disagreement(pl.from_pandas(wide)).matrix, expected)
    study = tu.Study(
        WIDE.assign(h=WIDE["gold"].where(WIDE.index < 3)), human={"v": "h"}, llm={"v": list("abc")}
    )
    of_study = tu.disagreement(study, gold="gold", by="kind")
    pd.testing.assert_frame_equal(of_study.matrix, expected)
    assert of_study.accuracy.set_index("annotator").loc["b", "accuracy"] == 0.6


def test_equally_accurate_pairs_lie_within_the_margin():
    gold = np.random.default_rng(0).integers(0, 2, 1000)
    digit = np.arange(1000) % 10
    wrong = {"a": digit == 0, "b": digit == 5, "c": digit < 3}
    labels = {name: np.where(where, 1 - gold, gold) for name, where in wrong.items()}
    found = tu.disagreement(labels, gold=gold, margin=0.0)
    assert found.equally_accurate[["a", "b"]].values.tolist() == [["a", "b"]]
    # Two annotators that are right on 90% each, and disagree on 20%: the benchmark illusion.
    assert found.equally_accurate["disagreement"].item() == pytest.approx(0.2)
    assert "accuracy within 0" in str(found)


def test_numbers_on_a_scale_give_mean_differences_and_correlations():
    rng = np.random.default_rng(3)
    x = pd.DataFrame(rng.normal(size=(60, 4)) + rng.normal(size=(60, 1)), columns=list("abcd"))
    gold = x["a"] + 0.1 * rng.normal(size=60)
    x.loc[:9, "b"] = np.nan
    found = tu.disagreement(x, gold=gold.to_numpy(), threshold=0.2, by=np.arange(60) % 2)
    assert found.kind == "numeric"
    pair = found.pairs.iloc[0]
    both = x[["a", "b"]].dropna()
    gap = (both["a"] - both["b"]).abs()
    assert pair["mean_abs_difference"] == pytest.approx(gap.mean(), abs=1e-12)
    assert pair["correlation"] == pytest.approx(both.corr().iloc[0, 1], abs=1e-12)
    half = 1.959964 * gap.std() / np.sqrt(50)
    assert pair["conf_high"] - pair["mean_abs_difference"] == pytest.approx(half, rel=1e-6)
    best = found.accuracy.iloc[0]
    assert best["annotator"] == "a"
    assert best["correlation"] == pytest.approx(np.corrcoef(x["a"], gold)[0, 1], abs=1e-12)
    assert "mean absolute difference" in str(found)


def test_scores_can_be_taken_either_way():
    x = {"a": [1, 2, 3, 4], "b": [2, 2, 3, 1]}
    assert tu.disagreement(x).matrix.loc["a", "b"] == 0.5
    assert tu.disagreement(x, kind="numeric").matrix.loc["a", "b"] == 1.0


def test_wilson_interval_against_statsmodels():
    from statsmodels.stats.proportion import proportion_confint

    for k in (0, 3, 10):
        ours = wilson(np.array([k / 10]), np.array([10.0]), 0.9)
        theirs = proportion_confint(k, 10, 0.1, method="wilson")
        np.testing.assert_allclose([o[0] for o in ours], theirs, atol=1e-12)


def test_counts_do_not_depend_on_blocks():
    codes = np.random.default_rng(0).integers(-1, 3, (70_000, 3))
    n, agree = agreement_counts(codes)
    both = (codes[:, 0] >= 0) & (codes[:, 1] >= 0)
    assert n[0, 1] == both.sum()
    assert agree[0, 1] == (both & (codes[:, 0] == codes[:, 1])).sum()


def test_two_hundred_annotators_take_a_moment():
    x = np.random.default_rng(0).integers(0, 5, (1000, 200))
    table = pd.DataFrame(x, columns=[f"m{j}" for j in range(200)])
    start = time.process_time()
    found = tu.disagreement(table)
    assert time.process_time() - start < 1.0
    assert len(found.pairs) == 19_900


@real
def test_real_answers_match_the_published_pairs():
    answers = pd.read_csv(ANSWERS)
    models = list(answers.columns[4:])
    published = pd.read_csv(DATA / "mmlu_pro_pairwise.csv")
    start = time.process_time()
    found = tu.disagreement(answers, gold="gold", threshold=0.6, annotators=models)
    assert time.process_time() - start < 1.5
    both = published.merge(found.pairs, on=["a", "b"], suffixes=("_published", ""))
    assert len(both) == 435
    for theirs, ours in (
        ("disagree", "disagreement"),
        ("disc_correct", "discordant"),
        ("acc_a", "accuracy_a"),
        ("acc_b", "accuracy_b"),
    ):
        np.testing.assert_allclose(both[ours], both[theirs], atol=1e-4)
    assert (both["n"] == both["n_published"]).all()
    filled = tu.disagreement(answers, annotators=models, missing="category").pairs
    both = published.merge(filled, on=["a", "b"], suffixes=("_published", ""))
    np.testing.assert_allclose(both["disagreement"], both["disagree_incl_missing"], atol=1e-4)
    top = found.above_threshold["disagreement"]
    assert (len(top), round(top.min(), 2), round(top.max(), 2)) == (10, 0.27, 0.38)
    every = found.pairs["disagreement"].agg(["min", "max"]).round(2).tolist()
    assert every == [0.27, 0.77]
    alike = found.equally_accurate["disagreement"]
    assert (len(alike), *alike.agg(["min", "max", "median"]).round(2)) == (15, 0.33, 0.66, 0.58)


@real
@pytest.mark.parametrize(("rubric", "low", "high"), [("empty", 0.05, 0.29), ("full", 0.03, 0.17)])
def test_real_scores_of_short_answers(rubric, low, high):
    table = pd.read_csv(DATA / "saq.csv")
    pattern = "{model}__" + rubric
    found = tu.disagreement(table, gold="human", annotators=pattern).pairs["disagreement"]
    assert (round(found.min(), 2), round(found.max(), 2)) == (low, high)


@pytest.mark.parametrize(
    ("answers", "options", "error", "words"),
    [
        ({"a": [1, 0]}, {}, ArgumentError, "one annotator"),
        ({"a": [1, 0], "b": [None, None]}, {}, StudyError, "'b' labelled no item"),
        ({"a": [1, 0], "b": ["1", "0"]}, {}, StudyError, "text .'1', '0'. but"),
        ({"a": [1, "1"], "b": [1, 0]}, {}, StudyError, "mixes text"),
        ({"a": [1, 0], "b": [1, 1]}, {"gold": [1, 5]}, StudyError, "5.0, which no annotator"),
        ({"a": ["x", "y"], "b": ["x", "x"]}, {"gold": ["x", "Y"]}, StudyError, "'Y'.*levels="),
        ({"a": ["x", "y"], "b": ["x", "x"]}, {"gold": [1, 0]}, StudyError, "convert"),
        ({"a": [1, 0], "b": [1, 1]}, {"gold": [1]}, ArgumentError, "1 values for 2 items"),
        ({"a": [1, 0], "b": [1, 1]}, {"threshold": 0.6}, ArgumentError, "needs gold="),
        ({"a": [1, 0], "b": [1, 1]}, {"gold": "truth"}, StudyError, "no column 'truth'"),
        ({"a": [1, 0], "b": [1, 1]}, {"by": ["u", None]}, StudyError, "by= is missing"),
        ({"a": [1, 0], "b": [1, 1]}, {"missing": "drop"}, ArgumentError, "missing='drop'"),
        ({"a": [1, 0], "b": [1, 1]}, {"margin": -1}, ArgumentError, "margin"),
        ({"a": ["x"], "b": ["y"]}, {"kind": "numeric"}, ArgumentError, "needs numbers"),
        ({"a": [1, 0], "b": [1, 1]}, {"annotators": ["a", "d"]}, StudyError, "no column 'd'"),
        ({"a": [1, 0], "b": [1, 1]}, {"annotators": "{m}__x"}, ArgumentError, "matches no"),
        ({"a": [1, 0], "b": [1, 1]}, {"item": "a"}, ArgumentError, "needs all of item="),
        ({"a": [0.5, 0], "b": [1, 1]}, {"missing": "category"}, ArgumentError, "for classes"),
        ({"a": [1, 0], "b": [1, 1]}, {"gold": [None, None]}, ArgumentError, "no label at all"),
        ({"a": [1, 0], "b": [1, 1]}, {"gold": [1, np.inf]}, StudyError, "infinite"),
        ({"a": [0.5, 0], "b": [1, 1]}, {"gold": [0.5, np.inf]}, StudyError, "infinite"),
        ({"a": [0.5, 0], "b": [1, 1]}, {"gold": [None, "x"]}, StudyError, "text such as 'x'"),
        ({"a": [1, 0], "b": [1, 1]}, {"margin": "x"}, ArgumentError, "margin='x'"),
        ({"a": [1, 0], "b": [1, 1]}, {"threshold": "x"}, ArgumentError, "threshold='x'"),
        ({"a": [1, 0], "b": [1, 1]}, {"threshold": 60}, ArgumentError, "write 0.6"),
        ({"a": [1, 0], "b": [1, 1]}, {"levels": [0, 1, 1]}, ArgumentError, "twice"),
        ({"a": [1, 0], "b": [1, 1]}, {"levels": [0]}, ArgumentError, "label 1.0 is not among"),
        ({"a": [1, 0], "b": [1, 1]}, {"annotators": ["a", "a"]}, ArgumentError, "two annotators"),
        ({"id": range(20), "a": [1, 0] * 10}, {}, StudyError, "'id' holds another whole number"),
    ],
)
def test_bad_input_says_what_is_wrong(answers, options, error, words):
    with pytest.raises(error, match=words):
        tu.disagreement(answers, **options)


def test_gold_may_hold_a_class_that_is_said_to_exist():
    labels = {"a": ["x", "y"], "b": ["x", "x"]}
    found = tu.disagreement(labels, gold=["x", "z"], levels=["x", "y", "z"])
    assert found.accuracy["accuracy"].tolist() == [0.5, 0.5]


def test_accuracy_without_gold_and_labels_given_twice_are_refused():
    found = tu.disagreement({"a": [1, 0], "b": [1, 1]})
    with pytest.raises(ArgumentError, match="gold="):
        _ = found.equally_accurate
    long = {"i": [1, 1, 2], "w": ["a", "a", "b"], "l": [1, 0, 1]}
    with pytest.raises(StudyError, match="'a' labelled item 1 more than once"):
        tu.disagreement(long, item="i", annotator="w", label="l")


LONG = {
    "i": [7, 7, 3, 3, 5, 5],
    "w": ["a", "b", "b", "a", "a", "b"],
    "l": [1, 0, 1, 1, 0, 1],
    "g": [1, 1, 0, 0, None, None],
    "kind": ["u", "u", "v", "v", "v", "v"],
}
ROLES = {"item": "i", "annotator": "w", "label": "l"}


def test_a_long_table_may_hold_gold_labels_and_categories():
    found = tu.disagreement(LONG, gold="g", by="kind", **ROLES)
    arrays = tu.disagreement(LONG, gold=[1, 0, None], by=["u", "v", "v"], **ROLES)
    pd.testing.assert_frame_equal(found.pairs, arrays.pairs)
    pd.testing.assert_frame_equal(found.by, arrays.by)
    assert found.accuracy.set_index("annotator")["accuracy"].to_dict() == {"a": 0.5, "b": 0.0}
    assert found.by["disagreement"].tolist() == [1.0, 0.5]


def test_a_long_table_with_two_gold_labels_of_an_item_or_two_names_alike_is_refused():
    with pytest.raises(StudyError, match=r"gold='g' is not the same.*first: 7"):
        tu.disagreement({**LONG, "g": [1, 0, 0, 0, 1, 1]}, gold="g", **ROLES)
    names = [1, "1", "1", 1, 1, "1"]
    with pytest.raises(ArgumentError, match="two annotators '1'"):
        tu.disagreement(pd.DataFrame({**LONG, "w": pd.Series(names, dtype=object)}), **ROLES)


def test_gold_may_be_true_and_false_with_gaps():
    table = pd.DataFrame({"a": [1, 0, 1], "b": [1, 1, 0], "g": [True, False, None]})
    assert tu.disagreement(table, gold="g").accuracy["accuracy"].tolist() == [1.0, 0.5]


def test_one_item_in_common_has_no_interval_and_none_is_said_so():
    found = tu.disagreement({"a": [0.5, 1.5, None], "b": [1.0, None, 2.0], "c": [None, 9.5, None]})
    first = found.pairs.iloc[0]
    assert first["n"] == 1
    assert first["mean_abs_difference"] == 0.5
    assert np.isnan([first["conf_low"], first["conf_high"]]).all()
    assert "1 pairs labelled no item in common" in found.summary()
