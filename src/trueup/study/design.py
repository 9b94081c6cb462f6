"""The sampling design as numbers: which rows were coded, and with which probability."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]


class Draw(StrEnum):
    """How the coded rows were drawn from all rows."""

    SRS = "srs"  # simple random sample of rows, fixed size
    POISSON = "poisson"  # independent draws with known unequal probabilities
    FIXED = "fixed"  # fixed-size sample with known unequal probabilities
    STRATA = "strata"  # simple random sample of rows within strata


@dataclass(frozen=True, slots=True)
class SampleDesign:
    """The coded sample of one regression.

    ``coded`` are positions among the ``n_rows`` rows of the table, ascending. All other
    arrays of length ``n`` follow the order of ``coded``.

    Whole units (schools, threads) may have been drawn instead of rows: then ``unit`` gives
    each coded row its unit, ``draw`` describes how *units* were drawn, and ``n_drawn_from``,
    ``stratum_sizes`` count units.
    """

    n_rows: int
    """N, all rows, coded or not."""
    coded: Int
    """(n,) positions of the coded rows."""
    draw: Draw
    probability: Float
    """(n,) inclusion probability of each coded row, in (0, 1]."""
    probability_all: Float | None = None
    """(N,) inclusion probability of every row, where known."""
    stratum: Int | None = None
    """(n,) stratum codes 0..S-1."""
    stratum_sizes: Int | None = None
    """(S,) number of rows (or units, where units were drawn) in each stratum of the table."""
    unit: Int | None = None
    """(n,) codes of the drawn unit of each coded row; None where rows were drawn."""
    n_units: int | None = None
    """Number of units in the table; None where rows were drawn."""
    cluster: Int | None = None
    """(N,) cluster codes 0..G-1 of rows that depend on each other; None = independent rows.
    Drawn units are clusters where nothing wider was said."""
    weights: Float | None = None
    """(N,) analysis weights; None = 1."""
    disjoint: bool = False
    """True where the coded rows are a table of their own (``Study.from_parts``): rows
    0..m-1 of the stacked table are uncoded, the last n rows are coded."""

    @property
    def n_coded(self) -> int:
        """Number of coded rows, n."""
        return len(self.coded)

    @property
    def uncoded(self) -> Int | slice:
        """Positions of the rows that were not coded: a slice (no copies) where they come first."""
        first = self.n_rows - self.n_coded
        if self.coded[0] == first:
            return slice(0, first)
        rest = np.ones(self.n_rows, dtype=bool)
        rest[self.coded] = False
        return np.flatnonzero(rest)

    @property
    def n_drawn_from(self) -> int:
        """Number of rows, or of units where units were drawn, that the sample came from."""
        return self.n_rows if self.n_units is None else self.n_units

    @property
    def inverse_probability(self) -> Float:
        """(n,) design weights 1/pi."""
        return 1.0 / self.probability

    @property
    def coded_weights(self) -> Float:
        """(n,) weights of the coded rows in an estimating equation: a_i / pi_i."""
        w = self.inverse_probability
        return w if self.weights is None else w * self.weights[self.coded]
