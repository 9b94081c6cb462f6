"""Accuracy and errors of annotators within groups of the coded rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trueup.diagnostics.agreement import target_labels
from trueup.diagnostics.answers import look_like_classes
from trueup.diagnostics.estimates import Measure, Shape, interval, weighted_mean
from trueup.formula.columns import kind_of
from trueup.formula.parse import marked_categorical, parse, term_variables, terms_of
from trueup.study.design import Float, SampleDesign
from trueup.study.study import Study

#: With fewer coded rows in a group, their number is reported instead of an estimate.
LEAST_IN_GROUP = 10
_SHAPES: dict[str, Shape] = {"accuracy": "share", "mean_error": "mean", "mean_abs_error": "size"}


def error_groups(
    study: Study,
    variable: str,
    right: str,
    annotators: Sequence[str],
    design: SampleDesign,
    level: float,
) -> pd.DataFrame:
    """Return accuracy and errors within the groups of each categorical variable of ``right``.

    Parameters
    ----------
    study : Study
    variable : str
        The labelled variable.
    right : str
        Right-hand side of a formula, with its tilde.
    annotators : sequence of str
    design : SampleDesign
        Of the coded rows.
    level : float
        Of the intervals.

    Returns
    -------
    DataFrame
        One row for each variable, group, annotator and measure.
    """
    human = study.human_labels(variable)[design.coded]
    llm = {a: target_labels(study, variable, a, design) for a in annotators}
    rows: list[dict[str, Any]] = []
    for name, values in _categorical(study, right, design).items():
        codes, labels = pd.factorize(values, sort=True)
        for g, label in enumerate(labels):
            for annotator in annotators:
                for m in _in_group(llm[annotator], human, codes == g, design):
                    found = interval(design, m, level)
                    rows.append(
                        {
                            "variable": name,
                            "group": label,
                            "annotator": annotator,
                            "measure": m.name,
                            "estimate": m.estimate,
                            "std_error": found.std_error,
                            "conf_low": found.low,
                            "conf_high": found.high,
                            "n": m.n,
                            "note": found.note,
                        }
                    )
    return pd.DataFrame(rows)


def _categorical(study: Study, right: str, design: SampleDesign) -> dict[str, NDArray[Any]]:
    """Return the coded rows' values of the variables of ``by`` that make groups."""
    marked: dict[str, bool] = {}
    for term in terms_of(parse(f"error {right}").exogenous):
        for factor in term.factors:
            column = marked_categorical(factor)
            if column is not None:
                marked[column] = True
        for name in term_variables(term):
            marked.setdefault(name, False)
    out: dict[str, NDArray[Any]] = {}
    for name, is_marked in marked.items():
        if name in study.variables:
            values = study.human_labels(name)[design.coded]
        else:
            series = study.covariates((name,), design.coded)[name]
            is_marked = is_marked or kind_of(series) != "number"
            values = series.to_numpy(dtype=object)
        if is_marked or len(pd.unique(values)) <= 2:
            out[name] = values
    return out


def _in_group(
    llm: NDArray[Any], human: NDArray[Any], group: NDArray[np.bool_], design: SampleDesign
) -> list[Measure]:
    known = ~pd.isna(llm) & group
    text = human.dtype == object
    values: dict[str, Float] = {}
    if text or look_like_classes([human, llm]):
        values["accuracy"] = np.asarray(llm == human, dtype=np.float64)
    if not text:
        values["mean_error"] = np.where(known, llm - human, 0.0)
        if "accuracy" not in values:
            values["mean_abs_error"] = np.abs(values["mean_error"])
    n = int(known.sum())
    out = []
    for name, x in values.items():
        shape = _SHAPES[name]
        if n < LEAST_IN_GROUP:
            reason = f"only {n} coded rows in this group: code at least {LEAST_IN_GROUP}."
            out.append(Measure(name, np.nan, np.zeros(len(x)), shape, n, reason))
        else:
            out.append(weighted_mean(name, x, design.coded_weights, known, shape))
    return out
