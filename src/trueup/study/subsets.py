"""Rows that a condition, a mask or positions mean."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trueup.errors import ArgumentError, StudyError
from trueup.study.design import Int
from trueup.study.tables import nearest

#: What a condition may be made of: comparisons of columns and constants, nothing that runs code.
_ALLOWED = (
    ast.Expression,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.UnaryOp,
    ast.Not,
    ast.Invert,
    ast.USub,
    ast.Compare,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.In,
    ast.NotIn,
    ast.BinOp,
    ast.BitAnd,
    ast.BitOr,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.List,
    ast.Tuple,
)


class _Rows(Protocol):
    @property
    def n_rows(self) -> int: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def covariates(self, columns: Sequence[str]) -> pd.DataFrame: ...


def row_positions(study: _Rows, rows: str | NDArray[Any] | Sequence[Any]) -> Int:
    """Return ascending positions of the rows meant.

    Raises
    ------
    ArgumentError
        If the condition cannot be read, or a mask has the wrong length.
    StudyError
        If no row is left.
    """
    if isinstance(rows, str):
        mask = evaluate_condition(rows, study.columns, study.covariates)
    else:
        values = np.asarray(rows)
        if values.dtype == np.bool_:
            mask = values
        else:
            if values.dtype.kind not in "iu" or not len(values):
                raise ArgumentError("A subset is a condition, a mask, or an array of positions.")
            if values.min() < 0 or values.max() >= study.n_rows:
                raise ArgumentError(f"Positions must lie between 0 and {study.n_rows - 1}.")
            mask = np.zeros(study.n_rows, dtype=bool)
            mask[values] = True
    if mask.shape != (study.n_rows,):
        raise ArgumentError(
            f"A mask needs one value for each of the {study.n_rows} rows, got {mask.shape}."
        )
    out = np.flatnonzero(mask)
    if not len(out):
        raise StudyError(
            f"The subset {rows!r} has no rows."
            if isinstance(rows, str)
            else "The subset has no rows."
        )
    return out.astype(np.int64)


def evaluate_condition(
    text: str, columns: Sequence[str], read: Callable[[Sequence[str]], pd.DataFrame]
) -> NDArray[np.bool_]:
    """Return for each row of a table whether a condition holds.

    Parameters
    ----------
    text : str
        Comparisons of columns and constants, joined by ``and``, ``or``, ``not``, such as
        ``"source == 'tweets' and words > 5"``. Nothing else is evaluated, whoever wrote it.
    columns : sequence of str
        Columns that may be used.
    read : callable
        Returns the columns that the condition needs.

    Returns
    -------
    (N,) bool array; False where a comparison meets a missing value

    Raises
    ------
    ArgumentError
        If the condition cannot be read, uses an unknown column, or is more than a condition.

    Examples
    --------
    >>> table = pd.DataFrame({"words": [3, 8], "source": ["a", "b"]})
    >>> evaluate_condition("words > 5 and source in ['a', 'b']", list(table), table.__getitem__)
    array([False,  True])
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise ArgumentError(f"The condition {text!r} cannot be read: {error.msg}.") from error
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            piece = ast.get_source_segment(text.strip(), node) or type(node).__name__
            raise ArgumentError(
                f"The condition {text!r} may compare columns and constants only; it has {piece!r}."
            )
    names = sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name)})
    for name in names:
        if name not in columns:
            raise ArgumentError(
                f"The condition {text!r} uses {name!r}, which is no column known for every row."
                f"{nearest(name, columns)}"
            )
    if not names:
        raise ArgumentError(f"The condition {text!r} uses no column.")
    try:
        values = read(names).eval(text.strip(), engine="python")
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"The condition {text!r} cannot be evaluated: {error}.") from error
    if not isinstance(values, pd.Series) or values.dtype.kind != "b":
        raise ArgumentError(f"The condition {text!r} is not true or false for each row.")
    return values.to_numpy(dtype=bool, na_value=False)
