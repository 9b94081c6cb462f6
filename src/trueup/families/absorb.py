"""Least squares with absorbed fixed effects, ``y ~ x | firm + year``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from trueup.errors import ConvergenceError, FitError, FormulaError
from trueup.families.linear import OLS
from trueup.formula.rows import Rows
from trueup.study.design import Float, Int

#: A column whose spread within groups is below this share of its spread overall is constant
#: within groups, and is set to exactly zero so that the rank check can name it.
WITHIN_TOLERANCE = 1e-9
#: Group means left after the projection on several effects, relative to the column's spread.
PROJECTION_TOLERANCE = 1e-12
#: Repeats of the projection on what the last one left.
MAX_PASSES = 8
#: Levels of all effects but the largest that are solved for at once, as a dense system.
MAX_DENSE_LEVELS = 4000
#: Ridge on that system, whose diagonal is at most one.
RIDGE = 1e-10
#: Hat values stay below one, so that no residual is divided by zero.
MOST_LEVERAGE = 1.0 - 1e-10


@dataclass(frozen=True, slots=True)
class AbsorbedOLS(OLS):
    r"""Least squares on deviations from group means (the "within" estimator).

    Coefficients are those of least squares with one dummy variable for every level of every
    absorbed effect. With one effect the group means are exact. With several, the largest is
    swept out exactly and the levels of the others are solved for, or, where these are many,
    projected out by the sparse least squares of linearmodels; either is repeated until every
    group mean is zero to rounding.

    Examples
    --------
    >>> import numpy as np
    >>> from trueup.formula.rows import Rows
    >>> rows = Rows(
    ...     y=np.array([1.0, 2.0, 5.0, 7.0]),
    ...     X=np.array([[0.0], [1.0], [0.0], [1.0]]),
    ...     groups=(np.array([0, 0, 1, 1]),),
    ... )
    >>> AbsorbedOLS().prepare(rows, None).y
    array([-0.5,  0.5, -1. ,  1. ])

    References
    ----------
    Correia (2017), Linear models with high-dimensional fixed effects.
    """

    name: str = "absorb"

    def prepare(self, rows: Rows, weights: Float | None) -> Rows:
        """Return the rows as deviations from the (weighted) group means of these rows.

        Raises
        ------
        FormulaError
            If no effect is absorbed.
        FitError
            If every row is alone in its group.
        """
        _check_groups(rows)
        stacked = np.column_stack([rows.y, rows.X])
        return _deviations(rows, _without_effects(stacked, rows.groups, weights))

    def prepare_pair(
        self,
        every: Rows,
        human: Rows,
        machine: Rows,
        coded: Int,
        correction_weights: Float,
        weights: Float | None,
    ) -> tuple[Rows, Rows, Rows]:
        r"""Return the three sets of rows, centred by one set of group effects.

        The effects solve the corrected estimating equation itself: group means are those of
        ``every + c / a (human - machine)``, with the difference at the coded rows only.
        """
        _check_groups(every)
        rows = [np.column_stack([part.y, part.X]) for part in (every, human, machine)]
        ratio = _ratio(correction_weights, None if weights is None else weights[coded])
        adjusted = rows[0].copy()
        adjusted[coded] += ratio[:, None] * (rows[1] - rows[2])
        effects = adjusted - _without_effects(adjusted, every.groups, weights)
        return (
            _deviations(every, rows[0] - effects),
            _split(human, rows[1] - effects[coded]),
            _split(machine, rows[2] - effects[coded]),
        )

    def leverage(self, theta: Float, rows: Rows, weights: Float) -> Float:
        """Return (m,) values h with 1 - h = (1 - own) sqrt(1 - effects).

        ``own`` are the hat values of the demeaned columns, ``effects`` those of the effects. With
        HC3 the effects then count once, 1/(1 - effects) in the variance, which is exact for equal
        variances, where 1/(1 - effects)^2 would be twice too wide for groups of two rows.
        The second part is exact for one effect; for several it is exact where the effects are
        crossed evenly and an approximation with the right sum elsewhere. A row that the
        effects fit perfectly (alone in its group) has a score of zero: it contributes nothing
        whatever its hat value, which is returned as 0.
        """
        own = np.clip(OLS.leverage(self, theta, rows, weights), 0.0, MOST_LEVERAGE)
        share = weights / weights.sum()
        effects = share.copy()  # the effects share one constant
        for codes in rows.groups:
            effects += weights / np.bincount(codes, weights)[codes] - share
        effects = np.clip(effects, 0.0, MOST_LEVERAGE)
        hat = 1.0 - (1.0 - own) * np.sqrt(1.0 - effects)
        return np.where(_alone(rows.groups), 0.0, hat)


def _check_groups(rows: Rows) -> None:
    """Raise unless there are effects to absorb, and rows that they leave something of."""
    if not rows.groups:
        raise FormulaError("There is no effect to absorb: write 'y ~ x | group', or use tu.ols.")
    if _alone(rows.groups).all():
        raise FitError(
            f"Every one of the {len(rows)} rows is alone in its group of an absorbed effect, so "
            "nothing is left to compare. Absorb a coarser effect, or code more rows per group."
        )


def _ratio(correction_weights: Float, weights: Float | None) -> Float:
    """Return c / a, zero where both are."""
    if weights is None:
        return correction_weights
    if (correction_weights[weights == 0] != 0).any():
        raise FitError(
            "A coded row has analysis weight 0 but a correction weight: remove the rows with "
            "weight 0 from the study."
        )
    return np.divide(correction_weights, weights, out=np.zeros(len(weights)), where=weights != 0)


def _split(rows: Rows, stacked: Float) -> Rows:
    """Return the rows with outcome and columns taken from a stacked array."""
    return replace(rows, y=stacked[:, 0], X=np.ascontiguousarray(stacked[:, 1:]))


def _deviations(rows: Rows, within: Float) -> Rows:
    """Return the rows with demeaned values; columns that vary by rounding only become zero."""
    prepared = _split(rows, within)
    spread = np.linalg.norm(rows.X - rows.X.mean(axis=0), axis=0)
    rounding = np.finfo(np.float64).eps * np.linalg.norm(rows.X, axis=0)
    left = np.linalg.norm(prepared.X, axis=0)
    prepared.X[:, left <= np.maximum(WITHIN_TOLERANCE * spread, 100.0 * rounding)] = 0.0
    return prepared


def _compact(codes: Int, n_rows: int) -> Int:
    """Return codes without gaps, where the gaps would cost memory."""
    if len(codes) and int(codes.max()) < n_rows:
        return codes
    return np.asarray(np.unique(codes, return_inverse=True)[1], dtype=np.int64)


def _without_effects(values: Float, groups: tuple[Int, ...], weights: Float | None) -> Float:
    """Return what weighted least squares on the dummies of all groups leaves of (m, k) values."""
    if len(groups) == 1:
        return values - _group_means(values, groups[0], weights)
    return _annihilate(values, groups, weights)


def _group_means(values: Float, codes: Int, weights: Float | None) -> Float:
    """Return (m, k) weighted group means, at every row."""
    codes = _compact(codes, len(codes))
    total = np.bincount(codes, weights)
    means = np.empty_like(values)
    for j, column in enumerate(values.T):
        sums = np.bincount(codes, column if weights is None else column * weights)
        means[:, j] = np.divide(sums, total, out=np.zeros_like(sums), where=total > 0)[codes]
    return means


def _annihilate(values: Float, groups: tuple[Int, ...], weights: Float | None) -> Float:
    """Return the residuals of (m, k) values on the dummies of several effects."""
    codes = [np.asarray(np.unique(g, return_inverse=True)[1], dtype=np.int64) for g in groups]
    codes.sort(key=lambda c: -int(c.max()))
    w = np.ones(len(values)) if weights is None else weights
    few = sum(int(c.max()) + 1 for c in codes[1:]) <= MAX_DENSE_LEVELS
    project = _sweep(codes, w) if few else _sparse_least_squares(codes, w)
    left = values - np.average(values, axis=0, weights=w)
    # A constant column leaves rounding error only, whose projection is not worth iterating on.
    rounding = np.finfo(np.float64).eps * _length(values, w)
    norms = np.maximum(_length(left, w), rounding)
    for _ in range(MAX_PASSES):
        todo = np.flatnonzero(_largest_group_mean(left, codes, w) > PROJECTION_TOLERANCE * norms)
        if not len(todo):
            return left
        left[:, todo] = project(left[:, todo])
    raise ConvergenceError(
        "The absorbed effects could not be projected out: their groups hardly overlap. Drop one "
        "effect, or merge small groups."
    )


def _length(values: Float, w: Float) -> Float:
    """Return the (k,) weighted lengths of (m, k) values."""
    return np.asarray(np.sqrt(w @ values**2))


def _largest_group_mean(values: Float, codes: list[Int], w: Float) -> Float:
    """Return (k,) largest group sums of any effect, each over the root of the group's weight."""
    largest = np.zeros(values.shape[1])
    for c in codes:
        size = np.sqrt(np.bincount(c, w))
        size[size == 0.0] = 1.0  # a group of rows with weight zero
        for j, column in enumerate(values.T):
            largest[j] = max(largest[j], np.abs(np.bincount(c, w * column) / size).max())
    return largest


