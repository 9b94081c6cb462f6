r"""Statistics of a specification curve under the joint law of its estimates: numerics on arrays.

The law is drawn as in :mod:`trueup.inference.simultaneous`: the statistics of the estimates are
normal together, and each keeps its own t distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from trueup.errors import ArgumentError
from trueup.inference.simultaneous import (
    Single,
    correlation_root,
    equivalent_t,
    equivalent_z,
    normal_draws,
    normal_quantile,
    standard_errors,
)
from trueup.study.design import Float

#: Normal deviates at which the t statistics of draws are tabulated.
NODES = np.linspace(0.0, 8.0, 801)
#: From this many degrees of freedom on Wallace's formula is right to four digits.
MANY_DF = 100.0


@dataclass(frozen=True, slots=True)
class CurveStatistics:
    """Statistics of a specification curve and their p-values where no universe has an effect."""

    names: tuple[str, ...]
    observed: Float
    p_values: Float


@dataclass(frozen=True, slots=True)
class FlipShares:
    """Share of universes on the other side of zero, and what can be said about it."""

    share: float
    """Share of the estimates."""
    expected: float
    """Mean probability that a universe, estimated anew, is on the other side."""
    low: float
    high: float
    """Percentile band of the share in estimates drawn anew around the present ones."""
    bound_low: float
    bound_high: float
    """Simultaneous confidence bounds on the share of *limits* on the other side."""


def _t_of_draws(z: Single, df: Float, table: Float) -> Float:
    """Return :func:`equivalent_t` of many draws to about four digits.

    By interpolation where degrees of freedom are few, otherwise by Wallace's (1959) formula.
    """
    t = z.astype(float)
    many = np.flatnonzero(np.isfinite(df) & (df >= MANY_DF))
    if len(many):
        nu, part = df[many], z[:, many]
        scale = ((8.0 * nu + 3.0) / (8.0 * nu + 1.0)) ** 2 / nu
        t[:, many] = np.copysign(np.sqrt(nu * np.expm1(part**2 * scale)), part)
    for k in np.flatnonzero(df < MANY_DF):
        t[:, k] = np.interp(np.abs(z[:, k]), NODES, table[:, k]) * np.sign(z[:, k])
    return t


def curve_test(
    b: Float,
    V: Float,
    df: Float | float = np.inf,
    *,
    direction: int | None = None,
    level: float = 0.95,
    seed: int | None = None,
    draws: int | None = None,
) -> CurveStatistics:
    r"""Test that no universe has an effect, from statistics of the whole specification curve.

    The statistics are the median estimate, the share of universes with the dominant sign, the
    share that is significant with one sign, and the mean z value. Their law where every limit is
    zero is drawn from :math:`b^* \sim N(0, V)`, and
    :math:`p = (1 + \#\{T^* \ge T\})/(B + 1)`.

    Parameters
    ----------
    b : (U,) array
    V : (U, U) array
    df : float or (U,) array
    direction : {1, -1}, optional
        The sign that the effect should have (one-sided tests); None tests both.
    level : float
        An estimate is significant at ``1 - level``.
    seed : int, optional
    draws : int, optional
        B.

    References
    ----------
    Simonsohn, Simmons and Nelson (2020), Specification curve analysis.
    """
    if direction not in (None, 1, -1):
        raise ArgumentError(f"direction={direction!r} must be 1, -1 or None.")
    se = standard_errors(V)
    cut = float(-special.ndtri((1.0 - level) / 2.0))
    z = equivalent_z(b / se, df)
    observed = _curve_statistics(b[None], z[None], cut, direction)[0]
    exceed, count = np.zeros(len(observed)), 0
    # Shares are sums of equal terms: allow for their rounding when ties are counted.
    reach = observed - 1e-12 * np.abs(observed)
    nu = np.broadcast_to(np.asarray(df, dtype=float), b.shape)
    few = np.where(nu < MANY_DF, nu, np.inf)
    table = equivalent_t(np.repeat(NODES[:, None], len(b), axis=1), few)
    for drawn in normal_draws(correlation_root(V), draws, seed):
        null = _curve_statistics(_t_of_draws(drawn, nu, table) * se, drawn, cut, direction)
        exceed += (null >= reach).sum(axis=0)
        count += len(drawn)
    names = ("median", "share of dominant sign", "share significant", "mean z")
    shown = np.array([np.median(b), observed[1], observed[2], z.mean()])
    return CurveStatistics(names, shown, (1.0 + exceed) / (count + 1.0))


def _curve_statistics(b: Float, z: Float | Single, cut: float, direction: int | None) -> Float:
    """Return (m, 4) statistics of m curves, larger = further from no effect."""
    if direction is not None:
        b, z = direction * b, direction * z
    up = (b > 0).mean(axis=1)
    beyond = (z > cut).mean(axis=1)
    median, mean = np.median(b, axis=1), z.mean(axis=1)
    if direction is None:
        up = np.maximum(up, (b < 0).mean(axis=1))
        beyond = np.maximum(beyond, (z < -cut).mean(axis=1))
        median, mean = np.abs(median), np.abs(mean)
    return np.column_stack([median, up, beyond, mean])


def flip_shares(
    b: Float,
    V: Float,
    sign: Float | float,
    df: Float | float = np.inf,
    *,
    level: float = 0.95,
    seed: int | None = None,
    draws: int | None = None,
) -> FlipShares:
    r"""Share of universes whose sign differs from ``sign``, with valid bounds.

    The share of estimates jumps when an estimate near zero changes side, so a naive bootstrap
    interval for it fails. The bounds come from simultaneous intervals: the share of universes
    that lie wholly on the other side, and one minus the share wholly on the same side.

    Parameters
    ----------
    b : (U,) array
    V : (U, U) array
    sign : {1, -1}, or (U,) array of these
        The sign that each universe is compared with.
    df : float or (U,) array
    level, seed, draws

    Examples
    --------
    >>> import numpy as np
    >>> shares = flip_shares(np.array([5.0, 4.0, -6.0, 0.5]), np.eye(4), 1.0)
    >>> shares.share, shares.bound_low, shares.bound_high
    (0.25, 0.25, 0.5)
    """
    se = standard_errors(V)
    towards = b * sign
    nu = np.broadcast_to(np.asarray(df, dtype=float), b.shape)
    expected = float(special.ndtr(-equivalent_z(towards / se, nu)).mean())
    # b + s t <= 0 where the normal deviate of t is below that of -b/s: no draw needs its t.
    there = -equivalent_z(towards / se, nu)
    root = correlation_root(V)
    counts = [(z * sign <= there).mean(axis=1) for z in normal_draws(root, draws, seed)]
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(np.concatenate(counts), [tail, 1.0 - tail])
    c = normal_quantile(root, level, seed, draws)
    reach = np.abs(equivalent_t(np.full(len(b), c), nu)) * se
    return FlipShares(
        share=float((towards <= 0).mean()),
        expected=expected,
        low=float(low),
        high=float(high),
        bound_low=float((towards + reach < 0).mean()),
        bound_high=float(1.0 - (towards - reach > 0).mean()),
    )
