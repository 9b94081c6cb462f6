"""The rows of a regression as arrays, under one source of labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trueup.formula.passes import Totals, ordered_total
from trueup.study.design import Float, Int

#: Rows per block in passes over all N rows: a float64 block of 20 columns stays in L2 cache.
BLOCK_ROWS = 8192
#: Bytes of a block of the design matrix, of which a pass for several annotators keeps products in
#: cache besides.
_BLOCK_BYTES = 2**19
_FEWEST_ROWS = 256


@dataclass(frozen=True, slots=True)
class Rows:
    """Outcome, design matrix and what a family may need besides, for m rows.

    Shapes: ``y`` (m,), ``X`` (m, p), ``Z`` (m, q) instruments including the exogenous
    columns of ``X``, ``groups`` one (m,) array of codes for each absorbed effect.
    """

    y: Float
    X: Float
    Z: Float | None = None
    groups: tuple[Int, ...] = ()

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_coef(self) -> int:
        """Number of coefficients, p."""
        return int(self.X.shape[1])

    def take(self, index: NDArray[np.int64] | slice) -> Rows:
        """Return the rows at ``index`` (a slice gives views, no copies)."""
        return replace(
            self,
            y=self.y[index],
            X=self.X[index],
            Z=None if self.Z is None else self.Z[index],
            groups=tuple(g[index] for g in self.groups),
        )

    def blocks(self, size: int = BLOCK_ROWS) -> Iterator[tuple[slice, Rows]]:
        """Iterate over consecutive blocks of rows, always in the same order."""
        for start in range(0, len(self), size):
            part = slice(start, min(start + size, len(self)))
            yield part, self.take(part)


#: A block of rows: where it stands among all rows, and the rows under each annotator.
Block = tuple[slice, tuple[Rows, ...]]
#: What a pass computes from some consecutive blocks.
Sums = Callable[[Iterable[Block]], Totals]


class RowBlocks(Protocol):
    """All N rows under K annotators, block after block; may be gone through again and again.

    Every pass over all rows is a loop over one of these, so that it does not matter whether the
    rows are arrays, are made from a formula block by block, or are read from files.
    """

    @property
    def n_rows(self) -> int:
        """Number of rows, N."""
        ...

    @property
    def n_coef(self) -> int:
        """Number of coefficients, p."""
        ...

    @property
    def shared_design(self) -> bool:
        """Whether ``X`` of a block is one array object for all annotators."""
        ...

    @property
    def stored(self) -> bool:
        """Whether a pass reads arrays; else every pass makes the design matrix anew."""
        ...

    def __iter__(self) -> Iterator[Block]:
        """Iterate over consecutive blocks, always the same ones in the same order."""
        ...

    def total(self, sums: Sums) -> Totals:
        """Return the sums over all rows: those of pieces of the rows, added in a fixed order.

        ``sums`` gets the blocks of one piece. It may run in another thread or process.
        """
        ...


@dataclass(frozen=True, slots=True)
class OneOf:
    """The rows of one of the annotators of some blocks, for sums that take one at a time."""

    every: RowBlocks
    annotator: int
    """Position among the annotators."""

    def __len__(self) -> int:
        return self.every.n_rows

    @property
    def n_coef(self) -> int:
        """Number of coefficients, p."""
        return self.every.n_coef

    def blocks(self) -> Iterator[tuple[slice, Rows]]:
        """Iterate over consecutive blocks of rows, always in the same order."""
        for part, rows in self.every:
            yield part, rows[self.annotator]


def block_size(n_coef: int) -> int:
    """Return how many rows with this many columns stay in cache, a power of two.

    Examples
    --------
    >>> block_size(20), block_size(2_000)
    (2048, 256)
    """
    most = _BLOCK_BYTES // (8 * max(n_coef, 1))
    return int(min(max(1 << max(most.bit_length() - 1, 0), _FEWEST_ROWS), BLOCK_ROWS))


def cut(rows: tuple[Rows, ...], size: int, start: int = 0) -> Iterator[Block]:
    """Cut rows under K annotators into blocks; arrays they share stay shared.

    Parameters
    ----------
    rows : tuple of Rows
        The same m rows under each annotator.
    size : int
        Rows of a block.
    start : int
        Position of the first row among all rows.
    """
    X, at_x = _distinct([r.X for r in rows])
    Z, at_z = _distinct([r.Z for r in rows if r.Z is not None])
    for first in range(0, len(rows[0]), size):
        inner = slice(first, min(first + size, len(rows[0])))
        x, z = [a[inner] for a in X], [a[inner] for a in Z]
        yield (
            slice(start + first, start + inner.stop),
            tuple(
                Rows(
                    r.y[inner],
                    x[at_x[k]],
                    z[at_z[k]] if z else None,
                    tuple([g[inner] for g in r.groups]) if r.groups else (),
                )
                for k, r in enumerate(rows)
            ),
        )


def _distinct(arrays: list[Float]) -> tuple[list[Float], list[int]]:
    """Return the arrays without repeats, and where each of those given is among them."""
    known: dict[int, int] = {}
    at = [known.setdefault(id(array), len(known)) for array in arrays]
    return [arrays[at.index(j)] for j in range(len(known))], at


@dataclass(frozen=True, slots=True)
class MadeBlocks:
    """Blocks of rows that a function makes, some thousand at a time.

    Parameters
    ----------
    n_rows, n_coef : int
    shared_design, stored : bool
        See :class:`RowBlocks`.
    size : int
        Rows of a block.
    make : callable
        Slice of rows -> these rows under each annotator.
    made_rows : int
        Rows made at a time.

    Examples
    --------
    >>> import numpy as np
    >>> rows = (Rows(y=np.arange(5.0), X=np.ones((5, 1))),)
    >>> blocks = MadeBlocks(5, 1, True, True, 2, lambda part: (rows[0].take(part),))
    >>> [(part.start, block[0].y.tolist()) for part, block in blocks]
    [(0, [0.0, 1.0]), (2, [2.0, 3.0]), (4, [4.0])]
    """

    n_rows: int
    n_coef: int
    shared_design: bool
    stored: bool
    size: int
    make: Callable[[slice], tuple[Rows, ...]]
    made_rows: int = BLOCK_ROWS

    def __iter__(self) -> Iterator[Block]:
        """Iterate over consecutive blocks, always in the same order."""
        for piece in self._pieces():
            yield from self._blocks(piece)

    def total(self, sums: Sums) -> Totals:
        """Return the sums over all rows, added piece by piece in a fixed order."""
        return ordered_total([partial(self._sums, sums, piece) for piece in self._pieces()])

    def _pieces(self) -> list[slice]:
        step = max(self.size, self.made_rows - self.made_rows % self.size)
        return [
            slice(start, min(start + step, self.n_rows)) for start in range(0, self.n_rows, step)
        ]

    def _blocks(self, piece: slice) -> Iterator[Block]:
        return cut(self.make(piece), self.size, piece.start)

    def _sums(self, sums: Sums, piece: slice) -> Totals:
        return sums(self._blocks(piece))
