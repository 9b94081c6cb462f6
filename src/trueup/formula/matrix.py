"""Terms to columns: learn once what they mean, then fill a matrix block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from formulaic import ModelSpec, SimpleFormula
from formulaic.parser.types import Factor, Term
from numpy.typing import NDArray

from trueup.errors import FormulaError
from trueup.formula.columns import (
    MOST_LEVELS,
    as_float,
    check_level_count,
    unseen_level,
)
from trueup.formula.parse import (
    factor_variables,
    is_intercept,
    marked_categorical,
    stateful_calls,
    term_variables,
)
from trueup.study.design import Float, Int

#: Reads the columns named, in the rows of a slice.
Reader = Callable[[Sequence[str], slice], pd.DataFrame]

#: Rows that stay in cache while columns are copied next to each other.
_COPY_ROWS = 4096
#: Rows evaluated at once while levels of an expression are collected; bounds the dummies.
_LEVEL_ROWS = 2048
#: More levels of a numeric label than this are no classes.
MOST_LABEL_LEVELS = 50


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Terms that are evaluated as expressions, with everything learned from all rows."""

    spec: ModelSpec
    at: Int
    """(k,) columns of the matrix they fill."""
    names: tuple[str, ...]
    """The k names of these columns."""
    variables: tuple[str, ...]
    """Data columns and labelled variables they read."""

    def values(self, data: pd.DataFrame, where: str | None = None) -> Float:
        """Return (m, k) columns; levels are checked where it is said ``where`` they are from."""
        matrix, _, factors = evaluate(self.spec, data)
        if where is not None:
            for expression, (kind, state) in self.spec.encoder_state.items():
                if kind is Factor.Kind.CATEGORICAL and "categories" in state:
                    _check_levels(expression, factors.get(expression), state["categories"], where)
        return matrix


@dataclass(frozen=True, slots=True)
class Matrix:
    """A design matrix as a recipe: how each column is made from the columns of a table."""

    names: tuple[str, ...]
    """Names of the p columns."""
    products: tuple[tuple[int, tuple[str, ...]], ...]
    """Columns that are products of numeric variables: position, variables (none: ones)."""
    fixed: Evaluated | None
    """Evaluated terms without labelled variables."""
    moving: Evaluated | None
    """Evaluated terms with labelled variables."""

    def variables(self, with_fixed: bool = True) -> tuple[str, ...]:
        """Return the variables that filling the matrix reads."""
        parts = [p for p in (self.fixed if with_fixed else None, self.moving) if p is not None]
        names = [v for _, product in self.products for v in product]
        return tuple(dict.fromkeys([*names, *(v for part in parts for v in part.variables)]))

    def only_fixed(self) -> Matrix | None:
        """Return the recipe of the evaluated columns without labels alone, if there are any."""
        if self.fixed is None:
            return None
        at = np.arange(len(self.fixed.names))
        return Matrix(self.fixed.names, (), replace(self.fixed, at=at), None)

    def build(
        self,
        read: Reader,
        n_rows: int,
        block_rows: int,
        *,
        fixed: Float | None = None,
        where: str | None = None,
    ) -> Float:
        """Fill the matrix.

        Parameters
        ----------
        read : callable
            Reads variables in a slice of rows.
        n_rows, block_rows : int
            Rows in all, m, and rows at a time.
        fixed : array of shape (m, k), optional
            The evaluated columns without labels, where they are known already.
        where : str, optional
            Where the values come from, if levels must be checked.

        Returns
        -------
        numpy.ndarray, shape (m, p)

        Raises
        ------
        FormulaError
            If a column is not finite or holds an unknown level.
        """
        out = np.empty((n_rows, len(self.names)))
        bad = np.zeros(len(self.names), dtype=np.int64)
        variables = self.variables(with_fixed=fixed is None)
        for start in range(0, n_rows, block_rows):
            part = slice(start, min(start + block_rows, n_rows))
            block, data = out[part], read(variables, part)
            with np.errstate(over="ignore"):
                self._fill_products(block, data)
            if self.fixed is not None:
                block[:, self.fixed.at] = (
                    self.fixed.values(data, where) if fixed is None else fixed[part]
                )
            if self.moving is not None:
                block[:, self.moving.at] = self.moving.values(data, where)
            with np.errstate(over="ignore", invalid="ignore"):
                total = np.add.reduce(block, axis=None)
            if not np.isfinite(total):
                bad += (~np.isfinite(block)).sum(axis=0)
        self._check_finite(bad, n_rows)
        return out

    def _fill_products(self, block: Float, data: pd.DataFrame) -> None:
        columns = {v: as_float(data[v]) for _, product in self.products for v in product}
        for start in range(0, len(block), _COPY_ROWS):
            part = slice(start, start + _COPY_ROWS)
            piece = block[part]
            for j, product in self.products:
                if not product:
                    piece[:, j] = 1.0
                    continue
                piece[:, j] = columns[product[0]][part]
                for variable in product[1:]:
                    piece[:, j] *= columns[variable][part]

    def _check_finite(self, bad: Int, n_rows: int) -> None:
        if not bad.any():
            return
        shown = ", ".join(f"{self.names[j]!r} in {bad[j]:,}" for j in np.flatnonzero(bad)[:5])
        raise FormulaError(
            f"The formula makes values that are missing or infinite: {shown} of {n_rows:,} rows. "
            "The logarithm of 0 or of a negative number does this, for instance: write "
            "log(1 + x), or take these rows out of the table."
        )


