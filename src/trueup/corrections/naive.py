"""LLM labels only: what happens when they are taken for the truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trueup.corrections.base import Estimate, Problem
from trueup.errors import CorrectionError, FitError
from trueup.estimation.blocks import cluster_scores, mean_hessian, score_meat
from trueup.estimation.solve import fit
from trueup.formula.rows import Rows
from trueup.inference.sandwich import reference_df
from trueup.inference.variance import Influence
from trueup.study.design import Float

#: Printed in every summary of this correction.
WHAT_IT_IS = (
    "No correction: LLM labels are taken for human labels. The estimate is biased when the "
    "LLM's errors follow the variables of the formula, and the interval covers what the LLM "
    "would find, not what the coders would find."
)


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
        every = problem.frame.llm(annotator)
        if problem.frame.outcome_is_label and np.ptp(every.y) == 0.0:
            raise FitError(
                f"Annotator {annotator!r} gives every row the same outcome ({every.y[0]:g}), so "
                "that there is nothing to fit without human labels: check its column, or name "
                "another annotator in llm=."
            )
        kept, note = _kept(problem, annotator)
        a = design.weights
        if kept is not None:
            every = every.take(kept)
            a = None if a is None else a[kept]
        rows = family.prepare(every, a)
        where = f"all rows (labels of {annotator!r})"
        theta = fit(
            family, rows, a, problem.frame.terms, where=where, instead="use another annotator"
        )
        m = len(rows)
        scale = 1.0 / m if a is None else 1.0 / float(a.sum())
        inverse = np.asarray(np.linalg.inv(mean_hessian(family, theta, rows, a)), float)
        phi = _coded_influence(problem, theta, inverse, rows, kept, scale)
        p = len(theta)
        if design.cluster is not None:
            codes = design.cluster if kept is None else design.cluster[kept]
            size = int(design.cluster.max()) + 1
            Z = cluster_scores(family, theta, rows, a, codes, size) @ inverse.T * scale
            influence = Influence({"cluster": np.sqrt(size / (size - 1)) * Z})
            V = influence.covariance()
            df = reference_df(problem.vcov, influence.blocks["cluster"] ** 2, size - 1, p)
        else:
            influence = None
            V = inverse @ score_meat(family, theta, rows, a) @ inverse.T * scale**2
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


def _kept(problem: Problem, annotator: str) -> tuple[np.ndarray | None, tuple[str, ...]]:
    missing = problem.missing.get(annotator)
    if missing is None or not missing.any():
        return None, ()
    left_out = int(missing.sum())
    return np.flatnonzero(~missing), (
        f"{left_out} rows without a label of {annotator!r} are left out.",
    )


def _coded_influence(
    problem: Problem,
    theta: Float,
    inverse: Float,
    rows: Rows,
    kept: np.ndarray | None,
    scale: float,
) -> Float:
    """Return (n, p) influence of the coded rows, on the scale of a mean over all N rows."""
    design = problem.design
    position = design.coded
    present = np.ones(len(position), dtype=bool)
    if kept is not None:
        where = np.searchsorted(kept, position)
        where = np.minimum(where, len(kept) - 1)
        present = kept[where] == position
        position = where
    phi = problem.family.score(theta, rows.take(position)) @ inverse.T
    a = 1.0 if design.weights is None else design.weights[design.coded][:, None]
    return np.asarray(phi * a * present[:, None] * scale * design.n_rows)
