"""Covariance, degrees of freedom and informative rows of an estimate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trueup.inference.variance import (
    SUBTRACTED,
    Influence,
    cluster_rows,
    concentration,
    effective_df,
    phase_one_rows,
    phase_two_rows,
    units_are_clusters,
)
from trueup.inference.vcov import HC, Vcov
from trueup.study.design import Float, SampleDesign

#: Hat values above this are treated as this, so that one coded row that fits itself exactly
#: does not send the variance to infinity.
MOST_LEVERAGE = 0.99


@dataclass(frozen=True, slots=True)
class Sandwich:
    """A covariance with its reference distribution."""

    vcov: Float
    df: Float
    informative: Float
    influence: Influence


def leverage_factor(leverage: Float, hc: HC, n: int, p: int) -> Float:
    """Return (n, 1) factors on the human scores: HC0 to HC3.

    References
    ----------
    MacKinnon and White (1985), Some heteroskedasticity-consistent covariance matrix estimators.
    """
    rest = 1.0 - np.minimum(leverage, MOST_LEVERAGE)
    if hc == "HC0":
        factor = np.ones(n)
    elif hc == "HC1":
        factor = np.full(n, np.sqrt(n / max(n - p, 1)))
    elif hc == "HC2":
        factor = 1.0 / np.sqrt(rest)
    else:
        factor = 1.0 / rest
    return np.asarray(factor[:, None])


def sandwich(
    design: SampleDesign,
    h: Float,
    d: Float,
    *,
    vcov: Vcov,
    factor: Float,
    left_out: Float | None = None,
    machine_sums: Float | None = None,
) -> Sandwich:
    r"""Covariance of an estimate with influence :math:`h_i + (R_i/\pi_i - 1) d_i`.

    Parameters
    ----------
    design : SampleDesign
    h, d : (n, p) arrays
        Influence of the human score and the part that only coding reveals, on the coded rows.
    vcov : Vcov
    factor : (n, 1) array
        Leverage adjustment (:func:`leverage_factor`).
    left_out : (r, 1) or (r, p) array, optional
        Share of each coded row (or unit) in its own tuning.
    machine_sums : (G, p) array, optional
        Cluster sums over all rows of Omega phi; needed where rows are clustered and Omega != 0.
    """
    p = h.shape[1]
    scale = 1.0 if left_out is None else 1.0 / (1.0 - left_out)
    if units_are_clusters(design):
        first = phase_one_rows(design, h * factor)
        second = phase_two_rows(design, d * factor) * scale
        influence = Influence({"first": first, "second": second})
        contributions = first**2 + second**2
        most = len(first) - p if design.unit is None else len(first) - 2
    else:
        if design.unit is not None and left_out is not None:
            scale = 1.0 / (1.0 - left_out[design.unit])
        influence = cluster_rows(design, d * factor * scale, machine_sums)
        assert design.cluster is not None
        contributions = influence.blocks["cluster"] ** 2
        most = len(np.unique(design.cluster[design.coded])) - 2
    V = influence.covariance()
    if (np.diag(V) <= 0).any() and SUBTRACTED.intersection(influence.blocks):
        # Taking out what clusters hold already can overshoot where few clusters are coded, and
        # coded whole: leave it in, which errs on the safe side.
        kept = {k: b for k, b in influence.blocks.items() if k not in SUBTRACTED}
        influence = Influence(kept)
        V = influence.covariance()
    return Sandwich(
        vcov=V,
        df=reference_df(vcov, contributions, most, p),
        informative=np.asarray(1.0 / concentration(contributions)),
        influence=influence,
    )


def reference_df(vcov: Vcov, contributions: Float, most: float, p: int) -> Float:
    """Return (p,) degrees of freedom of the reference distribution that was asked for."""
    if vcov.reference == "normal":
        return np.full(p, np.inf)
    if vcov.reference == "residual":
        return np.full(p, max(float(most), 1.0))
    return effective_df(contributions, float(most))
