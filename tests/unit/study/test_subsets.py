"""Studies of a part of the rows."""

from contextlib import nullcontext

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import trueup as tu
from support.made import poisson, study, texts
from trueup.errors import ArgumentError, DesignWarning, StudyError
from trueup.study.design import Draw
from trueup.study.subsets import evaluate_condition


def part(whole, mask):
    """Return the part, after checking that its coded rows are those of the whole."""
    kept = np.flatnonzero(mask)
    out = whole.subset(mask)
    coded = whole.design("v").coded
    np.testing.assert_array_equal(kept[out.design("v").coded], coded[np.isin(coded, kept)])
    for annotator in whole.annotators:
        np.testing.assert_array_equal(
            out.llm_labels("v", annotator), whole.llm_labels("v", annotator)[kept]
        )
    return out


def test_a_simple_random_sample_stays_one():
    d = texts(N=400, n=120)
    design = part(study(d), d["x"] > 0).design("v")
    assert design.draw is Draw.SRS
    n, N = int(d.loc[d["x"] > 0, "v_human"].notna().sum()), int((d["x"] > 0).sum())
    np.testing.assert_allclose(design.probability, n / N)


@pytest.mark.parametrize("given", [None, "pi"])
def test_strata_are_counted_anew(given):
    d = texts(N=400, n=120)
    coded = d["v_human"].notna()
    share = coded.groupby(d["t"]).mean()
    d["pi"] = d["t"].map(share)
    whole = study(d, sampling=tu.Sampling(strata="t", probability=given))
    mask = (d["x"] > 0).to_numpy()
    design = part(whole, mask).design("v")
    assert design.draw is Draw.STRATA
    expected = d["t"].map(coded[mask].groupby(d["t"][mask]).mean())
    np.testing.assert_allclose(design.probability, expected[mask & coded])


@pytest.mark.parametrize("as_column", [True, False])
def test_probabilities_stay_those_of_the_rows(as_column):
    d = texts(N=400, n=120, draw="poisson")
    pi = "pi" if as_column else d["pi"].to_numpy()
    whole = study(d, sampling=tu.Sampling(probability=pi), cluster="t", weights="pi")
    mask = (d["x"] > 0).to_numpy()
    design = part(whole, mask).design("v")
    np.testing.assert_array_equal(design.probability_all, d["pi"][mask])
    np.testing.assert_array_equal(design.weights, d["pi"][mask])
    assert len(np.unique(design.cluster)) == 2


def test_units_stay_units():
    d = texts(N=400, clusters=40)
    d["v_human"] = d["v"].where(d["c"] % 3 == 0)
    mask = (d["x"] > 0).to_numpy()
    design = part(study(d, sampling=tu.Sampling(unit="c")), mask).design("v")
    assert design.n_units == d["c"][mask].nunique()
    assert len(np.unique(design.unit)) == d["c"][mask & d["v_human"].notna()].nunique()


@pytest.mark.parametrize("known", [True, False])
def test_probabilities_after_tuned_rows_left(known):
    d = texts(N=400, n=120, draw="poisson")
    if not known:
        d["pi"] = d["pi"].where(d["v_human"].notna())
    tuned = np.flatnonzero(d["v_human"].notna())[:10]
    with pytest.warns(DesignWarning) if not known else nullcontext():
        whole = study(d, sampling=poisson(), tuned_on=tuned)
    mask = whole.covariates(["x"])["x"].to_numpy() > 0
    full = whole.design("v")
    design = part(whole, mask).design("v")
    np.testing.assert_array_equal(design.probability, full.probability[mask[full.coded]])


def test_two_tables_stay_two():
    d = texts(N=300, n=80)
    coded, rest = d[d["v_human"].notna()], d[d["v_human"].isna()].drop(columns="v_human")
    whole = tu.Study.from_parts(coded, rest, human={"v": "v_human"}, llm={"v": ["f1"]})
    design = whole.subset("x > 0").design("v")
    assert design.disjoint
    assert design.coded[0] == int((rest["x"] > 0).sum())


