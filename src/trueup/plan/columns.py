"""The names of a plan against the columns of its data, before anything is fitted."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from functools import cache
from math import prod

import pandas as pd
from formulaic.parser.types import Factor

from trueup.errors import PlanError
from trueup.formula.matrix import MOST_LABEL_LEVELS
from trueup.formula.parse import (
    Parsed,
    factor_variables,
    parse,
    read_expression,
    terms_of,
    variables_of,
)
from trueup.plan.file import Plan
from trueup.plan.guard import basis_columns, computed_columns, condition_columns, shown
from trueup.study.study import Study
from trueup.study.tables import nearest

#: Columns that the design of one formula may have: a block of rows must fit in memory.
COLUMNS = 2_000


def check_columns(plan: Plan, study: Study) -> None:
    """Refuse a plan whose formulas or conditions do not fit the data.

    Raises
    ------
    PlanError
        If a formula names what is neither a column nor a labelled variable, with the nearest
        names there are, arithmetic is done on a column that holds no numbers, or classes
        multiply to more columns than can be held.
    """

    @cache
    def classes(name: str) -> int:
        return _classes(name, study)

    known = [*study.variables, *study.columns]
    human = {c: v for v, c in study.human_columns.items() if c not in known}
    for formula in plan.formulas.values():
        parsed = parse(formula)
        for name in variables_of(parsed):
            if name in human:
                raise PlanError(
                    f"The formula {shown(formula)} names {name!r}, which holds the human labels "
                    f"of {human[name]!r}: use {human[name]!r}."
                )
            if name not in known:
                raise PlanError(
                    f"The formula {shown(formula)} names {name!r}, which is neither a column of "
                    f"the data nor a labelled variable.{nearest(name, known)}"
                )
        _check_numbers(f"formula {shown(formula)}", computed_columns(parsed), study)
        _check_width(parsed, classes, study)
    for name, condition in (plan.subsets or {}).items():
        if condition is not None:
            names = [c for c in condition_columns(condition) if c in study.columns]
            _check_numbers(f"condition of subset {name!r}", names, study)


def _check_numbers(what: str, names: Iterable[str], study: Study) -> None:
    """Refuse arithmetic on text, which repeats it, in the worst case without end."""
    for name in names:
        if not _holds_numbers(name, study):
            raise PlanError(
                f"The {what} calculates with {name!r}, which does not hold numbers: compare it "
                "with text, as in I(source == 'press'), or make it a number in the data."
            )


def _holds_numbers(name: str, study: Study) -> bool:
    if name in study.variables:
        return study.levels(name) is None
    kind = study.covariates([name])[name].dtype
    return pd.api.types.is_numeric_dtype(kind)


def _check_width(parsed: Parsed, classes: Callable[[str], int], study: Study) -> None:
    """Refuse a formula whose design would have more columns than can be held."""
    widths = {
        str(term): prod(_width(factor, classes, study) for factor in term.factors)
        for piece in (parsed.exogenous, parsed.endogenous, parsed.instruments)
        for term in (terms_of(piece) if piece else [])
    }
    total = sum(widths.values())
    if total > COLUMNS:
        widest = max(widths, key=lambda term: widths[term])
        raise PlanError(
            f"The formula {shown(parsed.formula)} makes about {total:,.0f} columns of these data, "
            f"{widths[widest]:,.0f} of them by {shown(widest)}; a plan may have {COLUMNS:,}. Use "
            "fewer classes, or absorb effects after a bar, as in 'y ~ x | author'."
        )


def _width(factor: Factor, classes: Callable[[str], int], study: Study) -> float:
    """Return about how many columns a factor makes: of classes, one less than there are."""
    names = factor_variables(factor)
    if factor.eval_method is not Factor.EvalMethod.PYTHON:
        return max([1, *(classes(n) - 1 for n in names if not _holds_numbers(n, study))])
    call = read_expression(factor.expr)[0].body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return 1
    if call.func.id == "C" and not isinstance(call.args[0], (ast.Compare, ast.BoolOp)):
        return max([1, *(classes(n) - 1 for n in names)])
    if call.func.id == "I" and isinstance(call.args[0], ast.Name):
        return max([1, *(classes(n) - 1 for n in names if not _holds_numbers(n, study))])
    return basis_columns(call)


def _classes(name: str, study: Study) -> int:
    if name in study.variables:
        levels = study.levels(name)
        return MOST_LABEL_LEVELS if levels is None else len(levels)
    try:
        return int(study.covariates([name])[name].nunique())
    except TypeError as error:
        raise PlanError(
            f"Column {name!r}, which a formula names, holds lists or other objects that are "
            "neither numbers nor classes: compute a plain column in the data."
        ) from error
