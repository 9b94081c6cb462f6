"""Kappa and alpha match published examples and other packages; influences are derivatives."""

import numpy as np
import pandas as pd
import pytest

from trueup.diagnostics.kappa import cohen_kappa, krippendorff_alpha
from trueup.errors import ArgumentError

_ = np.nan
# Krippendorff (2011), section C: 12 units, 4 coders, missing labels.
KRIPPENDORFF = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
        [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
    ]
).T
SCALES = ["nominal", "ordinal", "interval"]


def pair(n=200, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 4, n)
    b = np.where(rng.random(n) < 0.6, a, rng.integers(0, 4, n))
    return a, b, rng.uniform(0.5, 3.0, n)


@pytest.mark.parametrize(
    ("level", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)]
)
def test_alpha_gives_the_published_values_of_krippendorffs_example(level, published):
    found = krippendorff_alpha(KRIPPENDORFF, level)
    assert round(found.estimate, 3) == published
    assert found.n == 11  # one unit has a single label


@pytest.mark.parametrize("level", SCALES)
@pytest.mark.parametrize("seed", range(3))
def test_alpha_matches_the_package_krippendorff(level, seed):
    krippendorff = pytest.importorskip("krippendorff")
    rng = np.random.default_rng(seed)
    truth = rng.integers(1, 7, (80, 1))
    ratings = np.clip(truth + rng.integers(-1, 2, (80, 5)), 1, 7).astype(float)
    ratings[rng.random(ratings.shape) < 0.3] = np.nan
    theirs = krippendorff.alpha(ratings.T, level_of_measurement=level)
    assert krippendorff_alpha(ratings, level).estimate == pytest.approx(theirs, abs=1e-10)


@pytest.mark.parametrize(
    ("distance", "theirs"), [("nominal", None), ("linear", "linear"), ("quadratic", "quadratic")]
)
def test_kappa_matches_scikit_learn_with_weights(distance, theirs):
    metrics = pytest.importorskip("sklearn.metrics")
    a, b, w = pair()
    expected = metrics.cohen_kappa_score(a, b, weights=theirs, sample_weight=w)
    assert cohen_kappa(a, b, w, distance=distance).estimate == pytest.approx(expected, abs=1e-10)


def test_kappa_and_its_standard_error_match_statsmodels():
    from statsmodels.stats.inter_rater import cohens_kappa

    a, b, _w = pair()
    table = np.zeros((4, 4))
    np.add.at(table, (a, b), 1)
    theirs, ours = cohens_kappa(table), cohen_kappa(a, b)
    assert ours.estimate == pytest.approx(theirs.kappa, abs=1e-10)
    se = np.sqrt(np.sum(ours.influence**2)) / len(a)
    assert se == pytest.approx(theirs.std_kappa, abs=1e-10)


def slope(estimate, w, i, step=1e-6):
    """Derivative of an estimate in one weight, in units of the mean weight."""
    up, down = w.copy(), w.copy()
    up[i] += step
    down[i] -= step
    return (estimate(up) - estimate(down)) / (2 * step) * w.sum()


@pytest.mark.parametrize("level", SCALES)
def test_influence_of_alpha_is_its_derivative_in_the_weights(level):
    w = np.random.default_rng(1).uniform(0.5, 2.0, 12)
    found = krippendorff_alpha(KRIPPENDORFF, level, w)
    assert w @ found.influence == pytest.approx(0.0, abs=1e-12)
    for i in range(12):
        wanted = slope(lambda v: krippendorff_alpha(KRIPPENDORFF, level, v).estimate, w, i)
        assert found.influence[i] == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize("distance", ["nominal", "linear", "quadratic"])
def test_influence_of_kappa_is_its_derivative_in_the_weights_with_gaps(distance):
    a, b, w = pair(30)
    a = a.astype(float)
    a[:5] = np.nan
    found = cohen_kappa(a, b, w, distance=distance)
    for i in range(30):
        wanted = slope(lambda v: cohen_kappa(a, b, v, distance=distance).estimate, w, i)
        assert found.influence[i] == pytest.approx(wanted, abs=1e-7)


def test_constant_weights_change_nothing():
    for level in SCALES:
        plain = krippendorff_alpha(KRIPPENDORFF, level)
        scaled = krippendorff_alpha(KRIPPENDORFF, level, np.full(12, 3.7))
        assert plain.estimate == pytest.approx(scaled.estimate, abs=1e-14)
        np.testing.assert_allclose(plain.influence, scaled.influence, atol=1e-13)


def test_interval_alpha_ignores_origin_and_unit_and_ordinal_any_monotone_change():
    moved = 1e6 + 10.0 * KRIPPENDORFF
    for level, x in (("interval", moved), ("ordinal", KRIPPENDORFF**3)):
        ours = krippendorff_alpha(x, level).estimate
        assert ours == pytest.approx(krippendorff_alpha(KRIPPENDORFF, level).estimate, abs=1e-9)


def test_text_in_the_order_of_levels_equals_numbers():
    words = pd.DataFrame(KRIPPENDORFF).replace(dict(enumerate("eabcd"))).astype(object)
    words = words.replace({"a": "one", "b": "two", "c": "three", "d": "four", 5.0: "five"})
    words = words.where(words.notna(), None)
    order = ["one", "two", "three", "four", "five"]
    ours = krippendorff_alpha(words, "ordinal", levels=order).estimate
    assert ours == pytest.approx(krippendorff_alpha(KRIPPENDORFF, "ordinal").estimate, abs=1e-14)


def test_perfect_agreement_is_one_and_no_variation_has_no_estimate():
    assert cohen_kappa([1, 0, 1], [1, 0, 1]).estimate == 1.0
    assert krippendorff_alpha([[1, 1], [0, 0]]).estimate == 1.0
    same = krippendorff_alpha([[1, 1], [1, 1]])
    assert np.isnan(same.estimate)
    assert "same" in same.reason
    assert "one and the same label" in cohen_kappa([1, 1], [1, 1]).reason
    assert "two coders" in krippendorff_alpha([[1, np.nan], [np.nan, 2]]).reason


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cohen_kappa([1, 0], [1, 0, 1]), "2 and 3 labels"),
        (lambda: cohen_kappa([1, 0], ["1", "0"]), "never be equal"),
        (lambda: cohen_kappa([1, "1"], [1, 0]), "mixes kinds"),
        (lambda: cohen_kappa([1, 0], [1, 0], [1.0]), "one weight for each of 2"),
        (lambda: cohen_kappa([1, 0], [1, 0], [1.0, -1.0]), "zero or more"),
        (lambda: cohen_kappa([1, 0], [1, 2], levels=[0, 1]), "not among the levels"),
        (lambda: cohen_kappa([1, 0], [1, 0], distance="cubic"), "distance='cubic'"),
        (lambda: krippendorff_alpha([[1], [2]]), "at least two"),
        (lambda: krippendorff_alpha([1, 2]), "a row for each item"),
        (lambda: krippendorff_alpha([["a", "b"], ["a", "a"]], "interval"), "needs numbers"),
        (lambda: krippendorff_alpha([[1, 2]], "ratio"), "level='ratio'"),
    ],
)
def test_bad_input_says_what_is_wrong(call, words):
    with pytest.raises(ArgumentError, match=words):
        call()
