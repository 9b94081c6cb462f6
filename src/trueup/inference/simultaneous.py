r"""Joint inference on many estimates with a known covariance: numerics on arrays.

The estimates ``b`` (U,) have the covariance ``V`` (U, U) and are, to first order, jointly normal.
Where an estimate has finite degrees of freedom, its statistic keeps its own t distribution and
takes from the joint law only how the statistics depend on each other (a Gaussian copula). One
estimate alone then has its usual t interval, and estimates with many degrees of freedom are not
widened by others that have few.

Probabilities of a maximum are means over random directions: with ``r`` the rank of V,
:math:`Z = R\,A u`, where ``u`` is uniform on the sphere and :math:`R^2\sim\chi^2_r` is integrated
exactly, so one estimate, or perfectly correlated ones, need no draws at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from trueup.errors import FitError
from trueup.study.design import Float

#: Draws of the joint law: the most, the fewest, and how many numbers are drawn in between.
MOST_DRAWS, FEWEST_DRAWS, NUMBERS = 20_000, 5_000, 5_000_000
#: Numbers held at a time while drawing.
CHUNK = 2_000_000
#: Eigenvalues of a correlation matrix below this share of the largest are rounding error.
RANK_TOLERANCE = 1e-12
#: Standard errors below this share of the largest are rounding error: of an LLM, say, whose
#: labels are a linear combination of the covariates.
ROUNDING = 1e-8
#: Correlations below this are taken as zero.
UNCORRELATED = 1e-12


Single = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Wald:
    """A test that linear combinations of estimates are zero."""

    statistic: float
    """Chi-squared where ``df_denom`` is infinite, otherwise F; NaN where there is no test."""
    df: int
    """Number of independent combinations."""
    df_denom: float
    p_value: float

    @property
    def distribution(self) -> str:
        """Reference distribution, e.g. ``"F(2, 45.3)"`` or ``"chi2(2)"``."""
        if np.isinf(self.df_denom):
            return f"chi2({self.df})"
        return f"F({self.df}, {self.df_denom:.4g})"


def moving(V: Float) -> NDArray[np.bool_]:
    """Return (U,) which estimates have a sampling variance beyond rounding error."""
    variance = np.diag(V)
    return np.asarray(variance > ROUNDING**2 * np.max(variance, initial=0.0))


def standard_errors(V: Float) -> Float:
    """Return the (U,) standard errors.

    Raises
    ------
    FitError
        If an estimate has no sampling variance.
    """
    variance = np.diag(V)
    if not np.all(variance > 0):
        bad = np.flatnonzero(~(variance > 0)).tolist()
        raise FitError(
            f"Estimates at positions {bad[:5]} have no sampling variance, so nothing can be said "
            "about them jointly with others: leave them out."
        )
    return np.asarray(np.sqrt(variance))


def correlation_root(V: Float) -> Float:
    """Return A (U, r) of full column rank whose rows have length one, A A' the correlation."""
    se = standard_errors(V)
    values, vectors = np.linalg.eigh(V / np.outer(se, se))
    keep = values > RANK_TOLERANCE * values[-1]
    root = vectors[:, keep] * np.sqrt(values[keep])
    return np.asarray(root / np.linalg.norm(root, axis=1, keepdims=True))


def equivalent_z(t: Float, df: Float | float) -> Float:
    """Return the normal deviates that have the same p-values as t statistics."""
    nu = np.broadcast_to(np.asarray(df, dtype=float), np.shape(t))
    z = np.array(t, dtype=float)
    finite = np.isfinite(nu)
    z[finite] = -special.ndtri(special.stdtr(nu[finite], -np.abs(z[finite]))) * np.sign(z[finite])
    return z


def equivalent_t(z: Float, df: Float | float) -> Float:
    """Return the t statistics that have the same p-values as normal deviates (last axis: U)."""
    nu = np.broadcast_to(np.asarray(df, dtype=float), np.shape(z)[-1:])
    t = np.array(z, dtype=float)
    for k in np.flatnonzero(np.isfinite(nu)):
        # From the lower tail, where probabilities keep their digits.
        lower = special.stdtrit(nu[k], special.ndtr(-np.abs(t[..., k])))
        t[..., k] = -lower * np.sign(t[..., k])
    return t


