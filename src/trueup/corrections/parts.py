"""The ordinary fits that every correction is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from trueup.corrections.base import Problem
from trueup.corrections.shared import (
    Reference,
    coded_rows,
    complement,
    in_blocks,
    reference_fit,
    reference_weights,
)
from trueup.errors import CorrectionError
from trueup.estimation.blocks import Blocked, cluster_scores
from trueup.estimation.rank import check_rank
from trueup.estimation.shared import fit_one, shareable
from trueup.estimation.solve import firth_logit, fit, one_step
from trueup.formula.rows import OneOf, Rows
from trueup.inference.sandwich import leverage_factor
from trueup.inference.variance import population_size
from trueup.study.design import Float, SampleDesign

#: What else to do where the fit to LLM labels does not exist.
WITHOUT_LLM_FIT = 'use a correction without an LLM fit (correction="dsl"), or another annotator'

HumanFit = Literal["ml", "one-step", "firth"]
Linearise = Literal["coded", "all"]


@dataclass(frozen=True, slots=True)
class HumanPart:
    """The weighted fit to the coded rows under human labels."""

    theta: Float
    h: Float
    """(n, p) influence on the coded rows."""
    leverage: Float
    """(n,) hat values of the weighted fit."""
    bread: Float
    """(p, p) bread A, mean of minus the derivative of the score."""
    method: HumanFit = "ml"


@dataclass(frozen=True, slots=True)
class MachinePart:
    """The two fits under LLM labels: on the coded rows and on the reference rows."""

    gamma_coded: Float
    gamma_reference: Float
    phi: Float
    """(n, p) influence of the control gamma_reference - gamma_coded on the coded rows."""
    cluster_sums: Float | None
    """(G, p) sums over all rows of each cluster of the same influence."""


def coded_analysis_weights(design: SampleDesign) -> Float:
    """Return (n, 1) analysis weights of the coded rows."""
    a = design.weights
    return np.ones((design.n_coded, 1)) if a is None else a[design.coded][:, None]


def influence(problem: Problem, theta: Float, rows: Rows) -> tuple[Float, Float]:
    """Return the (n, p) influence on prepared coded rows and the (p, p) bread, at theta."""
    design = problem.design
    bread = problem.family.hessian_sum(theta, rows, design.coded_weights) / population_size(design)
    score = problem.family.score(theta, rows) * coded_analysis_weights(design)
    return np.asarray(np.linalg.solve(bread, score.T).T), bread


def human_part(problem: Problem, method: HumanFit = "ml") -> HumanPart:
    """Return the fit of the coded rows, computed once for all corrections of a problem."""
    key = ("human", method, problem.annotators[0] if method == "one-step" else "")
    if key not in problem.cache:
        problem.cache[key] = _human_part(problem, method)
    return cast(HumanPart, problem.cache[key])


def _human_part(problem: Problem, method: HumanFit) -> HumanPart:
    """Fit the coded rows under human labels, weighted by 1/pi.

    Parameters
    ----------
    problem : Problem
    method : {"ml", "one-step", "firth"}
        ``"one-step"``: one Newton step on the human score from the fit to all LLM labels;
        ``"firth"``: penalised logit. Both exist where the coded rows are separated.
    """
    family, design, terms = problem.family, problem.design, problem.frame.terms
    w = design.coded_weights
    rows = family.prepare(problem.frame.human(), w)
    check_rank(rows.X, terms, weights=w, where="the coded rows (human labels)")
    if method == "ml":
        theta = fit(family, rows, w, terms, where="the coded rows (human labels)")
    elif method == "firth":
        if family.name != "logit":
            raise CorrectionError('human_fit="firth" is for family logit only; use "one-step".')
        theta = firth_logit(rows, w)
    else:
        theta = one_step(family, rows, w, llm_fit(problem, problem.annotators[0]))
    h, bread = influence(problem, theta, rows)
    return HumanPart(theta, h, family.leverage(theta, rows, w), bread, method)


def human_factor(problem: Problem, human: HumanPart) -> Float:
    """Return the (n, 1) leverage adjustment that the problem asks for."""
    return leverage_factor(human.leverage, problem.vcov.hc, *human.h.shape)


def llm_part(
    problem: Problem, annotator: str, reference: Reference, linearise: Linearise = "coded"
) -> MachinePart:
    """Return the fits under one annotator's labels, computed once for all corrections."""
    key = ("llm", annotator, reference, linearise)
    if key not in problem.cache:
        source = f"labels of {annotator!r}"
        known = reference_fit(problem, annotator, reference)
        if in_blocks(problem):
            part = _part_in_blocks(problem, annotator, reference, linearise, source, known)
        else:
            every = problem.frame.llm(annotator)
            part = machine_part(problem, every, reference, linearise, source, known)
        problem.cache[key] = part
    return cast(MachinePart, problem.cache[key])


