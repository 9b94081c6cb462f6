"""Flip rates within groups of columns, by hand and by brute force."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import trueup as tu
from trueup.errors import ArgumentError, TrueupError

PATTERN = "{model}__{prompt}"


def made(seed=0, n=300):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, n)
    out = {}
    for model, rate in (("calm", 0.02), ("wild", 0.4)):
        for prompt in ("p1", "p2", "p3"):
            flips = rng.random(n) < rate
            out[f"{model}__{prompt}"] = np.where(flips, rng.integers(0, 3, n), truth).astype(float)
    data = pd.DataFrame(out)
    data.loc[:19, "wild__p1"] = np.nan
    data.loc[5:9, "wild__p2"] = np.nan
    return data


def brute(part):
    apart = pairs = unstable = items = 0
    for row in part.to_numpy():
        known = row[~np.isnan(row)]
        if len(known) < 2:
            continue
        items += 1
        unstable += len(set(known)) > 1
        for a, b in combinations(known, 2):
            pairs += 1
            apart += a != b
    return apart / pairs, unstable / items, items


def test_rates_equal_counting_by_hand_with_gaps():
    data = made()
    found = tu.stability(data, groups="model", annotators=PATTERN).groups.set_index("group")
    for model in ("calm", "wild"):
        rate, unstable, items = brute(data.filter(like=model))
        row = found.loc[model]
        assert row["flip_rate"] == pytest.approx(rate)
        assert row["unstable"] == pytest.approx(unstable)
        assert row["n_items"] == items
        assert row["conf_low"] < rate < row["conf_high"]
    assert found.loc["calm", "conf_high"] < found.loc["wild", "conf_low"]


def test_pairs_and_between_groups():
    data = made()
    found = tu.stability(data, groups="model", annotators=PATTERN)
    matrix = tu.disagreement(data).matrix
    for row in found.pairs.itertuples():
        assert row.flip_rate == pytest.approx(matrix.loc[row.a, row.b])
    assert len(found.pairs) == 6
    full = data.fillna(0.0)
    across = tu.stability(full, groups="model", annotators=PATTERN).between
    block = tu.disagreement(full).matrix.iloc[:3, 3:].to_numpy()
    assert across == pytest.approx(block.mean())
    assert "Between groups" in str(found)
    assert found.items.shape == (300, 2)
    # Items 5 to 9 have a single label of the wild model: nothing can change.
    assert found.items["wild"].isna().to_numpy().nonzero()[0].tolist() == [5, 6, 7, 8, 9]


def test_a_study_a_mapping_and_a_pattern_say_the_same():
    data = made()
    truth = np.where(np.arange(300) < 40, 1.0, np.nan)
    study = tu.Study(data.assign(h=truth), human={"y": "h"}, llm={"y": PATTERN})
    by_study = tu.stability(study, groups="model").groups
    by_pattern = tu.stability(data, groups="model", annotators=PATTERN).groups
    columns = {m: [c for c in data if c.startswith(m)] for m in ("calm", "wild")}
    by_mapping = tu.stability(data.assign(other="text"), groups=columns).groups
    pd.testing.assert_frame_equal(by_study, by_pattern)
    pd.testing.assert_frame_equal(by_study, by_mapping)
    assert tu.stability(study).groups["n_annotators"].tolist() == [6]


def test_numbers_on_a_scale():
    x = pd.DataFrame({"a": [0.1, 0.5, np.nan, 2.0], "b": [0.2, 0.5, 1.0, 1.0]})
    found = tu.stability(x)
    assert found.measure == "mean_abs_difference"
    row = found.groups.iloc[0]
    assert row["mean_abs_difference"] == pytest.approx((0.1 + 0.0 + 1.0) / 3)
    assert row["unstable"] == pytest.approx(2 / 3)
    assert found.between is None


def test_flip_rates_of_a_single_group_of_two_have_wilsons_interval():
    x = {"a": [0] * 50, "b": [1] * 5 + [0] * 45}
    row = tu.stability(x).groups.iloc[0]
    assert row["flip_rate"] == row["unstable"] == 0.1
    assert (row["unstable_low"], row["unstable_high"]) == pytest.approx((0.0435, 0.2136), abs=1e-4)
    assert row["conf_low"] == pytest.approx(row["unstable_low"], abs=2e-3)


def test_intervals_of_flip_rates_cover():
    """Prompts flip 10% of labels independently: two labels differ in .18 of pairs."""
    hits = []
    rng = np.random.default_rng(4)
    for _ in range(300):
        hard = np.where(rng.random(150) < 0.5, 0.2, 0.0)[:, None]
        x = pd.DataFrame((rng.random((150, 3)) < hard).astype(float), columns=list("abc"))
        row = tu.stability(x).groups.iloc[0]
        hits.append(row["conf_low"] <= 0.5 * 2 * 0.2 * 0.8 <= row["conf_high"])
    assert 0.91 <= np.mean(hits) <= 0.99


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"groups": "model"}, "no field 'model'"),
        ({"groups": "run", "annotators": PATTERN}, "no field 'run'"),
        ({"groups": {"calm": ["calm__p1"], "wild": ["wild__p1"]}}, "No group has two"),
        ({"groups": {"x": ["calm__p1", "nope"]}, "annotators": PATTERN}, "no annotator"),
        ({"kind": "scale"}, "kind='scale'"),
    ],
)
def test_bad_input_says_what_is_wrong(options, words):
    with pytest.raises(ArgumentError, match=words):
        tu.stability(made(), **options)


def test_groups_of_one_are_named():
    groups = {"calm": ["calm__p1", "calm__p2"], "wild": ["wild__p1"]}
    assert "One column only, so that nothing can change: wild" in str(
        tu.stability(made(), groups=groups)
    )


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({"calm": "calm__p1"}, "list of its columns"),
        ({"calm": [], "wild": ["wild__p1", "wild__p2"]}, "list of its columns"),
        (["calm__p1", "calm__p2"], "must be a field"),
        ({}, "must be a field"),
    ],
)
def test_groups_that_are_no_lists_of_columns(groups, words):
    with pytest.raises(ArgumentError, match=words):
        tu.stability(made(), groups=groups)


def test_one_item_with_two_labels_has_a_rate_and_no_interval():
    found = tu.stability({"a": [1.5, None], "b": [1.7, 1.2]})
    row = found.groups.iloc[0]
    assert row["mean_abs_difference"] == pytest.approx(0.2)
    assert np.isnan([row["conf_low"], row["unstable_high"]]).all()
    assert "1 items have two labels" in str(found)


def with_outcome():
    data = made()
    rng = np.random.default_rng(3)
    truth = np.where(np.arange(300) < 60, data["calm__p1"].fillna(0.0), np.nan)
    data = data.assign(h=truth, x=rng.normal(size=300))
    return tu.Study(data, human={"y": "h"}, llm={"y": PATTERN})


@pytest.mark.parametrize("family", ["ols", "poisson"])
def test_estimates_move_as_the_single_llm_only_fits_do(family):
    study = with_outcome()
    found = tu.stability(study, groups="model", formula="y ~ x", family=family)
    fits = {
        a: getattr(tu, family)("y ~ x", study, llm=a, correction="naive") for a in study.annotators
    }
    by_name = found.estimates.set_index("annotator")
    for a, fit in fits.items():
        assert by_name.loc[a, "estimate"] == pytest.approx(fit.coef()["x"], abs=1e-10)
        assert by_name.loc[a, "std_error"] == pytest.approx(fit.se()["x"], rel=1e-10)
    for row in found.groups.itertuples():
        mine = [f.coef()["x"] for a, f in fits.items() if a.startswith(row.group)]
        errors = [f.se()["x"] for a, f in fits.items() if a.startswith(row.group)]
        assert row.moves == pytest.approx(max(mine) - min(mine))
        assert row.moves_in_se == pytest.approx(row.moves / np.mean(errors))
    assert "LLM-only estimates of 'x'" in str(found)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"formula": "x ~ 1"}, "'y'"),
        ({"formula": "y ~ x", "focus": "z"}, "focus='z' is no coefficient"),
        ({"formula": "y ~ x", "family": "lasso"}, "family='lasso'"),
    ],
)
def test_a_formula_that_says_nothing_about_the_labels_is_refused(options, words):
    with pytest.raises(TrueupError, match=words):
        tu.stability(with_outcome(), groups="model", **options)
    with pytest.raises(ArgumentError, match="needs a study"):
        tu.stability(made(), **options)