@pytest.mark.parametrize("make", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_any_table(make):
    d = texts(N=800, n=400, outcome="binary")
    mask = (d["x"] > 0).to_numpy()
    data = make(d.drop(columns="v"))
    whole = tu.Study(data, human={"v": "v_human"}, llm={"v": ["f1"]})
    fit = tu.ols("v ~ x", whole.subset("x > 0"), correction="ptd")
    other = tu.ols("v ~ x", study(d[mask]), correction="ptd")
    np.testing.assert_array_equal(fit.coef(), other.coef())
    np.testing.assert_array_equal(fit.se(), other.se())


def test_masks_positions_and_conditions_mean_the_same():
    d = texts(N=200, n=60)
    whole, mask = study(d), (d["x"] > 0).to_numpy()
    for rows in (mask, mask.tolist(), np.flatnonzero(mask), "x > 0", pd.Series(mask)):
        np.testing.assert_array_equal(whole.subset(rows).covariates(["x"])["x"], d["x"][mask])


def test_subset_of_a_subset():
    d = texts(N=300, n=150)
    twice = study(d).subset("x > 0").subset("t == 1")
    once = study(d).subset("x > 0 and t == 1")
    np.testing.assert_array_equal(twice.design("v").probability, once.design("v").probability)


def test_levels_stay_those_of_the_whole():
    d = pd.DataFrame({"h": ["a", "b", None, None, "a", "b"], "f": list("abcaab"), "x": range(6)})
    whole = tu.Study(d, human={"k": "h"}, llm={"k": ["f"]})
    assert whole.subset("x != 2").levels("k") == ("a", "b", "c")


@pytest.mark.parametrize(
    ("rows", "error", "match"),
    [
        ("x > 99", StudyError, "has no rows"),
        ("v_human > 0", ArgumentError, "no column known for every row"),
        ("y > 0", ArgumentError, "Did you mean|There are"),
        ("x", ArgumentError, "not true or false"),
        ("1 > 0", ArgumentError, "uses no column"),
        ("x >", ArgumentError, "cannot be read"),
        ("x == 'a' + 1", ArgumentError, "cannot be evaluated"),
        ("@x > 1", ArgumentError, "cannot be read"),
        ("x.abs() > 1", ArgumentError, r"'x\.abs\(\)'"),
        ("x.values > 1", ArgumentError, r"'x\.values'"),
        ("x[0] > 1", ArgumentError, r"'x\[0\]'"),
        ("__import__('os').getcwd() == x", ArgumentError, "columns and constants only"),
        ("(lambda: x)() > 1", ArgumentError, "columns and constants only"),
        ("[x for x in [1]] == x", ArgumentError, "columns and constants only"),
        (np.ones(3, dtype=bool), ArgumentError, "200 rows"),
        (np.zeros(200, dtype=bool), StudyError, "no rows"),
        ([0, 200], ArgumentError, "between 0 and 199"),
        ([0.5], ArgumentError, "positions"),
        ([], ArgumentError, "positions"),
    ],
)
def test_bad_rows(rows, error, match):
    with pytest.raises(error, match=match):
        study(texts(N=200, n=60)).subset(rows)


def test_a_part_without_coded_rows():
    d = texts(N=200, n=60)
    rows = np.flatnonzero(d["v_human"].isna())
    with pytest.raises(StudyError, match="No coded row of 'v' lies in the subset"):
        study(d).subset(rows)


def test_a_missing_value_meets_no_condition():
    table = pd.DataFrame({"x": pd.array([1, None, 3], dtype="Int64"), "g": ["a", None, "b"]})

    def holds(text):
        return evaluate_condition(text, list(table), lambda n: table[list(n)]).tolist()

    assert holds("x > 1") == [False, False, True]
    assert holds("g in ['a', 'b'] and not x == 3") == [True, False, False]
