"""Whether an annotator gives the same label, and estimate, again: over runs, prompts, orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import special

from trueup.diagnostics.answers import Answers, class_codes, numbers, read_answers, which_kind
from trueup.diagnostics.estimates import share_interval
from trueup.diagnostics.movement import llm_only_estimates, ranges
from trueup.diagnostics.pairwise import agreement_counts
from trueup.errors import ArgumentError
from trueup.results.text import paragraph, text_table
from trueup.results.tidy import check_level
from trueup.study.design import Float, Int
from trueup.study.study import Study
from trueup.study.tables import nearest


@dataclass(frozen=True, slots=True)
class Stability:
    """How often labels change within groups of annotators. Made by :func:`stability`."""

    kind: Literal["class", "numeric"]
    groups: pd.DataFrame
    """One row for each group: group, n_annotators, n_items (with at least two labels),
    flip_rate (or mean_abs_difference) with conf_low and conf_high, unstable (share of items
    with labels that differ) with unstable_low and unstable_high. With ``formula=`` also lowest
    and highest, the range of its LLM-only estimates, moves (their difference) and moves_in_se
    (in mean standard errors)."""
    pairs: pd.DataFrame
    """One row for each pair within a group: group, a, b, n, flip_rate (or
    mean_abs_difference)."""
    items: pd.DataFrame
    """(n, G) for each item and group the share of pairs that differ (or their mean absolute
    difference); missing where fewer than two labels."""
    between: float | None
    """The same as flip_rate for pairs of annotators of different groups; None for one group."""
    level: float
    estimates: pd.DataFrame | None = None
    """With ``formula=``: group, annotator, term, and the estimate and std_error that the labels of
    this annotator give, taken at their word; None without."""

    @property
    def measure(self) -> str:
        """Name of the column that measures change."""
        return "flip_rate" if self.kind == "class" else "mean_abs_difference"

    def tidy(self) -> pd.DataFrame:
        """Return one row for each group."""
        return self.groups.copy()

    def summary(self) -> str:
        """Return a text: how often labels change, by group."""
        rows = [
            [
                str(r["group"]),
                str(r["n_annotators"]),
                f"{r['n_items']:,}",
                *_with_ends(r[self.measure], r["conf_low"], r["conf_high"]),
                *_with_ends(r["unstable"], r["unstable_low"], r["unstable_high"]),
            ]
            for r in self.groups.to_dict("records")
        ]
        head = ["group", "columns", "items", self.measure.replace("_", " "), "", "unstable", ""]
        lines = ["Stability of labels within groups of annotators", "", *text_table(head, rows)]
        if self.between is not None:
            lines += ["", f"Between groups: {self.between:.3f}"]
        lines += self._moves()
        few = self.groups["n_items"].lt(2) & self.groups["n_annotators"].ge(2)
        for group, n in self.groups.loc[few, ["group", "n_items"]].itertuples(index=False):
            lines += paragraph(f"{group}: {n} items have two labels, too few for an interval.")
        lonely = self.groups.loc[self.groups["n_annotators"] < 2, "group"].tolist()
        if lonely:
            names = ", ".join(map(str, lonely[:8]))
            lines += paragraph(f"One column only, so that nothing can change: {names}.")
        return "\n".join(lines)

    def _moves(self) -> list[str]:
        if self.estimates is None:
            return []
        rows = []
        for r in self.groups.to_dict("records"):
            cells = [f"{r[c]:.3f}" for c in ("lowest", "highest", "moves")]
            text = f"{r['moves_in_se']:.1f}"
            rows.append([str(r["group"]), *(cells if r["n_annotators"] > 1 else [*cells[:2], "-"])])
            rows[-1].append(text if r["n_annotators"] > 1 else "-")
        head = ["group", "lowest", "highest", "moves", "in std.\nerrors"]
        term = self.estimates["term"].iloc[0]
        return ["", f"LLM-only estimates of {term!r}", *text_table(head, rows)]

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return self.summary()


def _with_ends(value: float, low: float, high: float) -> list[str]:
    if np.isnan(value):
        return ["-", ""]
    if np.isnan(low):
        return [f"{value:.3f}", ""]
    return [f"{value:.3f}", f"[{low:.3f}, {high:.3f}]"]


def stability(
    answers: Any,
    groups: str | Mapping[str, Sequence[str]] | None = None,
    *,
    annotators: str | Sequence[str] | None = None,
    item: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    variable: str | None = None,
    kind: Literal["auto", "class", "numeric"] = "auto",
    formula: str | None = None,
    family: str = "ols",
    focus: str | None = None,
    level: float = 0.95,
) -> Stability:
    r"""Measure how often labels change between runs, prompts or orders of one annotator.

    With ``formula=``, also how far the regression on these labels moves.

    For the :math:`m_i` labels that a group of columns gives item i, the flip rate is the share
    of pairs of labels that differ, over all items,

    .. math:: \frac{\sum_i \sum_{j<k} 1\{F_{ij} \ne F_{ik}\}}{\sum_i m_i (m_i - 1)/2},

    and an item is unstable where not all its labels are the same. For numbers, mean absolute
    differences take the place of the indicator. Missing labels do not count.

    Parameters
    ----------
    answers : data frame, dict of arrays, or Study
        As in :func:`trueup.disagreement`.
    groups : str, or mapping of str to sequence of str, optional
        Which columns belong together: a field of the annotators' column pattern, such as
        ``"model"`` (prompts of one model are compared), or group -> columns. By default all
        columns are one group.
    annotators : sequence of str, or str, optional
        Columns of a wide table that hold labels, or a pattern such as ``"{model}__{prompt}"``,
        whose fields ``groups`` may name.
    item, annotator, label : str, optional
        Columns of a long table.
    variable : str, optional
        Labelled variable of a study that has several.
    kind : {"auto", "class", "numeric"}
        As in :func:`trueup.disagreement`.
    formula : str, optional
        Regression that uses the label, of a study. It is fitted to the labels of each annotator,
        taken at their word, and each group has the range of its estimates. These are no correct
        estimates: the range shows what the choice of a run or prompt alone can do.
    family : str
        Of the regression, such as ``"ols"`` or ``"logit"``.
    focus : str, optional
        Its coefficient of interest; by default the first one that is no intercept.
    level : float
        Of the intervals, which take items as independent draws.

    Returns
    -------
    Stability

    Raises
    ------
    ArgumentError, StudyError
        If the groups are unknown, none has two columns, labels cannot be compared, or a formula
        is given for a table that is no study.
    FormulaError, FitError
        If the formula cannot be read or fitted.

    See Also
    --------
    trueup.multiverse : Its ``agree_test`` tests whether such estimates differ by chance.

    Examples
    --------
    >>> import trueup as tu
    >>> labels = {"gpt__p1": [1, 0, 1, 0], "gpt__p2": [1, 0, 0, 0], "phi__p1": [0, 0, 1, 1],
    ...           "phi__p2": [0, 1, 0, 1]}
    >>> found = tu.stability(labels, groups="model", annotators="{model}__{prompt}")
    >>> found.groups[["group", "flip_rate"]].values.tolist()
    [['gpt', 0.25], ['phi', 0.5]]

    How far a coefficient moves between two runs:

    >>> run = tu.simulate.Annotator("run1"), tu.simulate.Annotator("run2")
    >>> sim = tu.simulate.study(2_000, annotators=run, seed=1)
    >>> found = tu.stability(sim.study, formula="label ~ treated + x", family="logit")
    >>> found.groups[["lowest", "highest", "moves"]].round(2).values.tolist()
    [[0.78, 0.89, 0.11]]
    """
    check_level(level)
    if formula is not None and not isinstance(answers, Study):
        raise ArgumentError(
            "formula= needs a study, with the other variables of the regression: give a tu.Study."
        )
    found = read_answers(
        answers,
        item=item,
        annotator=annotator,
        label=label,
        variable=variable,
        annotators=_columns_needed(groups, annotators),
    )
    members = _members(found, groups)
    which = which_kind(kind, found)
    if which == "class":
        source: _Labels = class_codes(found, "skip")[0]
    else:
        source = numbers(found)
    parts = {g: source[:, columns] for g, columns in members.items()}
    by_item = {g: _by_item(values) for g, values in parts.items()}
    measure = "flip_rate" if which == "class" else "mean_abs_difference"
    table = pd.DataFrame([_row(g, *by_item[g], parts[g], measure, level) for g in parts])
    items = pd.DataFrame({g: _share(pairs, apart) for g, (pairs, apart) in by_item.items()})
    apart = _apart(source)
    between = _between(apart, members) if len(members) > 1 else None
    estimates = None
    if formula is not None:
        named = {g: [found.names[j] for j in columns] for g, columns in members.items()}
        estimates = llm_only_estimates(answers, variable, named, formula, family, focus)
        table = table.merge(ranges(estimates), left_on="group", right_index=True, how="left")
    pairs = _pairs(apart, found, members, measure)
    return Stability(which, table, pairs, items, between, level, estimates)


_Labels = Int | Float


def _columns_needed(
    groups: str | Mapping[str, Sequence[str]] | None, annotators: str | Sequence[str] | None
) -> str | Sequence[str] | None:
    """Columns that groups name are those that are read, where nothing else is said."""
    _check_groups(groups)
    if annotators is None and isinstance(groups, Mapping):
        return list(dict.fromkeys(c for columns in groups.values() for c in columns))
    return annotators


def _check_groups(groups: Any) -> None:
    """Raise where groups are neither a field nor group -> columns."""
    if groups is None or isinstance(groups, str):
        return
    if not isinstance(groups, Mapping) or not groups:
        raise ArgumentError(
            f"groups={groups!r} must be a field of the annotators' names, such as 'model', or "
            "columns by group, as in groups={'gpt': ['run1', 'run2']}."
        )
    for group, columns in groups.items():
        if isinstance(columns, str) or not len(columns):
            raise ArgumentError(
                f"groups= gives the group {group!r} {columns!r}: give a list of its columns."
            )


def _members(
    found: Answers, groups: str | Mapping[str, Sequence[str]] | None
) -> dict[str, list[int]]:
    """Return positions of the annotators of each group."""
    members: dict[str, list[int]] = {}
    if groups is None:
        members["all"] = list(range(len(found.names)))
    elif isinstance(groups, str):
        for j, name in enumerate(found.names):
            fields = found.metadata.get(name, {})
            if groups not in fields:
                raise ArgumentError(
                    f"Annotator {name!r} has no field {groups!r}.{nearest(groups, fields)} Give "
                    "columns by a pattern such as '{model}__{prompt}', or groups= as "
                    "{group: columns}."
                )
            members.setdefault(fields[groups], []).append(j)
    else:
        for group, columns in groups.items():
            for name in columns:
                if name not in found.names:
                    raise ArgumentError(
                        f"groups= names {name!r}, which is no annotator."
                        f"{nearest(name, found.names)}"
                    )
            members[group] = [found.names.index(name) for name in dict.fromkeys(columns)]
    if all(len(columns) < 2 for columns in members.values()):
        raise ArgumentError(
            "No group has two columns, so that nothing can change: group columns of the same "
            "annotator, for instance its prompts or repeated runs."
        )
    return members


def _by_item(values: _Labels) -> tuple[Float, Float]:
    """Return (n,) numbers of pairs of labels, and sums over pairs of how far they are apart."""
    n, K = values.shape
    pairs, apart = np.zeros(n), np.zeros(n)
    for j in range(K):
        for k in range(j):
            both, gap = _gap(values[:, j], values[:, k])
            pairs += both
            apart += gap
    return pairs, apart


def _gap(a: _Labels, b: _Labels) -> tuple[Float, Float]:
    """Return where both labels are known, and how far apart they are there (0 elsewhere)."""
    if a.dtype.kind == "i":
        both = (a >= 0) & (b >= 0)
        return both.astype(float), (both & (a != b)).astype(float)
    gap = np.abs(a - b)
    both = np.isfinite(gap)
    return both.astype(float), np.where(both, gap, 0.0)


def _share(pairs: Float, apart: Float) -> Float:
    return np.asarray(np.where(pairs > 0, apart / np.maximum(pairs, 1.0), np.nan))


def _row(
    group: str, pairs: Float, apart: Float, values: _Labels, measure: str, level: float
) -> dict[str, Any]:
    counted = pairs > 0
    n = int(counted.sum())
    out: dict[str, Any] = {"group": group, "n_annotators": values.shape[1], "n_items": n}
    ends = ["conf_low", "conf_high", "unstable", "unstable_low", "unstable_high"]
    if n == 0:
        return {**out, measure: np.nan, **dict.fromkeys(ends, np.nan)}
    rate = float(apart.sum() / pairs.sum())
    if n == 1:
        one = {"unstable": float(apart.sum() > 0)}
        return {**out, measure: rate, **dict.fromkeys(ends, np.nan), **one}
    residual = (apart - rate * pairs)[counted] / pairs.sum()
    variance = float(n / (n - 1) * (residual @ residual))
    if measure == "flip_rate":
        low, high = share_interval(rate, variance, n, level, np.inf)
    else:
        half = -float(special.ndtri((1.0 - level) / 2.0)) * np.sqrt(variance)
        low, high = max(rate - half, 0.0), rate + half
    unstable = float((apart[counted] > 0).mean())
    ends_of = share_interval(unstable, unstable * (1.0 - unstable) / n, n, level, np.inf)
    return {**out, measure: rate, **dict(zip(ends, (low, high, unstable, *ends_of), strict=True))}


def _apart(source: _Labels) -> tuple[Float, Float]:
    """Return (K, K) numbers of items and sums of differences for every pair of annotators."""
    if source.dtype.kind == "i":
        n, agree = agreement_counts(np.asarray(source, np.int64))
        return n, n - agree
    K = source.shape[1]
    n, total = np.zeros((K, K)), np.zeros((K, K))
    for j in range(K):
        gap = np.abs(source - source[:, [j]])
        n[j], total[j] = np.isfinite(gap).sum(axis=0), np.nansum(gap, axis=0)
    return n, total


def _between(apart: tuple[Float, Float], members: Mapping[str, Sequence[int]]) -> float:
    K = len(apart[0])
    same = np.zeros((K, K), dtype=bool)
    used = np.zeros(K, dtype=bool)
    for columns in members.values():
        same[np.ix_(columns, columns)] = True
        used[columns] = True
    other = ~same & np.outer(used, used)
    n, total = (x[other].sum() for x in apart)
    return float(total / n) if n else float("nan")


def _pairs(
    apart: tuple[Float, Float], found: Answers, members: Mapping[str, Sequence[int]], measure: str
) -> pd.DataFrame:
    rows = []
    n, total = apart
    for group, columns in members.items():
        for i, j in enumerate(columns):
            for k in columns[i + 1 :]:
                rate = total[j, k] / n[j, k] if n[j, k] else np.nan
                rows.append((group, found.names[j], found.names[k], int(n[j, k]), rate))
    return pd.DataFrame(rows, columns=["group", "a", "b", "n", measure])