def evaluate(
    spec: ModelSpec, data: pd.DataFrame
) -> tuple[NDArray[np.float64], ModelSpec, Mapping[str, Any]]:
    """Evaluate the expressions of a formula: the one place where its text becomes values.

    Names are those of ``data`` and of formulaic's transforms; the environment of the caller
    is out of reach.

    Returns
    -------
    matrix : numpy.ndarray, shape (m, k)
    spec : formulaic.ModelSpec
        With what was learned.
    factors : mapping
        Expression -> its values before they became columns.

    Raises
    ------
    FormulaError
        If an expression fails.
    """
    materializer = spec.get_materializer(data, context={})
    try:
        with np.errstate(all="ignore"):
            matrix = materializer.get_model_matrix(spec)
            values = np.asarray(matrix, dtype=np.float64)
    except MemoryError:
        raise
    except Exception as error:
        raise FormulaError(
            f"The formula cannot be computed. {str(error).strip()} ({type(error).__name__}; "
            f"columns read: {', '.join(map(repr, data.columns))})."
        ) from error
    factors = {name: f.values.__wrapped__ for name, f in materializer.factor_cache.items()}
    return values, matrix.model_spec, factors


def _check_levels(expression: str, values: Any, levels: Sequence[Any], where: str) -> None:
    series = pd.Series(values)
    known = series.isin(levels).to_numpy()
    if not known.all():
        unseen = series[~known].unique().tolist()
        raise unseen_level(expression, unseen, int((~known).sum()), list(levels), where)


def _blank_spec(terms: Sequence[Term], **learned: Any) -> ModelSpec:
    formula = SimpleFormula(list(terms), _ordering="none")
    return ModelSpec(formula=formula, na_action="ignore", output="numpy", **learned)


