import numpy as np
import pandas as pd
import pytest

from trueup.errors import CollinearityError, FormulaError, StudyError
from trueup.formula.frame import build_frame, check_support


def frame_of(study, formula, annotators=("gpt",)):
    return build_frame(formula, study, annotators=annotators, block_rows=64)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_gap_in_a_covariate_is_named_with_its_rows(study, value):
    study.table.loc[[3, 250], "x"] = value
    with pytest.raises(StudyError, match=r"'x' is missing.* in 2 of 400 rows.*3, 250.*leave these"):
        frame_of(study, "pos ~ w + x")


@pytest.mark.parametrize("formula", ["pos ~ g", "pos ~ I(g == 'news')", "pos ~ x | g"])
def test_missing_text_is_named(study, formula):
    study.table.loc[17, "g"] = None
    with pytest.raises(StudyError, match=r"'g' is missing in 1 of 400 rows .positions 17"):
        frame_of(study, formula)


def test_a_gap_in_a_column_that_is_not_used_does_not_matter(study):
    study.table.loc[3, "x"] = np.nan
    assert frame_of(study, "pos ~ w").terms == ("Intercept", "w")


def test_a_value_that_a_transformation_makes_infinite_is_named(study):
    study.table.loc[[1, 390], "w"] = 0
    with pytest.raises(FormulaError, match=r"'log\(w\)' in 2 of 400 rows.*log\(1 \+ x\)"):
        frame_of(study, "pos ~ log(w)").llm("gpt")
    with pytest.raises(FormulaError, match=r"'log\(pos\)'"):
        frame_of(study, "log(pos) ~ x").human()


def test_a_product_that_overflows_is_named(study):
    study.table["huge"] = 1e200
    study.table["large"] = 1e200
    with pytest.raises(FormulaError, match="'huge:large' in 400"):
        frame_of(study, "pos ~ huge:large").llm("gpt")


def test_an_unknown_column_gets_the_nearest_names(study):
    with pytest.raises(FormulaError, match=r"'scor'.*'score'"):
        frame_of(study, "pos ~ scor")


@pytest.mark.parametrize(
    "formula",
    [
        "pos ~ scale(score)",
        "pos ~ bs(score, df=4)",
        "pos ~ I(x * center(score))",
        "scale(score) ~ x",
        "pos ~ poly(log(1 + score), 2)",
        "pos ~ standardize(score)",
    ],
)
def test_transforms_that_learn_from_labels_are_refused(study, formula):
    with pytest.raises(FormulaError, match="learn from the labels 'score'"):
        frame_of(study, formula)


@pytest.mark.parametrize(
    "term",
    [
        "I(x - x.mean())",
        "I(x / abs(x).max())",
        "I(x.cumsum())",
        "I(w.rank())",
        "I(score - score.mean())",
    ],
)
def test_values_that_depend_on_other_rows_are_refused(study, term):
    with pytest.raises(FormulaError, match="depends on the other rows"):
        frame_of(study, f"pos ~ {term}")


def test_a_string_outcome_is_refused_with_the_way_to_code_it(study):
    with pytest.raises(FormulaError, match=r"I\(topic == 'war'\) ~"):
        frame_of(study, "topic ~ x")
    with pytest.raises(FormulaError, match=r"I\(g == 'tweet'\) ~"):
        frame_of(study, "g ~ pos")


def test_a_numeric_outcome_as_classes_is_refused(study):
    with pytest.raises(FormulaError, match=r"write pos without C\(\)"):
        frame_of(study, "C(pos) ~ x")


def test_an_outcome_of_several_columns_is_refused(study):
    with pytest.raises(FormulaError, match="makes 2 columns"):
        frame_of(study, "poly(w, 2) ~ pos")


def test_probabilities_as_classes_are_refused(study):
    study.llm["pos", "gpt"] = np.full(400, 0.25)
    with pytest.raises(FormulaError, match=r"such as 0.25. Write pos without C\(\)"):
        frame_of(study, "x ~ C(pos)")


