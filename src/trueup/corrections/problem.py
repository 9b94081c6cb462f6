"""From a formula and a study to a problem that a correction can solve, checked before any fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trueup.corrections.base import Problem
from trueup.errors import FitError, FormulaError
from trueup.families.base import Family
from trueup.formula.frame import FormulaFrame, build_frame, check_support
from trueup.inference.vcov import Vcov
from trueup.study.study import Study


def build_problem(
    formula: str,
    study: Study,
    family: Family,
    annotators: Sequence[str],
    vcov: Vcov,
    seed: int | None = None,
) -> Problem:
    """Build the design of a formula and check it.

    Parameters
    ----------
    formula : str
    study : Study
    family : Family
    annotators : sequence of str
        Names of the LLM annotators to use.
    vcov : Vcov
    seed : int, optional

    Raises
    ------
    FormulaError, StudyError, FitError
        With the column or argument at fault and how to mend it.
    """
    frame = build_frame(formula, study, annotators=tuple(annotators))
    _check_parts(frame, family)
    human = frame.human()
    n, p = human.X.shape
    if n <= p:
        raise FitError(
            f"{n} coded rows are too few for {p} coefficients: code more rows or use a shorter "
            "formula."
        )
    check_support(frame, human)
    family.check_outcome(human.y, frame.outcome)
    if frame.outcome_is_label:
        for annotator in annotators:
            family.check_outcome(frame.llm(annotator).y, frame.outcome)
    else:
        family.check_outcome(frame.llm(annotators[0]).y, frame.outcome)
    missing = {a: _missing(study, frame.variables, a) for a in annotators}
    return Problem(
        family=family,
        frame=frame,
        design=frame.design,
        annotators=tuple(annotators),
        vcov=vcov,
        seed=seed,
        missing={a: m for a, m in missing.items() if m.any()},
    )


def _missing(study: Study, variables: Sequence[str], annotator: str) -> NDArray[np.bool_]:
    masks = [study.llm_missing(v, annotator) for v in variables]
    return np.asarray(np.logical_or.reduce(masks))


def _check_parts(frame: FormulaFrame, family: Family) -> None:
    """Raise where the formula has parts that the family does not use, or lacks ones it needs."""
    human = frame.human()
    absorbed, instrumented = bool(human.groups), human.Z is not None
    if absorbed and family.name != "absorb":
        raise FormulaError(
            f"The formula absorbs effects after '|', which family {family.name!r} cannot: use "
            "tu.absorb, or write the effect as C(column)."
        )
    if not absorbed and family.name == "absorb":
        raise FormulaError("tu.absorb needs a formula with effects, such as 'y ~ x | school'.")
    if instrumented and family.name != "iv":
        raise FormulaError(
            f"The formula has instruments in [...], which family {family.name!r} cannot use: "
            "use tu.iv."
        )
    if not instrumented and family.name == "iv":
        raise FormulaError("tu.iv needs a formula with instruments, such as 'y ~ x + [d ~ z]'.")
