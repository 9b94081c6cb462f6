"""The names of a plan against the columns of its data, before anything is fitted."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from trueup.errors import PlanError
from trueup.formula.parse import parse, variables_of
from trueup.plan.file import Plan
from trueup.plan.guard import computed_columns, condition_columns, shown
from trueup.study.study import Study
from trueup.study.tables import nearest


def check_columns(plan: Plan, study: Study) -> None:
    """Refuse a plan whose formulas or conditions do not fit the data.

    Raises
    ------
    PlanError
        If a formula names what is neither a column nor a labelled variable, with the nearest
        names there are, or arithmetic is done on a column that holds no numbers.
    """
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
