"""The grid: names, dimensions, and what is refused before anything runs."""

import numpy as np
import pandas as pd
import pytest

import trueup as tu
from support.made import texts
from trueup.errors import ArgumentError, FormulaError, TrueupWarning
from trueup.families.registry import glm_family
from trueup.multiverse.grid import build_grid


def test_human_only_fits_use_the_same_annotator_whatever_the_order_of_llm(small):
    names = ["llama__short", "gpt__short"]
    one = build_grid("v ~ t", small, llm=names, corrections=["human", "naive"])
    two = build_grid("v ~ t", small, llm=names[::-1], corrections=["naive", "human"])
    for grid in (one, two):
        (human,) = [u for u in grid.universes if u.dimensions["correction"] == "human"]
        assert human.llm == ("gpt__short",)
        assert human.dimensions["llm"] == human.dimensions["model"] == "(human)"


def test_numbers_follow_the_rows_that_exclusions_leave(small):
    grid = tu.grid("v ~ t", small, exclude="model == 'gpt'")
    assert grid["universe"].tolist() == list(range(len(grid)))
    assert set(grid["model"]) == {"llama", "(human)"}


def test_llm_only_fits_of_several_annotators_are_left_out_with_a_note(small):
    joint = [["gpt__short", "gpt__long"]]
    with pytest.warns(TrueupWarning, match=r"one LLM at a time.*gpt__short\+gpt__long"):
        grid = tu.grid("v ~ t", small, llm=joint, corrections=["naive", "ptd"])
    assert grid["correction"].tolist() == ["ptd"]
    with pytest.raises(ArgumentError, match="one LLM at a time"):
        tu.grid("v ~ t", small, llm=joint, corrections="naive")


@pytest.mark.parametrize(
    ("correction", "name"),
    [
        ("ptd", "ptd"),
        (tu.PTD(), "PTD()"),
        (tu.PTD(tuning="diagonal"), "PTD(tuning='diagonal')"),
        (tu.DSL(repeats=3, learner=tu.Calibration()), None),
        (tu.DSL(predictions=np.arange(600.0)), None),
    ],
)
def test_corrections_are_called_by_the_options_that_differ(small, correction, name):
    shown = tu.grid("v ~ t", small, corrections=correction)["correction"].unique().item()
    assert len(shown) < 90
    assert "\n" not in shown
    assert shown == (name or shown)
    assert shown.startswith(("DSL(", "PTD", "ptd"))


def test_corrections_may_be_named(small):
    two = {"few": tu.DSL(folds=2), "many": tu.DSL(folds=10)}
    assert set(tu.grid("v ~ t", small, corrections=two)["correction"]) == {"few", "many"}


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"family": ["ols", "gaussian"]}, "family twice"),
        ({"family": [glm_family("gamma", "log"), glm_family("gamma", "log")]}, "family twice"),
        ({"family": []}, "family= is empty"),
        ({"family": "olz"}, "olz"),
        ({"corrections": [tu.PTD(), tu.PTD()]}, r"PTD\(\)' twice"),
        ({"corrections": tu.PTD}, "with brackets"),
        ({"subsets": {"a": "place = 'land'"}}, "Subset 'a'.*cannot be read"),
        ({"subsets": {"a": "plaice == 'land'"}}, "Subset 'a'.*Did you mean 'place'"),
        ({"subsets": {"a": np.ones(3, dtype=bool)}}, "Subset 'a'.*600 rows"),
        ({"subsets": {"": None}}, "subsets="),
        ({"exclude": "llm.str.contains('x')"}, "compare columns and constants only"),
        ({"exclude": "llm"}, "not true or false"),
        ({"exclude": lambda u: True}, "No universe is left"),
        ({"annotators": pd.DataFrame({"llm": ["gpt__short"] * 2, "size": [1, 2]})}, "twice"),
        ({"annotators": pd.DataFrame({"llm": ["gpt__shot"], "size": [1]})}, "'gpt__short'"),
        ({"annotators": pd.DataFrame({"estimate": [1]}, index=["gpt__short"])}, "'estimate'"),
        ({"annotators": {"gpt__short": "large"}}, "a mapping for each annotator"),
        ({"annotators": {"gpt__shot": {"size": 1}}}, "Did you mean 'gpt__short'"),
        ({"annotators": ["gpt__short"]}, "annotators= must be a pandas DataFrame.*got list"),
        ({"exclude": lambda u: u["modl"] == "gpt"}, "asks for 'modl'.*Did you mean 'model'"),
        ({"exclude": lambda: True}, "function of one mapping.*TypeError"),
        ({"exclude": lambda u: u.model == "gpt"}, "function of one mapping.*AttributeError"),
        ({"exclude": lambda u: None}, "must return True or False.*None"),
        ({"exclude": 5}, "exclude=5 must be a condition"),
        ({"llm": ["gpt__short", "gpt__short"]}, "'gpt__short' twice"),
        ({"llm": ["all", "gpt__*"]}, "'gpt__short' twice"),
        ({"llm": [["gpt__short", "gpt*"]], "corrections": "ptd"}, "'gpt__short' twice in one"),
        ({"llm": 5}, "llm=5 must be"),
        ({"llm": [5]}, "llm=5 must be"),
        ({"llm": []}, "llm= is empty"),
        ({"llm": "gtp__short"}, "Did you mean 'gpt__short'"),
        ({"subsets": ["place == 'land'"]}, "subsets= must map names to rows, got list"),
        ({"subsets": "place == 'land'"}, "subsets= must map names to rows, got str"),
        ({"subsets": {"a": 3}}, "Subset 'a' is 3"),
        ({"subsets": {}}, "subsets="),
        ({"corrections": 5}, "correction=5 is not a correction"),
        ({"corrections": None}, "correction=None is not a correction"),
        ({"corrections": []}, "corrections= is empty"),
        ({"family": 5}, "family=5 is not a family"),
        ({"vcov": 5}, "vcov=5 is unknown"),
        ({"vcov": []}, "vcov="),
    ],
)
def test_bad_arguments(small, arguments, match):
    with pytest.raises(ArgumentError, match=match):
        tu.grid("v ~ t", small, **arguments)


