"""Labels of many annotators for the same items, from a wide table, a long table or a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trueup.diagnostics.kappa import encode_labels
from trueup.errors import ArgumentError, StudyError
from trueup.study.design import Float, Int
from trueup.study.labels import Pattern
from trueup.study.study import Study
from trueup.study.tables import Table, nearest
from trueup.study.values import as_numbers, read_labels

Kind = Literal["class", "numeric"]

#: More distinct numbers than this are taken for a scale rather than for classes.
MOST_CLASSES = 12


@dataclass(frozen=True, slots=True)
class Answers:
    """Labels of n items by K annotators."""

    names: tuple[str, ...]
    columns: tuple[NDArray[Any], ...]
    """K arrays of shape (n,): float64 with NaN, or text with None, where missing."""
    table: Table
    """Where columns for ``gold=`` and ``by=`` may be."""
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rows: Int | None = None
    """Positions in the table, where only some rows count."""
    items: tuple[Int, NDArray[Any]] | None = None
    """Of a long table: (rows,) item of each row by number, and (n,) names of the items."""

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.columns[0])

    def extra(self, given: Any, argument: str) -> NDArray[Any]:
        """Return another column of the table, or an array, as (n,) values.

        Raises
        ------
        ArgumentError
            If the column does not exist or the array has another length.
        """
        table, name = self._source(given, argument)
        return self._by_item(table.column(name), given, argument)

    def true_labels(self, given: Any) -> NDArray[Any]:
        """Return ``gold=``, a column or an array, as (n,) labels: numbers or text.

        Raises
        ------
        ArgumentError, StudyError
            If it does not exist, has another length, holds no label, or what is no label, such
            as infinite numbers.
        """
        table, name = self._source(given, "gold=")
        labels = read_labels(table, name)
        if labels.empty:
            raise ArgumentError(
                "gold= holds no label at all, so that no accuracy can be computed: name another "
                "column, or leave gold= out."
            )
        return self._by_item(labels.values, given, "gold=")

    def _source(self, given: Any, argument: str) -> tuple[Table, str]:
        if isinstance(given, str):
            self.table.require(given, argument)
            return self.table, given
        table = Table({argument: given})
        if table.n_rows != self.n_items:
            raise ArgumentError(
                f"{argument} has {table.n_rows} values for {self.n_items} items: give one for each."
            )
        return table, argument

    def _by_item(self, values: NDArray[Any], given: Any, argument: str) -> NDArray[Any]:
        if not isinstance(given, str):
            return values
        if self.items is not None:
            return _one_for_each(values, *self.items, f"{argument}{given!r}")
        return values if self.rows is None else values[self.rows]


def _one_for_each(values: NDArray[Any], items: Int, names: NDArray[Any], what: str) -> NDArray[Any]:
    """Return the value of each item from a long table that repeats it for each label."""
    codes, _ = pd.factorize(values)
    grouped = pd.Series(codes).groupby(items)
    varies = (grouped.min() != grouped.max()).to_numpy()
    if varies.any():
        raise StudyError(
            f"{what} is not the same in all rows of {int(varies.sum())} items (first: "
            f"{shown(names[varies][0])}): an item has one value, whoever labelled it."
        )
    return values[np.unique(items, return_index=True)[1]]


def shown(value: Any) -> str:
    """Return a value as a user would write it."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def check_margin(margin: Any) -> float:
    """Return the margin within which annotators are alike.

    Raises
    ------
    ArgumentError
        If it is no number of zero or more.
    """
    number = isinstance(margin, Real) and not isinstance(margin, bool)
    if not number or not 0.0 <= float(margin) < np.inf:
        raise ArgumentError(f"margin={margin!r} must be a number of zero or more, such as 0.02.")
    return float(margin)


