import formulaic
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trueup.formula.frame import build_frame
from trueup.study.study import Study

PLAIN = [
    "1",
    "x + w + z",
    "x + C(year) + flag",
    "x * g",
    "x * g - 1",
    "0 + C(g, contr.sum) + x:w",
    "C(g, Treatment('news')):z + C(year):g",
    "log(w) + I(x ** 2) + np.sqrt(z)",
    "I(w > 30) + I(g == 'news')",
    "poly(w, 2) + scale(z)",
    "bs(x, df=5) + center(w)",
    "standardize(z) * g",
    "(x + w + z) ** 2",
    "`my col` + x:w:z + flag:x",
    "C(w // 20) + C(g.str[:1])",
    "hashed(g, levels=4) + x",
    "g + I(g == 'film'):x",
]
LABELLED = [
    "pos + x",
    "pos * x + g",
    "C(pos) + score + log(1 + pos)",
    "topic + x:topic",
    "C(topic, contr.sum) * pos",
    "topic * g - 1",
    "I(score > 3) + I(topic == 'war'):z",
    "C(score > 3) + C(topic.str[:1])",
    "pos:score:w + bs(x, df=4):pos",
]


def columns_of(right, data):
    matrix = formulaic.Formula(right).get_model_matrix(data, context={}, na_action="raise")
    return tuple(matrix.columns), matrix.to_numpy(dtype=float)


@pytest.mark.parametrize("right", PLAIN)
def test_columns_equal_those_of_formulaic_without_labels(study, right):
    frame = build_frame(f"pos ~ {right}", study, annotators=["gpt"], block_rows=64)
    names, X = columns_of(right, study.data("gpt"))
    assert frame.terms == names
    np.testing.assert_allclose(frame.llm("gpt").X, X, rtol=1e-12, atol=1e-14)
    assert frame.llm("gpt").X.flags.c_contiguous


