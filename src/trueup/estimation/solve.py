"""Solving estimating equations: Newton, linear solves, and fits for separated samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import expit

from trueup.errors import ConvergenceError, FitError, SeparationError
from trueup.estimation.blocks import score_hessian, score_sum
from trueup.estimation.rank import check_gram, check_rank, well_conditioned
from trueup.families.base import Family
from trueup.formula.rows import Rows
from trueup.study.design import Float

#: Rows of the first fit, on a systematic part of a large table, that gives Newton its start.
START_ROWS = 50_000
MAX_HALVINGS = 30
#: A step below this, in units of about a standard error, that cannot be improved is rounding.
ROUNDING_STEP = 1e-6
#: Iterations of Newton after which running away is looked for.
PATIENCE = 12
#: Information about the weakest direction, relative to that at the start, below which
#: coefficients are taken to run away: while Newton still moves, and once it has failed.
VANISHED, FADED = 1e-10, 1e-4
MAX_REFINEMENTS = 8
MAX_FIRTH_STEPS = 100

#: What else to do where coefficients run away.
OTHER_FITS = 'use a fit that exists: tu.PTD(human_fit="one-step"), or human_fit="firth" for a logit'

Evaluate = Callable[[Float], tuple[Float, Float]]
Watch = Callable[[Float, Float, float], None]


@dataclass(frozen=True, slots=True)
class Solution:
    """Root of an estimating equation."""

    theta: Float
    """(p,) coefficients."""
    iterations: int
    hessian: Float
    """(p, p) Hessian at the last point where it was computed, within the tolerance of theta."""


def newton(
    score: Callable[[Float], Float],
    hessian: Callable[[Float], Float],
    start: Float,
    *,
    tol: float = 1e-10,
    max_iter: int = 50,
) -> Solution:
    """Find the root of a score by Newton's method with step halving.

    A step is halved until the next step, measured by the present Hessian, is shorter.

    Parameters
    ----------
    score : callable
        (p,) coefficients -> (p,) score.
    hessian : callable
        (p,) coefficients -> (p, p) matrix, minus the derivative of the score.
    start : (p,) array
    tol : float
        Stop when a step is smaller than this, relative to the coefficients.
    max_iter : int

    Returns
    -------
    Solution

    Raises
    ------
    ConvergenceError
        If no root is found.

    Examples
    --------
    >>> import numpy as np
    >>> root = newton(lambda t: 2.0 - np.exp(t), lambda t: np.diag(np.exp(t)), np.zeros(1))
    >>> root.theta.round(6)
    array([0.693147])
    """
    return newton_joint(lambda t: (score(t), hessian(t)), start, tol=tol, max_iter=max_iter)


def newton_joint(
    evaluate: Evaluate, start: Float, *, tol: float = 1e-10, max_iter: int = 50
) -> Solution:
    """Find a root as :func:`newton` does, with score and Hessian from one function.

    Saves readings of the rows where both come from one pass.

    Parameters
    ----------
    evaluate : callable
        (p,) coefficients -> (p,) score and (p, p) matrix, minus its derivative.
    start, tol, max_iter
        See :func:`newton`.

    Returns
    -------
    Solution

    Raises
    ------
    ConvergenceError
        If no root is found.

    Examples
    --------
    >>> import numpy as np
    >>> root = newton_joint(lambda t: (2.0 - np.exp(t), np.diag(np.exp(t))), np.zeros(1))
    >>> root.theta.round(6)
    array([0.693147])
    """
    theta = np.asarray(start, dtype=np.float64)
    return _iterate(evaluate, theta, evaluate(theta), tol, max_iter)


def _iterate(
    evaluate: Evaluate,
    theta: Float,
    first: tuple[Float, Float],
    tol: float,
    max_iter: int,
    watch: Watch | None = None,
) -> Solution:
    """Run Newton from a point whose score and Hessian are known.

    ``watch`` is shown coefficients, Hessian and the limit for vanished information; it may
    raise a better error than this function can.
    """
    s, H = first
    if not (np.isfinite(s).all() and np.isfinite(H).all()):
        raise ConvergenceError(f"The score is not finite at the starting values. {_MEND}")
    look = watch or (lambda theta, hessian, limit: None)
    scale = np.sqrt(np.abs(np.diag(H)))
    for iteration in range(1, max_iter + 1):
        if iteration > PATIENCE:
            look(theta, H, VANISHED)
        step = _direction(H, s)
        if np.abs(step * scale).max() <= tol * (1.0 + np.abs(theta * scale).max()):
            look(theta, H, VANISHED)
            return Solution(theta + step, iteration, H)
        found = _halved(evaluate, theta, step, H, scale)
        if found is None:
            look(theta, H, FADED)
            if np.linalg.norm(step * scale) <= ROUNDING_STEP:
                return Solution(theta + step, iteration, H)
            raise ConvergenceError(f"Newton could not improve after {iteration} steps. {_MEND}")
        theta, s, H = found
    look(theta, H, FADED)
    raise ConvergenceError(f"Newton did not converge in {max_iter} steps. {_MEND}")


_MEND = "Rescale covariates of very different size, drop or merge rare levels, or try another link."


def _direction(H: Float, s: Float) -> Float:
    """Return the Newton step; least squares where the Hessian is singular."""
    try:
        step = np.linalg.solve(H, s)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(H, s, rcond=None)[0])
    return np.asarray(step)


def _halved(
    evaluate: Evaluate, theta: Float, step: Float, H: Float, scale: Float
) -> tuple[Float, Float, Float] | None:
    """Return the next point, its score and Hessian; None where no fraction of the step helps."""
    before = np.linalg.norm(step * scale)
    fraction = 1.0
    for _ in range(MAX_HALVINGS):
        candidate = theta + fraction * step
        s, h = evaluate(candidate)
        if np.isfinite(s).all() and np.isfinite(h).all():
            after = np.linalg.norm(_direction(H, s) * scale)
            if after <= (1.0 - 1e-4 * fraction) * before:
                return candidate, s, h
        fraction /= 2.0
    return None


def fit(
    family: Family,
    rows: Rows,
    weights: Float | None,
    terms: Sequence[str],
    start: Float | None = None,
    *,
    where: str = "the rows of this fit",
    instead: str = OTHER_FITS,
) -> Float:
    """Solve the weighted estimating equation of a family.

    Parameters
    ----------
    family : Family
    rows : Rows
        Rows that have been through ``family.prepare``.
    weights : (m,) array or None
    terms : sequence of str
        Names of the p coefficients, for messages.
    start : (p,) array, optional
        Starting values for Newton.
    where : str
        How messages call the rows.
    instead : str
        What else to do, in words, where the outcome is predicted perfectly.

    Returns
    -------
    (p,) array

    Raises
    ------
    FitError
        If there are too few rows or values that are not finite.
    CollinearityError
        If columns are linear combinations of others.
    SeparationError
        If the outcome is predicted perfectly, so that coefficients run away.
    ConvergenceError
        If Newton fails for another reason.

    Examples
    --------
    >>> import numpy as np
    >>> from trueup.families.registry import family_for
    >>> rows = Rows(y=np.array([0.0, 0.0, 1.0, 0.0]), X=np.ones((4, 1)))
    >>> fit(family_for("logit"), rows, None, ("Intercept",)).round(4)
    array([-1.0986])
    """
    if family.linear:
        return _fit_linear(family, rows, weights, terms, where)
    if len(rows) < rows.n_coef:
        check_rank(rows.X, terms, weights, where)
    start = _start(family, rows, weights, terms, start)

    def evaluate(theta: Float) -> tuple[Float, Float]:
        return score_hessian(family, theta, rows, weights)

    first = evaluate(start)
    _check_start(first, rows, weights, terms, where)
    return solve_from(start, first, evaluate, family.name, terms, where=where, instead=instead)


def solve_from(
    start: Float,
    first: tuple[Float, Float],
    evaluate: Evaluate,
    name: str,
    terms: Sequence[str],
    *,
    where: str,
    instead: str = OTHER_FITS,
) -> Float:
    """Run Newton from a point, and say which coefficients run away where it fails.

    Parameters
    ----------
    start : (p,) array
    first : tuple
        Score and Hessian at ``start``.
    evaluate : callable
        (p,) coefficients -> (p,) score and (p, p) Hessian.
    name : str
        Name of the family, for messages.
    terms, where, instead
        See :func:`fit`.

    Raises
    ------
    SeparationError, ConvergenceError
    """
    watch = _Watchman(name, start, first[1], terms, where, instead)
    return _iterate(evaluate, start, first, 1e-10, 50, watch).theta


def _check_start(
    first: tuple[Float, Float],
    rows: Rows,
    weights: Float | None,
    terms: Sequence[str],
    where: str,
) -> None:
    """Raise where score or Hessian at the start show that rows or columns cannot be used."""
    finite = all(np.isfinite(part).all() for part in first)
    if not finite or not well_conditioned(first[1]):
        check_rank(rows.X, terms, weights, where)
    if not finite:
        _check_outcome(rows.y, where)


def _check_outcome(y: Float, where: str) -> None:
    """Raise where the outcome is missing or infinite."""
    if not np.isfinite(y).all():
        raise FitError(f"The outcome has missing or infinite values in {where}: remove them.")


def _start(
    family: Family,
    rows: Rows,
    weights: Float | None,
    terms: Sequence[str],
    given: Float | None,
) -> Float:
    """Return starting values: the fit to a part of a large table, those given, or the family's."""
    found = _part_fit(family, rows, weights, terms, given)
    if found is not None:
        return found
    return family.start(rows, weights) if given is None else given


