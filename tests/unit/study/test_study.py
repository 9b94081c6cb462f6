import pickle
import time

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from trueup.errors import ArgumentError, SamplingError, StudyError
from trueup.study import Annotator, Draw, Sampling, Study

DATA = {
    "coder": [1, 0, None, None, 1, None, None, None],
    "tone_coder": ["bad", "good", None, None, "good", None, None, None],
    "gpt__p1": [1, 0, 1, None, 1, 0, 1, 1],
    "gpt__p2": [1, 1, 1, 0, 1, 0, 1, 0],
    "bert__p1": [0.9, 0.2, 0.8, 0.1, None, 0.4, 0.7, 0.6],
    "gpt__p1__tone": ["bad", "good", "bad", "good", "good", None, "bad", "good"],
    "words": [10, 20, 30, 40, 50, 60, 70, 80],
    "source": list("abababab"),
    "author": list("uuvvwwxx"),
    "w": [1, 2, 1, 2, 1, 2, 1, 2],
    "seen": [False, True, None, None, False, None, None, None],
}


def study(data=None, **more):
    arguments = {"human": {"positive": "coder"}, "llm": {"positive": "{model}__{prompt}"}} | more
    return Study(DATA if data is None else data, **arguments)


@pytest.mark.parametrize(
    "make",
    [lambda d: d, lambda d: pd.DataFrame(d, index=[5] * 8), pl.DataFrame, pa.table],
    ids=["dict", "pandas", "polars", "pyarrow"],
)
def test_a_study_from_any_frame(make):
    s = study(make(DATA))
    assert (s.n_rows, s.variables) == (8, ("positive",))
    assert s.annotators == ("gpt__p1", "gpt__p2", "bert__p1")
    assert s.annotator("bert__p1") == Annotator(
        "bert__p1", {"positive": "bert__p1"}, {"model": "bert", "prompt": "p1"}
    )
    assert s.coded("positive").tolist() == [0, 1, 4]
    np.testing.assert_array_equal(
        s.human_labels("positive"), [1, 0, np.nan, np.nan, 1, np.nan, np.nan, np.nan]
    )
    assert s.llm_labels("positive", "gpt__p1").tolist() == [1, 0, 1, 1, 1, 0, 1, 1]
    assert s.llm_labels("positive", "bert__p1")[4] == pytest.approx(3.7 / 7)
    assert s.llm_missing("positive", "gpt__p1").tolist() == [False] * 3 + [True] + [False] * 4
    assert s.levels("positive") is None
    assert s.design(["positive"]).draw is Draw.SRS
    assert s.positions.tolist() == list(range(8))
    frame = s.covariates(["words", "source"], slice(2, 4))
    assert frame.to_dict("list") == {"words": [30, 40], "source": ["a", "b"]}
    assert frame.index.equals(pd.RangeIndex(2))


def test_class_labels():
    s = study(human={"tone": "tone_coder"}, llm={"tone": {"gpt": "gpt__p1__tone"}})
    assert s.levels("tone") == ("bad", "good")
    assert s.human_labels("tone")[:3].tolist() == ["bad", "good", None]
    assert s.llm_labels("tone", "gpt")[5] == "good"
    refusing = study(
        human={"tone": "tone_coder"}, llm={"tone": {"gpt": "gpt__p1__tone"}}, missing="level"
    )
    assert refusing.levels("tone") == ("bad", "good", "refused")
    assert refusing.llm_labels("tone", "gpt")[5] == "refused"


def test_columns_leave_out_human_labels_only():
    s = study()
    assert "coder" not in s.columns
    assert {"words", "gpt__p1"} <= set(s.columns)
    with pytest.raises(StudyError, match="'coder' holds the human labels of 'positive'"):
        s.covariates(["words", "coder"])
    with pytest.raises(StudyError, match=r"no column 'wordz'.*Did you mean 'words'"):
        s.covariates(["wordz"])


