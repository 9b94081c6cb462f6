import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from trueup.errors import ArgumentError, StudyError
from trueup.study.tables import Table
from trueup.study.values import check_missing, common_levels, complete, read_labels


def labels(values):
    return read_labels(Table({"col": values}), "col")


def levels(human, *llm, missing="fill"):
    return common_levels("y", labels(human), [labels(x) for x in llm], missing)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 0, None], [1, 0, np.nan]),
        ([True, False, None], [1, 0, np.nan]),
        (np.array([True, False, True]), [1, 0, 1]),
        ([2, 0.5, None], [2, 0.5, np.nan]),
        (np.array([1, True, None], dtype=object), [1, 1, np.nan]),
        ([Decimal("0.5"), None], [0.5, np.nan]),
        (pd.array([1, None], dtype="Int64"), [1, np.nan]),
    ],
)
def test_numbers_and_booleans_are_floats(values, expected):
    if isinstance(values, np.ndarray) and values.dtype == object:
        with pytest.raises(StudyError, match="mixes or holds"):
            labels(values)
        return
    found = labels(values)
    assert found.values.dtype == np.float64
    np.testing.assert_array_equal(found.values, expected)
    np.testing.assert_array_equal(found.missing, np.isnan(expected))


def test_text_is_classes():
    found = labels(["b", None, "a"])
    assert found.classes
    assert found.values.tolist() == ["b", None, "a"]
    assert found.missing.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.array(["1", 1], dtype=object), "mixes text and other values, e.g. the text '1' and 1"),
        ([1.0, np.inf], r"infinite labels in 1 rows \(first at positions \[1\]\)"),
        (["a", " ", ""], r"empty text in 2 rows \(first at positions \[1, 2\]\)"),
        ([dt.date(2020, 1, 1), None], "mixes or holds values that are no labels"),
        (np.array(["2020-01-01"], dtype="datetime64[ns]"), "labels must be numbers"),
        (pd.Categorical([0, 1]), "categories are not text"),
    ],
)
def test_what_is_no_label_is_refused(values, words):
    with pytest.raises(StudyError, match=words):
        labels(values)


def test_levels_are_the_sorted_union():
    assert levels(["b", None], ["a", "c"], ["c", "b"]) == ("a", "b", "c")


def test_levels_follow_a_categorical_and_leave_out_unused_ones():
    human = pd.Categorical(["low", "high"], ["low", "unused", "high"])
    assert levels(human, ["low", "other"]) == ("low", "high", "other")


def test_numbers_have_no_levels():
    assert levels([1, 0], [0.3, 0.6]) is None
    assert levels(["1", "0"], [0.3, 0.6]) is None
    assert levels([1, 0], ["1", "0"]) is None
    assert levels(["1", "0"], ["1", "0"]) == ("0", "1")


@pytest.mark.parametrize(
    ("human", "llm", "words"),
    [
        (["pos", None], [1, 0], "'col' are text .'pos'. but.*numbers .1, 0.. Code both alike"),
        ([1, 0], ["pos", "neg"], "numbers .1, 0. but the LLM.*text .'pos', 'neg'.. Code both"),
        (["a", "b"], [None, None], "has no label at all"),
        (["Pos", "neg"], ["pos ", "neg"], "'Pos' and 'pos ', which differ only in case or spaces"),
    ],
)
def test_labels_that_do_not_fit_each_other(human, llm, words):
    with pytest.raises(StudyError, match=words):
        levels(human, llm)


@pytest.mark.parametrize(
    ("values", "filled"),
    [
        ([1, 1, 0, None], 1.0),
        ([1, 0, None], 0.0),
        ([0.2, 0.6, None], 0.4),
        ([3, 1, None], 2.0),
        (["b", "a", "b", None], "b"),
        (["b", "a", None], "a"),
    ],
)
def test_filling_takes_the_most_frequent_class_or_the_mean(values, filled):
    found = labels(values)
    before = found.values.copy()
    result = complete(found, ("a", "b") if found.classes else None, "fill")
    assert result[-1] == pytest.approx(filled) if not found.classes else result[-1] == filled
    assert result[:-1].tolist() == values[:-1]
    assert pd.isna(found.values[-1])
    np.testing.assert_array_equal(pd.isna(before), pd.isna(found.values))


def test_refusals_as_a_class_of_their_own():
    human, llm = ["a", "b", None], ["b", None, "a"]
    found = levels(human, llm, missing="level")
    assert found == ("a", "b", "refused")
    assert complete(labels(llm), found, "level").tolist() == ["b", "refused", "a"]
    assert levels(human, ["a", "b", "b"], missing="level") == ("a", "b")


@pytest.mark.parametrize(
    ("human", "llm", "words"),
    [
        ([1, 0], [1, None], "is a number: use missing='fill'"),
        (["a", "refused"], ["a", None], "which has it already"),
    ],
)
def test_refusals_cannot_always_be_a_class(human, llm, words):
    with pytest.raises(StudyError, match=words):
        levels(human, llm, missing="level")


def test_unknown_rule():
    with pytest.raises(ArgumentError, match="missing='drop' is unknown"):
        check_missing("drop")
