"""Fitted means, with delta-method intervals, on the study's rows or on new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import numpy as np
import pandas as pd

from trueup.errors import ArgumentError
from trueup.families.base import Family
from trueup.formula.rows import BLOCK_ROWS, Rows
from trueup.results.tidy import check_level, quantiles
from trueup.study.design import Float

if TYPE_CHECKING:
    from trueup.results.fit import Fit

Interval = Literal["confidence"]


class _Predictable(Protocol):
    def new_rows(self, data: Any) -> Float: ...


def predict(
    fit: Fit,
    newdata: Any | None = None,
    interval: Interval | None = None,
    level: float | None = None,
) -> pd.DataFrame:
    """Return fitted means (see :meth:`Fit.predict`)."""
    level = check_level(fit.level if level is None else level)
    if interval not in (None, "confidence"):
        raise ArgumentError(
            f'interval={interval!r} is unknown: use "confidence" (for the mean), or None.'
        )
    X = _study_rows(fit) if newdata is None else _new_rows(fit, newdata)
    family, e = fit.problem.family, fit.estimate
    mean = family.mean(e.theta, X)
    out = pd.DataFrame({"estimate": mean})
    if interval is None:
        return out
    se = delta_errors(family, e.theta, X, e.vcov)
    half = float(quantiles(level, e.df.min(keepdims=True))[0]) * se
    return out.assign(std_error=se, conf_low=mean - half, conf_high=mean + half)


def delta_errors(family: Family, theta: Float, X: Float, vcov: Float) -> Float:
    """Return (m,) standard errors of the means at X, without the (m, p) array of gradients."""
    out = np.empty(len(X))
    for start in range(0, len(X), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        gradient = family.mean_gradient(theta, X[part])
        out[part] = np.einsum("ij,jk,ik->i", gradient, vcov, gradient, optimize=True)
    return np.sqrt(np.maximum(out, 0.0))


def fitted(family: Family, theta: Float, rows: Rows, weights: Float | None) -> Float:
    """Return (m,) means of the rows at theta; absorbed effects are those of these rows."""
    if not rows.groups:
        return family.mean(theta, rows.X)
    within = family.prepare(rows, weights)
    return np.asarray(rows.y - (within.y - family.mean(theta, within.X)))


def augment(fit: Fit) -> pd.DataFrame:
    """Return labels, fitted means and residuals by row (see :meth:`Fit.augment`)."""
    problem, theta = fit.problem, fit.estimate.theta
    design, frame, family = problem.design, problem.frame, problem.family
    coded = np.zeros(design.n_rows, dtype=bool)
    coded[design.coded] = True
    out: dict[str, Any] = {
        "row": fit.study.positions,
        "coded": coded,
        "inclusion_weight": _on_coded(fit, design.inverse_probability),
    }
    several = len(problem.annotators) > 1
    for variable in frame.variables:
        out[f"{variable}_human"] = fit.study.human_labels(variable)
        for a in problem.annotators:
            name = f"{variable}_llm_{a}" if several else f"{variable}_llm"
            out[name] = fit.study.llm_labels(variable, a)
    # Without a label among the covariates, fitted means are the same under every annotator
    # (absorbed effects apart, which are means of the outcome).
    by_annotator = several and bool(frame.covariate_labels or frame.human().groups)
    for a in problem.annotators if by_annotator else problem.annotators[:1]:
        name = f".fitted_{a}" if by_annotator else ".fitted"
        out[name] = fitted(family, theta, frame.llm(a), design.weights)
    human = frame.human()
    mean = fitted(family, theta, human, design.coded_weights)
    out[".fitted_human"] = _on_coded(fit, mean)
    out[".resid"] = _on_coded(fit, human.y - mean)
    return pd.DataFrame(out)


def _on_coded(fit: Fit, values: Float) -> Float:
    out = np.full(fit.problem.design.n_rows, np.nan)
    out[fit.problem.design.coded] = values
    return out


def _new_rows(fit: Fit, newdata: Any) -> Float:
    _refuse_absorbed(fit)
    return cast(_Predictable, fit.problem.frame).new_rows(newdata)


def _study_rows(fit: Fit) -> Float:
    _refuse_absorbed(fit)
    problem = fit.problem
    if len(problem.annotators) > 1 and problem.frame.covariate_labels:
        raise ArgumentError(
            f"{', '.join(map(repr, problem.frame.covariate_labels))} is a labelled covariate with "
            f"{len(problem.annotators)} LLM labels for each row: say which values to predict at "
            "with newdata=, or see augment()."
        )
    return problem.frame.llm(problem.annotators[0]).X


def _refuse_absorbed(fit: Fit) -> None:
    if fit.problem.frame.human().groups:
        raise ArgumentError(
            "predict() needs the level of every absorbed effect, and these are not estimated: "
            "write the effect as C(column) in the formula, or see augment() for fitted values."
        )
