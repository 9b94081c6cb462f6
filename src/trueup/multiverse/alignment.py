"""A scorecard of annotators: what a regression needs of them and benchmarks do not reward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from formulaic.parser.types import Term

from trueup.corrections.auto import Auto
from trueup.corrections.base import Correction
from trueup.diagnostics.agreement import agreement
from trueup.diagnostics.disagreement import disagreement
from trueup.diagnostics.error_profile import error_profile
from trueup.diagnostics.stability import stability
from trueup.errors import ArgumentError, StudyError
from trueup.families.base import Family
from trueup.formula.parse import is_intercept, outcome_term, parse, term_variables, terms_of
from trueup.inference.vcov import Vcov
from trueup.multiverse.caught import caught_warnings
from trueup.multiverse.multiverse import Multiverse
from trueup.multiverse.runner import FAILURES, Problems, take_subset
from trueup.multiverse.universe import Outcome, Universe
from trueup.report.scorecard import Criterion, scorecard
from trueup.results.fit import Fit
from trueup.results.text import paragraph, text_table
from trueup.results.tidy import applied_correction, check_level, effective_n, slopes
from trueup.study.describe import draw_in_words
from trueup.study.study import Study
from trueup.study.tables import nearest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Measure = Literal["accuracy", "correlation"]

#: Warnings that are printed in full.
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Alignment:
    """A scorecard, one row for each annotator. Made by :func:`alignment`."""

    table: pd.DataFrame
    """One row for each annotator, best ``measure`` first:

    - annotator
    - accuracy (or correlation) with the human labels, with conf_low and conf_high
    - mean_error, LLM minus human label; missing for classes
    - change: share of pairs of labels that differ (or mean absolute difference) between this
      annotator and the others of its group, such as other prompts of its model
    - strong: whether the annotator is within the margin of the best one
    - strong_agreement: mean share of equal labels (or correlation) with the other strong ones
    - differential_p: test that its errors move with nothing in the formula
    - llm_only, corrected, corrected_se: the focal coefficient
    - bias (LLM-only minus corrected), bias_in_se (in units of corrected_se), bias_p
    - effective_n: number of human labels that would give corrected_se alone
    """
    missing: pd.DataFrame
    """Why a number is missing: annotator, criterion, reason."""
    focus: str
    formula: str
    family: str
    correction: str
    subset: str
    variable: str
    measure: Measure
    """What stands for quality: accuracy for classes, correlation for numbers."""
    margin: float
    level: float
    n_coded: int
    n_rows: int
    design: str
    """How the coded rows were drawn, in words."""
    warnings: tuple[str, ...] = ()

    def tidy(self) -> pd.DataFrame:
        """Return one row for each annotator."""
        return self.table.copy()

    def summary(self) -> str:
        """Return the scorecard as text."""
        subset = "" if self.subset == "all" else f", subset {self.subset!r}"
        head = (
            f"{len(self.table)} annotator{'s' * (len(self.table) > 1)} of {self.variable!r}, "
            f"{self.n_coded:,} of {self.n_rows:,} rows coded ({self.design})."
        )
        model = f"{self.family}: {self.formula}{subset}. Focal term {self.focus!r}; corrected by "
        lines = [
            "Alignment of annotators with the human labels",
            *paragraph(head),
            *paragraph(f"{model}{self.correction}."),
            "",
            *text_table(self._header(), [self._cells(r) for r in self.table.to_dict("records")]),
            "",
            *paragraph(self._legend()),
            *paragraph(self._headline()),
        ]
        for (criterion, reason), part in self.missing.groupby(["criterion", "reason"], sort=False):
            names = list(part["annotator"])
            who = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
            lines += paragraph(f"{criterion}, {who}: {reason}", "  ")
        for warning in self.warnings[:_SHOWN]:
            lines += paragraph(warning, indent="  ", first="! ")
        if len(self.warnings) > _SHOWN:
            lines.append(f"! {len(self.warnings) - _SHOWN} more warnings in .warnings")
        return "\n".join(lines)

    def _header(self) -> list[str]:
        quality = "accu-\nracy" if self.measure == "accuracy" else "corre-\nlation"
        ends = f"{100 * self.level:g}% interval"
        agree = "with\nstrong"
        head = ["", quality, ends, "change", agree, "moves\np-val."]
        return [*head, "bias\nin SE", "bias\np-val.", "labels\nworth"]

    def _cells(self, row: Mapping[Any, Any]) -> list[str]:
        ends = f"[{row['conf_low']:.2f}, {row['conf_high']:.2f}]"
        return [
            str(row["annotator"]),
            _number(row[self.measure], ".3f") + ("*" if row["strong"] else " "),
            "-" if np.isnan(row["conf_low"]) else ends,
            _number(row["change"], ".3f"),
            _number(row["strong_agreement"], ".3f"),
            _p(row["differential_p"]),
            _number(row["bias_in_se"], "+.2f"),
            _p(row["bias_p"]),
            _number(row["effective_n"], ",.0f"),
        ]

    def _legend(self) -> str:
        return (
            f"* = strong: {self.measure} within {self.margin:g} of the best. Change: between "
            "labels of one group, such as prompts of a model. With strong: "
            f"{'agreement' if self.measure == 'accuracy' else 'correlation'} with the other "
            "strong ones. Moves: does the error follow the other variables? Bias: LLM-only minus "
            "corrected, in standard errors of the corrected coefficient. Labels worth: human "
            f"labels alone that would do as well as these {self.n_coded:,} with the annotator's "
            "help."
        )

    def _headline(self) -> str:
        bias = self.table["bias_in_se"].dropna()
        quality = self.table[self.measure].dropna()
        if len(bias) < 2 or len(quality) < 2:
            return ""
        best = self.table.iloc[0]
        text = (
            f"{self.measure.capitalize()} runs from {quality.min():.3f} to {quality.max():.3f}, "
            f"bias from {bias.min():+.2f} to {bias.max():+.2f} standard errors."
        )
        if np.isnan(best["bias_in_se"]):
            return text
        rank = 1 + int((bias.abs() < abs(best["bias_in_se"])).sum())
        return (
            f"{text} {best['annotator']!r} has the highest {self.measure}; by smallest bias it "
            f"is number {rank} of {len(bias)}."
        )

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return self.summary()

    def plot(self) -> Figure:
        """Draw the scorecard: a row for each annotator, a panel for each criterion.

        Squares mark an error that moves with the variables, or a bias, with a p-value below
        one minus the level.

        Returns
        -------
        matplotlib.figure.Figure
        """
        cut = 1.0 - self.level
        flagged = self.table.assign(
            differential_flag=self.table["differential_p"] < cut,
            bias_flag=self.table["bias_p"] < cut,
        )
        known = [c for c in self._criteria(cut) if flagged[c.column].notna().any()]
        return scorecard(
            flagged,
            known,
            title=f"What each annotator does to the coefficient of {self.focus}",
            flagged=f"significant at {cut:.2g}",
        )

    def _criteria(self, cut: float) -> list[Criterion]:
        scale = self.measure == "correlation"
        agree = "Correlation with" if scale else "Agreement with"
        quality = f"{self.measure.capitalize()},\nhuman labels"
        change = "Difference\nwithin group" if scale else "Flip rate\nwithin group"
        return [
            Criterion(self.measure, quality, "more", low="conf_low", high="conf_high"),
            Criterion("change", change, "less"),
            Criterion("strong_agreement", f"{agree}\nother strong ones", "more"),
            Criterion(
                "differential_p",
                "Differential\nerror, p-value",
                "more",
                reference=cut,
                flag="differential_flag",
                scale="p-value",
            ),
            Criterion(
                "bias_in_se",
                "Bias, in\nstandard errors",
                "near",
                reference=0.0,
                band=1.0,
                flag="bias_flag",
            ),
            Criterion(
                "effective_n",
                f"Effective labels\n(coded: {self.n_coded:,})",
                "more",
                reference=float(self.n_coded),
            ),
        ]


def _number(value: float, form: str) -> str:
    return "-" if np.isnan(value) else format(value, form)


def _p(value: float) -> str:
    if np.isnan(value):
        return "-"
    return "<.001" if value < 0.001 else f"{value:.3f}"


def alignment(
    source: Fit | Multiverse,
    focus: str | None = None,
    *,
    variable: str | None = None,
    margin: float = 0.05,
    within: str = "model",
    level: float | None = None,
) -> Alignment:
    r"""Score every annotator by what a regression needs and benchmarks do not reward.

    For each annotator, side by side and never summed up:

    - *accuracy* on the coded rows, weighted by the sampling design (correlation for numbers);
    - *change*: how often its label differs from that of another prompt of the same model;
    - *agreement* with the other strong annotators, those within ``margin`` of the best;
    - *differential error*: whether its errors move with the other variables of the formula;
    - *bias* of the focal coefficient when its labels are taken for the truth,
      :math:`(\hat\gamma_N - \hat\theta) / \mathrm{se}(\hat\theta)`, LLM-only minus corrected
      in standard errors of the corrected coefficient;
    - *effective labels*: :math:`n\,V(\text{human only}) / V(\text{corrected})`, the number of
      human labels alone that would estimate the focal coefficient as well as the n human
      labels do with this annotator's help.

    Parameters
    ----------
    source : Fit or Multiverse
        Of a fit, all annotators of its study are scored one by one, with the formula, family
        and correction of the fit (``"auto"`` where the fit was not corrected). Of a multiverse,
        all annotators of the grid, with the first formula, family, subset and covariance that
        have the focal term, and the first correction among those.
    focus : str, optional
        The focal coefficient; by default the first one that is no intercept, or the focal term
        of the multiverse.
    variable : str, optional
        The labelled variable that is scored; needed where the formula uses several. Bias and
        effective labels are those of the whole formula, with all its variables labelled by the
        annotator.
    margin : float
        Annotators whose accuracy is at most this far below the best are strong.
    within : str
        Field of the annotators' column pattern whose levels hold repeated labels of one
        annotator: ``"model"`` compares the prompts of each model.
    level : float, optional
        Of the intervals; by default that of the fit or multiverse.

    Returns
    -------
    Alignment
        Prints as a scorecard; ``.table`` is the data frame, ``.missing`` says why a number is
        missing, ``.plot()`` draws it.

    Raises
    ------
    ArgumentError
        If the source is neither, a name is unknown, the formula uses several labelled variables
        and none is named, or no fitted universe has the focal term.
    StudyError
        If annotators cannot be compared with each other.

    Notes
    -----
    Every p-value is that of one annotator: among forty, two below .05 are to be expected. An
    annotator whose fit fails keeps its other numbers, and ``.missing`` has the reason.

    For a labelled outcome the test of differential error uses the right-hand side of the
    formula, without absorbed effects; instruments take the place of what they instrument. For a
    labelled covariate it uses the outcome and the terms without that label.

    Examples
    --------
    >>> import trueup as tu
    >>> data = tu.simulate.antibiotics(4000, seed=1)
    >>> data.loc[800:, "reaction"] = None
    >>> names = ["random", "under_treated", "under_control"]
    >>> study = tu.Study(data, human={"y": "reaction"}, llm={"y": names})
    >>> fit = tu.logit("y ~ treated", study, llm="random")
    >>> card = tu.alignment(fit)
    >>> card.table[["annotator", "accuracy", "bias_in_se"]].round(2).values.tolist()
    [['under_control', 0.93, 4.54], ['under_treated', 0.93, -6.34], ['random', 0.83, -3.72]]

    References
    ----------
    Angelopoulos, Duchi and Zrnic (2023), PPI++: Efficient prediction-powered inference. Hausman
    (1978), Specification tests in econometrics.
    """
    if not 0.0 <= margin < np.inf:
        raise ArgumentError(f"margin={margin!r} must be zero or more.")
    task = _task(source, focus)
    shown = check_level(task.level if level is None else level)
    name = _scored(task, variable)
    reasons: list[tuple[str, str, str]] = []
    with caught_warnings() as said:
        quality, measure = _quality(task, name, shown, reasons)
        table = pd.DataFrame({"annotator": list(task.annotators)}).merge(quality, "left")
        best = table[measure].max()
        # Rounding must not decide whether an annotator is just within the margin.
        table["strong"] = table[measure] >= best - margin - 1e-12
        table.insert(6, "change", _change(task, name, within, reasons))
        strong = set(table.loc[table["strong"], "annotator"])
        table["strong_agreement"] = _with_strong(task, name, strong, measure, reasons)
        table["differential_p"] = _differential(task, name, reasons)
        focal, few = _focal(task, reasons)
        table = table.merge(focal, on="annotator")
    table = table.sort_values(measure, ascending=False, kind="stable", ignore_index=True)
    design = task.study.design(name)
    return Alignment(
        table=table,
        missing=pd.DataFrame(reasons, columns=["annotator", "criterion", "reason"]),
        focus=task.focus,
        formula=task.formula,
        family=task.family.name,
        correction=task.correction.name,
        subset=task.subset,
        variable=name,
        measure=measure,
        margin=margin,
        level=shown,
        n_coded=design.n_coded,
        n_rows=task.study.n_rows,
        design=draw_in_words(design),
        warnings=tuple(dict.fromkeys([*said, *few])),
    )


_Reasons = list[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class _Task:
    """One regression, to be fitted with each annotator in turn."""

    study: Study
    formula: str
    family: Family
    vcov: Vcov
    correction: Correction
    subset: str
    seed: int | None
    level: float
    focus: str
    variables: tuple[str, ...]
    """Labelled variables of the formula."""
    annotators: tuple[str, ...]
    fields: Mapping[str, Mapping[str, str]]
    """Metadata of each annotator."""
    known: Mapping[str, Callable[[], Fit]]
    """Fits that exist already."""


def _task(source: Fit | Multiverse, focus: str | None) -> _Task:
    if isinstance(source, Fit):
        return _of_fit(source, focus)
    if isinstance(source, Multiverse):
        return _of_multiverse(source, focus)
    raise ArgumentError(
        f"alignment() takes a fit or a multiverse, not {type(source).__name__}: fit one formula "
        "first, as in tu.ols('y ~ x', study, llm=...)."
    )


def _of_fit(fit: Fit, focus: str | None) -> _Task:
    if focus is not None and focus not in fit.terms:
        raise ArgumentError(f"focus={focus!r} is no coefficient.{nearest(focus, fit.terms)}")
    problem, study = fit.problem, fit.study
    own = applied_correction(fit).name not in ("naive", "human")
    same = own and len(problem.annotators) == 1
    return _Task(
        study=study,
        formula=fit.formula,
        family=problem.family,
        vcov=problem.vcov,
        correction=_reusable(fit.correction) if own else Auto(),
        subset="all",
        seed=problem.seed,
        level=fit.level,
        focus=fit.terms[slopes(fit.terms)[0]] if focus is None else focus,
        variables=problem.frame.variables,
        annotators=study.annotators,
        fields={a: study.annotator(a).metadata for a in study.annotators},
        known={problem.annotators[0]: lambda: fit} if same else {},
    )


def _of_multiverse(mv: Multiverse, focus: str | None) -> _Task:
    first = mv.chosen(focus)[0].universe
    key = _place(first)
    here = [o for o in mv.outcomes if o.status == "ok" and _place(o.universe) == key]
    used = [o.universe for o in mv.outcomes if _place(o.universe) == key]
    corrected = [u for u in used if u.correction.name not in ("naive", "human")]
    correction = _reusable(corrected[0].correction) if corrected else Auto()
    label = corrected[0].dimensions["correction"] if corrected else ""
    annotators = tuple(dict.fromkeys(a for o in mv.outcomes for a in o.universe.llm))
    fields = {a: dict(mv.study.annotator(a).metadata) for a in annotators}
    for o in mv.outcomes:
        if o.universe.dimensions.get("llm") == o.universe.llm[0]:
            own = {k: v for k, v in o.universe.dimensions.items() if k not in _CHOICES}
            fields[o.universe.llm[0]] |= own
    some = mv.fit(mv.chosen(focus)[0].universe.number)
    return _Task(
        study=take_subset(mv.study, mv.subsets[first.subset])[0],
        formula=first.formula,
        family=first.family,
        vcov=first.vcov,
        correction=correction,
        subset=first.subset,
        seed=mv.seed,
        level=mv.level,
        focus=mv.focus if focus is None else focus,
        variables=some.problem.frame.variables,
        annotators=annotators,
        fields=fields,
        known=dict(_fitted(mv, here, label)),
    )


#: Dimensions of a grid that say nothing about an annotator.
_CHOICES = ("llm", "formula", "family", "correction", "subset", "vcov")


def _place(universe: Universe) -> tuple[str, str, str, str]:
    return universe.formula, universe.family.name, universe.subset, repr(universe.vcov)


def _fitted(
    mv: Multiverse, outcomes: Sequence[Outcome], correction: str
) -> Iterator[tuple[str, Callable[[], Fit]]]:
    for o in outcomes:
        if o.universe.dimensions["correction"] == correction and len(o.universe.llm) == 1:
            yield o.universe.llm[0], partial(mv.fit, o.universe.number)


def _reusable(correction: Correction) -> Correction:
    if getattr(correction, "predictions", None) is not None:
        raise ArgumentError(
            f"The correction {correction.name!r} was given predictions=, which are the same "
            "whichever annotator is scored: fit without them, or with another correction."
        )
    return correction


def _scored(task: _Task, variable: str | None) -> str:
    """Return the labelled variable that is scored."""
    names = ", ".join(map(repr, task.variables))
    if variable is None and len(task.variables) > 1:
        raise ArgumentError(
            f"The formula {task.formula!r} uses the labelled variables {names}: say which one to "
            f"score, as in variable={task.variables[0]!r}."
        )
    if variable is not None and variable not in task.variables:
        raise ArgumentError(
            f"variable={variable!r} is no labelled variable of {task.formula!r}, which uses "
            f"{names}."
        )
    return task.variables[0] if variable is None else variable


def _quality(
    task: _Task, variable: str, level: float, reasons: _Reasons
) -> tuple[pd.DataFrame, Measure]:
    """Return agreement with the human labels, by annotator."""
    found = agreement(task.study, variable, task.annotators, level).table
    having = {m: set(found.loc[found["measure"] == m, "annotator"]) for m in _MEASURES}
    everyone = set(task.annotators)
    # Numbers with few values are classes too; with many, "exactly right" means little.
    scale = having["accuracy"] != everyone and having["correlation"] == everyone
    measure: Measure = "correlation" if scale else "accuracy"
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


_MEASURES: tuple[Measure, ...] = ("accuracy", "correlation")


def _change(task: _Task, variable: str, within: str, reasons: _Reasons) -> list[float]:
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


def _with_strong(
    task: _Task, variable: str, strong: set[str], measure: Measure, reasons: _Reasons
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


def _differential(task: _Task, variable: str, reasons: _Reasons) -> list[float]:
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
    task: _Task, variable: str, by: str, annotators: Sequence[str]
) -> dict[str, tuple[float, str | None]]:
    found = error_profile(task.study, variable, by, list(annotators), vcov=task.vcov).tests
    return {r["annotator"]: (r["p_value"], r["reason"]) for r in found.to_dict("records")}


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


def _focal(task: _Task, reasons: _Reasons) -> tuple[pd.DataFrame, list[str]]:
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


def _fit(task: _Task, problems: Problems, universe: Universe) -> Fit:
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
