"""Solving score equations: Newton's method and what stands in where it cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import expit

from trueup.errors import ConvergenceError, SeparationError
from trueup.estimation.blocks import mean_hessian, mean_score
from trueup.families.base import Family
from trueup.formula.rows import Rows
from trueup.study.design import Float

#: A linear predictor beyond this is a probability that cannot be told from 0 or 1.
BEYOND = 30.0
MOST_HALVINGS = 30


@dataclass(frozen=True, slots=True)
class Solution:
    """Where a score equation is zero."""

    theta: Float
    iterations: int
    hessian: Float


def solve_symmetric(hessian: Float, score: Float) -> Float:
    """Return the Newton step, by Cholesky where the Hessian is positive definite."""
    try:
        return np.asarray(cho_solve(cho_factor(hessian), score))
    except LinAlgError:
        pass
    try:
        return np.asarray(np.linalg.solve(hessian, score))
    except np.linalg.LinAlgError as error:
        raise ConvergenceError("The Hessian is singular: no Newton step exists.") from error


def newton(
    score: Callable[[Float], Float],
    hessian: Callable[[Float], Float],
    start: Float,
    *,
    tol: float = 1e-10,
    max_iter: int = 50,
) -> Solution:
    """Solve ``score(theta) = 0`` by Newton's method with step halving.

    A step is halved until the score, measured in the metric of the current Hessian, shrinks.

    Parameters
    ----------
    score, hessian : callables
        (p,) mean score, and (p, p) minus its derivative.
    start : (p,) array
    tol : float
        Largest relative change of a coefficient in the last step.
    max_iter : int

    Raises
    ------
    ConvergenceError
        If there is no convergence within ``max_iter`` steps, or values stop being finite.
    """
    theta = np.asarray(start, dtype=float)
    value = score(theta)
    for iteration in range(1, max_iter + 1):
        H = hessian(theta)
        if not (np.isfinite(value).all() and np.isfinite(H).all()):
            raise ConvergenceError("Scores are not finite: rescale covariates of extreme size.")
        step = solve_symmetric(H, value)
        size = float(np.sqrt(max(step @ H @ step, 0.0))) or float(np.linalg.norm(step))
        scale = 1.0
        for _ in range(MOST_HALVINGS):
            new = theta + scale * step
            fresh = score(new)
            if np.isfinite(fresh).all():
                left = solve_symmetric(H, fresh)
                length = float(np.sqrt(max(left @ H @ left, 0.0))) or float(np.linalg.norm(left))
                if length <= size * (1.0 - 1e-4 * scale) or length <= 1e-13:
                    break
            if np.abs(scale * step).max() <= tol * (1.0 + np.abs(theta).max()):
                break
            scale /= 2.0
        theta, value = new, fresh
        if np.abs(scale * step).max() <= tol * (1.0 + np.abs(theta).max()):
            return Solution(theta, iteration, H)
    raise ConvergenceError(f"Newton's method did not converge in {max_iter} steps.")


def fit(
    family: Family,
    rows: Rows,
    weights: Float | None,
    terms: Sequence[str],
    start: Float | None = None,
) -> Float:
    """Return the (p,) coefficients of prepared rows.

    Raises
    ------
    SeparationError
        If coefficients run away because the outcome is predicted perfectly.
    ConvergenceError
        If Newton's method fails for another reason.
    """
    if family.linear:
        zero = np.zeros(rows.n_coef)
        hessian = family.hessian_sum(zero, rows, weights)
        return solve_symmetric(hessian, family.score_sum(zero, rows, weights))
    first = family.start(rows, weights) if start is None else start

    def score(theta: Float) -> Float:
        return mean_score(family, theta, rows, weights)

    def hessian_at(theta: Float) -> Float:
        value = mean_hessian(family, theta, rows, weights)
        _check_separation(value, theta, rows, terms)
        return value

    try:
        theta = newton(score, hessian_at, first).theta
    except ConvergenceError as error:
        raise ConvergenceError(f"The {family.name} fit failed. {error}") from error
    _check_separation(hessian_at(theta), theta, rows, terms)
    return theta


def _check_separation(hessian: Float, theta: Float, rows: Rows, terms: Sequence[str]) -> None:
    """Raise where fitted probabilities are at 0 or 1 and the curvature has gone."""
    spread = np.abs(theta) * rows.X.std(axis=0) if len(rows) < 100_000 else np.abs(theta)
    if spread.max() < BEYOND / 3:
        return
    eta = rows.X @ theta
    if np.abs(eta).max() < BEYOND:
        return
    curvature = np.diag(hessian) / np.maximum((rows.X**2).mean(axis=0), 1e-300)
    running = np.flatnonzero((curvature < 1e-6) | (spread > BEYOND / 3))
    names = ", ".join(f"'{terms[j]}'" for j in running) or "the covariates"
    raise SeparationError(
        f"The outcome is predicted perfectly (separation): the coefficient(s) of {names} grow "
        "without bound. Merge levels, drop the column, or code more rows; or use a fit that "
        'exists all the same: tu.PTD(human_fit="one-step") or, for logit, '
        'tu.PTD(human_fit="firth").'
    )


def one_step(family: Family, rows: Rows, weights: Float | None, start: Float) -> Float:
    """Return one Newton step from ``start``."""
    step = solve_symmetric(
        mean_hessian(family, start, rows, weights), mean_score(family, start, rows, weights)
    )
    return np.asarray(start + step)


def firth_logit(rows: Rows, weights: Float | None, start: Float | None = None) -> Float:
    r"""Return the logit fit with Jeffreys' penalty, which exists under separation.

    Solves :math:`\sum_i w_i x_i (y_i - \mu_i + h_i(1/2 - \mu_i)/w_i) = 0`, with weights scaled
    to mean one and h the hat values.

    References
    ----------
    Firth (1993), Bias reduction of maximum likelihood estimates. Heinze and Schemper (2002), A
    solution to the problem of separation in logistic regression.
    """
    X, y = rows.X, rows.y
    w = np.ones(len(y)) if weights is None else weights / weights.mean()
    theta = np.zeros(X.shape[1]) if start is None else np.asarray(start, dtype=float)
    for _ in range(200):
        mu = expit(X @ theta)
        information = w * mu * (1.0 - mu)
        H = X.T @ (information[:, None] * X)
        hat = np.einsum("ij,jk,ik->i", X, np.linalg.inv(H), X) * information
        step = np.linalg.solve(H, X.T @ (w * (y - mu) + hat * (0.5 - mu)))
        step *= min(1.0, 5.0 / float(np.abs(step).max() or 1.0))
        theta = theta + step
        if np.abs(step).max() < 1e-9 * (1.0 + np.abs(theta).max()):
            return np.asarray(theta)
    raise ConvergenceError("The Firth fit did not converge in 200 steps.")
