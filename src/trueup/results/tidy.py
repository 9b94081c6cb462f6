"""Coefficients, standard errors, tests and intervals as arrays and as data frames."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from scipy import special

from trueup.corrections.base import Correction, Estimate
from trueup.errors import ArgumentError, FitError
from trueup.study.design import Float

if TYPE_CHECKING:
    from trueup.results.fit import Fit

Names = Literal["snake", "broom"]

#: A variance below this share of the largest one is zero up to rounding.
_ROUNDING = 1e-12

_BROOM = {
    "std_error": "std.error",
    "p_value": "p.value",
    "conf_low": "conf.low",
    "conf_high": "conf.high",
}


def check_level(level: float) -> float:
    """Return the level of an interval as a float.

    Raises
    ------
    ArgumentError
        If it is not a number strictly between 0 and 1.
    """
    if isinstance(level, bool) or not isinstance(level, Real) or not 0 < float(level) < 1:
        percent = isinstance(level, Real) and 1 < float(level) < 100
        hint = f": write level={float(level) / 100:g}" if percent else ", such as level=0.95"
        raise ArgumentError(f"level={level!r} cannot be used: give a number between 0 and 1{hint}.")
    return float(level)


def standard_errors(vcov: Float, terms: Sequence[str]) -> Float:
    """Return the square roots of the diagonal of a covariance.

    Parameters
    ----------
    vcov : (p, p) array
    terms : sequence of p str

    Returns
    -------
    (p,) array

    Raises
    ------
    FitError
        If a variance is negative or not finite.
    """
    variance = np.diag(vcov)
    least = -_ROUNDING * np.max(np.abs(variance), initial=0.0)
    bad = np.flatnonzero(~(np.isfinite(variance) & (variance >= least)))
    if len(bad):
        named = ", ".join(f"{terms[j]!r} ({variance[j]:.3g})" for j in bad[:5])
        raise FitError(
            f"The variance of {named} is negative or not finite, so that there is no standard "
            "error: too few coded rows or clusters carry it. Code more rows, or leave the term "
            "out."
        )
    return np.sqrt(np.maximum(variance, 0.0))


def p_values(statistic: Float, df: Float) -> Float:
    """Return two-sided p-values of t statistics; a df of infinity means normal."""
    # scipy.special, because scipy.stats takes a second to import. The lower tail at -|t| is the
    # upper tail, computed without 1 - cdf.
    lower = -np.abs(statistic)
    normal = np.isinf(df)
    t = special.stdtr(np.where(normal, 1.0, df), lower)
    return np.asarray(2.0 * np.where(normal, special.ndtr(lower), t))


def quantiles(level: float, df: Float) -> Float:
    """Return the half-width of a two-sided interval in standard errors, by coefficient."""
    tail = (1.0 - level) / 2.0
    normal = np.isinf(df)
    t = special.stdtrit(np.where(normal, 1.0, df), tail)
    return np.asarray(-np.where(normal, special.ndtri(tail), t))


def coefficient_table(
    theta: Float, vcov: Float, df: Float, terms: Sequence[str], level: float
) -> pd.DataFrame:
    """Return one row for each coefficient: estimate, standard error, test against 0, interval.

    Parameters
    ----------
    theta : (p,) array
    vcov : (p, p) array
    df : (p,) array
        Degrees of freedom of the t distribution; infinity = normal.
    terms : sequence of p str
    level : float

    Returns
    -------
    pandas.DataFrame
        Columns term, estimate, std_error, statistic, p_value, conf_low, conf_high, df.

    Examples
    --------
    >>> import numpy as np
    >>> theta, vcov, df = np.array([1.0]), np.array([[0.25]]), np.array([np.inf])
    >>> table = coefficient_table(theta, vcov, df, ["x"], level=0.95)
    >>> table.loc[0, ["statistic", "conf_low", "conf_high"]].astype(float).round(2).tolist()
    [2.0, 0.02, 1.98]
    """
    se = standard_errors(vcov, terms)
    # A standard error of exactly 0 gives an infinite statistic, which is what it means.
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = theta / se
    half = quantiles(check_level(level), df) * se
    return pd.DataFrame(
        {
            "term": list(terms),
            "estimate": theta,
            "std_error": se,
            "statistic": statistic,
            "p_value": p_values(statistic, df),
            "conf_low": theta - half,
            "conf_high": theta + half,
            "df": df,
        }
    )


def tidy(fit: Fit, level: float | None = None, names: Names = "snake") -> pd.DataFrame:
    """Return the coefficients as a data frame (see :meth:`Fit.tidy`)."""
    if names not in ("snake", "broom"):
        raise ArgumentError(f'names={names!r} is unknown: use "snake" or "broom".')
    e = fit.estimate
    level = fit.level if level is None else level
    table = coefficient_table(e.theta, e.vcov, e.df, fit.terms, level)
    return table.rename(columns=_BROOM) if names == "broom" else table


def applied_correction(fit: Fit) -> Correction:
    """Return the correction that was computed: what ``"auto"`` chose, where it chose."""
    chosen: Correction = fit.estimate.extra.get("chosen", fit.correction)
    return chosen


def slopes(terms: Sequence[str]) -> list[int]:
    """Return positions of the terms that are no intercept; all where there is nothing else."""
    others = [j for j, term in enumerate(terms) if term != "Intercept"]
    return others or list(range(len(terms)))


def effective_n(estimate: Estimate, n_coded: int) -> Float | None:
    r"""Return how many human labels alone would give each standard error.

    :math:`n\,V_{jj}(\text{human only}) / V_{jj}`: with the LLM's help the coded rows are worth
    that many.

    Returns
    -------
    (p,) array, or None where there is no human-only covariance to compare with
    """
    if estimate.vcov_human is None:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.diag(estimate.vcov_human) / np.diag(estimate.vcov)
    return np.asarray(n_coded * ratio)


def tuning_label(tuning: Float | None) -> float | str | None:
    """Return the tuning as a number, or its size where it has several."""
    if tuning is None:
        return None
    array = np.asarray(tuning)
    if array.size == 1:
        return float(array.item())
    return " x ".join(str(k) for k in array.shape)


def n_labelled(fit: Fit) -> int:
    """Return the number of rows whose LLM labels went into the fit and were not filled in."""
    if applied_correction(fit).name == "human":
        return 0
    n = fit.problem.design.n_rows
    masks = [m for a, m in fit.problem.missing.items() if a in fit.problem.annotators]
    return n - int(np.logical_or.reduce(masks).sum()) if masks else n


def glance(fit: Fit) -> pd.DataFrame:
    """Return the fit as one row (see :meth:`Fit.glance`)."""
    e, problem = fit.estimate, fit.problem
    applied = applied_correction(fit).name
    keep = slopes(fit.terms)
    gained = effective_n(e, problem.design.n_coded)
    row = {
        "formula": fit.formula,
        "family": problem.family.name,
        "correction": applied,
        "llm": None if applied == "human" else ", ".join(problem.annotators),
        "n_human": 0 if applied == "naive" else problem.design.n_coded,
        "n_llm": n_labelled(fit),
        "tuning": tuning_label(e.tuning),
        "effective_n": np.nan if gained is None else float(np.median(gained[keep])),
        "informative": np.nan if e.informative is None else float(e.informative[keep].min()),
        "level": fit.level,
        "vcov": problem.vcov.hc,
        "design": problem.design.draw.value,
        "n_clusters": None if problem.design.cluster is None else problem.design.cluster.max() + 1,
        "df": float(e.df.min()),
    }
    return pd.DataFrame([row])