def max_t_quantile(
    V: Float,
    level: float = 0.95,
    df: Float | float = np.inf,
    *,
    seed: int | None = None,
    draws: int | None = None,
) -> Float:
    r"""Critical values of simultaneous (sup-t) confidence intervals.

    Intervals :math:`b_u \pm c_u s_u` cover all U limits at once with probability ``level``:
    :math:`P(\max_u |Z_u| \le c) = ` level for Z normal with the correlation of V, and
    :math:`c_u` the t quantile at the same pointwise level as c.

    Parameters
    ----------
    V : (U, U) array
    level : float
    df : float or (U,) array
        Degrees of freedom of each estimate; infinite = normal.
    seed : int, optional
    draws : int, optional
        Default: 20,000, fewer for hundreds of estimates.

    Returns
    -------
    (U,) array

    Examples
    --------
    >>> import numpy as np
    >>> max_t_quantile(np.ones((3, 3))).round(3)
    array([1.96, 1.96, 1.96])
    >>> max_t_quantile(np.eye(3)).round(3)
    array([2.388, 2.388, 2.388])

    References
    ----------
    Montiel Olea and Plagborg-Møller (2019), Simultaneous confidence bands: theory,
    implementation, and an application to SVARs.
    """
    U = len(V)
    c = normal_quantile(correlation_root(V), level, seed, draws)
    return np.abs(equivalent_t(np.full(U, c), df))


def normal_quantile(root: Float, level: float, seed: int | None, draws: int | None) -> float:
    """Return the quantile of the largest of |Z|, Z normal with correlation ``root @ root.T``."""
    U, rank = root.shape
    lowest = float(-special.ndtri((1.0 - level) / 2.0))
    # By Sidak's inequality dependence only ever narrows the intervals of independent estimates.
    highest = float(-special.ndtri(-np.expm1(np.log(level) / U) / 2.0))
    if rank == 1:
        return lowest
    if rank == U and np.all(np.abs(root @ root.T - np.eye(U)) < UNCORRELATED):
        return highest
    parts = [part.max(axis=1) for part in _directions(root, draws, seed)]
    maxima = np.concatenate(parts).astype(float)

    def excess(c: float) -> float:
        return float(special.chdtr(rank, (c / maxima) ** 2).mean()) - level

    if excess(lowest) >= 0.0:
        return lowest
    if excess(highest) <= 0.0:
        return highest
    from scipy.optimize import brentq  # slow to import

    return float(brentq(excess, lowest, highest, xtol=1e-10))


def normal_draws(root: Float, draws: int | None, seed: int | None) -> Iterator[Single]:
    """Yield (m, U) draws from the normal law with the correlation ``root @ root.T``.

    Single precision: its rounding is far below the error of any number of draws.
    """
    for z in _standard_normal(root, draws, seed):
        yield z @ root.T.astype(np.float32)


def _directions(root: Float, draws: int | None, seed: int | None) -> Iterator[Single]:
    """Yield (m, U) absolute values of ``root @ u`` for u uniform on the unit sphere."""
    for u in _standard_normal(root, draws, seed):
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        yield np.abs(u @ root.T.astype(np.float32))


