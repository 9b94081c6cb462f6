"""How the coded rows were drawn: from what a user says to the numbers of a design."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trueup.errors import ArgumentError, DesignWarning, SamplingError, StudyError
from trueup.study.design import Draw, Float, Int, SampleDesign
from trueup.study.tables import Table

Bool = NDArray[np.bool_]
Method = Literal["fixed", "poisson"]

#: Relative difference between a probability column and n_s/N_s that counts as rounding.
_TOLERANCE = 1e-6

_NUMBERS = {"boolean", "integer", "floating", "mixed-integer-float", "decimal", "empty"}


@dataclass(frozen=True, slots=True, eq=False)
class Sampling:
    """How the rows that humans coded were drawn from all rows.

    Without arguments: a simple random sample of rows, each with the same probability n/N.

    Parameters
    ----------
    strata : str or sequence of str, optional
        Column, or columns whose combinations are the strata. Within each stratum a simple
        random sample of rows was coded; the probability is n_s/N_s. Each stratum needs at
        least two coded rows, unless all its rows are coded.
    probability : str or array of shape (N,), optional
        Probability with which each row was to be coded, in (0, 1]. It must be known for the
        coded rows; elsewhere it may be missing.
    unit : str, optional
        Column that names units (schools, threads, users) of which some were drawn and then
        coded entirely. Strata and probabilities are then those of units.
    method : {"poisson", "fixed"}
        With ``probability=``: whether each row was drawn by a coin of its own, so that the
        number of coded rows is random, or a number fixed in advance was drawn.

    Raises
    ------
    ArgumentError
        If an argument is of a kind that cannot be used.

    Notes
    -----
    ``strata`` and ``probability`` may both be given where they say the same, that is where
    the probability is n_s/N_s within each stratum.

    Examples
    --------
    >>> Sampling(strata="source").strata_columns
    ('source',)
    """

    strata: str | Sequence[str] | None = None
    probability: str | Any | None = None
    unit: str | None = None
    method: Method = "poisson"

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise ArgumentError(f"method={self.method!r} is unknown: use 'poisson' or 'fixed'.")
        listed = self.strata is None or isinstance(self.strata, str | Sequence)
        if not listed or not all(isinstance(name, str) for name in self.strata_columns):
            raise ArgumentError(
                f"strata={self.strata!r} must be a column name or a list of column names."
            )
        if self.method == "fixed" and self.probability is None:
            raise ArgumentError(
                "method='fixed' needs probability=: give the column of probabilities, or leave "
                "method= out where every row had the same."
            )
        if not isinstance(self.unit, str | None):
            raise ArgumentError("unit= must be the name of a column.")

    @property
    def strata_columns(self) -> tuple[str, ...]:
        """Columns whose combinations are the strata; empty without strata."""
        if self.strata is None:
            return ()
        return (self.strata,) if isinstance(self.strata, str) else tuple(self.strata)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that describe the sampling."""
        others = (c for c in (self.probability, self.unit) if isinstance(c, str))
        return (*self.strata_columns, *others)


def column_or_array(table: Table, value: Any, argument: str) -> NDArray[Any]:
    """Return an argument that is a column name or an array with one value for each row.

    Raises
    ------
    StudyError
        If the column does not exist or the array has another length.
    """
    if isinstance(value, str):
        table.require(value, f"{argument}=")
        return table.column(value)
    values = np.asarray(value)
    if values.shape != (table.n_rows,):
        raise StudyError(
            f"{argument}= has shape {values.shape}, but the table has {table.n_rows} rows: give "
            "a column name, or an array with one value for each row."
        )
    return values


def as_float(values: NDArray[Any], argument: str) -> Float:
    """Return numbers as float64 with NaN where missing.

    Raises
    ------
    StudyError
        If the values are not numbers.
    """
    kind = pd.api.types.infer_dtype(values, skipna=True)
    if kind not in _NUMBERS:
        raise StudyError(f"{argument} must hold numbers, but it holds {kind} values.")
    return np.asarray(pd.Series(values).astype(np.float64).to_numpy())


