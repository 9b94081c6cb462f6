"""Any data frame in, plain numpy arrays and pandas blocks out, always by position."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray

from trueup.errors import StudyError
from trueup.study.design import Int

_ACCEPTED = "a pandas DataFrame, a polars DataFrame, a pyarrow Table or a dict of arrays"


def nearest(name: str, names: Iterable[str], limit: int = 3) -> str:
    """Return a clause that names the nearest spellings, or all names where there are few.

    Parameters
    ----------
    name : str
        The name that was not found.
    names : iterable of str
        The names there are.
    limit : int
        How many to show.

    Returns
    -------
    str
        A sentence that starts with a space, or an empty string where there are no names.

    Examples
    --------
    >>> nearest("corder", ["coder", "words"])
    " Did you mean 'coder'?"
    """
    names = list(names)
    close = difflib.get_close_matches(str(name), names, n=limit, cutoff=0.6)
    if close:
        return f" Did you mean {' or '.join(map(repr, close))}?"
    if not names:
        return ""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f" There are: {', '.join(map(repr, names[:8]))}{more}."


class Table:
    """A data frame of any make, read by position.

    Rows are counted 0..N-1 whatever the index of a pandas frame says. Columns are converted
    when they are asked for; the table itself is not copied.

    Parameters
    ----------
    data : pandas.DataFrame, polars.DataFrame, pyarrow.Table, dict of arrays, or Table
        The rows.

    Raises
    ------
    StudyError
        If the data are of another kind, have no rows, or have columns that share a name or
        are not named by text.

    Examples
    --------
    >>> table = Table({"source": ["a", None], "words": [3, 5]})
    >>> table.n_rows, table.columns
    (2, ('source', 'words'))
    >>> table.column("source")
    array(['a', None], dtype=object)
    """

    __slots__ = ("_columns", "_n_rows", "_native")

    _native: Any

    def __init__(self, data: Any) -> None:
        if isinstance(data, Table):
            data = data._native
        if isinstance(data, Mapping):
            data = _frame_from_mapping(data)
        if isinstance(data, pd.DataFrame):
            # A shallow copy: later assignments to the user's frame do not reach the study.
            data = data.copy(deep=False)
        _check_kind(data)
        self._columns = _column_names(data)
        frame = _wrap(data)
        if len(frame) == 0:
            raise StudyError("The table has no rows.")
        self._native = data
        self._n_rows = len(frame)

    @property
    def n_rows(self) -> int:
        """Number of rows, N."""
        return self._n_rows

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return self._columns

    def __repr__(self) -> str:
        return f"Table({self.n_rows:,} rows, {len(self.columns)} columns)"

    def take(self, rows: Int) -> Table:
        """Return a table of the rows at these positions."""
        return Table(_wrap(self._native)[rows].to_native())

    def require(self, name: str, where: str = "") -> None:
        """Raise an error with the nearest names if there is no column ``name``.

        Parameters
        ----------
        name : str
            Column name.
        where : str
            Who asks for it, e.g. ``"cluster="``, for the message.

        Raises
        ------
        StudyError
            If the table has no such column.
        """
        if name not in self._columns:
            asked = f" (asked for by {where})" if where else ""
            hint = nearest(name, self._columns)
            raise StudyError(f"The table has no column {name!r}{asked}.{hint}")

    def column(self, name: str) -> NDArray[Any]:
        """Return one column as a numpy array.

        Parameters
        ----------
        name : str
            Column name.

        Returns
        -------
        numpy.ndarray, shape (N,)
            Numbers and booleans as such, or as float with NaN where some are missing; text
            and categories as objects with None where missing. Do not write into it.

        Raises
        ------
        StudyError
            If the table has no such column.
        """
        self.require(name)
        return _values(self._series(name))

    def categories(self, name: str) -> tuple[Any, ...] | None:
        """Return the categories of a categorical column in order; None for other columns.

        The order of a pandas Categorical or a polars Enum is kept. The other categorical
        types list categories as they happened to come, so theirs are sorted.
        """
        self.require(name)
        series = self._series(name)
        native = series.to_native()
        if isinstance(native, pd.Series) and isinstance(native.dtype, pd.CategoricalDtype):
            return tuple(native.dtype.categories)
        if isinstance(series.dtype, nw.Enum):
            return tuple(series.dtype.categories)
        if series.dtype == nw.Categorical:
            return tuple(sorted(series.drop_nulls().cast(nw.String).unique().to_list()))
        return None

    def pandas(self, columns: Sequence[str], part: slice | Int | None = None) -> pd.DataFrame:
        """Return some columns of some rows as a pandas frame with a fresh index.

        Parameters
        ----------
        columns : sequence of str
            Column names; repeated names are taken once.
        part : slice, int array, or None
            Positions of the rows; None for all.

        Returns
        -------
        pandas.DataFrame
            Categories, booleans and text keep their kind. Do not write into it: it may share
            memory with the table.

        Raises
        ------
        StudyError
            If the table lacks one of the columns.
        """
        names = list(dict.fromkeys(columns))
        for name in names:
            self.require(name)
        data = {name: self._pandas_column(name, part) for name in names}
        if part is None or isinstance(part, slice):
            n = len(range(self.n_rows)[slice(None) if part is None else part])
        else:
            n = len(part)
        # Without a copy the columns stay apart; a pass over rows reads each of them once anyway.
        return pd.DataFrame(data, index=pd.RangeIndex(n), copy=False)

    def _series(self, name: str) -> nw.Series[Any]:
        if isinstance(self._native, pd.DataFrame):
            return nw.from_native(self._native[name], series_only=True)
        return _wrap(self._native).get_column(name)

    def _pandas_column(self, name: str, part: slice | Int | None) -> Any:
        if isinstance(self._native, pd.DataFrame) and _is_plain(self._native[name].dtype):
            array = self._native[name].array
            return array if part is None else array[part]
        series = self._series(name)
        values = _values(series if part is None else series[part])
        if series.dtype in (nw.Categorical, nw.Enum):
            return pd.Categorical(values, categories=list(self.categories(name) or ()))
        if series.dtype == nw.Boolean and values.dtype != np.bool_:
            return pd.arrays.BooleanArray(np.nan_to_num(values).astype(bool), np.isnan(values))
        return values


def stack(first: Table, second: Table, only_second: Collection[str] = ()) -> Table:
    """Put two tables on top of each other.

    Parameters
    ----------
    first, second : Table
        Tables with the same columns, in any order.
    only_second : collection of str
        Columns that ``first`` need not have; they are missing there.

    Returns
    -------
    Table
        The rows of ``first``, then those of ``second``.

    Raises
    ------
    StudyError
        If the columns differ, or a column holds text in one table and numbers in the other.
    """
    extra_first = [c for c in first.columns if c not in second.columns]
    extra_second = [
        c for c in second.columns if c not in first.columns and c not in set(only_second)
    ]
    if extra_first or extra_second:
        sides = [
            f"only the {side} table has {', '.join(map(repr, names))}"
            for side, names in (("uncoded", extra_first), ("coded", extra_second))
            if names
        ]
        raise StudyError(
            f"The two tables have different columns: {'; '.join(sides)}. "
            "Give both the same columns (the human labels may be left out of the uncoded one)."
        )
    return Table({c: _stack_column(first, second, c) for c in second.columns})


def _stack_column(first: Table, second: Table, name: str) -> Any:
    below = second.pandas([name])[name]
    if name in first.columns:
        above = first.pandas([name])[name]
    else:
        above = below.iloc[:0].reindex(range(first.n_rows))
    if isinstance(above.dtype, pd.CategoricalDtype) and isinstance(
        below.dtype, pd.CategoricalDtype
    ):
        return pd.api.types.union_categoricals([above, below], ignore_order=True)
    if above.notna().any() and below.notna().any() and _is_number(above) != _is_number(below):
        raise StudyError(
            f"Column {name!r} holds {_word(above)} in the uncoded table but {_word(below)} in "
            "the coded table: convert one of them."
        )
    return pd.concat([above, below], ignore_index=True).array


def _is_number(series: pd.Series[Any]) -> bool:
    kind = pd.api.types.infer_dtype(series, skipna=True)
    return kind in {"boolean", "integer", "floating", "mixed-integer-float", "decimal"}


def _word(series: pd.Series[Any]) -> str:
    return "numbers" if _is_number(series) else "text"


def _wrap(data: Any) -> nw.DataFrame[Any]:
    return nw.from_native(data, eager_only=True)


def _column_names(data: Any) -> tuple[str, ...]:
    """Return the names of the columns after checking that they are text, each used once."""
    if isinstance(data, pd.DataFrame):
        names = list(data.columns)
    else:
        # pyarrow keeps names in `column_names` (its `columns` are arrays), polars in `columns`.
        names = list(getattr(data, "column_names", getattr(data, "columns", ())))
    others = [c for c in names if not isinstance(c, str)]
    if others:
        raise StudyError(
            f"Column names must be text; these are not: {others[:5]!r}. "
            "Rename them, e.g. data.columns = data.columns.map(str)."
        )
    counts = pd.Series(names, dtype=object).value_counts()
    repeated = [str(c) for c in counts.index[counts > 1]]
    if repeated:
        raise StudyError(
            f"The table has several columns named {', '.join(map(repr, repeated))}: "
            "rename them so that each name is used once."
        )
    return tuple(names)


def _check_kind(data: Any) -> None:
    try:
        _wrap(data)
    except DuplicateError:
        return  # reported with the other troubles that names can have
    except TypeError as err:
        collect = " Call .collect() on it first." if hasattr(data, "collect") else ""
        raise StudyError(
            f"The data must be {_ACCEPTED}, not {type(data).__module__}."
            f"{type(data).__name__}.{collect}"
        ) from err


def _frame_from_mapping(data: Mapping[Any, Any]) -> pd.DataFrame:
    scalars = [name for name, values in data.items() if np.ndim(values) != 1]
    if scalars:
        raise StudyError(
            f"Every value of the dict must be a one-dimensional array; look at {scalars[:5]!r}."
        )
    lengths = {name: len(values) for name, values in data.items()}
    if len(set(lengths.values())) > 1:
        raise StudyError(f"The arrays of the dict have different lengths: {lengths!r}.")
    # The array of a Series, because pandas would align Series by their index labels.
    return pd.DataFrame(
        {name: v.array if isinstance(v, pd.Series) else v for name, v in data.items()}
    )


def _is_plain(dtype: Any) -> bool:
    """Whether formulas understand a pandas column of this type as it is."""
    if isinstance(dtype, pd.CategoricalDtype | np.dtype):
        return True
    return isinstance(dtype, pd.StringDtype)


def _values(series: nw.Series[Any]) -> NDArray[Any]:
    native = series.to_native()
    if isinstance(native, pd.Series) and isinstance(native.dtype, pd.CategoricalDtype):
        return _with_none(native.to_numpy(dtype=object, copy=True))
    dtype = series.dtype
    if dtype in (nw.Categorical, nw.Enum):
        series = series.cast(nw.String)
    elif dtype.is_decimal():
        series = series.cast(nw.Float64)
    elif (dtype == nw.Boolean or dtype.is_integer()) and series.null_count():
        if isinstance(native, pd.Series):
            return np.asarray(native.to_numpy(dtype=np.float64, na_value=np.nan))
        series = series.cast(nw.Int64).cast(nw.Float64)
    values = np.asarray(series.to_numpy())
    if values.dtype.kind in "OUST":
        return _with_none(values.astype(object))
    return values


def _with_none(values: NDArray[Any]) -> NDArray[Any]:
    values[pd.isna(values)] = None
    return values
