"""Expected score: learners, the equation, the variance and its advice."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import trueup as tu
from trueup.corrections.base import Problem
from trueup.corrections.expected import conditional, score_parts, solve
from trueup.corrections.features import Penalty, values_of
from trueup.corrections.label_model import ClassModel, NumberModel, multinomial_ridge, softmax
from trueup.corrections.problem import build_problem
from trueup.corrections.support import learn
from trueup.errors import ArgumentError, TrueupWarning
from trueup.families.registry import family_for
from trueup.inference.blend import blend
from trueup.inference.vcov import as_vcov

PENALTY = Penalty(0.25, 1.0, 0.5)


def table(N: int = 600, n: int = 120, seed: int = 1, **changes: Any) -> pd.DataFrame:
    """Return data with a binary, a four-class and a continuous label, and three annotators each."""
    rng = np.random.default_rng(seed)
    x, t = rng.normal(size=N), (rng.uniform(size=N) < 0.5).astype(float)
    v = (rng.uniform(size=N) < 1 / (1 + np.exp(0.3 - t - 0.5 * x))).astype(float)
    topic = rng.choice(list("abcd"), size=N)
    score = x + t + rng.normal(size=N)
    coded = np.zeros(N, dtype=bool)
    coded[rng.choice(N, n, replace=False)] = True
    d = pd.DataFrame({"x": x, "t": t, "y": 0.5 * v + x + rng.normal(size=N)})
    d["group"] = np.arange(N) % 40
    d["coder"] = np.where(coded, v, np.nan)
    d["coder_topic"] = pd.Series(np.where(coded, topic, None), dtype=object)
    d["coder_score"] = np.where(coded, score, np.nan)
    for k, rate in enumerate((0.06, 0.12, 0.2)):
        wrong = rng.uniform(size=N) < rate
        d[f"m{k}"] = np.where(wrong, 1 - v, v)
        d[f"topic{k}"] = np.where(wrong, rng.choice(list("abcd"), size=N), topic)
        d[f"score{k}"] = score + rng.normal(scale=rate * 5, size=N)
    d["count"] = rng.poisson(np.exp(0.3 * x + 0.4 * v)).astype(float)
    return d.assign(**changes)


def problem(
    formula: str,
    family: str = "ols",
    llm: tuple[str, ...] = ("m0", "m1", "m2"),
    data: pd.DataFrame | None = None,
    **options: Any,
) -> Problem:
    """Return the problem of a formula with all three labelled variables at hand."""
    d = table() if data is None else data
    study = tu.Study(
        d,
        human={"v": "coder", "topic": "coder_topic", "score": "coder_score"},
        llm={
            "v": {f"m{k}": f"m{k}" for k in range(3)},
            "topic": {f"m{k}": f"topic{k}" for k in range(3)},
            "score": {f"m{k}": f"score{k}" for k in range(3)},
        },
        **options,
    )
    return build_problem(formula, study, family_for(family), llm, as_vcov("HC3"), 1)


CASES = [
    ("v ~ t + x", "ols"),
    ("v ~ t + x", "logit"),
    ("v ~ t + x", "probit"),
    ("v ~ 1", "mean"),
    ("y ~ v + x", "ols"),
    ("t ~ v + x", "logit"),
    ("count ~ v + x", "poisson"),
    ("v ~ t + x | group", "absorb"),
    ("y ~ v + x | group", "absorb"),
    ("y ~ x + [v ~ t]", "iv"),
    ("y ~ C(topic) + x", "ols"),
    ("I(topic == 'b') ~ t + x", "logit"),
    ("score ~ t + x", "ols"),
    ("y ~ score + x", "ols"),
    ("v ~ score + t", "logit"),
    ("y ~ v * x + C(topic)", "ols"),
]


@pytest.mark.parametrize(("formula", "family"), CASES)
def test_every_family_and_label_gives_a_finite_interval_that_moves_little(
    formula: str, family: str
) -> None:
    p = problem(formula, family)
    fit = tu.ExpectedScore(fallback=False).estimate(p)
    human = tu.Human().estimate(p)
    assert np.isfinite(fit.theta).all()
    assert np.isfinite(fit.vcov).all()
    assert (np.diag(fit.vcov) > 0).all()
    assert (fit.df >= 2.5).all()
    # Both are consistent for the same coefficients.
    gap = np.abs(fit.theta - human.theta) / np.sqrt(np.diag(human.vcov))
    assert gap.max() < 4.0


@pytest.mark.parametrize(("formula", "family"), CASES)
def test_the_reported_root_solves_the_equation(formula: str, family: str) -> None:
    p = problem(formula, family)
    found = learn(p, PENALTY).scenarios
    parts = score_parts(p, found)
    root = solve(p, parts)
    assert not root.one_step

    def total(pieces: Any) -> np.ndarray:
        return sum(p.family.score_sum(root.theta, rows, w) for rows, w in pieces)

    score = total(parts.imputed) + total([(parts.human, parts.coded_weight)]) - total(parts.machine)
    assert np.abs(score).max() < 1e-8


def test_probabilities_of_all_scenarios_sum_to_one() -> None:
    p = problem("y ~ v * x + C(topic)")
    found = learn(p, PENALTY).scenarios
    assert len(found) == 8
    np.testing.assert_allclose(np.sum([s.weight for s in found], axis=0), 1.0, atol=1e-12)


def test_all_rows_coded_gives_the_human_fit_whatever_was_learned() -> None:
    d = table(N=150, n=150)
    for formula, family in (("v ~ t + x", "logit"), ("y ~ v + x", "ols"), ("y ~ score", "ols")):
        p = problem(formula, family, data=d)
        fit = tu.ExpectedScore(fallback=False).estimate(p)
        human = tu.Human().estimate(p)
        np.testing.assert_allclose(fit.theta, human.theta, atol=1e-8)


def test_the_mean_is_the_augmented_mean() -> None:
    p = problem("v ~ 1", "mean")
    yes = learn(p, PENALTY).scenarios[1].weight
    coded = p.design.coded
    by_hand = yes.mean() + (p.frame.human_labels("v") - yes[coded]).mean()
    fit = tu.ExpectedScore(fallback=False).estimate(p)
    np.testing.assert_allclose(fit.theta, [by_hand], atol=1e-12)


@pytest.mark.parametrize("formula", ["v ~ t + x", "y ~ v + x"])
def test_order_of_annotators_and_rows_and_coding_of_labels_do_not_matter(formula: str) -> None:
    fit = tu.ExpectedScore(fallback=False).estimate(problem(formula))
    other = tu.ExpectedScore(fallback=False).estimate(problem(formula, llm=("m2", "m0", "m1")))
    np.testing.assert_allclose(other.theta, fit.theta, atol=1e-9)
    np.testing.assert_allclose(other.vcov, fit.vcov, atol=1e-9)
    d = table()
    flipped = d.assign(**{f"m{k}": 1 - d[f"m{k}"] for k in range(3)})
    flipped = flipped.sample(frac=1.0, random_state=3).reset_index(drop=True)
    other = tu.ExpectedScore(fallback=False).estimate(problem(formula, data=flipped))
    np.testing.assert_allclose(other.theta, fit.theta, atol=1e-7)
    np.testing.assert_allclose(other.vcov, fit.vcov, rtol=1e-5, atol=1e-9)


def test_scaling_another_variable_scales_its_coefficient() -> None:
    fit = tu.ExpectedScore(fallback=False).estimate(problem("v ~ t + x", "logit"))
    d = table()
    other = tu.ExpectedScore(fallback=False).estimate(
        problem("v ~ t + x", "logit", data=d.assign(x=100.0 * d["x"]))
    )
    scale = np.array([1.0, 1.0, 0.01])
    np.testing.assert_allclose(other.theta, fit.theta * scale, rtol=1e-6)
    np.testing.assert_allclose(other.df, fit.df, rtol=1e-5)


def test_singleton_clusters_are_rows_with_a_small_factor() -> None:
    d = table()
    alone = tu.ExpectedScore(fallback=False).estimate(problem("v ~ t + x"))
    nested = tu.ExpectedScore(fallback=False).estimate(
        problem("v ~ t + x", data=d.assign(own=np.arange(len(d))), cluster="own")
    )
    np.testing.assert_allclose(nested.theta, alone.theta, atol=1e-12)
    se = np.sqrt(np.diag(nested.vcov)) / np.sqrt(np.diag(alone.vcov))
    # A fifth of the residual variance, that of the rows themselves, comes from the coded rows here
    # and from the label model there.
    np.testing.assert_allclose(se, 1.0, atol=0.05)


@pytest.mark.parametrize("formula", ["v ~ t + x", "y ~ v + x"])
@pytest.mark.parametrize("draw", ["probability", "strata", "unit", "cluster", "weights"])
def test_designs_give_an_interval(formula: str, draw: str) -> None:
    d, options = table(), {}
    coded = d["coder"].notna().to_numpy()
    if draw == "probability":
        d["pi"] = np.where(d["m0"] != d["m1"], 0.4, 0.15)
        options["sampling"] = tu.Sampling(probability="pi")
    elif draw == "strata":
        d["s"] = (d["x"] > 0).astype(str)
        options["sampling"] = tu.Sampling(strata="s")
    elif draw == "unit":
        keep = d["group"] < 12
        rng = np.random.default_rng(4)
        v = (rng.uniform(size=len(d)) < 0.5).astype(float)
        d["coder"] = np.where(
            keep, np.where(rng.uniform(size=len(d)) < 0.9, d["m0"], 1 - d["m0"]), np.nan
        )
        d["coder_topic"] = pd.Series(np.where(keep, d["topic0"], None), dtype=object)
        d["coder_score"] = np.where(keep, d["score0"] + v, np.nan)
        options["sampling"] = tu.Sampling(unit="group")
    elif draw == "cluster":
        options["cluster"] = "group"
    else:
        d["w"] = np.random.default_rng(2).uniform(0.5, 2.0, size=len(d))
        options["weights"] = "w"
    assert coded.any()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrueupWarning)
        p = problem(formula, data=d, **options)
    fit = tu.ExpectedScore(fallback=False).estimate(p)
    human = tu.Human().estimate(p)
    ratio = np.sqrt(np.diag(fit.vcov) / np.diag(human.vcov))
    assert (ratio > 0.1).all()
    assert ratio[1:].min() < 1.0
    assert fit.influence is not None
    np.testing.assert_allclose(fit.influence.covariance(), fit.vcov, rtol=1e-10)


def test_leaving_out_of_numbers_equals_refitting() -> None:
    rng = np.random.default_rng(1)
    x = np.column_stack([np.ones(30), rng.normal(size=(30, 3))])
    y = x @ [1.0, 2.0, 0.0, -1.0] + rng.normal(size=30)
    penalty = np.array([0.0, 1.0, 1.0, 1.0])
    model = NumberModel.fit(x, y, penalty, -np.inf, np.inf)
    at = model.left_out(x)[0].mean(axis=1)
    nodes = model.left_out(x)[0]
    middle = nodes[:, 2]
    for i in (0, 7, 29):
        rest = np.delete(np.arange(30), i)
        gram = x[rest].T @ x[rest] + np.diag(penalty)
        coef = np.linalg.solve(gram, x[rest].T @ y[rest])
        np.testing.assert_allclose(middle[i], x[i] @ coef, atol=1e-10)
    np.testing.assert_allclose(at, middle, atol=1e-10)


@pytest.mark.parametrize("classes", [2, 3])
def test_leaving_out_of_classes_is_close_to_refitting(classes: int) -> None:
    rng = np.random.default_rng(classes)
    n = 80
    x = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    codes = rng.integers(0, classes, size=n)
    penalty = np.array([0.0, 1.0, 1.0])
    model = ClassModel.fit(x, codes, classes, penalty, 0.5)
    quick = model.left_out(x)[1]
    share = 0.5 / n
    target = np.full((n, classes), share / (classes - 1))
    target[np.arange(n), codes] = 1.0
    target /= 1.0 + share
    worst = 0.0
    for i in range(n):
        rest = np.delete(np.arange(n), i)
        coef, _ = multinomial_ridge(x[rest], target[rest, 1:], penalty / (1.0 + share), "")
        worst = max(worst, np.abs(softmax(x[[i]] @ coef) - quick[i]).max())
    moved = np.abs(quick - model.predict(x)[1]).max()
    # One Newton step: an order of magnitude closer than not leaving out.
    assert worst < 0.1 * moved


def test_moments_of_a_binary_label_are_those_of_the_formula() -> None:
    p = problem("y ~ v + x")
    found = learn(p, PENALTY).scenarios
    parts = score_parts(p, found)
    root = solve(p, parts)
    c = conditional(p, root, parts.scenarios, [s.weight for s in found], np.ones((600, 1)))
    yes = found[1].weight[:, None]
    low, high = (p.family.score(root.theta, r) @ root.inverse.T for r in parts.scenarios)
    np.testing.assert_allclose(c.mean, (1 - yes) * low + yes * high, atol=1e-12)
    np.testing.assert_allclose(c.variance, yes * (1 - yes) * (high - low) ** 2, atol=1e-12)
    fourth = yes * (1 - yes) * ((1 - yes) ** 3 + yes**3) * (high - low) ** 4
    np.testing.assert_allclose(c.fourth, fourth, atol=1e-12)


def test_classes_that_the_formula_does_not_tell_apart_are_one() -> None:
    kind = values_of(problem("I(topic == 'b') ~ t"), "topic")
    assert kind.values is not None
    assert len(kind.values) == 2
    assert kind.code["a"] == kind.code["c"] == kind.code["d"] != kind.code["b"]


def test_blend_weighs_by_informative_rows() -> None:
    one = np.ones(3)
    both = blend(one, 4.0 * one, np.array([1e-9, 1.0, 1e9]), 200.0)
    np.testing.assert_allclose(both.variance, [4.0, 2.5, 1.0], rtol=1e-6)
    np.testing.assert_allclose(both.df, [6.0, 8.0, 200.0])


def test_better_labels_make_narrower_intervals() -> None:
    several = tu.ExpectedScore().estimate(problem("v ~ t + x"))
    single = tu.ExpectedScore().estimate(problem("v ~ t + x", llm=("m2",)))
    human = tu.Human().estimate(problem("v ~ t + x"))
    se = [float(np.sqrt(e.vcov[1, 1])) for e in (several, single, human)]
    assert se[0] < se[1] < se[2]


def test_useless_labels_fall_back_to_the_human_fit() -> None:
    rng = np.random.default_rng(5)
    d = table(n=60)
    d["m0"] = rng.integers(0, 2, size=len(d)).astype(float)
    d["t"] = rng.integers(0, 2, size=len(d)).astype(float)
    d["x"] = rng.normal(size=len(d))
    p = problem("v ~ t + x", llm=("m0",), data=d)
    fit = tu.ExpectedScore().estimate(p)
    human = tu.Human().estimate(p)
    np.testing.assert_array_equal(fit.theta, human.theta)
    assert "human-only" in fit.notes[0]
    kept = tu.ExpectedScore(fallback=False).estimate(p)
    assert not np.allclose(kept.theta, human.theta)


def test_no_mislabelled_coded_row_is_said_and_leaves_room_for_errors() -> None:
    d = table()
    coded = d["coder"].notna()
    for k in range(3):
        d[f"m{k}"] = np.where(coded, d["coder"], d[f"m{k}"])
    fit = tu.ExpectedScore(fallback=False).estimate(problem("v ~ t + x", data=d))
    assert any("differs from the coder's" in w for w in fit.warnings)
    pieces = fit.extra["pieces"]
    # The coded rows alone see next to no variance of what only coding reveals.
    assert fit.vcov[1, 1] - pieces.known[1] > 2.0 * pieces.coded[1]
    assert fit.informative is not None
    assert fit.informative[1] < 1.0


def test_few_rows_a_rare_class_and_a_dominant_row_are_named() -> None:
    d = table(n=24, seed=3)
    fit = tu.ExpectedScore(fallback=False).estimate(problem("v ~ t", data=d))
    assert any("so few that no method" in w for w in fit.warnings)
    d = table(n=120)
    coded = np.flatnonzero(d["coder"].notna())
    d.loc[coded[5:], "coder"] = 0.0
    d.loc[coded[:5], "coder"] = 1.0
    fit = tu.ExpectedScore(fallback=False).estimate(problem("v ~ t", data=d))
    assert any("Only 5 coded rows have 'v' = 1.0" in w for w in fit.warnings)
    d = table(n=120)
    d["pi"] = 0.2
    row = coded[int(np.argmax(d["m0"].to_numpy()[coded] != d["coder"].to_numpy()[coded]))]
    d.loc[row, "pi"] = 0.005
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrueupWarning)
        p = problem("v ~ t", data=d, sampling=tu.Sampling(probability="pi"), llm=("m0",))
    fit = tu.ExpectedScore(fallback=False).estimate(p)
    assert any(f"row {row} (probability 0.005" in w for w in fit.warnings)


def test_separated_coded_rows_do_no_harm() -> None:
    d = table(n=30, seed=8)
    coded = d["coder"].notna()
    d.loc[coded, "t"] = d.loc[coded, "coder"]
    fit = tu.ExpectedScore().estimate(problem("v ~ t", "logit", data=d))
    assert np.isfinite(fit.theta).all()
    assert np.abs(fit.theta).max() < 20


@pytest.mark.parametrize("option", ["penalty", "other_penalty", "smoothing"])
@pytest.mark.parametrize("value", [0, -1.0, np.inf, "a", True])
def test_bad_options_are_refused(option: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=option):
        tu.ExpectedScore(**{option: value})


def test_reference_distributions_are_honoured() -> None:
    p = problem("v ~ t + x")
    normal = replace(p, vcov=replace(p.vcov, reference="normal"))
    assert np.isinf(tu.ExpectedScore().estimate(normal).df).all()
    residual = replace(p, vcov=replace(p.vcov, reference="residual"))
    np.testing.assert_array_equal(tu.ExpectedScore().estimate(residual).df, 117.0)


def test_by_name_and_in_a_multiverse() -> None:
    study = tu.Study(table(), human={"v": "coder"}, llm={"v": ["m0", "m1", "m2"]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrueupWarning)
        mv = tu.multiverse(
            "v ~ t + x", study, focus="t", corrections=["human", "es"], progress=False
        )
    row = mv.tidy()
    assert (row["status"] == "ok").all()
    single = tu.ols("v ~ t + x", study, llm="m0", correction="es")
    first = row[(row["llm"] == "m0") & (row["correction"] == "es")].iloc[0]
    np.testing.assert_allclose(first["estimate"], single.coef()["t"], atol=1e-12)
    np.testing.assert_allclose(np.diag(mv.vcov()), row["std_error"] ** 2, rtol=1e-8)
