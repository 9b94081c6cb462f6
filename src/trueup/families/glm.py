r"""Generalised linear models: scores that are a covariate vector times a residual.

Every family here has the score :math:`\psi_i = x_i\, r(\eta_i, y_i)` with the linear predictor
:math:`\eta_i = x_i'\theta`. What differs between them is the residual :math:`r` and its slope.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import FitError, SeparationError
from trueup.formula.rows import Rows
from trueup.study.design import Float, Int

#: Reweighted least squares steps before Newton takes over. They use the expected information,
#: which is positive where the observed one of a non-canonical link need not be.
START_STEPS = 4


def weighted(values: Float, weights: Float | None) -> Float:
    """Return ``values * weights``, or ``values`` where there are no weights."""
    return values if weights is None else values * weights


def weighted_gram(X: Float, weights: Float) -> Float:
    """Return the (p, p) matrix X' diag(weights) X."""
    return np.asarray(X.T @ (X * weights[:, None]))


def refuse(y: Float, bad: NDArray[np.bool_], variable: str, need: str) -> None:
    """Raise where the outcome has values that a family forbids.

    Parameters
    ----------
    y : (m,) array
    bad : (m,) array of bool
        The values that cannot be used.
    variable : str
        Name of the outcome.
    need : str
        What the family needs and how to get there.

    Raises
    ------
    FitError
        If any value is bad; the message shows some of them.
    """
    if not bad.any():
        return
    shown = ", ".join(f"{value:g}" for value in np.unique(y[bad])[:3])
    raise FitError(
        f"'{variable}' has {int(bad.sum())} value(s) that cannot be used ({shown}): {need}"
    )


def _quiet() -> np.errstate:
    """Return a context for sums over rows: infinite means tell Newton of too long a step."""
    return np.errstate(over="ignore", invalid="ignore")


