"""LLM-only, human-only and corrected side by side, with stand-ins for the corrections."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from trueup.corrections.base import Estimate
from trueup.results import compare as module

from .conftest import TERMS, ols


def estimate_of(result, **more) -> Estimate:
    p = len(result.params)
    return Estimate(
        theta=result.params,
        vcov=result.cov_params(),
        df=np.full(p, result.df_resid),
        h=None,
        d=None,
        **more,
    )


class FakeNaive:
    def estimate(self, problem) -> Estimate:
        (annotator,) = problem.annotators
        rows = problem.frame.llm(annotator)
        return estimate_of(ols(rows.y, rows.X), warnings=(f"About {annotator}.",))


class FakeHuman:
    asked: tuple[str, ...] = ()

    def __init__(self, human_fit: str = "ml") -> None:
        type(self).asked = (*self.asked, human_fit)

    def estimate(self, problem) -> Estimate:
        rows = problem.frame.human()
        return estimate_of(ols(rows.y, rows.X), warnings=("Few rows.",))


V_BIAS = np.diag([0.04, 0.01, 0.09, 0.02]) + 0.002


def fake_bias_vcov(problem, naive, corrected):
    assert len(problem.annotators) == 1
    return V_BIAS


@pytest.fixture(autouse=True)
def fakes(monkeypatch):
    monkeypatch.setattr(module, "Naive", FakeNaive)
    monkeypatch.setattr(module, "Human", FakeHuman)
    monkeypatch.setattr(module, "bias_vcov", fake_bias_vcov)
    FakeHuman.asked = ()


@pytest.fixture
def corrected(make):
    base = make().fit.estimate
    return make(theta=base.theta + 0.05, vcov=base.vcov / 2)


def test_one_row_for_each_term_and_source(corrected):
    table = corrected.fit.compare().tidy()
    assert table["term"].tolist() == [t for t in TERMS for _ in range(3)]
    assert table["source"].tolist() == ["LLM-only", "human-only", "corrected"] * 4
    assert table.columns.tolist() == [
        "term",
        "source",
        "llm",
        "estimate",
        "std_error",
        "conf_low",
        "conf_high",
        "bias",
        "bias_std_error",
        "bias_p_value",
    ]


@pytest.mark.parametrize("level", [0.95, 0.5])
def test_estimates_and_intervals(corrected, level):
    table = corrected.fit.compare(level).tidy().set_index(["source", "term"])
    frame = corrected.frame
    llm = ols(frame.labels["gpt__p1"], frame.X)
    for name, result in (("LLM-only", llm), ("human-only", corrected.reference)):
        rows = table.loc[name].loc[list(TERMS)]
        np.testing.assert_allclose(rows["estimate"], result.params)
        np.testing.assert_allclose(rows["std_error"], result.bse)
        np.testing.assert_allclose(
            rows[["conf_low", "conf_high"]], result.conf_int(alpha=1 - level), rtol=1e-8
        )
    own = corrected.fit.tidy(level).set_index("term")
    np.testing.assert_allclose(
        table.loc["corrected"].loc[list(TERMS), "conf_low"], own["conf_low"], rtol=1e-12
    )


def test_bias_and_its_joint_test(corrected):
    comparison = corrected.fit.compare()
    frame = corrected.frame
    difference = ols(frame.labels["gpt__p1"], frame.X).params - corrected.fit.estimate.theta
    table = comparison.tidy()
    rows = table[table["source"] == "LLM-only"]
    np.testing.assert_allclose(rows["bias"], difference)
    se = np.sqrt(np.diag(V_BIAS))
    np.testing.assert_allclose(rows["bias_std_error"], se)
    np.testing.assert_allclose(rows["bias_p_value"], 2 * stats.norm.sf(np.abs(difference / se)))
    assert table.loc[table["source"] != "LLM-only", "bias"].isna().all()
    joint = comparison.glance().loc[0]
    expected = difference @ np.linalg.solve(V_BIAS, difference)
    assert joint["statistic"] == pytest.approx(expected, rel=1e-10)
    assert joint["df"] == 4
    assert joint["p_value"] == pytest.approx(stats.chi2.sf(expected, 4))
    assert joint["reason"] is None


def test_several_llms_are_compared_one_by_one(make):
    both = ("gpt__p1", "llama__p1")
    comparison = make(annotators=both).fit.compare()
    assert [s.llm for s in comparison.sources] == [*both, None, None]
    assert comparison.glance()["llm"].tolist() == list(both)
    table = comparison.tidy()
    assert table["source"].tolist() == ["LLM-only", "LLM-only", "human-only", "corrected"] * 4
    frame = make().frame
    for a in both:
        rows = table[table["llm"] == a]
        np.testing.assert_allclose(rows["estimate"], ols(frame.labels[a], frame.X).params)
    text = str(comparison)
    assert "LLM: gpt__p1" in text
    assert "LLM: llama__p1" in text


def test_an_uncorrected_fit_is_held_against_human_only(make):
    for name in ("naive", "human"):
        fit = make(correction=name).fit
        comparison = fit.compare()
        assert [s.name for s in comparison.sources] == ["LLM-only", "human-only"]
        assert comparison.reference == "human-only"
        index = ["naive", "human"].index(name)
        assert comparison.sources[index].estimate is fit.estimate
        assert "LLM-only minus human-only" in str(comparison)


def test_the_human_only_fit_handles_separation_as_the_fit_did(make):
    fit = make().fit

    class OneStep:
        name = "ptd"
        human_fit = "one-step"

    replace(fit, correction=OneStep()).compare()
    fit.compare()
    assert FakeHuman.asked == ("one-step", "ml")


def test_estimates_that_coincide_show_no_bias(make, monkeypatch):
    frame = make().frame
    same = ols(frame.labels["gpt__p1"], frame.X)
    # Rounding in the covariance and in the difference must not make a p-value.
    monkeypatch.setattr(module, "bias_vcov", lambda *_: np.eye(4) * 1e-32)
    comparison = make(theta=same.params + 1e-15).fit.compare()
    rows = comparison.tidy().query("source == 'LLM-only'")
    assert (rows["bias_p_value"] == 1.0).all()
    joint = comparison.glance().loc[0]
    assert "coincide" in joint["reason"]
    assert np.isnan(joint["p_value"])
    assert "coincide" in str(comparison)


def test_one_coefficient_that_coincides_leaves_the_others_tested(make, monkeypatch):
    frame = make().frame
    llm = ols(frame.labels["gpt__p1"], frame.X).params
    V = V_BIAS.copy()
    V[3], V[:, 3] = 0.0, 0.0
    monkeypatch.setattr(module, "bias_vcov", lambda *_: V)
    theta = make().fit.estimate.theta.copy()
    theta[3] = llm[3]
    joint = make(theta=theta).fit.compare().biases[0].joint
    difference = (llm - theta)[:3]
    assert joint.df_num == 3
    assert joint.statistic == pytest.approx(difference @ np.linalg.solve(V[:3, :3], difference))


def test_warnings_of_all_estimates_are_passed_on_once(make):
    fit = make(warnings=("Few rows.", "Mine.")).fit
    comparison = fit.compare()
    assert comparison.warnings == ("About gpt__p1.", "Few rows.", "Mine.")
    assert "! Mine." in str(comparison)


def test_text(corrected):
    text = str(corrected.fit.compare())
    assert max(map(len, text.splitlines())) <= 88
    found = text.splitlines()
    assert found[1].split() == ["LLM-only", "human-only", "corrected", "bias", "p-value"]
    at = next(i for i, line in enumerate(found) if line.startswith("x "))
    table = corrected.fit.compare().tidy().query("term == 'x'")
    estimates = [*table["estimate"], table["bias"].iloc[0], table["bias_p_value"].iloc[0]]
    np.testing.assert_allclose(list(map(float, found[at].split()[1:])), estimates, atol=6e-4)
    errors = [float(cell.strip("()")) for cell in found[at + 1].split()]
    expected = [*table["std_error"], table["bias_std_error"].iloc[0]]
    np.testing.assert_allclose(errors, expected, atol=6e-4)
    assert "chi2(4) = " in text
    assert repr(corrected.fit.compare()) == text


def test_html_escapes_what_comes_from_data(make):
    frame = make().frame
    frame = replace(
        frame,
        terms=("Intercept", "x", "C(s)[T.<b>&]", "z"),
        labels={"<script>": frame.labels["gpt__p1"]},
    )
    page = make(frame=frame, annotators=("<script>",)).fit.compare()._repr_html_()
    assert "<script>" not in page
    assert "C(s)[T.&lt;b&gt;&amp;]" in page
