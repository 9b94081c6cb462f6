"""Is the design matrix of full rank, and if not, which columns are to blame?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trueup.errors import CollinearityError, FitError
from trueup.estimation.blocks import cross_product
from trueup.formula.rows import BLOCK_ROWS
from trueup.study.design import Float

#: A column is a combination of those before it where they leave less than this share of its
#: length (the tolerance of R's lm).
TOLERANCE = 1e-7
#: The same for a matrix of cross-products, where squaring has cost half the digits.
GRAM_TOLERANCE = 1e-6
#: Smallest eigenvalue of the cross-products of unit columns above which no more is checked.
CLEARLY_FULL = 1e-10
#: Coefficients of a combination below this, on unit columns, are rounding.
NEGLIGIBLE = 1e-5


def well_conditioned(gram: Float) -> bool:
    """Return whether a (p, p) matrix of cross-products is clearly positive definite."""
    scale = np.sqrt(np.abs(np.diag(gram)))
    if not (scale > 0).all():
        return False
    unit = gram / np.outer(scale, scale)
    return bool(np.linalg.eigvalsh((unit + unit.T) / 2.0)[0] > CLEARLY_FULL)


def check_rank(
    X: Float,
    terms: Sequence[str],
    weights: Float | None = None,
    where: str = "the coded rows",
) -> None:
    """Raise where the coefficients are not determined by these rows.

    Parameters
    ----------
    X : (m, p) array
        Design matrix.
    terms : sequence of str
        Names of its p columns.
    weights : (m,) array, optional
        Rows of weight zero do not count.
    where : str
        How the message calls the rows.

    Raises
    ------
    FitError
        If there are fewer rows than coefficients, or values that are not finite.
    CollinearityError
        If columns are linear combinations of others; the message names them.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(4.0)
    >>> check_rank(np.column_stack([np.ones(4), x, 2 * x]), ("Intercept", "x", "twice"))
    Traceback (most recent call last):
        ...
    trueup.errors.CollinearityError: In the coded rows 'twice' is a linear combination of 'x'. ...
    """
    n = len(X) if weights is None else int(np.count_nonzero(weights))
    if n < X.shape[1]:
        raise FitError(
            f"There are fewer rows than coefficients in {where}: {n} row(s) for {X.shape[1]} "
            "coefficients. Code more rows, or use a smaller formula."
        )
    gram = cross_product(X, weights=weights)
    _check_finite(gram, terms, where)
    if not well_conditioned(gram):
        scale = np.sqrt(np.diag(gram))
        scale[scale == 0.0] = 1.0
        _raise_dependent(_triangle(X / scale, weights), TOLERANCE, terms, where)


def check_gram(gram: Float, terms: Sequence[str], where: str = "the coded rows") -> None:
    """Raise where a (p, p) matrix of cross-products is not of full rank.

    Parameters
    ----------
    gram : (p, p) array
        X' diag(w) X, or a Hessian.
    terms : sequence of str
        Names of its columns.
    where : str
        How the message calls the rows.

    Raises
    ------
    FitError
        If there are values that are not finite.
    CollinearityError
        If columns are linear combinations of others; the message names them.
    """
    _check_finite(gram, terms, where)
    if well_conditioned(gram):
        return
    scale = np.sqrt(np.abs(np.diag(gram)))
    scale[scale == 0.0] = 1.0
    unit = gram / np.outer(scale, scale)
    values, vectors = np.linalg.eigh((unit + unit.T) / 2.0)
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    _raise_dependent(root, GRAM_TOLERANCE, terms, where)


def _check_finite(gram: Float, terms: Sequence[str], where: str) -> None:
    """Raise where a column has values that are missing or infinite."""
    bad = ~np.isfinite(np.diag(gram))
    if bad.any():
        raise FitError(
            f"In {where} {_listed(terms, np.flatnonzero(bad))} has missing or infinite values. "
            "Fill or remove them."
        )


def _triangle(X: Float, weights: Float | None) -> Float:
    """Return the triangular factor of the weighted columns, block after block."""
    factor = np.zeros((0, X.shape[1]))
    for start in range(0, len(X), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        block = X[part] if weights is None else X[part] * np.sqrt(weights[part, None])
        factor = np.asarray(np.linalg.qr(np.vstack([factor, block]), mode="r"))
    return factor


def _raise_dependent(factor: Float, tolerance: float, terms: Sequence[str], where: str) -> None:
    """Raise where a column of the factor is a combination of those before it."""
    kept: list[int] = []
    found: list[str] = []
    for j in range(factor.shape[1]):
        column = factor[:, j]
        length = float(np.linalg.norm(column))
        if length <= np.finfo(np.float64).tiny:
            found.append(f"'{terms[j]}' is 0 in every row")
            continue
        coef = np.asarray(np.linalg.lstsq(factor[:, kept], column, rcond=None)[0])
        if np.linalg.norm(column - factor[:, kept] @ coef) > tolerance * length:
            kept.append(j)
            continue
        found.append(_described(j, kept, coef, terms))
    if found:
        raise CollinearityError(
            f"In {where} {'; '.join(found)}. Leave such columns out of the formula, or merge "
            "levels; where a column only looks constant beside its size, centre it."
        )


def _described(j: int, kept: list[int], coef: Float, terms: Sequence[str]) -> str:
    """Return what a dependent column is made of."""
    used = np.asarray(kept, dtype=np.int64)[np.abs(coef) > NEGLIGIBLE * np.abs(coef).max()]
    if [terms[k] for k in used] == ["Intercept"]:
        return f"'{terms[j]}' is constant, as the intercept is"
    return f"'{terms[j]}' is a linear combination of {_listed(terms, used)}"


def _listed(terms: Sequence[str], index: Sequence[int] | np.ndarray) -> str:
    """Return quoted names."""
    return ", ".join(f"'{terms[k]}'" for k in index)