class LinearPredictor:
    """What all families with the score ``x * residual(x'theta, y)`` have in common.

    A family supplies ``pieces``, ``expected``, ``inverse`` and ``inverse_slope``; all are
    functions of the (m,) linear predictor and return (m,) arrays.
    """

    __slots__ = ()

    @property
    def linear(self) -> bool:
        """Whether the score is affine in theta."""
        return False

    @property
    def outcome_linear(self) -> bool:
        """Whether the score is affine in the outcome: so for every quasi-score."""
        return True

    @property
    def canonical(self) -> bool:
        """Whether the Hessian is free of the outcome."""
        return False

    def pieces(self, eta: Float, y: Float) -> tuple[Float, Float]:
        """Return the residuals and minus their derivatives by the linear predictor."""
        raise NotImplementedError

    def residual(self, eta: Float, y: Float) -> Float:
        """Return the residuals alone; arrays of any shape, such as (K, m) for K outcomes."""
        return self.pieces(eta, y)[0]

    def expected(self, eta: Float) -> Float:
        """Return minus the derivatives of the residuals, expected under the model."""
        raise NotImplementedError

    def inverse(self, eta: Float) -> Float:
        """Return the means."""
        raise NotImplementedError

    def inverse_slope(self, eta: Float) -> Float:
        """Return the derivatives of the means by the linear predictor."""
        raise NotImplementedError

    def start(self, rows: Rows, weights: Float | None) -> Float:
        """Return (p,) starting values for Newton: zeros."""
        return np.zeros(rows.n_coef)

    def prepare(self, rows: Rows, weights: Float | None) -> Rows:
        """Return the rows as they are: there is nothing to estimate beside theta."""
        return rows

    def prepare_pair(
        self,
        every: Rows,
        human: Rows,
        machine: Rows,
        coded: Int,
        correction_weights: Float,
        weights: Float | None,
    ) -> tuple[Rows, Rows, Rows]:
        """Return the rows as they are: there is nothing to estimate beside theta."""
        return every, human, machine

    def score(self, theta: Float, rows: Rows) -> Float:
        """Return (m, p) scores, unweighted."""
        residual, _ = self.pieces(rows.X @ theta, rows.y)
        return np.asarray(rows.X * residual[:, None])

    def score_sum(self, theta: Float, rows: Rows, weights: Float | None) -> Float:
        """Return the (p,) weighted sum of scores."""
        residual, _ = self.pieces(rows.X @ theta, rows.y)
        with _quiet():
            return np.asarray(rows.X.T @ weighted(residual, weights))

    def hessian_sum(self, theta: Float, rows: Rows, weights: Float | None) -> Float:
        """Return the (p, p) weighted sum of minus the derivatives of the scores."""
        _, information = self.pieces(rows.X @ theta, rows.y)
        with _quiet():
            return weighted_gram(rows.X, weighted(information, weights))

    def sums(self, theta: Float, rows: Rows, weights: Float | None) -> tuple[Float, Float]:
        """Return ``score_sum`` and ``hessian_sum`` from one pass over the rows."""
        residual, information = self.pieces(rows.X @ theta, rows.y)
        with _quiet():
            score = rows.X.T @ weighted(residual, weights)
            return score, weighted_gram(rows.X, weighted(information, weights))

    def leverage(self, theta: Float, rows: Rows, weights: Float) -> Float:
        """Return (m,) hat values of the weighted fit, by the expected information."""
        information = self.expected(rows.X @ theta) * weights
        try:
            inverse = np.linalg.inv(weighted_gram(rows.X, information))
        except np.linalg.LinAlgError:
            raise SeparationError(
                "The outcome of the coded rows is predicted perfectly at the solution, so that "
                "they say nothing about its standard errors. Drop or merge columns or levels, "
                'code more rows, or use a fit that exists: tu.PTD(human_fit="one-step"), or '
                'human_fit="firth" for a logit.'
            ) from None
        hat = np.einsum("ij,jk,ik->i", rows.X, inverse, rows.X, optimize=True) * information
        return np.asarray(np.clip(hat, 0.0, 1.0))

    def mean(self, theta: Float, X: Float) -> Float:
        """Return (m,) fitted means on the outcome scale."""
        return self.inverse(X @ theta)

    def mean_gradient(self, theta: Float, X: Float) -> Float:
        """Return (m, p) derivatives of the fitted means with respect to theta."""
        return np.asarray(X * self.inverse_slope(X @ theta)[:, None])


#: Statsmodels classes by the names users write.
FAMILIES = {
    "gaussian": "Gaussian",
    "binomial": "Binomial",
    "poisson": "Poisson",
    "gamma": "Gamma",
    "inverse_gaussian": "InverseGaussian",
    "negative_binomial": "NegativeBinomial",
}
LINKS = {
    "identity": "Identity",
    "log": "Log",
    "logit": "Logit",
    "probit": "Probit",
    "cloglog": "CLogLog",
    "loglog": "LogLog",
    "cauchy": "Cauchy",
    "sqrt": "Sqrt",
    "inverse": "InversePower",
    "inverse_squared": "InverseSquared",
}
DEFAULT_LINKS = {
    "gaussian": "identity",
    "binomial": "logit",
    "poisson": "log",
    "gamma": "inverse",
    "inverse_gaussian": "inverse_squared",
    "negative_binomial": "log",
}
_UNIT_FAMILIES = ("binomial",)
_POSITIVE_FAMILIES = ("poisson", "gamma", "inverse_gaussian", "negative_binomial")
_UNIT_LINKS = ("logit", "probit", "cloglog", "loglog", "cauchy")
_POSITIVE_LINKS = ("log", "sqrt", "inverse_squared")


@lru_cache(maxsize=64)
def _parts(family: str, link: str, alpha: float) -> tuple[Any, Any]:
    """Return the variance function and the link of statsmodels."""
    from statsmodels.genmod import families

    cls = getattr(families, FAMILIES[family])
    the_link = getattr(families.links, LINKS[link])()
    if family == "negative_binomial":
        return cls(alpha=alpha).variance, the_link
    return cls().variance, the_link


