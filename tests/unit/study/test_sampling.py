import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trueup.errors import ArgumentError, DesignWarning, SamplingError, StudyError
from trueup.study.design import Draw
from trueup.study.sampling import Sampling, resolve
from trueup.study.tables import Table


def mask(n, rows):
    found = np.zeros(n, dtype=bool)
    found[list(rows)] = True
    return found


def design(sampling, data, coded, tuned=(), **more):
    table = Table(data)
    n = table.n_rows
    return resolve(sampling, table, mask(n, coded), tuned=mask(n, tuned), **more)


ROWS = {"x": np.arange(10)}


def test_simple_random_sample():
    d = design(Sampling(), ROWS, [1, 4, 7, 8])
    assert (d.draw, d.n_rows, d.n_coded) == (Draw.SRS, 10, 4)
    assert d.coded.tolist() == [1, 4, 7, 8]
    np.testing.assert_array_equal(d.probability, np.full(4, 0.4))
    np.testing.assert_array_equal(d.probability_all, np.full(10, 0.4))
    assert d.stratum is d.unit is d.weights is d.cluster is None
    assert not d.disjoint


STRATA = {"s": list("abababaaaa"), "t": [0, 0, 0, 1, 0, 1, 0, 0, 1, 1]}


def test_strata():
    d = design(Sampling(strata="s"), STRATA, [1, 3, 4, 8])
    assert d.draw is Draw.STRATA
    assert d.stratum.tolist() == [1, 1, 0, 0]
    assert d.stratum_sizes.tolist() == [7, 3]
    np.testing.assert_allclose(d.probability, [2 / 3, 2 / 3, 2 / 7, 2 / 7])
    assert d.probability_all.sum() == pytest.approx(4)


def test_strata_by_several_columns():
    d = design(Sampling(strata=["s", "t"]), STRATA, [0, 2, 8, 9, 1, 3, 5])
    assert d.stratum_sizes.tolist() == [5, 2, 1, 2]
    assert d.coded.tolist() == [0, 1, 2, 3, 5, 8, 9]
    assert d.stratum.tolist() == [0, 2, 0, 3, 3, 1, 1]
    np.testing.assert_allclose(d.probability, [0.4, 1, 0.4, 1, 1, 1, 1])


@pytest.mark.parametrize(
    ("sampling", "coded", "words"),
    [
        (Sampling(strata="s"), [1, 3], "1 strata hold no coded row: s = 'a'.*merge strata"),
        (Sampling(strata="s"), [0, 1, 3], "1 strata hold a single coded row.*s = 'a'.*merge"),
        (Sampling(strata=["s", "t"]), [0, 2, 8, 9, 3, 5], "no coded row: s = 'b', t = 0"),
        (Sampling(strata="q"), [0, 1], "no column 'q' .asked for by strata=.*There are"),
        (Sampling(), [3], "Only one row is coded"),
    ],
)
def test_strata_that_do_not_work(sampling, coded, words):
    with pytest.raises(StudyError, match=words):
        design(sampling, STRATA, coded)


def test_a_fully_coded_stratum_may_hold_one_row():
    d = design(Sampling(strata="s"), {"s": list("aaab")}, [0, 1, 3])
    assert d.probability[-1] == 1


def test_missing_stratum():
    with pytest.raises(SamplingError, match=r"'s' \(strata=\) is missing in 1 rows.*\[1\]"):
        design(Sampling(strata="s"), {"s": ["a", None, "a"]}, [0, 2])


PI = {"pi": [0.5, 0.25, 0.5, 0.25, 0.5, 0.25, 0.5, 0.25], "s": list("abababab")}


@pytest.mark.parametrize("method", ["poisson", "fixed"])
def test_given_probabilities(method):
    d = design(Sampling(probability="pi", method=method), PI, [0, 1, 2])
    assert d.draw == method
    np.testing.assert_array_equal(d.probability, [0.5, 0.25, 0.5])
    np.testing.assert_array_equal(d.probability_all, PI["pi"])


def test_probabilities_may_be_an_array_and_unknown_where_not_coded():
    pi = np.array([0.5, 0.25, 0.5, np.nan, 0.5, 0.25, 0.5, 0.25])
    d = design(Sampling(probability=pi), PI, [0, 1, 2])
    np.testing.assert_array_equal(d.probability, [0.5, 0.25, 0.5])
    assert d.probability_all is None


@pytest.mark.parametrize(
    ("pi", "words"),
    [
        ([None, 0.5, 0.5, None], r"missing in 1 coded rows \(first at positions \[0\]\)"),
        ([0.5, 0, 0.5, 0.5], r"zero or negative in 1 rows \(first at positions \[1\]\)"),
        ([0.5, 0.5, -0.1, 0.5], r"zero or negative in 1 rows \(first at positions \[2\]\)"),
        ([50, 50, 50, 50], r"above 1 in 4 rows.*not percentages"),
        ([0.5, 0.5, 1, 0.5], r"is 1 in 1 rows without a human label"),
        (["a", "b", "c", "d"], "probability='pi' must hold numbers"),
    ],
)
def test_impossible_probabilities(pi, words):
    with pytest.raises(StudyError, match=words):
        design(Sampling(probability="pi"), {"pi": pi}, [0, 1])