@pytest.mark.parametrize(
    ("llm", "names"),
    [
        ("gpt__p1", ("gpt__p1",)),
        ("gpt*", ("gpt__p1", "gpt__p2")),
        ("*__p1", ("gpt__p1", "bert__p1")),
        ("all", ("gpt__p1", "gpt__p2", "bert__p1")),
        (["bert__p1", "gpt*"], ("bert__p1", "gpt__p1", "gpt__p2")),
        (["gpt__p2", "gpt__p2"], ("gpt__p2",)),
    ],
)
def test_which_annotators_are_meant(llm, names):
    assert study().resolve(llm) == names


def test_none_means_the_only_annotator():
    assert study(llm={"positive": ["gpt__p1"]}).resolve(None) == ("gpt__p1",)


@pytest.mark.parametrize(
    ("llm", "words"),
    [
        (None, "The study has 3 annotators: choose.*'gpt__p1', 'gpt__p2', 'bert__p1'"),
        ("gpt__p3", r"'gpt__p3' is no annotator.*Did you mean 'gpt__p"),
        ("claude*", "'claude.*' is no annotator"),
        ([], "llm= is empty"),
    ],
)
def test_annotators_that_are_not_there(llm, words):
    with pytest.raises(ArgumentError, match=words):
        study().resolve(llm)


def test_unknown_variable_and_annotator():
    s = study()
    with pytest.raises(ArgumentError, match=r"'positiv' is no labelled variable.*'positive'"):
        s.human_labels("positiv")
    with pytest.raises(ArgumentError, match="no annotator 'gpt'"):
        s.llm_labels("positive", "gpt")
    with pytest.raises(ArgumentError, match="Name at least one"):
        s.design([])


def two(second):
    data = DATA | {"c2": second, "g2": [0, 1] * 4}
    return Study(
        data,
        human={"positive": "coder", "toxic": "c2"},
        llm={"positive": {"gpt": "gpt__p1"}, "toxic": {"gpt": "g2"}},
    )


def test_variables_coded_on_the_same_rows_share_a_design():
    s = two([0, 1, None, None, 1, None, None, None])
    assert s.coded(["positive", "toxic"]).tolist() == [0, 1, 4]
    assert s.design("positive") is s.design(["toxic", "positive"])


def test_variables_coded_on_different_rows():
    s = two([0, 1, 1, None, None, None, None, None])
    assert s.coded("toxic").tolist() == [0, 1, 2]
    words = "'positive' on 3 rows, 'toxic' on 3 rows, all of them on 2.*Blank out"
    with pytest.raises(StudyError, match=words):
        s.coded(["positive", "toxic"])


def test_cluster_and_weights():
    d = study(cluster="author", weights="w").design("positive")
    assert d.cluster.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert d.weights.tolist() == DATA["w"]
    by_array = study(cluster=np.array(DATA["author"]), weights=np.array(DATA["w"]))
    np.testing.assert_array_equal(by_array.design("positive").cluster, d.cluster)


@pytest.mark.parametrize("tuned_on", ["seen", [1], np.array([1]), np.arange(8) == 1])
def test_tuned_rows_leave_the_study(tuned_on):
    s = study(tuned_on=tuned_on)
    assert s.n_rows == 7
    assert s.positions.tolist() == [0, 2, 3, 4, 5, 6, 7]
    assert s.coded("positive").tolist() == [0, 3]
    assert s.human_labels("positive")[[0, 3]].tolist() == [1, 1]
    assert s.covariates(["words"])["words"].tolist() == [10, 30, 40, 50, 60, 70, 80]
    assert s.covariates(["words"], slice(1, 3))["words"].tolist() == [30, 40]
    assert s.covariates(["words"], np.array([6, 0]))["words"].tolist() == [80, 10]
    np.testing.assert_allclose(s.design("positive").probability, 2 / 7)
    assert len(s.llm_labels("positive", "gpt__p2")) == 7
    assert "1 further coded rows were used to tune annotators" in repr(s)