@dataclass(frozen=True, slots=True)
class _Elements:
    """What was drawn, rows or whole units: M of them, with arrays in their order."""

    noun: str
    code: Int | None  # (N,) unit of each row; None where rows were drawn
    first: Int  # (M,) a row of each element
    size: Int  # (M,) number of its rows
    drawn: Bool
    stratum: Int  # 0 everywhere without strata
    strata: tuple[str, ...]  # one description for each stratum; empty without strata
    probability: Float  # NaN where unknown

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """Give each row the value of its element."""
        return values if self.code is None else values[self.code]

    def counts(self, chosen: Bool | None = None) -> Int:
        """Count elements by stratum."""
        codes = self.stratum if chosen is None else self.stratum[chosen]
        return np.bincount(codes, minlength=max(1, len(self.strata))).astype(np.int64)

    def describe(self, strata: Bool) -> str:
        """Name the marked strata, the first few of them."""
        names = [self.strata[s] for s in np.flatnonzero(strata)]
        return "; ".join(names[:5]) + (f"; and {len(names) - 5} more" if len(names) > 5 else "")


def resolve(
    sampling: Sampling,
    table: Table,
    coded: Bool,
    *,
    tuned: Bool | None = None,
    cluster: Int | None = None,
    weights: Float | None = None,
    disjoint: bool = False,
) -> SampleDesign:
    """Turn the description of the sampling into the design of one coded sample.

    Coded rows that were used to tune an annotator leave, and the design describes the rows
    that stay. Taking the tuned rows for a random part ``f`` of the coded rows of their stratum
    (of all coded rows, without strata), a row with probability ``pi`` stays with probability
    ``1 - f pi`` and is coded, given that it stays, with ``pi (1 - f) / (1 - f pi)``. The rows
    that stay are weighted by ``1 / (1 - f pi)``, so that they stand for the table as it was;
    where this is the same for all of them (simple random sampling) it is left out.

    Parameters
    ----------
    sampling : Sampling
        What the user says.
    table : Table
        All N rows.
    coded : bool array of shape (N,)
        Rows with a human label.
    tuned : bool array of shape (N,), optional
        Coded rows that leave.
    cluster : int array of shape (N,), optional
        Cluster codes.
    weights : array of shape (N,), optional
        Analysis weights.
    disjoint : bool
        Whether the coded rows came as a table of their own.

    Returns
    -------
    SampleDesign
        The design on the rows that stay, counted anew.

    Raises
    ------
    SamplingError
        If the description does not fit the coded rows; the message says where.
    """
    elements = _with_probability(sampling, table, _elements(sampling, table, coded), coded)
    stays = np.ones(table.n_rows, dtype=bool) if tuned is None else ~tuned
    factor: Float | None = None
    if tuned is not None and tuned.any():
        elements, factor, kept = _leave(elements, tuned)
    else:
        kept = np.ones(len(elements.first), dtype=bool)
    _check_counts(elements, kept)
    if factor is not None:
        weights = factor if weights is None else weights * factor
    return _design(
        sampling,
        elements,
        kept,
        rows=np.flatnonzero(stays),
        coded=coded,
        cluster=cluster,
        weights=weights,
        disjoint=disjoint,
    )


def _design(
    sampling: Sampling,
    elements: _Elements,
    kept: Bool,
    *,
    rows: Int,
    coded: Bool,
    cluster: Int | None,
    weights: Float | None,
    disjoint: bool,
) -> SampleDesign:
    taken = rows[coded[rows]]
    pi = elements.spread(elements.probability)
    known = not np.isnan(pi[rows]).any()
    strata, units = bool(elements.strata), elements.code
    if cluster is None:
        # Rows of a unit that is drawn whole stand and fall together.
        cluster = units
    return SampleDesign(
        n_rows=len(rows),
        coded=np.flatnonzero(coded[rows]).astype(np.int64),
        draw=_draw(sampling),
        probability=pi[taken],
        probability_all=pi[rows] if known else None,
        stratum=elements.spread(elements.stratum)[taken] if strata else None,
        stratum_sizes=elements.counts(kept) if strata else None,
        unit=None if units is None else _recode(units[taken]),
        n_units=None if units is None else int(kept.sum()),
        cluster=None if cluster is None else _recode(cluster[rows]),
        weights=None if weights is None else weights[rows],
        disjoint=disjoint,
    )


def _draw(sampling: Sampling) -> Draw:
    if sampling.strata_columns:
        return Draw.STRATA
    if sampling.probability is None:
        return Draw.SRS
    return Draw.FIXED if sampling.method == "fixed" else Draw.POISSON


def _recode(codes: NDArray[Any]) -> Int:
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


