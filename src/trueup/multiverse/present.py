"""A multiverse in words, in figures, and as a page."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from trueup.diagnostics.disagreement import disagreement
from trueup.errors import ArgumentError, TrueupError
from trueup.multiverse.decompose import annotator_scores
from trueup.multiverse.joint import counted
from trueup.multiverse.multiverse import Multiverse
from trueup.report.content import failed_report_content, range_sentences, report_content
from trueup.report.html import ReportContent, ReportTable, write_report
from trueup.report.style import human_only

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = {
    "accuracy": "Accuracy on the coded sample",
    "correlation": "Correlation with the human labels of the coded sample",
}
KINDS = ("curve", "arrows", "disagreement", "accuracy")


def plot(mv: Multiverse, kind: str, term: str | None) -> Figure:
    """Draw one of the figures of a multiverse."""
    from trueup.report import plots
    from trueup.report.curve import specification_curve

    if kind not in KINDS:
        raise ArgumentError(f"kind={kind!r} is unknown: use one of {', '.join(KINDS)}.")
    name = mv.focus if term is None else term
    if kind == "disagreement":
        return plots.heatmap(pairwise(mv), title="Share of rows on which two annotators differ")
    table = mv.tidy(name)
    shown = human_only(table)
    if kind == "curve":
        return specification_curve(table, mv.dimensions, focus=name, reference=shown)
    if kind == "arrows":
        by = [d for d in mv.dimensions if d != "correction" and table[d].nunique() > 1]
        return plots.arrows(table, focus=name, reference=shown, by=tuple(by) or ("llm",))
    measure, scores = accuracies(mv)
    table = table.assign(accuracy=table["llm"].map(scores))
    return plots.accuracy_against_estimate(
        table[table["accuracy"].notna()], focus=name, reference=shown, measure=MEASURES[measure]
    )


def accuracies(mv: Multiverse) -> tuple[str, dict[str, float]]:
    """Return what is measured (accuracy, of numbers correlation), and it by annotator.

    Raises
    ------
    ArgumentError
        If several variables are labelled: accuracy of which?
    """
    variables = mv.study.variables
    if len(variables) != 1:
        raise ArgumentError(
            f"The study has {len(variables)} labelled variables; accuracy needs one."
        )
    measure, scores = annotator_scores(mv.study, variables[0], mv.study.annotators)
    return measure, {str(a): float(x) for a, x in scores["estimate"].dropna().items()}


def pairwise(mv: Multiverse) -> pd.DataFrame:
    """Return the (K, K) shares of rows on which two annotators differ."""
    variable = mv.study.variables[0]
    labels = {a: mv.study.llm_labels(variable, a) for a in mv.study.annotators}
    return disagreement(pd.DataFrame(labels)).matrix


def printed_tests(mv: Multiverse, name: str) -> dict[str, str]:
    """Return the joint tests as text; a test that does not apply says why."""
    tests: dict[str, Callable[[], object]] = {
        "Do the annotators agree?": lambda: mv.agree_test(name),
        "The curve as a whole": lambda: mv.curve_test(name),
        "Flips of sign and significance": lambda: mv.flips(name),
    }
    out: dict[str, str] = {}
    for title, run in tests.items():
        try:
            out[title] = str(run())
        except TrueupError as error:
            out[title] = f"Not available: {error}"
    return out


def headline(mv: Multiverse, name: str) -> list[str]:
    """Return what the tests found, a sentence each."""
    said: list[str] = []
    try:
        for row in mv.agree_test(name).tests.to_dict("records"):
            kind = row["kind"] if row["kind"] == "LLM-only" else row["correction"]
            if pd.isna(row["p_value"]):
                said.append(f"Across annotators the {kind} estimates have no difference to test.")
                continue
            verdict = "differ" if row["p_value"] < 1 - mv.level else "are not shown to differ"
            said.append(
                f"Across annotators the {kind} estimates {verdict} "
                f"({row['distribution']} = {row['statistic']:.3g}, p = {row['p_value']:.2g})."
            )
        flips = mv.flips(name)
        for row in flips.shares.to_dict("records"):
            n = row["universes"]
            kind = "LLM-only" if row["kind"] == "LLM-only" else "Human-only and corrected"
            said.append(
                f"{kind}: {counted(row['flipped'], n)} on the other side of zero from "
                f"{flips.reference}, {round(row['significant_opposite'] * n):,} significantly so."
            )
    except TrueupError as error:
        said.append(f"Joint tests are not available: {error}")
    return said


def summary(mv: Multiverse, term: str | None) -> str:
    """Return the headline: ranges, tests, failures."""
    name = mv.focus if term is None else term
    lines = [f"{len(mv.outcomes)} universes, coefficient of {name!r}.", ""]
    lines += range_sentences(mv.tidy(name))
    if _any_fitted(mv):
        for title, text in printed_tests(mv, name).items():
            lines += ["", title, text]
        if left_out := mv.left_out(name):
            lines += ["", left_out]
    failed = mv.failed()
    if len(failed):
        lines += [
            "",
            f"{len(failed)} universes failed; see .failed(). First: {failed.iloc[0]['error']}",
        ]
    return "\n".join(lines)


def _any_fitted(mv: Multiverse) -> bool:
    return any(o.status == "ok" for o in mv.outcomes)


def report(mv: Multiverse, path: Path, title: str | None, plan: str) -> Path:
    """Write the page; where no universe could be fitted, it says why."""
    name = mv.focus
    if not _any_fitted(mv):
        return write_report(path, _failed_content(mv, title, plan))
    one = len(mv.study.variables) == 1
    measure, scores = accuracies(mv) if one else ("accuracy", {})
    seconds = sum(o.seconds for o in mv.outcomes)
    tables = {}
    try:
        tables["What each dimension does"] = ReportTable(
            mv.decompose(name).table.reset_index(),
            "Share of the spread across universes due to each choice, sampling noise taken out.",
        )
    except TrueupError as error:
        tables["What each dimension does"] = ReportTable(
            pd.DataFrame({"reason": [str(error)]}), "The spread was not decomposed."
        )
    table = mv.tidy(name)
    content = report_content(
        table,
        mv.dimensions,
        focus=name,
        title=title,
        study=str(mv.study),
        formulas=sorted({o.universe.formula for o in mv.outcomes}),
        reference=human_only(table),
        accuracy=scores if one else None,
        measure=MEASURES[measure],
        disagreement=pairwise(mv) if one and len(mv.study.annotators) > 1 else None,
        headline=headline(mv, name),
        tests=printed_tests(mv, name),
        tables=tables,
        warnings=[left_out] if (left_out := mv.left_out(name)) else [],
        plan=plan,
        seed=mv.seed,
        created=_now(),
        seconds=seconds,
    )
    return write_report(path, content)


def _failed_content(mv: Multiverse, title: str | None, plan: str) -> ReportContent:
    """Return the page of a multiverse in which nothing could be fitted."""
    return failed_report_content(
        mv.tidy(),
        mv.dimensions,
        focus=mv.focus,
        title=title,
        study=str(mv.study),
        formulas=sorted({o.universe.formula for o in mv.outcomes}),
        plan=plan,
        seed=mv.seed,
        created=_now(),
        seconds=sum(o.seconds for o in mv.outcomes),
    )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