def check_threshold(threshold: Any) -> float:
    """Return the accuracy (or correlation) above which annotators are set apart.

    Raises
    ------
    ArgumentError
        If it is no number between -1 and 1.
    """
    number = isinstance(threshold, Real) and not isinstance(threshold, bool)
    if not number or not -1.0 <= float(threshold) <= 1.0:
        percent = number and 1.0 < float(threshold) <= 100.0
        hint = f": write {float(threshold) / 100:g}" if percent else ""
        raise ArgumentError(
            f"threshold={threshold!r} must be a share, at most 1, or a correlation{hint}."
        )
    return float(threshold)


def read_answers(
    answers: Any,
    *,
    item: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    variable: str | None = None,
    annotators: str | Sequence[str] | None = None,
    leave_out: Sequence[Any] = (),
) -> Answers:
    """Read labels of annotators.

    Parameters
    ----------
    answers : data frame, dict of arrays, or Study
        Wide (one column for each annotator) or, with ``item``, ``annotator`` and ``label``,
        long (one row for each label).
    item, annotator, label : str, optional
        Columns of a long table.
    variable : str, optional
        Labelled variable of a study with several.
    annotators : str or sequence of str, optional
        Which annotators: names, or for a wide table a pattern such as ``"{model}__{prompt}"``;
        all where None.
    leave_out : sequence
        Columns of a wide table with another job; what is not text is passed over.

    Raises
    ------
    ArgumentError, StudyError
        If there are fewer than two annotators, one of them labelled nothing or is there twice,
        or labels of one annotator are text and those of another numbers.
    """
    long = (item, annotator, label)
    if isinstance(answers, Study):
        _refuse_long(long, "a study")
        found = _from_study(answers, variable, annotators)
    elif any(x is not None for x in long):
        found = _choose(_from_long(Table(answers), item, annotator, label), annotators)
    else:
        texts = [c for c in leave_out if isinstance(c, str)]
        found = _from_wide(Table(answers), annotators, texts)
    _check(found)
    return found


def _refuse_long(long: Sequence[str | None], what: str) -> None:
    if any(x is not None for x in long):
        raise ArgumentError(f"item=, annotator= and label= are for long tables, not for {what}.")


def _from_study(
    study: Study, variable: str | None, annotators: str | Sequence[str] | None
) -> Answers:
    name = one_variable(study, variable)
    table = study.contents.table
    names = study.resolve("all" if annotators is None else annotators)
    columns = [read_labels(table, study.annotator(a).columns[name]) for a in names]
    if study.levels(name) is None:
        columns = [as_numbers(c) for c in columns]
    return Answers(
        names,
        tuple(c.values[study.positions] for c in columns),
        table,
        {a: study.annotator(a).metadata for a in names},
        study.positions,
    )


def _choose(found: Answers, annotators: str | Sequence[str] | None) -> Answers:
    if annotators is None:
        return found
    wanted = [annotators] if isinstance(annotators, str) else list(annotators)
    for name in wanted:
        if name not in found.names:
            raise ArgumentError(f"There is no annotator {name!r}.{nearest(name, found.names)}")
    columns = tuple(found.columns[found.names.index(n)] for n in wanted)
    return replace(found, names=tuple(wanted), columns=columns)


def one_variable(study: Study, variable: str | None) -> str:
    """Return the labelled variable meant, the only one where None is given.

    Raises
    ------
    ArgumentError
        If this is no study, there are several variables and none is named, or the name is
        unknown.
    """
    if not isinstance(study, Study):
        raise ArgumentError(
            f"This needs a study, not {type(study).__name__}: say who labelled what with "
            "tu.Study(table, human=..., llm=...)."
        )
    if variable is None and len(study.variables) == 1:
        return study.variables[0]
    if variable is None or variable not in study.variables:
        asked = "variable= is needed" if variable is None else f"{variable!r} is none of them"
        raise ArgumentError(
            f"The study has the labelled variables {', '.join(map(repr, study.variables))}; "
            f"{asked}."
        )
    return variable


