"""Columns of a table as formulas need them: complete, in float64, with known levels."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trueup.errors import FormulaError, StudyError
from trueup.study.design import Float

Kind = Literal["number", "text", "other"]

#: More levels than this are rather a grouping to absorb: their coefficients alone, with the
#: covariances between them, would fill the memory.
MOST_LEVELS = 2500
#: Products of two or three integers below this bound do not overflow int64.
_SAFE_INTEGER = 2**20
_NUMBERS = {"boolean", "integer", "floating", "mixed-integer-float", "decimal"}


def kind_of(series: pd.Series[Any]) -> Kind:
    """Return whether a column holds numbers (or booleans), text (or categories), or neither."""
    dtype = series.dtype
    if _is_object(dtype):
        return "text" if pd.api.types.infer_dtype(series, skipna=True) == "string" else "other"
    if isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_string_dtype(dtype):
        return "text"
    if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype):
        return "number"
    return "other"


_BEFORE = (
    "Fill these values in, or leave these rows out of the table before the study is built: "
    "dropping them silently would change the population."
)


def _is_object(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind == "O"


def check_complete(name: str, series: pd.Series[Any], mend: str = _BEFORE) -> None:
    """Raise where a column has missing or infinite values.

    Parameters
    ----------
    name : str
    series : pandas.Series, shape (m,)
    mend : str
        What to do about it, for the message.

    Raises
    ------
    StudyError
        With the column, the number of rows, the first of them, and what to do.
    """
    bad = _gaps(series)
    if bad is None or not bad.any():
        return
    rows = np.flatnonzero(bad)
    what = "missing" if series.isna().iloc[rows].all() else "missing or infinite"
    shown = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
    raise StudyError(
        f"Column {name!r} is {what} in {len(rows):,} of {len(series):,} rows (positions {shown}), "
        f"and the formula uses it. {mend}"
    )


def _gaps(series: pd.Series[Any]) -> NDArray[np.bool_] | None:
    """Return which values are missing or infinite; None where none can be."""
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "bui":
        return None
    if isinstance(dtype, np.dtype) and dtype.kind == "f":
        values = series.to_numpy()
        with np.errstate(over="ignore", invalid="ignore"):
            # One gap makes the whole sum NaN or infinite; this saves a mask of N flags.
            total = np.add.reduce(values)
        return None if np.isfinite(total) else ~np.isfinite(values)
    return np.asarray(series.isna(), dtype=bool)


def check_bare(name: str, series: pd.Series[Any]) -> None:
    """Raise where a column cannot stand in a formula by its bare name.

    Raises
    ------
    FormulaError
        If it holds neither numbers nor text.
    """
    if kind_of(series) != "other":
        return
    if pd.api.types.infer_dtype(series, skipna=True) in _NUMBERS:
        raise FormulaError(
            f"Column {name!r} holds numbers stored as objects, so it is unclear whether they are "
            f"quantities or classes: convert it, e.g. with pd.to_numeric, or write C({name})."
        )
    raise FormulaError(
        f"Column {name!r} holds {series.dtype} values, which are neither numbers nor text: "
        f"convert it, or write an expression that gives numbers, such as I({name}.dt.year)."
    )


def as_float(series: pd.Series[Any]) -> Float:
    """Return a column of numbers as float64, without a copy where it is so already."""
    if isinstance(series.dtype, np.dtype):
        return np.asarray(series.to_numpy(), dtype=np.float64)
    return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))


def plain(series: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column in a type that expressions compute with safely.

    Floats become float64. Integers become int64, and float64 where a product of them could
    overflow. Nullable types and text types become their ordinary counterparts.
    """
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype) or _is_object(dtype) or dtype == "str":
        return series
    if pd.api.types.is_bool_dtype(dtype):
        return series.astype(bool)
    if pd.api.types.is_float_dtype(dtype):
        return series if dtype == np.float64 else pd.Series(as_float(series))
    if pd.api.types.is_integer_dtype(dtype):
        small = len(series) == 0 or max(abs(int(series.max())), abs(int(series.min())))
        return series.astype(np.int64 if small < _SAFE_INTEGER else np.float64)
    return series.astype(object) if pd.api.types.is_string_dtype(dtype) else series


def dictionary(name: str, series: pd.Series[Any]) -> pd.Categorical:
    """Return a column as codes and levels: those that occur, sorted or in categorical order.

    Raises
    ------
    FormulaError
        If there are too many levels for dummy columns.
    """
    if isinstance(series.dtype, pd.CategoricalDtype):
        coded = pd.Categorical(series).remove_unused_categories()
    else:
        coded = pd.Categorical(plain(series))
    check_level_count(f"Column {name!r}", len(coded.categories), MOST_LEVELS, name)
    return coded


def check_level_count(what: str, count: int, most: int, name: str) -> None:
    """Raise where dummy columns would be too many.

    Raises
    ------
    FormulaError
        With ways to do without.
    """
    if count > most:
        raise FormulaError(
            f"{what} has more than {most:,} levels, each of which would be a column of the "
            "design. If it is a number, write it without C() (and convert text to numbers); if "
            f"it is a grouping, absorb it: 'y ~ x | {name}'; otherwise merge levels."
        )


def encode(name: str, values: Any, levels: pd.Index[Any], where: str) -> pd.Categorical:
    """Return values as codes of known levels.

    Parameters
    ----------
    name : str
        The column or labelled variable.
    values : array-like, shape (m,)
    levels : pandas.Index
        The levels it has in the study.
    where : str
        Where the values come from, for the message.

    Raises
    ------
    FormulaError
        If a value is none of the levels.
    """
    codes = levels.get_indexer(pd.Index(values))
    if (codes < 0).any():
        unseen = pd.Series(np.asarray(values, dtype=object)[codes < 0]).unique().tolist()
        raise unseen_level(name, unseen, int((codes < 0).sum()), levels.tolist(), where)
    return pd.Categorical.from_codes(codes, categories=levels)


def unseen_level(
    name: str, unseen: list[Any], count: int, levels: list[Any], where: str
) -> FormulaError:
    """Return the error for values that are no level of a column, label or term."""
    shown = ", ".join(map(repr, levels[:8])) + (", ..." if len(levels) > 8 else "")
    return FormulaError(
        f"{name!r} has {', '.join(repr(x) for x in unseen[:3])} in {count:,} rows of {where}, "
        f"which is no level that the formula knows ({shown}): recode these values, or build "
        "the study with them."
    )