@pytest.mark.parametrize("right", LABELLED)
@pytest.mark.parametrize("annotator", ["gpt", "bert"])
def test_columns_equal_those_of_formulaic_with_labels(study, right, annotator):
    frame = build_frame(f"z ~ {right}", study, annotators=["gpt", "bert"], block_rows=64)
    names, X = columns_of(right, study.data(annotator))
    assert frame.terms == names
    np.testing.assert_allclose(frame.llm(annotator).X, X, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(frame.llm(annotator).y, study.table["z"])


@pytest.mark.parametrize("right", [r for r in LABELLED if "bs" not in r])
def test_coded_rows_have_human_labels_and_the_same_columns(study, right):
    frame = build_frame(f"z ~ {right}", study, annotators=["gpt"])
    names, X = columns_of(right, study.human_data())
    assert frame.terms == names
    np.testing.assert_allclose(frame.human().X, X, rtol=1e-12, atol=1e-14)


def test_human_and_llm_rows_share_every_column_without_labels(study):
    frame = build_frame(
        "score ~ pos + bs(x, df=4) + scale(w) + g + pos:z", study, annotators=["gpt"]
    )
    with_labels = np.array(["pos" in t for t in frame.terms])
    human, llm = frame.human(), frame.llm("gpt").take(study.coded)
    np.testing.assert_array_equal(human.X[:, ~with_labels], llm.X[:, ~with_labels])
    assert (human.X[:, with_labels] != llm.X[:, with_labels]).any()
    np.testing.assert_array_equal(human.y, study.human["score"][study.coded])


def test_labels_in_the_outcome_alone_share_one_design_matrix(study):
    frame = build_frame("pos ~ x + log(w) + g", study, annotators=["gpt", "bert"])
    first, second = frame.llm("gpt"), frame.llm("bert")
    assert first.X is second.X
    assert (first.y != second.y).any()
    np.testing.assert_array_equal(frame.human().X, first.X[study.coded])
    assert frame.outcome_is_label
    assert frame.covariate_labels == ()
    assert frame.variables == ("pos",)


def test_the_frame_says_where_the_labels_are(study):
    frame = build_frame("log(w) ~ pos + C(topic)*x", study, annotators=["gpt"])
    assert not frame.outcome_is_label
    assert frame.outcome == "log(w)"
    assert frame.covariate_labels == ("pos", "topic")
    assert frame.class_labels == {"topic": ("econ", "law", "war")}
    np.testing.assert_allclose(frame.llm("gpt").y, np.log(study.table["w"]))
    np.testing.assert_array_equal(frame.human_labels("pos"), study.human["pos"][study.coded])
    np.testing.assert_array_equal(frame.llm_labels("pos", "gpt"), study.llm["pos", "gpt"])
    assert frame.design.n_coded == len(study.coded)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ("I(pos)", lambda d: d["pos"]),
        ("log(1 + pos)", lambda d: np.log(1 + d["pos"])),
        ("I(topic == 'war')", lambda d: d["topic"] == "war"),
        ("I(score > 3)", lambda d: d["score"] > 3),
        ("score", lambda d: d["score"]),
        ("scale(w)", lambda d: (d["w"] - d["w"].mean()) / d["w"].std()),
        ("flag", lambda d: d["flag"]),
    ],
)
def test_outcomes_are_evaluated_to_numbers(study, left, expected):
    frame = build_frame(f"{left} ~ x + pos", study, annotators=["gpt"], block_rows=50)
    y = frame.llm("gpt").y
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, expected(study.data("gpt")).astype(float), rtol=1e-12)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(block=st.integers(7, 450), right=st.sampled_from(PLAIN + LABELLED))
def test_the_size_of_blocks_changes_nothing(study, block, right):
    outcome = "z" if "score" in right else "score"
    small = build_frame(f"{outcome} ~ {right}", study, annotators=["gpt"], block_rows=block)
    whole = build_frame(f"{outcome} ~ {right}", study, annotators=["gpt"])
    assert small.terms == whole.terms
    np.testing.assert_array_equal(small.llm("gpt").X, whole.llm("gpt").X)
    np.testing.assert_array_equal(small.human().X, whole.human().X)


def test_any_labels_at_any_rows(study):
    frame = build_frame("score ~ pos * x + topic + log(w)", study, annotators=["gpt"])
    index = np.array([7, 3, 99, 3])
    labels = {
        "score": np.arange(4.0),
        "pos": np.array([0.2, 0.4, 0.6, 0.8]),
        "topic": np.array(["war", "law", "war", "econ"], dtype=object),
    }
    rows = frame.rows(labels, index)
    data = study.table.iloc[index].reset_index(drop=True).assign(**labels)
    np.testing.assert_array_equal(rows.y, labels["score"])
    np.testing.assert_allclose(rows.X[:, frame.terms.index("pos")], labels["pos"])
    np.testing.assert_allclose(rows.X[:, frame.terms.index("pos:x")], labels["pos"] * data["x"])
    np.testing.assert_array_equal(rows.X[:, frame.terms.index("topic[T.war]")], [1, 0, 1, 0])
    np.testing.assert_allclose(rows.X[:, frame.terms.index("log(w)")], np.log(data["w"]))


def test_labels_of_all_rows_serve_for_some(study):
    frame = build_frame("score ~ pos + topic", study, annotators=["gpt"])
    labels = {v: study.llm[v, "gpt"] for v in frame.variables}
    rows, every = frame.rows(labels, study.coded), frame.llm("gpt")
    np.testing.assert_array_equal(rows.X, every.X[study.coded])
    np.testing.assert_array_equal(rows.y, every.y[study.coded])


def test_a_class_that_only_an_llm_uses_has_a_column(study):
    labels = study.human["topic"]
    labels[labels == "war"] = "law"
    frame = build_frame("x ~ topic", study, annotators=["gpt"])
    assert frame.terms == ("Intercept", "topic[T.law]", "topic[T.war]")
    assert not frame.human().X[:, 2].any()


