"""Sums over blocks of rows: everything that touches all N rows is one of these.

Blocks are always taken in the same order, so the same rows give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np
from scipy.sparse import csr_array

from trueup.families.base import Family
from trueup.formula.rows import BLOCK_ROWS, Rows
from trueup.study.design import Float, Int


@runtime_checkable
class FusedFamily(Protocol):
    """A family that returns score and Hessian from one reading of the rows."""

    def sums(self, theta: Float, rows: Rows, weights: Float | None) -> tuple[Float, Float]:
        """Return the (p,) sum of scores and the (p, p) sum of minus their derivatives."""
        ...


class Blocked(Protocol):
    """Rows that can be gone through in blocks: ``Rows``, or one annotator's of ``RowBlocks``."""

    def __len__(self) -> int: ...

    @property
    def n_coef(self) -> int:
        """Number of coefficients, p."""
        ...

    def blocks(self) -> Iterator[tuple[slice, Rows]]:
        """Iterate over consecutive blocks of rows, always in the same order."""
        ...


def total_weight(rows: Blocked, weights: Float | None) -> float:
    """Return the sum of the weights, or the number of rows where there are none."""
    return float(len(rows)) if weights is None else float(weights.sum())


def score_sum(family: Family, theta: Float, rows: Blocked, weights: Float | None) -> Float:
    """Return the (p,) weighted sum of scores over prepared rows."""
    total = np.zeros(rows.n_coef)
    for part, block in rows.blocks():
        total += family.score_sum(theta, block, None if weights is None else weights[part])
    return total


def score_hessian(
    family: Family, theta: Float, rows: Blocked, weights: Float | None
) -> tuple[Float, Float]:
    """Return the (p,) sum of scores and the (p, p) sum of minus their derivatives.

    One pass: each block is read once for both.
    """
    p = rows.n_coef
    score, hessian = np.zeros(p), np.zeros((p, p))
    fused = family if isinstance(family, FusedFamily) else None
    for part, block in rows.blocks():
        w = None if weights is None else weights[part]
        if fused is not None:
            s, h = fused.sums(theta, block, w)
        else:
            s, h = family.score_sum(theta, block, w), family.hessian_sum(theta, block, w)
        score += s
        hessian += h
    return score, hessian


def mean_score(family: Family, theta: Float, rows: Blocked, weights: Float | None) -> Float:
    """Return the (p,) weighted mean of the scores.

    Parameters
    ----------
    family : Family
    theta : (p,) array
    rows : Rows or Blocked
        Prepared rows.
    weights : (m,) array or None
        Divided by their sum; None for equal weights.

    Examples
    --------
    >>> import numpy as np
    >>> from trueup.families.mean import Mean
    >>> rows = Rows(y=np.array([1.0, 3.0]), X=np.ones((2, 1)))
    >>> mean_score(Mean(), np.array([0.0]), rows, None)
    array([2.])
    """
    return score_sum(family, theta, rows, weights) / total_weight(rows, weights)


def mean_hessian(family: Family, theta: Float, rows: Blocked, weights: Float | None) -> Float:
    """Return the (p, p) weighted mean of minus the derivatives of the scores (the bread).

    Parameters
    ----------
    family : Family
    theta : (p,) array
    rows : Rows or Blocked
        Prepared rows.
    weights : (m,) array or None
        Divided by their sum; None for equal weights.
    """
    total = np.zeros((rows.n_coef, rows.n_coef))
    for part, block in rows.blocks():
        total += family.hessian_sum(theta, block, None if weights is None else weights[part])
    return total / total_weight(rows, weights)


def cross_product(X: Float, Y: Float | None = None, weights: Float | None = None) -> Float:
    """Return X' diag(weights) Y, with Y = X where left out.

    Parameters
    ----------
    X : (m, p) array
    Y : (m, q) or (m,) array, optional
    weights : (m,) array, optional

    Returns
    -------
    (p, q) or (p,) array

    Examples
    --------
    >>> import numpy as np
    >>> cross_product(np.array([[1.0], [2.0]]), weights=np.array([1.0, 3.0]))
    array([[13.]])
    """
    other = X if Y is None else Y
    total = np.zeros((X.shape[1], *other.shape[1:]))
    for start in range(0, len(X), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        left = X[part] if weights is None else X[part] * weights[part, None]
        total += left.T @ other[part]
    return total


#: Columns from which a block is looked at for zeros, and the share of other numbers below which
#: its products are those of a sparse matrix: a factor of many levels.
MANY_COLUMNS = 200
_SPARSE = 0.05


def add_gram(total: Float, X: Float, weights: Float | None = None) -> None:
    """Add X' diag(weights) X to a matrix, in place.

    Parameters
    ----------
    total : (p, p) array
    X : (m, p) array
    weights : (m,) array, optional

    Examples
    --------
    >>> total = np.zeros((1, 1))
    >>> add_gram(total, np.array([[1.0], [2.0]]), np.array([1.0, 3.0]))
    >>> total
    array([[13.]])
    """
    if X.shape[1] < MANY_COLUMNS or np.count_nonzero(X) > _SPARSE * X.size:
        total += X.T @ (X if weights is None else X * weights[:, None])
        return
    row, column = np.nonzero(X)
    values = X[row, column]
    scaled = values if weights is None else values * weights[row]
    left = csr_array((scaled, (row, column)), shape=X.shape)
    product = (left.T @ csr_array((values, (row, column)), shape=X.shape)).tocoo()
    total[product.row, product.col] += product.data


def score_meat(
    family: Family,
    theta: Float,
    rows: Blocked,
    weights: Float | None,
    A: Float | None = None,
) -> Float:
    r"""Return the meat :math:`\sum_i a_i^2 \psi_i \psi_i'`, without an (m, p) array.

    Parameters
    ----------
    family : Family
    theta : (p,) array
    rows : Rows or Blocked
        Prepared rows.
    weights : (m,) array or None
        The a_i.
    A : (r, p) array, optional
        Replaces each score by A times it, e.g. the inverse bread, or one row of it.

    Returns
    -------
    (p, p) array, or (r, r) where A is given
    """
    size = rows.n_coef if A is None else len(A)
    total = np.zeros((size, size))
    for part, block in rows.blocks():
        psi = family.score(theta, block)
        if A is not None:
            psi = psi @ A.T
        if weights is not None:
            psi = psi * weights[part, None]
        total += psi.T @ psi
    return total


def cluster_scores(
    family: Family,
    theta: Float,
    rows: Blocked,
    weights: Float | None,
    cluster: Int,
    n_clusters: int,
) -> Float:
    """Return the (G, p) weighted sums of scores within clusters.

    Parameters
    ----------
    family : Family
    theta : (p,) array
    rows : Rows or Blocked
        Prepared rows.
    weights : (m,) array or None
    cluster : (m,) array of int
        Codes 0..G-1, in any order.
    n_clusters : int
        G; clusters without rows get zeros.
    """
    total = np.zeros((n_clusters, rows.n_coef))
    for part, block in rows.blocks():
        psi = family.score(theta, block)
        if weights is not None:
            psi = psi * weights[part, None]
        codes = cluster[part]
        order = np.argsort(codes, kind="stable")
        present, first = np.unique(codes[order], return_index=True)
        total[present] += np.add.reduceat(psi[order], first, axis=0)
    return total
