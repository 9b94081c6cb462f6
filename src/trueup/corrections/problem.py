"""From a formula and a study to a problem that a correction can solve, checked before any fit."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from trueup.corrections.base import Problem
from trueup.errors import ArgumentError, CollinearityError, FitError, FormulaError
from trueup.estimation.rank import check_rank
from trueup.families.base import Family
from trueup.formula.frame import FormulaFrame, build_frame, check_support
from trueup.inference.vcov import Vcov
from trueup.study.design import Float
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
    ArgumentError
        If the seed is no whole number.
    """
    _check_seed(seed)
    frame = build_frame(formula, study, annotators=tuple(annotators))
    _check_parts(frame, family)
    human = frame.human()
    weights = frame.design.coded_weights
    n, p = int((weights > 0).sum()), human.n_coef
    if n <= p:
        raise FitError(
            f"{n} coded rows are too few for {p} coefficients: code more rows or use a shorter "
            "formula."
        )
    check_support(frame, human)
    if human.Z is not None:
        where = "the instruments of the coded rows"
        check_rank(human.Z, frame.instruments, weights=weights, where=where)
    _check_human_outcome(frame, family, human.y, weights)
    for annotator in annotators:
        _check_llm_labels(frame, family, annotator)
    missing = {a: _missing(study, frame.variables, a) for a in annotators}
    return Problem(
        family=family,
        frame=frame,
        design=frame.design,
        annotators=tuple(annotators),
        vcov=vcov,
        seed=seed,
        missing={a: m for a, m in missing.items() if m.any()},
        together=tuple(annotators),
    )


def _check_seed(seed: int | None) -> None:
    if seed is not None and (not isinstance(seed, Integral) or seed < 0):
        raise ArgumentError(f"seed={seed!r} must be a whole number of 0 or more, or left out.")


def _check_outcome(family: Family, y: Float, frame: FormulaFrame, source: str) -> None:
    try:
        family.check_outcome(y, frame.outcome)
    except FitError as error:
        raise FitError(f"In {source}, {error}") from None


def _check_human_outcome(frame: FormulaFrame, family: Family, y: Float, weights: Float) -> None:
    """Raise where the coded rows have an outcome that is not allowed, or does not vary."""
    source = "the human labels" if frame.outcome_is_label else "the coded rows"
    _check_outcome(family, y, frame, source)
    y = y[weights > 0]
    if np.ptp(y) == 0.0:
        raise FitError(
            f"The outcome {frame.outcome!r} is {y[0]:g} in all {len(y)} coded rows ({source}), so "
            "that nothing says how much it varies: code more rows, or draw them with a higher "
            "probability where the LLM sees another value."
        )


def _check_llm_labels(frame: FormulaFrame, family: Family, annotator: str) -> None:
    """Raise where an annotator's labels are not allowed, or useless because they never vary."""
    y = frame.llm_outcome(annotator)
    source = f"the labels of {annotator!r}" if frame.outcome_is_label else "the rows of the study"
    _check_outcome(family, y, frame, source)
    # A constant outcome has an ordinary fit where the family is linear, and is harmless there.
    if frame.outcome_is_label and not family.linear and np.ptp(y) == 0.0:
        raise FitError(_constant(annotator, frame.outcome, f"{y[0]:g}"))
    for variable in frame.covariate_labels:
        labels = frame.llm_labels(variable, annotator)
        if bool((labels == labels[0]).all()):
            raise CollinearityError(_constant(annotator, variable, repr(labels.tolist()[0])))


def _constant(annotator: str, what: str, value: str) -> str:
    return (
        f"Annotator {annotator!r} gives every row the same {what!r} ({value}), which says nothing "
        "about it: check its column, or name other annotators in llm=."
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
