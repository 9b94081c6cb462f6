"""The variables of a formula: covariates and labels, their levels, and how to read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
from formulaic.parser.types import Factor
from numpy.typing import NDArray

from trueup.errors import FormulaError
from trueup.formula.columns import (
    check_bare,
    check_complete,
    check_level_count,
    dictionary,
    encode,
    kind_of,
    plain,
)
from trueup.formula.matrix import MOST_LABEL_LEVELS, Reader
from trueup.formula.parse import factor_variables, marked_categorical
from trueup.study.design import Int, SampleDesign


class Source(Protocol):
    """What a formula needs from a study (see :class:`trueup.study.study.Study`)."""

    @property
    def n_rows(self) -> int:
        """Number of rows, N."""
        ...

    @property
    def variables(self) -> tuple[str, ...]:
        """Labelled variables."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that can stand in a formula."""
        ...

    @property
    def human_columns(self) -> Mapping[str, str]:
        """Columns of human labels, by labelled variable."""
        ...

    def human_labels(self, variable: str) -> NDArray[Any]:
        """Return (N,) human labels, missing where not coded."""
        ...

    def llm_labels(self, variable: str, annotator: str) -> NDArray[Any]:
        """Return (N,) labels of one annotator, complete."""
        ...

    def levels(self, variable: str) -> tuple[str, ...] | None:
        """Return the classes of a variable; None where its labels are numbers."""
        ...

    def covariates(self, columns: Sequence[str], part: slice | Int | None = None) -> pd.DataFrame:
        """Return columns in some rows, with a fresh index."""
        ...

    def design(self, variables: Sequence[str]) -> SampleDesign:
        """Return the sampling design of the rows coded for these variables."""
        ...


@dataclass(frozen=True, slots=True)
class Variable:
    """What a formula knows about one covariate or labelled variable."""

    name: str
    label: bool
    """Whether humans and LLMs label it."""
    number: bool
    """Whether it holds numbers (or booleans)."""
    levels: pd.Index[Any] | None
    """Its levels, where the formula uses it as classes."""
    allowed: pd.Index[Any] | None
    """The values it may take; None for any."""
    as_codes: bool
    """Whether every use is as classes, so that codes can stand for the values."""
    codes: pd.Categorical | None
    """(N,) codes of a covariate that has levels."""

    def typed(self, values: Any, where: str) -> Any:
        """Return labels or new values in the type that the formula is evaluated on.

        Raises
        ------
        FormulaError
            If a value is not finite, or not allowed.
        """
        if self.allowed is not None:
            coded = encode(self.name, values, self.allowed, where)
            if self.as_codes:
                return coded
        if not self.number:
            return np.asarray(values, dtype=object) if self.label else plain(values).array
        return self._numbers(values, where) if self.label else plain(values).array

    def _numbers(self, values: Any, where: str) -> NDArray[np.float64]:
        try:
            numbers = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise FormulaError(f"{where} of {self.name!r} must be numbers.") from None
        bad = int((~np.isfinite(numbers)).sum())
        if bad:
            raise FormulaError(
                f"{self.name!r} is missing or infinite in {bad:,} of {len(numbers):,} rows of "
                f"{where}: give every row a finite number."
            )
        return numbers


def survey(
    names: Sequence[str],
    factors: Sequence[Factor],
    study: Source,
    coded: Int,
    annotators: Sequence[str],
) -> dict[str, Variable]:
    """Read every variable once, check it, and note its levels.

    Parameters
    ----------
    names : sequence of str
        Variables of the formula.
    factors : sequence of Factor
        Expressions of the formula.
    study : Source
    coded : int array of shape (n,)
        Positions of the coded rows.
    annotators : sequence of str
        Annotators whose labels count.

    Returns
    -------
    dict
        Name -> variable.

    Raises
    ------
    FormulaError, StudyError
        If a column has gaps, too many levels, or is not fit for its use.
    """
    out: dict[str, Variable] = {}
    for name in names:
        uses = [f for f in factors if name in factor_variables(f)]
        if name in study.variables:
            out[name] = _label(name, uses, study, coded, annotators)
        else:
            out[name] = _covariate(name, uses, study)
    return out


def _class_uses(name: str, uses: Sequence[Factor], number: bool) -> tuple[bool, bool]:
    """Return whether any use, and whether every use, takes a variable as classes."""
    flags = [
        not number if f.eval_method is Factor.EvalMethod.LOOKUP else marked_categorical(f) == name
        for f in uses
    ]
    return any(flags), bool(flags) and all(flags)


