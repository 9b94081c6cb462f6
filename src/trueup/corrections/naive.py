"""LLM labels only: what happens when they are taken for the truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trueup.corrections.base import Estimate, Problem
from trueup.corrections.shared import coded_rows, in_blocks, naive_sums, own_sums
from trueup.errors import CorrectionError, FitError
from trueup.estimation.blocks import Blocked, cluster_scores, mean_hessian, score_meat
from trueup.estimation.shared import shareable
from trueup.estimation.solve import fit
from trueup.formula.rows import OneOf, Rows
from trueup.inference.sandwich import reference_df
from trueup.inference.variance import Influence
from trueup.study.design import Float, Int

#: Printed in every summary of this correction.
WHAT_IT_IS = (
    "No correction: LLM labels are taken for human labels. The estimate is biased when the "
    "LLM's errors follow the variables of the formula, and the interval covers what the LLM "
    "would find, not what the coders would find."
)
INSTEAD = "use another annotator"


@dataclass(frozen=True, slots=True)
class Naive:
    r"""Fit all rows under one LLM's labels, and do not correct.

    Solves :math:`\sum_N a_i\psi(\gamma; F_i) = 0`. Rows whose LLM label is missing are left out.

    Examples
    --------
    >>> import trueup as tu
    >>> tu.Naive().name
    'naive'
    """

    @property
    def name(self) -> str:
        """Return ``"naive"``."""
        return "naive"

    def estimate(self, problem: Problem) -> Estimate:
        """Return the fit to LLM labels.

        Raises
        ------
        CorrectionError
            If several annotators are given.
        """
        if len(problem.annotators) != 1:
            raise CorrectionError(
                'correction="naive" takes one LLM at a time: name it in llm=, or fit each and '
                "compare."
            )
        annotator = problem.annotators[0]
        family, design = problem.family, problem.design
        if problem.frame.outcome_is_label:
            y = problem.frame.llm_outcome(annotator)
            if np.ptp(y) == 0.0:
                raise FitError(
                    f"Annotator {annotator!r} gives every row the same outcome ({y[0]:g}), so "
                    "that there is nothing to fit without human labels: check its column, or "
                    "name another annotator in llm=."
                )
        kept, note = _kept(problem, annotator)
        fitted = _fitted(problem, annotator, kept)
        theta, inverse, scale, m = fitted.theta, fitted.inverse, fitted.scale, fitted.n_rows
        phi = family.score(theta, fitted.coded) @ inverse.T * _coded_share(problem, kept, scale)
        p = len(theta)
        if design.cluster is not None:
            size = int(design.cluster.max()) + 1
            codes = design.cluster if fitted.kept is None else design.cluster[fitted.kept]
            sums = cluster_scores(family, theta, fitted.rows, fitted.weights, codes, size)
            Z = sums @ inverse.T * scale
            influence = Influence({"cluster": np.sqrt(size / (size - 1)) * Z})
            V = influence.covariance()
            df = reference_df(problem.vcov, influence.blocks["cluster"] ** 2, size - 1, p)
        else:
            influence = None
            meat = fitted.meat
            if meat is None:
                meat = score_meat(family, theta, fitted.rows, fitted.weights)
            V = inverse @ meat @ inverse.T * scale**2
            df = np.full(p, np.inf) if problem.vcov.reference == "normal" else np.full(p, m - p)
        return Estimate(
            theta=theta,
            vcov=V,
            df=df.astype(float),
            h=None,
            d=None,
            notes=(WHAT_IT_IS, *note),
            influence=influence,
            extra={"phi": phi, "row_inverse": inverse * scale},
        )


def _kept(problem: Problem, annotator: str) -> tuple[Int | None, tuple[str, ...]]:
    missing = problem.missing.get(annotator)
    if missing is None or not missing.any():
        return None, ()
    left_out = int(missing.sum())
    return np.flatnonzero(~missing), (
        f"{left_out} rows without a label of {annotator!r} are left out.",
    )


@dataclass(frozen=True, slots=True)
class _Fitted:
    """The fit to one annotator's labels, and the rows it was made on."""

    theta: Float
    inverse: Float
    """(p, p) inverse of the mean Hessian."""
    scale: float
    """One over the sum of the weights."""
    n_rows: int
    coded: Rows
    """The n coded rows, prepared."""
    rows: Blocked
    weights: Float | None
    kept: Int | None
    """Positions of ``rows``; None for all."""
    meat: Float | None
    """(p, p) sum of squared scores, where it is known already."""


def _fitted(problem: Problem, annotator: str, kept: Int | None) -> _Fitted:
    """Fit all rows that have a label: in passes shared with other annotators where that pays."""
    if in_blocks(problem) and shareable(problem.family):
        return _fitted_in_blocks(problem, annotator, kept)
    family, design = problem.family, problem.design
    every, a = problem.frame.llm(annotator), design.weights
    sums = None if kept is not None else naive_sums(problem, annotator)
    if sums is not None:
        scale = 1.0 / (design.n_rows if a is None else float(a.sum()))
        inverse = np.asarray(np.linalg.inv(sums.hessian * scale), float)
        coded = every.take(design.coded)
        return _Fitted(sums.theta, inverse, scale, design.n_rows, coded, every, a, None, sums.meat)
    if kept is not None:
        every = every.take(kept)
        a = None if a is None else a[kept]
    rows = family.prepare(every, a)
    theta = fit(family, rows, a, problem.frame.terms, where=_where(annotator), instead=INSTEAD)
    m = len(rows)
    scale = 1.0 / m if a is None else 1.0 / float(a.sum())
    inverse = np.asarray(np.linalg.inv(mean_hessian(family, theta, rows, a)), float)
    position = design.coded
    if kept is not None:
        position = np.minimum(np.searchsorted(kept, position), m - 1)
    return _Fitted(theta, inverse, scale, m, rows.take(position), rows, a, kept, None)


def _fitted_in_blocks(problem: Problem, annotator: str, kept: Int | None) -> _Fitted:
    """Fit without the design matrix of all rows; rows without a label have weight zero."""
    design = problem.design
    a, m = design.weights, design.n_rows
    sums = None if kept is not None else naive_sums(problem, annotator)
    if kept is not None:
        a, m = np.zeros(m), len(kept)
        a[kept] = 1.0 if design.weights is None else design.weights[kept]
    if sums is None:
        sums = own_sums(problem, annotator, a, _where(annotator), INSTEAD)
    scale = 1.0 / (m if a is None else float(a.sum()))
    inverse = np.asarray(np.linalg.inv(sums.hessian * scale), float)
    rows = OneOf(problem.frame.blocks((annotator,)), 0)
    coded = coded_rows(problem, annotator)
    return _Fitted(sums.theta, inverse, scale, m, coded, rows, a, None, sums.meat)


def _where(annotator: str) -> str:
    return f"all rows (labels of {annotator!r})"


def _coded_share(problem: Problem, kept: Int | None, scale: float) -> Float:
    """Return (n, 1) factors that put scores of coded rows on the scale of a mean over N rows."""
    design = problem.design
    share = np.full(design.n_coded, scale * design.n_rows)
    if design.weights is not None:
        share *= design.weights[design.coded]
    if kept is not None:
        share *= np.isin(design.coded, kept)
    return share[:, None]
