"""Identities that hold exactly, whatever the data: METHODS section 5, by number.

All with vcov="HC0": the plug-in covariance, for which the identities are stated.
Tolerances are rounding: 1e-8 relative on quantities of order one after two linear solves.
"""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trueup as tu
from support.made import poisson, study, texts

CLOSE = {"rtol": 1e-8, "atol": 1e-9}
SEEDS = st.integers(0, 10_000)
OUTCOME = "v ~ x + t"
COVARIATE = "z ~ v + x + t"


def ols(formula, s, correction, **options):
    return tu.ols(formula, s, correction=correction, vcov="HC0", seed=1, **options)


def same(a, b, *, what="both"):
    np.testing.assert_allclose(a.coef().to_numpy(), b.coef().to_numpy(), **CLOSE)
    if what == "both":
        np.testing.assert_allclose(a.vcov().to_numpy(), b.vcov().to_numpy(), **CLOSE)


def full_fit(formula, data):
    """Return the fit with every row coded."""
    every = data.assign(v_human=data["v"])
    return ols(formula, study(every), "human")


@pytest.mark.parametrize("formula", [OUTCOME, COVARIATE])
@pytest.mark.parametrize("draw", ["srs", "poisson"])
@pytest.mark.parametrize("tuning", ["identity", "full"])
@given(seed=SEEDS)
def test_1_a_perfect_llm_gives_the_fit_to_all_human_labels(formula, draw, tuning, seed):
    d = texts(seed=seed, draw=draw).assign(f1=lambda d: d["v"])
    s = study(d, sampling=poisson() if draw == "poisson" else None)
    same(ols(formula, s, tu.PTD(tuning=tuning)), full_fit(formula, d), what="point")


@given(seed=SEEDS)
def test_1_a_perfect_llm_leaves_only_the_variance_of_the_rows(seed):
    d = texts(seed=seed, draw="poisson").assign(f1=lambda d: d["v"])
    fit = ols(OUTCOME, study(d, sampling=poisson()), tu.PTD())
    w = 1 / d.loc[d["v_human"].notna(), "pi"].to_numpy()
    h = fit.estimate.h
    expected = (h * w[:, None]).T @ h / w.sum() ** 2
    np.testing.assert_allclose(fit.vcov().to_numpy(), expected, **CLOSE)


@pytest.mark.parametrize("formula", [OUTCOME, COVARIATE])
@given(seed=SEEDS)
def test_2_lambda_zero_is_the_human_fit(formula, seed):
    s = study(texts(seed=seed, draw="poisson"), sampling=poisson())
    same(ols(formula, s, tu.PPI(tuning=0.0)), ols(formula, s, "human"))


@pytest.mark.parametrize("correction", ["ptd", "ppi", "ppi++", "human"])
@pytest.mark.parametrize("formula", [OUTCOME, COVARIATE])
@given(seed=SEEDS)
def test_3_with_every_row_coded_all_corrections_are_the_human_fit(correction, formula, seed):
    d = texts(N=150, n=150, seed=seed)
    s = study(d)
    fit = ols(formula, s, correction)
    same(fit, full_fit(formula, d))


@pytest.mark.parametrize("formula", [OUTCOME])
@given(seed=SEEDS)
def test_4_a_constant_llm_leaves_the_human_fit(formula, seed):
    d = texts(seed=seed).assign(f1=1.0)
    s = study(d)
    same(ols(formula, s, tu.PTD()), ols(formula, s, "human"))


@pytest.mark.parametrize("formula", [OUTCOME, COVARIATE])
@given(seed=SEEDS)
def test_4_copies_of_an_llm_change_nothing(formula, seed):
    d = texts(seed=seed).assign(copy=lambda d: d["f1"])
    one = ols(formula, study(d), tu.PTD())
    two = ols(formula, study(d, llm=["f1", "copy"]), tu.PTD(), llm="all")
    same(one, two)