@pytest.mark.parametrize(
    ("formulas", "match"),
    [
        ([], "formulas= is empty"),
        ({}, "formulas= is empty"),
        (5, "got int"),
        ([5], "must be text, got 5"),
        ({"a": None}, "formulas= must be text"),
        (["v ~ t", "v ~ t"], "stands twice"),
        ("", "must be text such as"),
    ],
)
def test_formulas_that_are_none(small, formulas, match):
    with pytest.raises((ArgumentError, FormulaError), match=match):
        tu.grid(formulas, small)


def test_a_study_that_is_none(data):
    with pytest.raises(ArgumentError, match=r"study must be a tu\.Study, got DataFrame"):
        tu.grid("v ~ t", data)


def test_annotators_may_be_described_by_a_mapping(small):
    about = {"gpt__short": {"size": 8, "open": True}, "llama__short": {"size": 70}}
    grid = tu.grid("v ~ t", small, annotators=about, corrections="naive").set_index("llm")
    assert grid.loc["gpt__short", ["model", "size", "open"]].tolist() == ["gpt", "8", "True"]
    assert grid.loc["llama__short", ["size", "open"]].tolist() == ["70", ""]


@pytest.mark.parametrize("formula", ["v t", "v ~ t +", "v + t ~ x", "v ~ nothing(t)"])
def test_a_formula_that_cannot_be_read_stops_before_anything_runs(small, formula):
    with pytest.raises(FormulaError):
        tu.grid(["v ~ t", formula], small)


def test_fields_called_like_columns_of_the_results_are_refused():
    d = texts(N=60, n=20).rename(columns={"f1": "a__b", "f2": "c__d"}).drop(columns="v")
    study = tu.Study(d, human={"v": "v_human"}, llm={"v": "{formula}__{prompt}"})
    with pytest.raises(ArgumentError, match=r"'formula'.*rename the field"):
        tu.grid("v ~ t", study)


def test_a_subset_without_rows_fails_later_and_alone(small):
    grid = tu.grid("v ~ t", small, subsets={"all": None, "none": "x > 99"})
    assert set(grid["subset"]) == {"all", "none"}


def test_a_big_grid_is_built_quickly_with_an_exclusion(small):
    subsets = {f"s{k}": f"x > {-1 - k / 1000}" for k in range(50)}
    grid = tu.grid(
        "v ~ csw(t, x, pi, z)",
        small,
        subsets=subsets,
        corrections=["naive", "ptd"],
        exclude="subset == 's3' and model == 'gpt'",
    )
    assert len(grid) == 4 * (50 * 3 * 2 - 2 * 2)
