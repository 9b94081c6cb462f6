"""Families of generalised linear models against statsmodels and against finite differences."""

import warnings

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st

from trueup.errors import ArgumentError, FitError
from trueup.estimation.blocks import mean_hessian, score_meat, total_weight
from trueup.estimation.solve import fit
from trueup.families.glm import FAMILIES, GLM, LINKS, allowed_links
from trueup.families.registry import family_for, glm_family
from trueup.formula.rows import Rows

TERMS = ("Intercept", "x", "d")
PAIRS = [(f, link) for f in FAMILIES for link in allowed_links(f)]
#: (intercept, slopes) that keep the mean inside its bounds for every row.
COEF = {
    "log": (0.4, 0.3, -0.2),
    "logit": (-0.3, 0.8, 0.5),
    "probit": (-0.2, 0.5, 0.3),
    "cloglog": (-0.5, 0.4, 0.3),
    "loglog": (0.2, 0.4, 0.3),
    "cauchy": (0.1, 0.5, 0.3),
    "sqrt": (2.0, 0.2, 0.3),
    "inverse": (1.0, 0.1, 0.2),
    "inverse_squared": (1.0, 0.1, 0.2),
    "identity": (2.0, 0.2, 0.4),
}


def draw(family, link, n=400, seed=1):
    """Rows from the model itself, and weights."""
    rng = np.random.default_rng(seed)
    x, d = np.clip(rng.normal(size=n), -2.0, 2.0), rng.integers(0, 2, n)
    X = np.column_stack([np.ones(n), x, d])
    coef = np.array(COEF[link])
    if family == "binomial" and link in ("log", "identity"):
        coef = {"log": np.array([-1.2, 0.15, 0.1]), "identity": np.array([0.4, 0.08, 0.1])}[link]
    mu = GLM("g", family, link).mean(coef, X)
    outcome = {
        "gaussian": lambda: mu + 0.3 * rng.normal(size=n),
        "binomial": lambda: rng.binomial(1, mu).astype(float),
        "poisson": lambda: rng.poisson(mu).astype(float),
        "gamma": lambda: rng.gamma(5.0, mu / 5.0),
        "inverse_gaussian": lambda: rng.wald(mu, 8.0),
        "negative_binomial": lambda: rng.poisson(mu * rng.gamma(1.0, 1.0, n)).astype(float),
    }
    return Rows(y=outcome[family](), X=X), rng.uniform(0.5, 3.0, n), coef


def statsmodels_model(rows, family, link, alpha=1.0, **options):
    the_link = getattr(sm.families.links, LINKS[link])()
    dispersion = {"alpha": alpha} if family == "negative_binomial" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # statsmodels warns of links that leave the range
        the_family = getattr(sm.families, FAMILIES[family])(link=the_link, **dispersion)
        return sm.GLM(rows.y, rows.X, family=the_family, **options)