@pytest.mark.parametrize("family", ["ols", "logit"])
@pytest.mark.parametrize("tuning", ["full", "diagonal"])
@given(seed=SEEDS)
def test_5_swapping_the_classes_of_the_llm_changes_nothing(family, tuning, seed):
    d = texts(seed=seed, outcome="binary")
    fit = getattr(tu, family)
    a = fit(OUTCOME, study(d), correction=tu.PTD(tuning=tuning), vcov="HC0")
    b = fit(OUTCOME, study(d.assign(f1=1 - d["f1"])), correction=tu.PTD(tuning=tuning), vcov="HC0")
    same(a, b)


@given(seed=SEEDS, a=st.floats(-3, 3), b=st.sampled_from([-2.0, 0.1, 5.0]))
def test_5_a_linear_recoding_of_the_llm_outcome_changes_nothing_with_full_tuning(seed, a, b):
    d = texts(seed=seed)
    same(
        ols(OUTCOME, study(d), tu.PTD()),
        ols(OUTCOME, study(d.assign(f1=a + b * d["f1"])), tu.PTD()),
    )


@given(seed=SEEDS, a=st.floats(-3, 3), b=st.sampled_from([-2.0, 0.1, 5.0]))
def test_6_a_linear_recoding_of_the_llm_covariate_changes_nothing_with_full_tuning(seed, a, b):
    d = texts(seed=seed)
    same(
        ols(COVARIATE, study(d), tu.PTD()),
        ols(COVARIATE, study(d.assign(f1=a + b * d["f1"])), tu.PTD()),
    )


@given(seed=SEEDS)
def test_7_full_tuning_is_equivariant_to_a_change_of_basis(seed):
    d = texts(seed=seed, draw="poisson")
    M = np.array([[1.0, 0.4, -1.0], [0.0, 2.0, 0.5], [0.0, -0.3, 1.5]])
    new = np.column_stack([np.ones(len(d)), d["x"], d["t"]]) @ M
    e = d.assign(x=new[:, 1], t=new[:, 2], one=new[:, 0])
    a = ols(OUTCOME, study(d, sampling=poisson()), tu.PTD())
    b = ols("v ~ 0 + one + x + t", study(e, sampling=poisson()), tu.PTD())
    back = np.linalg.inv(M)
    np.testing.assert_allclose(b.coef().to_numpy(), back @ a.coef().to_numpy(), **CLOSE)
    np.testing.assert_allclose(b.vcov().to_numpy(), back @ a.vcov().to_numpy() @ back.T, **CLOSE)


@pytest.mark.parametrize("correction", ["ptd", "ppi++", "human", "naive"])
@given(seed=SEEDS)
def test_8_the_order_of_rows_does_not_matter(correction, seed):
    d = texts(seed=seed, draw="poisson")
    shuffled = d.sample(frac=1, random_state=seed)
    same(
        ols(COVARIATE, study(d, sampling=poisson()), correction),
        ols(COVARIATE, study(shuffled, sampling=poisson()), correction),
    )


@pytest.mark.parametrize("correction", ["ptd", "ppi", "human", "naive"])
@given(seed=SEEDS)
def test_9_doubling_every_row_halves_the_covariance(correction, seed):
    d = texts(seed=seed, draw="poisson")
    twice = pd.concat([d, d])
    one = ols(OUTCOME, study(d, sampling=poisson()), correction)
    two = ols(OUTCOME, study(twice, sampling=poisson()), correction)
    same(one, two, what="point")
    np.testing.assert_allclose(two.vcov().to_numpy(), one.vcov().to_numpy() / 2, **CLOSE)