def _part_fit(
    family: Family,
    rows: Rows,
    weights: Float | None,
    terms: Sequence[str],
    start: Float | None = None,
) -> Float | None:
    """Return the fit to a systematic part of a large table; None where there is none."""
    stride = len(rows) // START_ROWS
    if stride < 4:
        return None
    some = slice(None, None, stride)
    part = rows.take(some)
    part = part.take(np.arange(len(part)))  # strided views would be slow
    try:
        return fit(family, part, None if weights is None else weights[some], terms, start)
    except FitError:
        # A rare level may be missing from the part: that says nothing about all rows.
        return None


def rough_fit(family: Family, rows: Rows, weights: Float | None, terms: Sequence[str]) -> Float:
    """Return coefficients near those of :func:`fit`, to start another equation from.

    They are the fit to a part of the rows where there are many, and to all rows otherwise.

    Parameters
    ----------
    family : Family
    rows : Rows
        Prepared rows.
    weights : (m,) array or None
    terms : sequence of str
        Names of the p coefficients, for messages.

    Returns
    -------
    (p,) array

    Raises
    ------
    FitError
        As :func:`fit` does.
    """
    found = _part_fit(family, rows, weights, terms)
    return fit(family, rows, weights, terms) if found is None else found


@dataclass(frozen=True, slots=True)
class _Watchman:
    """Looks at the iterations of Newton for coefficients that run away."""

    family: str
    start: Float
    hessian: Float
    """(p, p) Hessian at the start."""
    terms: Sequence[str]
    where: str
    instead: str

    def __call__(self, theta: Float, hessian: Float, limit: float) -> None:
        """Raise where the information about some direction has vanished since the start."""
        scale = np.sqrt(np.abs(np.diag(self.hessian)))
        before, now = (
            np.abs(np.linalg.eigvalsh(h / np.outer(scale, scale))).min()
            for h in (self.hessian, hessian)
        )
        if now > limit * before:
            return
        moved = np.abs(theta - self.start) * scale
        named = [t for t, m in zip(self.terms, moved, strict=True) if m > 0.25 * moved.max()]
        blamed = [t for t in named if t != "Intercept"] or named
        names = ", ".join(f"'{t}'" for t in blamed)
        raise SeparationError(
            f"In {self.where} the outcome is predicted perfectly ({self.family}): the "
            f"coefficient(s) of {names} run away to infinity. Drop or merge such columns or "
            f"levels, code more rows, or {self.instead}."
        )


