"""Poisson regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trueup.families.glm import GLM, LinearPredictor, check_count
from trueup.formula.rows import Rows
from trueup.study.design import Float


@dataclass(frozen=True, slots=True)
class Poisson(LinearPredictor):
    r"""Poisson regression with log link: :math:`\psi_i = x_i (y_i - e^{x_i'\theta})`.

    Valid for any outcome of 0 or more whose mean is log-linear, not for counts alone.

    Examples
    --------
    >>> import numpy as np
    >>> Poisson().mean(np.array([0.0]), np.ones((1, 1)))
    array([1.])
    """

    name: str = "poisson"

    @property
    def canonical(self) -> bool:
        """Whether the Hessian is free of the outcome: it is."""
        return True

    def check_outcome(self, y: Float, variable: str) -> None:
        """Raise FitError where the outcome is negative or not finite."""
        check_count(y, variable, self.name)

    def pieces(self, eta: Float, y: Float) -> tuple[Float, Float]:
        """Return the residuals and the means."""
        mu = self.inverse(eta)
        return y - mu, mu

    def residual(self, eta: Float, y: Float) -> Float:
        """Return the residuals."""
        return y - self.inverse(eta)

    def expected(self, eta: Float) -> Float:
        """Return the means."""
        return self.inverse(eta)

    def inverse(self, eta: Float) -> Float:
        """Return the means."""
        with np.errstate(over="ignore"):  # an infinite mean tells Newton that the step was too long
            return np.asarray(np.exp(eta))

    def inverse_slope(self, eta: Float) -> Float:
        """Return the means."""
        return self.inverse(eta)

    def start(self, rows: Rows, weights: Float | None) -> Float:
        """Return (p,) starting values: a few steps of reweighted least squares."""
        return GLM(self.name, "poisson", "log").start(rows, weights)