@pytest.mark.parametrize(("family", "link"), PAIRS)
def test_point_and_hc0_are_those_of_statsmodels(family, link):
    rows, weights, _ = draw(family, link)
    ours = glm_family(family, link)
    theta = fit(ours, rows, weights, TERMS)
    model = statsmodels_model(rows, family, link, var_weights=weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = model.fit(tol=1e-13, tol_criterion="params", maxiter=300, start_params=theta)
    np.testing.assert_allclose(theta, peer.params, rtol=1e-8, atol=1e-9)
    total = total_weight(rows, weights)
    bread = np.linalg.inv(mean_hessian(ours, theta, rows, weights)) / total
    hc0 = bread @ score_meat(ours, theta, rows, weights) @ bread
    observed = np.linalg.inv(-model.hessian(theta, scale=1.0, observed=True))
    scores = model.score_obs(theta, scale=1.0)
    np.testing.assert_allclose(hc0, observed @ scores.T @ scores @ observed, rtol=1e-6)


@pytest.mark.parametrize(("family", "link"), PAIRS)
def test_score_is_that_of_statsmodels_row_by_row(family, link):
    rows, _, coef = draw(family, link)
    model = statsmodels_model(rows, family, link)
    np.testing.assert_allclose(
        glm_family(family, link).score(coef, rows),
        model.score_obs(coef, scale=1.0),
        rtol=1e-9,
        atol=1e-11,
    )


@pytest.mark.parametrize(("family", "link"), PAIRS)
def test_hessian_is_minus_the_derivative_of_the_score(family, link):
    rows, weights, coef = draw(family, link)
    ours = glm_family(family, link)
    numeric = -central(lambda t: ours.score_sum(t, rows, weights), coef)
    exact = ours.hessian_sum(coef, rows, weights)
    np.testing.assert_allclose(exact, numeric, rtol=1e-5, atol=1e-5 * np.abs(exact).max())


@pytest.mark.parametrize(("family", "link"), PAIRS)
def test_mean_gradient_is_the_derivative_of_the_mean(family, link):
    rows, _, coef = draw(family, link, n=20)
    ours = glm_family(family, link)
    numeric = central(lambda t: ours.mean(t, rows.X), coef)
    np.testing.assert_allclose(ours.mean_gradient(coef, rows.X), numeric, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(("family", "link"), PAIRS)
def test_sums_are_the_sums_of_the_scores(family, link):
    rows, weights, coef = draw(family, link)
    ours = glm_family(family, link)
    score, hessian = ours.sums(coef, rows, weights)
    np.testing.assert_allclose(score, weights @ ours.score(coef, rows), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(hessian, ours.hessian_sum(coef, rows, weights), rtol=1e-12)
    np.testing.assert_allclose(
        ours.score_sum(coef, rows, None), ours.score(coef, rows).sum(axis=0), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize(("family", "link"), PAIRS)
def test_canonical_says_whether_the_hessian_depends_on_the_outcome(family, link):
    rows, _, coef = draw(family, link)
    ours = glm_family(family, link)
    other = Rows(y=rows.y[::-1].copy(), X=rows.X)
    same = np.allclose(
        ours.hessian_sum(coef, rows, None), ours.hessian_sum(coef, other, None), rtol=1e-10
    )
    assert same == ours.canonical


@pytest.mark.parametrize(
    ("family", "link"),
    [
        ("binomial", "logit"),
        ("binomial", "probit"),
        ("binomial", "cloglog"),
        ("binomial", "loglog"),
        ("poisson", "log"),
        ("gaussian", "identity"),
    ],
)
def test_own_code_is_the_generic_model(family, link):
    rows, weights, coef = draw(family, link)
    own, generic = glm_family(family, link), GLM("generic", family, link)
    assert type(own) is not GLM
    np.testing.assert_allclose(own.score(coef, rows), generic.score(coef, rows), rtol=1e-10)
    np.testing.assert_allclose(
        own.hessian_sum(coef, rows, weights), generic.hessian_sum(coef, rows, weights), rtol=1e-9
    )
    np.testing.assert_allclose(
        own.leverage(coef, rows, weights), generic.leverage(coef, rows, weights), rtol=1e-9
    )


@pytest.mark.parametrize("name", ["ols", "logit", "probit", "poisson"])
def test_whole_number_weights_are_repeated_rows(name):
    family = "gaussian" if name == "ols" else "poisson" if name == "poisson" else "binomial"
    link = {"ols": "identity", "poisson": "log"}.get(name, name)
    rows, _, _ = draw(family, link, n=150)
    times = np.random.default_rng(3).integers(1, 4, len(rows))
    repeated = rows.take(np.repeat(np.arange(len(rows)), times))
    ours = family_for(name)
    np.testing.assert_allclose(
        fit(ours, rows, times.astype(float), TERMS), fit(ours, repeated, None, TERMS), rtol=1e-9
    )


def test_leverage_is_the_hat_matrix_of_statsmodels():
    rows, _, _ = draw("binomial", "logit")
    theta = fit(family_for("logit"), rows, None, TERMS)
    peer = sm.GLM(rows.y, rows.X, family=sm.families.Binomial()).fit(tol=1e-12)
    hat = family_for("logit").leverage(theta, rows, np.ones(len(rows)))
    np.testing.assert_allclose(hat, peer.get_hat_matrix_diag(), rtol=1e-6)
    assert hat.sum() == pytest.approx(3.0)


def test_logit_takes_probabilities_as_labels():
    rows, _, _ = draw("binomial", "logit")
    soft = Rows(y=0.1 + 0.8 * rows.y, X=rows.X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = sm.GLM(soft.y, soft.X, family=sm.families.Binomial()).fit(tol=1e-12)
    np.testing.assert_allclose(fit(family_for("logit"), soft, None, TERMS), peer.params, rtol=1e-8)


@given(
    st.floats(-600.0, 600.0),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from(["logit", "probit", "cloglog", "loglog"]),
)
def test_binary_families_stay_finite_and_concave_far_out(eta, y, link):
    family = glm_family("binomial", link)
    residual, information = family.pieces(np.array([eta]), np.array([y]))
    assert np.isfinite(residual).all()
    assert information[0] >= 0.0
    assert 0.0 <= family.inverse(np.array([eta]))[0] <= 1.0


def test_dispersion_of_the_negative_binomial_matters():
    rows, _, _ = draw("negative_binomial", "log")
    for alpha in (0.3, 2.0):
        peer = statsmodels_model(rows, "negative_binomial", "log", alpha).fit(tol=1e-13)
        ours = fit(glm_family("negative binomial", "log", alpha=alpha), rows, None, TERMS)
        np.testing.assert_allclose(ours, peer.params, rtol=1e-7)


@pytest.mark.parametrize(
    ("family", "bad", "shown"),
    [
        (family_for("logit"), [0.0, 1.0, 2.0], "2"),
        (family_for("probit"), [0.0, -1.0], "-1"),
        (family_for("logit"), [0.0, np.nan], "nan"),
        (family_for("poisson"), [3.0, -2.0], "-2"),
        (family_for("poisson"), [3.0, np.inf], "inf"),
        (family_for("ols"), [3.0, np.inf], "inf"),
        (glm_family("gamma"), [3.0, 0.0], "0"),
        (glm_family("inverse gaussian"), [3.0, -0.5], "-0.5"),
        (glm_family("binomial", "cloglog"), [1.5, 0.0], "1.5"),
        (glm_family("negative binomial"), [1.5, -1.0], "-1"),
        (glm_family("gaussian", "log"), [1.5, np.nan], "nan"),
    ],
)
def test_outcomes_that_a_family_forbids_are_named(family, bad, shown):
    with pytest.raises(FitError, match=rf"'tone' has 1 value\(s\).*\({shown}\)"):
        family.check_outcome(np.array(bad), "tone")


@pytest.mark.parametrize("name", ["logit", "probit"])
def test_probabilities_are_fine_as_outcomes(name):
    family_for(name).check_outcome(np.array([0.0, 0.4, 1.0]), "tone")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: family_for("lasso"), "ols, mean, logit"),
        (lambda: family_for(3), "name of a family"),
        (lambda: family_for("iv", link="log"), "has no link"),
        (lambda: glm_family("beta"), "gaussian, binomial"),
        (lambda: glm_family("poisson", "spline"), "identity, log, sqrt"),
        (lambda: glm_family("poisson", "logit"), "identity, log, sqrt"),
        (lambda: glm_family("negative binomial", alpha=0.0), "above 0"),
    ],
)
def test_unknown_families_and_links_list_the_choices(call, said):
    with pytest.raises(ArgumentError, match=said):
        call()


@pytest.mark.parametrize(
    ("name", "link", "expected"),
    [
        ("OLS", None, "ols"),
        ("binomial", "probit", "probit"),
        ("gaussian", "identity", "ols"),
        ("Inverse Gaussian", "log", "inverse_gaussian(log)"),
        ("logit", "cloglog", "cloglog"),
    ],
)
def test_names_lead_to_families(name, link, expected):
    assert family_for(name, link).name == expected


def test_mean_is_the_weighted_mean():
    rng = np.random.default_rng(0)
    y, w = rng.normal(size=30), rng.uniform(size=30)
    rows = Rows(y=y, X=np.ones((30, 1)))
    assert fit(family_for("mean"), rows, w, ("mean",))[0] == pytest.approx(
        np.average(y, weights=w), rel=1e-14
    )


def central(function, at, width=1e-5):
    """Central differences of a vector function: (values, parameters)."""
    steps = width * np.eye(len(at))
    return np.column_stack([(function(at + s) - function(at - s)) / (2.0 * width) for s in steps])