@dataclass(frozen=True, slots=True)
class Learner:
    """What terms are learned from. One learner serves all parts of a formula."""

    labels: frozenset[str]
    """Labelled variables of the formula."""
    numbers: frozenset[str]
    """Variables that hold numbers, labelled or not."""
    levels: Mapping[str, Sequence[Any]]
    """Levels of each variable that stands in the formula as classes."""
    probe: pd.DataFrame
    """A few rows spread over the table, under the labels of one source."""
    sources: Callable[[Sequence[str]], Iterator[tuple[Reader, int]]]
    """Readers of some variables and their numbers of rows: all rows of the table, and where
    a variable is labelled, all rows under each annotator, then the coded rows."""
    transforms: dict[str, Any] = field(default_factory=dict)
    encoders: dict[str, tuple[Factor.Kind, dict[str, Any]]] = field(default_factory=dict)

    def matrix(self, terms: Sequence[Term], skip: int = 0) -> Matrix:
        """Return the recipe of some terms, leaving out the columns of the first ``skip``.

        Raises
        ------
        FormulaError
            If a term cannot be computed, learns from labels, or depends on other rows.
        """
        for term in terms:
            for factor in term.factors:
                self._learn(factor)
        # formulaic writes into these states, so it gets copies.
        encoders = {name: (kind, dict(state)) for name, (kind, state) in self.encoders.items()}
        spec = _blank_spec(terms, transform_state=dict(self.transforms), encoder_state=encoders)
        _, spec, _ = evaluate(spec, self.probe)
        self._check_named_levels(spec)
        rows = spec.structure[skip:]
        names = tuple(str(name) for row in rows for name in row.columns)
        _check_distinct(names)
        products: list[tuple[int, tuple[str, ...]]] = []
        parts: dict[bool, list[tuple[Any, list[int]]]] = {False: [], True: []}
        start = 0
        for row in rows:
            at = list(range(start, start + len(row.columns)))
            start += len(at)
            if is_intercept(row.term):
                products.append((at[0], ()))
            elif all(self._is_number(factor) for factor in row.term.factors):
                products.append((at[0], tuple(factor.expr for factor in row.term.factors)))
            elif at:
                with_labels = not self.labels.isdisjoint(term_variables(row.term))
                parts[with_labels].append((row, at))
        fixed, moving = (self._part(spec, names, parts[key]) for key in (False, True))
        return Matrix(names, tuple(products), fixed, moving)

    def is_categorical(self, factor: Factor) -> bool:
        """Return whether a factor is made of classes."""
        self._learn(factor)
        kind = self.encoders.get(factor.expr, (None, {}))[0]
        return kind is Factor.Kind.CATEGORICAL

    def _is_number(self, factor: Factor) -> bool:
        return factor.eval_method is Factor.EvalMethod.LOOKUP and factor.expr in self.numbers

    def _part(
        self, spec: ModelSpec, names: Sequence[str], rows: Sequence[tuple[Any, list[int]]]
    ) -> Evaluated | None:
        if not rows:
            return None
        structure, at = [row for row, _ in rows], [j for _, js in rows for j in js]
        terms = [row.term for row in structure]
        expressions = {factor.expr for term in terms for factor in term.factors}
        part = spec.update(
            formula=SimpleFormula(terms, _ordering="none"),
            structure=structure,
            encoder_state={k: v for k, v in spec.encoder_state.items() if k in expressions},
        )
        variables = tuple(dict.fromkeys(v for term in terms for v in term_variables(term)))
        out = Evaluated(part, np.asarray(at), tuple(names[j] for j in at), variables)
        _check_by_row(out, self.probe)
        return out

    def _learn(self, factor: Factor) -> None:
        """Learn the state and the levels of one factor, once."""
        expression = factor.expr
        if (
            expression in self.encoders
            or factor.eval_method is Factor.EvalMethod.LITERAL
            or self._is_number(factor)
        ):
            return
        self._refuse_learning_from_labels(factor)
        column: str | None = (
            expression
            if factor.eval_method is Factor.EvalMethod.LOOKUP
            else marked_categorical(factor)
        )
        if column is not None and column in self.levels:
            state = {"categories": list(self.levels[column])}
            self.encoders[expression] = (Factor.Kind.CATEGORICAL, state)
            return
        _, spec, _ = evaluate(_blank_spec([Term([factor])]), self.probe)
        kind, state = spec.encoder_state[expression]
        if any(spec.transform_state.values()):
            spec = self._learn_state(factor)
            self.transforms.update(spec.transform_state)
            kind, state = spec.encoder_state[expression]
        elif kind is Factor.Kind.CATEGORICAL and "categories" in state:
            state = {"categories": self._levels(factor)}
        self.encoders[expression] = (kind, state)

    def _learn_state(self, factor: Factor) -> ModelSpec:
        """Return what a stateful factor learns from all rows at once."""
        variables = factor_variables(factor)
        read, n_rows = next(self.sources(variables))
        return evaluate(_blank_spec([Term([factor])]), read(variables, slice(0, n_rows)))[1]

    def _levels(self, factor: Factor) -> list[Any]:
        """Return the levels of an expression over all rows and sources of labels."""
        variables = factor_variables(factor)
        most = MOST_LEVELS if self.labels.isdisjoint(variables) else MOST_LABEL_LEVELS
        seen: dict[Any, None] = {}
        for read, n_rows in self.sources(variables):
            for start in range(0, n_rows, _LEVEL_ROWS):
                data = read(variables, slice(start, min(start + _LEVEL_ROWS, n_rows)))
                _, _, factors = evaluate(_blank_spec([Term([factor])]), data)
                seen.update(dict.fromkeys(pd.unique(pd.Series(factors[factor.expr]))))
                check_level_count(f"{factor.expr!r}", len(seen), most, "column")
        return list(pd.Categorical(pd.Series(list(seen))).categories)

    def _refuse_learning_from_labels(self, factor: Factor) -> None:
        for call, names in stateful_calls(factor):
            labels = self.labels.intersection(names)
            if labels:
                raise FormulaError(
                    f"{call} would learn from the labels {', '.join(map(repr, sorted(labels)))}, "
                    "and something else from human labels than from LLM labels, so that the two "
                    "could not be compared. Use a transformation with fixed numbers, such as "
                    f"I(({sorted(labels)[0]} - 3) / 2)."
                )

    def _check_named_levels(self, spec: ModelSpec) -> None:
        """Raise where C(column, levels=[...]) leaves out levels that occur."""
        for expression, (kind, state) in self.encoders.items():
            if kind is not Factor.Kind.CATEGORICAL or expression not in spec.encoder_state:
                continue
            named = spec.encoder_state[expression][1].get("categories", ())
            left_out = [x for x in state.get("categories", ()) if x not in named]
            if left_out and named:
                raise FormulaError(
                    f"{expression!r} names levels but leaves out {left_out[:5]!r}, which occur: "
                    "name them too, or recode the column."
                )


def _check_distinct(names: Sequence[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise FormulaError(
            f"The formula makes several columns named {', '.join(map(repr, repeated[:5]))}: "
            "rename a column of the table."
        )


def _check_by_row(part: Evaluated, probe: pd.DataFrame) -> None:
    """Raise where the value of a row depends on which other rows are there."""
    n = len(probe)
    whole = part.values(probe)
    with np.errstate(invalid="ignore"):
        size = np.nan_to_num(np.abs(whole), posinf=0.0).max(axis=0)
    pieces = [slice(0, n // 2), slice(n // 2, n), slice(0, 1), slice(n - 1, n)]
    for piece in pieces:
        data = probe.iloc[piece].reset_index(drop=True)
        if len(data) == 0:
            continue
        values = part.values(data)
        same = np.isclose(values, whole[piece], rtol=1e-8, atol=1e-10 * size, equal_nan=True)
        if not same.all():
            name = part.names[int(np.flatnonzero(~same.all(axis=0))[0])]
            raise FormulaError(
                f"The term {name!r} gives a row a value that depends on the other rows. Such a "
                "value would differ between the coded rows and all rows: use center(x) or "
                "scale(x) for a covariate, or compute the column in the table."
            )
