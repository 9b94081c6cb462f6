"""What labels look like: numbers or classes, their levels, and the rule for missing ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trueup.errors import ArgumentError, StudyError
from trueup.study.tables import Table

Missing = Literal["fill", "level", "error"]

#: The class of a row that the LLM did not label, under ``missing="level"``.
REFUSED = "refused"

#: Text that stands for a missing value in files that were read as plain text.
_MISSING_WORDS = frozenset({"", "NA", "NaN", "nan", "<NA>", "null", "NULL"})

_NUMBERS = {"boolean", "integer", "floating", "mixed-integer-float", "decimal"}


@dataclass(frozen=True, slots=True)
class Labels:
    """One column of labels.

    Examples
    --------
    >>> read_labels(Table({"coder": [True, None, False]}), "coder").values
    array([ 1., nan,  0.])
    """

    column: str
    values: NDArray[Any]
    """(N,) float64 with NaN where missing, or class names with None where missing."""
    missing: NDArray[np.bool_]
    """(N,) whether there is no label."""
    categories: tuple[str, ...] | None = None
    """Order of the classes, where the column is a categorical."""

    @property
    def classes(self) -> bool:
        """Whether the labels are class names."""
        return self.values.dtype == object

    @property
    def empty(self) -> bool:
        """Whether there is no label at all."""
        return bool(self.missing.all())

    def take(self, rows: NDArray[np.int64]) -> Labels:
        """Return the labels of some rows."""
        return Labels(self.column, self.values[rows], self.missing[rows], self.categories)

    def sample(self) -> str:
        """Return a few distinct labels, for messages."""
        distinct = _distinct(self.values[~self.missing])[:3]
        return ", ".join(repr(x) if self.classes else f"{x:g}" for x in distinct)


def check_missing(missing: str) -> Missing:
    """Return the rule for missing LLM labels after checking its name.

    Raises
    ------
    ArgumentError
        If it is not one of ``"fill"``, ``"level"``, ``"error"``.
    """
    if missing not in get_args(Missing):
        raise ArgumentError(f"missing={missing!r} is unknown: use 'fill', 'level' or 'error'.")
    return cast(Missing, missing)


def read_labels(table: Table, column: str) -> Labels:
    """Read one column of labels.

    Parameters
    ----------
    table : Table
        The data.
    column : str
        Name of the column.

    Returns
    -------
    Labels
        Booleans become 0/1, text and categories become classes.

    Raises
    ------
    StudyError
        If the column holds infinite numbers, text such as "" or "NA", text mixed with
        numbers, or something that is no label, such as dates.
    """
    values = table.column(column)
    categories = table.categories(column)
    if categories is not None and not all(isinstance(c, str) for c in categories):
        raise StudyError(
            f"Column {column!r} is a categorical whose categories are not text "
            f"({', '.join(map(repr, categories[:3]))}): convert it to plain numbers, or make its "
            "categories text, so that it is clear whether the labels are numbers or classes."
        )
    if values.dtype == object:
        return _read_objects(column, values, categories)
    if values.dtype.kind not in "biuf":
        raise StudyError(
            f"Column {column!r} holds {values.dtype} values; labels must be numbers, booleans, "
            "text or categories."
        )
    return _numeric(column, values.astype(np.float64))


def _read_objects(column: str, values: NDArray[Any], categories: tuple[Any, ...] | None) -> Labels:
    missing = pd.isna(values)
    kind = pd.api.types.infer_dtype(values, skipna=True)
    if kind in _NUMBERS:
        return _numeric(column, np.asarray(pd.Series(values), dtype=np.float64))
    if kind not in {"string", "empty"}:
        raise StudyError(
            f"Column {column!r} {_mixture(values[~missing])}. Labels must be all numbers, all "
            "booleans or all text."
        )
    blank = [x for x in _distinct(values[~missing]) if x.strip() in _MISSING_WORDS]
    if blank:
        where = np.flatnonzero(pd.Series(values, dtype=object).isin(blank))
        what = " or ".join(dict.fromkeys(repr(x) if x.strip() else "empty text" for x in blank))
        raise StudyError(
            f"Column {column!r} holds {what} in {len(where)} rows (first at positions "
            f"{where[:5].tolist()}): make these missing (None), so that they do not count as a "
            "class, or rename them if they are one."
        )
    return Labels(column, values, missing, categories)


def _distinct(values: NDArray[Any]) -> list[Any]:
    return list(pd.unique(pd.Series(values, dtype=values.dtype)))


def _mixture(present: NDArray[Any]) -> str:
    texts = [x for x in present if isinstance(x, str)]
    others = [x for x in present if not isinstance(x, str)]
    if texts and others:
        return f"mixes text and other values, e.g. the text {texts[0]!r} and {others[0]!r}"
    return f"mixes or holds values that are no labels, e.g. {others[0]!r}"


def _numeric(column: str, values: NDArray[np.float64]) -> Labels:
    infinite = np.isinf(values)
    if infinite.any():
        raise StudyError(
            f"Column {column!r} holds infinite labels in {int(infinite.sum())} rows (first at "
            f"positions {np.flatnonzero(infinite)[:5].tolist()}): mend them or make them missing."
        )
    return Labels(column, values, np.isnan(values))


def as_numbers(labels: Labels) -> Labels:
    """Return labels as numbers where they are text that spells numbers, else as they are.

    Examples
    --------
    >>> as_numbers(read_labels(Table({"gpt": ["1", None, "0"]}), "gpt")).values
    array([ 1., nan,  0.])
    """
    if not labels.classes:
        return labels
    numbers = pd.to_numeric(pd.Series(labels.values[~labels.missing]), errors="coerce")
    if numbers.isna().any():
        return labels
    values = np.full(len(labels.values), np.nan)
    values[~labels.missing] = numbers
    return _numeric(labels.column, values)


def common_levels(
    variable: str, human: Labels, llm: Sequence[Labels], missing: Missing
) -> tuple[str, ...] | None:
    """Return the classes of a labelled variable, over human and all LLM labels.

    Text such as ``"1"`` counts as a number where other columns of the variable hold numbers.

    Parameters
    ----------
    variable : str
        Its name, for messages.
    human : Labels
        The human labels.
    llm : sequence of Labels
        The labels of each annotator.
    missing : {"fill", "level", "error"}
        Under ``"level"``, the class ``"refused"`` is added where LLM labels are missing.

    Returns
    -------
    tuple of str, or None
        In the order of the first categorical column (human first), else sorted; None where
        the labels are numbers.

    Raises
    ------
    StudyError
        If human and LLM labels are of different kinds, classes differ only in case or
        spaces, or ``missing="level"`` is asked for numbers.
    """
    if not all(labels.classes for labels in (human, *llm)):
        human, llm = as_numbers(human), [as_numbers(labels) for labels in llm]
    for labels in llm:
        if labels.empty:
            raise StudyError(
                f"Column {labels.column!r} (LLM labels of {variable!r}) has no label at all: "
                "leave this annotator out."
            )
        if labels.classes != human.classes:
            raise StudyError(_kinds_differ(variable, human, labels))
    refusals = missing == "level" and any(labels.missing.any() for labels in llm)
    if not human.classes:
        if refusals:
            raise StudyError(
                f"missing='level' makes a class of missing LLM labels, but {variable!r} is a "
                "number: use missing='fill'."
            )
        return None
    levels = _ordered_levels([human, *llm])
    _check_spelling(variable, levels)
    if refusals and REFUSED in levels:
        raise StudyError(
            f"missing='level' adds a class {REFUSED!r} to {variable!r}, which has it already: "
            "use missing='fill', or make those labels missing."
        )
    return (*levels, REFUSED) if refusals else levels


def _ordered_levels(columns: Sequence[Labels]) -> tuple[str, ...]:
    seen: set[str] = set()
    for labels in columns:
        seen.update(_distinct(labels.values[~labels.missing]))
    order = next((c.categories for c in columns if c.categories is not None), ())
    first = [c for c in order if c in seen]
    return (*first, *sorted(seen.difference(first)))


def _check_spelling(variable: str, levels: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for level in levels:
        key = " ".join(level.split()).casefold()
        if key in seen:
            raise StudyError(
                f"Variable {variable!r} has the classes {seen[key]!r} and {level!r}, which differ "
                "only in case or spaces: spell them alike in the human and the LLM columns."
            )
        seen[key] = level


def _kinds_differ(variable: str, human: Labels, llm: Labels) -> str:
    def what(labels: Labels) -> str:
        return f"{'text' if labels.classes else 'numbers'} ({labels.sample()})"

    return (
        f"Variable {variable!r}: the human labels in column {human.column!r} are {what(human)} "
        f"but the LLM labels in column {llm.column!r} are {what(llm)}. Code both alike: 0/1 (or "
        "other numbers) in every column, or the same class names."
    )


def complete(labels: Labels, levels: Sequence[str] | None, missing: Missing) -> NDArray[Any]:
    """Return LLM labels without gaps, by a rule that looks at no human label.

    Because the rule is fixed and blind to the human labels, a corrected estimate stays valid
    whatever the reason the labels are missing for.

    Parameters
    ----------
    labels : Labels
        One annotator's labels of one variable; not all missing.
    levels : sequence of str, or None
        Classes of the variable; None for numbers.
    missing : {"fill", "level", "error"}
        ``"fill"`` takes the annotator's most frequent class (classes and 0/1 labels; the
        first in order where several are) or its mean (other numbers); ``"level"`` the class
        ``"refused"``.

    Returns
    -------
    numpy.ndarray, shape (N,)
        A copy where something was filled.

    Examples
    --------
    >>> complete(read_labels(Table({"f": [0.2, None, 0.4]}), "f"), None, "fill").round(2)
    array([0.2, 0.3, 0.4])
    """
    if not labels.missing.any():
        return labels.values
    filled = labels.values.copy()
    filled[labels.missing] = REFUSED if missing == "level" else _filling(labels, levels)
    return filled


def _filling(labels: Labels, levels: Sequence[str] | None) -> Any:
    present = labels.values[~labels.missing]
    if levels is not None:
        counts = pd.Series(present, dtype=object).value_counts()
        return levels[int(np.argmax([counts.get(level, 0) for level in levels]))]
    mean = float(present.mean())
    return float(mean > 0.5) if np.isin(present, (0.0, 1.0)).all() else mean
