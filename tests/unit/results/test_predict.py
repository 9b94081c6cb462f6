"""Fitted means and their delta-method intervals against statsmodels; the rows of the study."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from trueup.errors import ArgumentError
from trueup.formula import rows as rows_module
from trueup.results import predict as predict_module

NEW = pd.DataFrame({"x": [0.0, 1.5, -2.0], "group": ["a", "b", "b"]}, index=[9, 9, 2])


def design(data: pd.DataFrame) -> np.ndarray:
    b = (data["group"] == "b").to_numpy(dtype=float)
    x = data["x"].to_numpy()
    return np.column_stack([np.ones(len(x)), x, b, x * b])


def test_new_rows_equal_statsmodels(world):
    table = world.fit.predict(NEW, interval="confidence", level=0.9)
    expected = world.reference.get_prediction(design(NEW))
    assert table.columns.tolist() == ["estimate", "std_error", "conf_low", "conf_high"]
    np.testing.assert_allclose(table["estimate"], expected.predicted_mean, rtol=1e-12)
    np.testing.assert_allclose(table["std_error"], expected.se_mean, rtol=1e-10)
    low, high = expected.conf_int(alpha=0.1).T
    np.testing.assert_allclose(table["conf_low"], low, rtol=1e-9)
    np.testing.assert_allclose(table["conf_high"], high, rtol=1e-9)


def test_without_interval_there_is_one_column(world):
    assert world.fit.predict(NEW).columns.tolist() == ["estimate"]


def test_curved_mean_by_finite_differences(make):
    w = make(family="exponential", df=np.inf)
    e = w.fit.estimate
    X = design(NEW)
    step = 1e-6
    gradient = np.column_stack(
        [
            (np.exp(X @ (e.theta + step * unit)) - np.exp(X @ (e.theta - step * unit))) / (2 * step)
            for unit in np.eye(4)
        ]
    )
    table = w.fit.predict(NEW, interval="confidence")
    np.testing.assert_allclose(table["estimate"], np.exp(X @ e.theta), rtol=1e-12)
    expected = np.sqrt(np.diag(gradient @ e.vcov @ gradient.T))
    np.testing.assert_allclose(table["std_error"], expected, rtol=1e-7)


def test_the_smallest_df_sets_the_width(make):
    wide = make(df=np.array([3.0, 50.0, np.inf, 20.0])).fit.predict(NEW, interval="confidence")
    all_three = make(df=3.0).fit.predict(NEW, interval="confidence")
    pd.testing.assert_frame_equal(wide, all_three)


def test_default_is_all_rows(world):
    table = world.fit.predict()
    np.testing.assert_allclose(table["estimate"], world.frame.X @ world.reference.params)


def test_blocks_change_nothing(world, monkeypatch):
    whole = world.fit.predict(interval="confidence")
    assert len(whole) < rows_module.BLOCK_ROWS
    monkeypatch.setattr(predict_module, "BLOCK_ROWS", 7)
    pd.testing.assert_frame_equal(world.fit.predict(interval="confidence"), whole)


def test_unknown_interval(world):
    with pytest.raises(ArgumentError, match="interval='prediction'"):
        world.fit.predict(NEW, interval="prediction")


def test_labelled_covariate_with_several_llms_needs_new_data(make):
    base = make().frame
    frame = replace(base, covariate_labels=("positive",))
    both = ("gpt__p1", "llama__p1")
    with pytest.raises(ArgumentError, match="newdata"):
        make(frame=frame, annotators=both).fit.predict()
    assert len(make(frame=frame, annotators=both).fit.predict(NEW)) == 3


def test_absorbed_effects_cannot_be_predicted(make):
    groups = (np.arange(300) % 5,)
    fit = make(frame=replace(make().frame, groups=groups)).fit
    for data in (None, NEW):
        with pytest.raises(ArgumentError, match=r"C\(column\)"):
            fit.predict(data)


def test_augment(world):
    table = world.fit.augment()
    frame, theta = world.frame, world.reference.params
    assert table.columns.tolist() == [
        "row",
        "coded",
        "inclusion_weight",
        "positive_human",
        "positive_llm",
        ".fitted",
        ".fitted_human",
        ".resid",
    ]
    np.testing.assert_array_equal(table["row"], world.fit.study.positions)
    np.testing.assert_array_equal(np.flatnonzero(table["coded"]), frame.coded)
    coded = table[table["coded"]]
    np.testing.assert_allclose(coded["inclusion_weight"], 5.0)
    np.testing.assert_allclose(coded["positive_human"], frame.coder[frame.coded])
    np.testing.assert_allclose(coded[".resid"], world.reference.resid, atol=1e-12)
    np.testing.assert_allclose(coded[".fitted_human"], world.reference.fittedvalues)
    np.testing.assert_allclose(table[".fitted"], frame.X @ theta)
    np.testing.assert_allclose(table["positive_llm"], frame.labels["gpt__p1"])
    only_coded = ["inclusion_weight", "positive_human", ".fitted_human", ".resid"]
    assert table.loc[~table["coded"], only_coded].isna().all(axis=None)


def test_augment_with_several_llms(make):
    both = ("gpt__p1", "llama__p1")
    table = make(annotators=both).fit.augment()
    assert "positive_llm_gpt__p1" in table
    assert "positive_llm_llama__p1" in table
    assert ".fitted" in table
    frame = replace(make().frame, covariate_labels=("positive",))
    table = make(annotators=both, frame=frame).fit.augment()
    assert ".fitted" not in table
    assert {".fitted_gpt__p1", ".fitted_llama__p1"} <= set(table.columns)


def test_absorbed_effects_are_in_the_fitted_values(make):
    frame = replace(make().frame, groups=(np.arange(300) % 5,))
    table = make(frame=frame).fit.augment()
    groups = np.arange(300) % 5
    y = frame.labels["gpt__p1"]
    # Residuals of a fit with group effects have mean zero in every group.
    rest = pd.Series(y - table[".fitted"].to_numpy()).groupby(groups).mean()
    np.testing.assert_allclose(rest, 0.0, atol=1e-12)
    coded = table[table["coded"]]
    rest = coded[".resid"].groupby(groups[frame.coded]).mean()
    np.testing.assert_allclose(rest, 0.0, atol=1e-12)