def _from_wide(
    table: Table, annotators: str | Sequence[str] | None, leave_out: Sequence[str]
) -> Answers:
    for name in leave_out:
        table.require(name, "gold= or by=")
    free = [c for c in table.columns if c not in leave_out]
    metadata: dict[str, dict[str, str]] = {}
    if annotators is None:
        names = tuple(free)
        _refuse_row_numbers(table, names)
    elif isinstance(annotators, str) and annotators not in table.columns:
        found = {c: Pattern(annotators).match(c) for c in free}
        metadata = {c: fields for c, fields in found.items() if fields is not None}
        names = tuple(metadata)
        if not names:
            raise ArgumentError(
                f"annotators={annotators!r} matches no column.{nearest(annotators, free)}"
            )
    else:
        names = (annotators,) if isinstance(annotators, str) else tuple(annotators)
        for name in names:
            table.require(name, "annotators=")
    return Answers(names, tuple(read_labels(table, c).values for c in names), table, metadata)


def _refuse_row_numbers(table: Table, names: Sequence[str]) -> None:
    """Raise where a column beside classes looks like the numbers of the items."""
    numbers = {n: c for n in names if (c := table.column(n)).dtype.kind in "iu"}
    few = {n for n, c in numbers.items() if len(np.unique(c[: 4 * MOST_CLASSES])) <= MOST_CLASSES}
    for name, column in numbers.items():
        if few and len(column) > MOST_CLASSES and len(np.unique(column)) == len(column):
            raise StudyError(
                f"Column {name!r} holds another whole number in every row, unlike the labels in "
                f"{sorted(few)[0]!r}: it looks like the number of the item. Name the columns of "
                "the annotators with annotators=, or leave it out."
            )


def _from_long(table: Table, item: str | None, annotator: str | None, label: str | None) -> Answers:
    if item is None or annotator is None or label is None:
        raise ArgumentError(
            "A long table needs all of item=, annotator= and label=, the columns that say which "
            "item was labelled, by whom, and how."
        )
    for name, argument in ((item, "item="), (annotator, "annotator="), (label, "label=")):
        table.require(name, argument)
    rows, items = pd.factorize(table.column(item))
    columns, who = pd.factorize(table.column(annotator))
    gaps = (rows < 0) | (columns < 0)
    if gaps.any():
        raise StudyError(
            f"{int(gaps.sum())} rows of the long table lack an item or an annotator (first at "
            f"positions {np.flatnonzero(gaps)[:5].tolist()}): fill them in, or drop them."
        )
    values = read_labels(table, label).values
    cells = rows * len(who) + columns
    twice = pd.Series(cells).duplicated().to_numpy()
    if twice.any():
        first = int(np.flatnonzero(twice)[0])
        raise StudyError(
            f"{int(twice.sum())} labels are there twice: annotator {shown(who[columns[first]])} "
            f"labelled item {shown(items[rows[first]])} more than once. Keep one label, or make "
            "the runs annotators of their own."
        )
    empty = None if values.dtype == object else np.nan
    wide = np.full((len(items), len(who)), empty, dtype=values.dtype)
    wide[rows, columns] = values
    names = tuple(map(str, who))
    return Answers(names, tuple(wide.T), table, items=(rows, np.asarray(items)))


def _check(found: Answers) -> None:
    if len(found.names) < 2:
        raise ArgumentError(
            f"There is one annotator, {', '.join(map(repr, found.names)) or 'none'}: disagreement "
            "takes at least two. Add a column for each annotator."
        )
    twice = [n for n in dict.fromkeys(found.names) if found.names.count(n) > 1]
    if twice:
        raise ArgumentError(
            f"There are two annotators {twice[0]!r}: name each once, and write names as text (the "
            "number 1 and the text '1' are not told apart)."
        )
    silent = [n for n, c in zip(found.names, found.columns, strict=True) if pd.isna(c).all()]
    if silent:
        raise StudyError(
            f"{', '.join(map(repr, silent[:5]))} labelled no item: leave such annotators out."
        )
    text = [n for n, c in zip(found.names, found.columns, strict=True) if c.dtype == object]
    if text and len(text) < len(found.names):
        other = next(n for n in found.names if n not in text)
        raise StudyError(
            f"Annotator {text[0]!r} gives text {_sample(found, text[0])} but {other!r} gives "
            f"numbers {_sample(found, other)}: they would never agree. Convert one kind into the "
            "other, or leave out columns that hold no labels."
        )


