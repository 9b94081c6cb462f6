"""Solving estimating equations: Newton, linear solves, and fits for separated samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh
from scipy.special import expit

from trueup.errors import ConvergenceError, FitError, SeparationError
from trueup.estimation.blocks import cross_product, score_hessian, score_sum
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
#: Information of the weakest direction, relative to the strongest, below which coefficients
#: are taken to run away: while Newton still moves, and once it has failed.
VANISHED, FADED = 1e-10, 1e-6
MAX_REFINEMENTS = 8

Evaluate = Callable[[Float], tuple[Float, Float]]
Watch = Callable[[int, Float, Float], None]


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
    return _iterate(lambda t: (score(t), hessian(t)), start, tol, max_iter)


def _iterate(
    evaluate: Evaluate, start: Float, tol: float, max_iter: int, watch: Watch | None = None
) -> Solution:
    """Run Newton; ``watch`` sees every iteration (-1: failure) and may raise a better error."""
    theta = np.asarray(start, dtype=np.float64)
    s, H = evaluate(theta)
    if not (np.isfinite(s).all() and np.isfinite(H).all()):
        raise ConvergenceError("The score is not finite at the starting values. " + _MEND)
    for iteration in range(1, max_iter + 1):
        if watch is not None:
            watch(iteration, theta, H)
        step = _direction(H, s)
        scale = np.sqrt(np.abs(np.diag(H)))
        if np.abs(step * scale).max() <= tol * (1.0 + np.abs(theta * scale).max()):
            return Solution(theta + step, iteration, H)
        found = _halved(evaluate, theta, step, H, scale)
        if found is None:
            if watch is not None:
                watch(-1, theta, H)
            if np.linalg.norm(step * scale) <= ROUNDING_STEP:
                return Solution(theta + step, iteration, H)
            raise ConvergenceError(f"Newton could not improve after {iteration} steps. {_MEND}")
        theta, s, H = found
    if watch is not None:
        watch(-1, theta, H)
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
    watch = _Watchman(family, rows, weights, terms, where)
    if len(rows) < rows.n_coef:
        check_rank(rows.X, terms, weights, where)
    if start is None:
        start = _start(family, rows, weights, terms)

    def evaluate(theta: Float) -> tuple[Float, Float]:
        return score_hessian(family, theta, rows, weights)

    return _iterate(evaluate, start, 1e-10, 50, watch).theta


def _start(family: Family, rows: Rows, weights: Float | None, terms: Sequence[str]) -> Float:
    """Return starting values: the fit to a part of a large table, or the family's own."""
    stride = len(rows) // START_ROWS
    if stride >= 4:
        some = slice(None, None, stride)
        part = rows.take(some)
        part = part.take(np.arange(len(part)))  # strided views would be slow
        try:
            return fit(family, part, None if weights is None else weights[some], terms)
        except FitError:
            # A rare level may be missing from the part: that says nothing about all rows.
            pass
    return family.start(rows, weights)


@dataclass(frozen=True, slots=True)
class _Watchman:
    """Looks at the iterations of Newton for collinear columns and runaway coefficients."""

    family: Family
    rows: Rows
    weights: Float | None
    terms: Sequence[str]
    where: str

    def __call__(self, iteration: int, theta: Float, hessian: Float) -> None:
        """Raise CollinearityError at the start, SeparationError later."""
        if iteration == 1 and not well_conditioned(hessian):
            check_rank(self.rows.X, self.terms, self.weights, self.where)
        if iteration == -1 or iteration > PATIENCE:
            self._check_separation(hessian, FADED if iteration == -1 else VANISHED)

    def _check_separation(self, hessian: Float, limit: float) -> None:
        """Raise where the information about some direction has vanished."""
        gram = cross_product(self.rows.X, weights=self.weights)
        scale = np.sqrt(np.diag(gram))
        outer = np.outer(scale, scale)
        try:
            values, vectors = eigh(hessian / outer, gram / outer)
        except LinAlgError:
            check_rank(self.rows.X, self.terms, self.weights, self.where)
            raise
        if values[0] > limit * values[-1]:
            return
        size = np.abs(vectors[:, 0])
        named = [t for t, v in zip(self.terms, size, strict=True) if v > 0.2 * size.max()]
        blamed = [t for t in named if t != "Intercept"] or named
        names = ", ".join(f"'{t}'" for t in blamed)
        raise SeparationError(
            f"In {self.where} the outcome is predicted perfectly ({self.family.name}): the "
            f"coefficient(s) of {names} run away to infinity. Drop or merge such columns or "
            'levels, code more rows, or use a fit that exists: PTD(human_fit="one-step"), or '
            '"firth" for a logit.'
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
        raise FitError(f"The outcome has missing or infinite values in {where}: remove them.")
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
    X, y = rows.X, rows.y
    w = np.ones(len(rows)) if weights is None else weights / weights[weights > 0].mean()

    def evaluate(theta: Float) -> tuple[Float, Float]:
        mu = expit(X @ theta)
        information = w * mu * (1.0 - mu)
        H = X.T @ (X * information[:, None])
        if not np.isfinite(H).all() or not well_conditioned(H):
            return np.full(len(theta), np.nan), H
        hat = np.einsum("ij,ij->i", X @ np.linalg.inv(H), X) * information
        return X.T @ (w * (y - mu) + hat * (0.5 - mu)), H

    return _iterate(evaluate, np.zeros(rows.n_coef) if start is None else start, 1e-10, 500).theta
