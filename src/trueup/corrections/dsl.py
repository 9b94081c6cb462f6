"""Design-based supervised learning: learn the human label, then correct what was learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from trueup.corrections.base import Estimate, Problem
from trueup.corrections.common import Normalise, common_estimate
from trueup.corrections.difference import difference_estimate
from trueup.corrections.learners import as_learner
from trueup.corrections.parts import HumanFit, human_part, machine_part
from trueup.corrections.pseudo import (
    Prediction,
    cross_fit,
    draw_folds,
    learner_features,
    pseudo_rows,
)
from trueup.corrections.ptd import TUNINGS, check_human_fit
from trueup.errors import ArgumentError, CorrectionError
from trueup.formula.rows import Rows
from trueup.study.design import Float

Predictions = ArrayLike | Mapping[str, ArrayLike]


@dataclass(frozen=True, slots=True)
class DSL:
    r"""Design-based supervised learning.

    A learner predicts the human label :math:`\hat g` from all LLM labels and the other
    variables of the regression, each row by learners that did not see its fold. Then theta solves

    .. math:: \sum_N a_i\psi(\theta;\hat g_i) +
              \sum_R \frac{a_i}{\pi_i}[\psi(\theta;V_i) - \psi(\theta;\hat g_i)] = 0,

    doubly robust in the sense that the known inclusion probabilities make it right whatever
    was learned. With several repeats, the median over random folds is reported, and the
    spread between them is added to the variance.

    Parameters
    ----------
    folds : int
        Parts for cross-fitting, drawn over clusters where rows are clustered.
    repeats : int
        Random divisions into folds.
    learner : scikit-learn estimator or tu.Calibration, optional
        Default: ridge-penalised logit (multinomial for classes, ridge regression for numbers).
    tuning : None or {"identity", "scalar", "diagonal", "full"}
        None: the equation above. Otherwise the predictions take the place of an LLM in
        predict-then-debias with this tuning, which does not lose precision where the
        learner is poor.
    predictions : array or {variable: array}, optional
        Your own predictions for all rows: (N,), or (N, repeats), made without the human label
        of the row itself. No learner runs then.
    normalise : {"hajek", "ht"}
        Divide the weighted sum over coded rows by the sum of weights, or by N with probabilities
        rescaled to mean n/N (as the R package does).
    variance : {"design", "rows"}
        The sampling design's own variance, or rows (clusters) taken as independent draws, as
        the R package does.
    human_fit : {"ml", "one-step", "firth"}
        How to fit separated coded rows (used with a tuning only).

    Raises
    ------
    ArgumentError
        If an option is unknown.

    Examples
    --------
    >>> import trueup as tu
    >>> tu.DSL(folds=5, repeats=10).name
    'dsl'

    References
    ----------
    Egami, Hinck, Stewart and Wei (2023), Using imperfect surrogates for downstream inference:
    design-based supervised learning, equation (6) and Algorithm 1.
    """

    folds: int = 5
    repeats: int = 10
    learner: Any = None
    tuning: Literal["identity", "scalar", "diagonal", "full"] | None = None
    predictions: Predictions | None = None
    normalise: Normalise = "hajek"
    variance: Literal["design", "rows"] = "design"
    human_fit: HumanFit = "ml"

    def __post_init__(self) -> None:
        """Check the options."""
        for name, least in (("folds", 2), ("repeats", 1)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < least:
                raise ArgumentError(
                    f"{name}={value!r} cannot be used: give a whole number of {least} or more."
                )
        if self.tuning is not None and self.tuning not in TUNINGS:
            raise ArgumentError(f"tuning={self.tuning!r} is unknown: use None or one of {TUNINGS}.")
        if self.normalise not in ("hajek", "ht") or self.variance not in ("design", "rows"):
            raise ArgumentError(
                'Use normalise="hajek" or "ht", and variance="design" or "rows"; got '
                f"{self.normalise!r} and {self.variance!r}."
            )
        if self.tuning is not None and (self.normalise != "hajek" or self.variance != "design"):
            raise ArgumentError(
                'With a tuning, DSL uses normalise="hajek" and variance="design": leave them out.'
            )
        check_human_fit(self.human_fit)
        if self.tuning is None and self.human_fit != "ml":
            raise ArgumentError(
                f"human_fit={self.human_fit!r} needs a tuning, since without one DSL does not fit "
                'the coded rows alone: add tuning="diagonal", or leave human_fit out.'
            )
        as_learner(self.learner)

    @property
    def name(self) -> str:
        """Return ``"dsl"``."""
        return "dsl"

    def estimate(self, problem: Problem) -> Estimate:
        """Return the corrected estimate: the median over repeats."""
        if self.predictions is not None:
            given = _given(problem, self.predictions)
            return median_estimate([self._one(problem, pseudo_rows(problem, p)) for p in given])
        learner = as_learner(self.learner)
        features = learner_features(problem)
        rng = np.random.default_rng(problem.seed)
        estimates = []
        for _ in range(self.repeats):
            folds = draw_folds(problem.design, self.folds, rng)
            predictions = cross_fit(problem, features, folds, learner)
            estimates.append(self._one(problem, pseudo_rows(problem, predictions)))
        return median_estimate(estimates)

    def _one(self, problem: Problem, every: Rows) -> Estimate:
        if self.tuning is None:
            return common_estimate(
                problem, every, 1.0, normalise=self.normalise, variance=self.variance
            )
        human = human_part(problem, self.human_fit)
        return difference_estimate(
            problem, human, [machine_part(problem, every, "all")], self.tuning
        )


def _given(problem: Problem, predictions: Predictions) -> list[dict[str, Prediction]]:
    """Return one set of predictions for each repeat given."""
    variables = problem.frame.variables
    if not isinstance(predictions, Mapping):
        if len(variables) != 1:
            raise CorrectionError(
                f"The formula uses {len(variables)} labelled variables ({', '.join(variables)}): "
                "give predictions={variable: array}."
            )
        predictions = {variables[0]: predictions}
    if set(predictions) != set(variables):
        raise CorrectionError(
            f"predictions= is for {sorted(predictions)}, the formula's labelled variables are "
            f"{sorted(variables)}."
        )
    arrays = {v: _checked(problem, v, predictions[v]) for v in variables}
    counts = {a.shape[1] for a in arrays.values()}
    if len(counts) != 1:
        raise CorrectionError("predictions= must have the same number of repeats everywhere.")
    return [{v: Prediction(a[:, r], None) for v, a in arrays.items()} for r in range(counts.pop())]


def _checked(problem: Problem, variable: str, values: ArrayLike) -> Float:
    if variable in problem.frame.class_labels:
        raise CorrectionError(
            f"predictions= must be numbers, but {variable!r} enters the formula as classes: code "
            "it as 0/1, or give a learner instead."
        )
    try:
        out = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise CorrectionError(
            f"predictions= for {variable!r} are not numbers: give a prediction or a probability "
            "for each row."
        ) from None
    out = out[:, None] if out.ndim == 1 else out
    if out.ndim != 2 or len(out) != problem.design.n_rows:
        raise CorrectionError(
            f"predictions= for {variable!r} have shape {np.shape(values)}: they need one row for "
            f"each of the {problem.design.n_rows} rows of the study."
        )
    if not np.isfinite(out).all():
        raise CorrectionError(f"predictions= for {variable!r} have missing or infinite values.")
    return out


def median_estimate(estimates: Sequence[Estimate]) -> Estimate:
    r"""Median over repeats, with :math:`V = \mathrm{med}_s [V_s + (\theta_s-m)(\theta_s-m)']`.

    References
    ----------
    Chernozhukov et al. (2018), Double/debiased machine learning, definition 3.3.
    """
    if len(estimates) == 1:
        return estimates[0]
    theta = np.median([e.theta for e in estimates], axis=0)
    V = np.median([e.vcov + np.outer(e.theta - theta, e.theta - theta) for e in estimates], axis=0)
    first = estimates[0]
    informative = [e.informative for e in estimates if e.informative is not None]
    tunings = [e.tuning for e in estimates if e.tuning is not None]
    middle = int(np.argsort([np.trace(e.vcov) for e in estimates])[len(estimates) // 2])
    return replace(
        first,
        theta=theta,
        vcov=_nearest(V),
        df=np.median([e.df for e in estimates], axis=0),
        h=np.mean([e.h for e in estimates if e.h is not None], axis=0),
        d=np.mean([e.d for e in estimates if e.d is not None], axis=0),
        tuning=np.mean(tunings, axis=0) if tunings else None,
        informative=np.median(informative, axis=0) if informative else None,
        influence=estimates[middle].influence,
        warnings=estimates[middle].warnings,
        extra={
            "repeat_theta": np.array([e.theta for e in estimates]),
            "repeat_se": np.sqrt([np.diag(e.vcov) for e in estimates]),
        },
    )


def _nearest(V: Float) -> Float:
    """Return V, or where medians made it indefinite, the same variances with valid correlations."""
    values, vectors = np.linalg.eigh(V)
    if values.min() >= 0:
        return V
    fixed = (vectors * np.maximum(values, 0.0)) @ vectors.T
    scale = np.sqrt(np.diag(V) / np.diag(fixed))
    return np.asarray(fixed * np.outer(scale, scale))
