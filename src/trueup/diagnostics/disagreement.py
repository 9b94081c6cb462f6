"""How often annotators disagree, pair by pair, and whether accuracy tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from trueup.diagnostics.answers import Answers, class_codes, numbers, read_answers, which_kind
from trueup.errors import ArgumentError, StudyError
from trueup.results.text import WIDTH, paragraph, text_table
from trueup.results.tidy import check_level
from trueup.study.design import Float, Int

#: Items counted at a time, so that one-hot codes stay small.
_BLOCK = 65_536
#: Annotators whose matrix is printed in full.
_PRINTED = 8


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Pairwise disagreement between annotators. Made by :func:`disagreement`."""

    kind: Literal["class", "numeric"]
    missing: Literal["skip", "category"]
    matrix: pd.DataFrame
    """(K, K) share of items on which two annotators differ, or mean absolute difference."""
    counts: pd.DataFrame
    """(K, K) number of items that each entry rests on."""
    pairs: pd.DataFrame
    """One row for each of the K (K - 1)/2 pairs: a, b, n, disagreement (or
    mean_abs_difference and correlation), conf_low, conf_high; with gold labels also the
    accuracy of both, their gap, discordant (share of items that one has right and the other
    wrong), equally_accurate and above_threshold."""
    accuracy: pd.DataFrame | None
    """One row for each annotator, most accurate first; None without gold labels."""
    by: pd.DataFrame | None
    """The pairs within each category of ``by=``; None without."""
    threshold: float | None
    margin: float
    level: float
    n_items: int

    @property
    def measure(self) -> str:
        """Name of the column that measures disagreement."""
        return "disagreement" if self.kind == "class" else "mean_abs_difference"

    @property
    def equally_accurate(self) -> pd.DataFrame:
        """The pairs whose accuracies differ by at most ``margin``.

        Raises
        ------
        ArgumentError
            If no gold labels were given.
        """
        return self._subset("equally_accurate")

    @property
    def above_threshold(self) -> pd.DataFrame:
        """The pairs with both accuracies above ``threshold``.

        Raises
        ------
        ArgumentError
            If no gold labels, or no threshold, were given.
        """
        return self._subset("above_threshold")

    def _subset(self, flag: str) -> pd.DataFrame:
        if flag not in self.pairs:
            needed = "gold=" if flag == "equally_accurate" else "gold= and threshold="
            raise ArgumentError(f"Accuracy is not known: call disagreement() with {needed}.")
        return self.pairs[self.pairs[flag].astype(bool)].reset_index(drop=True)

    def tidy(self) -> pd.DataFrame:
        """Return one row for each pair."""
        return self.pairs.copy()

    def summary(self) -> str:
        """Return a text: ranges of disagreement over all pairs and over like pairs."""
        K = len(self.matrix)
        what = "differ" if self.kind == "class" else "mean absolute difference"
        lines = [
            f"Disagreement of {K} annotators on {self.n_items:,} items "
            f"({len(self.pairs)} pairs; {what})",
            *paragraph(_MISSING_RULE[self.missing]),
            "",
            *text_table(["", "pairs", "lowest", "median", "highest"], self._ranges()),
        ]
        if self.accuracy is not None:
            score = self.accuracy[self._score]
            lines += ["", f"{self._score.capitalize()} {score.min():.3f} to {score.max():.3f}"]
        if K <= _PRINTED:
            lines += ["", *self._matrix_lines()]
        return "\n".join(lines)

    @property
    def _score(self) -> str:
        return "accuracy" if self.kind == "class" else "correlation"

    def _ranges(self) -> list[list[str]]:
        sets = [("all pairs", self.pairs)]
        if "equally_accurate" in self.pairs:
            sets.append((f"{self._score} within {self.margin:g}", self.equally_accurate))
        if "above_threshold" in self.pairs:
            sets.append((f"both above {self.threshold:g}", self.above_threshold))
        return [[name, str(len(pairs)), *_range(pairs[self.measure])] for name, pairs in sets]

    def _matrix_lines(self) -> list[str]:
        names = [str(c) for c in self.matrix.columns]
        short = [f"[{j + 1}]" for j in range(len(names))]
        rows = [
            [f"{tag} {name}"[: WIDTH // 3], *(f"{x:.3f}" for x in row)]
            for tag, name, row in zip(short, names, self.matrix.to_numpy(), strict=True)
        ]
        return text_table(["", *short], rows)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return self.summary()


_MISSING_RULE = {
    "skip": "An item counts for a pair where both gave a label.",
    "category": "A missing label counts as a category of its own.",
}


def _range(values: pd.Series[float]) -> list[str]:
    if not len(values):
        return ["", "", ""]
    return [f"{x:.3f}" for x in (values.min(), values.median(), values.max())]


def disagreement(
    answers: Any,
    gold: Any = None,
    by: Any = None,
    threshold: float | None = None,
    margin: float = 0.01,
    missing: Literal["skip", "category"] = "skip",
    *,
    annotators: str | Sequence[str] | None = None,
    item: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    variable: str | None = None,
    kind: Literal["auto", "class", "numeric"] = "auto",
    levels: Sequence[Any] | None = None,
    level: float = 0.95,
) -> Disagreement:
    r"""Measure how often annotators give different labels to the same items.

    Two annotators with the same accuracy can still disagree on every item that either has
    wrong. For every pair of annotators j and k, and the items i that count,

    .. math:: d_{jk} = \frac{1}{n_{jk}} \sum_i 1\{F_{ij} \ne F_{ik}\}.

    For numeric labels :math:`|F_{ij} - F_{ik}|` takes the place of the indicator, and the
    correlation is given too.

    Parameters
    ----------
    answers : data frame, dict of arrays, or Study
        Wide: one row for each item, one column for each annotator. Long: one row for each
        label; name the columns with ``item``, ``annotator`` and ``label``. Of a study, the
        LLM labels of all rows.
    gold : str or array of shape (n,), optional
        True labels, for accuracy; may have gaps. A column of a wide table, or an array.
    by : str or array of shape (n,), optional
        Category of each item: disagreement is given within each.
    threshold : float, optional
        Sets apart the pairs with both accuracies above it.
    margin : float
        Pairs whose accuracies differ by at most this are "equally accurate".
    missing : {"skip", "category"}
        ``"skip"``: an item counts for a pair where both gave a label. ``"category"``: a missing
        label is a category of its own, which agrees with itself and is always wrong. The
        same rule holds for accuracy: of the items answered, or of all items.
    annotators : sequence of str, or str, optional
        Columns of a wide table that hold labels, or a pattern such as ``"{model}__{prompt}"``;
        by default all but those of ``gold`` and ``by``.
    item, annotator, label : str, optional
        Columns of a long table. Items are in the order in which they first appear.
    variable : str, optional
        Labelled variable of a study that has several.
    kind : {"auto", "class", "numeric"}
        Whether labels are classes or a scale. ``"auto"``: text, and up to 12 distinct whole
        numbers, are classes. On a scale, correlation with ``gold`` stands for accuracy.
    levels : sequence, optional
        All labels there can be, where annotators did not give all of them.
    level : float
        Of the intervals: Wilson's for shares, normal for mean differences. They take items as
        independent draws.

    Returns
    -------
    Disagreement

    Raises
    ------
    ArgumentError, StudyError
        If there is one annotator only, an annotator gave no label, gold labels are none of
        the labels, lengths differ, or accuracy is asked for without gold labels.

    Examples
    --------
    >>> import trueup as tu
    >>> labels = {"a": [1, 1, 0, 0], "b": [1, 0, 0, 0], "c": [1, 0, 0, 1]}
    >>> tu.disagreement(labels).matrix.loc["a", "c"]
    np.float64(0.5)

    References
    ----------
    Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    if missing not in _MISSING_RULE:
        raise ArgumentError(f"missing={missing!r} is unknown: use 'skip' or 'category'.")
    if threshold is not None and gold is None:
        raise ArgumentError(
            "threshold= is about accuracy, which needs gold=: name the column of true labels."
        )
    if not margin >= 0:
        raise ArgumentError(f"margin={margin!r} must be zero or more.")
    check_level(level)
    found = read_answers(
        answers,
        item=item,
        annotator=annotator,
        label=label,
        variable=variable,
        annotators=annotators,
        leave_out=(gold, by),
    )
    which = which_kind(kind, found)
    if which == "numeric" and missing == "category":
        raise ArgumentError(
            "missing='category' is for classes; on a scale a missing label has no difference to "
            "others: use missing='skip'."
        )
    truth = None if gold is None else found.extra(gold, "gold")
    groups = None if by is None else found.extra(by, "by")
    if which == "class":
        codes, gold_codes, _ = class_codes(found, missing, truth, levels)
        source: _Source = _Classes(codes, gold_codes)
    else:
        source = _Scale(numbers(found), None if truth is None else _gold_numbers(truth))
    return _assemble(found, source, groups, threshold, margin, missing, level)


def _gold_numbers(gold: NDArray[Any]) -> Float:
    if gold.dtype == object:
        raise StudyError(
            f"gold= holds text such as {next(iter(gold))!r} but the labels are numbers: convert it."
        )
    return gold.astype(np.float64)


@dataclass(frozen=True, slots=True)
class _Pairwise:
    """(K, K) arrays over pairs of annotators."""

    n: Float
    apart: Float
    half: tuple[Float, Float]
    """Lower and upper ends of the intervals."""
    discordant: Float | None = None
    correlation: Float | None = None


@dataclass(frozen=True, slots=True)
class _Classes:
    codes: Int
    """(n, K), -1 where missing."""
    gold: Int | None

    def take(self, rows: NDArray[np.bool_]) -> _Classes:
        return _Classes(self.codes[rows], None if self.gold is None else self.gold[rows])

    def pairwise(self, level: float) -> _Pairwise:
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
        return _Pairwise(n, apart, wilson(apart, n, level), discordant)

    def accuracy(self, names: Sequence[str], level: float) -> pd.DataFrame | None:
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
        return out.sort_values("accuracy", ascending=False, ignore_index=True)


@dataclass(frozen=True, slots=True)
class _Scale:
    values: Float
    """(n, K), NaN where missing."""
    gold: Float | None

    def take(self, rows: NDArray[np.bool_]) -> _Scale:
        return _Scale(self.values[rows], None if self.gold is None else self.gold[rows])

    def pairwise(self, level: float) -> _Pairwise:
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
            spread[j] = centred / np.maximum(n[j] - 1.0, 1.0)
        z = -special.ndtri((1.0 - level) / 2.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            half = z * np.sqrt(spread / n)
        ends = (np.maximum(apart - half, 0.0), apart + half)
        return _Pairwise(n, apart, ends, correlation=_correlations(x))

    def accuracy(self, names: Sequence[str], level: float) -> pd.DataFrame | None:
        if self.gold is None:
            return None
        known = np.isfinite(self.gold)
        error = (self.values - self.gold[:, None])[known]
        with_gold = _correlations(np.column_stack([self.values, self.gold])[known])
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
        return out.sort_values("correlation", ascending=False, ignore_index=True)


_Source = _Classes | _Scale


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


def _correlations(x: Float) -> Float:
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


def _assemble(
    found: Answers,
    source: _Source,
    groups: NDArray[Any] | None,
    threshold: float | None,
    margin: float,
    missing: Literal["skip", "category"],
    level: float,
) -> Disagreement:
    names = found.names
    every = source.pairwise(level)
    accuracy = source.accuracy(names, level)
    kind: Literal["class", "numeric"] = "class" if isinstance(source, _Classes) else "numeric"
    pairs = _pairs_table(names, every)
    if accuracy is not None:
        score = "accuracy" if kind == "class" else "correlation"
        _add_accuracy(pairs, accuracy, score, threshold, margin)
    within = None if groups is None else _within(source, groups, names, level)
    index = pd.Index(names)
    counts = pd.DataFrame(every.n.astype(int), index, index)
    matrix = pd.DataFrame(every.apart, index, index)
    return Disagreement(
        kind, missing, matrix, counts, pairs, accuracy, within, threshold, margin, level,
        found.n_items,
    )  # fmt: skip


def _pairs_table(names: Sequence[str], found: _Pairwise) -> pd.DataFrame:
    a, b = np.triu_indices(len(names), 1)
    labels = np.asarray(names, dtype=object)
    measure = "disagreement" if found.correlation is None else "mean_abs_difference"
    out = pd.DataFrame(
        {
            "a": labels[a],
            "b": labels[b],
            "n": found.n[a, b].astype(int),
            measure: found.apart[a, b],
            "conf_low": found.half[0][a, b],
            "conf_high": found.half[1][a, b],
        }
    )
    if found.correlation is not None:
        out["correlation"] = found.correlation[a, b]
    if found.discordant is not None:
        out["discordant"] = found.discordant[a, b]
    return out


def _add_accuracy(
    pairs: pd.DataFrame,
    accuracy: pd.DataFrame,
    score: str,
    threshold: float | None,
    margin: float,
) -> None:
    by_name = accuracy.set_index("annotator")[score]
    for side in ("a", "b"):
        pairs[f"{score}_{side}"] = by_name.reindex(pairs[side]).to_numpy()
    gap = (pairs[f"{score}_a"] - pairs[f"{score}_b"]).abs()
    pairs[f"{score}_gap"] = gap
    # A hair's breadth for gaps that equal the margin up to rounding.
    pairs["equally_accurate"] = gap <= margin + 1e-12
    if threshold is not None:
        least = pairs[[f"{score}_a", f"{score}_b"]].min(axis=1, skipna=False)
        pairs["above_threshold"] = least > threshold


def _within(
    source: _Source, groups: NDArray[Any], names: Sequence[str], level: float
) -> pd.DataFrame:
    missing = pd.isna(groups)
    if missing.any():
        raise StudyError(
            f"by= is missing for {int(missing.sum())} items (first at positions "
            f"{np.flatnonzero(missing)[:5].tolist()}): give every item a category."
        )
    codes, levels = pd.factorize(groups, sort=True)
    tables = []
    for g, name in enumerate(levels):
        table = _pairs_table(names, source.take(codes == g).pairwise(level))
        table.insert(0, "by", name)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)