def test_a_class_that_only_other_annotators_use_has_no_column(study):
    for labels in (study.human["topic"], study.llm["topic", "gpt"]):
        labels[labels == "war"] = "law"
    frame = build_frame("x ~ topic", study, annotators=["gpt"])
    assert frame.terms == ("Intercept", "topic[T.law]")


def test_numeric_labels_as_classes_have_the_levels_of_all_sources(study):
    study.human["rating"] = np.where(np.isnan(study.human["pos"]), np.nan, 1.0)
    study.human["rating"][study.coded[0]] = 4.0
    study.llm["rating", "gpt"] = np.tile([1.0, 2.0], 200)
    study.llm["rating", "bert"] = np.tile([3.0, 1.0], 200)
    frame = build_frame("x ~ C(rating)", study, annotators=["gpt", "bert"])
    assert frame.terms[1:] == ("C(rating)[T.2.0]", "C(rating)[T.3.0]", "C(rating)[T.4.0]")
    assert frame.class_labels == {"rating": (1.0, 2.0, 3.0, 4.0)}


def test_levels_of_rare_rows_are_known_in_every_block(study):
    study.table.loc[399, "g"] = "aaa"
    frame = build_frame("pos ~ g", study, annotators=["gpt"], block_rows=10)
    assert frame.terms == ("Intercept", "g[T.film]", "g[T.news]", "g[T.tweet]")
    np.testing.assert_array_equal(frame.llm("gpt").X[399], [1, 0, 0, 0])


def test_unused_categories_make_no_column_and_keep_their_order(study):
    frame = build_frame("pos ~ grade", study, annotators=["gpt"])
    assert frame.terms == ("Intercept", "grade[T.mid]", "grade[T.high]")


def test_instruments(study):
    frame = build_frame("x ~ w*g + [pos + topic ~ z + year + flag]", study, annotators=["gpt"])
    exogenous, _ = columns_of("w*g", study.data("gpt"))
    assert frame.terms == (*exogenous, "pos", "topic[T.law]", "topic[T.war]")
    assert frame.instruments == (*exogenous, "z", "year", "flag")
    rows = frame.llm("gpt")
    _, Z = columns_of("w*g + z + year + flag", study.data("gpt"))
    order = [
        columns_of("w*g + z + year + flag", study.data("gpt"))[0].index(n)
        for n in frame.instruments
    ]
    np.testing.assert_allclose(rows.Z, Z[:, order])
    assert rows.Z is frame.llm("gpt").Z
    human = frame.human()
    np.testing.assert_array_equal(human.Z, rows.Z[study.coded])
    np.testing.assert_array_equal(human.X[:, -3], study.human["pos"][study.coded])


def test_instruments_may_be_labels(study):
    frame = build_frame("x ~ [w ~ pos]", study, annotators=["gpt", "bert"])
    assert frame.terms == ("Intercept", "w")
    first, second = frame.llm("gpt"), frame.llm("bert")
    assert first.X is second.X
    np.testing.assert_array_equal(first.Z[:, 1], study.llm["pos", "gpt"])
    np.testing.assert_array_equal(second.Z[:, 1], study.llm["pos", "bert"])


def test_absorbed_effects_take_the_intercept(study):
    for right in ("x + C(g)", "x + C(g) - 1", "0 + x + C(g)"):
        frame = build_frame(f"pos ~ {right} | school + school^year", study, annotators=["gpt"])
        assert frame.terms == ("x", "C(g)[T.news]", "C(g)[T.tweet]")
    rows = frame.llm("gpt")
    assert frame.absorbed == ("school", "school^year")
    np.testing.assert_array_equal(rows.groups[0], pd.factorize(study.table["school"], sort=True)[0])
    crossed = study.table.groupby(["school", "year"]).ngroup().to_numpy()
    np.testing.assert_array_equal(rows.groups[1], crossed)
    np.testing.assert_array_equal(frame.human().groups[1], crossed[study.coded])


