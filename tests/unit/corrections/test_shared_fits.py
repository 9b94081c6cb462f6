"""Corrections give the same numbers whether annotators share passes over the rows or not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import trueup as tu
from support.made import poisson, study, texts
from trueup.corrections import shared
from trueup.corrections.problem import build_problem
from trueup.errors import CollinearityError, FitError, FormulaError, SeparationError
from trueup.families.registry import family_for
from trueup.formula import blocks as formula_blocks
from trueup.inference.vcov import as_vcov

LLMS = ("f1", "f2")
CORRECTIONS = {
    "naive": tu.Naive(),
    "ptd": tu.PTD(),
    "ptd all": tu.PTD(linearise="all"),
    "ptd uncoded": tu.PTD(reference="uncoded"),
    "ptd one-step": tu.PTD(human_fit="one-step"),
    "ppi": tu.PPI(form="difference"),
}
CASES = [("ols", "v ~ x + t"), ("logit", "v ~ x + t"), ("ols", "z ~ v + x"), ("logit", "t ~ v + x")]


@pytest.fixture(autouse=True)
def few_rows_suffice(monkeypatch):
    monkeypatch.setattr(shared, "FEW_ROWS", 0)


def made(family, formula, **options):
    """Return a function from annotators to a problem."""
    outcome = "binary" if family == "logit" and formula[0] == "v" else "numeric"
    data = texts(outcome=outcome, draw="poisson", clusters=options.pop("clusters", None))
    gaps = options.pop("gaps", False)
    if gaps:
        data.loc[::17, "f2"] = np.nan
    data["weight"] = np.random.default_rng(4).uniform(0.5, 2.0, len(data))
    found = study(data, llm=LLMS, sampling=poisson(), **options)
    return lambda llms: build_problem(
        formula, found, family_for(family), llms, as_vcov("HC1"), seed=1
    )


def assert_same(found, wanted):
    np.testing.assert_allclose(found.theta, wanted.theta, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.vcov, wanted.vcov, rtol=1e-8, atol=1e-14)
    np.testing.assert_allclose(found.df, wanted.df, rtol=1e-8)


@pytest.mark.parametrize("options", [{}, {"weights": "weight"}, {"clusters": 40, "cluster": "c"}])
@pytest.mark.parametrize("name", CORRECTIONS)
@pytest.mark.parametrize(("family", "formula"), CASES)
def test_annotators_together_or_alone(family, formula, name, options, monkeypatch):
    problem_of = made(family, formula, **options)
    together = problem_of(LLMS)
    assert together.together == LLMS
    wanted = [CORRECTIONS[name].estimate(problem_of((a,))) for a in LLMS]
    found = [CORRECTIONS[name].estimate(replace(together, annotators=(a,))) for a in LLMS]
    for ours, theirs in zip(found, wanted, strict=True):
        assert_same(ours, theirs)
    # The same with a design matrix that is never held for all rows.
    monkeypatch.setattr(formula_blocks, "MOST_BYTES", 0)
    for a, theirs in zip(LLMS, wanted, strict=True):
        alone = problem_of((a,))
        assert not alone.frame.holds()
        assert_same(CORRECTIONS[name].estimate(alone), theirs)


@pytest.mark.parametrize("clusters", [{}, {"clusters": 40, "cluster": "c"}])
@pytest.mark.parametrize("family", ["ols", "logit"])
def test_rows_without_a_label_are_left_out_in_blocks_too(family, clusters, monkeypatch):
    problem_of = made(family, "v ~ x + t", gaps=True, **clusters)
    wanted = tu.Naive().estimate(problem_of(("f2",)))
    together = replace(problem_of(LLMS), annotators=("f2",))
    assert_same(tu.Naive().estimate(together), wanted)
    monkeypatch.setattr(formula_blocks, "MOST_BYTES", 0)
    found = tu.Naive().estimate(problem_of(("f2",)))
    assert_same(found, wanted)
    assert found.notes == wanted.notes
    np.testing.assert_allclose(found.extra["phi"], wanted.extra["phi"], rtol=1e-8, atol=1e-12)


def test_one_request_fits_all_annotators(monkeypatch):
    calls = []
    true = shared.shared_fits
    monkeypatch.setattr(shared, "shared_fits", lambda *a: calls.append(1) or true(*a))
    problem = made("logit", "v ~ x + t")(LLMS)
    for a in LLMS:
        for correction in (tu.Naive(), tu.PTD(), tu.PPI(form="difference")):
            correction.estimate(replace(problem, annotators=(a,)))
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["naive", "ptd", "ppi"])
@pytest.mark.parametrize("family", ["ols", "logit"])
def test_rows_that_repeat_are_collapsed(family, name, monkeypatch):
    data = texts(N=800, outcome="binary")
    data["x"] = data["x"].round()
    found = study(data, llm=LLMS)

    def estimates(few_rows):
        monkeypatch.setattr(shared, "FEW_ROWS", few_rows)
        problem = build_problem("v ~ x + t", found, family_for(family), LLMS, as_vcov("HC1"), 1)
        every = [CORRECTIONS[name].estimate(replace(problem, annotators=(a,))) for a in LLMS]
        return every, [value for key, value in problem.cache.items() if key[0] == "cells"]

    (ours, cells), (theirs, none) = estimates(0), estimates(10_000)
    assert none == []
    assert cells[0].blocks.n_rows < 80
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one.theta, other.theta, rtol=1e-10)
        np.testing.assert_allclose(one.vcov, other.vcov, rtol=1e-9, atol=1e-16)


def test_separated_labels_are_explained_in_either_way(monkeypatch):
    data = texts(outcome="binary")
    data["f2"] = (data["x"] > 0).astype(float)
    found = study(data, llm=LLMS)

    def estimate(llms):
        problem = build_problem("v ~ x", found, family_for("logit"), llms, as_vcov("HC1"), 1)
        return tu.Naive().estimate(replace(problem, annotators=(llms[-1],)))

    estimate(("f1",))
    for _ in range(2):
        for llms in (("f2",), LLMS):
            with pytest.raises(SeparationError, match=r"labels of 'f2'.*predicted perfectly.*'x'"):
                estimate(llms)
        monkeypatch.setattr(formula_blocks, "MOST_BYTES", 0)


def test_what_needs_all_rows_at_once_is_refused_for_a_large_design(monkeypatch):
    problem_of = made("logit", "v ~ x + t")
    monkeypatch.setattr(formula_blocks, "MOST_BYTES", 0)
    with pytest.raises(FormulaError, match=r"would take .* GB at once.*tu.PTD"):
        tu.PPI(form="loss").estimate(problem_of(("f1",)))


def test_uncoded_levels_are_found_in_a_large_design_too(monkeypatch):
    data = texts()
    data["g"] = np.where(data["v_human"].notna(), 0.0, (data["x"] > 1).astype(float))
    found = study(data)
    monkeypatch.setattr(formula_blocks, "MOST_BYTES", 0)
    with pytest.raises(CollinearityError, match=r"'g' is 0 in every coded row, but not in \d+"):
        build_problem("v ~ x + g", found, family_for("ols"), ("f1",), as_vcov("HC1"), 1)


def test_a_constant_annotator_fails_alone():
    data = texts()
    data["f2"] = 1.0
    problem = build_problem(
        "v ~ x", study(data, llm=LLMS), family_for("ols"), LLMS, as_vcov("HC1"), 1
    )
    with pytest.raises(FitError, match="'f2' gives every row the same outcome"):
        tu.Naive().estimate(replace(problem, annotators=("f2",)))
    assert np.isfinite(tu.Naive().estimate(replace(problem, annotators=("f1",))).theta).all()
