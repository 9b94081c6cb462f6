"""The measures of a scorecard, each for all annotators, with reasons where one is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from formulaic.parser.types import Term

from trueup.diagnostics.agreement import agreement
from trueup.diagnostics.disagreement import disagreement
from trueup.diagnostics.error_profile import error_profile
from trueup.diagnostics.stability import stability
from trueup.errors import StudyError
from trueup.formula.parse import is_intercept, outcome_term, parse, term_variables, terms_of
from trueup.multiverse.alignment_card import Quality
from trueup.multiverse.alignment_task import Task
from trueup.multiverse.runner import FAILURES, Problems
from trueup.multiverse.universe import Universe
from trueup.results.fit import Fit
from trueup.results.tidy import effective_n
from trueup.study.tables import nearest

#: Annotator, criterion, and why its number is missing or what it leaves out.
Reasons = list[tuple[str, str, str]]


def quality(
    task: Task, variable: str, level: float, reasons: Reasons
) -> tuple[pd.DataFrame, Quality]:
    """Return agreement with the human labels, by annotator."""
    found = agreement(task.study, variable, task.annotators, level).table
    having = {m: set(found.loc[found["measure"] == m, "annotator"]) for m in _MEASURES}
    everyone = set(task.annotators)
    # Numbers with few values are classes too; with many, "exactly right" means little.
    scale = having["accuracy"] != everyone and having["correlation"] == everyone
    measure: Quality = "correlation" if scale else "accuracy"
    rows = found[found["measure"] == measure]
    for a in task.annotators:
        if a not in having[measure]:
            reason = "its labels are numbers between the classes, so that none is right or wrong."
            reasons.append((a, measure, f"{reason} Round them, or score it by itself."))
    for r in rows[rows["estimate"].isna()].to_dict("records"):
        reasons.append((r["annotator"], measure, str(r["note"])))
    table = rows[["annotator", "estimate", "conf_low", "conf_high"]]
    error = found[found["measure"] == "mean_error"].set_index("annotator")["estimate"]
    table = table.rename(columns={"estimate": measure})
    return table.assign(mean_error=table["annotator"].map(error).astype(float)), measure


_MEASURES: tuple[Quality, ...] = ("accuracy", "correlation")


def change(task: Task, variable: str, within: str, reasons: Reasons) -> list[float]:
    """Return how far each annotator's labels are from others of its group."""
    groups: dict[str, list[str]] = {}
    for a in task.annotators:
        if within in task.fields[a]:
            groups.setdefault(task.fields[a][within], []).append(a)
        else:
            known = nearest(within, task.fields[a])
            reasons.append((a, "change", f"its column has no field {within!r}.{known}"))
    for group, names in groups.items():
        if len(names) == 1:
            reasons.append((names[0], "change", f"it is alone in its {within}, {group!r}."))
    groups = {g: names for g, names in groups.items() if len(names) > 1}
    if not groups:
        return [np.nan] * len(task.annotators)
    found = stability(task.study, groups, variable=variable)
    total = dict.fromkeys(task.annotators, 0.0)
    count = dict.fromkeys(task.annotators, 0)
    for a, b, n, rate in found.pairs[["a", "b", "n", found.measure]].itertuples(index=False):
        for name in (a, b) if n else ():
            total[name] += n * rate
            count[name] += n
    return [total[a] / count[a] if count[a] else np.nan for a in task.annotators]


def with_strong(
    task: Task, variable: str, strong: set[str], measure: Quality, reasons: Reasons
) -> list[float]:
    """Return the mean agreement of each annotator with the other strong ones."""
    alone = {a for a in task.annotators if not strong - {a}}
    for a in task.annotators:
        if a in alone:
            reasons.append((a, "agreement", "there is no other strong annotator."))
    if len(task.annotators) < 2:
        return [np.nan]
    kind: Literal["class", "numeric"] = "class" if measure == "accuracy" else "numeric"
    if kind == "class" and any(c == "accuracy" for _, c, _ in reasons):
        kind = "class" if task.study.levels(variable) is not None else "numeric"
    pairs = disagreement(
        task.study, variable=variable, annotators=list(task.annotators), kind=kind
    ).pairs
    like = 1.0 - pairs["disagreement"] if kind == "class" else pairs["correlation"]
    out = []
    for a in task.annotators:
        rest = strong - {a}
        mine = (pairs["a"] == a) & pairs["b"].isin(rest) | (pairs["b"] == a) & pairs["a"].isin(rest)
        out.append(float(like[mine].mean()))
    return out