def _covariate(name: str, uses: Sequence[Factor], study: Source) -> Variable:
    series = study.covariates((name,))[name]
    check_complete(name, series)
    if any(f.eval_method is Factor.EvalMethod.LOOKUP for f in uses):
        check_bare(name, series)
    number = kind_of(series) == "number"
    some, every = _class_uses(name, uses, number)
    codes = dictionary(name, series) if some else None
    levels = None if codes is None else codes.categories
    return Variable(name, False, number, levels, levels, every, codes)


def _label(
    name: str, uses: Sequence[Factor], study: Source, coded: Int, annotators: Sequence[str]
) -> Variable:
    classes = study.levels(name)
    number = classes is None
    some, every = _class_uses(name, uses, number)
    if not some:
        allowed = None if classes is None else pd.Index(classes, dtype=object)
        return Variable(name, True, number, None, allowed, False, None)
    human = study.human_labels(name)[coded]
    seen = set(pd.unique(human))
    for annotator in annotators:
        labels = study.llm_labels(name, annotator)
        if number:
            _refuse_probabilities(name, human, labels, annotator)
        seen.update(pd.unique(labels))
    if classes is None:
        check_level_count(f"The numeric label {name!r}", len(seen), MOST_LABEL_LEVELS, "column")
        levels = pd.Index(sorted(seen), dtype=np.float64)
    else:
        # Classes that only annotators outside this regression use would be columns of zeros.
        levels = pd.Index([c for c in classes if c in seen], dtype=object)
    return Variable(name, True, number, levels, levels, every, None)


def _refuse_probabilities(
    name: str, human: NDArray[Any], labels: NDArray[Any], annotator: str
) -> None:
    if not np.isin(human, (0.0, 1.0)).all() or np.isin(labels, (0.0, 1.0)).all():
        return
    raise FormulaError(
        f"C({name}) makes classes of {name!r}: human labels are 0 or 1, but {annotator!r} gives "
        f"other numbers, such as {labels[~np.isin(labels, (0.0, 1.0))][0]:g}. Write {name} without "
        "C(); probabilities then stand beside the 0/1 of the coded rows."
    )


def reader(
    study: Source,
    variables: Mapping[str, Variable],
    labels: Mapping[str, Any],
    index: Int | None = None,
) -> Reader:
    """Return a function that reads variables in a slice of rows.

    Parameters
    ----------
    study : Source
    variables : mapping of str to Variable
    labels : mapping of str to array of shape (m,)
        Labels by variable, typed, one for each row of ``index``.
    index : int array of shape (m,), optional
        Positions of the rows; all where None.
    """

    def read(names: Sequence[str], part: slice) -> pd.DataFrame:
        rows = part if index is None else index[part]
        columns: dict[str, Any] = {}
        for name in names:
            variable = variables[name]
            if name in labels:
                columns[name] = labels[name][part]
            elif variable.as_codes and variable.codes is not None:
                columns[name] = variable.codes[rows]
        others = [name for name in names if name not in columns]
        table = study.covariates(others, rows) if others else None
        for name in others:
            assert table is not None
            columns[name] = plain(table[name]).array
        return as_frame({name: columns[name] for name in names}, part)

    return read


def as_frame(columns: Mapping[str, Any], part: slice) -> pd.DataFrame:
    """Return columns as a frame with a fresh index, without copying them."""
    index = pd.RangeIndex(part.stop - part.start)
    series = {
        name: pd.Series(values, index=index, copy=False)
        if not isinstance(values, np.ndarray) or values.dtype != object
        else pd.Series(values, index=index, dtype=object, copy=False)
        for name, values in columns.items()
    }
    return pd.DataFrame(series, index=index, copy=False)


def label_sources(
    study: Source,
    variables: Mapping[str, Variable],
    coded: Int,
    annotators: Sequence[str],
    names: Sequence[str],
) -> Iterator[tuple[Reader, int]]:
    """Iterate over readers of some variables under every source of labels, with their lengths.

    Without labels among the variables there is one reader. A single label is read as its
    distinct values, which is all that its levels depend on.
    """
    labelled = [v for v in names if variables[v].label]
    if not labelled:
        yield reader(study, variables, {}), study.n_rows
        return
    sources: list[tuple[dict[str, Any], Int | None]] = [
        ({v: study.llm_labels(v, a) for v in labelled}, None) for a in annotators
    ]
    sources.append(({v: study.human_labels(v)[coded] for v in labelled}, coded))
    if len(names) == 1:
        name = labelled[0]
        distinct = pd.unique(np.concatenate([labels[name] for labels, _ in sources]))
        sources = [({name: distinct}, None)]
    for labels, index in sources:
        typed = {v: variables[v].typed(values, "labels") for v, values in labels.items()}
        n_rows = len(next(iter(labels.values())))
        yield reader(study, variables, typed, index), n_rows
