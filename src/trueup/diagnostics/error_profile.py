"""How an annotator's errors move with the variables of interest, and the bias that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from trueup.corrections.base import Problem
from trueup.corrections.parts import influence, llm_fit
from trueup.corrections.problem import build_problem
from trueup.diagnostics.agreement import target_labels
from trueup.diagnostics.answers import look_like_classes, one_variable
from trueup.diagnostics.estimates import Measure, Shape, design_df, interval, weighted_mean
from trueup.errors import ArgumentError, FormulaError
from trueup.estimation.solve import fit
from trueup.families.linear import OLS
from trueup.formula.columns import kind_of
from trueup.formula.parse import marked_categorical, parse, term_variables, terms_of
from trueup.formula.rows import Rows
from trueup.inference.sandwich import Sandwich, leverage_factor, sandwich
from trueup.inference.vcov import Vcov, as_vcov
from trueup.results.text import p_text, paragraph, text_table
from trueup.results.tidy import check_level, coefficient_table, slopes
from trueup.results.wald import WaldTest, quadratic_form
from trueup.study.design import Float, SampleDesign
from trueup.study.study import Study
from trueup.study.tables import nearest

#: With fewer coded rows in a group, their number is reported instead of an estimate.
LEAST_IN_GROUP = 10
_SHAPES: dict[str, Shape] = {"accuracy": "share", "mean_error": "mean", "mean_abs_error": "size"}
#: Slopes that fit on a line.
_PRINTED = 3


@dataclass(frozen=True, slots=True)
class ErrorProfile:
    """What the errors of each annotator follow. Made by :func:`error_profile`."""

    table: pd.DataFrame
    """Regression of the error: annotator, label_class, term, estimate, std_error, statistic,
    p_value, conf_low, conf_high, df."""
    tests: pd.DataFrame
    """Tests that the error moves with nothing: annotator ("all" for the joint test),
    statistic, df_num, df_denom, p_value, reason."""
    groups: pd.DataFrame
    """Accuracy and errors within the groups of each categorical variable: variable, group,
    annotator, measure, estimate, std_error, conf_low, conf_high, n, note."""
    implied_bias: pd.DataFrame | None
    """Bias of the LLM-only least squares coefficients: annotator, label_class, term, llm_only,
    bias, corrected, std_error, p_value, conf_low, conf_high. None where ``by=`` itself holds
    labelled variables."""
    variable: str
    by: str
    level: float
    n_coded: int
    n_missing: dict[str, int]
    """By annotator, coded rows without an LLM label, which have the study's filling."""

    def tidy(self) -> pd.DataFrame:
        """Return the regressions of the error, one row for each coefficient."""
        return self.table.copy()

    def summary(self) -> str:
        """Return a text: how errors move, tests, and the bias implied."""
        lines = [
            f"Error profile of {self.variable!r} (LLM minus human) {self.by}: "
            f"{self.n_coded:,} coded rows",
            "",
            "How the error moves: slope (standard error)",
            *self._slopes(),
            "",
            "Tests that the error moves with none of these",
            *self._tests(),
        ]
        if len(self.groups):
            lines += ["", "Within groups", *self._groups()]
        if self.implied_bias is not None:
            lines += ["", "Bias of the LLM-only coefficient (least squares)", *self._biases()]
        for annotator, n in self.n_missing.items():
            if n:
                lines += paragraph(f"{annotator}: {n} coded rows without a label were filled in.")
        return "\n".join(lines)

    def _slopes(self) -> list[str]:
        terms = list(dict.fromkeys(self.table["term"]))
        terms = [terms[j] for j in slopes(terms)]
        cells = _cells(self.table, "estimate", "std_error")
        lines: list[str] = []
        for first in range(0, len(terms), _PRINTED):
            shown = terms[first : first + _PRINTED]
            rows = [[who, *(found[t] for t in shown)] for who, found in cells.items()]
            lines += text_table(["", *shown], rows)
        return lines

    def _tests(self) -> list[str]:
        rows = []
        for r in self.tests.to_dict("records"):
            size = f"F({r['df_num']}, {r['df_denom']:.1f})"
            value = "-" if r["reason"] else f"{r['statistic']:.2f}"
            rows.append([r["annotator"], size, value, p_text(r["p_value"])])
        lines = text_table(["", "", "statistic", "p-value"], rows)
        for r in self.tests.dropna(subset=["reason"]).to_dict("records"):
            lines += paragraph(f"{r['annotator']}: {r['reason']}", "  ")
        return lines

    def _groups(self) -> list[str]:
        first = self.groups["measure"].iloc[0]
        part = self.groups[self.groups["measure"] == first]
        annotators = list(dict.fromkeys(part["annotator"]))[:_PRINTED]
        rows: dict[str, list[str]] = {}
        for r in part[part["annotator"].isin(annotators)].to_dict("records"):
            text = f"{r['estimate']:.3f}"
            text = f"n = {r['n']}" if np.isnan(r["estimate"]) else f"{text} ({r['std_error']:.3f})"
            rows.setdefault(f"{r['variable']} = {r['group']}", []).append(text)
        head = [f"{first}", *annotators]
        return text_table(head, [[name, *cells] for name, cells in rows.items()])

    def _biases(self) -> list[str]:
        assert self.implied_bias is not None
        rows = []
        for r in self.implied_bias.to_dict("records"):
            numbers = [f"{r[c]:.4f}" for c in ("llm_only", "bias", "std_error", "corrected")]
            rows.append([f"{_who(r)}: {r['term']}", *numbers, p_text(r["p_value"])])
        return text_table(["", "LLM-only", "bias", "std. error", "corrected", "p-value"], rows)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return self.summary()


