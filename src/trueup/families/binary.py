"""Regressions for 0/1 outcomes: logit, probit, and the two log-log links."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, log_ndtr, ndtr

from trueup.families.glm import LinearPredictor, check_unit
from trueup.study.design import Float

_LOG_ROOT_TWO_PI = 0.5 * np.log(2.0 * np.pi)


@dataclass(frozen=True, slots=True)
class Logit(LinearPredictor):
    r"""Logistic regression: :math:`\psi_i = x_i (y_i - \mu_i)`, :math:`\mu_i` the probability.

    The outcome may be 0/1 or a probability between them, as LLMs may give.

    Examples
    --------
    >>> import numpy as np
    >>> Logit().mean(np.array([0.0]), np.ones((1, 1)))
    array([0.5])
    """

    name: str = "logit"

    @property
    def canonical(self) -> bool:
        """Whether the Hessian is free of the outcome: it is."""
        return True

    def check_outcome(self, y: Float, variable: str) -> None:
        """Raise FitError where the outcome is outside [0, 1]."""
        check_unit(y, variable, self.name)

    def pieces(self, eta: Float, y: Float) -> tuple[Float, Float]:
        """Return the residuals and mu (1 - mu)."""
        mu = expit(eta)
        return y - mu, mu * (1.0 - mu)

    def residual(self, eta: Float, y: Float) -> Float:
        """Return the residuals, by vectorised exponentials: passes over all rows live on them."""
        mu = np.negative(eta)
        with np.errstate(over="ignore"):  # the exponential of a large number makes a mean of 0
            np.exp(mu, out=mu)
        mu += 1.0
        np.reciprocal(mu, out=mu)
        return np.subtract(y, mu, out=mu)

    def expected(self, eta: Float) -> Float:
        """Return mu (1 - mu)."""
        return np.asarray(expit(eta) * expit(-eta))

    def inverse(self, eta: Float) -> Float:
        """Return the probabilities."""
        return np.asarray(expit(eta))

    def inverse_slope(self, eta: Float) -> Float:
        """Return mu (1 - mu)."""
        return self.expected(eta)


def _mills(t: Float) -> Float:
    """Return the normal density over the distribution function, without underflow."""
    return np.asarray(np.exp(-0.5 * t * t - _LOG_ROOT_TWO_PI - log_ndtr(t)))


@dataclass(frozen=True, slots=True)
class Probit(LinearPredictor):
    r"""Probit regression, with the exact second derivative of the likelihood.

    With :math:`\lambda(t) = \varphi(t)/\Phi(t)` the score is
    :math:`\psi_i = x_i\,[y_i \lambda(\eta_i) - (1-y_i)\lambda(-\eta_i)]`.

    Examples
    --------
    >>> import numpy as np
    >>> Probit().mean(np.array([1.96]), np.ones((1, 1))).round(3)
    array([0.975])
    """

    name: str = "probit"

    def check_outcome(self, y: Float, variable: str) -> None:
        """Raise FitError where the outcome is outside [0, 1]."""
        check_unit(y, variable, self.name)

    def pieces(self, eta: Float, y: Float) -> tuple[Float, Float]:
        """Return the residuals and minus their derivatives by the linear predictor."""
        up, down = _mills(eta), _mills(-eta)
        information = y * up * (up + eta) + (1.0 - y) * down * (down - eta)
        return y * up - (1.0 - y) * down, information

    def expected(self, eta: Float) -> Float:
        """Return the expected information of each row."""
        return np.asarray(_mills(eta) * _mills(-eta))

    def inverse(self, eta: Float) -> Float:
        """Return the probabilities."""
        return np.asarray(ndtr(eta))

    def inverse_slope(self, eta: Float) -> Float:
        """Return the normal density."""
        return np.asarray(np.exp(-0.5 * eta * eta - _LOG_ROOT_TWO_PI))


@dataclass(frozen=True, slots=True)
class CLogLog(LinearPredictor):
    r"""Complementary log-log and log-log regression, without overflow or cancellation.

    With :math:`t = e^{\eta}` and :math:`q = t/(e^t - 1)` the score of the complementary
    log-log model, :math:`\mu = 1 - e^{-t}`, is :math:`\psi_i = x_i\,[y_i q_i - (1-y_i) t_i]`.
    The log-log model is the same with 0 and 1, and the sign of the predictor, exchanged.

    Examples
    --------
    >>> import numpy as np
    >>> CLogLog().mean(np.array([0.0]), np.ones((1, 1))).round(3)
    array([0.632])
    >>> CLogLog("loglog", mirrored=True).mean(np.array([0.0]), np.ones((1, 1))).round(3)
    array([0.368])
    """

    name: str = "cloglog"
    mirrored: bool = False

    @property
    def _sign(self) -> float:
        """Sign of the predictor."""
        return -1.0 if self.mirrored else 1.0

    def check_outcome(self, y: Float, variable: str) -> None:
        """Raise FitError where the outcome is outside [0, 1]."""
        check_unit(y, variable, self.name)

    def pieces(self, eta: Float, y: Float) -> tuple[Float, Float]:
        """Return the residuals and minus their derivatives by the linear predictor."""
        labels = 1.0 - y if self.mirrored else y
        with np.errstate(over="ignore", invalid="ignore"):  # too long a step: Newton backs off
            t = np.exp(self._sign * eta)
            q = t / np.expm1(t)
            residual = labels * q - (1.0 - labels) * t
            information = labels * q * (-t / np.expm1(-t) - 1.0) + (1.0 - labels) * t
        return self._sign * residual, information

    def expected(self, eta: Float) -> Float:
        """Return the expected information of each row."""
        z = self._sign * eta
        with np.errstate(over="ignore"):
            t = np.exp(z)
            return np.asarray(np.exp(2.0 * z - t) / -np.expm1(-t))

    def inverse(self, eta: Float) -> Float:
        """Return the probabilities."""
        with np.errstate(over="ignore"):
            t = np.exp(self._sign * eta)
        return np.asarray(np.exp(-t) if self.mirrored else -np.expm1(-t))

    def inverse_slope(self, eta: Float) -> Float:
        """Return the derivatives of the probabilities by the linear predictor."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(self._sign * eta - np.exp(self._sign * eta)))
