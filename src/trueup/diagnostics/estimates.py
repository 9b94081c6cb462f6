"""One number with its influence on the coded rows, and the interval the design gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from trueup.diagnostics.kappa import Chance
from trueup.inference.sandwich import sandwich
from trueup.inference.vcov import Vcov
from trueup.results.tidy import quantiles
from trueup.study.describe import kish
from trueup.study.design import Float, SampleDesign

Shape = Literal["share", "chance", "correlation", "size", "mean"]

_VCOV = Vcov(hc="HC0", leave_one_out=False, reference="effective")


@dataclass(frozen=True, slots=True)
class Measure:
    """An estimate from the coded rows that a weighted mean of influences describes."""

    name: str
    estimate: float
    influence: Float
    """(n,) influence of each coded row; its weighted mean is zero."""
    shape: Shape
    """What the number is, which decides the form of its interval."""
    n: int
    """Number of coded rows that count."""
    reason: str | None = None
    """Why there is no estimate, where it is NaN."""
    expected: float = np.nan
    """Disagreement expected by chance, where the measure corrects for it."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A measure with its standard error and interval; NaN where ``note`` says why."""

    measure: Measure
    std_error: float
    low: float
    high: float
    note: str | None


def weighted_mean(
    name: str,
    values: Float,
    weights: Float,
    where: NDArray[np.bool_],
    shape: Shape,
    reason: str = "no coded row counts.",
) -> Measure:
    """Return the weighted mean of values over some of the coded rows."""
    total = float(weights[where].sum())
    influence = np.zeros(len(values))
    if total <= 0:
        return Measure(name, np.nan, influence, shape, int(where.sum()), reason)
    mean = float(weights[where] @ values[where]) / total
    influence[where] = (values[where] - mean) * (float(weights.sum()) / total)
    return Measure(name, mean, influence, shape, int(where.sum()))


def correlation(x: Float, y: Float, weights: Float, where: NDArray[np.bool_]) -> Measure:
    r"""Return the weighted correlation, with influence :math:`z_x z_y - r (z_x^2 + z_y^2)/2`."""
    name, n = "correlation", int(where.sum())
    influence = np.zeros(len(x))
    w = np.where(where, weights, 0.0)
    if w.sum() <= 0:
        return Measure(name, np.nan, influence, "correlation", n, "no coded row counts.")
    w = w / w.sum()
    filled = np.where(where, np.vstack([x, y]), 0.0)
    centred = np.where(where, filled - (filled @ w)[:, None], 0.0)
    variance = centred**2 @ w
    if (variance <= 1e-14 * (filled**2 @ w)).any():
        return Measure(name, np.nan, influence, "correlation", n, "one of the two is constant.")
    zx, zy = centred / np.sqrt(variance)[:, None]
    r = float(w @ (zx * zy))
    share = float(weights[where].sum() / weights.sum())
    influence = np.where(where, zx * zy - 0.5 * r * (zx**2 + zy**2), 0.0) / share
    return Measure(name, r, influence, "correlation", n)


def beyond_chance(name: str, found: Chance) -> Measure:
    """Return kappa or alpha as a measure."""
    return Measure(
        name, found.estimate, found.influence, "chance", found.n, found.reason, found.expected
    )


def average(name: str, parts: list[Measure]) -> Measure:
    """Return the plain mean of measures of one name, over those that have an estimate."""
    known = [m for m in parts if m.reason is None]
    if not known:
        return Measure(name, np.nan, parts[0].influence, parts[0].shape, 0, parts[0].reason)
    return Measure(
        name,
        float(np.mean([m.estimate for m in known])),
        np.mean([m.influence for m in known], axis=0),
        known[0].shape,
        int(np.max([m.n for m in known])),
        expected=float(np.mean([m.expected for m in known])),
    )


def row_influence(design: SampleDesign, influence: Float) -> Float:
    """Return influences on the scale of a mean over rows weighted by 1/pi alone."""
    if design.weights is None:
        return influence
    a = design.weights[design.coded]
    size = float(design.coded_weights.sum() / design.inverse_probability.sum())
    return np.asarray((influence.T * a / size).T)


