"""The scorecard of annotators: its record, its sentences and its figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from trueup.report.scorecard import Criterion, scorecard
from trueup.results.text import paragraph, text_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What stands for quality: accuracy for classes, correlation for numbers.
Quality = Literal["accuracy", "correlation"]

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
    """Why a number is missing, or what it leaves out: annotator, criterion, reason."""
    focus: str
    formula: str
    family: str
    correction: str
    subset: str
    variable: str
    measure: Quality
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