def test_a_probability_array_of_another_length():
    with pytest.raises(StudyError, match=r"probability= has shape \(3,\), but the table has 10"):
        design(Sampling(probability=np.full(3, 0.5)), ROWS, [0, 1])


def test_strata_and_probability_that_agree_are_strata():
    data = {"s": list("aaaabbbb"), "pi": [0.5] * 4 + [0.75 * (1 + 1e-8)] * 4}
    both = design(Sampling(strata="s", probability="pi"), data, [0, 1, 4, 5, 6])
    assert both.draw is Draw.STRATA
    np.testing.assert_array_equal(both.probability, [0.5, 0.5, 0.75, 0.75, 0.75])


def test_strata_and_probability_that_disagree():
    data = {"s": list("aaaabbbb"), "pi": [0.5] * 4 + [0.7] * 4}
    with pytest.raises(SamplingError, match=r"in s = 'b', 3 of 4 rows.*is 0\.75, but.*says 0\.7"):
        design(Sampling(strata="s", probability="pi"), data, [0, 1, 4, 5, 6])


def test_a_total_far_from_the_table_warns():
    n = 1000
    with pytest.warns(DesignWarning, match="add up to 200 .standard error 14.*has 1,000 rows"):
        design(Sampling(probability=np.full(n, 0.5)), {"x": np.arange(n)}, range(100))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        design(Sampling(probability=np.full(n, 0.1)), {"x": np.arange(n)}, range(80))


UNITS = {
    "school": [5, 5, 3, 3, 3, 9, 9, 1, 1, 1],
    "region": list("nnnnnsssss"),
    "pi": [0.5, 0.5, 0.25, 0.25, 0.25, 0.5, 0.5, 0.2, 0.2, 0.2],
}


def test_whole_units():
    d = design(Sampling(unit="school"), UNITS, [0, 1, 7, 8, 9])
    assert (d.draw, d.n_units, d.n_drawn_from, d.n_coded) == (Draw.SRS, 4, 4, 5)
    assert d.unit.tolist() == [0, 0, 1, 1, 1]
    np.testing.assert_array_equal(d.probability, np.full(5, 0.5))


def test_units_in_strata():
    d = design(Sampling(unit="school", strata="region"), UNITS, range(10))
    assert (d.draw, d.n_units) == (Draw.STRATA, 4)
    assert d.stratum.tolist() == [0] * 5 + [1] * 5
    assert d.stratum_sizes.tolist() == [2, 2]


def test_units_with_probabilities():
    d = design(Sampling(unit="school", probability="pi"), UNITS, [0, 1, 2, 3, 4])
    assert (d.draw, d.n_units) == (Draw.POISSON, 4)
    np.testing.assert_array_equal(d.probability, UNITS["pi"][:5])
    np.testing.assert_array_equal(d.probability_all, UNITS["pi"])


@pytest.mark.parametrize(
    ("sampling", "change", "coded", "words"),
    [
        (
            Sampling(unit="school"),
            {},
            [0, 1, 2, 3],
            r"1 units are coded in part: 3 \(2 of 3 rows\)",
        ),
        (Sampling(unit="school"), {"school": [None] * 10}, [0, 1], "'school' .unit=. is missing"),
        (Sampling(unit="school"), {}, [0, 1], "Only one unit is coded"),
        (
            Sampling(unit="school", strata="region"),
            {"region": list("nsnnnsssss")},
            range(10),
            "Each unit must lie in one stratum.*: 5",
        ),
        (
            Sampling(unit="school", probability="pi"),
            {"pi": [0.5, 0.4, *UNITS["pi"][2:]]},
            range(5),
            "it differs within 1 units",
        ),
        (
            Sampling(unit="school", strata="region"),
            {},
            [0, 1, 5, 6],
            "2 strata hold a single coded unit.*region = 'n'; region = 's'",
        ),
    ],
)
def test_units_that_do_not_fit(sampling, change, coded, words):
    with pytest.raises(SamplingError, match=words):
        design(sampling, UNITS | change, coded)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Sampling(method="systematic"),
            "'systematic' is unknown: use 'poisson' or 'fixed'",
        ),
        (lambda: Sampling(strata=[1]), "strata=.* must be a column name"),
        (lambda: Sampling(unit=["a"]), "unit= must be the name"),
    ],
)
def test_sampling_arguments(make, words):
    with pytest.raises(ArgumentError, match=words):
        make()


def test_tuned_rows_leave_a_simple_random_sample():
    d = design(Sampling(), ROWS, [1, 4, 7, 8], tuned=[4])
    assert (d.n_rows, d.coded.tolist()) == (9, [1, 6, 7])
    np.testing.assert_allclose(d.probability, 3 / 9)
    assert d.weights is None