def _who(row: dict[Any, Any]) -> str:
    label = row["label_class"]
    return str(row["annotator"]) if label is None else f"{row['annotator']} [{label}]"


def _cells(table: pd.DataFrame, value: str, error: str) -> dict[str, dict[str, str]]:
    out: dict[str, dict[str, str]] = {}
    for r in table.to_dict("records"):
        out.setdefault(_who(r), {})[r["term"]] = f"{r[value]:.4f} ({r[error]:.4f})"
    return out


def error_profile(
    study: Study,
    variable: str | None = None,
    by: str = "~ 1",
    llm: str | Sequence[str] = "all",
    focus: str | Sequence[str] | None = None,
    *,
    level: float = 0.95,
    vcov: str | Vcov = "HC3",
) -> ErrorProfile:
    r"""Show how an annotator's errors move with the variables of interest.

    The error of a coded row is :math:`e_i = F_i - V_i`, LLM minus human label (for classes,
    one error for each class: 1 if the LLM gave it less 1 if the coder did). It is regressed on
    the variables of ``by``, with rows weighted by the inverse of their inclusion probability:

    .. math:: \sum_R w_i x_i (e_i - x_i'\delta) = 0.

    Errors that move with nothing (:math:`\delta = 0` but for the intercept) leave the slopes
    of a regression of the label unbiased. Otherwise :math:`\delta` *is* the bias: for least
    squares of the label on the same variables, LLM labels on all rows give
    :math:`\hat\gamma_N`, the correction without tuning gives
    :math:`\hat\theta = \hat\theta_g + \hat\gamma_N - \hat\gamma_g`, and

    .. math:: \hat\gamma_N - \hat\theta = \hat\gamma_g - \hat\theta_g = \hat\delta

    holds exactly. Overall accuracy does not enter.

    Parameters
    ----------
    study : Study
    variable : str, optional
        Labelled variable; may be left out where there is one.
    by : str
        Right-hand side of a formula, such as ``"~ treat + C(group)"``. For a label that will
        be a covariate, name the outcome and the other covariates.
    llm : str or sequence of str
        Annotators, as in :meth:`Study.resolve`.
    focus : str or sequence of str, optional
        Coefficients whose implied bias is wanted; by default all slopes.
    level : float
        Of the intervals.
    vcov : {"HC0", "HC1", "HC2", "HC3"} or Vcov

    Returns
    -------
    ErrorProfile

    Raises
    ------
    ArgumentError, FormulaError, StudyError, FitError
        If names are unknown, ``by`` cannot be read, or there are too few coded rows.

    Notes
    -----
    Tests compare Hotelling's statistic with F, using the degrees of freedom of the coded sample
    (rows, or clusters, less strata and coefficients); intervals of single slopes use the
    effective degrees of freedom of the rows that carry the errors. Groups of fewer than 10 coded
    rows show their count.
    Where an annotator gave no label, the study's filling stands in the regressions (it is
    what every correction uses), and the row is left out of the accuracy of groups.

    Examples
    --------
    >>> import trueup as tu
    >>> data = tu.simulate.antibiotics(2000, seed=1)
    >>> data.loc[500:, "reaction"] = None
    >>> study = tu.Study(data, human={"y": "reaction"}, llm={"y": ["under_treated"]})
    >>> profile = tu.error_profile(study, "y", by="~ treated")
    >>> profile.implied_bias["bias"].round(2).tolist()
    [-0.13]

    References
    ----------
    Hotelling (1931), The generalization of Student's ratio. Carroll, Ruppert, Stefanski and
    Crainiceanu (2006), Measurement error in nonlinear models. Egami, Hinck, Stewart and Wei
    (2023), Using imperfect surrogates for downstream inference.
    """
    check_level(level)
    name, options = one_variable(study, variable), as_vcov(vcov)
    annotators = study.resolve(llm)
    right = _right_hand_side(by)
    profiles: list[_Profile] = []
    for label_class, left in _outcomes(study, name):
        problem = build_problem(f"{left} {right}", study, OLS(), annotators, options)
        profiles += [_profile(problem, a, label_class) for a in annotators]
    terms = profiles[0].problem.frame.terms
    wanted = _focus(focus, terms)
    design = profiles[0].problem.design
    missing = {a: int(study.llm_missing(name, a)[design.coded].sum()) for a in annotators}
    return ErrorProfile(
        table=pd.concat([_with_names(p, p.table(level)) for p in profiles], ignore_index=True),
        tests=_tests(profiles, annotators),
        groups=_groups(study, name, right, annotators, design, level),
        implied_bias=_implied_bias(profiles, wanted, level),
        variable=name,
        by=right,
        level=level,
        n_coded=design.n_coded,
        n_missing=missing,
    )


