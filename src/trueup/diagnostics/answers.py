"""Labels of many annotators for the same items, from a wide table, a long table or a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    table: Table | None
    """Where columns for ``gold=`` and ``by=`` may be."""
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rows: Int | None = None
    """Positions in the table, where only some rows count."""

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
        if isinstance(given, str):
            if self.table is None:
                raise ArgumentError(
                    f"{argument}={given!r} names a column, but a long table has no row for each "
                    "item: give an array in the order of the items."
                )
            self.table.require(given, f"{argument}=")
            values = self.table.column(given)
            return values if self.rows is None else values[self.rows]
        values = Table({"_": given}).column("_")
        if len(values) != self.n_items:
            raise ArgumentError(
                f"{argument}= has {len(values)} values for {self.n_items} items: give one for each."
            )
        return values


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
        If there are fewer than two annotators, one of them labelled nothing, or labels of one
        annotator are text and those of another numbers.
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
    return Answers(tuple(wanted), tuple(found.columns[found.names.index(n)] for n in wanted), None)


def one_variable(study: Study, variable: str | None) -> str:
    """Return the labelled variable meant, the only one where None is given.

    Raises
    ------
    ArgumentError
        If there are several and none is named, or the name is unknown.
    """
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
            f"{int(twice.sum())} labels are there twice: annotator {who[columns[first]]!r} "
            f"labelled item {items[rows[first]]!r} more than once. Keep one label, or make the "
            "runs annotators of their own."
        )
    empty = None if values.dtype == object else np.nan
    wide = np.full((len(items), len(who)), empty, dtype=values.dtype)
    wide[rows, columns] = values
    return Answers(tuple(map(str, who)), tuple(wide.T), None)


def _check(found: Answers) -> None:
    if len(found.names) < 2:
        raise ArgumentError(
            f"There is one annotator, {', '.join(map(repr, found.names)) or 'none'}: disagreement "
            "takes at least two. Add a column for each annotator."
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
    if (gold.dtype == object) != text and not pd.isna(gold).all():
        shown = pd.Series(gold).dropna().iloc[0]
        raise StudyError(
            f"Gold labels such as {shown!r} are {'numbers' if text else 'text'}, but annotators "
            f"give {'text' if text else 'numbers'} {_sample(answers, answers.names[0])}: convert "
            "one of them."
        )
    values = gold if text else gold.astype(np.float64)
    codes = pd.Index(names).get_indexer(pd.Index(values))
    stray = pd.unique(pd.Series(values[(codes < 0) & ~pd.isna(values)])).tolist()
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
