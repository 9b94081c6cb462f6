"""The rows of a regression as arrays, under one source of labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trueup.study.design import Float, Int

#: Rows per block in passes over all N rows: a float64 block of 20 columns stays in L2 cache.
BLOCK_ROWS = 8192


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
