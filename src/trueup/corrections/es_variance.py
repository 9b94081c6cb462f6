r"""The variance of an expected-score estimate, for every sampling design.

With :math:`\xi_i = \bar h_i + (R_i/\pi_i)\,d_i`, where :math:`\bar h_i = E_p h_i` is known for all
rows and :math:`d_i = h_i(V_i) - \bar h_i` for the coded ones,

.. math:: V = N^{-2}\sum_N E_p h_i^2 + k, \qquad
          k = N^{-2}\sum_N \frac{1-\pi_i}{\pi_i}\,\mathrm{Var}(d_i).

``k`` has two estimates: from the coded rows, by the formula of their design, and from the label
model, :math:`\mathrm{Var}(d_i) = \mathrm{Var}_p h_i`. The first is noisy where few rows are
mislabelled, the second is as good as the model. Rows of a cluster are added up first; coded pairs
within clusters say how far their errors go together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trueup.corrections.base import Problem
from trueup.corrections.expected import Conditional, Root, ScoreParts, conditional
from trueup.corrections.support import Scenario
from trueup.formula.rows import BLOCK_ROWS
from trueup.inference.variance import (
    SUBTRACTED,
    Influence,
    cluster_rows,
    concentration,
    effective_df,
    independent_pieces,
    phase_one_rows,
    phase_two_rows,
    row_totals,
    units_are_clusters,
)
from trueup.study.design import Float, SampleDesign

#: Pairs of coded rows that count against a correlation of errors within clusters.
PRIOR_PAIRS = 20.0
MOST_CORRELATION = 0.9
#: Residuals of the label model, in standard deviations, count up to this much.
MOST_RESIDUAL = 10.0
#: Parameters that the coded variance is divided for.
LOST = 3.0


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of the variance of each coefficient; all (p,)."""

    known: Float
    """Of what all rows show."""
    known_df: Float
    coded: Float
    """Of what only coding reveals, from the coded rows."""
    model: Float
    """The same, from the label model."""
    n_coded: Float
    """Effective number of coded rows (or clusters) that carry it, from the coded rows."""
    n_model: Float
    """The same, as expected under the design by the label model."""
    human: Float
    """Variance of the human-only fit that the label model expects."""
    sums: Float | None
    """(G, p) cluster sums of the expected influence."""


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over all rows of the conditional moments, weighted in different ways; (p,) each."""

    mean_square: Float
    variance: Float
    drawn: Float
    """Weighted by (1 - pi)/pi."""
    drawn_fourth: Float
    """Fourth moments, weighted by (1 - pi)^2/pi^3."""
    drawn_square: Float
    """Mean squares, weighted by (1 - pi)/pi."""
    cluster_mean: Float
    """(G, p) sums by cluster; no rows without clusters."""
    cluster_variance: Float
    cluster_root: Float
    cluster_excess: Float
    """Fourth cumulants."""


def pieces_of(
    problem: Problem,
    found: tuple[Scenario, ...],
    parts: ScoreParts,
    root: Root,
    d: Float,
    at_coded: Conditional,
) -> Pieces:
    """Return the pieces of the variance.

    Parameters
    ----------
    d : (n, p) array
        Influence that only coding reveals.
    at_coded : Conditional
        Moments of the coded rows.
    """
    design = problem.design
    sums = _all_rows(problem, found, parts, root)
    if design.probability_all is None:
        sums = _from_coded(design, sums, at_coded)
    if design.cluster is None:
        return _rows_alone(design, sums, d)
    rho = _correlation(design, d, at_coded)
    if units_are_clusters(design):
        return _whole_units(design, sums, d, rho)
    return _nested(design, sums, d, rho)


def calibrated(pieces: Pieces, calibration: float) -> Pieces:
    """Return the pieces with what the label model expects multiplied by one number.

    Smoothing and penalties make the model expect too many errors where LLMs are good; all coded
    labels together say by how much.
    """
    return replace(
        pieces,
        model=pieces.model * calibration,
        n_model=pieces.n_model * calibration,
    )


def scale_of(design: SampleDesign) -> Float:
    """Return (N, 1) analysis weights over their mean."""
    a = np.ones(design.n_rows) if design.weights is None else design.weights
    return np.asarray((a / a.mean())[:, None])


def _all_rows(
    problem: Problem, found: tuple[Scenario, ...], parts: ScoreParts, root: Root
) -> _Sums:
    design = problem.design
    N, p = design.n_rows, len(root.theta)
    pi = np.ones(N) if design.probability_all is None else design.probability_all
    scale = scale_of(design)
    G = 0 if design.cluster is None else int(design.cluster.max()) + 1
    total = np.zeros((5, p))
    clusters = np.zeros((4, G, p))
    for start in range(0, N, BLOCK_ROWS):
        part = slice(start, min(start + BLOCK_ROWS, N))
        rows = [r.take(part) for r in parts.scenarios]
        c = conditional(problem, root, rows, [s.weight[part] for s in found], scale[part])
        q = pi[part][:, None]
        odds = (1.0 - q) / q
        square = c.mean**2
        total += [
            square.sum(axis=0),
            c.variance.sum(axis=0),
            (odds * c.variance).sum(axis=0),
            (odds**2 / q * c.fourth).sum(axis=0),
            (odds * square).sum(axis=0),
        ]
        if design.cluster is not None:
            codes = design.cluster[part]
            excess = c.fourth - 3.0 * c.variance**2
            for k, values in enumerate((c.mean, c.variance, c.root, excess)):
                clusters[k] += row_totals(values, codes, G)
    return _Sums(*total, *clusters)


def _from_coded(design: SampleDesign, sums: _Sums, c: Conditional) -> _Sums:
    """Estimate sums that need every row's probability from the coded rows."""
    q = design.probability[:, None]
    odds = (1.0 - q) / q
    return _Sums(
        sums.mean_square,
        sums.variance,
        (odds / q * c.variance).sum(axis=0),
        (odds**2 / q**2 * c.fourth).sum(axis=0),
        (odds / q * c.mean**2).sum(axis=0),
        sums.cluster_mean,
        sums.cluster_variance,
        sums.cluster_root,
        sums.cluster_excess,
    )