def _standard_normal(root: Float, draws: int | None, seed: int | None) -> Iterator[Single]:
    rng = np.random.default_rng(seed)
    U, rank = root.shape
    total = _default_draws(U) if draws is None else draws
    step = max(1, CHUNK // U)
    for start in range(0, total, step):
        yield rng.standard_normal((min(step, total - start), rank), dtype=np.float32)


def _default_draws(U: int) -> int:
    return min(max(NUMBERS // U, FEWEST_DRAWS), MOST_DRAWS)


def max_t_p_value(
    t: Float,
    V: Float,
    df: Float | float = np.inf,
    *,
    seed: int | None = None,
    draws: int | None = None,
) -> float:
    r"""P-value of the largest of many statistics, :math:`P(\max_u |Z_u| \ge \max_u |t_u|)`.

    It is the smallest of the step-down p-values, at a fraction of their cost.

    Parameters
    ----------
    t : (U,) array
        Estimates over standard errors.
    V : (U, U) array
        Their covariance; only correlations matter.
    df : float or (U,) array
        Each statistic counts by its own pointwise p-value.
    seed : int, optional
    draws : int, optional

    Returns
    -------
    float, never below the least pointwise p-value or above Bonferroni's

    Examples
    --------
    >>> import numpy as np
    >>> round(max_t_p_value(np.array([2.5, 1.0]), np.ones((2, 2))), 4)
    0.0124
    """
    z = float(np.abs(equivalent_z(t, df)).max())
    root = correlation_root(V)
    U, rank = root.shape
    maxima = np.concatenate([part.max(axis=1) for part in _directions(root, draws, seed)])
    pointwise = 2.0 * float(special.ndtr(-z))
    tail = float(special.chdtrc(rank, (z / maxima.astype(float)) ** 2).mean())
    return float(min(max(tail, pointwise), U * pointwise, 1.0))


def step_down(
    t: Float,
    V: Float,
    df: Float | float = np.inf,
    *,
    seed: int | None = None,
    draws: int | None = None,
) -> Float:
    r"""Romano-Wolf p-values, adjusted for looking at all universes.

    With the statistics sorted by size,
    :math:`p_{(j)} = \max(p_{(j-1)}, P(\max_{k\ge j}|Z_{(k)}| \ge |t_{(j)}|))`: the chance of
    one or more false rejections among all universes is controlled.

    Parameters
    ----------
    t : (U,) array
        Estimates over standard errors.
    V : (U, U) array
        Their covariance; only correlations matter.
    df : float or (U,) array
    seed : int, optional
    draws : int, optional

    Returns
    -------
    (U,) array, never below the pointwise p-value or above Bonferroni's

    Examples
    --------
    >>> import numpy as np
    >>> step_down(np.array([2.5, 1.0]), np.ones((2, 2))).round(4)
    array([0.0124, 0.3173])

    References
    ----------
    Romano and Wolf (2005), Stepwise multiple testing as formalized data snooping.
    """
    z = np.abs(equivalent_z(t, df))
    order = np.argsort(-z, kind="stable")
    root = correlation_root(V)[order]
    U, rank = root.shape
    tail, count = np.zeros(U), 0
    for part in _directions(root, draws, seed):
        rest = np.maximum.accumulate(part[:, ::-1], axis=1)[:, ::-1]
        tail += special.chdtrc(rank, (z[order] / rest) ** 2).sum(axis=0)
        count += len(part)
    pointwise = 2.0 * special.ndtr(-z[order])
    most = np.minimum(pointwise * np.arange(U, 0, -1), 1.0)
    p = np.maximum.accumulate(np.clip(tail / count, pointwise, most))
    out = np.empty(U)
    out[order] = p
    return out


def equality_test(
    b: Float,
    V: Float,
    L: Float,
    df: float = np.inf,
    *,
    tolerance: float = 1e-10,
) -> Wald:
    r"""Test that L b has the limit zero: :math:`W = (Lb)'(LVL')^+(Lb)`.

    Combinations whose variance is at most ``tolerance`` times the largest variance in V count as
    having none and are left out; the result does not depend on how L spans its row space.

    Parameters
    ----------
    b : (U,) array
    V : (U, U) array
    L : (q, U) array
    df : float
        Degrees of freedom of V; finite gives Hotelling's test, W (df-q+1)/(df q) against
        F(q, df-q+1), infinite gives chi-squared(q), q the rank.
    tolerance : float

    Returns
    -------
    Wald
        Statistic and p-value are NaN where no combination has a variance, or where there are as
        many combinations as degrees of freedom.

    Examples
    --------
    >>> import numpy as np
    >>> V = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> test = equality_test(np.array([2.0, 0.5]), V, np.array([[1.0, -1.0]]))
    >>> round(test.statistic, 6)  # z squared
    2.25
    """
    _, s, rows = np.linalg.svd(L, full_matrices=False)
    rows = rows[s > RANK_TOLERANCE * s.max(initial=0.0)]
    values, vectors = np.linalg.eigh(rows @ V @ rows.T)
    large = values > tolerance * float(np.max(np.diag(V), initial=0.0))
    q = int(large.sum())
    if q == 0 or df - q + 1 <= 0:
        return Wald(np.nan, q, np.inf if q == 0 else float(df - q + 1), np.nan)
    z = vectors[:, large].T @ (rows @ b)
    W = float((z**2 / values[large]).sum())
    if np.isinf(df):
        return Wald(W, q, np.inf, float(special.chdtrc(q, W)))
    rest = float(df - q + 1)
    F = W * rest / (df * q)
    return Wald(F, q, rest, float(special.fdtrc(q, rest, F)))


def pool_fixed(b: Float, V: Float, w: Float) -> tuple[float, float]:
    """Return the weighted mean w'b and its standard error, sqrt(w'Vw); weights sum to one."""
    return float(w @ b), float(np.sqrt(max(float(w @ V @ w), 0.0)))


def pool_minimum_variance(b: Float, V: Float, shrink: float = 0.0) -> tuple[float, float, Float]:
    r"""Return the weighted mean of least variance, its standard error, and its weights.

    :math:`w = V_a^+ 1 / (1'V_a^+ 1)` with :math:`V_a = (1-a) V + a\,\mathrm{diag}(V)`; the
    standard error is :math:`\sqrt{w'Vw}`.

    Parameters
    ----------
    b : (U,) array
    V : (U, U) array
    shrink : float in [0, 1]
        a: how far covariances, which are estimated, are shrunk before weights are made of them.
        At 1 the weights are inverse variances.
    """
    shrunk = (1.0 - shrink) * V + shrink * np.diag(np.diag(V))
    raw = np.linalg.pinv(shrunk, rcond=1e-10, hermitian=True).sum(axis=1)
    w = raw / raw.sum()
    return (*pool_fixed(b, V, w), w)