def _sweep(codes: list[Int], w: Float) -> Callable[[Float], Float]:
    """Return a projection that sweeps the largest effect and solves for the levels of the rest.

    The few levels of the other effects have a dense system of normal equations once the first
    effect is swept out. A small ridge makes it definite where dummies are redundant; what the
    ridge leaves behind is removed when the projection is repeated.
    """
    first, rest = codes[0], _dummies(codes[1:])
    heavy = rest.multiply(w[:, None]).tocsr()
    cross = heavy.T @ _dummies(codes[:1])
    total = np.bincount(first, w)
    share = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    within = (heavy.T @ rest - cross.multiply(share[None, :]) @ cross.T).toarray()
    size = np.sqrt(np.asarray(heavy.sum(axis=0)).ravel())
    size[size == 0.0] = 1.0
    within = within / np.outer(size, size)
    within[np.diag_indices_from(within)] += RIDGE
    factor = cho_factor(within)

    def project(values: Float) -> Float:
        left = values - _group_means(values, first, w)
        levels = cho_solve(factor, (heavy.T @ left) / size[:, None]) / size[:, None]
        fitted = rest @ levels
        return np.asarray(left - fitted + _group_means(fitted, first, w))

    return project


def _dummies(codes: list[Int]) -> csr_array:
    """Return the sparse (m, levels) dummies of several effects, side by side."""
    m = len(codes[0])
    sizes = [int(c.max()) + 1 for c in codes]
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    columns = np.column_stack([c + o for c, o in zip(codes, offsets, strict=True)]).ravel()
    start = np.arange(0, m * len(codes) + 1, len(codes))
    return csr_array((np.ones(len(columns)), columns, start), shape=(m, sum(sizes)))