def test_tuned_on_nothing_is_the_whole_study():
    s = study(tuned_on=[])
    assert s.n_rows == 8
    assert "tune" not in repr(s)


@pytest.mark.parametrize(
    ("tuned_on", "words"),
    [
        ([2], r"marks 1 rows without a human label \(first at positions \[2\]\)"),
        ([8], "positions between 0 and 7"),
        ([-1], "positions between 0 and 7"),
        (np.array([True]), r"tuned_on= has shape \(1,\)"),
        ("words", "must say True or False"),
        ("nope", "no column 'nope' .asked for by tuned_on="),
    ],
)
def test_tuned_rows_that_cannot_be(tuned_on, words):
    with pytest.raises(StudyError, match=words):
        study(tuned_on=tuned_on)


@pytest.mark.parametrize(
    ("change", "more", "words"),
    [
        ({"coder": [None] * 8}, {}, "No row is coded: column 'coder'"),
        ({"w": [1, 2, -1, 2, 1, 2, 1, 2]}, {"weights": "w"}, r"negative in 1 rows.*\[2\]"),
        ({"w": [None, 2, 1, 2, 1, 2, 1, 2]}, {"weights": "w"}, r"missing, .*in 1 rows.*\[0\]"),
        ({"w": [0, 0, 1, 1, 0, 1, 1, 1]}, {"weights": "w"}, "weights= is zero in every coded row"),
        ({"author": [None, *"uvvwwxx"]}, {"cluster": "author"}, r"missing in 1 rows.*\[0\]"),
        ({"author": list("uuxxuxxx")}, {"cluster": "author"}, "lie in one cluster"),
        ({}, {"missing": "error"}, r"missing: gpt__p1 1 \(positive\), bert__p1 1 \(positive\)"),
        ({}, {"missing": "level"}, "'positive' is a number: use missing='fill'"),
        ({}, {"human": {"positive": "tone_coder"}}, "Code both alike"),
        ({}, {"weights": "source"}, "weights= must hold numbers"),
    ],
)
def test_data_that_do_not_fit(change, more, words):
    with pytest.raises(StudyError, match=words):
        study(DATA | change, **more)


def test_sampling_must_be_a_sampling():
    with pytest.raises(ArgumentError, match="sampling= must be a Sampling"):
        study(sampling="source")


def test_errors_of_sampling_come_when_the_study_is_built():
    with pytest.raises(SamplingError, match=r"single coded row.*source = 'b'"):
        study(sampling=Sampling(strata="source"))


def test_patterns_pass_over_columns_with_another_job():
    data = DATA | {"pi__1": [0.5] * 8, "cl__1": list("uuvvwwxx"), "w__1": [1.0] * 8}
    s = study(data, sampling=Sampling(probability="pi__1"), cluster="cl__1", weights="w__1")
    assert s.annotators == ("gpt__p1", "gpt__p2", "bert__p1")


CODED = {"coder": [1, 0, 1], "gpt": [1, 0, 0], "x": [1.0, 2.0, 3.0], "c": [0, 1, 2]}
UNCODED = {"gpt": [1, 0], "x": [4.0, 5.0], "c": [3, 4]}
PARTS = {"human": {"y": "coder"}, "llm": {"y": ["gpt"]}}


@pytest.mark.parametrize("uncoded", [UNCODED, UNCODED | {"coder": [None, None]}])
def test_disjoint_tables(uncoded):
    s = Study.from_parts(pl.DataFrame(CODED), pd.DataFrame(uncoded), cluster="c", **PARTS)
    d = s.design("y")
    assert (d.disjoint, d.draw, d.n_rows) == (True, Draw.SRS, 5)
    assert d.coded.tolist() == [2, 3, 4]
    np.testing.assert_allclose(d.probability, 3 / 5)
    np.testing.assert_allclose(d.probability_all, 3 / 5)
    assert d.cluster.tolist() == [0, 1, 2, 3, 4]
    assert s.covariates(["x"])["x"].tolist() == [4, 5, 1, 2, 3]
    assert s.llm_labels("y", "gpt").tolist() == [1, 0, 1, 0, 0]
    np.testing.assert_array_equal(s.human_labels("y"), [np.nan, np.nan, 1, 0, 1])
    assert "a table of coded rows beside one of other, uncoded rows" in repr(s)