def _right_hand_side(by: str) -> str:
    if not isinstance(by, str) or not by.strip():
        raise FormulaError(f"by={by!r} must be text such as '~ treat + C(group)'.")
    text = by.strip()
    if "~" in text and not text.startswith("~"):
        raise FormulaError(
            f"by={by!r} has an outcome, but the outcome is the error: write what follows the "
            "tilde only, as in '~ treat + C(group)'."
        )
    return text if text.startswith("~") else f"~ {text}"


def _outcomes(study: Study, variable: str) -> list[tuple[str | None, str]]:
    """Return (class, left-hand side) for each error: one for numbers, else one for each class."""
    quoted = variable if variable.isidentifier() else f"`{variable}`"
    levels = study.levels(variable)
    if levels is None:
        return [(None, quoted)]
    shown = levels[1:] if len(levels) == 2 else levels
    return [(c, f"I({quoted} == {c!r})") for c in shown]


def _focus(focus: str | Sequence[str] | None, terms: Sequence[str]) -> list[int]:
    if focus is None:
        return slopes(terms)
    names = [focus] if isinstance(focus, str) else list(focus)
    for name in names:
        if name not in terms:
            raise ArgumentError(f"focus={name!r} is no coefficient of by=.{nearest(name, terms)}")
    return [list(terms).index(name) for name in names]


@dataclass(frozen=True, slots=True)
class _Profile:
    """The error regression of one annotator (and class)."""

    problem: Problem
    annotator: str
    label_class: str | None
    delta: Float
    h: Float
    """(n, p) influence on the coded rows."""
    factor: Float
    result: Sandwich

    def table(self, level: float) -> pd.DataFrame:
        terms = self.problem.frame.terms
        return coefficient_table(self.delta, self.result.vcov, self.result.df, terms, level)