def _fit_linear(
    family: Family, rows: Rows, weights: Float | None, terms: Sequence[str], where: str
) -> Float:
    """Solve a linear estimating equation: one Cholesky solve, then refinement on the data."""
    if len(rows) < rows.n_coef:
        check_rank(rows.X, terms, weights, where)
    s, H = score_hessian(family, np.zeros(rows.n_coef), rows, weights)
    well = np.isfinite(H).all() and well_conditioned(H)
    if not well:
        check_rank(rows.X, terms, weights, where)
        check_gram(H, terms, where)
    if not np.isfinite(s).all():
        _check_outcome(rows.y, where)
    scale = np.sqrt(np.diag(H))
    try:
        factor = cho_factor(H / np.outer(scale, scale), lower=True)
    except LinAlgError:
        raise ConvergenceError(
            f"The columns are too close to collinear in {where}. {_MEND}"
        ) from None
    theta = cho_solve(factor, s / scale) / scale
    for _ in range(MAX_REFINEMENTS):
        step = cho_solve(factor, score_sum(family, theta, rows, weights) / scale) / scale
        theta = theta + step
        if well or np.abs(step * scale).max() <= 1e-14 * np.abs(theta * scale).max():
            break
    return np.asarray(theta)


def one_step(family: Family, rows: Rows, weights: Float | None, start: Float) -> Float:
    """Return one Newton step from given coefficients.

    The step exists where the maximum does not (separated rows), and is as precise to first
    order where ``start`` is close.

    Parameters
    ----------
    family : Family
    rows : Rows
        Prepared rows.
    weights : (m,) array or None
    start : (p,) array
        For example the fit to the LLM labels of all rows.

    Returns
    -------
    (p,) array

    Raises
    ------
    ConvergenceError
        If the Hessian at ``start`` is singular.
    """
    s, H = score_hessian(family, start, rows, weights)
    try:
        step = np.linalg.solve(H, s)
    except np.linalg.LinAlgError:
        raise ConvergenceError(f"The Hessian is singular at the starting values. {_MEND}") from None
    if not np.isfinite(step).all():
        raise ConvergenceError(f"The score is not finite at the starting values. {_MEND}")
    return np.asarray(start + step)