def _elements(sampling: Sampling, table: Table, coded: Bool) -> _Elements:
    n = table.n_rows
    stratum, strata = _strata(sampling, table)
    if sampling.unit is None:
        every, ones = np.arange(n), np.ones(n, dtype=np.int64)
        unknown = np.full(n, np.nan)
        return _Elements("row", None, every, ones, coded, stratum, strata, unknown)
    table.require(sampling.unit, "unit=")
    code, names = _factorize(table, sampling.unit, "unit=")
    m = len(names)
    first = np.unique(code, return_index=True)[1]
    size = np.bincount(code, minlength=m)
    n_coded = np.bincount(code[coded], minlength=m)
    partly = (n_coded > 0) & (n_coded < size)
    if partly.any():
        some = [
            f"{_plain(names[u])} ({n_coded[u]} of {size[u]} rows)" for u in np.flatnonzero(partly)
        ]
        raise SamplingError(
            f"unit={sampling.unit!r} says that whole units were coded, but {len(some)} units are "
            f"coded in part: {', '.join(some[:5])}{', ...' if len(some) > 5 else ''}. Code all "
            "their rows, blank out their human labels, or describe how rows were drawn instead."
        )
    mixed = np.unique(code[stratum != stratum[first][code]])
    if len(mixed):
        raise SamplingError(
            f"Each unit must lie in one stratum, but these lie in several: "
            f"{', '.join(_plain(names[u]) for u in mixed[:5])}. Give strata= a column that is "
            f"constant within {sampling.unit!r}, or leave strata= out."
        )
    unknown = np.full(m, np.nan)
    return _Elements("unit", code, first, size, n_coded > 0, stratum[first], strata, unknown)


def _factorize(table: Table, name: str, argument: str) -> tuple[Int, NDArray[Any]]:
    """Return codes 0..K-1 of a column, in the order of first appearance, and its values."""
    codes, names = pd.factorize(table.column(name))
    missing = codes < 0
    if missing.any():
        raise SamplingError(
            f"Column {name!r} ({argument}) is missing in {int(missing.sum())} rows (first at "
            f"positions {np.flatnonzero(missing)[:5].tolist()}): fill it in for every row."
        )
    return codes.astype(np.int64), np.asarray(names)


def _strata(sampling: Sampling, table: Table) -> tuple[Int, tuple[str, ...]]:
    columns = sampling.strata_columns
    total = np.zeros(table.n_rows, dtype=np.int64)
    if not columns:
        return total, ()
    parts = []
    for name in columns:
        table.require(name, "strata=")
        codes, names = _factorize(table, name, "strata=")
        # Recoded after each column, so that products of level counts cannot overflow.
        total = _recode(total * len(names) + codes)
        parts.append((name, codes, names))
    first = np.unique(total, return_index=True)[1]
    labels = (
        ", ".join(f"{name} = {_plain(names[codes[row]])}" for name, codes, names in parts)
        for row in first
    )
    return total, tuple(labels)


def _plain(value: Any) -> str:
    return repr(value.item() if isinstance(value, np.generic) else value)


def _with_probability(
    sampling: Sampling, table: Table, elements: _Elements, coded: Bool
) -> _Elements:
    n_drawn, n_all = elements.counts(elements.drawn), elements.counts()
    empty = n_drawn == 0
    if empty.any():
        raise SamplingError(
            f"{int(empty.sum())} strata hold no coded {elements.noun}: "
            f"{elements.describe(empty)}. Their rows had no chance to be coded: merge strata, or "
            "drop these rows from the data so that it is clear which rows the study speaks for."
        )
    share = (n_drawn / n_all)[elements.stratum]
    if sampling.probability is None:
        return replace(elements, probability=share)
    given = _given_probability(sampling, table, coded)
    at_element = given[elements.first]
    _check_constant(elements, given, at_element)
    if elements.strata:
        _check_against_strata(elements, at_element, share)
        return replace(elements, probability=share)
    _warn_total(elements, at_element, table.n_rows)
    return replace(elements, probability=at_element)


def _given_probability(sampling: Sampling, table: Table, coded: Bool) -> Float:
    argument = "probability="
    if isinstance(sampling.probability, str):
        argument += repr(sampling.probability)
    pi = as_float(column_or_array(table, sampling.probability, "probability"), argument)
    surely = (pi == 1) & ~coded
    for wrong, what, mend in (
        (np.isnan(pi) & coded, "missing in {} coded rows", "fill it in for every coded row"),
        (pi <= 0, "zero or negative in {} rows", _DROP),
        (pi > 1, "above 1 in {} rows", "give probabilities, not percentages or weights"),
        (surely, "1 in {} rows without a human label", _SURELY),
    ):
        if wrong.any():
            first = np.flatnonzero(wrong)[:5].tolist()
            raise SamplingError(
                f"{argument} is {what.format(int(wrong.sum()))} (first at positions {first}): "
                f"{mend}."
            )
    return pi