@pytest.mark.filterwarnings("ignore::trueup.errors.DesignWarning")
@pytest.mark.parametrize("correction", [tu.PTD(tuning="identity"), "ppi", "human", tu.DSL()])
@given(seed=SEEDS)
def test_10_the_scale_of_the_probabilities_does_not_move_the_estimate(correction, seed):
    d = texts(seed=seed, draw="poisson")
    smaller = d.assign(pi=d["pi"] * 0.5)
    same(
        ols(OUTCOME, study(d, sampling=poisson()), correction),
        ols(OUTCOME, study(smaller, sampling=poisson()), correction),
        what="point",
    )


@pytest.mark.parametrize("formula", [OUTCOME, COVARIATE])
@given(seed=SEEDS)
def test_11_more_tuning_never_raises_the_plug_in_variance(formula, seed):
    d = texts(seed=seed, draw="poisson")
    s = study(d, llm=["f1", "f2"], sampling=poisson())
    v = {
        name: np.diag(ols(formula, s, c, llm="f1").vcov())
        for name, c in {
            "full": tu.PTD(),
            "diagonal": tu.PTD(tuning="diagonal"),
            "one": tu.PTD(tuning="identity"),
            "human": "human",
        }.items()
    }
    v["two"] = np.diag(ols(formula, s, tu.PTD(), llm="all").vcov())
    slack = 1 + 1e-9
    assert (v["two"] <= v["full"] * slack).all()
    assert (v["full"] <= v["diagonal"] * slack).all()
    assert (v["diagonal"] <= np.minimum(v["human"], v["one"]) * slack).all()


@given(seed=SEEDS)
def test_12_the_tuned_mean_of_a_binary_llm_is_post_stratification(seed):
    d = texts(seed=seed, outcome="binary")
    g = d.dropna(subset="v_human")
    share = d["f1"].mean()
    expected = (
        share * g.loc[g["f1"] == 1, "v"].mean() + (1 - share) * g.loc[g["f1"] == 0, "v"].mean()
    )
    fit = tu.mean("v", study(d), correction=tu.PTD(tuning="scalar"), vcov="HC0")
    np.testing.assert_allclose(fit.coef().iloc[0], expected, **CLOSE)


@given(seed=SEEDS, lam=st.floats(0, 1))
def test_13_the_mean_is_the_same_in_the_pooled_and_the_disjoint_convention(seed, lam):
    d = texts(seed=seed)
    coded = d["v_human"].notna()
    m, N = int((~coded).sum()), len(d)
    s = study(d)
    parts = tu.Study.from_parts(
        d[coded].drop(columns="v"),
        d[~coded].drop(columns=["v", "v_human"]),
        human={"v": "v_human"},
        llm={"v": ["f1"]},
    )
    disjoint = tu.mean("v", parts, correction=tu.PPI(tuning=lam), vcov="HC0")
    pooled = tu.mean("v", s, correction=tu.PPI(tuning=lam, reference="uncoded"), vcov="HC0")
    same(disjoint, pooled)
    g = d[coded]
    expected = g["v"].mean() + lam * (d.loc[~coded, "f1"].mean() - g["f1"].mean())
    np.testing.assert_allclose(disjoint.coef().iloc[0], expected, **CLOSE)
    shrunk = tu.mean("v", s, correction=tu.PPI(tuning=lam * m / N), vcov="HC0")
    scaled = g["v"].mean() + lam * m / N * (d["f1"].mean() - g["f1"].mean())
    np.testing.assert_allclose(shrunk.coef().iloc[0], scaled, **CLOSE)


@given(seed=SEEDS)
def test_14_ppi_of_a_mean_is_the_mean_of_pseudo_outcomes(seed):
    d = texts(seed=seed)
    coded = d["v_human"].notna()
    pseudo = d["f1"] + np.where(coded, (d["v"] - d["f1"]) / d["pi"], 0.0)
    s = study(d)
    for correction in ("ppi", tu.DSL(predictions=d["f1"].to_numpy())):
        fit = tu.mean("v", s, correction=correction, vcov="HC0")
        np.testing.assert_allclose(fit.coef().iloc[0], pseudo.mean(), **CLOSE)


