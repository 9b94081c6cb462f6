"""Made studies: error rates as asked for, errors shared as asked for, and the truth covered."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

import trueup as tu
from trueup.errors import ArgumentError
from trueup.simulate import Annotator, study

N = 40_000
SAMPLINGS = ("srs", "stratified", "unequal", "clusters")


def near(share, expected, n):
    """Four Monte Carlo standard errors."""
    return abs(share - expected) <= 4 * np.sqrt(expected * (1 - expected) / n) + 1e-12


def errors(sim, *names):
    return [(sim.data[name] != sim.data["label"]).to_numpy() for name in names]


# Independent items, so that the binomial standard error is the right one.
@pytest.mark.parametrize("by", ["treated", "group"])
def test_rates_of_zero_one_labels_hold_in_each_group(by):
    levels = {"treated": (0, 1), "group": ("a", "b", "c", "d")}[by]
    sensitivity = dict(zip(levels, (0.95, 0.6, 1.0, 0.5), strict=False))
    sim = study(N, 1.0, [Annotator("m", sensitivity, specificity=0.8, by=by)], seed=1)
    for level in levels:
        here = sim.data[sim.data[by] == level]
        ones, zeros = here[here.label == 1], here[here.label == 0]
        assert near(ones["m"].mean(), sensitivity[level], len(ones))
        assert near(1 - zeros["m"].mean(), 0.8, len(zeros))


@pytest.mark.parametrize("shared", [0.0, 0.4, 1.0])
def test_rates_do_not_depend_on_shared_difficulty(shared):
    # Averaged over studies: within one, authors make the errors dependent.
    rates = [
        errors(study(2_000, 1.0, [Annotator("m", 0.7, 0.7, shared_difficulty=shared)], seed=s), "m")
        for s in range(30)
    ]
    means = np.mean(rates, axis=(1, 2))
    assert abs(means.mean() - 0.3) <= 4 * means.std(ddof=1) / np.sqrt(len(means))


def test_confusion_matrix_is_kept_and_accuracy_splits_errors_evenly():
    confusion = np.array([[0.7, 0.3, 0.0], [0.1, 0.8, 0.1], [0.0, 0.5, 0.5]])
    people = [Annotator("m", confusion=confusion), Annotator("e", accuracy=0.7)]
    data = study(N, 1.0, people, kind="classes", seed=2).data
    even = np.full((3, 3), 0.15) + 0.55 * np.eye(3)
    for name, expected in (("m", confusion), ("e", even)):
        table = pd.crosstab(data["label"], data[name]).to_numpy()
        for row, column in product(range(3), range(3)):
            rows = table[row].sum()
            assert near(table[row, column] / rows, expected[row, column], rows)


def test_class_accuracy_follows_the_true_class_and_the_outcome():
    by_class = Annotator("m", accuracy={"a": 1.0, "b": 0.6, "c": 0.9}, by="label")
    data = study(N, 1.0, [by_class], kind="classes", seed=3).data
    right = (data["m"] == data["label"]).groupby(data["label"]).agg(["mean", "size"])
    for level, expected in {"a": 1.0, "b": 0.6, "c": 0.9}.items():
        assert near(right.loc[level, "mean"], expected, right.loc[level, "size"])
    by_y = Annotator("m", accuracy={0: 0.9, 1: 0.5}, by="y_high")
    data = study(N, 1.0, [by_y], kind="classes", side="covariate", seed=3).data
    right = (data["m"] == data["label"]).groupby(data["y_high"]).mean()
    assert near(right[0], 0.9, N / 2)
    assert near(right[1], 0.5, N / 2)


def test_confusion_by_group():
    swap, keep = [[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]
    person = Annotator("m", confusion={0: keep, 1: swap}, by="treated")
    sim = study(500, 1.0, [person], kind="classes", n_classes=2, n_coded=100, seed=1)
    assert (errors(sim, "m")[0] == (sim.data["treated"] == 1)).all()


def test_numeric_errors_have_the_bias_noise_and_correlation_asked_for():
    people = [
        Annotator("m", bias={0: 0.0, 1: 0.5}, noise=0.7, by="treated", shared_difficulty=0.6),
        Annotator("k", noise=2.0, shared_difficulty=0.6),
    ]
    data = study(N, 1.0, people, kind="continuous", seed=4).data
    m, k = data["m"] - data["label"], data["k"] - data["label"]
    # Authors share difficulty, so ten rows carry less than ten: a generous five per cent.
    assert m[data.treated == 0].mean() == pytest.approx(0.0, abs=0.035)
    assert m[data.treated == 1].mean() == pytest.approx(0.5, abs=0.035)
    assert k.std() == pytest.approx(2.0, rel=0.05)
    assert np.corrcoef(m - 0.5 * data.treated, k)[0, 1] == pytest.approx(0.6, abs=0.03)


def test_errors_coincide_more_the_larger_shared_difficulty_is():
    found = []
    for shared in (0.0, 0.3, 0.6, 0.9, 1.0):
        people = [Annotator(name, 0.8, 0.8, shared_difficulty=shared) for name in ("m", "k")]
        found.append(np.corrcoef(errors(study(N, 1.0, people, seed=5), "m", "k"))[0, 1])
    assert abs(found[0]) < 4 / np.sqrt(N)
    assert (np.diff(found) > 0.05).all()
    assert found[-1] == pytest.approx(1.0)


def test_errors_of_full_shared_difficulty_are_nested():
    people = [
        Annotator("good", 0.9, 0.9, shared_difficulty=1.0),
        Annotator("poor", 0.7, 0.7, shared_difficulty=1.0),
    ]
    good, poor = errors(study(N, 1.0, people, seed=6), "good", "poor")
    assert poor[good].all()
    assert poor.sum() > 2 * good.sum()


def test_seed_gives_the_same_study_and_more_annotators_leave_it_alone():
    one, two = Annotator("one"), Annotator("two", 0.7)
    first = study(800, 1.0, [one], sampling="unequal", n_coded=100, seed=7).data
    again = study(800, 1.0, [one], sampling="unequal", n_coded=100, seed=7).data
    wider = study(800, 1.0, [one, two], sampling="unequal", n_coded=100, seed=7).data
    other = study(800, 1.0, [one], sampling="unequal", n_coded=100, seed=8).data
    pd.testing.assert_frame_equal(first, again)
    pd.testing.assert_frame_equal(first, wider[first.columns])
    assert not first["one"].equals(other["one"])


def test_the_study_does_not_hold_the_truth():
    sim = study(500, 1.0, [Annotator("m")], n_coded=50, seed=1)
    coded = sim.study.coded("label")
    assert len(coded) == 50
    assert sim.data["coder"].notna().sum() == 50
    np.testing.assert_array_equal(
        sim.study.human_labels("label")[coded], sim.data["label"].to_numpy()[coded]
    )


def test_sizes_of_the_coded_samples():
    def sizes(sampling, n_coded):
        sim = study(2_000, 1.0, [Annotator("m")], sampling=sampling, n_coded=n_coded, seed=9)
        return sim.data[sim.data["coder"].notna()], sim.data

    assert (sizes("stratified", 200)[0]["group"].value_counts() == 50).all()
    coded, data = sizes("stratified", 1_900)  # the small groups are used up
    assert len(coded) == 1_900
    assert (coded["group"] == "d").sum() == (data["group"] == "d").sum()
    coded, _ = sizes("clusters", 205)
    assert (coded["author"].value_counts() == 10).all()
    assert coded["author"].nunique() == 20
    coded, data = sizes("unequal", 300)
    assert data["pi"].sum() == pytest.approx(300)
    ratio = data.loc[data.m == 1, "pi"].max() / data.loc[data.m == 0, "pi"].max()
    assert ratio == pytest.approx(3)
    coded, data = sizes("unequal", 1_990)  # some are coded for certain
    assert data["pi"].max() == 1
    assert data["pi"].sum() == pytest.approx(1_990)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_logit_covers_the_truth_and_llm_only_does_not(sampling):
    person = Annotator("m", {0: 0.95, 1: 0.65}, by="treated", shared_difficulty=0.5)
    sim = study(4_000, 1.0, [person], sampling=sampling, n_coded=500, seed=11)
    assert (sim.family, sim.focus, sim.truth) == ("logit", "treated", 1.0)
    low, high = tu.logit(sim.formula, sim.study).confint().loc[sim.focus]
    assert low < sim.truth < high
    low, high = tu.logit(sim.formula, sim.study, correction="naive").confint().loc[sim.focus]
    assert high < sim.truth


BENT = {
    "binary": {"sensitivity": {0: 0.95, 1: 0.65}},
    "continuous": {"bias": {0: 0.0, 1: 0.6}, "noise": 0.8},
    "classes": {"accuracy": {0: 0.95, 1: 0.6}},
}


@pytest.mark.parametrize("side", ["outcome", "covariate"])
@pytest.mark.parametrize("kind", BENT)
def test_truth_is_what_the_human_labels_of_all_rows_give(kind, side):
    person = Annotator("m", by="treated", **BENT[kind])
    sim = study(N, 0.7, [person], kind=kind, side=side, seed=12)
    assert sim.truth == 0.7
    whole = tu.Study(
        sim.data.drop(columns="coder").assign(coder=sim.data["label"]).drop(columns="label"),
        human={"label": "coder"},
        llm={"label": ["m"]},
    )
    run = getattr(tu, sim.family)
    human = run(sim.formula, whole, correction="human")
    estimate, se = human.coef()[sim.focus], human.se()[sim.focus]
    assert abs(estimate - 0.7) < 3.5 * se
    assert se < 0.03
    naive = run(sim.formula, whole, correction="naive").coef()[sim.focus]
    assert abs(naive - 0.7) > 0.1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sensitivity": 1.2}, "between 0 and 1"),
        ({"specificity": -0.1}, "between 0 and 1"),
        ({"accuracy": {0: 0.5, 1: 1.5}, "by": "treated"}, "between 0 and 1"),
        ({"shared_difficulty": 2}, "between 0 and 1"),
        ({"sensitivity": "high"}, "finite number"),
        ({"bias": np.nan}, "finite number"),
        ({"sensitivity": True}, "finite number"),
        ({"noise": -1.0}, "standard deviation"),
        ({"sensitivity": {0: 0.9, 1: 0.8}, "by": "treatment"}, "by='treatment' is unknown"),
        ({"sensitivity": {0: 0.9, 1: 0.8}}, "say with by="),
        ({"by": "treated"}, "no effect"),
        ({"name": "my annotator"}, "names a column"),
        ({"name": ""}, "names a column"),
        ({"by": ["treated"], "sensitivity": {0: 0.9, 1: 0.8}}, "is unknown"),
    ],
)
def test_unusable_annotators(fields, message):
    with pytest.raises(ArgumentError, match=message):
        Annotator(**{"name": "m", **fields})


M = Annotator("m")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"annotators": []}, "at least one"),
        ({"annotators": ["m"]}, "at least one"),
        ({"annotators": [M, Annotator("m", 0.7)]}, "Two annotators are named 'm'"),
        ({"annotators": [Annotator("coder")]}, "cannot be named 'coder'"),
        ({"n_coded": 101}, "from 1 to n=100"),
        ({"n_coded": 0}, "from 1 to n=100"),
        ({"n": 0}, "whole number above 0"),
        ({"n": True}, "whole number above 0"),
        ({"effect": np.inf}, "finite number"),
        ({"kind": "ordinal"}, "kind='ordinal' is unknown: use one of binary"),
        ({"side": "left"}, "side='left' is unknown"),
        ({"sampling": "snowball"}, "sampling='snowball' is unknown"),
        ({"kind": "classes", "n_classes": 1}, "n_classes=1"),
        ({"sampling": "stratified", "n_coded": 7}, "too few for sampling='stratified'"),
        ({"sampling": "clusters", "n_coded": 19}, "too few for sampling='clusters'"),
        ({"annotators": [Annotator("m", bias=1.0)]}, "bias= is for kind='continuous'"),
        ({"annotators": [Annotator("m", 0.7)], "kind": "classes"}, "is for kind='binary'"),
        ({"annotators": [Annotator("m", confusion=np.eye(3))]}, "is for kind='classes'"),
        (
            {"annotators": [Annotator("m", {0: 0.9}, by="treated")]},
            r"whose levels are \[0, 1\]",
        ),
        (
            {"annotators": [Annotator("m", {0: 0.9, 1: 0.8}, by="y_high")]},
            "needs side='covariate'",
        ),
        (
            {"annotators": [Annotator("m", {0: 0.9, 1: 0.8}, by="label")]},
            "needs kind='classes'",
        ),
        (
            {"annotators": [Annotator("m", confusion=np.eye(2))], "kind": "classes"},
            r"shape \(2, 2\)",
        ),
        (
            {"annotators": [Annotator("m", confusion=np.ones((3, 3)))], "kind": "classes"},
            "sum to 1",
        ),
        (
            {"annotators": [Annotator("m", confusion=[["x"]])], "kind": "classes"},
            "must hold numbers",
        ),
        (
            {"annotators": [Annotator("m", accuracy=0.5, confusion=np.eye(3))], "kind": "classes"},
            "both accuracy= and confusion=",
        ),
        ({"seed": -1}, "seed=-1 must be"),
        ({"seed": "x"}, "seed='x' must be"),
        ({"seed": 1.5}, "seed=1.5 must be"),
    ],
)
def test_unusable_studies(options, message):
    with pytest.raises(ArgumentError, match=message):
        study(**{"n": 100, "annotators": [M], "n_coded": 50, "seed": 1, **options})


@pytest.mark.filterwarnings("error")
def test_many_annotators_are_made_without_a_warning():
    made = study(n=200, annotators=[Annotator(f"m{k}") for k in range(150)], n_coded=50, seed=1)
    assert len(made.study.annotators) == 150
