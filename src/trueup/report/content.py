"""From the tables of a multiverse to what its report says."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version

import numpy as np
import pandas as pd

from trueup.report import style
from trueup.report.curve import specification_curve
from trueup.report.html import ReportContent, ReportFigure, ReportTable
from trueup.report.plots import accuracy_against_estimate, arrows, heatmap
from trueup.results.compare import CORRECTED, LLM_ONLY
from trueup.study.design import Float

_SOFTWARE = ("trueup", "numpy", "scipy", "pandas", "statsmodels", "linearmodels", "formulaic")
_LATER = ("std_error", "simultaneous_low", "simultaneous_high", "p_value")


def report_content(
    table: pd.DataFrame,
    dimensions: Sequence[str],
    *,
    focus: str,
    study: str,
    title: str | None = None,
    question: Sequence[str] = (),
    formulas: Sequence[str] = (),
    headline: Sequence[str] = (),
    bands: pd.DataFrame | None = None,
    reference: style.Reference | Sequence[style.Reference] | None = None,
    accuracy: Mapping[str, float] | None = None,
    measure: str = "Accuracy on the coded sample",
    disagreement: pd.DataFrame | None = None,
    tests: Mapping[str, str] | None = None,
    tables: Mapping[str, ReportTable] | None = None,
    annotator: str = "llm",
    warnings: Sequence[str] = (),
    plan: str = "",
    seed: int | None = None,
    created: str = "",
    seconds: float | None = None,
) -> ReportContent:
    """Draw the figures and gather the sentences and tables of a report.

    Parameters
    ----------
    table : DataFrame, one row per universe
        Columns ``universe``, the dimensions, ``estimate``, ``conf_low``, ``conf_high``,
        ``correction``, ``status``, ``error``; where present ``std_error``, ``p_value``,
        ``simultaneous_low``, ``simultaneous_high``, ``warnings``.
    dimensions : sequence of str
    focus : str
        The term of all estimates.
    study : str
        ``str(study)``.
    title, question, formulas, plan, seed, created, seconds
        As in :class:`ReportContent`; the title and the question default to the focus term.
    headline : sequence of str
        Findings that follow the ranges of the estimates, which are worked out here.
    bands, reference
        As in :func:`specification_curve`.
    accuracy : mapping of annotator to number, optional
        With it, accuracy is drawn against the estimates.
    measure : str
        What ``accuracy`` is.
    disagreement : (K, K) DataFrame, optional
        With it, the heat map is drawn.
    tests : mapping of str to str, optional
        Name of a test -> its printed text.
    tables : mapping of str to ReportTable, optional
        Shown before the table of all universes.
    annotator : str
        Dimension that names the annotators.
    warnings : sequence of str
        Shown before those of the universes (column ``warnings``, counted).

    Returns
    -------
    ReportContent

    Raises
    ------
    ArgumentError
        When columns are missing or no universe has an estimate.
    """
    needed = ["universe", *style.ESTIMATE, "correction", "status", "error", *dimensions]
    ok = style.checked(table, needed, "report")
    absent = ~table["universe"].isin(ok["universe"])
    drawn = {
        "Specification curve": _curve(table, dimensions, focus, bands, reference),
        **_annotator_figures(ok, dimensions, focus, reference, accuracy, measure, annotator),
    }
    if disagreement is not None and len(disagreement) > 1:
        drawn["Disagreement"] = _disagreement(disagreement)
    return ReportContent(
        title=title or f"Multiverse of {focus}",
        question=question or [f"How does the coefficient of {focus} depend on who labelled?"],
        study=study,
        headline=[*range_sentences(table), *headline],
        formulas=formulas,
        figures=drawn,
        tests=tests or {},
        tables={**(tables or {}), "All universes": _all_universes(ok, dimensions)},
        warnings=[*warnings, *counted_warnings(table)],
        failed=_failed(table[absent], dimensions),
        plan=plan,
        versions=software_versions(),
        seed=seed,
        created=created,
        seconds=seconds,
    )


def failed_report_content(
    table: pd.DataFrame,
    dimensions: Sequence[str],
    *,
    focus: str,
    study: str,
    title: str | None = None,
    formulas: Sequence[str] = (),
    plan: str = "",
    seed: int | None = None,
    created: str = "",
    seconds: float | None = None,
) -> ReportContent:
    """Gather what a report says where no universe could be fitted: the reasons, no figures.

    Parameters
    ----------
    table : DataFrame, one row per universe
        Columns ``universe``, the dimensions and ``error``; where present ``warnings``.
    dimensions, focus, study, title, formulas, plan, seed, created, seconds
        As in :func:`report_content`.

    Returns
    -------
    ReportContent
    """
    failed = _failed(table, dimensions)
    counts = failed["reason"].value_counts()
    reasons = pd.DataFrame({"universes": counts.to_numpy(), "reason": counts.index})
    return ReportContent(
        title=title or f"Multiverse of {focus}",
        question=[f"How does the coefficient of {focus} depend on who labelled?"],
        study=study,
        headline=[
            f"None of {len(table):,} universes could be fitted, so there is no estimate.",
            f"The commonest reason ({counts.iloc[0]:,} universes): {counts.index[0]}",
        ],
        formulas=formulas,
        tables={"Why universes failed": ReportTable(reasons, "Each reason once, commonest first.")},
        warnings=counted_warnings(table),
        failed=failed,
        plan=plan,
        versions=software_versions(),
        seed=seed,
        created=created,
        seconds=seconds,
    )


def software_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that computed the numbers."""
    return {name: version(name) for name in _SOFTWARE} | {
        "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    }


def range_sentences(table: pd.DataFrame) -> list[str]:
    """Say how far the estimates of each kind of universe reach, and what sign they have.

    Significant means that the universe's own interval leaves zero out.

    Examples
    --------
    >>> table = pd.DataFrame({
    ...     "correction": ["naive", "naive", "dsl"], "estimate": [-0.2, 0.9, 0.5],
    ...     "conf_low": [-0.3, 0.8, 0.2], "conf_high": [-0.1, 1.0, 0.8]})
    >>> for sentence in range_sentences(table):
    ...     print(sentence)
    3 of 3 universes have an estimate.
    LLM-only: 2 estimates, from -0.2 to 0.9; 1 significantly below zero, 1 significantly above.
    Corrected: 1 estimate, 0.5; 0 significantly below zero, 1 significantly above.
    """
    if "status" in table and len(table) and (table["status"] == "failed").all():
        return [f"0 of {len(table):,} universes have an estimate."]
    ok = style.checked(table, [*style.ESTIMATE, "correction"], "report")
    said = [f"{len(ok):,} of {len(table):,} universes have an estimate."]
    kind = np.array([style.kind_of(str(c)) for c in ok["correction"]])
    for one in style.KINDS:
        estimate, low, high = (style.numbers(ok[kind == one], c) for c in style.ESTIMATE)
        if len(estimate):
            below, above = int((high < 0).sum()), int((low > 0).sum())
            said.append(
                f"{one[0].upper()}{one[1:]}: {_span(estimate)}; {below} significantly below zero, "
                f"{above} significantly above."
            )
    return said


def _span(estimate: Float) -> str:
    if len(estimate) == 1:
        return f"1 estimate, {estimate[0]:.3g}"
    return f"{len(estimate):,} estimates, from {estimate.min():.3g} to {estimate.max():.3g}"


def counted_warnings(table: pd.DataFrame) -> list[str]:
    """Return each different warning of the universes once, with how many gave it."""
    if "warnings" not in table.columns:
        return []
    counts = Counter(text for value in table["warnings"] for text in _texts(value))
    return [f"{text} ({n:,} universe{'s' if n > 1 else ''})" for text, n in counts.most_common()]


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        if value:
            yield value
    elif isinstance(value, list | tuple):
        yield from dict.fromkeys(map(str, value))


def _curve(
    table: pd.DataFrame,
    dimensions: Sequence[str],
    focus: str,
    bands: pd.DataFrame | None,
    reference: style.Reference | Sequence[style.Reference] | None,
) -> ReportFigure:
    figure = specification_curve(table, dimensions, focus=focus, bands=bands, reference=reference)
    return ReportFigure(
        figure,
        "Every universe's estimate in rising order, with its own interval and, lighter, the "
        "interval that holds for all universes jointly; below, the choices that made it.",
        f"Specification curve of the coefficient of {focus}. {' '.join(range_sentences(table))}",
    )


def _annotator_figures(
    ok: pd.DataFrame,
    dimensions: Sequence[str],
    focus: str,
    reference: style.Reference | Sequence[style.Reference] | None,
    accuracy: Mapping[str, float] | None,
    measure: str,
    annotator: str,
) -> dict[str, ReportFigure]:
    """Draw one universe per annotator and correction, the other choices at their first level."""
    one, fixed = _first_slice(ok, dimensions, annotator)
    if fixed and reference is not None:
        # The slice has one human-only estimate where the whole has several.
        reference = style.human_only(one) or reference
    kinds = one["correction"].map(lambda c: style.kind_of(str(c)))
    naive, corrected = (
        set(one[annotator][kinds == LLM_ONLY]),
        set(one[annotator][kinds == CORRECTED]),
    )
    where = f" Shown for {fixed}." if fixed else ""
    out = {}
    if naive & corrected:
        out["From LLM-only to corrected"] = ReportFigure(
            arrows(one, focus=focus, reference=reference, by=(annotator,)),
            "Where each annotator's LLM labels alone lead, and where the human labels take it."
            + where,
            f"Arrows from the LLM-only to the corrected estimates of {len(naive & corrected)} "
            "annotators; the table of all universes has the numbers.",
        )
    known = {a: v for a, v in (accuracy or {}).items() if np.isfinite(v) and a in naive}
    if known:
        out["Accuracy and estimate"] = ReportFigure(
            accuracy_against_estimate(
                one.assign(accuracy=one[annotator].map(known)),
                focus=focus,
                reference=reference,
                annotator=annotator,
                measure=measure,
            ),
            "Annotators of nearly the same accuracy may lead to different estimates." + where,
            f"{measure} of {len(known)} annotators, from {min(known.values()):.3g} to "
            f"{max(known.values()):.3g}, against their estimates.",
        )
    return out


def _first_slice(
    ok: pd.DataFrame, dimensions: Sequence[str], annotator: str
) -> tuple[pd.DataFrame, str]:
    """Return the rows at the first level of whatever neither annotator nor correction tells."""
    one, fixed = ok, []
    for d in dimensions:
        # What the annotator tells (its model, its prompt) does not vary within it.
        told = one.groupby(annotator, observed=True)[d].nunique().max() == 1
        if d in (annotator, "correction") or told:
            continue
        first = one[d].iloc[0]
        one = one[one[d] == first]
        fixed.append(f"{d} = {first}")
    return one, ", ".join(fixed)


def _disagreement(matrix: pd.DataFrame) -> ReportFigure:
    pairs = matrix.to_numpy(dtype=float, na_value=np.nan)[np.triu_indices(len(matrix), 1)]
    known = pairs[np.isfinite(pairs)]
    span = f", from {known.min():.3g} to {known.max():.3g}" if len(known) else ""
    return ReportFigure(
        heatmap(matrix, title="Pairwise disagreement"),
        "How far every two annotators disagree; similar ones stand beside each other.",
        f"Pairwise disagreement of {len(matrix)} annotators{span}.",
    )


def _all_universes(ok: pd.DataFrame, dimensions: Sequence[str]) -> ReportTable:
    varying = [d for d in dimensions if ok[d].nunique() > 1]
    same = [f"{d} = {ok[d].iloc[0]}" for d in dimensions if d not in varying]
    later = [c for c in _LATER if c in ok.columns]
    caption = f"Estimates of {len(ok):,} universes."
    if same:
        caption += f" The same in all of them: {', '.join(same)}."
    # Estimates before choices: a phone shows the first columns.
    return ReportTable(ok[["universe", *style.ESTIMATE, *varying, *later]], caption)


def _failed(lost: pd.DataFrame, dimensions: Sequence[str]) -> pd.DataFrame:
    reason = lost["error"].fillna("").astype(str)
    return lost[["universe", *dimensions]].assign(
        reason=reason.where(reason != "", "has no finite estimate of this term")
    )