_DROP = (
    "probabilities lie in (0, 1]; rows that could not be coded must be dropped from the data, so "
    "that it is clear which rows the study speaks for"
)
_SURELY = "a row that is sure to be coded has one, so code these rows or correct the probability"


def _check_constant(elements: _Elements, given: Float, at_element: Float) -> None:
    if elements.code is None:
        return
    expected = at_element[elements.code]
    differs = ~((given == expected) | (np.isnan(given) & np.isnan(expected)))
    if differs.any():
        raise SamplingError(
            f"The probability must be that of the unit, the same for all its rows; it differs "
            f"within {len(np.unique(elements.code[differs]))} units (first at positions "
            f"{np.flatnonzero(differs)[:5].tolist()}). Give all rows of a unit its probability."
        )


def _check_against_strata(elements: _Elements, given: Float, share: Float) -> None:
    # NaN compares as false: a probability that is not given cannot contradict.
    off = np.abs(given - share) > _TOLERANCE * share
    if not off.any():
        return
    worst = int(np.flatnonzero(off)[0])
    s = int(elements.stratum[worst])
    n_s, size = elements.counts(elements.drawn)[s], elements.counts()[s]
    raise SamplingError(
        f"The probability does not fit the strata: in {elements.strata[s]}, {n_s} of {size} "
        f"{elements.noun}s are coded, which is {share[worst]:.6g}, but the probability says "
        f"{given[worst]:.6g}. Leave out one of strata= and probability=, or correct it."
    )


def _warn_total(elements: _Elements, given: Float, n_rows: int) -> None:
    """Warn where the weights 1/pi do not add up to the table, as they do on average."""
    pi, size = given[elements.drawn], elements.size[elements.drawn]
    total = float(np.sum(size / pi))
    error = float(np.sqrt(np.sum((1 - pi) * (size / pi) ** 2)))
    if abs(total - n_rows) > 5 * error + 1e-6 * n_rows:
        warnings.warn(
            f"The inverse probabilities of the coded rows add up to {total:,.0f} (standard error "
            f"{error:,.0f}), but the table has {n_rows:,} rows. Check that the probability is "
            "the one each row had of being coded, and that the table is the one that the rows "
            "were drawn from.",
            DesignWarning,
            stacklevel=2,
        )


def _leave(elements: _Elements, tuned: Bool) -> tuple[_Elements, Float | None, Bool]:
    """Take tuned rows out: elements with new probabilities, row weights, who stays."""
    leaves = tuned
    if elements.code is not None:
        n_leave = np.bincount(elements.code[tuned], minlength=len(elements.first))
        if ((n_leave > 0) & (n_leave < elements.size)).any():
            raise SamplingError(
                "tuned_on= marks some rows of a unit but not all: where whole units were drawn, "
                "mark whole units."
            )
        leaves = n_leave > 0
    share = elements.counts(leaves) / elements.counts(elements.drawn)
    gone = share == 1
    if gone.any():
        where = f" in {elements.describe(gone)}" if elements.strata else ""
        raise SamplingError(
            f"tuned_on= marks every coded {elements.noun}{where}: no coded {elements.noun} is left "
            "to correct with. Keep some for the correction, or merge strata."
        )
    f = share[elements.stratum]
    stays = 1 - f * elements.probability
    probability = elements.probability * (1 - f) / stays
    elements = replace(elements, drawn=elements.drawn & ~leaves, probability=probability)
    factor = 1 / stays
    if np.isnan(factor[~leaves]).any():
        warnings.warn(
            "tuned_on= takes rows out of the study, and the rows that stay cannot be weighted to "
            "make up for it, because the probability is not known for every row: results are for "
            "the rows that stay. Give the probability of all rows to mend this.",
            DesignWarning,
            stacklevel=2,
        )
        return elements, None, ~leaves
    constant = np.ptp(factor[~leaves]) <= 1e-12
    return elements, None if constant else elements.spread(factor), ~leaves


def _check_counts(elements: _Elements, kept: Bool) -> None:
    """Refuse samples whose variance cannot be computed."""
    drawn, size = elements.counts(elements.drawn), elements.counts(kept)
    if drawn.sum() < 2:
        raise SamplingError(
            f"Only one {elements.noun} is coded, so that no variance can be computed: "
            f"code at least two {elements.noun}s."
        )
    lonely = (drawn < 2) & (drawn < size)
    if elements.strata and lonely.any():
        raise SamplingError(
            f"{int(lonely.sum())} strata hold a single coded {elements.noun}, so that their "
            f"variance cannot be computed: {elements.describe(lonely)}. "
            "Code more, or merge strata (give them a common value in a new column and use that)."
        )
