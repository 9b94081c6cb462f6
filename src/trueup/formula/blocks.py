"""The design of a formula in blocks of rows, under several annotators at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.formula.matrix import Matrix, Reader
from trueup.formula.rows import Rows
from trueup.formula.variables import Source, Variable, reader
from trueup.study.design import Float, Int

#: A design matrix of all rows is kept up to this size, or half of the memory that is free.
MOST_BYTES = 2 * 2**30


def may_keep(n_rows: int, n_columns: int) -> bool:
    """Return whether columns are small enough to be kept for all rows; a single one always is.

    Examples
    --------
    >>> may_keep(1_000, 20), may_keep(10**9, 2_000)
    (True, False)
    """
    size = 8 * n_rows * n_columns
    return n_columns == 1 or size <= MOST_BYTES // 64 or size <= min(MOST_BYTES, _free_bytes() // 2)


def _free_bytes() -> int:
    """Return the bytes of memory that are free, where the system says so."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 2 * MOST_BYTES
    told = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return 1024 * int(next(told, 2 * MOST_BYTES // 1024))


def compact(values: Any) -> Any:
    """Return whole numbers of one byte as such, and other values as they are.

    Examples
    --------
    >>> compact(np.array([0.0, 1.0])).dtype, compact(np.array([0.5, 1.0])).dtype
    (dtype('int8'), dtype('float64'))
    """
    if not isinstance(values, np.ndarray) or values.dtype != np.float64 or not len(values):
        return values
    low, high = values[0], values[0]
    if low != np.rint(low):
        return values
    low, high = values.min(), values.max()
    if not (low >= -128 and high <= 127):
        return values
    whole = values.astype(np.int8)
    return whole if bool((whole == values).all()) else values


@dataclass(frozen=True, slots=True)
class Sides:
    """Recipes of the outcome, the regressors and the instruments of a formula."""

    study: Source
    known: Mapping[str, Variable]
    left: Matrix
    right: Matrix
    excluded: Matrix | None
    """Instruments that are not regressors."""
    n_exogenous: int
    groups: tuple[Int, ...]
    block_rows: int


@dataclass(frozen=True, slots=True)
class BlockMaker:
    """Makes the rows of a slice under each annotator, what they share once."""

    sides: Sides
    labels: tuple[Mapping[str, Any], ...]
    """Typed labels of all rows, for each annotator."""
    kept: Mapping[str, Float]
    """Parts of the design that are the same under all labels and are kept for all rows."""

    def __call__(self, part: slice) -> tuple[Rows, ...]:
        """Return the rows of a slice under each annotator."""
        sides = self.sides
        y = self._side("y", sides.left, part)
        X = self._side("X", sides.right, part)
        Z: list[Float] | list[None] = [None] * len(X)
        if sides.excluded is not None:
            excluded = self._side("instruments", sides.excluded, part)
            Z = _beside([x[:, : sides.n_exogenous] for x in X], excluded, X)
        groups = tuple(g[part] for g in sides.groups)
        return tuple(Rows(o[:, 0], x, z, groups) for o, x, z in zip(y, X, Z, strict=True))

    def _side(self, key: str, matrix: Matrix, part: slice) -> list[Float]:
        """Return (m, k) columns for each annotator; one array where labels do not matter."""
        labelled = set(self.labels[0]).intersection(matrix.variables())
        if not labelled:
            shared = self.kept[key][part] if key in self.kept else self._build(matrix, part, {})
            return [shared] * len(self.labels)
        name = _plain(matrix)
        if name is not None and isinstance(self.labels[0][name], np.ndarray):
            return [_column(labels[name][part]) for labels in self.labels]
        without = matrix.only_fixed()
        fixed: Float | None = None
        if without is not None:
            whole = self.kept.get(f"{key} without labels")
            fixed = self._build(without, part, {}) if whole is None else whole[part]
        return [self._build(matrix, part, labels, fixed) for labels in self.labels]

    def _build(
        self, matrix: Matrix, part: slice, labels: Mapping[str, Any], fixed: Float | None = None
    ) -> Float:
        read = shifted(reader(self.sides.study, self.sides.known, _whole(labels)), part.start)
        m = part.stop - part.start
        where = "the LLM labels" if labels else None
        return matrix.build(read, m, self.sides.block_rows, fixed=fixed, where=where)


def shifted(read: Reader, first: int) -> Reader:
    """Return a reader whose row 0 is row ``first`` of another."""
    return lambda names, part: read(names, slice(part.start + first, part.stop + first))


def _plain(matrix: Matrix) -> str | None:
    """Return the one variable that a matrix of one column is a copy of, if it is."""
    if len(matrix.names) != 1 or len(matrix.products) != 1:
        return None
    variables = matrix.products[0][1]
    return variables[0] if len(variables) == 1 else None


def _column(values: NDArray[Any]) -> Float:
    return np.asarray(values, dtype=np.float64)[:, None]


def _whole(labels: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return labels as formulas are evaluated on them: numbers of one byte could overflow."""
    return {name: _Widened(v) if _is_small(v) else v for name, v in labels.items()}


def _is_small(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype == np.int8


@dataclass(frozen=True, slots=True)
class _Widened:
    """Numbers of one byte that are float64 once a part of them is taken."""

    values: NDArray[np.int8]

    def __getitem__(self, part: slice) -> Float:
        return self.values[part].astype(np.float64)


def _beside(left: list[Float], right: list[Float], X: list[Float]) -> list[Float]:
    """Return pairs side by side; one array where all annotators share both."""
    if all(x is X[0] for x in X) and all(z is right[0] for z in right):
        return [np.hstack([left[0], right[0]])] * len(X)
    return [np.hstack(pair) for pair in zip(left, right, strict=True)]
