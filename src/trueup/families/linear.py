"""Ordinary least squares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trueup.families.glm import LinearPredictor, refuse, weighted, weighted_gram
from trueup.formula.rows import Rows
from trueup.study.design import Float


@dataclass(frozen=True, slots=True)
class OLS(LinearPredictor):
    r"""Least squares: the score of one row is :math:`\psi_i = x_i (y_i - x_i'\theta)`.

    Examples
    --------
    >>> import numpy as np
    >>> from trueup.formula.rows import Rows
    >>> rows = Rows(y=np.array([1.0, 3.0]), X=np.ones((2, 1)))
    >>> OLS().score_sum(np.array([2.0]), rows, None)
    array([0.])
    """

    name: str = "ols"

    @property
    def canonical(self) -> bool:
        """Whether the Hessian is free of the outcome: it is."""
        return True

    @property
    def linear(self) -> bool:
        """Whether the score is affine in theta: it is."""
        return True

    def check_outcome(self, y: Float, variable: str) -> None:
        """Raise FitError where the outcome is missing or infinite."""
        refuse(y, ~np.isfinite(y), variable, "fill or remove missing and infinite values.")

    def pieces(self, eta: Float, y: Float) -> tuple[Float, Float]:
        """Return the residuals and ones."""
        return y - eta, np.ones_like(eta)

    def residual(self, eta: Float, y: Float) -> Float:
        """Return the residuals."""
        return y - eta

    def expected(self, eta: Float) -> Float:
        """Return ones."""
        return np.ones_like(eta)

    def inverse(self, eta: Float) -> Float:
        """Return the linear predictor."""
        return eta

    def inverse_slope(self, eta: Float) -> Float:
        """Return ones."""
        return np.ones_like(eta)

    def score_sum(self, theta: Float, rows: Rows, weights: Float | None) -> Float:
        """Return the (p,) weighted sum of scores."""
        # At zero, where a linear solve starts, the product X theta would cost a pass for nothing.
        residual = rows.y - rows.X @ theta if theta.any() else rows.y
        return np.asarray(rows.X.T @ weighted(residual, weights))

    def hessian_sum(self, theta: Float, rows: Rows, weights: Float | None) -> Float:
        """Return the (p, p) matrix X' diag(weights) X."""
        if weights is None:
            return np.asarray(rows.X.T @ rows.X)
        return weighted_gram(rows.X, weights)

    def sums(self, theta: Float, rows: Rows, weights: Float | None) -> tuple[Float, Float]:
        """Return ``score_sum`` and ``hessian_sum``."""
        return self.score_sum(theta, rows, weights), self.hessian_sum(theta, rows, weights)