def _profile(problem: Problem, annotator: str, label_class: str | None) -> _Profile:
    design, family, terms = problem.design, problem.family, problem.frame.terms
    human = problem.frame.human()
    error = problem.frame.llm(annotator).y[design.coded] - human.y
    rows = Rows(error, human.X)
    w = design.coded_weights
    delta = fit(family, rows, w, terms, where="the coded rows (errors)")
    h, _ = influence(problem, delta, rows)
    leverage = family.leverage(delta, rows, w)
    factor = leverage_factor(leverage, problem.vcov.hc, *h.shape)
    result = sandwich(design, h, h, vcov=problem.vcov, factor=factor)
    return _Profile(problem, annotator, label_class, delta, h, factor, result)


def _with_names(profile: _Profile, table: pd.DataFrame) -> pd.DataFrame:
    table.insert(0, "annotator", profile.annotator)
    table.insert(1, "label_class", profile.label_class)
    return table


def _tests(profiles: Sequence[_Profile], annotators: Sequence[str]) -> pd.DataFrame:
    tests = [(a, _joint([p for p in profiles if p.annotator == a])) for a in annotators]
    if len(annotators) > 1:
        tests.append(("all", _joint(profiles)))
    return pd.DataFrame(
        [
            {
                "annotator": who,
                "statistic": t.statistic,
                "df_num": t.df_num,
                "df_denom": t.df_denom,
                "p_value": t.p_value,
                "reason": t.reason,
            }
            for who, t in tests
        ]
    )


def _joint(profiles: Sequence[_Profile]) -> WaldTest:
    r"""Test all slopes at once: Hotelling's :math:`(\nu - q + 1)/(\nu q)\,W`, against F."""
    first = profiles[0]
    keep = slopes(first.problem.frame.terms)
    delta = np.concatenate([p.delta[keep] for p in profiles])
    h = np.hstack([p.h[:, keep] for p in profiles])
    V = sandwich(first.problem.design, h, h, vcov=first.problem.vcov, factor=first.factor).vcov
    words = f"{len(delta)} slopes of the error"
    statistic, q = quadratic_form(delta, V)
    if q == 0:
        reason = "the error is the same in every coded row, so that there is nothing to test."
        return WaldTest(np.nan, 0, np.nan, np.nan, words, reason)
    if first.problem.vcov.reference == "normal":
        return WaldTest(statistic / q, q, np.inf, float(special.chdtrc(q, statistic)), words)
    # Effective degrees of freedom, as intervals use, would make this test far too cautious:
    # Hotelling's bound for q slopes at once already allows for an estimated covariance.
    nu = design_df(first.problem.design) - first.h.shape[1] + 1.0
    rest = nu - q + 1.0
    if rest < 1.0:
        reason = (
            f"{q} slopes are too many for {nu:.0f} degrees of freedom: code more rows, or shorten "
            "by=."
        )
        return WaldTest(np.nan, q, rest, np.nan, words, reason)
    F = statistic * rest / (nu * q)
    return WaldTest(F, q, rest, float(special.fdtrc(q, rest, F)), words)


def _implied_bias(
    profiles: Sequence[_Profile], wanted: Sequence[int], level: float
) -> pd.DataFrame | None:
    if profiles[0].problem.frame.covariate_labels:
        return None
    tables = []
    for profile in profiles:
        llm_only = llm_fit(profile.problem, profile.annotator)
        table = _with_names(profile, profile.table(level))
        table = table.rename(columns={"estimate": "bias"}).drop(columns=["statistic", "df"])
        table.insert(3, "llm_only", llm_only)
        table.insert(5, "corrected", llm_only - profile.delta)
        tables.append(table.iloc[list(wanted)])
    return pd.concat(tables, ignore_index=True)


def _groups(
    study: Study,
    variable: str,
    right: str,
    annotators: Sequence[str],
    design: SampleDesign,
    level: float,
) -> pd.DataFrame:
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
