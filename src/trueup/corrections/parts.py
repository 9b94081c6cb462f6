"""The ordinary fits that every correction is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from trueup.corrections.base import Problem
from trueup.errors import CorrectionError
from trueup.estimation.blocks import cluster_scores
from trueup.estimation.rank import check_rank
from trueup.estimation.solve import firth_logit, fit, one_step
from trueup.formula.rows import Rows
from trueup.inference.sandwich import leverage_factor
from trueup.inference.variance import population_size
from trueup.study.design import Float, SampleDesign

#: What else to do where the fit to LLM labels does not exist.
WITHOUT_LLM_FIT = 'use a correction without an LLM fit (correction="dsl"), or another annotator'

HumanFit = Literal["ml", "one-step", "firth"]
Reference = Literal["all", "uncoded"]
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
        every = problem.frame.llm(annotator)
        source = f"labels of {annotator!r}"
        problem.cache[key] = machine_part(problem, every, reference, linearise, source)
    return cast(MachinePart, problem.cache[key])


def llm_fit(problem: Problem, annotator: str) -> Float:
    """Return the coefficients of the fit to all rows under one annotator's labels."""
    rows = problem.family.prepare(problem.frame.llm(annotator), problem.design.weights)
    where = f"all rows (labels of {annotator!r})"
    return fit(
        problem.family,
        rows,
        problem.design.weights,
        problem.frame.terms,
        where=where,
        instead=WITHOUT_LLM_FIT,
    )


def complement(design: SampleDesign) -> Float:
    """Return (N,) weights 1/(1 - pi) of rows as members of the uncoded part.

    Raises
    ------
    CorrectionError
        If the probability of some row is unknown, or 1.
    """
    if design.probability_all is None:
        raise CorrectionError(
            'reference="uncoded" needs the inclusion probability of every row: give a '
            'probability column without gaps, or use reference="all".'
        )
    if design.probability_all.max() >= 1.0:
        raise CorrectionError(
            'reference="uncoded" cannot be used where some row was certain to be coded '
            '(probability 1): use reference="all".'
        )
    return np.asarray(1.0 / (1.0 - design.probability_all))


def machine_part(
    problem: Problem,
    every: Rows,
    reference: Reference,
    linearise: Linearise = "coded",
    source: str = "predicted labels",
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
    """
    family, design, terms = problem.family, problem.design, problem.frame.terms
    w, a = design.coded_weights, design.weights
    coded = family.prepare(every.take(design.coded), w)
    where = f"the coded rows ({source})"
    check_rank(coded.X, terms, weights=w, where=where)
    gamma = fit(family, coded, w, terms, where=where, instead=WITHOUT_LLM_FIT)
    phi, bread = influence(problem, gamma, coded)
    outside = np.ones(0)
    if reference == "all":
        rows, weights = every, a
    else:
        rest = design.uncoded
        outside = complement(design)
        a = outside if a is None else a * outside
        rows, weights = every.take(rest), a[rest]
    rows = family.prepare(rows, weights)
    start = None if family.linear else gamma
    where = f"{'all' if reference == 'all' else 'the uncoded'} rows ({source})"
    gamma_reference = fit(family, rows, weights, terms, start, where=where, instead=WITHOUT_LLM_FIT)
    if linearise == "all":
        phi, bread = influence(problem, gamma_reference, coded)
    if reference == "uncoded":
        phi = phi * outside[design.coded][:, None]
    sums = None
    if design.cluster is not None:
        if reference == "uncoded":
            rows = family.prepare(every, a)
        n_clusters = int(design.cluster.max()) + 1
        raw = cluster_scores(family, gamma_reference, rows, a, design.cluster, n_clusters)
        sums = np.asarray(np.linalg.solve(bread, raw.T).T)
    return MachinePart(gamma, gamma_reference, phi, sums)