@given(seed=SEEDS)
def test_15_saturated_ols_is_tuned_group_by_group(seed):
    d = texts(seed=seed)
    s = study(d)
    fit = ols("v ~ 0 + C(t)", s, tu.PTD())
    omega = fit.estimate.tuning
    np.testing.assert_allclose(omega - np.diag(np.diag(omega)), 0.0, atol=1e-9)
    for j, level in enumerate((0.0, 1.0)):
        part, g = d[d["t"] == level], d[(d["t"] == level) & d["v_human"].notna()]
        slope = np.polyfit(g["f1"], g["v"], 1)[0]
        expected = g["v"].mean() + slope * (part["f1"].mean() - g["f1"].mean())
        np.testing.assert_allclose(fit.coef().iloc[j], expected, **CLOSE)


@given(seed=SEEDS)
def test_16_dsl_on_raw_labels_is_ptd_identity_where_the_coded_design_is_balanced(seed):
    d = texts(seed=seed, N=200, n=200)
    # The same covariates twice, one copy coded: the weighted coded design equals the full one.
    rng = np.random.default_rng(seed)
    again = d.assign(v=d["v"] + rng.normal(size=200), f1=rng.normal(size=200), v_human=np.nan)
    both = pd.concat([d, again], ignore_index=True)
    s = study(both)
    raw = tu.DSL(predictions=both["f1"].to_numpy())
    same(ols(OUTCOME, s, raw), ols(OUTCOME, s, tu.PTD(tuning="identity")), what="point")


@given(seed=SEEDS)
def test_16_and_differs_from_it_otherwise(seed):
    d = texts(seed=seed)
    s = study(d)
    a = ols(OUTCOME, s, tu.DSL(predictions=d["f1"].to_numpy())).coef()
    b = ols(OUTCOME, s, tu.PTD(tuning="identity")).coef()
    assert np.abs(a - b).max() > 1e-6


@given(seed=SEEDS)
def test_17_the_bias_of_the_llm_fit_is_the_regression_of_its_error(seed):
    d = texts(seed=seed, draw="poisson")
    s = study(d, sampling=poisson())
    bias = ols(OUTCOME, s, "naive").coef() - ols(OUTCOME, s, tu.PTD(tuning="identity")).coef()
    g = d.dropna(subset="v_human")
    X, w = np.column_stack([np.ones(len(g)), g["x"], g["t"]]), 1 / g["pi"].to_numpy()
    error = (g["f1"] - g["v"]).to_numpy()
    expected = np.linalg.solve(X.T @ (w[:, None] * X), X.T @ (w * error))
    np.testing.assert_allclose(bias.to_numpy(), expected, **CLOSE)


@pytest.mark.parametrize("correction", ["ptd", "human", "ppi++"])
@given(seed=SEEDS)
def test_20_one_stratum_is_a_simple_random_sample(correction, seed):
    d = texts(seed=seed).assign(one="all")
    same(
        ols(COVARIATE, study(d), correction),
        ols(COVARIATE, study(d, sampling=tu.Sampling(strata="one")), correction),
    )


@pytest.mark.parametrize("correction", [tu.PTD(tuning="identity"), "human"])
@given(seed=SEEDS)
def test_20_clusters_of_one_row_are_independent_rows(correction, seed):
    d = texts(seed=seed, draw="poisson").assign(own=lambda d: np.arange(len(d)))
    rows = ols(
        OUTCOME, study(d, sampling=poisson()), "human" if correction == "human" else correction
    )
    clusters = ols(OUTCOME, study(d, sampling=poisson(), cluster="own"), correction)
    same(rows, clusters, what="point")
    if correction == "human":
        G = len(d)
        np.testing.assert_allclose(
            clusters.vcov().to_numpy(), rows.vcov().to_numpy() * G / (G - 1), **CLOSE
        )