def test_tuned_rows_leave_strata_and_weights_make_up_for_it():
    data = {"s": list("aaaaaabbbb")}
    d = design(Sampling(strata="s"), data, [0, 1, 2, 6, 7], tuned=[2])
    assert d.stratum_sizes.tolist() == [5, 4]
    np.testing.assert_allclose(d.probability, [2 / 5, 2 / 5, 2 / 4, 2 / 4])
    # The weighted rows that stay stand for six rows in a and four in b.
    np.testing.assert_allclose(d.weights, [6 / 5] * 5 + [1] * 4)


def test_tuned_rows_multiply_analysis_weights():
    data = {"s": list("aaaaaabbbb")}
    own = np.arange(1.0, 11.0)
    d = design(Sampling(strata="s"), data, [0, 1, 2, 6, 7], tuned=[2], weights=own)
    np.testing.assert_allclose(d.weights, np.delete(own, 2) * ([6 / 5] * 5 + [1] * 4))


def test_tuned_rows_and_unequal_probabilities():
    d = design(Sampling(probability="pi"), PI, [0, 1, 2, 4], tuned=[4])
    pi, f = np.delete(np.array(PI["pi"]), 4), 1 / 4
    np.testing.assert_allclose(d.probability_all, pi * (1 - f) / (1 - f * pi))
    np.testing.assert_allclose(d.weights, 1 / (1 - f * pi))


def test_tuned_units_leave_whole():
    d = design(Sampling(unit="school"), UNITS, range(7), tuned=[2, 3, 4])
    assert (d.n_rows, d.n_units, d.unit.tolist()) == (7, 3, [0, 0, 1, 1])
    np.testing.assert_allclose(d.probability, 2 / 3)
    with pytest.raises(SamplingError, match="mark whole units"):
        design(Sampling(unit="school"), UNITS, range(7), tuned=[2])


def test_tuned_rows_that_leave_nothing():
    with pytest.raises(SamplingError, match="marks every coded row: no coded row is left"):
        design(Sampling(), ROWS, [1, 2], tuned=[1, 2])
    with pytest.raises(SamplingError, match="every coded row in s = 'b'"):
        design(Sampling(strata="s"), {"s": list("aaabbb")}, [0, 1, 3, 4], tuned=[3, 4])
    with pytest.raises(SamplingError, match=r"single coded row.*s = 'b'"):
        design(Sampling(strata="s"), {"s": list("aaabbb")}, [0, 1, 3, 4], tuned=[3])


def test_tuned_rows_warn_where_weights_cannot_be_known():
    pi = np.array([0.5, 0.5, 0.5, np.nan, np.nan, np.nan])
    with pytest.warns(DesignWarning, match="cannot be weighted"):
        d = design(Sampling(probability=pi), {"x": np.arange(6)}, [0, 1, 2], tuned=[2])
    assert d.weights is None
    np.testing.assert_allclose(d.probability, 0.5 * (2 / 3) / (1 - 0.5 / 3))


def test_weighted_totals_stay_unbiased_after_tuning():
    """Over every way to draw and to tune, the estimated total is the total of all rows."""
    y = np.array([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0])
    strata = np.array(list("aaaabbb"))
    totals_all, totals_coded = [], []
    draws = itertools.product(
        itertools.combinations(range(4), 3), itertools.combinations((4, 5, 6), 2)
    )
    for in_a, in_b in draws:
        for tuned in in_a:
            d = design(Sampling(strata="s"), {"s": strata}, [*in_a, *in_b], tuned=[tuned])
            kept = np.delete(y, tuned)
            totals_all.append(d.weights @ kept)
            totals_coded.append(d.coded_weights @ kept[d.coded])
    assert np.mean(totals_all) == pytest.approx(y.sum())
    assert np.mean(totals_coded) == pytest.approx(y.sum())


def test_clusters_and_weights_are_those_of_the_rows_that_stay():
    cluster = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    d = design(Sampling(), ROWS, [0, 2, 3, 9], tuned=[2], cluster=cluster, weights=np.arange(10.0))
    assert d.cluster.tolist() == [0, 0, 1, 2, 2, 3, 3, 4, 4]
    assert d.weights.tolist() == [0, 1, 3, 4, 5, 6, 7, 8, 9]


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(10)), st.sampled_from(["strata", "unit", "probability", "none"]))
def test_the_order_of_rows_does_not_matter(order, kind):
    coded, order = [0, 1, 2, 3, 4, 7, 8, 9], np.array(order)
    sampling = {
        "strata": Sampling(strata="region"),
        "unit": Sampling(unit="school"),
        "probability": Sampling(probability="pi"),
        "none": Sampling(),
    }[kind]
    before = design(sampling, UNITS, coded, tuned=[2, 3, 4])
    shuffled = {k: np.array(v)[order] for k, v in UNITS.items()}
    at = np.argsort(order)
    after = design(sampling, shuffled, at[coded], tuned=at[[2, 3, 4]])
    labels_before = np.delete(np.arange(10), [2, 3, 4])[before.coded]
    labels_after = order[~np.isin(order, [2, 3, 4])][after.coded]
    back = np.argsort(labels_after)
    assert labels_after[back].tolist() == labels_before.tolist()
    np.testing.assert_allclose(after.probability[back], before.probability)
    np.testing.assert_allclose(after.coded_weights[back], before.coded_weights)
