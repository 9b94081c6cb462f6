r"""Fits under the labels of several annotators, in passes over all rows that they share.

Least squares needs one pass: :math:`X'X` once, and :math:`X'F` for the K columns of labels. The
other families start from fits to a part of the rows, keep the Hessians of these, and go through
all rows for :math:`X'(F - \mu(X\Theta))`, K columns at once, until the steps have vanished.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeGuard

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from trueup.errors import FitError
from trueup.estimation.blocks import add_gram, score_hessian
from trueup.estimation.rank import CLEARLY_FULL, check_gram
from trueup.estimation.solve import OTHER_FITS, START_ROWS, fit, solve_from
from trueup.families.base import Family
from trueup.families.glm import LinearPredictor, weighted
from trueup.formula.passes import Totals
from trueup.formula.rows import Block, OneOf, RowBlocks, Rows
from trueup.study.design import Float, Int

#: Fewer rows than this are held at once and fitted one annotator after the other.
FEW_ROWS = 40_000
#: Entries of the design matrix of the part that gives the start.
_PART_ENTRIES = 2**25
#: Smallest eigenvalue of the cross-products of unit columns that loses few enough digits.
_GOOD = 1e-4
#: Steps, in units of about a standard error and relative to the coefficients, that are rounding.
_TOLERANCE = 1e-10
#: A step longer than this share of the one before shows that a Hessian is too far off.
_SLOW = 0.5
MAX_PASSES = 30
MAX_REFRESHES = 4


class PredictorFamily(Family, Protocol):
    """A family whose score is the covariates times a residual (see ``families.glm``)."""

    def pieces(self, eta: Float, y: Float) -> tuple[Float, Float]:
        """Return the residuals and minus their derivatives by the linear predictor."""
        ...

    def residual(self, eta: Float, y: Float) -> Float:
        """Return the residuals alone."""
        ...


def shareable(family: Family) -> TypeGuard[PredictorFamily]:
    """Return whether all rows count by themselves: no absorbed effects, no first stage."""
    own = getattr(type(family), "prepare", None)
    return isinstance(family, LinearPredictor) and own is LinearPredictor.prepare


def shared_fits(
    family: PredictorFamily, blocks: RowBlocks, weights: Float | None, terms: Sequence[str]
) -> list[Float | None]:
    """Solve the weighted estimating equation under the labels of each of K annotators.

    Parameters
    ----------
    family : Family
        One that is :func:`shareable`.
    blocks : RowBlocks
        All N rows under each annotator.
    weights : (N,) array or None
    terms : sequence of str
        Names of the p coefficients.

    Returns
    -------
    list of (p,) arrays
        None where an annotator's equation could not be solved in this way:
        :func:`trueup.estimation.solve.fit` then solves it, or says what is wrong.

    Examples
    --------
    >>> import numpy as np
    >>> from trueup.families.registry import family_for
    >>> from trueup.formula.rows import MadeBlocks
    >>> X = np.ones((4, 1))
    >>> rows = (Rows(np.array([0.0, 0, 1, 1]), X), Rows(np.array([0.0, 0, 0, 1]), X))
    >>> blocks = MadeBlocks(4, 1, True, True, 4, lambda part: tuple(r.take(part) for r in rows))
    >>> shared_fits(family_for("ols"), blocks, None, ("Intercept",))
    [array([0.5]), array([0.25])]
    """
    if family.linear:
        return _linear_fits(family, blocks, weights)
    return _newton_fits(family, blocks, weights, terms)


def fit_one(
    family: PredictorFamily,
    blocks: RowBlocks,
    weights: Float | None,
    terms: Sequence[str],
    *,
    where: str,
    instead: str = OTHER_FITS,
) -> Float:
    """Solve the equation under the first annotator's labels, never holding all rows.

    Parameters
    ----------
    family, blocks, weights, terms
        See :func:`shared_fits`.
    where, instead : str
        See :func:`trueup.estimation.solve.fit`.

    Returns
    -------
    (p,) array

    Raises
    ------
    FitError
        As :func:`trueup.estimation.solve.fit` does.
    """
    found = shared_fits(family, blocks, weights, terms)[0]
    if found is not None:
        return found
    rows, zero = OneOf(blocks, 0), np.zeros(blocks.n_coef)

    def evaluate(theta: Float) -> tuple[Float, Float]:
        return score_hessian(family, theta, rows, weights)

    first = evaluate(zero)
    check_gram(first[1], terms, where)
    if not np.isfinite(first[0]).all():
        raise FitError(f"The outcome has missing or infinite values in {where}: remove them.")
    return solve_from(zero, first, evaluate, family.name, terms, where=where, instead=instead)


def shared_scores(
    family: PredictorFamily, blocks: RowBlocks, thetas: Float, weights: Float | None, active: Int
) -> Float:
    """Return the (k, p) weighted sums of scores of some annotators.

    Parameters
    ----------
    family : Family
    blocks : RowBlocks
    thetas : (k, p) array
        Coefficients of each.
    weights : (N,) array or None
    active : (k,) array of int
        Which annotators.
    """
    sums = partial(_scores, family, thetas, weights, active, blocks.shared_design)
    return blocks.total(sums)[0]


def _scores(
    family: PredictorFamily,
    thetas: Float,
    weights: Float | None,
    active: Int,
    shared: bool,
    blocks: Iterable[Block],
) -> Totals:
    total = np.zeros_like(thetas)
    with np.errstate(over="ignore", invalid="ignore"):  # seen by the solver as too long a step
        for part, every in blocks:
            rows = [every[k] for k in active]
            w = None if weights is None else weights[part]
            if shared:
                X = rows[0].X
                residual = family.residual(thetas @ X.T, np.array([r.y for r in rows]))
                total += (residual if w is None else residual * w) @ X
                continue
            for k, r in enumerate(rows):
                total[k] += family.score_sum(thetas[k], r, w)
    return (total,)


def shared_moments(
    family: PredictorFamily,
    blocks: RowBlocks,
    thetas: Float,
    weights: Float | None,
    active: Int,
    counts: Float | None = None,
) -> tuple[Float, Float]:
    r"""Return Hessians and meats of some annotators from one pass.

    Parameters
    ----------
    family : Family
    blocks : RowBlocks
    thetas : (k, p) array
    weights : (N,) array or None
        The a_i.
    active : (k,) array of int
        Which annotators.
    counts : (N,) array, optional
        How many rows each row stands for, where rows that repeat were collapsed.

    Returns
    -------
    hessians : (k, p, p) array
        Sums of minus the derivatives of the scores, weighted by a_i.
    meats : (k, p, p) array
        :math:`\sum_i a_i^2 \psi_i\psi_i'`.
    """
    row = weights
    if counts is not None:
        weights = counts if weights is None else weights * counts
        row = np.sqrt(counts) if row is None else row * np.sqrt(counts)
    each = weights, row
    sums = partial(_moments, family, thetas, each, active, blocks.shared_design, True)
    hessians, meats = blocks.total(sums)
    return np.broadcast_to(hessians, meats.shape), meats


def shared_hessians(
    family: PredictorFamily, blocks: RowBlocks, thetas: Float, weights: Float | None, active: Int
) -> Float:
    """Return the (k, p, p) Hessians of some annotators; see :func:`shared_moments`."""
    each = weights, None
    sums = partial(_moments, family, thetas, each, active, blocks.shared_design, False)
    hessians = blocks.total(sums)[0]
    return np.broadcast_to(hessians, (len(active), *hessians.shape[1:]))


def _moments(
    family: PredictorFamily,
    thetas: Float,
    weights: tuple[Float | None, Float | None],
    active: Int,
    shared: bool,
    with_meat: bool,
    blocks: Iterable[Block],
) -> Totals:
    """Return Hessians with the first weights, and sums of squares of scores times the second."""
    k, p = thetas.shape
    once = shared and family.linear  # the Hessian is X'X for all
    hessians = np.zeros((1 if once else k, p, p))
    meats = np.zeros((k, p, p)) if with_meat else np.zeros(0)
    with np.errstate(over="ignore", invalid="ignore"):
        for part, every in blocks:
            w, row = (None if v is None else v[part] for v in weights)
            for j, a in enumerate(active):
                X, y = every[a].X, every[a].y
                residual, information = family.pieces(X @ thetas[j], y)
                if not once or j == 0:
                    flat = once and w is None
                    add_gram(hessians[j], X, None if flat else weighted(information, w))
                if with_meat:
                    add_gram(meats[j], X * weighted(residual, row)[:, None])
    return hessians, meats


def _linear_fits(
    family: PredictorFamily, blocks: RowBlocks, weights: Float | None
) -> list[Float | None]:
    """Solve least squares from the cross-products of one pass."""
    grams, scores = blocks.total(partial(_cross_products, weights, blocks.shared_design))
    factors = [_factor(gram) for gram in grams]
    factors = factors * (len(scores) // len(factors))
    found = [
        None if f is None or not np.isfinite(s).all() else f.solve(s)
        for f, s in zip(factors, scores, strict=True)
    ]
    poor = [
        (k, f, theta)
        for k, (f, theta) in enumerate(zip(factors, found, strict=True))
        if f is not None and theta is not None and f.least < _GOOD
    ]
    if poor:
        thetas, active = np.array([t for _, _, t in poor]), np.array([k for k, _, _ in poor])
        left = shared_scores(family, blocks, thetas, weights, active)
        for (k, f, theta), score in zip(poor, left, strict=True):
            found[k] = theta + f.solve(score)
    return found


@dataclass(frozen=True, slots=True)
class _Factor:
    """Cross-products of columns, scaled to unit length and factored."""

    cholesky: tuple[Float, bool]
    scale: Float
    least: float
    """Smallest eigenvalue of the scaled cross-products."""

    def solve(self, score: Float) -> Float:
        """Return the coefficients that belong to a score at zero."""
        return np.asarray(cho_solve(self.cholesky, score / self.scale) / self.scale)


def _factor(gram: Float) -> _Factor | None:
    """Return the factor of cross-products; None where columns are close to collinear."""
    scale = np.sqrt(np.abs(np.diag(gram)))
    if not (np.isfinite(gram).all() and (scale > 0).all()):
        return None
    unit = gram / np.outer(scale, scale)
    least = float(np.linalg.eigvalsh((unit + unit.T) / 2.0)[0])
    if least <= CLEARLY_FULL:
        return None
    try:
        return _Factor(cho_factor(unit, lower=True), scale, least)
    except LinAlgError:
        return None


def _cross_products(weights: Float | None, shared: bool, blocks: Iterable[Block]) -> Totals:
    """Return X'X, (1, p, p) or one for each annotator, and the (K, p) X'y."""
    grams, scores = np.zeros(0), np.zeros(0)
    for part, rows in blocks:
        w = None if weights is None else weights[part]
        K, p = len(rows), rows[0].n_coef
        if not scores.size:
            grams, scores = np.zeros((1 if shared else K, p, p)), np.zeros((K, p))
        for k, r in enumerate(rows[:1] if shared else rows):
            add_gram(grams[k], r.X, w)
            if not shared:
                scores[k] += (r.y if w is None else r.y * w) @ r.X
        if shared:
            Y = np.array([r.y for r in rows])
            scores += (Y if w is None else Y * w) @ rows[0].X
    return grams, scores


def _newton_fits(
    family: PredictorFamily, blocks: RowBlocks, weights: Float | None, terms: Sequence[str]
) -> list[Float | None]:
    """Solve the equations from the fits to a part of the rows."""
    few = blocks.n_rows < FEW_ROWS
    wanted = min(START_ROWS, max(10 * blocks.n_coef, _PART_ENTRIES // blocks.n_coef))
    stride = 1 if few else max(4, blocks.n_rows // wanted)
    part, w = _every(blocks, stride, weights)
    share = blocks.n_rows / len(part[0])
    if weights is not None and w is not None:
        share = float(weights.sum() / w.sum())
    climbs: list[_Climb | None] = []
    start: Float | None = None
    for rows in part:
        try:
            start = fit(family, rows, w, terms, start)
        except FitError:
            # A rare level may be missing from the part, or the annotator's labels are at fault.
            climbs.append(None)
            continue
        hessian = np.zeros(0) if few else share * family.hessian_sum(start, rows, w)
        climbs.append(_Climb(start, hessian))
    if not few:
        _climb(family, blocks, weights, [(k, c) for k, c in enumerate(climbs) if c is not None])
        return [c.theta if c is not None and c.done else None for c in climbs]
    return [None if c is None else c.theta for c in climbs]


def _every(
    blocks: RowBlocks, stride: int, weights: Float | None
) -> tuple[list[Rows], Float | None]:
    """Return every ``stride``-th row under each annotator, and its weights."""
    X: list[list[Float]] = []
    y: list[list[Float]] = []
    for part, rows in blocks:
        some = slice(-part.start % stride, None, stride)
        X.append([r.X[some] for r in (rows[:1] if blocks.shared_design else rows)])
        y.append([np.array(r.y[some]) for r in rows])
    designs = [np.concatenate(pieces) for pieces in zip(*X, strict=True)]
    outcomes = [np.concatenate(pieces) for pieces in zip(*y, strict=True)]
    if blocks.shared_design:
        designs = designs * len(outcomes)
    found = [Rows(y, X) for y, X in zip(outcomes, designs, strict=True)]
    return found, None if weights is None else weights[::stride]


class _Climb:
    """The way of one annotator's coefficients to the root of its score.

    The Hessian is kept, and learns from how the score has changed along the steps.
    """

    __slots__ = ("_last", "_score", "done", "failed", "hessian", "refreshes", "stalled", "theta")

    def __init__(self, theta: Float, hessian: Float) -> None:
        self.theta = theta
        self.hessian = hessian
        self.refreshes = 0
        self.done = self.failed = self.stalled = False
        self._score = np.zeros_like(theta)
        self._last: tuple[Float, float] | None = None

    def advance(self, score: Float) -> None:
        """Take a step, given the score at the present coefficients."""
        if not np.isfinite(score).all():
            self.failed = True
            return
        if self._last is not None:
            self._learn(self._last[0], self._score - score)
        self._score = score
        scale = np.sqrt(np.abs(np.diag(self.hessian)))
        try:
            step = np.asarray(np.linalg.solve(self.hessian, score))
        except np.linalg.LinAlgError:
            self.stalled = True
            return
        length = float(np.linalg.norm(step * scale))
        if not np.isfinite(length) or (self._last is not None and length > _SLOW * self._last[1]):
            self.stalled = True
            return
        limit = _TOLERANCE * (1.0 + float(np.abs(self.theta * scale).max()))
        self.done = float(np.abs(step * scale).max()) <= limit
        self.theta = self.theta + step
        self._last = step, length

    def refresh(self, hessian: Float) -> None:
        """Take the step that the exact Hessian at the present coefficients gives."""
        self.hessian, self.stalled, self._last = hessian, False, None
        self.refreshes += 1
        if self.refreshes > MAX_REFRESHES or not np.isfinite(hessian).all():
            self.failed = True
            return
        self.advance(self._score)

    def _learn(self, step: Float, change: Float) -> None:
        """Update the Hessian so that it explains the last change of the score (BFGS)."""
        along = float(step @ change)
        if along <= 0.0:
            return
        expected = self.hessian @ step
        self.hessian = (
            self.hessian
            + np.outer(change, change) / along
            - np.outer(expected, expected) / float(step @ expected)
        )


def _climb(
    family: PredictorFamily,
    blocks: RowBlocks,
    weights: Float | None,
    climbs: Sequence[tuple[int, _Climb]],
) -> None:
    """Go through all rows until every annotator has arrived or failed."""
    for _ in range(MAX_PASSES):
        going = [(k, c) for k, c in climbs if not (c.done or c.failed)]
        if not going:
            return
        active, thetas = np.array([k for k, _ in going]), np.array([c.theta for _, c in going])
        scores = shared_scores(family, blocks, thetas, weights, active)
        for (_, climb), score in zip(going, scores, strict=True):
            climb.advance(score)
        stuck = [(k, c) for k, c in going if c.stalled and not c.failed]
        if stuck:
            active, thetas = np.array([k for k, _ in stuck]), np.array([c.theta for _, c in stuck])
            hessians = shared_hessians(family, blocks, thetas, weights, active)
            for (_, climb), hessian in zip(stuck, hessians, strict=True):
                climb.refresh(hessian)
