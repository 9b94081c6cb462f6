"""Sums over all rows, in blocks that fit the cache, always in the same order."""

from __future__ import annotations

import numpy as np

from trueup.families.base import Family
from trueup.formula.rows import Rows
from trueup.study.design import Float, Int


def _total(rows: Rows, weights: Float | None) -> float:
    return float(len(rows)) if weights is None else float(weights.sum())


def _part(weights: Float | None, part: slice) -> Float | None:
    return None if weights is None else weights[part]


def mean_score(family: Family, theta: Float, rows: Rows, weights: Float | None) -> Float:
    r"""Return the (p,) mean :math:`\sum_i a_i\psi_i / \sum_i a_i`."""
    total = np.zeros(rows.n_coef)
    for part, block in rows.blocks():
        total += family.score_sum(theta, block, _part(weights, part))
    return np.asarray(total / _total(rows, weights))


def mean_hessian(family: Family, theta: Float, rows: Rows, weights: Float | None) -> Float:
    """Return the (p, p) mean of minus the derivative of the score."""
    if family.linear:
        return np.asarray(family.hessian_sum(theta, rows, weights) / _total(rows, weights))
    total = np.zeros((rows.n_coef, rows.n_coef))
    for part, block in rows.blocks():
        total += family.hessian_sum(theta, block, _part(weights, part))
    return np.asarray(total / _total(rows, weights))


def score_meat(family: Family, theta: Float, rows: Rows, weights: Float | None) -> Float:
    r"""Return the (p, p) sum :math:`\sum_i a_i^2\psi_i\psi_i'`, without an (N, p) array."""
    total = np.zeros((rows.n_coef, rows.n_coef))
    for part, block in rows.blocks():
        score = family.score(theta, block)
        if weights is not None:
            score = score * weights[part][:, None]
        total += score.T @ score
    return total


def cluster_scores(
    family: Family,
    theta: Float,
    rows: Rows,
    weights: Float | None,
    cluster: Int,
    n_clusters: int,
) -> Float:
    r"""Return the (G, p) sums of :math:`a_i\psi_i` by cluster.

    Parameters
    ----------
    cluster : (m,) array of codes 0..G-1
    n_clusters : int
        G; clusters without rows get zeros.
    """
    total = np.zeros((n_clusters, rows.n_coef))
    for part, block in rows.blocks():
        score = family.score(theta, block)
        if weights is not None:
            score = score * weights[part][:, None]
        codes = cluster[part]
        for j in range(rows.n_coef):
            total[:, j] += np.bincount(codes, weights=score[:, j], minlength=n_clusters)
    return total