def test_too_many_numeric_classes_are_refused(study):
    with pytest.raises(FormulaError, match="numeric label 'score' has more than 50 levels"):
        frame_of(study, "x ~ C(score)")
    with pytest.raises(FormulaError, match=r"'C\(score \* 2\)' has more than 50 levels"):
        frame_of(study, "x ~ C(score * 2)")


def test_too_many_levels_of_a_covariate_are_refused(study):
    table = pd.concat([study.table] * 7, ignore_index=True)
    study.table = table.assign(id=[f"r{i}" for i in range(2800)])
    study.llm["pos", "gpt"] = np.tile(study.llm["pos", "gpt"], 7)
    with pytest.raises(FormulaError, match=r"'id' has more than 2,500 levels.*y ~ x \| id"):
        frame_of(study, "pos ~ id")


def test_a_label_cannot_be_absorbed(study):
    with pytest.raises(FormulaError, match="'topic' is a labelled variable and cannot be absorbed"):
        frame_of(study, "pos ~ x | topic")


def test_too_few_instruments(study):
    with pytest.raises(FormulaError, match=r"2 instrumented columns \(pos, w\).*there are 1 \(z\)"):
        frame_of(study, "x ~ [pos + w ~ z]")


def test_a_regressor_in_two_places(study):
    with pytest.raises(FormulaError, match="w in square brackets is an exogenous regressor too"):
        frame_of(study, "x ~ w + [pos ~ w]")


def test_a_formula_without_labels(study):
    with pytest.raises(FormulaError, match="uses no labelled variable"):
        frame_of(study, "x ~ w")


def test_a_formula_without_regressors(study):
    with pytest.raises(FormulaError, match="no regressor"):
        frame_of(study, "pos ~ 0")
    with pytest.raises(FormulaError, match="no regressor"):
        frame_of(study, "pos ~ 1 | school")


def test_no_annotator(study):
    with pytest.raises(FormulaError, match="at least one annotator"):
        frame_of(study, "pos ~ x", annotators=())


def test_columns_that_are_neither_numbers_nor_text(study):
    study.table["day"] = pd.Timestamp("2024-01-01")
    study.table["age"] = study.table["w"].astype(object)
    with pytest.raises(FormulaError, match=r"'day' holds datetime.*day.dt.year"):
        frame_of(study, "pos ~ day")
    with pytest.raises(FormulaError, match="'age' holds numbers stored as objects"):
        frame_of(study, "pos ~ age")
    assert len(frame_of(study, "pos ~ C(age)").terms) > 30


def test_a_computation_that_fails_is_named(study):
    with pytest.raises(FormulaError, match=r"log\(g\)"):
        frame_of(study, "pos ~ log(g)")


@pytest.mark.filterwarnings("ignore::formulaic.errors.DataMismatchWarning")
def test_named_levels_must_cover_the_column(study):
    with pytest.raises(FormulaError, match=r"leaves out .'tweet'."):
        frame_of(study, "pos ~ C(g, levels=['film', 'news'])")


def test_two_columns_of_one_name(study):
    study.table["Intercept"] = 2.0
    with pytest.raises(FormulaError, match="several columns named 'Intercept'"):
        frame_of(study, "pos ~ Intercept")


def test_a_level_without_coded_rows_is_named_with_its_count(study):
    uncoded = np.setdiff1d(np.arange(400), study.coded)[:7]
    study.table.loc[uncoded, "g"] = "radio"
    frame = frame_of(study, "pos ~ x*g")
    with pytest.raises(CollinearityError, match=r"level 'radio' of column 'g' occurs in 7 rows"):
        check_support(frame, frame.human())


def test_a_reference_level_without_coded_rows_is_named(study):
    uncoded = np.setdiff1d(np.arange(400), study.coded)[:5]
    study.table.loc[uncoded, "g"] = "aaa"
    frame = frame_of(study, "pos ~ g + I(g == 'news'):x")
    with pytest.raises(CollinearityError, match=r"level 'aaa' of column 'g' occurs in 5 rows"):
        check_support(frame, frame.human())