def differential(task: Task, variable: str, reasons: Reasons) -> list[float]:
    """Return p-values of the test that errors move with nothing in the formula."""
    by = _error_formula(task.formula, variable)
    try:
        tests = _tests(task, variable, by, task.annotators)
    except FAILURES:
        tests = {}
    out = []
    for a in task.annotators:
        try:
            p, reason = tests[a] if tests else _tests(task, variable, by, (a,))[a]
        except FAILURES as error:
            p, reason = np.nan, str(error)
        if reason is not None:
            reasons.append((a, "differential error", reason))
        out.append(p)
    return out


def _tests(
    task: Task, variable: str, by: str, annotators: Sequence[str]
) -> dict[str, tuple[float, str | None]]:
    found = error_profile(task.study, variable, by, list(annotators), vcov=task.vcov).tests
    out: dict[str, tuple[float, str | None]] = {}
    for r in found.to_dict("records"):
        reason = None if pd.isna(r["reason"]) else str(r["reason"])
        if reason is None and not pd.isna(r["left_out"]):
            reason = f"tested without {r['left_out']}, which too few coded rows carry."
        out[r["annotator"]] = r["p_value"], reason
    return out


def _error_formula(formula: str, variable: str) -> str:
    """Return the variables that errors in one labelled variable should not follow."""
    parsed = parse(formula)
    terms = terms_of(parsed.exogenous)
    if parsed.instruments is not None:
        terms += terms_of(parsed.instruments, intercept=False)
    outcome = outcome_term(parsed)
    if variable not in term_variables(outcome):
        terms = [outcome, *terms]
    kept = [t for t in terms if not is_intercept(t) and variable not in term_variables(t)]
    return "~ " + (" + ".join(dict.fromkeys(map(_written, kept))) or "1")


def _written(term: Term) -> str:
    """Write a term such that it is read again: odd names of columns in backticks."""
    return ":".join(
        f"`{f.expr}`" if f.eval_method.value == "lookup" and not f.expr.isidentifier() else f.expr
        for f in term.factors
    )


_FOCAL = ("llm_only", "corrected", "corrected_se", "bias", "bias_in_se", "bias_p", "effective_n")


def focal(task: Task, reasons: Reasons) -> tuple[pd.DataFrame, list[str]]:
    """Return the focal coefficient under each annotator, and the warnings of its fits."""
    universes = [
        Universe(i, (a,), task.formula, task.family, task.correction, task.subset, task.vcov, {})
        for i, a in enumerate(task.annotators)
    ]
    problems = Problems(task.study, universes, task.seed)
    rows: list[dict[str, Any]] = []
    said: list[str] = []
    for u in universes:
        (a,) = u.llm
        numbers = dict.fromkeys(_FOCAL, np.nan)
        try:
            if a in task.known:
                fit = task.known[a]()
            else:
                fit = _fit(task, problems, u)
                said += problems.said(fit.problem)
            said += [f"{a}: {warning}" for warning in fit.estimate.warnings]
            _fill(numbers, fit, task.focus)
        except FAILURES as error:
            what = "bias, effective labels" if np.isnan(numbers["corrected"]) else "bias"
            reasons.append((a, what, str(error)))
        rows.append({"annotator": a, **numbers})
    return pd.DataFrame(rows), said


def _fit(task: Task, problems: Problems, universe: Universe) -> Fit:
    problem = problems.of(universe)
    return Fit(
        estimate=task.correction.estimate(problem),
        problem=problem,
        study=task.study,
        formula=task.formula,
        correction=task.correction,
        level=task.level,
        call="alignment(...)",
    )


def _fill(numbers: dict[str, float], fit: Fit, focus: str) -> None:
    """Write what a fit says; the corrected part stays where the LLM-only fit fails."""
    if focus not in fit.terms:
        raise StudyError(f"its labels give no coefficient {focus!r}.{nearest(focus, fit.terms)}")
    k = fit.terms.index(focus)
    se = float(fit.se().iloc[k])
    worth = effective_n(fit.estimate, fit.problem.design.n_coded)
    numbers["corrected"], numbers["corrected_se"] = float(fit.estimate.theta[k]), se
    if worth is not None:
        numbers["effective_n"] = float(worth[k])
    found = fit.compare()
    bias = found.biases[0]
    numbers["llm_only"] = float(found.source("LLM-only", bias.llm).estimate.theta[k])
    numbers["bias"] = float(bias.difference[k])
    numbers["bias_in_se"] = numbers["bias"] / se
    numbers["bias_p"] = float(bias.p_value[k])