def _kish(design: SampleDesign) -> float:
    w = design.inverse_probability
    return float(w.sum() ** 2 / (w**2).sum())


def _small(n: float, lost: float) -> float:
    return n / max(n - lost, 1.0)


def _share(numerator: Float, denominator: Float) -> Float:
    """Return a squared sum over a sum of squares: an effective number."""
    return np.asarray(numerator**2 / np.maximum(denominator, 1e-300))


def _rows_alone(design: SampleDesign, sums: _Sums, d: Float) -> Pieces:
    N, p = design.n_rows, d.shape[1]
    contributions = phase_two_rows(design, d) ** 2
    known = sums.mean_square + sums.variance
    return Pieces(
        known=known / N**2,
        known_df=np.full(p, float(max(N - p, 1))),
        coded=_small(_kish(design), LOST) * contributions.sum(axis=0),
        model=sums.drawn / N**2,
        n_coded=1.0 / concentration(contributions),
        n_model=_share(sums.drawn, sums.drawn_fourth),
        human=(known + sums.drawn + sums.drawn_square) / N**2,
        sums=None,
    )


def _whole_units(design: SampleDesign, sums: _Sums, d: Float, rho: Float) -> Pieces:
    assert design.cluster is not None
    N, G, m = design.n_rows, len(sums.cluster_mean), independent_pieces(design)[0]
    second = (1.0 - rho) * sums.cluster_variance + rho * sums.cluster_root**2
    fourth = np.maximum(sums.cluster_excess + 3.0 * second**2, second**2)
    first = np.unique(design.cluster, return_index=True)[1]
    pi = np.full(G, m / G) if design.probability_all is None else design.probability_all[first]
    q = pi[:, None]
    odds = (1.0 - q) / q
    square = sums.cluster_mean**2
    contributions = phase_two_rows(design, d) ** 2
    small = G / (G - 1)
    drawn = (odds * second).sum(axis=0)
    return Pieces(
        known=small * (square + second).sum(axis=0) / N**2,
        known_df=effective_df(square + second, G - 1.0),
        coded=_small(m, LOST - 1.0) * contributions.sum(axis=0),
        model=drawn / N**2,
        n_coded=1.0 / concentration(contributions),
        n_model=_share(drawn, (odds**2 / q * fourth).sum(axis=0)),
        human=((square + second) / q).sum(axis=0) / N**2,
        sums=sums.cluster_mean,
    )


