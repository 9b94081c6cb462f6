"""How an annotator's errors move with the variables of interest, and the bias that follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from trueup.corrections.base import Problem
from trueup.corrections.parts import influence, llm_fit
from trueup.corrections.problem import build_problem
from trueup.diagnostics.answers import one_variable
from trueup.diagnostics.estimates import design_df
from trueup.diagnostics.groups import LEAST_IN_GROUP, error_groups
from trueup.errors import ArgumentError, FormulaError
from trueup.estimation.solve import fit
from trueup.families.linear import OLS
from trueup.formula.frame import build_frame
from trueup.formula.rows import Rows
from trueup.inference.sandwich import Sandwich, leverage_factor, sandwich
from trueup.inference.vcov import Vcov, as_vcov
from trueup.results.text import p_text, paragraph, text_table
from trueup.results.tidy import check_level, coefficient_table, slopes
from trueup.results.wald import WaldTest, quadratic_form
from trueup.study.design import Float
from trueup.study.study import Study
from trueup.study.tables import nearest

#: Slopes, or annotators, that fit on a line.
_PRINTED = 3


@dataclass(frozen=True, slots=True)
class ErrorProfile:
    """What the errors of each annotator follow. Made by :func:`error_profile`."""

    table: pd.DataFrame
    """Regression of the error: annotator, label_class, term, estimate, std_error, statistic,
    p_value, conf_low, conf_high, df, rests_on (number of coded rows that carry the slope) and
    note. Slopes of a group with too few coded rows have their count and no standard error."""
    tests: pd.DataFrame
    """Tests that the error moves with nothing: annotator ("all" for the joint test),
    statistic, df_num, df_denom, p_value, reason (where there is no test), left_out (slopes that
    rest on too few coded rows to be tested)."""
    groups: pd.DataFrame
    """Accuracy and errors within the groups of each categorical variable: variable, group,
    annotator, measure, estimate, std_error, conf_low, conf_high, n, note."""
    implied_bias: pd.DataFrame | None
    """Bias of the LLM-only least squares coefficients: annotator, label_class, term, llm_only,
    bias, corrected, std_error, p_value, conf_low, conf_high, rests_on, note. None where ``by=``
    itself holds labelled variables."""
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
        cells = _cells(self.table)
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
            value = "-" if np.isnan(r["statistic"]) else f"{r['statistic']:.2f}"
            rows.append([r["annotator"], size, value, p_text(r["p_value"])])
        lines = text_table(["", "", "statistic", "p-value"], rows)
        for r in self.tests.dropna(subset=["reason"]).to_dict("records"):
            lines += paragraph(f"{r['annotator']}: {r['reason']}", "  ")
        left_out = list(dict.fromkeys(self.tests["left_out"].dropna()))
        for terms in left_out:
            few = f"fewer than {LEAST_IN_GROUP} coded rows"
            lines += paragraph(f"Not tested, since resting on {few}: {terms}.", "  ")
        return lines

    def _groups(self) -> list[str]:
        first = self.groups["measure"].iloc[0]
        part = self.groups[self.groups["measure"] == first]
        annotators = list(dict.fromkeys(part["annotator"]))
        lines: list[str] = []
        for start in range(0, len(annotators), _PRINTED):
            here = annotators[start : start + _PRINTED]
            rows: dict[str, list[str]] = {}
            for r in part[part["annotator"].isin(here)].to_dict("records"):
                known = f"{r['estimate']:.3f} ({r['std_error']:.3f})"
                text = f"n = {r['n']}" if np.isnan(r["estimate"]) else known
                rows.setdefault(f"{r['variable']} = {r['group']}", []).append(text)
            lines += text_table([str(first), *here], [[g, *cells] for g, cells in rows.items()])
        return lines

    def _biases(self) -> list[str]:
        assert self.implied_bias is not None
        rows = []
        for r in self.implied_bias.to_dict("records"):
            numbers = [f"{r[c]:.4f}" for c in ("llm_only", "bias", "std_error", "corrected")]
            p = p_text(r["p_value"])
            if np.isnan(r["std_error"]):
                numbers[2], p = "-", f"n = {r['rests_on']:.0f}"
            rows.append([f"{_who(r)}: {r['term']}", *numbers, p])
        return text_table(["", "LLM-only", "bias", "std. error", "corrected", "p-value"], rows)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return self.summary()


def _who(row: dict[Any, Any]) -> str:
    label = row["label_class"]
    return str(row["annotator"]) if label is None else f"{row['annotator']} [{label}]"


def _cells(table: pd.DataFrame) -> dict[str, dict[str, str]]:
    out: dict[str, dict[str, str]] = {}
    for r in table.to_dict("records"):
        known = f"{r['estimate']:.4f} ({r['std_error']:.4f})"
        text = f"n = {r['rests_on']:.0f}" if np.isnan(r["std_error"]) else known
        out.setdefault(_who(r), {})[r["term"]] = text
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
    rows show their count, and slopes that rest on so few are neither given an error nor tested:
    a group of one row has no error within it, and would seem to be known exactly. A slope rests
    on :math:`(\sum_R \tilde x_i^2)^2/\sum_R \tilde x_i^4` rows, with :math:`\tilde x` what the
    other variables leave of its own; for a group, about the number of its rows.
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
    for label_class, problem in _problems(study, name, right, annotators, options):
        profiles += [_profile(problem, a, label_class) for a in annotators]
    terms = profiles[0].problem.frame.terms
    wanted = _focus(focus, terms)
    design = profiles[0].problem.design
    missing = {a: int(study.llm_missing(name, a)[design.coded].sum()) for a in annotators}
    return ErrorProfile(
        table=pd.concat([_with_names(p, p.table(level)) for p in profiles], ignore_index=True),
        tests=_tests(profiles, annotators),
        groups=error_groups(study, name, right, annotators, design, level),
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


def _problems(
    study: Study, variable: str, right: str, annotators: Sequence[str], options: Vcov
) -> Iterator[tuple[str | None, Problem]]:
    """Return the regression of each error, first of the classes that coders gave."""
    seen = set(study.human_labels(variable)[study.design(variable).coded])
    last: Problem | None = None
    for label_class, left in sorted(_outcomes(study, variable), key=lambda o: o[0] not in seen):
        formula = f"{left} {right}"
        if last is not None and label_class not in seen:
            # What coders never say is no outcome of theirs, but annotators err in saying it.
            frame = build_frame(formula, study, annotators=tuple(annotators))
            last = replace(last, frame=frame, cache={})
        else:
            last = build_problem(formula, study, OLS(), annotators, options)
        yield label_class, last


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
    rests_on: Float
    """(p,) number of coded rows that carry each coefficient."""
    few: NDArray[np.bool_]
    """(p,) whether these are too few for a test."""

    def table(self, level: float) -> pd.DataFrame:
        terms = self.problem.frame.terms
        out = coefficient_table(self.delta, self.result.vcov, self.result.df, terms, level)
        out["rests_on"] = self.rests_on
        words = f"rests on fewer than {LEAST_IN_GROUP} coded rows: code more of its group."
        out["note"] = [words if few else None for few in self.few]
        out.loc[self.few, [*_ERRORS, "df"]] = np.nan
        return out


_ERRORS = ["std_error", "statistic", "p_value", "conf_low", "conf_high"]


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
    rests_on = _rests_on(human.X, w)
    few = (rests_on < LEAST_IN_GROUP) & _of_groups(human.X)
    few[[j for j in range(len(few)) if j not in slopes(terms)]] = False
    return _Profile(problem, annotator, label_class, delta, h, factor, result, rests_on, few)


def _rests_on(X: Float, w: Float) -> Float:
    """Return (p,) numbers of rows that carry each coefficient of weighted least squares."""
    pull = (X @ np.linalg.inv(X.T @ (w[:, None] * X))) ** 2
    return np.asarray(np.round(pull.sum(axis=0) ** 2 / (pull**2).sum(axis=0)))


def _of_groups(X: Float) -> NDArray[np.bool_]:
    """Whether a column tells two groups apart, or few rows from the rest."""
    out = np.zeros(X.shape[1], dtype=bool)
    for j in range(X.shape[1]):
        counts = np.unique(X[:, j], return_counts=True)[1]
        out[j] = len(counts) <= 2 or len(X) - counts.max() < LEAST_IN_GROUP
    return out


def _with_names(profile: _Profile, table: pd.DataFrame) -> pd.DataFrame:
    table.insert(0, "annotator", profile.annotator)
    table.insert(1, "label_class", profile.label_class)
    return table


def _tests(profiles: Sequence[_Profile], annotators: Sequence[str]) -> pd.DataFrame:
    tests = [(a, _joint([p for p in profiles if p.annotator == a])) for a in annotators]
    if len(annotators) > 1:
        tests.append(("all", _joint(profiles)))
    terms, few = profiles[0].problem.frame.terms, profiles[0].few
    left_out = ", ".join(terms[j] for j in np.flatnonzero(few)) or None
    return pd.DataFrame(
        [
            {
                "annotator": who,
                "statistic": t.statistic,
                "df_num": t.df_num,
                "df_denom": t.df_denom,
                "p_value": t.p_value,
                "reason": t.reason,
                "left_out": left_out,
            }
            for who, t in tests
        ]
    )


def _joint(profiles: Sequence[_Profile]) -> WaldTest:
    r"""Test all slopes at once: Hotelling's :math:`(\nu - q + 1)/(\nu q)\,W`, against F."""
    first = profiles[0]
    keep = [j for j in slopes(first.problem.frame.terms) if not first.few[j]]
    if not keep:
        few = f"its slopes rest on fewer than {LEAST_IN_GROUP} coded rows each: code more."
        return WaldTest(np.nan, 0, np.nan, np.nan, "no slope of the error", few)
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
