"""LLM-only, human-only and corrected estimates side by side, and how far the LLM is off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import special

from trueup.corrections.base import Estimate, Problem
from trueup.corrections.bias import bias_vcov
from trueup.corrections.human import Human
from trueup.corrections.naive import Naive
from trueup.results.text import (
    fixed,
    html_paragraphs,
    html_table,
    p_text,
    paragraph,
    text_table,
)
from trueup.results.tidy import (
    applied_correction,
    check_level,
    coefficient_table,
    p_values,
    standard_errors,
)
from trueup.results.wald import WaldTest, quadratic_form
from trueup.study.design import Float

if TYPE_CHECKING:
    from trueup.results.fit import Fit

LLM_ONLY, HUMAN_ONLY, CORRECTED = "LLM-only", "human-only", "corrected"

#: A difference below this many standard errors of the reference is rounding: fits coincide.
_COINCIDE = 1e-6


@dataclass(frozen=True, slots=True)
class Source:
    """One of the estimates that are compared."""

    name: str
    """``"LLM-only"``, ``"human-only"`` or ``"corrected"``."""
    llm: str | None
    """The annotator of an LLM-only estimate."""
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Bias:
    """How far an LLM-only estimate is from the reference."""

    llm: str
    difference: Float
    """(p,) LLM-only minus reference."""
    std_error: Float
    """(p,) standard errors of the difference, allowing for the rows that both share."""
    p_value: Float
    """(p,) two-sided, normal; 1 where the two estimates coincide."""
    joint: WaldTest
    """Chi-squared test that all coefficients agree."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """LLM-only, human-only and corrected estimates of one regression.

    ``reference`` names what the LLM-only estimates are held against: the corrected one, or
    the human-only one where the fit was not corrected.
    """

    terms: tuple[str, ...]
    level: float
    reference: str
    sources: tuple[Source, ...]
    """LLM-only for each annotator, then human-only, then corrected."""
    biases: tuple[Bias, ...]
    """One for each annotator."""
    warnings: tuple[str, ...] = ()

    def source(self, name: str, llm: str | None = None) -> Source:
        """Return one of the estimates by name (and annotator, for LLM-only)."""
        return next(s for s in self.sources if s.name == name and s.llm == llm)

    def tidy(self) -> pd.DataFrame:
        """Return one row for each term and estimate.

        Returns
        -------
        pandas.DataFrame
            Columns term, source ("LLM-only", "human-only", "corrected"), llm, estimate,
            std_error, conf_low, conf_high; on LLM-only rows also bias (LLM-only minus
            reference), bias_std_error and bias_p_value, missing on the others.
        """
        tables = [self._table(source) for source in self.sources]
        out = pd.concat(tables, ignore_index=True)
        place = {term: j for j, term in enumerate(self.terms)}
        # Stable, so that sources keep their order within a term.
        return out.sort_values("term", key=lambda s: s.map(place), kind="stable", ignore_index=True)

    def glance(self) -> pd.DataFrame:
        """Return the joint test that an LLM-only fit has no bias, one row for each annotator.

        Returns
        -------
        pandas.DataFrame
            Columns llm, statistic (chi-squared), df, p_value, reason.
        """
        return pd.DataFrame(
            {
                "llm": [b.llm for b in self.biases],
                "statistic": [b.joint.statistic for b in self.biases],
                "df": [b.joint.df_num for b in self.biases],
                "p_value": [b.joint.p_value for b in self.biases],
                "reason": [b.joint.reason for b in self.biases],
            }
        )

    def _table(self, source: Source) -> pd.DataFrame:
        e = source.estimate
        table = coefficient_table(e.theta, e.vcov, e.df, self.terms, self.level)
        table = table[["term", "estimate", "std_error", "conf_low", "conf_high"]]
        table.insert(1, "source", source.name)
        table.insert(2, "llm", source.llm)
        found = [b for b in self.biases if source.name == LLM_ONLY and b.llm == source.llm]
        missing = np.full(len(self.terms), np.nan)
        return table.assign(
            bias=found[0].difference if found else missing,
            bias_std_error=found[0].std_error if found else missing,
            bias_p_value=found[0].p_value if found else missing,
        )

    def _others(self) -> list[Source]:
        return [s for s in self.sources if s.name != LLM_ONLY]

    def _header(self) -> list[str]:
        return ["", LLM_ONLY, *(s.name for s in self._others()), "bias", "p-value"]

    def _numbers(self, bias: Bias) -> Iterator[tuple[str, list[str], list[str], str]]:
        """Yield term, estimates, standard errors and p-value of the bias as text."""
        shown = [self.source(LLM_ONLY, bias.llm), *self._others()]
        theta = [*(s.estimate.theta for s in shown), bias.difference]
        se = [standard_errors(s.estimate.vcov, self.terms) for s in shown]
        unit = np.min(se, axis=0)
        texts = fixed(np.column_stack([*theta, *se, bias.std_error]), unit)
        k = len(theta)
        for term, numbers, p in zip(self.terms, texts, bias.p_value, strict=True):
            yield term, numbers[:k], numbers[k:], p_text(p)

    def _text_rows(self, bias: Bias) -> list[list[str]]:
        rows = []
        for term, estimates, errors, p in self._numbers(bias):
            rows.append([term, *estimates, p])
            rows.append(["", *(f"({se})" for se in errors), ""])
        return rows

    def _html_rows(self, bias: Bias) -> list[list[str]]:
        return [
            [term, *(f"{x} ({se})" for x, se in zip(estimates, errors, strict=True)), p]
            for term, estimates, errors, p in self._numbers(bias)
        ]

    def _joint_text(self, bias: Bias) -> str:
        head = f"Test that LLM-only and {self.reference} agree on all coefficients:"
        if bias.joint.reason is not None:
            return f"{head} not tested, {bias.joint.reason}"
        return f"{head} {bias.joint.distribution} = {bias.joint.statistic:.4g}, p-value " + p_text(
            bias.joint.p_value
        )

    def _lead(self) -> str:
        return (
            f"Standard errors in brackets. Bias is LLM-only minus {self.reference}; its standard "
            "error allows for the rows that both share."
        )

    def __str__(self) -> str:
        lines: list[str] = []
        for bias in self.biases:
            lines += paragraph(f"LLM: {bias.llm}")
            lines += text_table(self._header(), self._text_rows(bias))
            lines += [*paragraph(self._joint_text(bias)), ""]
        lines += paragraph(self._lead())
        for warning in self.warnings:
            lines += paragraph(warning, indent="  ", first="! ")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        parts = []
        for bias in self.biases:
            parts.append(html_paragraphs([f"LLM: {bias.llm}"]))
            parts.append(html_table(self._header(), self._html_rows(bias)))
            parts.append(html_paragraphs([self._joint_text(bias)]))
        return "".join(parts) + html_paragraphs([self._lead(), *self.warnings])


def compare(fit: Fit, level: float | None = None) -> Comparison:
    """Set a fit beside LLM-only and human-only ones (see :meth:`Fit.compare`)."""
    level = check_level(fit.level if level is None else level)
    applied = applied_correction(fit)
    naive = {a: _llm_only(fit, a) for a in fit.problem.annotators}
    # A fit that chose how to fit separated coded rows wants the same of the human-only one.
    human = (
        fit.estimate
        if applied.name == "human"
        else Human(getattr(applied, "human_fit", "ml")).estimate(fit.problem)
    )
    sources = [Source(LLM_ONLY, a, e) for a, e in naive.items()]
    sources.append(Source(HUMAN_ONLY, None, human))
    corrected = applied.name not in ("naive", "human")
    if corrected:
        sources.append(Source(CORRECTED, None, fit.estimate))
    reference = sources[-1]
    shown = dict.fromkeys(w for s in sources for w in s.estimate.warnings)
    return Comparison(
        terms=fit.terms,
        level=level,
        reference=reference.name,
        sources=tuple(sources),
        biases=tuple(
            _bias(replace(fit.problem, annotators=(a,)), a, e, reference) for a, e in naive.items()
        ),
        warnings=tuple(shown),
    )


def _llm_only(fit: Fit, annotator: str) -> Estimate:
    if applied_correction(fit).name == "naive" and fit.problem.annotators == (annotator,):
        return fit.estimate
    return Naive().estimate(replace(fit.problem, annotators=(annotator,)))


def _bias(problem: Problem, llm: str, naive: Estimate, reference: Source) -> Bias:
    V = bias_vcov(problem, naive, reference.estimate)
    difference = naive.theta - reference.estimate.theta
    se = standard_errors(V, problem.frame.terms)
    unit = standard_errors(reference.estimate.vcov, problem.frame.terms)
    coincide = np.maximum(np.abs(difference), se) <= _COINCIDE * unit
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(coincide, 0.0, difference / se)
    return Bias(
        llm=llm,
        difference=difference,
        std_error=se,
        p_value=p_values(z, np.full(len(z), np.inf)),
        joint=_joint(difference[~coincide], V[np.ix_(~coincide, ~coincide)], reference.name),
    )


def _joint(difference: Float, V: Float, reference: str) -> WaldTest:
    words = f"LLM-only = {reference}"
    statistic, rank = quadratic_form(difference, V)
    if rank == 0:
        reason = f"the LLM-only and {reference} estimates coincide."
        return WaldTest(np.nan, 0, np.inf, np.nan, words, reason)
    return WaldTest(statistic, rank, np.inf, float(special.chdtrc(rank, statistic)), words)