def _sample(found: Answers, name: str) -> str:
    values = found.columns[found.names.index(name)]
    shown = pd.Series(values).dropna().unique()[:3].tolist()
    return f"({', '.join(repr(x) if isinstance(x, str) else f'{x:g}' for x in shown)})"


def which_kind(kind: str, answers: Answers) -> Kind:
    """Return whether labels are classes or a scale, by what is said or by their values.

    Raises
    ------
    ArgumentError
        If the kind is unknown, or text is said to be numeric.
    """
    if kind not in ("auto", "class", "numeric"):
        raise ArgumentError(f"kind={kind!r} is unknown: use 'auto', 'class' or 'numeric'.")
    text = answers.columns[0].dtype == object
    if kind == "numeric" and text:
        raise ArgumentError("kind='numeric' needs numbers, but the labels are text: use 'class'.")
    if kind != "auto":
        return cast(Kind, kind)
    return "class" if text or look_like_classes(answers.columns) else "numeric"


def look_like_classes(columns: Sequence[NDArray[Any]]) -> bool:
    """Whether numbers are few and whole, so that they can stand for classes."""
    seen: set[float] = set()
    for column in columns:
        seen.update(np.unique(column[~np.isnan(column)])[: MOST_CLASSES + 1].tolist())
    return len(seen) <= MOST_CLASSES and all(x.is_integer() for x in seen)


def class_codes(
    answers: Answers,
    missing: str,
    gold: NDArray[Any] | None = None,
    levels: Sequence[Any] | None = None,
) -> tuple[Int, Int | None, list[Any]]:
    """Return (n, K) codes, (n,) codes of the gold labels, and the classes.

    Codes are -1 where missing; with ``missing="category"`` missing is a class of its own.

    Raises
    ------
    StudyError
        If a gold label is one that no annotator ever gave.
    """
    codes, names = encode_labels(answers.columns, levels)
    truth: Int | None = None
    if gold is not None:
        truth = _gold_codes(gold, names, answers)
    if missing == "category" and (codes < 0).any():
        codes = np.where(codes < 0, len(names), codes)
        names = [*names, None]
    return codes, truth, names


def _gold_codes(gold: NDArray[Any], names: Sequence[Any], answers: Answers) -> Int:
    text = answers.columns[0].dtype == object
    if (gold.dtype == object) != text:
        kinds = ("numbers", "text") if text else ("text", "numbers")
        raise StudyError(
            f"Gold labels such as {shown(gold[~pd.isna(gold)][0])} are {kinds[0]}, but annotators "
            f"give {kinds[1]} {_sample(answers, answers.names[0])}: convert one of them."
        )
    codes = pd.Index(names).get_indexer(pd.Index(gold))
    stray = pd.unique(pd.Series(gold[(codes < 0) & ~pd.isna(gold)])).tolist()
    if stray:
        raise StudyError(
            f"gold= holds {', '.join(map(repr, stray[:5]))}, which no annotator ever gives."
            f"{nearest(str(stray[0]), map(str, names))} Spell gold and annotators' labels alike, "
            "or say with levels= which labels there can be."
        )
    return np.asarray(codes, dtype=np.int64)


def numbers(answers: Answers) -> Float:
    """Return (n, K) labels as numbers, NaN where missing."""
    return np.column_stack(answers.columns).astype(np.float64)