def llm_fit(problem: Problem, annotator: str) -> Float:
    """Return the coefficients of the fit to all rows under one annotator's labels."""
    known = reference_fit(problem, annotator, "all")
    if known is not None:
        return known
    family, a, terms = problem.family, problem.design.weights, problem.frame.terms
    where = f"all rows (labels of {annotator!r})"
    if in_blocks(problem) and shareable(family):
        blocks = problem.frame.blocks((annotator,))
        return fit_one(family, blocks, a, terms, where=where, instead=WITHOUT_LLM_FIT)
    rows = family.prepare(problem.frame.llm(annotator), a)
    return fit(family, rows, a, terms, where=where, instead=WITHOUT_LLM_FIT)


@dataclass(frozen=True, slots=True)
class _CodedPart:
    """The fit to the coded rows under LLM labels."""

    rows: Rows
    gamma: Float
    phi: Float
    bread: Float


def _coded_part(problem: Problem, rows: Rows, source: str) -> _CodedPart:
    family, terms, w = problem.family, problem.frame.terms, problem.design.coded_weights
    coded = family.prepare(rows, w)
    where = f"the coded rows ({source})"
    check_rank(coded.X, terms, weights=w, where=where)
    gamma = fit(family, coded, w, terms, where=where, instead=WITHOUT_LLM_FIT)
    return _CodedPart(coded, gamma, *influence(problem, gamma, coded))


def _part_in_blocks(
    problem: Problem,
    annotator: str,
    reference: Reference,
    linearise: Linearise,
    source: str,
    known: Float | None,
) -> MachinePart:
    """Return the fits under one annotator's labels, never holding the design of all rows."""
    family, design, terms = problem.family, problem.design, problem.frame.terms
    if not shareable(family):
        problem.frame.llm(annotator)  # says that the design is too large
    assert shareable(family)
    coded = _coded_part(problem, coded_rows(problem, annotator), source)
    a = reference_weights(design, reference)
    blocks = problem.frame.blocks((annotator,))
    where = f"{'all' if reference == 'all' else 'the uncoded'} rows ({source})"
    gamma = known
    if gamma is None:
        gamma = fit_one(family, blocks, a, terms, where=where, instead=WITHOUT_LLM_FIT)
    return _finished(problem, coded, gamma, OneOf(blocks, 0), reference, linearise)


def _finished(
    problem: Problem,
    coded: _CodedPart,
    gamma: Float,
    every: Blocked,
    reference: Reference,
    linearise: Linearise,
) -> MachinePart:
    """Return the two fits with their influence, and with its sums within clusters."""
    family, design = problem.family, problem.design
    phi, bread = coded.phi, coded.bread
    if linearise == "all":
        phi, bread = influence(problem, gamma, coded.rows)
    a = design.weights
    if reference == "uncoded":
        outside = complement(design)
        phi = phi * outside[design.coded][:, None]
        a = outside if a is None else a * outside
    sums = None
    if design.cluster is not None:
        if isinstance(every, Rows) and reference == "uncoded":
            every = family.prepare(every, a)
        n_clusters = int(design.cluster.max()) + 1
        raw = cluster_scores(family, gamma, every, a, design.cluster, n_clusters)
        sums = np.asarray(np.linalg.solve(bread, raw.T).T)
    return MachinePart(coded.gamma, gamma, phi, sums)


def machine_part(
    problem: Problem,
    every: Rows,
    reference: Reference,
    linearise: Linearise = "coded",
    source: str = "predicted labels",
    known: Float | None = None,
) -> MachinePart:
    """Fit the coded rows and the reference rows under one set of LLM labels.

    Parameters
    ----------
    problem : Problem
    every : Rows
        All N rows under the LLM labels.
    reference : {"all", "uncoded"}
        The rows that the coded ones are compared with.
    linearise : {"coded", "all"}
        Where the influence of the LLM fit is evaluated: at its coefficients on the coded rows,
        or at those on the reference rows.
    source : str
        How messages call the labels.
    known : (p,) array, optional
        The coefficients on the reference rows, where they have been computed already.
    """
    family, design, terms = problem.family, problem.design, problem.frame.terms
    coded = _coded_part(problem, every.take(design.coded), source)
    weights = design.weights
    rows = every
    if reference == "uncoded":
        rest = design.uncoded
        outside = complement(design)
        weights = (outside if weights is None else weights * outside)[rest]
        rows = every.take(rest)
    gamma = known
    if gamma is None or design.cluster is not None:
        rows = family.prepare(rows, weights)
    if gamma is None:
        start = None if family.linear else coded.gamma
        where = f"{'all' if reference == 'all' else 'the uncoded'} rows ({source})"
        gamma = fit(family, rows, weights, terms, start, where=where, instead=WITHOUT_LLM_FIT)
    whole = rows if reference == "all" else every
    return _finished(problem, coded, gamma, whole, reference, linearise)
