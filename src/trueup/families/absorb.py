"""Least squares with absorbed fixed effects, ``y ~ x | firm + year``."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

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
#: Hat values stay below one, so that no residual is divided by zero.
MOST_LEVERAGE = 1.0 - 1e-10


@dataclass(frozen=True, slots=True)
class AbsorbedOLS(OLS):
    r"""Least squares on deviations from group means (the "within" estimator).

    Coefficients are those of least squares with one dummy variable for every level of every
    absorbed effect. With one effect the group means are exact; with several the dummies are
    projected out by the sparse least squares of linearmodels, repeated to rounding error.

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
        """Return (m,) hat values: those of the demeaned columns plus those of the effects.

        The second part is exact for one effect; for several it is exact where the effects are
        crossed evenly and an approximation with the right sum elsewhere. A row that the
        effects fit perfectly (alone in its group) has a score of zero: it contributes nothing
        whatever its hat value, which is returned as 0.
        """
        hat = OLS.leverage(self, theta, rows, weights)
        share = weights / weights.sum()
        for codes in rows.groups:
            hat += weights / np.bincount(codes, weights)[codes] - share
        hat += share  # the effects share one constant
        return np.where(_alone(rows.groups), 0.0, np.clip(hat, 0.0, MOST_LEVERAGE))


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
    from linearmodels.iv.absorbing import lsmr_annihilate
    from linearmodels.panel.utility import dummy_matrix

    codes = np.column_stack([np.unique(g, return_inverse=True)[1] for g in groups])
    root = np.ones(len(codes)) if weights is None else np.sqrt(weights)
    dummies, _ = dummy_matrix(codes, precondition=False)
    dummies = dummies.multiply(root[:, None]).tocsc()
    size = np.sqrt(np.asarray(dummies.multiply(dummies).sum(axis=0)).ravel())
    size[size == 0.0] = 1.0  # a group of rows with weight zero
    dummies = dummies.multiply(1.0 / size[None, :]).tocsc()
    centred = values - np.average(values, axis=0, weights=weights)
    left = centred * root[:, None]
    # A constant column leaves rounding error only, whose projection is not worth iterating on.
    rounding = np.finfo(np.float64).eps * np.linalg.norm(values * root[:, None], axis=0)
    norms = np.maximum(np.linalg.norm(left, axis=0), rounding)
    for _ in range(MAX_PASSES):
        remains = np.abs(dummies.T @ left).max(axis=0, initial=0.0)
        todo = np.flatnonzero(remains > PROJECTION_TOLERANCE * norms)
        if not len(todo):
            return _unscale(left, root, centred)
        options = {"atol": 1e-13, "btol": 1e-13, "conlim": 0.0, "maxiter": 10_000}
        left[:, todo] = lsmr_annihilate(dummies, left[:, todo], use_cache=False, **options)
    raise ConvergenceError(
        "The absorbed effects could not be projected out: their groups hardly overlap. Drop one "
        "effect, or merge small groups."
    )


def _unscale(left: Float, root: Float, centred: Float) -> Float:
    """Return residuals without the root of the weights; rows of weight zero keep their values."""
    scale = root[:, None]
    return np.divide(left, scale, out=centred.copy(), where=scale > 0)


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
