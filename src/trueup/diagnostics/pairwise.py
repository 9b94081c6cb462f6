"""Counts and sums over all pairs of annotators at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from trueup.study.design import Float, Int

#: Items counted at a time, so that one-hot codes stay small.
_BLOCK = 65_536


@dataclass(frozen=True, slots=True)
class Pairwise:
    """(K, K) arrays over pairs of annotators."""

    n: Float
    apart: Float
    half: tuple[Float, Float]
    """Lower and upper ends of the intervals."""
    discordant: Float | None = None
    correlation: Float | None = None


@dataclass(frozen=True, slots=True)
class Classes:
    """Labels that are classes."""

    codes: Int
    """(n, K), -1 where missing."""
    gold: Int | None

    def take(self, rows: NDArray[np.bool_]) -> Classes:
        """Return the labels of some items."""
        return Classes(self.codes[rows], None if self.gold is None else self.gold[rows])

    def pairwise(self, level: float) -> Pairwise:
        """Return the shares of items on which two annotators differ."""
        n, agree = agreement_counts(self.codes)
        with np.errstate(invalid="ignore"):
            apart = 1.0 - agree / n
        discordant = None
        if self.gold is not None:
            known = (self.gold >= 0)[:, None]
            right = np.where(known & (self.codes >= 0), self.codes == self.gold[:, None], -1)
            m, same = agreement_counts(right.astype(np.int64))
            with np.errstate(invalid="ignore"):
                discordant = 1.0 - same / m
        return Pairwise(n, apart, wilson(apart, n, level), discordant)

    def accuracy(self, names: Sequence[str], level: float) -> pd.DataFrame | None:
        """Return how near each annotator is to the gold labels; None without these."""
        if self.gold is None:
            return None
        known = self.gold >= 0
        codes, gold = self.codes[known], self.gold[known]
        n = (codes >= 0).sum(axis=0)
        with np.errstate(invalid="ignore"):
            share = (codes == gold[:, None]).sum(axis=0) / n
        low, high = wilson(share, n.astype(float), level)
        out = pd.DataFrame(
            {
                "annotator": list(names),
                "n": n,
                "n_missing": known.sum() - n,
                "accuracy": share,
                "conf_low": low,
                "conf_high": high,
            }
        )
        return out.sort_values("accuracy", ascending=False, kind="stable", ignore_index=True)


@dataclass(frozen=True, slots=True)
class Scale:
    """Labels that are numbers on a scale."""

    values: Float
    """(n, K), NaN where missing."""
    gold: Float | None

    def take(self, rows: NDArray[np.bool_]) -> Scale:
        """Return the labels of some items."""
        return Scale(self.values[rows], None if self.gold is None else self.gold[rows])

    def pairwise(self, level: float) -> Pairwise:
        """Return the mean absolute differences of two annotators, and their correlations."""
        x = self.values
        K = x.shape[1]
        n = np.empty((K, K))
        apart, spread = np.empty((K, K)), np.empty((K, K))
        for j in range(K):
            gap = np.abs(x - x[:, [j]])
            n[j] = np.isfinite(gap).sum(axis=0)
            with np.errstate(invalid="ignore"):
                apart[j] = np.nansum(gap, axis=0) / n[j]
                centred = np.nansum((gap - apart[j]) ** 2, axis=0)
            # A single item says nothing about how differences vary.
            spread[j] = np.where(n[j] > 1.0, centred / np.maximum(n[j] - 1.0, 1.0), np.nan)
        z = -special.ndtri((1.0 - level) / 2.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            half = z * np.sqrt(spread / n)
        ends = (np.maximum(apart - half, 0.0), apart + half)
        return Pairwise(n, apart, ends, correlation=correlations(x))

    def accuracy(self, names: Sequence[str], level: float) -> pd.DataFrame | None:
        """Return how near each annotator is to the gold labels; None without these."""
        if self.gold is None:
            return None
        known = np.isfinite(self.gold)
        error = (self.values - self.gold[:, None])[known]
        with_gold = correlations(np.column_stack([self.values, self.gold])[known])
        n = np.isfinite(error).sum(axis=0)
        with np.errstate(invalid="ignore"):
            mean, absolute = np.nansum(error, axis=0) / n, np.nansum(np.abs(error), axis=0) / n
        out = pd.DataFrame(
            {
                "annotator": list(names),
                "n": n,
                "n_missing": known.sum() - n,
                "correlation": with_gold[-1, :-1],
                "mean_error": mean,
                "mean_abs_error": absolute,
            }
        )
        return out.sort_values("correlation", ascending=False, kind="stable", ignore_index=True)


#: Labels of either kind.
Source = Classes | Scale


def agreement_counts(codes: Int) -> tuple[Float, Float]:
    r"""Count, for every pair of annotators, the items both labelled and those labelled alike.

    The second is :math:`\sum_c O_c' O_c` with the (n, K) indicators :math:`O_c` of class c.

    Parameters
    ----------
    codes : (n, K) int array
        -1 where missing.

    Returns
    -------
    n, agree : (K, K) arrays
    """
    K = codes.shape[1]
    n, agree = np.zeros((K, K)), np.zeros((K, K))
    top = int(codes.max(initial=-1))
    for start in range(0, len(codes), _BLOCK):
        # Small integers and float32 count exactly within a block, at twice the speed.
        part = codes[start : start + _BLOCK]
        given = (part >= 0).astype(np.float32)
        n += given.T @ given
        for c in range(top + 1):
            one_hot = (part == c).astype(np.float32)
            agree += one_hot.T @ one_hot
    return n, agree


def wilson(share: Float, n: Float, level: float) -> tuple[Float, Float]:
    """Return Wilson's interval of shares of n independent items; NaN where n is zero."""
    z2 = float(special.ndtri((1.0 - level) / 2.0)) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        centre = (share + z2 / (2.0 * n)) / (1.0 + z2 / n)
        half = np.sqrt(z2 * (share * (1.0 - share) / n + z2 / (4.0 * n**2))) / (1.0 + z2 / n)
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)


def correlations(x: Float) -> Float:
    """Return (K, K) correlations over the rows where both are known; NaN for a constant."""
    given = np.isfinite(x).astype(float)
    with np.errstate(invalid="ignore"):
        origin = np.nansum(x, axis=0) / given.sum(axis=0)
    filled = np.where(given > 0, x - origin, 0.0)
    n = given.T @ given
    sums, squares = filled.T @ given, (filled**2).T @ given
    with np.errstate(divide="ignore", invalid="ignore"):
        covariance = filled.T @ filled - sums * sums.T / n
        variance = squares - sums**2 / n
        variance = np.where(variance > 1e-12 * squares, variance, np.nan)
        return np.asarray(covariance / np.sqrt(variance * variance.T))
