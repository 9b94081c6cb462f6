"""The design of one formula, under human labels, LLM labels, or any others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from formulaic.parser.types import Factor, Term
from numpy.typing import NDArray

from trueup.errors import CollinearityError, FormulaError
from trueup.formula.blocks import BlockMaker, Sides, compact, may_keep
from trueup.formula.columns import check_complete, kind_of
from trueup.formula.matrix import Learner, Matrix, Reader
from trueup.formula.parse import (
    Parsed,
    is_intercept,
    outcome_term,
    parse,
    term_variables,
    terms_of,
    variables_of,
)
from trueup.formula.passes import Totals
from trueup.formula.rows import Block, MadeBlocks, RowBlocks, Rows, block_size
from trueup.formula.variables import Source, Variable, as_frame, label_sources, reader, survey
from trueup.study.design import Float, Int, SampleDesign
from trueup.study.tables import Table, nearest
from trueup.study.values import REFUSED

#: Rows evaluated at a time: few enough to keep memory low, enough to spread fixed costs.
BLOCK_ROWS = 65_536
#: Rows that formulas are tried on before all rows are read.
_PROBE_ROWS = 200
#: Entries of the design matrix that are made at a time for passes over blocks.
_BLOCK_ENTRIES = 2**22

Labels = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class FormulaFrame:
    """The design of one formula, which can be filled with any source of labels.

    Made by :func:`build_frame`. Levels, knots and means are learned once, from all rows, so
    that the coded rows under human labels, all rows under LLM labels and new data have the
    same columns. Where labels are in the outcome only, all sources share one design matrix.
    """

    formula: str
    """The formula as it was written."""
    terms: tuple[str, ...]
    """Names of the p coefficients."""
    outcome: str
    """Left-hand side."""
    outcome_is_label: bool
    """Whether the outcome is made from a labelled variable."""
    variables: tuple[str, ...]
    """Labelled variables that the formula uses."""
    covariate_labels: tuple[str, ...]
    """Labelled variables on the right-hand side."""
    class_labels: Mapping[str, tuple[Any, ...]]
    """Labelled variables that enter as classes, with their levels."""
    design: SampleDesign
    """The sampling design of the rows coded for these variables."""
    annotators: tuple[str, ...]
    """Annotators whose labels the levels were learned from."""
    instruments: tuple[str, ...]
    """Names of the columns of Z: exogenous regressors, then instruments; empty if none."""
    absorbed: tuple[str, ...]
    """Names of the absorbed effects."""
    _study: Source = field(repr=False)
    _known: Mapping[str, Variable] = field(repr=False)
    _left: Matrix = field(repr=False)
    _right: Matrix = field(repr=False)
    _excluded: Matrix | None = field(repr=False)
    """Instruments that are not regressors."""
    _n_exogenous: int = field(repr=False)
    _shared_instruments: bool = field(repr=False)
    """Whether Z is the same under all labels."""
    _groups: tuple[Int, ...] = field(repr=False)
    _block_rows: int = field(repr=False)
    _cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def human_labels(self, variable: str) -> NDArray[Any]:
        """Return the (n,) human labels of the coded rows."""
        return self._study.human_labels(variable)[self.design.coded]

    def llm_labels(self, variable: str, annotator: str) -> NDArray[Any]:
        """Return the (N,) labels of one annotator, complete."""
        return self._study.llm_labels(variable, annotator)

    def human(self) -> Rows:
        """Return the n coded rows under human labels."""
        labels = {v: self.human_labels(v) for v in self.variables}
        return self._rows(labels, self.design.coded, "the human labels")

    def llm(self, annotator: str) -> Rows:
        """Return all N rows under the labels of one annotator.

        The rows of the last annotator asked for are kept; do not write into them.
        """
        last: tuple[str, Rows] | None = self._cache.get("llm")
        if last is not None and last[0] == annotator:
            return last[1]
        # Let go of the previous rows first, so that two designs are never held at once.
        self._cache.pop("llm", None)
        last = None
        labels = {v: self.llm_labels(v, annotator) for v in self.variables}
        rows = self._rows(labels, None, f"the labels of {annotator!r}")
        self._cache["llm"] = (annotator, rows)
        return rows

    def llm_outcome(self, annotator: str) -> Float:
        """Return the (N,) outcome under the labels of one annotator, without a design matrix."""
        typed = {v: self._typed(v, annotator) for v in self.variables}
        read = reader(self._study, self._known, typed)
        return self._columns("y", self._left, read, None, f"the labels of {annotator!r}")[:, 0]

    def holds(self) -> bool:
        """Return whether the design matrix of all rows is, or may be, held at once."""
        return self._keeps("X", self._right)

    def blocks(self, annotators: Sequence[str], size: int | None = None) -> RowBlocks:
        """Return all N rows under several annotators, to be gone through block by block.

        What labels do not touch is one array object for all annotators; of the labels only the
        block at hand is float64. A design matrix that is too large to keep is made anew for
        each block.

        Parameters
        ----------
        annotators : sequence of str
            K annotators, at least one.
        size : int, optional
            Rows of a block; by default as many as stay in cache.

        Returns
        -------
        RowBlocks
            Iterates over ``(slice, K Rows)``.

        Examples
        --------
        >>> from trueup.study.study import Study
        >>> data = {"coder": [1, 0, None], "a": [1, 1, 0], "b": [0, 1, 0], "x": [1, 2, 4]}
        >>> study = Study(data, human={"positive": "coder"}, llm={"positive": ["a", "b"]})
        >>> frame = build_frame("positive ~ x", study, annotators=["a", "b"])
        >>> for part, (a, b) in frame.blocks(["a", "b"], size=2):
        ...     print(part.start, a.y, b.y, a.X is b.X)
        0 [1. 1.] [0. 1.] True
        2 [0.] [0.] True
        """
        labels = tuple({v: compact(self._typed(v, a)) for v in self.variables} for a in annotators)
        right = self._right.variables()
        shared = set(self.variables).isdisjoint(right)
        kept = self._kept_parts()
        sides = Sides(
            study=self._study,
            known=self._known,
            left=self._left,
            right=self._right,
            excluded=self._excluded,
            n_exogenous=self._n_exogenous,
            groups=self._groups,
            block_rows=self._block_rows,
        )
        return MadeBlocks(
            n_rows=self._study.n_rows,
            n_coef=len(self.terms),
            shared_design=shared,
            stored=shared and "X" in kept,
            size=block_size(len(self.terms)) if size is None else size,
            make=BlockMaker(sides, labels, kept),
            made_rows=min(self._block_rows, max(_BLOCK_ENTRIES // len(self.terms), 1)),
        )

    def _kept_parts(self) -> dict[str, Float]:
        """Return the parts of the design without labels that are small enough to keep."""
        kept: dict[str, Float] = {}
        sides = {"y": self._left, "X": self._right, "instruments": self._excluded}
        for key, matrix in sides.items():
            if matrix is None:
                continue
            name, part = key, matrix
            if not set(self.variables).isdisjoint(matrix.variables()):
                without = matrix.only_fixed()
                if without is None:
                    continue
                name, part = f"{key} without labels", without
            if self._keeps(name, part):
                kept[name] = self._all_rows(name, part)
        return kept

    def _typed(self, variable: str, annotator: str) -> Any:
        """Return the (N,) labels of one annotator as formulas are evaluated on them."""
        labels = self.llm_labels(variable, annotator)
        return self._known[variable].typed(labels, f"the labels of {annotator!r}")

    def rows(self, labels: Labels, index: Int | None = None) -> Rows:
        """Return rows under any labels.

        Parameters
        ----------
        labels : mapping of str to array
            Labels of every labelled variable of the formula, either for the rows asked for
            or for all N rows.
        index : int array of shape (m,), optional
            Positions of the rows; all where None.

        Returns
        -------
        Rows
            With all other columns taken from the study.

        Raises
        ------
        FormulaError
            If labels are lacking, of the wrong length, not finite, or of an unknown class.
        """
        m = self._study.n_rows if index is None else len(index)
        given: dict[str, NDArray[Any]] = {}
        for name in self.variables:
            if name not in labels:
                raise FormulaError(f"rows() needs labels of {name!r}, which the formula uses.")
            values = np.asarray(labels[name])
            if index is not None and len(values) != m and len(values) == self._study.n_rows:
                values = values[index]
            if values.shape != (m,):
                raise FormulaError(
                    f"The labels of {name!r} have shape {values.shape}; give {m} (one for each "
                    f"row asked for) or {self._study.n_rows} (all rows)."
                )
            given[name] = values
        return self._rows(given, index, "the labels given")

    def new_rows(self, data: Any) -> Float:
        """Return the design matrix of new data.

        Parameters
        ----------
        data : data frame or dict of arrays
            m rows with every column of the right-hand side, labelled variables by name.

        Returns
        -------
        numpy.ndarray, shape (m, p)

        Raises
        ------
        FormulaError
            If a column is lacking, or holds a level that the study does not have.
        StudyError
            If a value is missing.

        Examples
        --------
        >>> from trueup.study.study import Study
        >>> data = {"coder": [1, 0, None], "gpt": [1, 1, 0], "source": ["a", "b", "a"]}
        >>> study = Study(data, human={"positive": "coder"}, llm={"positive": ["gpt"]})
        >>> frame = build_frame("positive ~ source", study, annotators=["gpt"])
        >>> frame.new_rows({"source": ["b"]})
        array([[1., 1.]])
        """
        table, where = Table(data), "the new data"
        columns: dict[str, Any] = {}
        for name in self._right.variables():
            if name not in table.columns:
                raise FormulaError(
                    f"The new data lack the column {name!r}.{nearest(name, table.columns)}"
                )
            series = table.pandas([name])[name]
            check_complete(name, series, "Fill these values in, or leave these rows out.")
            columns[name] = self._new_column(self._known[name], series, where)

        def read(names: Sequence[str], part: slice) -> pd.DataFrame:
            return as_frame({v: columns[v][part] for v in names}, part)

        return self._right.build(read, table.n_rows, self._block_rows, where=where)

    @staticmethod
    def _new_column(variable: Variable, series: pd.Series[Any], where: str) -> Any:
        if variable.number and kind_of(series) != "number":
            raise FormulaError(
                f"Column {variable.name!r} holds numbers in the study but {series.dtype} values "
                f"in {where}: convert it."
            )
        return variable.typed(series, where)

    def _rows(self, labels: Labels, index: Int | None, where: str) -> Rows:
        typed = {v: self._known[v].typed(values, where) for v, values in labels.items()}
        read = reader(self._study, self._known, typed, index)
        y = self._columns("y", self._left, read, index, where)[:, 0]
        X = self._columns("X", self._right, read, index, where)
        Z = None if self._excluded is None else self._instruments(X, read, index, where)
        groups = self._groups
        if index is not None:
            groups = tuple(g[index] for g in groups)
        return Rows(y, X, Z, groups)

    def _columns(
        self, key: str, matrix: Matrix, read: Reader, index: Int | None, where: str
    ) -> Float:
        """Return the columns of a matrix: shared between labels where they do not matter."""
        m = self._study.n_rows if index is None else len(index)
        if set(self.variables).isdisjoint(matrix.variables()):
            if index is None:
                return self._all_rows(key, matrix)
            if self._keeps(key, matrix):
                return np.asarray(self._all_rows(key, matrix)[index])
            return matrix.build(read, m, self._block_rows, where=where)
        without = matrix.only_fixed()
        fixed: Float | None = None
        name = f"{key} without labels"
        if without is not None and self._keeps(name, without):
            fixed = self._all_rows(name, without)
            fixed = fixed if index is None else fixed[index]
        if index is None:
            self._check_size(matrix)
        return matrix.build(read, m, self._block_rows, fixed=fixed, where=where)

    def _keeps(self, key: str, matrix: Matrix) -> bool:
        """Return whether columns without labels are kept, or may be, for all rows."""
        return key in self._cache or may_keep(self._study.n_rows, len(matrix.names))

    def _check_size(self, matrix: Matrix) -> None:
        """Raise where the columns of all rows would take too much memory at once."""
        n, p = self._study.n_rows, len(matrix.names)
        if not may_keep(n, p):
            raise FormulaError(
                f"{n:,} rows of {p:,} columns would take {8 * n * p / 2**30:,.1f} GB at once. "
                "Corrections that go through the rows in blocks can fit them (naive, human, "
                'tu.PTD(), tu.PPI(form="difference")); else merge levels or absorb the effect '
                "with tu.absorb."
            )

    def _all_rows(self, key: str, matrix: Matrix) -> Float:
        """Return a matrix without labels on all rows, built once."""
        if key not in self._cache:
            self._check_size(matrix)
            read = reader(self._study, self._known, {})
            self._cache[key] = matrix.build(read, self._study.n_rows, self._block_rows)
        out: Float = self._cache[key]
        return out

    def _instruments(self, X: Float, read: Reader, index: Int | None, where: str) -> Float:
        """Return exogenous regressors and instruments side by side."""
        assert self._excluded is not None
        keep = self._shared_instruments and index is None
        if keep and "Z" in self._cache:
            out: Float = self._cache["Z"]
            return out
        excluded = self._columns("instruments", self._excluded, read, index, where)
        Z = np.hstack([X[:, : self._n_exogenous], excluded])
        if keep:
            self._cache["Z"] = Z
        return Z


def build_frame(
    formula: str, study: Source, *, annotators: Sequence[str], block_rows: int = BLOCK_ROWS
) -> FormulaFrame:
    """Read a formula against a study and learn what its terms mean.

    Parameters
    ----------
    formula : str
        For instance ``"positive ~ exclaim + log(words) + C(source)"``; see
        :func:`trueup.formula.parse.parse`. Labelled variables may stand anywhere but after
        the bar.
    study : Study
        The table, its labels, and how the coded rows were drawn.
    annotators : sequence of str
        Annotators whose labels will be used; at least one.
    block_rows : int
        Rows evaluated at a time. The result does not depend on it.

    Returns
    -------
    FormulaFrame

    Raises
    ------
    FormulaError
        If the formula cannot be read, names unknown columns, or asks for something that would
        make human and LLM labels incomparable.
    StudyError
        If a column has missing values, or variables were coded on different rows.

    Examples
    --------
    >>> from trueup.study.study import Study
    >>> data = {"coder": [1, 0, None, None], "gpt": [1, 1, 0, 1], "words": [3, 8, 5, 2]}
    >>> study = Study(data, human={"positive": "coder"}, llm={"positive": ["gpt"]})
    >>> frame = build_frame("positive ~ words", study, annotators=["gpt"])
    >>> frame.terms
    ('Intercept', 'words')
    >>> frame.human().y, frame.llm("gpt").y
    (array([1., 0.]), array([1., 1., 0., 1.]))
    """
    parsed = parse(formula)
    used = variables_of(parsed)
    _check_names(used, study)
    labels = tuple(v for v in used if v in study.variables)
    _check_labels(parsed, labels, study, annotators)
    design = study.design(labels)
    pieces = _pieces(parsed)
    known = survey(used, pieces.factors, study, design.coded, annotators)
    learner = _learner(known, study, design.coded, annotators)
    left = _outcome(parsed, pieces.outcome, learner, known)
    skip = 1 if parsed.absorbed else 0
    right = learner.matrix([*pieces.exogenous, *pieces.endogenous], skip=skip)
    if not right.names:
        raise FormulaError(f"The formula {formula!r} has no regressor: write 'y ~ 1' for a mean.")
    if pieces.outcome in pieces.right:
        raise FormulaError(
            f"The outcome {parsed.outcome!r} is a regressor too, and explains itself perfectly: "
            "take it out of one side."
        )
    n_exogenous, excluded = _excluded_instruments(pieces, learner, right, skip)
    without_endogenous = _variables([*pieces.exogenous, *pieces.instruments])
    return FormulaFrame(
        formula=parsed.formula,
        terms=right.names,
        outcome=parsed.outcome,
        outcome_is_label=not set(labels).isdisjoint(term_variables(pieces.outcome)),
        variables=labels,
        covariate_labels=tuple(v for v in labels if v in _variables(pieces.right)),
        class_labels={v: tuple(k) for v in labels if (k := known[v].allowed) is not None},
        design=design,
        annotators=tuple(annotators),
        instruments=() if excluded is None else (*right.names[:n_exogenous], *excluded.names),
        absorbed=tuple("^".join(columns) for columns in parsed.absorbed),
        _study=study,
        _known=known,
        _left=left,
        _right=right,
        _excluded=excluded,
        _n_exogenous=n_exogenous,
        _shared_instruments=without_endogenous.isdisjoint(labels),
        _groups=tuple(_group_codes(columns, study) for columns in parsed.absorbed),
        _block_rows=block_rows,
    )


def check_support(frame: FormulaFrame, human: Rows) -> None:
    """Raise where the coded rows say nothing about a level or a column that other rows have.

    Parameters
    ----------
    frame : FormulaFrame
        The design.
    human : Rows
        The coded rows under human labels.

    Raises
    ------
    CollinearityError
        With the level or column, and in how many rows it occurs.
    """
    _check_refusals(frame)
    problems = [*_uncoded_levels(frame), *_empty_columns(frame, human)]
    if problems:
        raise CollinearityError(
            f"The {len(human):,} coded rows cannot tell all coefficients apart: "
            f"{'; '.join(problems[:5])}. Merge such levels into others, code some rows that have "
            "them, or leave these rows out of the study."
        )


def _check_refusals(frame: FormulaFrame) -> None:
    """Raise where refusals are a class of a covariate, which human labels never have."""
    for name in frame.covariate_labels:
        classes = frame._known[name].levels
        if classes is not None and REFUSED in classes and name in frame._study.variables:
            if REFUSED in set(frame.human_labels(name)):
                continue
            raise CollinearityError(
                f"missing='level' makes a class {REFUSED!r} of {name!r}, which no human label has, "
                f"so that it can have no coefficient where {name!r} is a covariate: build the "
                "study with missing='fill'."
            )


def _uncoded_levels(frame: FormulaFrame) -> Iterator[str]:
    """Describe levels that occur, but in none of the coded rows."""
    for name, variable in frame._known.items():
        coded = variable.codes
        if coded is None:
            continue
        total = np.bincount(coded.codes, minlength=len(coded.categories))
        seen = np.bincount(coded.codes[frame.design.coded], minlength=len(coded.categories))
        levels = coded.categories.tolist()
        for j in np.flatnonzero((seen == 0) & (total > 0)):
            yield (
                f"level {levels[j]!r} of column {name!r} occurs in {total[j]:,} rows, but in no "
                "coded one"
            )
    for name in frame.covariate_labels:
        classes = frame._known[name].levels
        seen_labels = set(frame.human_labels(name))
        for level in () if classes is None else classes:
            if level not in seen_labels:
                counts = [int((frame.llm_labels(name, a) == level).sum()) for a in frame.annotators]
                yield (
                    f"class {level!r} of {name!r} is given to {max(counts):,} rows by an LLM, but "
                    "to no coded row by humans"
                )


def _empty_columns(frame: FormulaFrame, human: Rows) -> Iterator[str]:
    """Describe columns that are zero in the coded rows, but not in all rows."""
    parts = [(human.X, frame.terms, "X")]
    if human.Z is not None:
        parts.append((human.Z, frame.instruments, "Z"))
    described: set[str] = set()
    for columns, names, which in parts:
        zero = np.flatnonzero(~columns.any(axis=0))
        if len(zero) == 0:
            continue
        for j, count in zip(zero, _nonzero(frame, which, zero), strict=True):
            if count and names[j] not in described:
                described.add(names[j])
                yield f"column {names[j]!r} is 0 in every coded row, but not in {count:,} others"


def _nonzero(frame: FormulaFrame, which: str, columns: Int) -> Int:
    """Return in how many rows each of some columns is not 0, by one annotator's labels."""

    def sums(blocks: Iterable[Block]) -> Totals:
        total = np.zeros(len(columns))
        for _, (rows,) in blocks:
            total += np.count_nonzero(getattr(rows, which)[:, columns], axis=0)
        return (total,)

    return frame.blocks(frame.annotators[:1]).total(sums)[0].astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The terms of a formula."""

    outcome: Term
    exogenous: list[Term]
    endogenous: list[Term]
    instruments: list[Term]

    @property
    def right(self) -> list[Term]:
        """All terms but the outcome."""
        return [*self.exogenous, *self.endogenous, *self.instruments]

    @property
    def factors(self) -> list[Factor]:
        """All expressions, each once."""
        terms = [self.outcome, *self.right]
        return list({f.expr: f for term in terms for f in term.factors}.values())


def _pieces(parsed: Parsed) -> _Pieces:
    exogenous = terms_of(parsed.exogenous)
    if parsed.absorbed and not any(map(is_intercept, exogenous)):
        # Absorbed effects span the intercept: dummies leave out a level, whatever is written.
        exogenous = [*terms_of("1"), *exogenous]
    sides = [
        [] if piece is None else [t for t in terms_of(piece, intercept=False) if term_variables(t)]
        for piece in (parsed.endogenous, parsed.instruments)
    ]
    for terms in sides:
        both = [repr(term) for term in terms if term in exogenous]
        if both:
            raise FormulaError(
                f"{', '.join(both)} in square brackets is an exogenous regressor too: keep it in "
                "one place. Exogenous regressors are instruments for themselves anyway."
            )
    return _Pieces(outcome_term(parsed), exogenous, *sides)


def _variables(terms: Sequence[Term]) -> set[str]:
    return {v for term in terms for v in term_variables(term)}


def _check_names(used: Sequence[str], study: Source) -> None:
    names = [*study.variables, *study.columns]
    human = {column: variable for variable, column in study.human_columns.items()}
    for name in used:
        if name in names:
            continue
        if name in human:
            raise FormulaError(
                f"Column {name!r} holds the human labels of {human[name]!r}, which most rows "
                f"lack: write {human[name]!r} in the formula."
            )
        raise FormulaError(
            f"The formula uses {name!r}, which is neither a labelled variable nor a column of "
            f"the study.{nearest(name, names)}"
        )


def _check_labels(
    parsed: Parsed, labels: Sequence[str], study: Source, annotators: Sequence[str]
) -> None:
    if not annotators:
        raise FormulaError("A formula needs at least one annotator: name it with llm=.")
    if not labels:
        raise FormulaError(
            f"The formula {parsed.formula!r} uses no labelled variable "
            f"({', '.join(map(repr, study.variables))}), so there is nothing to correct: fit it "
            "with any other software."
        )
    for columns in parsed.absorbed:
        for column in columns:
            if column in labels:
                raise FormulaError(
                    f"{column!r} is a labelled variable and cannot be absorbed, since human and "
                    f"LLM labels would make different groups: write C({column})."
                )


def _learner(
    known: Mapping[str, Variable], study: Source, coded: Int, annotators: Sequence[str]
) -> Learner:
    """Return what terms are learned from, with a few rows to try them on."""
    labels = [v.name for v in known.values() if v.label]
    rows = np.unique(np.linspace(0, study.n_rows - 1, _PROBE_ROWS).astype(np.int64))
    typed = {
        v: known[v].typed(study.llm_labels(v, annotators[0])[rows], "the LLM labels")
        for v in labels
    }
    return Learner(
        labels=frozenset(labels),
        numbers=frozenset(v.name for v in known.values() if v.number),
        levels={v.name: list(v.levels) for v in known.values() if v.levels is not None},
        probe=reader(study, known, typed, rows)(list(known), slice(0, len(rows))),
        sources=partial(label_sources, study, known, coded, annotators),
    )


def _outcome(parsed: Parsed, term: Term, learner: Learner, known: Mapping[str, Variable]) -> Matrix:
    """Return the recipe of the outcome, which must be one column of numbers."""
    (factor,) = term.factors
    if learner.is_categorical(factor):
        (name, *_) = term_variables(term)
        variable = known[name]
        if variable.number:
            raise FormulaError(
                f"The outcome {parsed.outcome!r} makes classes of the numbers in {name!r}: write "
                f"{name} without C(), or one class against the others, as in I({name} == 1) ~ ..."
            )
        example = "yes" if variable.levels is None else variable.levels[-1]
        raise FormulaError(
            f"The outcome {parsed.outcome!r} is text: write the class that counts as 1, as in "
            f"I({name} == {example!r}) ~ ..., or code the column as 0/1."
        )
    matrix = learner.matrix([term])
    if len(matrix.names) != 1:
        raise FormulaError(
            f"The outcome {parsed.outcome!r} makes {len(matrix.names)} columns; it must make one."
        )
    return matrix


def _excluded_instruments(
    pieces: _Pieces, learner: Learner, right: Matrix, skip: int
) -> tuple[int, Matrix | None]:
    """Return the number of exogenous columns, and the recipe of the other instruments."""
    if not pieces.endogenous:
        return len(right.names), None
    exogenous = learner.matrix(pieces.exogenous, skip=skip) if pieces.exogenous else None
    n_exogenous = 0 if exogenous is None else len(exogenous.names)
    excluded = learner.matrix([*pieces.exogenous, *pieces.instruments], skip=len(pieces.exogenous))
    needed = len(right.names) - n_exogenous
    if len(excluded.names) < needed:
        raise FormulaError(
            f"{needed} instrumented columns ({', '.join(right.names[n_exogenous:])}) need at "
            f"least as many instruments, but there are {len(excluded.names)} "
            f"({', '.join(excluded.names) or 'none'}): add instruments."
        )
    return n_exogenous, excluded


def _group_codes(columns: Sequence[str], study: Source) -> Int:
    """Return (N,) codes of an absorbed effect; crossed columns make one for each combination."""
    out = np.zeros(study.n_rows, dtype=np.int64)
    for column in columns:
        codes, levels = pd.factorize(study.covariates((column,))[column], sort=True)
        out = np.unique(out * len(levels) + codes, return_inverse=True)[1]
    return out.astype(np.int64)
