"""How often annotators disagree, pair by pair, and whether accuracy tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trueup.diagnostics.answers import (
    Answers,
    check_margin,
    check_threshold,
    class_codes,
    numbers,
    read_answers,
    shown,
    which_kind,
)
from trueup.diagnostics.pairwise import Classes, Pairwise, Scale, Source
from trueup.errors import ArgumentError, StudyError
from trueup.results.text import WIDTH, paragraph, text_table
from trueup.results.tidy import check_level
from trueup.study.design import Float

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
        apart = int((self.pairs["n"] == 0).sum())
        if apart:
            lines += ["", f"{apart} pairs labelled no item in common: nothing is known of these."]
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
        True labels, for accuracy; may have gaps. A column of the table, or an array in the
        order of the items.
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
    if threshold is not None:
        check_threshold(threshold)
        if gold is None:
            raise ArgumentError(
                "threshold= is about accuracy, which needs gold=: name the column of true labels."
            )
    check_margin(margin)
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
    truth = None if gold is None else found.true_labels(gold)
    groups = None if by is None else found.extra(by, "by=")
    if which == "class":
        codes, gold_codes, _ = class_codes(found, missing, truth, levels)
        source: Source = Classes(codes, gold_codes)
    else:
        source = Scale(numbers(found), None if truth is None else _gold_numbers(truth))
    return _assemble(found, source, groups, threshold, margin, missing, level)


def _gold_numbers(gold: NDArray[Any]) -> Float:
    if gold.dtype == object:
        raise StudyError(
            f"gold= holds text such as {shown(gold[~pd.isna(gold)][0])} but the labels are "
            "numbers: convert it."
        )
    return gold


def _assemble(
    found: Answers,
    source: Source,
    groups: NDArray[Any] | None,
    threshold: float | None,
    margin: float,
    missing: Literal["skip", "category"],
    level: float,
) -> Disagreement:
    names = found.names
    every = source.pairwise(level)
    accuracy = source.accuracy(names, level)
    kind: Literal["class", "numeric"] = "class" if isinstance(source, Classes) else "numeric"
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


def _pairs_table(names: Sequence[str], found: Pairwise) -> pd.DataFrame:
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
    source: Source, groups: NDArray[Any], names: Sequence[str], level: float
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
