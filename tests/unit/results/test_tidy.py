"""Tables of coefficients against statsmodels; the one-row table; the rows of the study."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trueup.errors import ArgumentError, FitError
from trueup.results.tidy import p_values, quantiles, standard_errors, tuning_label

SNAKE = [
    "term",
    "estimate",
    "std_error",
    "statistic",
    "p_value",
    "conf_low",
    "conf_high",
    "df",
]


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_tidy_equals_statsmodels(world, level):
    table, r = world.fit.tidy(level=level), world.reference
    assert table.columns.tolist() == SNAKE
    assert table["term"].tolist() == list(world.frame.terms)
    np.testing.assert_allclose(table["estimate"], r.params, rtol=1e-12)
    np.testing.assert_allclose(table["std_error"], r.bse, rtol=1e-12)
    np.testing.assert_allclose(table["statistic"], r.tvalues, rtol=1e-12)
    np.testing.assert_allclose(table["p_value"], r.pvalues, rtol=1e-10)
    low, high = r.conf_int(alpha=1 - level).T
    np.testing.assert_allclose(table["conf_low"], low, rtol=1e-9)
    np.testing.assert_allclose(table["conf_high"], high, rtol=1e-9)


def test_the_level_of_the_fit_is_the_default(make):
    fit = make(level=0.5).fit
    np.testing.assert_array_equal(fit.tidy()["conf_low"], fit.tidy(level=0.5)["conf_low"])


def test_infinite_df_is_the_normal_distribution(make):
    w = make(df=np.inf)
    table, r = w.fit.tidy(), w.reference
    np.testing.assert_allclose(table["p_value"], 2 * stats.norm.sf(abs(r.tvalues)), rtol=1e-12)
    np.testing.assert_allclose(
        table["conf_high"], r.params + stats.norm.ppf(0.975) * r.bse, rtol=1e-12
    )


def test_each_coefficient_has_its_own_df(make):
    df = np.array([3.0, np.inf, 12.5, 50.0])
    w = make(df=df)
    table = w.fit.tidy()
    expected = [
        2 * (stats.norm.sf(abs(t)) if np.isinf(k) else stats.t.sf(abs(t), k))
        for t, k in zip(w.reference.tvalues, df, strict=True)
    ]
    np.testing.assert_allclose(table["p_value"], expected, rtol=1e-12)
    np.testing.assert_array_equal(table["df"], df)


def test_broom_names(world):
    assert world.fit.tidy(names="broom").columns.tolist() == [
        "term",
        "estimate",
        "std.error",
        "statistic",
        "p.value",
        "conf.low",
        "conf.high",
        "df",
    ]
    with pytest.raises(ArgumentError, match=r"names='R' is unknown"):
        world.fit.tidy(names="R")


@pytest.mark.parametrize("level", [0, 1, -0.1, 95, np.nan, "0.95", True])
def test_level_outside_the_unit_interval(world, level):
    for ask in (world.fit.tidy, world.fit.confint, world.fit.summary, world.fit.compare):
        with pytest.raises(ArgumentError, match="level"):
            ask(level=level)
    with pytest.raises(ArgumentError, match="level"):
        world.fit.predict(level=level)


def test_a_level_in_percent_is_explained(world):
    with pytest.raises(ArgumentError, match=r"write level=0\.95"):
        world.fit.tidy(level=95)


def test_a_fit_refuses_a_bad_level(make):
    with pytest.raises(ArgumentError, match="level"):
        make(level=1.5)


def test_a_negative_variance_is_an_error_that_names_the_term(make):
    V = make().fit.estimate.vcov.copy()
    V[2, 2] = -0.5
    fit = make(vcov=V).fit
    for ask in (fit.tidy, fit.se, fit.confint, fit.summary):
        with pytest.raises(FitError, match=r"C\(group\)\[T\.b\].*-0\.5"):
            ask()


def test_rounding_below_zero_is_zero():
    np.testing.assert_array_equal(
        standard_errors(np.diag([1.0, -1e-15]), ["a", "b"]), np.array([1.0, 0.0])
    )


def test_zero_standard_error_is_an_infinite_statistic(make):
    V = make().fit.estimate.vcov.copy()
    V[1], V[:, 1] = 0.0, 0.0
    row = make(vcov=V).fit.tidy().loc[1]
    assert np.isinf(row["statistic"])
    assert row["p_value"] == 0.0
    assert row["conf_low"] == row["conf_high"] == row["estimate"]


@given(st.floats(0.01, 0.99), st.floats(1.0, 1e4) | st.just(np.inf))
def test_an_estimate_at_the_edge_of_its_interval_has_p_of_one_minus_level(level, df):
    t = quantiles(level, np.array([df]))
    np.testing.assert_allclose(p_values(t, np.array([df])), 1 - level, rtol=1e-6)


def test_p_values_far_out_do_not_vanish():
    assert 0 < p_values(np.array([30.0]), np.array([np.inf]))[0] < 1e-190


def test_coef_se_vcov_confint(world):
    fit, r = world.fit, world.reference
    terms = list(world.frame.terms)
    np.testing.assert_allclose(fit.coef()[terms], r.params)
    np.testing.assert_allclose(fit.se()[terms], r.bse)
    np.testing.assert_allclose(fit.vcov().loc[terms, terms], r.cov_params())
    interval = fit.confint(level=0.9)
    assert interval.columns.tolist() == ["conf_low", "conf_high"]
    np.testing.assert_allclose(interval.loc[terms], r.conf_int(alpha=0.1), rtol=1e-9)


def test_glance_is_one_row_of_facts(make):
    base = make().fit
    ratio = np.array([9.0, 2.0, 3.0, 5.0])
    root = np.sqrt(ratio)
    missing = np.zeros(300, dtype=bool)
    missing[:7] = True
    fit = make(
        vcov_human=base.estimate.vcov * np.outer(root, root),
        informative=np.array([2.0, 40.0, 31.5, 44.0]),
        tuning=np.ones((4, 4)),
        df=np.array([20.0, 30.0, 40.0, 10.0]),
        missing={"gpt__p1": missing},
    ).fit
    table = fit.glance()
    assert len(table) == 1
    row = table.loc[0]
    assert row["formula"] == "positive ~ x * C(group)"
    assert row["family"] == "ols"
    assert row["correction"] == "ptd"
    assert row["llm"] == "gpt__p1"
    assert row["n_human"] == 60
    assert row["n_llm"] == 293
    assert row["tuning"] == "4 x 4"
    assert row["effective_n"] == pytest.approx(60 * 3.0)  # the median without the intercept
    assert row["informative"] == 31.5
    assert row["level"] == 0.95
    assert row["vcov"] == "HC3"
    assert row["design"] == "srs"
    assert row["n_clusters"] is None
    assert row["df"] == 10.0


def test_glance_of_the_uncorrected(make):
    naive = make(correction="naive").fit.glance().loc[0]
    assert naive["n_human"] == 0
    assert naive["n_llm"] == 300
    assert np.isnan(naive["effective_n"])
    human = make(correction="human").fit.glance().loc[0]
    assert human["n_human"] == 60
    assert human["n_llm"] == 0
    assert human["llm"] is None


def test_what_auto_chose_is_what_is_shown(make):
    chosen = make(correction="ptd").fit.correction
    fit = make(correction="auto", extra={"chosen": chosen}).fit
    assert fit.glance().loc[0, "correction"] == "ptd"
    assert "'ptd'" in repr(fit)


@pytest.mark.parametrize(
    ("tuning", "label"),
    [(None, None), (np.array(0.25), 0.25), (np.array([[0.5]]), 0.5), (np.ones(3), "3")],
)
def test_tuning_as_a_number_or_its_size(tuning, label):
    assert tuning_label(tuning) == label


def test_repr_is_one_line(world):
    assert repr(world.fit) == (
        "<ols fit of 'positive ~ x * C(group)', correction 'ptd', 4 coefficients; see .summary()>"
    )
