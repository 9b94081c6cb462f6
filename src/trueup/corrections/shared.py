"""Fits to LLM labels that all annotators of a problem share passes over the rows for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from trueup.corrections.base import Problem
from trueup.errors import CorrectionError
from trueup.estimation.collapse import Cells, collapse
from trueup.estimation.shared import fit_one, shareable, shared_fits, shared_moments
from trueup.formula.rows import Rows
from trueup.study.design import Float, SampleDesign

Reference = Literal["all", "uncoded"]

#: Fewer rows than this are fitted for each annotator by itself. That takes no time, and the last
#: bit of a number does not depend on which annotators are fitted together.
FEW_ROWS = 40_000


@dataclass(frozen=True, slots=True)
class Sums:
    """The fit to one annotator's labels of all rows, with sums over these rows."""

    theta: Float
    hessian: Float
    """(p, p) sum of minus the derivatives of the scores, weighted by a_i."""
    meat: Float
    """(p, p) sum of squared scores, weighted by a_i^2."""


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


def reference_weights(design: SampleDesign, reference: Reference) -> Float | None:
    """Return (N,) weights of the reference rows among all rows; None where all count alike."""
    if reference == "all":
        return design.weights
    outside = complement(design)
    a = outside if design.weights is None else outside * design.weights
    a[design.coded] = 0.0
    return a


def in_blocks(problem: Problem) -> bool:
    """Return whether the design matrix of all rows is too large to be held at once."""
    return not problem.frame.holds()


def coded_rows(problem: Problem, annotator: str) -> Rows:
    """Return the n coded rows under one annotator's labels."""
    frame = problem.frame
    labels = {v: frame.llm_labels(v, annotator) for v in frame.variables}
    return frame.rows(labels, problem.design.coded)


def reference_fit(problem: Problem, annotator: str, reference: Reference) -> Float | None:
    """Return an annotator's coefficients on the reference rows, from passes shared by all.

    None where such passes do not pay or do not solve the equation: a fit of its own does then.
    """
    others = _company(problem, annotator)
    if others is None:
        return None
    key = ("reference fits", others, reference)
    if key not in problem.cache:
        family, terms = problem.family, problem.frame.terms
        assert shareable(family)
        cells = _cells(problem, others, reference)
        if cells is not None:
            found = shared_fits(family, cells.blocks, cells.totals, terms)
        else:
            weights = reference_weights(problem.design, reference)
            found = shared_fits(family, problem.frame.blocks(others), weights, terms)
        problem.cache[key] = dict(zip(others, found, strict=True))
    return cast(Mapping[str, Float | None], problem.cache[key])[annotator]


def _cells(problem: Problem, annotators: tuple[str, ...], reference: Reference) -> Cells | None:
    """Return the distinct rows of all annotators, None where rows repeat too seldom."""
    key = ("cells", annotators, reference)
    if key not in problem.cache:
        weights = reference_weights(problem.design, reference)
        problem.cache[key] = collapse(problem.frame.blocks(annotators), weights)
    return cast(Cells | None, problem.cache[key])


def naive_sums(problem: Problem, annotator: str) -> Sums | None:
    """Return an annotator's fit to all rows with its sums; None as in :func:`reference_fit`."""
    others = _company(problem, annotator)
    theta = reference_fit(problem, annotator, "all")
    if others is None or theta is None or not shareable(problem.family):
        return None
    key = ("naive sums", others)
    if key not in problem.cache:
        fits = {a: reference_fit(problem, a, "all") for a in others}
        active = [k for k, a in enumerate(others) if fits[a] is not None]
        thetas = np.array([fits[others[k]] for k in active])
        blocks, a, counts = problem.frame.blocks(others), problem.design.weights, None
        cells = _cells(problem, others, "all")
        if cells is not None:
            blocks, a, counts = cells.blocks, cells.weights, cells.counts
        chosen = np.array(active)
        hessians, meats = shared_moments(problem.family, blocks, thetas, a, chosen, counts)
        problem.cache[key] = {
            others[k]: Sums(*parts)
            for k, *parts in zip(active, thetas, hessians, meats, strict=True)
        }
    return cast(Mapping[str, Sums], problem.cache[key])[annotator]


def own_sums(
    problem: Problem, annotator: str, weights: Float | None, where: str, instead: str
) -> Sums:
    """Return an annotator's fit to all rows by passes of its own, with weights of its own.

    Raises
    ------
    FitError
        As :func:`trueup.estimation.solve.fit` does.
    """
    family, terms = problem.family, problem.frame.terms
    assert shareable(family)
    blocks = problem.frame.blocks((annotator,))
    theta = fit_one(family, blocks, weights, terms, where=where, instead=instead)
    hessians, meats = shared_moments(family, blocks, theta[None], weights, np.zeros(1, int))
    return Sums(theta, hessians[0], meats[0])


def _company(problem: Problem, annotator: str) -> tuple[str, ...] | None:
    """Return the annotators to share passes with, None where each is better off alone."""
    others = problem.together or problem.annotators
    if annotator not in others or not shareable(problem.family):
        return None
    if in_blocks(problem):
        return others
    if problem.design.n_rows < FEW_ROWS:
        return None
    if len(others) == 1:
        return others if _cells(problem, others, "all") is not None else None
    # Where labels are covariates every annotator has a design of its own, which one pass makes.
    return others if problem.family.linear or not problem.frame.covariate_labels else None