def allowed_links(family: str) -> tuple[str, ...]:
    """Return the names of the links that statsmodels accepts for a family.

    Examples
    --------
    >>> allowed_links("poisson")
    ('identity', 'log', 'sqrt')
    """
    from statsmodels.genmod import families

    accepted = tuple(getattr(families, FAMILIES[family]).links)
    return tuple(
        name for name, cls in LINKS.items() if issubclass(getattr(families.links, cls), accepted)
    )


@dataclass(frozen=True, slots=True)
class GLM(LinearPredictor):
    r"""Any generalised linear model that statsmodels knows.

    The score of one row is

    .. math:: \psi_i = x_i\,(y_i - \mu_i)\,\frac{d\mu_i/d\eta_i}{V(\mu_i)},
       \qquad \mu_i = g^{-1}(x_i'\theta)

    with the variance function V and the link g taken from statsmodels. The Hessian is the exact
    derivative (observed information); only for a canonical link is it free of the outcome.

    Parameters
    ----------
    name : str
        Name shown to users.
    family : str
        ``"gaussian"``, ``"binomial"``, ``"poisson"``, ``"gamma"``, ``"inverse_gaussian"`` or
        ``"negative_binomial"``.
    link : str
        ``"identity"``, ``"log"``, ``"logit"``, ``"probit"``, ``"cloglog"``, ``"loglog"``,
        ``"cauchy"``, ``"sqrt"``, ``"inverse"`` or ``"inverse_squared"``.
    alpha : float
        Dispersion of the negative binomial, taken as known: V = mu + alpha mu^2.

    Examples
    --------
    >>> import numpy as np
    >>> from trueup.formula.rows import Rows
    >>> rows = Rows(y=np.array([0.0, 1.0, 1.0]), X=np.ones((3, 1)))
    >>> GLM("cloglog", "binomial", "cloglog").mean(np.array([0.0]), rows.X).round(3)
    array([0.632, 0.632, 0.632])

    References
    ----------
    McCullagh and Nelder (1989), Generalized Linear Models, 2nd edition.
    """

    name: str
    family: str
    link: str
    alpha: float = 1.0

    @property
    def canonical(self) -> bool:
        """Whether the Hessian is free of the outcome: it is with the family's own link."""
        return self.family != "negative_binomial" and self.link == DEFAULT_LINKS[self.family]

    @property
    def _bounds(self) -> tuple[float, float]:
        """Open interval that the mean must stay in."""
        if self.family in _UNIT_FAMILIES or self.link in _UNIT_LINKS:
            return 0.0, 1.0
        positive = self.family in _POSITIVE_FAMILIES or self.link in _POSITIVE_LINKS
        return (0.0 if positive else -np.inf), np.inf

    def check_outcome(self, y: Float, variable: str) -> None:
        """Raise FitError where the outcome has values the family forbids."""
        refuse(y, ~np.isfinite(y), variable, "fill or remove missing and infinite values.")
        if self.family == "binomial":
            check_unit(y, variable, self.name)
        elif self.family in ("gamma", "inverse_gaussian"):
            need = f"family {self.family} needs values above 0. Try another family."
            refuse(y, y <= 0, variable, need)
        elif self.family in ("poisson", "negative_binomial"):
            check_count(y, variable, self.name)

    def _means(self, eta: Float) -> tuple[Float, Float]:
        """Return the means, NaN outside their bounds, and their derivatives."""
        _, link = _parts(self.family, self.link, self.alpha)
        low, high = self._bounds
        with np.errstate(all="ignore"):  # values out of bounds become NaN, which Newton backs off
            mu, slope = link.inverse(eta), link.inverse_deriv(eta)
            # A probability that rounds to 0 or 1 is kept: it is a value, not a wrong step.
            outside = (mu < low) | (mu > high) if high == 1.0 else (mu <= low) | (mu >= high)
            return np.where(outside, np.nan, mu), slope

    def pieces(self, eta: Float, y: Float) -> tuple[Float, Float]:
        """Return the residuals and minus their derivatives by the linear predictor."""
        variance, link = _parts(self.family, self.link, self.alpha)
        mu, slope = self._means(eta)
        with np.errstate(all="ignore"):
            v, dv = variance(mu), variance.deriv(mu)
            factor = slope / v
            bend = link.inverse_deriv2(eta) / v - factor * factor * dv
            return (y - mu) * factor, slope * factor - (y - mu) * bend

    def expected(self, eta: Float) -> Float:
        """Return the expected information of each row."""
        mu, slope = self._means(eta)
        variance, _ = _parts(self.family, self.link, self.alpha)
        return np.asarray(slope * slope / variance(mu))

    def inverse(self, eta: Float) -> Float:
        """Return the means, NaN where the linear predictor has none."""
        return self._means(eta)[0]

    def inverse_slope(self, eta: Float) -> Float:
        """Return the derivatives of the means by the linear predictor."""
        return self._means(eta)[1]

    def start(self, rows: Rows, weights: Float | None) -> Float:
        """Return (p,) starting values: a few steps of reweighted least squares."""
        _, link = _parts(self.family, self.link, self.alpha)
        centre = float(np.average(rows.y, weights=weights))
        eta = np.asarray(link(self._first_means(rows.y, centre)))
        constant = np.full(len(rows), float(link(self._first_means(np.array([centre]), centre))[0]))
        gram = weighted_gram(rows.X, np.ones(len(rows)) if weights is None else weights)
        if not (np.isfinite(gram).all() and np.isfinite(centre)):
            return np.zeros(rows.n_coef)  # the solver finds out which values are to blame
        target = rows.X.T @ weighted(constant, weights)
        theta = np.asarray(np.linalg.lstsq(gram, target, rcond=None)[0])
        for _ in range(START_STEPS):
            step = self._reweighted(eta, rows, weights)
            if not np.isfinite(step).all() or not np.isfinite(self.inverse(rows.X @ step)).all():
                break
            theta, eta = step, rows.X @ step
        return theta

    def _first_means(self, y: Float, centre: float) -> Float:
        """Return means between the outcome and its centre, inside the bounds."""
        low, high = self._bounds
        if high == 1.0:
            return np.asarray((np.clip(y, 0.0, 1.0) + 0.5) / 2.0)
        mu = (y + centre) / 2.0
        inside = centre if centre > low else 1.0
        return np.where(mu > low, mu, inside)

    def _reweighted(self, eta: Float, rows: Rows, weights: Float | None) -> Float:
        """Return one step of iteratively reweighted least squares."""
        mu, slope = self._means(eta)
        with np.errstate(all="ignore"):
            importance = weighted(self.expected(eta), weights)
            working = eta + (rows.y - mu) / slope
        gram, target = weighted_gram(rows.X, importance), rows.X.T @ (importance * working)
        if not (np.isfinite(gram).all() and np.isfinite(target).all()):
            return np.full(rows.n_coef, np.nan)
        return np.asarray(np.linalg.lstsq(gram, target, rcond=None)[0])


def check_unit(y: Float, variable: str, name: str) -> None:
    """Raise FitError unless all values are finite and within [0, 1]."""
    need = (
        f"{name} needs 0 and 1 (or probabilities between them, as LLMs may give). "
        "Recode the labels, or use tu.ols."
    )
    refuse(y, ~((y >= 0) & (y <= 1)), variable, need)


def check_count(y: Float, variable: str, name: str) -> None:
    """Raise FitError unless all values are finite and not negative."""
    need = f"{name} needs finite values of 0 or more. Recode the labels, or use tu.ols."
    refuse(y, ~((y >= 0) & np.isfinite(y)), variable, need)