def firth_logit(rows: Rows, weights: Float | None, start: Float | None = None) -> Float:
    r"""Fit a logit with the Jeffreys penalty, which is finite for separated rows too.

    Solves :math:`\sum_i x_i [w_i (y_i - \mu_i) + h_i (1/2 - \mu_i)] = 0` with ``h`` the hat
    values of the weighted fit. Weights are divided by their mean, so that the penalty is worth
    the same number of rows whatever their scale.

    Parameters
    ----------
    rows : Rows
    weights : (m,) array or None
    start : (p,) array, optional

    Returns
    -------
    (p,) array

    Raises
    ------
    ConvergenceError
        If no root is found, e.g. because columns are collinear.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows(y=np.ones(3), X=np.ones((3, 1)))
    >>> bool(np.isclose(firth_logit(rows, None)[0], np.log(3.5 / 0.5)))
    True

    References
    ----------
    Firth (1993), Bias reduction of maximum likelihood estimates, Biometrika 80.
    Heinze and Schemper (2002), A solution to the problem of separation in logistic regression.
    """
    w = np.ones(len(rows)) if weights is None else weights / weights[weights > 0].mean()
    theta = np.zeros(rows.n_coef) if start is None else np.asarray(start, dtype=np.float64)
    value, slope, curvature = _penalised(theta, rows, w)
    if not np.isfinite(value):
        raise ConvergenceError(f"The penalised likelihood does not exist at the start. {_MEND}")
    for _ in range(MAX_FIRTH_STEPS):
        step = np.linalg.solve(curvature, slope)
        gain = float(slope @ step)
        if gain <= 1e-18:
            return np.asarray(theta + step)
        fraction, new = 1.0, _penalised(theta + step, rows, w)
        while new[0] < value + 0.1 * fraction * gain and fraction * gain > 1e-12:
            fraction /= 2.0
            new = _penalised(theta + fraction * step, rows, w)
        theta, (value, slope, curvature) = theta + fraction * step, new
    raise ConvergenceError(f"The Firth fit did not converge in {MAX_FIRTH_STEPS} steps. {_MEND}")


def _penalised(theta: Float, rows: Rows, w: Float) -> tuple[float, Float, Float]:
    """Return the log-likelihood with Jeffreys penalty (-inf: none), its slope and curvature.

    The curvature is minus the second derivative where that is positive definite, and the
    information elsewhere, so that a step along it always climbs.
    """
    X, eta = rows.X, rows.X @ theta
    mu = expit(eta)
    information = w * mu * expit(-eta)
    H = X.T @ (X * information[:, None])
    if not np.isfinite(H).all() or not well_conditioned(H):
        return -np.inf, np.zeros_like(theta), H
    inverse = np.linalg.inv(H)
    skew = 1.0 - 2.0 * mu
    hat = np.einsum("ij,ij->i", X @ inverse, X) * information
    slope = X.T @ (w * (rows.y - mu) + 0.5 * hat * skew)
    bend = 0.5 * hat * (skew**2 - 2.0 * mu * expit(-eta))
    changes = [inverse @ (X.T @ (X * (information * skew * x)[:, None])) for x in X.T]
    penalty = X.T @ (X * bend[:, None])
    penalty -= 0.5 * np.array([[np.sum(a * b.T) for b in changes] for a in changes])
    value = w @ (rows.y * eta - np.logaddexp(0.0, eta)) + 0.5 * np.linalg.slogdet(H)[1]
    definite = np.linalg.eigvalsh(H - penalty)[0] > 0
    return float(value), slope, H - penalty if definite else H
