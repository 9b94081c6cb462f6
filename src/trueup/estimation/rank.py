"""Columns of a design that are linear combinations of others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import qr

from trueup.errors import CollinearityError, FitError
from trueup.study.design import Float

#: A column counts as a combination of others where less than this share of it is left.
TOLERANCE = 1e-8


def check_rank(
    X: Float, terms: Sequence[str], weights: Float | None = None, where: str = "the rows"
) -> None:
    """Raise where the columns of a design are not linearly independent.

    Parameters
    ----------
    X : (m, p) array
    terms : sequence of str
        Names of the columns.
    weights : (m,) array, optional
    where : str
        Which rows these are, for the message.

    Raises
    ------
    FitError
        If there are fewer rows than columns.
    CollinearityError
        Naming the columns to drop, and those they repeat.
    """
    m, p = X.shape
    if m < p:
        raise FitError(f"{where} are {m}, too few for {p} coefficients: use a shorter formula.")
    if weights is not None:
        X = X * np.sqrt(weights)[:, None]
    if m > 8 * p:
        # The square root of X'X has the same dependencies, at p rows instead of m.
        gram = X.T @ X
        scale = np.sqrt(np.diag(gram))
        safe = np.where(scale > 0, scale, 1.0)
        values, vectors = np.linalg.eigh(gram / np.outer(safe, safe))
        if scale.min() > 0 and values[0] > TOLERANCE * values[-1]:
            return
    scale = np.sqrt((X**2).sum(axis=0))
    zero = [terms[j] for j in np.flatnonzero(scale == 0)]
    if zero:
        raise CollinearityError(
            f"In {where} the column(s) {_names(zero)} are zero throughout: drop them from the "
            "formula, merge levels, or code rows where they are not."
        )
    _, R, order = qr(X / scale, mode="economic", pivoting=True)
    left = np.abs(np.diag(R))
    rank = int((left > np.sqrt(TOLERANCE) * 1e-2 * left[0]).sum())
    if rank == p:
        return
    kept, dropped = order[:rank], order[rank:]
    said = []
    for j in dropped:
        coef = np.linalg.lstsq(X[:, kept] / scale[kept], X[:, j] / scale[j], rcond=None)[0]
        others = [terms[k] for k, c in zip(kept, coef, strict=True) if abs(c) > 1e-6]
        said.append(f"'{terms[j]}' is a combination of {_names(others)}")
    raise CollinearityError(
        f"In {where} columns are collinear: {'; '.join(said)}. Drop "
        f"{_names([terms[j] for j in dropped])} from the formula."
    )


def _names(terms: Sequence[str]) -> str:
    return ", ".join(f"'{t}'" for t in terms)
