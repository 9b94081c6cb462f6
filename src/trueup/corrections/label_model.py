r"""What a coded row's human label is likely to be: regularised learners with leave-one-out.

Each learner is fitted once to the coded rows. What it would have predicted for a coded row had
that row been left out follows from one Newton step, so that there are no random folds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trueup.errors import ConvergenceError
from trueup.study.design import Float, Int

MAX_STEPS = 100
#: The share of a row in its own prediction is taken to be no more than this when it is left out.
MOST_SHARE = 0.9
#: Nodes at which the law of a continuous label is evaluated: exact for polynomials to degree 9.
NODES = 5
#: Penalty on the coefficients of the log-variance of a continuous label, in coded rows.
SCALE_PENALTY = 4.0


class LabelModel(Protocol):
    """The law of one label given features, as a few values with their probabilities."""

    @property
    def free(self) -> float:
        """Effective number of parameters, the sum of the shares of rows in their predictions."""
        ...

    def predict(self, new: Float) -> tuple[Float, Float]:
        """Return values (m, S) and probabilities (m, S) for features (m, q)."""
        ...

    def left_out(self, new: Float) -> tuple[Float, Float]:
        """Return the same for features (n, q) of the coded rows, each left out of its fit."""
        ...


def softmax(eta: Float) -> Float:
    """Return (m, C) probabilities from the (m, C - 1) log-odds against the first class."""
    full = np.column_stack([np.zeros(len(eta)), eta])
    full -= full.max(axis=1, keepdims=True)
    np.exp(full, out=full)
    return np.asarray(full / full.sum(axis=1, keepdims=True))


def multinomial_ridge(x: Float, target: Float, penalty: Float, advice: str) -> tuple[Float, Float]:
    r"""Maximise the penalised multinomial log-likelihood by Newton steps.

    Parameters
    ----------
    x : (n, q) array
    target : (n, C - 1) array
        Indicators of all classes but the first, possibly smoothed.
    penalty : (q,) array
        Ridge penalty of each column, in units of one row.
    advice : str
        How to mend a failure to converge.

    Returns
    -------
    (q, C - 1) coefficients and the (C - 1, q, C - 1, q) Hessian at them

    Raises
    ------
    ConvergenceError
        If Newton does not converge.
    """
    q, k = x.shape[1], target.shape[1]
    coef = np.zeros((q, k))
    ridge = penalty[:, None]

    def objective(b: Float) -> float:
        eta = x @ b
        top = np.maximum(eta.max(axis=1), 0.0)
        log_sum = top + np.log(np.exp(-top) + np.exp(eta - top[:, None]).sum(axis=1))
        return float(log_sum.sum() - (target * eta).sum() + 0.5 * (ridge * b * b).sum())

    value = objective(coef)
    for _ in range(MAX_STEPS):
        prob = softmax(x @ coef)[:, 1:]
        gradient = x.T @ (prob - target) + ridge * coef
        hessian = _hessian(x, prob, penalty)
        flat = hessian.reshape(k * q, k * q)
        step = np.linalg.solve(flat, gradient.T.ravel()).reshape(k, q).T
        size = 1.0
        while objective(coef - size * step) > value + 1e-12 * abs(value) and size > 1e-6:
            size /= 2
        coef = coef - size * step
        value = objective(coef)
        if np.abs(size * step).max() < 1e-9 * (1.0 + np.abs(coef).max()):
            return coef, hessian
    raise ConvergenceError(f"The label learner did not converge in {MAX_STEPS} steps. {advice}")


def _hessian(x: Float, prob: Float, penalty: Float) -> Float:
    q, k = x.shape[1], prob.shape[1]
    out = np.zeros((k, q, k, q))
    for a in range(k):
        for b in range(a, k):
            weight = prob[:, a] * ((a == b) - prob[:, b])
            block = x.T @ (weight[:, None] * x)
            out[a, :, b, :] = block
            out[b, :, a, :] = block
        out[a, :, a, :] += np.diag(penalty)
    return out


@dataclass(frozen=True, slots=True)
class ClassModel:
    """Ridge-penalised multinomial logit with label smoothing.

    Each coded row also enters with every other label, with a total weight of ``smoothing`` rows
    over all coded rows: pseudo-errors that keep probabilities off 0 and 1.
    """

    values: Float
    """(C,) what stands for each class in the results of ``predict``."""
    coef: Float
    """(q, C - 1)"""
    features: Float
    """(n, q) of the coded rows, with intercept."""
    surprise: Float
    """(n, C - 1) what leaving the row out adds to the gradient, corrected for its own share."""
    inverse: Float
    """(C - 1, q, C - 1, q) inverse Hessian, times the weight of a row."""
    free: float
    """Effective number of parameters for each class but the first."""

    @classmethod
    def fit(cls, x: Float, codes: Int, size: int, penalty: Float, smoothing: float) -> ClassModel:
        """Fit to features (n, q) with intercept and class codes (n,)."""
        n, q = x.shape
        share = smoothing / n
        target = np.full((n, size), share / (size - 1))
        target[np.arange(n), codes] = 1.0
        target /= 1.0 + share
        weight = 1.0 + share
        advice = "Raise its penalty, e.g. tu.ExpectedScore(penalty=4)."
        coef, hessian = multinomial_ridge(x, target[:, 1:], penalty / weight, advice)
        k = size - 1
        flat = np.asarray(np.linalg.inv(hessian.reshape(k * q, k * q)), dtype=float)
        inverse = flat.reshape(k, q, k, q)
        prob = softmax(x @ coef)[:, 1:]
        own = np.einsum("iq,aqbr,ir->iab", x, inverse, x, optimize=True)
        curvature = prob[:, :, None] * (np.eye(k) - prob[:, None, :])
        share_of_own = own @ curvature
        free = float(np.trace(share_of_own, axis1=1, axis2=2).sum()) / k
        top = np.abs(np.linalg.eigvals(share_of_own)).max(axis=1)
        share_of_own *= np.minimum(1.0, MOST_SHARE / np.maximum(top, 1e-300))[:, None, None]
        residual = target[:, 1:] - prob
        # Leaving a row out moves its own log-odds by -(I - LW)^-1 L r; through the gradient, by
        # L (I - WL)^-1 r, which also serves other features of the same row.
        surprise = np.linalg.solve(
            np.eye(k) - np.swapaxes(share_of_own, 1, 2), residual[:, :, None]
        )[:, :, 0]
        return cls(np.arange(float(size)), coef, x, surprise, inverse, free)

    def predict(self, new: Float) -> tuple[Float, Float]:
        """Return class codes (m, C) and probabilities (m, C)."""
        prob = softmax(new @ self.coef)
        return np.tile(self.values, (len(prob), 1)), prob

    def left_out(self, new: Float) -> tuple[Float, Float]:
        """Return the same for features (n, q) of the coded rows, each left out of the fit."""
        reach = np.einsum("iq,aqbr,ir->iab", new, self.inverse, self.features, optimize=True)
        eta = new @ self.coef - np.einsum("iab,ib->ia", reach, self.surprise)
        prob = softmax(eta)
        return np.tile(self.values, (len(prob), 1)), prob


@dataclass(frozen=True, slots=True)
class NumberModel:
    r"""Ridge regression with a log-linear variance and a normal law of the residuals.

    :math:`V = b'\beta + s(b)\,\epsilon`, :math:`\log s^2` linear in the same features with a
    stronger penalty, :math:`\epsilon` standard normal, evaluated at five Gauss-Hermite nodes and
    kept within the range of the labels seen.
    """

    coef: Float
    """(q,)"""
    scale_coef: Float
    """(q,) of the log-variance."""
    features: Float
    left: Float
    """(n,) residual over one minus leverage."""
    inverse: Float
    """(q, q) inverse Gram matrix."""
    low: float
    high: float
    free: float
    """Effective number of parameters of the mean."""

    @classmethod
    def fit(cls, x: Float, labels: Float, penalty: Float, low: float, high: float) -> NumberModel:
        """Fit to features (n, q) with intercept and labels (n,)."""
        gram = x.T @ x + np.diag(penalty)
        inverse = np.asarray(np.linalg.inv(gram), dtype=float)
        coef = inverse @ (x.T @ labels)
        share = np.einsum("ij,jk,ik->i", x, inverse, x)
        free = float(share.sum())
        share = np.minimum(share, MOST_SHARE)
        left = (labels - x @ coef) / (1.0 - share)
        scale = _log_variance(x, left)
        return cls(coef, scale, x, left, inverse, low, high, free)

    def predict(self, new: Float) -> tuple[Float, Float]:
        """Return values (m, S) and probabilities (m, S)."""
        return self._law(new @ self.coef, new)

    def left_out(self, new: Float) -> tuple[Float, Float]:
        """Return the same for features (n, q) of the coded rows, each left out of the mean."""
        reach = np.einsum("ij,jk,ik->i", new, self.inverse, self.features)
        return self._law(new @ self.coef - reach * self.left, new)

    def _law(self, mean: Float, new: Float) -> tuple[Float, Float]:
        nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
        spread = np.exp(0.5 * np.clip(new @ self.scale_coef, -50.0, 50.0))
        values = np.clip(mean[:, None] + spread[:, None] * nodes, self.low, self.high)
        return values, np.tile(weights / weights.sum(), (len(values), 1))


def _log_variance(x: Float, left: Float) -> Float:
    """Return (q,) coefficients of the log-variance: penalised normal quasi-likelihood."""
    floor = 1e-12 * max(float(np.mean(left**2)), 1e-300)
    squares = left**2 + floor
    ridge = np.full(x.shape[1], SCALE_PENALTY)
    ridge[0] = 0.0
    coef = np.zeros(x.shape[1])
    coef[0] = np.log(squares.mean())

    def objective(b: Float) -> float:
        eta = np.clip(x @ b, -60.0, 60.0)
        return float(0.5 * np.sum(squares * np.exp(-eta) + eta) + 0.5 * np.sum(ridge * b * b))

    value = objective(coef)
    information = 0.5 * x.T @ x + np.diag(ridge)
    for _ in range(MAX_STEPS):
        ratio = squares * np.exp(-np.clip(x @ coef, -60.0, 60.0))
        step = np.linalg.solve(information, 0.5 * x.T @ (1.0 - ratio) + ridge * coef)
        size = 1.0
        while objective(coef - size * step) > value and size > 1e-6:
            size /= 2
        after = objective(coef - size * step)
        if value - after < 1e-10 * (1.0 + abs(value)):
            break
        coef, value = coef - size * step, after
    return coef