def _sparse_least_squares(codes: list[Int], w: Float) -> Callable[[Float], Float]:
    """Return the projection of linearmodels, for effects with very many levels each."""
    from linearmodels.iv.absorbing import lsmr_annihilate

    root = np.sqrt(w)
    dummies = _dummies(codes).multiply(root[:, None]).tocsc()
    size = np.sqrt(np.asarray(dummies.power(2).sum(axis=0)).ravel())
    size[size == 0.0] = 1.0
    dummies = dummies.multiply(1.0 / size[None, :]).tocsc()
    scale = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)[:, None]
    options = {"atol": 1e-13, "btol": 1e-13, "conlim": 0.0, "maxiter": 10_000}

    def project(values: Float) -> Float:
        left = lsmr_annihilate(dummies, values * root[:, None], use_cache=False, **options)
        return np.where(scale > 0, left * scale, values)

    return project


def _alone(groups: tuple[Int, ...]) -> NDArray[np.bool_]:
    """Return the rows that the effects fit perfectly, found by removing lone rows in turn."""
    active = np.ones(len(groups[0]), dtype=bool)
    while True:
        lone = np.zeros_like(active)
        for codes in groups:
            lone |= active & (np.bincount(codes[active], minlength=codes.max() + 1)[codes] == 1)
        if not lone.any():
            return ~active
        active &= ~lone