def test_new_rows_repeat_the_rows_they_were_learned_from(study):
    frame = build_frame(
        "score ~ pos*x + bs(z, df=4) + scale(w) + C(year) + topic + g + I(g == 'news'):x",
        study,
        annotators=["gpt"],
        block_rows=64,
    )
    some = [5, 60, 399]
    new = study.data("gpt").iloc[some].drop(columns=["score", "school"])
    np.testing.assert_allclose(frame.new_rows(new), frame.llm("gpt").X[some], rtol=1e-13)
    as_dict = {name: new[name].tolist() for name in new}
    np.testing.assert_allclose(frame.new_rows(as_dict), frame.llm("gpt").X[some], rtol=1e-13)


def test_small_integers_and_floats_do_not_overflow(study):
    study.table["small"] = (study.table["w"] + 150).astype(np.uint8)
    study.table["single"] = study.table["x"].astype(np.float32)
    study.table["big"] = np.arange(len(study.table), dtype=np.int64) * 10**8
    frame = build_frame(
        "pos ~ I(small * 2) + I(single ** 2) + I(big ** 3)", study, annotators=["gpt"]
    )
    X = frame.llm("gpt").X
    np.testing.assert_array_equal(X[:, 1], 2.0 * study.table["small"].to_numpy(dtype=float))
    np.testing.assert_array_equal(X[:, 2], study.table["single"].to_numpy(dtype=float) ** 2)
    np.testing.assert_allclose(X[:, 3], study.table["big"].to_numpy(dtype=float) ** 3)


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "int64[pyarrow]"])
def test_nullable_numbers_are_numbers(study, dtype):
    study.table["n"] = study.table["w"].astype(dtype)
    frame = build_frame("pos ~ n + log(n)", study, annotators=["gpt"])
    np.testing.assert_allclose(
        frame.llm("gpt").X[:, 1:], np.c_[study.table["w"], np.log(study.table["w"])]
    )


@pytest.mark.parametrize("dtype", [object, "string", "str", "category"])
def test_text_of_any_type_makes_the_same_columns(study, dtype):
    expected = build_frame("pos ~ g + I(g == 'film')", study, annotators=["gpt"])
    study.table["g"] = study.table["g"].astype(dtype)
    frame = build_frame("pos ~ g + I(g == 'film')", study, annotators=["gpt"])
    assert frame.terms == expected.terms
    np.testing.assert_array_equal(frame.llm("gpt").X, expected.llm("gpt").X)


def test_the_environment_of_the_caller_is_not_seen(study):
    knot = 3.0
    assert knot
    with pytest.raises(Exception, match="'knot'"):
        build_frame("pos ~ I(x > knot)", study, annotators=["gpt"])


def test_a_real_study_serves_as_well(study):
    pytest.importorskip("polars")
    table = study.table.assign(
        coder=study.human["pos"],
        gpt=study.llm["pos", "gpt"],
        topic_coder=study.human["topic"],
        topic_gpt=study.llm["topic", "gpt"],
    )
    polars = pytest.importorskip("polars").from_pandas(table)
    expected = build_frame("pos ~ x * topic + C(year) + g", study, annotators=["gpt"])
    for data in (table, polars):
        real = Study(
            data,
            human={"pos": "coder", "topic": "topic_coder"},
            llm={"pos": {"gpt": "gpt"}, "topic": {"gpt": "topic_gpt"}},
        )
        frame = build_frame("pos ~ x * topic + C(year) + g", real, annotators=["gpt"])
        assert frame.terms == expected.terms
        np.testing.assert_array_equal(frame.llm("gpt").X, expected.llm("gpt").X)
        np.testing.assert_array_equal(frame.human().X, expected.human().X)