def _nested(design: SampleDesign, sums: _Sums, d: Float, rho: Float) -> Pieces:
    N, G, m = design.n_rows, len(sums.cluster_mean), independent_pieces(design)[0]
    blocks = cluster_rows(design, d, None)
    plain = (phase_two_rows(design, d) ** 2).sum(axis=0)
    coded = np.diag(blocks.covariance())
    # Taking out what clusters hold already can overshoot where few clusters are coded.
    coded = np.where(coded > 0.25 * plain, coded, plain)
    pairs = rho * np.maximum((sums.cluster_root**2 - sums.cluster_variance).sum(axis=0), 0.0)
    square = sums.cluster_mean**2
    small = G / (G - 1)
    return Pieces(
        known=small * square.sum(axis=0) / N**2,
        known_df=effective_df(square, G - 1.0),
        coded=_small(_kish(design), LOST) * coded,
        model=(sums.drawn + sums.variance + pairs) / N**2,
        n_coded=1.0 / concentration(blocks.blocks["cluster"] ** 2),
        n_model=np.minimum(_share(sums.drawn, sums.drawn_fourth), m),
        human=(square.sum(axis=0) * small + sums.drawn + sums.drawn_square + sums.variance) / N**2,
        sums=sums.cluster_mean,
    )


def _correlation(design: SampleDesign, d: Float, c: Conditional) -> Float:
    """Return (p,) correlation of the label model's residuals within clusters, from coded pairs."""
    assert design.cluster is not None
    codes = design.cluster[design.coded]
    size = int(design.cluster.max()) + 1
    some = np.abs(c.root) > 1e-12 * np.abs(c.root).max(axis=0)
    residual = np.divide(d, c.root, out=np.zeros_like(d), where=some)
    residual = np.clip(residual, -MOST_RESIDUAL, MOST_RESIDUAL)
    counts = np.bincount(codes, minlength=size).astype(float)
    pairs = float((counts * (counts - 1.0)).sum())
    products = (row_totals(residual, codes, size) ** 2).sum(axis=0) - (residual**2).sum(axis=0)
    return np.asarray(np.clip(products / (pairs + PRIOR_PAIRS), 0.0, MOST_CORRELATION))


def influence_rows(
    design: SampleDesign, h: Float, d: Float, pieces: Pieces, variance: Float
) -> Influence:
    """Return factor rows of the coded rows, scaled to the variance of each coefficient.

    Correlations, between coefficients and with other estimates, are those of the coded rows.
    """
    if units_are_clusters(design):
        blocks = {"first": phase_one_rows(design, h), "second": phase_two_rows(design, d)}
        wanted = {"first": pieces.known, "second": variance}
        return Influence({n: _scaled(rows, wanted[n]) for n, rows in blocks.items()})
    whole = cluster_rows(design, d, pieces.sums)
    V = np.diag(whole.covariance())
    if (V <= 0.0).any():
        kept = {n: b for n, b in whole.blocks.items() if n not in SUBTRACTED}
        whole = Influence(kept)
        V = np.diag(whole.covariance())
    ratio = np.sqrt((pieces.known + variance) / V)
    return Influence({n: b * ratio for n, b in whole.blocks.items()})


def _scaled(rows: Float, variance: Float) -> Float:
    own = (rows**2).sum(axis=0)
    return np.asarray(rows * np.sqrt(variance / np.maximum(own, 1e-300)))
