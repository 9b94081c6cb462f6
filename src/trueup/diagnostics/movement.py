"""How far a coefficient moves between annotators that should give the same labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from trueup.corrections.naive import Naive
from trueup.corrections.problem import build_problem
from trueup.diagnostics.answers import one_variable
from trueup.errors import ArgumentError
from trueup.families.registry import family_for
from trueup.inference.vcov import as_vcov
from trueup.results.tidy import slopes
from trueup.study.study import Study
from trueup.study.tables import nearest


def llm_only_estimates(
    study: Study,
    variable: str | None,
    members: Mapping[str, Sequence[str]],
    formula: str,
    family: str,
    focus: str | None,
) -> pd.DataFrame:
    """Return the coefficient that the labels of each annotator give, taken at their word.

    Parameters
    ----------
    study : Study
    variable : str, optional
        Labelled variable; may be left out where there is one.
    members : mapping of str to sequence of str
        Annotators of each group.
    formula : str
    family : str
        Name of the family, such as ``"logit"``.
    focus : str, optional
        The coefficient; by default the first one that is no intercept.

    Returns
    -------
    DataFrame
        One row for each group and annotator: group, annotator, term, estimate, std_error.

    Raises
    ------
    ArgumentError
        If the formula does not use the labelled variable, or has no such coefficient.
    FormulaError, StudyError, FitError
        If the formula cannot be read, or the labels of an annotator cannot be fitted.
    """
    name = one_variable(study, variable)
    names = list(dict.fromkeys(a for group in members.values() for a in group))
    problem = build_problem(formula, study, family_for(family), names, as_vcov("HC3"))
    if name not in problem.frame.variables:
        raise ArgumentError(
            f"formula={formula!r} does not use {name!r}, so that its labels move nothing: put it "
            "into the formula."
        )
    terms = problem.frame.terms
    if focus is not None and focus not in terms:
        raise ArgumentError(f"focus={focus!r} is no coefficient.{nearest(focus, terms)}")
    k = slopes(terms)[0] if focus is None else terms.index(focus)
    found = {a: Naive().estimate(replace(problem, annotators=(a,))) for a in names}
    rows = [
        (g, a, terms[k], found[a].theta[k], np.sqrt(found[a].vcov[k, k]))
        for g, group in members.items()
        for a in group
    ]
    return pd.DataFrame(rows, columns=["group", "annotator", "term", "estimate", "std_error"])


def ranges(estimates: pd.DataFrame) -> pd.DataFrame:
    """Return how far the estimates of each group are apart.

    Parameters
    ----------
    estimates : DataFrame
        As from :func:`llm_only_estimates`.

    Returns
    -------
    DataFrame
        One row for each group: lowest, highest, moves (their difference), moves_in_se (in mean
        standard errors of the group).
    """
    rows: dict[Any, tuple[float, float, float, float]] = {}
    for group, part in estimates.groupby("group", sort=False):
        low, high = float(part["estimate"].min()), float(part["estimate"].max())
        alone = len(part) < 2
        moves = np.nan if alone else high - low
        rows[group] = (low, high, moves, moves / float(part["std_error"].mean()))
    columns = ["lowest", "highest", "moves", "moves_in_se"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)
