"""Rows that repeat, as unique cells with counts: the same sums from far fewer rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from trueup.formula.rows import MadeBlocks, RowBlocks, Rows
from trueup.study.design import Float, Int

#: Rows looked at to see whether collapsing pays, and the share of cells below which it does.
SAMPLE_ROWS = 20_000
MOST_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Cells:
    """The distinct rows under K annotators, and how often each of them occurs."""

    blocks: RowBlocks
    """The G cells; a cell has the design, the K outcomes and the weight of its rows."""
    weights: Float | None
    """(G,) weight of one row of the cell; None where all count alike."""
    counts: Float
    """(G,) number of rows."""

    @property
    def totals(self) -> Float:
        """(G,) weights for sums over all rows."""
        return self.counts if self.weights is None else self.weights * self.counts


def collapse(blocks: RowBlocks, weights: Float | None) -> Cells | None:
    """Return the cells of all rows, or None where rows repeat too seldom.

    Rows are one cell where design, all K outcomes and weight are equal to the last bit, which
    is checked for every row.

    Parameters
    ----------
    blocks : RowBlocks
        With a design that annotators share and that is held in memory.
    weights : (N,) array or None

    Examples
    --------
    >>> X = np.ones((6, 1))
    >>> rows = (Rows(np.array([0.0, 1, 1, 0, 1, 1]), X),)
    >>> held = MadeBlocks(6, 1, True, True, 4, lambda part: tuple(r.take(part) for r in rows))
    >>> collapse(held, None) is None  # 2 cells of 6 rows are too many
    True
    """
    if not (blocks.shared_design and blocks.stored) or blocks.n_rows == 0:
        return None
    some = _keys(blocks, weights, max(1, blocks.n_rows // SAMPLE_ROWS))
    if not np.isfinite(some).all() or len(pd.unique(some)) > MOST_SHARE * len(some):
        return None
    key = _keys(blocks, weights, 1)
    codes, distinct = pd.factorize(key)
    if not np.isfinite(key).all() or len(distinct) > MOST_SHARE * len(key):
        return None
    first = np.full(len(distinct), -1, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    cells, cell_weights = _take(blocks, first), None if weights is None else weights[first]
    if not _same(blocks, weights, codes, cells, cell_weights):
        return None
    counts = np.bincount(codes, minlength=len(first)).astype(np.float64)
    made = MadeBlocks(
        n_rows=len(first),
        n_coef=blocks.n_coef,
        shared_design=True,
        stored=True,
        size=next(iter(blocks))[0].stop,
        make=lambda part: _shared([r.take(part) for r in cells]),
    )
    return Cells(made, cell_weights, counts)


def _keys(blocks: RowBlocks, weights: Float | None, stride: int) -> Float:
    """Return a number for every ``stride``-th row: equal for equal rows, hardly ever for others."""
    rng = np.random.default_rng(1729)
    last, *x = rng.uniform(1.0, 2.0, blocks.n_coef + 1)
    y: Float | None = None
    out = []
    for part, rows in blocks:
        some = slice(-part.start % stride, None, stride)
        y = rng.uniform(1.0, 2.0, len(rows)) if y is None else y
        key = rows[0].X[some] @ np.array(x)
        for factor, r in zip(y, rows, strict=True):
            key += factor * r.y[some]
        out.append(key if weights is None else key + last * weights[part][some])
    return np.concatenate(out)


def _take(blocks: RowBlocks, positions: Int) -> list[Rows]:
    """Return the rows at ascending positions under each annotator."""
    X: list[Float] = []
    y: list[list[Float]] = []
    for part, rows in blocks:
        low, high = np.searchsorted(positions, [part.start, part.stop])
        at = positions[low:high] - part.start
        X.append(rows[0].X[at])
        y.append([r.y[at] for r in rows])
    design = np.concatenate(X)
    return [Rows(np.concatenate(pieces), design) for pieces in zip(*y, strict=True)]


def _same(
    blocks: RowBlocks,
    weights: Float | None,
    codes: Int,
    cells: list[Rows],
    cell_weights: Float | None,
) -> bool:
    """Return whether every row is that of its cell."""
    for part, rows in blocks:
        at = codes[part]
        if not np.array_equal(rows[0].X, cells[0].X[at]):
            return False
        if not all(np.array_equal(r.y, c.y[at]) for r, c in zip(rows, cells, strict=True)):
            return False
    if weights is None or cell_weights is None:
        return True
    return np.array_equal(weights, cell_weights[codes])


def _shared(rows: list[Rows]) -> tuple[Rows, ...]:
    """Return rows whose design is one array object."""
    return tuple(Rows(r.y, rows[0].X) for r in rows)
