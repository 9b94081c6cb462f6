"""What the results room shows of real fits."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from trueup.api import absorb, iv, logit, ols
from trueup.errors import ArgumentError
from trueup.study.study import Study

N, N_CODED = 1500, 300


@pytest.fixture(scope="module")
def study() -> Study:
    rng = np.random.default_rng(3)
    z = rng.normal(size=N)
    x = 0.6 * z + rng.normal(size=N)
    y = (rng.random(N) < 1 / (1 + np.exp(-0.2 - 0.6 * x))).astype(float)
    data = pd.DataFrame({"x": x, "z": z, "school": rng.integers(0, 8, N), "perfect": y})
    wrong = rng.random(N) < np.where(x > 0, 0.35, 0.02)
    data["gpt"] = np.where(wrong, 1 - y, y)
    data.loc[:4, "gpt"] = np.nan
    data["coder"] = np.where(np.isin(np.arange(N), rng.choice(N, N_CODED, False)), y, np.nan)
    data["long"] = rng.choice(["a, b = c", "d:e"], N)
    return Study(data, human={"y": "coder"}, llm={"y": ["gpt", "perfect"]})


def test_the_columns_of_a_comparison_are_fits_of_their_own(study):
    table = logit("y ~ x", study, llm="gpt").compare().tidy().set_index("source")
    for source, correction in (("LLM-only", "naive"), ("human-only", "human")):
        own = logit("y ~ x", study, llm="gpt", correction=correction).tidy()
        for column in ("estimate", "std_error", "conf_low", "conf_high"):
            np.testing.assert_allclose(table.loc[source, column], own[column], rtol=1e-10)


def test_a_perfect_llm_has_no_bias(study):
    comparison = ols("y ~ x", study, llm="perfect").compare()
    rows = comparison.tidy().query("source == 'LLM-only'")
    np.testing.assert_allclose(rows["bias"], 0.0, atol=1e-8)
    assert (rows["bias_p_value"] > 0.99).all()


def test_a_biased_llm_is_found_out(study):
    assert ols("y ~ x", study, llm="gpt").compare().glance().loc[0, "p_value"] < 1e-3


@pytest.mark.parametrize("correction", ["auto", "naive", "human", "ppi++", "dsl"])
def test_every_correction_can_be_shown(study, correction):
    fit = logit("y ~ x * long", study, llm="gpt", correction=correction, seed=1)
    for text in (str(fit.summary(stars=True)), str(fit.compare())):
        assert max(map(len, text.splitlines())) <= 88
    assert len(fit.glance()) == 1
    augmented = fit.augment()
    assert augmented.shape[0] == N
    assert augmented[".resid"].notna().sum() == N_CODED
    term = next(t for t in fit.terms if t.startswith("long"))
    assert fit.wald_test(f"{term} = 0").p_value == pytest.approx(
        fit.tidy().set_index("term").loc[term, "p_value"], rel=1e-8
    )
    np.testing.assert_allclose(fit.predict()["estimate"], augmented[".fitted"], rtol=1e-12)


def test_a_labelled_covariate_is_predicted_by_name(study):
    fit = ols("x ~ y + z", study, llm="gpt")
    table = fit.predict({"y": [0, 1], "z": [0.0, 0.0]}, interval="confidence")
    assert table["estimate"].diff()[1] == pytest.approx(fit.coef()["y"])
    assert table["std_error"][0] == pytest.approx(fit.se()["Intercept"])


def test_absorbed_effects_and_instruments(study):
    fit = absorb("y ~ x | school", study, llm="gpt")
    rest = fit.augment().query("coded")
    assert abs(rest[".resid"].sum()) < 1e-8
    with pytest.raises(ArgumentError, match="absorbed"):
        fit.predict()
    fit = iv("y ~ 1 + [x ~ z]", study, llm="gpt")
    table = fit.predict({"x": [1.0], "z": [0.0]})
    assert table["estimate"][0] == pytest.approx(fit.coef().sum())


def test_importing_the_room_loads_no_heavy_library():
    code = (
        "import sys, trueup.results\n"
        "print([m for m in ('scipy.stats', 'statsmodels', 'matplotlib') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