@pytest.mark.parametrize(
    ("coded", "uncoded", "words"),
    [
        (CODED | {"z": [0, 0, 0]}, UNCODED, "different columns: only the coded table has 'z'"),
        (CODED, UNCODED | {"z": [0, 0]}, "different columns: only the uncoded table has 'z'"),
        (CODED | {"coder": [1, None, 0]}, UNCODED, "1 rows of the coded table have no human"),
        (CODED, UNCODED | {"coder": [1, None]}, "1 rows of the uncoded table have a human"),
    ],
)
def test_disjoint_tables_that_do_not_fit(coded, uncoded, words):
    with pytest.raises(StudyError, match=words):
        Study.from_parts(coded, uncoded, **PARTS)


def test_the_printed_study_says_who_labelled_what():
    text = repr(
        study(sampling=Sampling(probability=np.full(8, 0.3)), cluster="author", weights="w")
    )
    for words in (
        "Study of 8 rows",
        "positive  column 'coder', 3 coded (37.5%), numbers",
        "LLM labels: 3 annotators",
        "gpt__p1   model gpt, prompt p1; 1 missing",
        "gpt__p2   model gpt, prompt p2; none missing",
        "Missing LLM labels are filled with",
        "Sampling: rows drawn independently with known probabilities",
        "probability of a coded row: 0.3\n",
        "Kish effective sample size 2.7 of 3",
        "Clusters: author, 4 in all, 2 with coded rows",
        "Analysis weights: 1 to 2",
    ):
        assert words in text, text
    assert len(text.splitlines()) <= 20


def test_the_printed_study_lists_ten_annotators_at_most():
    data = {"h": [1, 0, None]} | {f"llm_{i}": [1, 0, 1] for i in range(14)}
    text = repr(Study(data, human={"y": "h"}, llm={"y": "llm_{model}"}))
    assert "llm_9" in text
    assert "llm_10" not in text
    assert "and 4 more" in text


def test_strata_and_units_in_words():
    data = {
        "h": [1, 0, 1, 0, None, None],
        "f": [1] * 6,
        "s": list("aabbab"),
        "u": [1, 2, 3, 4, 5, 6],
    }
    arguments = {"human": {"y": "h"}, "llm": {"y": "f"}}
    text = repr(Study(data, sampling=Sampling(strata="s", unit="u"), **arguments))
    assert "simple random sample of whole units (6 in all) within 2 strata" in text
    assert "(columns 's', 'u')" in text
    assert "probability of a coded row: 0.6667\n" in text


def test_a_study_survives_pickling_and_cannot_be_given_attributes():
    s = study(pl.DataFrame(DATA), sampling=Sampling(probability=np.full(8, 0.4)))
    again = pickle.loads(pickle.dumps(s))
    assert repr(again) == repr(s)
    np.testing.assert_array_equal(again.coded("positive"), s.coded("positive"))
    with pytest.raises(AttributeError):
        s.extra = 1


def test_a_million_rows_are_quick():
    n, rng = 1_000_000, np.random.default_rng(1)
    human = np.full(n, np.nan)
    human[rng.choice(n, 1000, replace=False)] = 1
    data = {"h": human, "f__1": rng.random(n), "f__2": rng.random(n), "s": rng.integers(0, 5, n)}
    start = time.perf_counter()
    s = Study(data, human={"y": "h"}, llm={"y": "{m}__{p}"}, sampling=Sampling(strata="s"))
    assert s.design("y").n_coded == 1000
    assert time.perf_counter() - start < 5
