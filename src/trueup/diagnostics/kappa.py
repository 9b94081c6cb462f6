r"""Agreement beyond chance: Cohen's kappa and Krippendorff's alpha, with influence functions.

Both compare the disagreement there is with the disagreement to expect from the labels'
frequencies alone, :math:`1 - D_o/D_e`. Each function returns the influence of every item, so
that a sampling design can turn it into a standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trueup.errors import ArgumentError
from trueup.study.design import Float, Int

Distance = Literal["nominal", "linear", "quadratic"]
Scale = Literal["nominal", "ordinal", "interval"]

_NUMBERS = {"boolean", "integer", "floating", "mixed-integer-float", "decimal", "empty"}


@dataclass(frozen=True, slots=True)
class Chance:
    """An agreement coefficient of the form 1 - observed / expected disagreement.

    ``estimate`` is NaN where ``reason`` says why there is none.
    """

    estimate: float
    influence: Float
    """(n,) influence of each item: the error of the estimate is about their weighted mean."""
    observed: float
    """Observed disagreement."""
    expected: float
    """Disagreement to expect by chance."""
    n: int
    """Number of items that count: labelled by both, or by at least two coders."""
    reason: str | None = None


def cohen_kappa(
    a: Any,
    b: Any,
    weights: Any = None,
    *,
    distance: Distance = "nominal",
    levels: Sequence[Any] | None = None,
) -> Chance:
    r"""Cohen's kappa of two annotators.

    .. math:: \kappa = 1 - \frac{D_o}{D_e}, \qquad
              D_o = \frac{\sum_i w_i\, v(a_i, b_i)}{\sum_i w_i}, \qquad
              D_e = \sum_{jk} p_j q_k\, v(j, k)

    with ``p`` and ``q`` the (weighted) frequencies of the labels of either annotator and ``v``
    how much two labels differ: 1 if they differ at all (nominal), the number of levels between
    them (linear), or its square (quadratic). Items that one of the two did not label do not
    count.

    Parameters
    ----------
    a, b : array of shape (n,)
        Labels of the same items; None or NaN where missing.
    weights : array of shape (n,), optional
        Weights of the items, for instance inverse inclusion probabilities.
    distance : {"nominal", "linear", "quadratic"}
        How labels that differ are counted.
    levels : sequence, optional
        All labels in order; by default those that occur, sorted.

    Returns
    -------
    Chance
        With the (n,) influence function
        :math:`-i_o/D_e + D_o\, i_e/D_e^2`, where :math:`i_o = v(a, b) - D_o` and
        :math:`i_e = \sum_k q_k v(a, k) + \sum_j p_j v(j, b) - 2 D_e`.

    Raises
    ------
    ArgumentError
        If lengths differ, a label is not among ``levels``, text meets numbers, or weights are
        negative or missing.

    Examples
    --------
    >>> round(cohen_kappa([1, 1, 0, 0], [1, 0, 0, 0]).estimate, 3)
    0.5

    References
    ----------
    Cohen (1960), A coefficient of agreement for nominal scales. Cohen (1968), Weighted kappa.
    """
    if distance not in ("nominal", "linear", "quadratic"):
        raise ArgumentError(
            f"distance={distance!r} is unknown: use 'nominal', 'linear' or 'quadratic'."
        )
    first, second = as_labels(a, "a"), as_labels(b, "b")
    if len(first) != len(second):
        raise ArgumentError(
            f"The two annotators have {len(first)} and {len(second)} labels: give the labels of "
            "the same items, in the same order."
        )
    codes, names = encode_labels([first, second], levels)
    w = check_weights(weights, len(first))
    return _kappa(codes[:, 0], codes[:, 1], w, _distances(len(names), distance))


def _distances(size: int, distance: Distance) -> Float:
    steps = np.abs(np.subtract.outer(np.arange(size), np.arange(size))).astype(np.float64)
    if distance == "nominal":
        return np.asarray(steps > 0, dtype=np.float64)
    return steps if distance == "linear" else steps**2


def _kappa(a: Int, b: Int, w: Float, v: Float) -> Chance:
    """Return kappa of codes (negative: missing) under a matrix of distances."""
    both = (a >= 0) & (b >= 0)
    influence = np.zeros(len(a))
    total = float(w[both].sum())
    if total <= 0:
        return _none(influence, 0, "no item has a label of both.")
    x, y, u = a[both], b[both], w[both] / total
    p = np.bincount(x, weights=u, minlength=len(v))
    q = np.bincount(y, weights=u, minlength=len(v))
    apart = v[x, y]
    observed, expected = float(u @ apart), float(p @ v @ q)
    if expected <= 0:
        return _none(influence, int(both.sum()), "both gave one and the same label throughout.")
    i_observed = apart - observed
    i_expected = (v @ q)[x] + (p @ v)[y] - 2.0 * expected
    share = total / float(w.sum())
    influence[both] = (-i_observed + observed / expected * i_expected) / expected / share
    return Chance(1.0 - observed / expected, influence, observed, expected, int(both.sum()))


def _none(influence: Float, n: int, reason: str) -> Chance:
    return Chance(np.nan, influence, np.nan, np.nan, n, reason)


def krippendorff_alpha(
    ratings: Any,
    level: Scale = "nominal",
    weights: Any = None,
    *,
    levels: Sequence[Any] | None = None,
) -> Chance:
    r"""Krippendorff's alpha of any number of coders, with gaps.

    .. math:: \alpha = 1 - \frac{D_o}{D_e}, \qquad
              D_o = \frac{\sum_u w_u \sum_{i \ne j} \delta(r_{ui}, r_{uj}) / (m_u - 1)}
                         {\sum_u w_u m_u}, \qquad
              D_e = \frac{n}{n - 1} \sum_{ck} q_c q_k\, \delta(c, k)

    over items with :math:`m_u \ge 2` labels; ``q`` are the (weighted) frequencies of labels
    among these and ``n`` is their number. The difference :math:`\delta` is 1 for any two
    labels (nominal), the squared difference of numbers (interval), or of the mid-ranks that
    the frequencies give the labels (ordinal).

    Parameters
    ----------
    ratings : array or data frame of shape (n_items, n_coders)
        Labels; None or NaN where a coder did not label an item.
    level : {"nominal", "ordinal", "interval"}
        Level of measurement. ``"interval"`` needs numbers.
    weights : array of shape (n_items,), optional
        Weights of the items, for instance inverse inclusion probabilities.
    levels : sequence, optional
        All labels in order (for ``"ordinal"``); by default those that occur, sorted.

    Returns
    -------
    Chance
        With the (n_items,) influence function.

    Raises
    ------
    ArgumentError
        If there are fewer than two coders, labels are text where numbers are needed, or
        weights do not match.

    Examples
    --------
    >>> round(krippendorff_alpha([[1, 1], [2, 2], [1, 2], [2, 2]]).estimate, 4)
    0.5333

    References
    ----------
    Krippendorff (2011), Computing Krippendorff's alpha-reliability.
    """
    if level not in ("nominal", "ordinal", "interval"):
        raise ArgumentError(f"level={level!r} is unknown: use 'nominal', 'ordinal' or 'interval'.")
    coders = _coders(ratings)
    w = check_weights(weights, len(coders[0]))
    codes, names = encode_labels(coders, levels)
    if level == "interval" and not all(_is_number(x) for x in names):
        raise ArgumentError(
            f"level='interval' needs numbers, but labels are {names[0]!r}, ...: use 'nominal', or "
            "'ordinal' with levels= in order."
        )
    present = codes >= 0
    size = present.sum(axis=1)
    pairable = (size >= 2) & (w > 0)
    item, coder = np.nonzero(present & pairable[:, None])
    code = codes[item, coder]
    influence = np.zeros(len(w))
    if not pairable.any():
        return _none(influence, 0, "no item has the labels of two coders.")
    used = _Ratings(item, code, np.where(pairable, size, 0).astype(float), w, len(names))
    if level == "nominal":
        parts = _nominal(used)
    else:
        scores = np.asarray(names, np.float64) if level == "interval" else used.mid_ranks()
        parts = _scored(used, scores, learned=level == "ordinal")
    return _alpha(used, parts, int(pairable.sum()))


@dataclass(frozen=True, slots=True)
class _Ratings:
    """All labels of pairable items, one after the other."""

    item: Int
    """(r,) item of each label."""
    code: Int
    """(r,) which label it is."""
    size: Float
    """(n,) number of labels of each item, 0 where not pairable."""
    weights: Float
    """(n,) weights of the items."""
    n_levels: int

    @property
    def total(self) -> float:
        """Weighted number of labels."""
        return float(self.weights @ self.size)

    def frequencies(self) -> Float:
        """Return the weighted share of each label."""
        w = self.weights[self.item]
        return np.bincount(self.code, weights=w, minlength=self.n_levels) / self.total

    def mid_ranks(self) -> Float:
        """Return the share of labels below each label, plus half its own."""
        q = self.frequencies()
        return np.asarray(np.cumsum(q) - q / 2.0)

    def by_item(self, values: Float) -> Float:
        """Return the (n,) sums of a value of each label over the labels of an item."""
        return np.asarray(np.bincount(self.item, values, len(self.size)), np.float64)

    @property
    def per_pair(self) -> Float:
        """(n,) 1/(m - 1), 0 where not pairable."""
        return np.asarray(np.where(self.size >= 2, 1.0 / np.maximum(self.size - 1.0, 1.0), 0.0))


@dataclass(frozen=True, slots=True)
class _Parts:
    observed: float
    expected: float
    i_observed: Float
    """(n,) influence, before division by the mean number of labels."""
    i_expected: Float


def _nominal(used: _Ratings) -> _Parts:
    q = used.frequencies()
    cells, counts = np.unique(used.item * used.n_levels + used.code, return_counts=True)
    squares = np.bincount(
        cells // used.n_levels, weights=counts.astype(float) ** 2, minlength=len(used.size)
    )
    apart = (used.size**2 - squares) * used.per_pair
    observed = float(used.weights @ apart) / used.total
    same = float(q @ q)
    return _Parts(
        observed,
        1.0 - same,
        apart - used.size * observed,
        -2.0 * (used.by_item(q[used.code]) - used.size * same),
    )


def _scored(used: _Ratings, scores: Float, learned: bool) -> _Parts:
    """Squared differences of scores; ``learned``: the scores are the mid-ranks."""
    q = used.frequencies()
    # Differences do not depend on the origin, and squares lose digits far from it.
    x = (scores - float(q @ scores))[used.code]
    sums, squares = used.by_item(x), used.by_item(x**2)
    apart = 2.0 * (used.size * squares - sums**2) * used.per_pair
    observed = float(used.weights @ apart) / used.total
    centred = scores - float(q @ scores)
    variance = float(q @ centred**2)
    i_observed = apart - used.size * observed
    i_expected = 2.0 * (used.by_item(centred[used.code] ** 2) - used.size * variance)
    if learned:
        pull = 4.0 * (used.size[used.item] * x - sums[used.item]) * used.per_pair[used.item]
        slope = np.bincount(
            used.code, weights=pull * used.weights[used.item], minlength=used.n_levels
        )
        i_observed = i_observed + _through_ranks(used, q, slope / used.total)
        i_expected = i_expected + _through_ranks(used, q, 4.0 * q * centred)
    return _Parts(observed, 2.0 * variance, i_observed, i_expected)


def _through_ranks(used: _Ratings, q: Float, slope: Float) -> Float:
    """Influence of items through the mid-ranks, given the slope in each mid-rank."""
    by_frequency = np.cumsum(slope[::-1])[::-1] - slope / 2.0
    return np.asarray(used.by_item(by_frequency[used.code]) - used.size * float(by_frequency @ q))


def _alpha(used: _Ratings, parts: _Parts, n_items: int) -> Chance:
    zero = np.zeros(len(used.size))
    n = len(used.code)
    if parts.expected <= 1e-14:
        return _none(zero, n_items, "all labels are the same.")
    small = n / (n - 1.0)
    expected = parts.expected * small
    mean_size = used.total / float(used.weights.sum())
    influence = -parts.i_observed + parts.observed / expected * small * parts.i_expected
    influence = influence / expected / mean_size
    return Chance(1.0 - parts.observed / expected, influence, parts.observed, expected, n_items)


def _coders(ratings: Any) -> list[NDArray[Any]]:
    frame = ratings if isinstance(ratings, pd.DataFrame) else pd.DataFrame(_two_way(ratings))
    if frame.shape[1] < 2:
        raise ArgumentError(
            f"ratings has {frame.shape[1]} column: agreement needs the labels of at least two "
            "coders, one column each."
        )
    return [
        as_labels(frame.iloc[:, j], f"coder {frame.columns[j]!r}") for j in range(frame.shape[1])
    ]


def _two_way(ratings: Any) -> Any:
    values = ratings if isinstance(ratings, np.ndarray) else np.asarray(ratings, dtype=object)
    if values.ndim != 2 or not len(values):
        raise ArgumentError(
            f"ratings has shape {values.shape}: give a row for each item and a column for each "
            "coder."
        )
    return values


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, np.number, np.bool_))


def as_labels(values: Any, what: str) -> NDArray[Any]:
    """Return labels as float64 (NaN where missing) or as text (None where missing).

    Raises
    ------
    ArgumentError
        If they are not one-dimensional, or mix text and numbers.
    """
    series = pd.Series(values) if np.ndim(values) == 1 else None
    if series is None:
        raise ArgumentError(f"{what} must be a one-dimensional array of labels.")
    kind = pd.api.types.infer_dtype(series, skipna=True)
    if isinstance(series.dtype, pd.CategoricalDtype):
        kind = pd.api.types.infer_dtype(series.dtype.categories)
    if kind in _NUMBERS:
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    if kind != "string":
        some = ", ".join(map(repr, dict.fromkeys(series.dropna().tolist()[:50])))[:80]
        raise ArgumentError(
            f"{what} mixes kinds of labels, or holds none ({some}): labels must be all text, or "
            "all numbers (1 and '1' are not the same label). Convert the column."
        )
    out = series.to_numpy(dtype=object).copy()
    out[series.isna().to_numpy()] = None
    return out


def encode_labels(
    columns: Sequence[NDArray[Any]], levels: Sequence[Any] | None = None
) -> tuple[Int, list[Any]]:
    """Return (n, k) codes of labels, -1 where missing, and the labels in order.

    Raises
    ------
    ArgumentError
        If some columns hold text and others numbers, or a label is not among ``levels``.
    """
    filled = [c for c in columns if not pd.isna(c).all()]
    kinds = {c.dtype == object for c in filled}
    if len(kinds) > 1:
        text = next(x for c in filled if c.dtype == object for x in c if x is not None)
        number = next(x for c in filled if c.dtype != object for x in c if not np.isnan(x))
        raise ArgumentError(
            f"Some labels are text (such as {text!r}) and others numbers (such as {number:g}): "
            "they would never be equal. Convert one kind into the other."
        )
    stacked = np.concatenate([c.astype(object) for c in columns])
    if kinds != {True}:
        stacked = stacked.astype(np.float64)
    if levels is None:
        codes, names = pd.factorize(stacked, sort=True)
        order = list(names)
    else:
        order = list(levels)
        if len(set(order)) < len(order):
            raise ArgumentError(f"levels={order[:8]!r} names a label twice: name each once.")
        codes = pd.Index(order).get_indexer(pd.Index(stacked))
        stray = (codes < 0) & ~pd.isna(stacked)
        if stray.any():
            label = stacked[[stray.argmax()]].tolist()[0]
            raise ArgumentError(
                f"The label {label!r} is not among the levels {order[:8]!r}: add it, or mend the "
                "label."
            )
    return np.asarray(codes, np.int64).reshape(len(columns), -1).T, order


def check_weights(weights: Any, n: int) -> Float:
    """Return (n,) weights, ones where None.

    Raises
    ------
    ArgumentError
        If their number is not n, or some are missing or negative, or all are zero.
    """
    if weights is None:
        return np.ones(n)
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (n,):
        raise ArgumentError(f"weights has shape {w.shape}: give one weight for each of {n} items.")
    if not np.isfinite(w).all() or (w < 0).any() or not w.any():
        raise ArgumentError("weights must be zero or more, known for every item, and not all zero.")
    return w
