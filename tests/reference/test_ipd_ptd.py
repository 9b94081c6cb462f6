"""R ipd 0.4.1.9000 (chen, pspa) and the predict-then-debias software.

Tolerances: points and chen's standard errors to 1e-6; the rest is said at each test.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import trueup as tu

DATA = Path(__file__).parent / "data"
IPD = json.loads((DATA / "ipd" / "ipd_srs.json").read_text())["results"]
PTD = json.loads((DATA / "two_phase" / "ptd_refs.json").read_text())["results"]


def study(name, variables, sampling=None):
    rows = pd.read_csv(DATA / "two_phase" / f"{name}.csv").drop(columns=["d_true", "yb_true"])
    return tu.Study(
        rows,
        human={v: f"{v}_human" for v in variables},
        llm={v: {"llm": f"{v}_llm"} for v in variables},
        sampling=sampling,
    )


@pytest.mark.parametrize(("kind", "family"), [("ols", tu.ols), ("logistic", tu.logit)])
def test_chen(kind, family):
    # Its variance is that of independent draws with one probability (divisor n, uncentred).
    reference = IPD[f"chen_{kind}"]
    sampling = tu.Sampling(probability="pi", method="poisson")
    chen = tu.PTD(tuning="full", linearise="all")
    result = family("yb ~ x1 + x2", study("srs", ["yb"], sampling), correction=chen, vcov="HC0")
    np.testing.assert_allclose(result.coef(), reference["coef"], rtol=1e-6)
    np.testing.assert_allclose(result.se(), reference["se"], rtol=1e-6)


@pytest.mark.parametrize(("kind", "family"), [("ols", tu.ols), ("logistic", tu.logit)])
def test_pspa(kind, family):
    # Its standard error takes the variance of LLM scores from uncoded rows and its own bread: 4%.
    reference = IPD[f"pspa_{kind}"]
    result = family("yb ~ x1 + x2", study("srs", ["yb"]), correction="pspa", vcov="HC0")
    np.testing.assert_allclose(result.coef(), reference["coef"], rtol=1e-6)
    np.testing.assert_allclose(result.se(), reference["se"], rtol=0.04)


MODELS = {
    "linear_cov": (tu.ols, "y ~ d + x1 + x2", ["d"]),
    "linear_out": (tu.ols, "yb ~ x1 + x2", ["yb"]),
    "logit_out": (tu.logit, "yb ~ x1 + x2", ["yb"]),
    "logit_both": (tu.logit, "yb ~ d + x1 + x2", ["yb", "d"]),
}


def ptd(name, model, tuning):
    family, formula, variables = MODELS[model]
    sampling = None if name == "srs" else tu.Sampling(probability="pi", method="poisson")
    return family(
        formula,
        study(name, variables, sampling),
        correction=tu.PTD(tuning=tuning, reference="uncoded"),
        vcov="HC0",
    )


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["srs", "twophase"])
def test_ptd_identity_point(name, model):
    reference = PTD[name][model]["CLTBased_None"]
    np.testing.assert_allclose(ptd(name, model, "identity").coef(), reference["coef"], rtol=1e-6)


@pytest.mark.parametrize(("tuning", "key"), [("full", "Optimal"), ("diagonal", "Diagonal")])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["srs", "twophase"])
def test_ptd_tuned(name, model, tuning, key):
    # Its Omega takes the variance of the uncoded fit from uncoded rows, ours from coded rows:
    # equal to first order. A tenth of a standard error, and 6% in the standard error.
    reference = PTD[name][model][f"CLTBased_{key}"]
    result = ptd(name, model, tuning)
    gap = np.abs(result.coef() - reference["coef"]) / reference["se"]
    assert gap.max() < 0.1
    np.testing.assert_allclose(result.se(), reference["se"], rtol=0.06)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["srs", "twophase"])
def test_ptd_interval_against_its_bootstrap(name, model):
    # Percentile bootstrap of its package: ends agree to Monte Carlo error, 15% of the width.
    reference = PTD[name][model]["pkg_conv_Optimal"]
    ends = ptd(name, model, "full").confint()
    width = np.array(reference["hi"]) - np.array(reference["lo"])
    assert (np.abs(ends["conf_low"] - reference["lo"]) / width).max() < 0.15
    assert (np.abs(ends["conf_high"] - reference["hi"]) / width).max() < 0.15