def design_df(design: SampleDesign) -> float:
    """Return the degrees of freedom of the coded sample: what was drawn, less the strata."""
    if design.cluster is not None:
        drawn = len(np.unique(design.cluster[design.coded]))
    else:
        drawn = design.n_coded
    strata = 1 if design.stratum is None else len(np.unique(design.stratum))
    return float(max(drawn - strata, 1))


def interval(design: SampleDesign, measure: Measure, level: float) -> Interval:
    r"""Return the standard error of a measure and its interval.

    The variance is that of the influences under the design. Shares have Wilson's interval with
    the sample size that the variance amounts to, :math:`p(1-p)/V`, at most the number of rows
    that count; agreement beyond chance an
    interval for :math:`\log(D_o/D_e)`, correlations for Fisher's z, others for themselves.

    References
    ----------
    Korn and Graubard (1998), Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data.
    """
    if measure.reason is not None:
        return Interval(measure, np.nan, np.nan, np.nan, measure.reason)
    h = row_influence(design, measure.influence)[:, None]
    n = len(h)
    small = np.full((n, 1), np.sqrt(n / (n - 1)))
    result = sandwich(design, h, h, vcov=_VCOV, factor=small)
    variance, est = max(float(result.vcov[0, 0]), 0.0), measure.estimate
    se = float(np.sqrt(variance))
    used = min(float(measure.n), kish(design.coded_weights))
    if measure.shape == "share":
        # Where errors happen to be lacking in a stratum, its variance is too: without the bound
        # such a sample would seem to be worth more rows than it has.
        most = measure.n if variance > 1e-14 else used
        low, high = share_interval(est, variance, most, level, design_df(design))
        return Interval(measure, se, low, high, None)
    if se <= 1e-12 * max(abs(est), 1.0):
        return _without_spread(measure, used, level)
    half = float(quantiles(level, result.df)[0]) * se
    return Interval(measure, se, *_ends(measure.shape, est, half), None)


def share_interval(
    p: float, variance: float, n: float, level: float, df: float
) -> tuple[float, float]:
    """Return Wilson's interval of a share whose variance is known.

    The sample size is the one that the variance amounts to, at most ``n``.
    """
    size = min(p * (1.0 - p) / variance, n) if variance > 1e-14 else n
    t2 = float(quantiles(level, np.array([df]))[0]) ** 2
    centre = (p + t2 / (2.0 * size)) / (1.0 + t2 / size)
    half = np.sqrt(t2 * (p * (1.0 - p) / size + t2 / (4.0 * size**2))) / (1.0 + t2 / size)
    return float(max(centre - half, 0.0)), float(min(centre + half, 1.0))


def _ends(shape: Shape, est: float, half: float) -> tuple[float, float]:
    if shape == "chance":
        apart = 1.0 - est
        return 1.0 - apart * float(np.exp(half / apart)), 1.0 - apart * float(np.exp(-half / apart))
    if shape == "correlation" and abs(est) < 1.0:
        z, wide = float(np.arctanh(est)), half / (1.0 - est**2)
        return float(np.tanh(z - wide)), float(np.tanh(z + wide))
    return (max(est - half, 0.0) if shape == "size" else est - half), est + half


def _without_spread(measure: Measure, n: float, level: float) -> Interval:
    """Interval where no row differs from the rest, so that the variance is no guide."""
    agree = measure.estimate > 1.0 - 1e-12
    if agree and measure.shape == "chance" and measure.name in ("kappa", "alpha_nominal"):
        z2 = float(special.ndtri((1.0 - level) / 2.0)) ** 2
        most = z2 / (n + z2)
        low = 1.0 - most / measure.expected
        note = "no disagreement seen; interval from the most that this leaves possible."
        return Interval(measure, 0.0, low, 1.0, note)
    note = "does not vary over the coded rows, so that no interval can be computed."
    return Interval(measure, 0.0, np.nan, np.nan, note)