def test_a_column_that_is_zero_in_the_coded_rows_is_named(study):
    study.table["rare"] = 0.0
    uncoded = np.setdiff1d(np.arange(400), study.coded)[:3]
    study.table.loc[uncoded, "rare"] = 1.0
    frame = frame_of(study, "pos ~ rare + x")
    with pytest.raises(CollinearityError, match=r"'rare' is 0 in every coded row, but not in 3"):
        check_support(frame, frame.human())
    study.table["rare"] = 0.0
    frame = frame_of(study, "pos ~ rare + x")
    check_support(frame, frame.human())


def test_a_class_that_humans_never_gave_is_named(study):
    study.human["topic"][study.human["topic"] == "war"] = "law"
    frame = frame_of(study, "x ~ topic")
    with pytest.raises(CollinearityError, match=r"class 'war' of 'topic' is given to \d+ rows"):
        check_support(frame, frame.human())


def test_good_support_passes(study):
    frame = frame_of(study, "x ~ topic*g + [pos ~ z]")
    check_support(frame, frame.human())


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ({"topic": ["war", "peace"], "pos": [0.0, 1.0]}, r"'topic' has 'peace' in 1 rows"),
        ({"topic": ["war", None], "pos": [0.0, 1.0]}, r"'topic' has None in 1 rows"),
        ({"topic": [0.4, 0.6], "pos": [0.0, 1.0]}, r"'topic' has .*0.4"),
        (
            {"topic": ["war", "law"], "pos": [0.0, np.nan]},
            r"'pos' is missing or infinite in 1 of 2",
        ),
        ({"topic": ["war", "law"], "pos": ["a", "b"]}, r"'pos' must be numbers"),
        ({"topic": ["war", "law"]}, r"needs labels of 'pos'"),
        ({"topic": ["war", "law"], "pos": [1.0]}, r"shape \(1,\); give 2"),
    ],
)
def test_labels_that_do_not_fit(study, labels, says):
    frame = frame_of(study, "x ~ topic + pos")
    arrays = {v: np.array(x, dtype=object if v == "topic" else None) for v, x in labels.items()}
    with pytest.raises(FormulaError, match=says):
        frame.rows(arrays, np.array([0, 1]))


@pytest.mark.filterwarnings("ignore::formulaic.errors.DataMismatchWarning")
def test_a_derived_class_that_was_never_seen(study):
    study.human["score"][study.coded] = 3.0
    study.llm["score", "gpt"] = np.full(400, 4.0)
    frame = frame_of(study, "x ~ C(score // 1)")
    with pytest.raises(FormulaError, match=r"has 9.0 in 1 rows"):
        frame.rows({"score": np.array([9.2])}, np.array([0]))


def test_new_data_that_do_not_fit(study):
    frame = frame_of(study, "pos ~ x + g + C(w // 20) + g:I(g == 'film')")
    good = {"x": [0.5], "g": ["film"], "w": [5]}
    assert frame.new_rows(good).shape == (1, len(frame.terms))
    with pytest.raises(FormulaError, match="lack the column 'x'"):
        frame.new_rows({"g": ["film"], "w": [5]})
    with pytest.raises(FormulaError, match="'g' has 'radio' in 1 rows of the new data"):
        frame.new_rows(good | {"g": ["radio"]})
    with pytest.raises(FormulaError, match="holds numbers in the study"):
        frame.new_rows(good | {"x": ["much"]})
    with pytest.raises(StudyError, match="'x' is missing"):
        frame.new_rows(good | {"x": [np.nan]})
    frame = frame_of(study, "pos ~ C(year)")
    with pytest.raises(FormulaError, match="'year' has 1999 in 1 rows of the new data"):
        frame.new_rows({"year": [1999]})
