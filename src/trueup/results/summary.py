"""A fit in words and numbers, for the eye."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from trueup.corrections.advice import FEW_INFORMATIVE, least_informed
from trueup.corrections.naive import WHAT_IT_IS
from trueup.inference.variance import independent_pieces
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
    effective_n,
    slopes,
    standard_errors,
    tuning_label,
)
from trueup.study.describe import draw_in_words
from trueup.study.design import SampleDesign

if TYPE_CHECKING:
    from trueup.results.fit import Fit

#: Annotators that a summary names before it counts the rest.
_MOST_ANNOTATORS = 10

_STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"), (0.1, "."))
_LEGEND = "Signif. codes: 0 '***' 0.001 '**' 0.01 '*' 0.05 '.' 0.1 ' ' 1"


@dataclass(frozen=True, slots=True)
class Summary:
    """What :meth:`Fit.summary` returns: prints as text, shows as a table in a notebook."""

    call: str
    facts: tuple[tuple[str, str], ...]
    """What was fitted, on which labels: (label, text)."""
    lead: tuple[str, ...]
    """Sentences to read before the table."""
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    footer: tuple[str, ...]
    """Sentences about the table."""
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        margin = max(len(label) for label, _ in self.facts) + 2
        lines = ["Call:", *paragraph(self.call, indent="  "), ""]
        for label, text in self.facts:
            lines += paragraph(text, indent=" " * margin, first=f"{label:<{margin}}")
        for text in self.lead:
            lines += ["", *paragraph(text)]
        lines += ["", *paragraph(self.caption), *text_table(self.header, self.rows), ""]
        for text in self.footer:
            lines += paragraph(text, indent="  ", first="")
        for title, texts in (("Notes", self.notes), ("Warnings", self.warnings)):
            if texts:
                lines += ["", f"{title}:"]
                for text in texts:
                    lines += paragraph(text, indent="  ", first="- ")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        titled = [(t, x) for t, x in (("Notes", self.notes), ("Warnings", self.warnings)) if x]
        return "".join(
            [
                f"<pre>{html.escape(self.call)}</pre>",
                html_table(("", ""), self.facts),
                html_paragraphs([*self.lead, self.caption]),
                html_table(self.header, self.rows),
                html_paragraphs(self.footer),
                *(html_paragraphs([f"{title}:", *texts]) for title, texts in titled),
            ]
        )


def summarise(fit: Fit, level: float | None = None, *, stars: bool = False) -> Summary:
    """Return the summary of a fit (see :meth:`Fit.summary`)."""
    level = check_level(fit.level if level is None else level)
    e = fit.estimate
    table = coefficient_table(e.theta, e.vcov, e.df, fit.terms, level)
    naive = applied_correction(fit).name == "naive"
    lead = (WHAT_IT_IS,) if naive else ()
    header, rows = _table(fit, table, level, stars=stars)
    footer = [*_reference(fit), *_gain(fit), *_informative(fit)]
    return Summary(
        call=fit.call,
        facts=tuple(_facts(fit)),
        lead=lead,
        caption=_caption(fit),
        header=header,
        rows=rows,
        footer=(*footer, _LEGEND) if stars else tuple(footer),
        notes=tuple(note for note in e.notes if note not in lead),
        warnings=e.warnings,
    )


def _caption(fit: Fit) -> str:
    kind = {"naive": "LLM labels only, not corrected", "human": "human labels only"}
    return f"Coefficients ({kind.get(applied_correction(fit).name, 'corrected')}):"


def _facts(fit: Fit) -> Iterator[tuple[str, str]]:
    design = fit.problem.design
    applied = applied_correction(fit)
    yield "Formula:", fit.formula
    yield "Family:", fit.problem.family.name
    chosen = " (chosen by auto)" if applied is not fit.correction else ""
    yield "Correction:", f"{applied.name}{chosen}{_tuning(fit)}"
    yield "Labels:", f"{design.n_rows:,} rows; {', '.join(fit.problem.frame.variables)}"
    if applied.name != "naive":
        share = design.n_coded / design.n_rows
        yield "  human", f"{design.n_coded:,} rows coded ({share:.1%})"
    if applied.name != "human":
        yield from _annotators(fit)
    if applied.name != "naive":
        yield "Coded rows:", _design(design)
    if design.cluster is not None:
        yield "Clusters:", f"{int(design.cluster.max()) + 1:,}, rows within each may depend"
    if design.weights is not None:
        yield "Weights:", "analysis weights of the study"


def _annotators(fit: Fit) -> Iterator[tuple[str, str]]:
    names = fit.problem.annotators
    for name in names[:_MOST_ANNOTATORS]:
        metadata = fit.study.annotator(name).metadata
        said = ", ".join(f"{k} {v}" for k, v in metadata.items())
        yield "  LLM", f"{name}{f' ({said})' if said else ''}: {_counts(fit, name)}"
    if len(names) > _MOST_ANNOTATORS:
        yield "", f"and {len(names) - _MOST_ANNOTATORS} more"


def _counts(fit: Fit, annotator: str) -> str:
    """Say how many labels an annotator gave, and what became of the missing ones."""
    n = fit.problem.design.n_rows
    fate = "left out" if applied_correction(fit).name == "naive" else "filled in"
    said = []
    for variable in fit.problem.frame.variables:
        missing = int(fit.study.llm_missing(variable, annotator).sum())
        text = f"{n - missing:,} rows labelled"
        if missing:
            text += f", {missing:,} missing and {fate}"
        several = len(fit.problem.frame.variables) > 1
        said.append(f"{variable} {text}" if several else text)
    return "; ".join(said)


def _tuning(fit: Fit) -> str:
    tuning = tuning_label(fit.estimate.tuning)
    if tuning is None:
        return ""
    return f", tuning {tuning:.4g}" if isinstance(tuning, float) else f", tuning {tuning} matrix"


def _design(design: SampleDesign) -> str:
    low, high = float(design.probability.min()), float(design.probability.max())
    span = f"{low:.4g}" if np.isclose(low, high) else f"{low:.4g} to {high:.4g}"
    return f"{draw_in_words(design)}; inclusion probability {span}"


def _table(
    fit: Fit, table: pd.DataFrame, level: float, *, stars: bool
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    e = fit.estimate
    letter = "z" if np.isinf(e.df).all() else "t"
    percent = f"{level * 100:.6g}% CI"
    header = ["", "Estimate", "Std. Error", f"{letter} value", f"Pr(>|{letter}|)"]
    header += [f"{percent}\nlow", f"{percent}\nhigh"]
    columns = ["estimate", "std_error", "conf_low", "conf_high"]
    values = table[columns].to_numpy()
    if e.vcov_human is not None and applied_correction(fit).name != "human":
        header.append("human-only\nStd. Error")
        values = np.column_stack([values, standard_errors(e.vcov_human, fit.terms)])
    se = table["std_error"].to_numpy()
    rows = []
    for j, (term, cells) in enumerate(zip(fit.terms, fixed(values, se), strict=True)):
        p = float(table["p_value"].iloc[j])
        row = [term, *cells[:2], f"{table['statistic'].iloc[j]:.3f}", p_text(p) + _star(p, stars)]
        rows.append((*row, *cells[2:]))
    return tuple(header), tuple(rows)


def _star(p: float, stars: bool) -> str:
    if not stars:
        return ""
    return f" {next((mark for cut, mark in _STARS if p < cut), ''):<3}"


def _reference(fit: Fit) -> Iterator[str]:
    df = fit.estimate.df
    hc = "" if applied_correction(fit).name == "naive" else f"{fit.problem.vcov.hc}, "
    if np.isinf(df).all():
        yield f"Standard errors: {hc}normal reference distribution."
    elif np.ptp(df) < 0.5:
        yield f"Standard errors: {hc}t distribution with {_df(df[0])} degrees of freedom."
    else:
        yield (
            f"Standard errors: {hc}t distribution with {_df(df.min())} to {_df(df.max())} degrees "
            "of freedom, by coefficient."
        )


def _df(df: float) -> str:
    return f"{df:,.0f}" if df >= 1000 else f"{df:.1f}"


def _gain(fit: Fit) -> Iterator[str]:
    n = fit.problem.design.n_coded
    gained = effective_n(fit.estimate, n)
    if gained is None or applied_correction(fit).name == "human":
        return
    keep = slopes(fit.terms)
    least = keep[int(np.argmin(gained[keep]))]
    median = _count(float(np.median(gained[keep])))
    text = f"With the LLM's help the coded rows are worth {median} human labels (you coded {n:,})"
    if len(keep) > 1:
        text += f", median over terms; least {_count(gained[least])}, for {fit.terms[least]!r}"
    yield text + "."


def _count(x: float) -> str:
    return f"{x:,.0f}" if np.isfinite(x) else "any number of"


def _informative(fit: Fit) -> Iterator[str]:
    informative = fit.estimate.informative
    if informative is None:
        return
    least = least_informed(fit.terms, informative)
    n = int(informative[least])
    _, what = independent_pieces(fit.problem.design)
    trust = (
        f"fewer than {FEW_INFORMATIVE}, so take its interval as approximate"
        if n < FEW_INFORMATIVE
        else "enough to take the intervals at face value"
    )
    yield (
        f"{what[0].upper()}{what[1:]} that carry a standard error: {n:,} at the least, for "
        f"{fit.terms[least]!r}; {trust}."
    )
