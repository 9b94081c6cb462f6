"""The demonstration: a real study, its human labels hidden, corrected, and held to the truth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from trueup import datasets
from trueup.api import logit
from trueup.study.sampling import Sampling
from trueup.study.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMULA = "positive ~ exclaim + log(words) + C(source)"
FOCUS = "exclaim"


def run(figure: Path, say: Callable[[str], object] = print) -> pd.DataFrame:
    """Correct the sentiment study for every annotator and print the comparison.

    Parameters
    ----------
    figure : Path
        Where the figure is saved.
    say : callable
        Receives each line of text.

    Returns
    -------
    DataFrame
        One row for each annotator: LLM-only, human-only and corrected estimate of the focal
        coefficient with intervals, and the all-human answer.
    """
    texts = datasets.load("sentiment")
    truth = all_human(texts)
    # From here on the human label exists on the calibration sample only.
    texts["coder"] = texts["positive"].where(texts["coded_stratified"] == 1)
    texts = texts.drop(columns="positive")
    study = Study(
        texts,
        human={"positive": "coder"},
        llm={"positive": "{model}__{prompt}"},
        sampling=Sampling(strata="stratum"),
    )
    say(str(study))
    say("")
    say(f"Question: {FORMULA}, coefficient of {FOCUS!r} (log odds).")
    say("Each annotator's labels alone, the coders' sample alone, and the corrected fit:")
    say("")
    rows = [_row(study, annotator) for annotator in study.annotators]
    table = pd.DataFrame(rows)
    table["all_human"] = truth
    say(_text(table, truth))
    say("")
    say(_lesson(table, truth))
    _draw(table, truth).savefig(figure, dpi=150)
    say("")
    say(f"Figure saved: {figure.resolve()}")
    return table


def all_human(texts: pd.DataFrame) -> float:
    """Return the focal coefficient with every text labelled by humans."""
    from statsmodels.formula.api import logit as plain

    data = texts.assign(log_words=np.log(texts["words"]))
    result = plain("positive ~ exclaim + log_words + C(source)", data).fit(disp=0)
    return float(result.params[FOCUS])


def _row(study: Study, annotator: str) -> dict[str, object]:
    row: dict[str, object] = {"annotator": annotator}
    for name, correction in (("llm_only", "naive"), ("human_only", "human"), ("corrected", "auto")):
        fit = logit(FORMULA, study, llm=annotator, correction=correction, seed=1)
        line = fit.tidy().set_index("term").loc[FOCUS]
        row[name] = line["estimate"]
        row[f"{name}_low"], row[f"{name}_high"] = line["conf_low"], line["conf_high"]
    return row


def _text(table: pd.DataFrame, truth: float) -> str:
    head = f"{'annotator':<20}{'LLM only':>23}{'human only':>23}{'corrected':>23}"
    lines = [head, "-" * len(head)]
    for row in table.to_dict("records"):
        cells = [
            f"{row[k]:6.2f} [{row[k + '_low']:5.2f}, {row[k + '_high']:5.2f}]"
            for k in ("llm_only", "human_only", "corrected")
        ]
        lines.append(f"{row['annotator']:<20}" + "".join(f"{c:>23}" for c in cells))
    lines.append("-" * len(head))
    lines.append(f"{'all texts human-coded':<24}{truth:6.2f}")
    return "\n".join(lines)


def _lesson(table: pd.DataFrame, truth: float) -> str:
    def covers(k: str) -> int:
        return int(((table[f"{k}_low"] <= truth) & (truth <= table[f"{k}_high"])).sum())

    low, high = table["llm_only"].min(), table["llm_only"].max()
    width = (table["corrected_high"] - table["corrected_low"]).median()
    human = (table["human_only_high"] - table["human_only_low"]).median()
    return (
        f"LLM-only estimates run from {low:.2f} to {high:.2f}: choosing a model is choosing an "
        f"answer.\nOf {len(table)} LLM-only intervals {covers('llm_only')} hold the all-human "
        f"answer {truth:.2f}; of the corrected ones {covers('corrected')} do, at "
        f"{width / human:.0%} of the human-only width."
    )


def _draw(table: pd.DataFrame, truth: float) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.2 + 0.45 * len(table)), layout="constrained")
    axes = figure.subplots()
    styles = (
        ("llm_only", "LLM only", "#D55E00", "s", 0.22),
        ("human_only", "human only", "#999999", "D", 0.0),
        ("corrected", "corrected", "#0072B2", "o", -0.22),
    )
    position = np.arange(len(table))[::-1]
    for key, label, colour, marker, shift in styles:
        middle = table[key].to_numpy(float)
        error = [middle - table[f"{key}_low"], table[f"{key}_high"] - middle]
        axes.errorbar(
            middle,
            position + shift,
            xerr=error,
            fmt=marker,
            color=colour,
            label=label,
            markersize=5,
            capsize=2,
        )
    axes.axvline(truth, color="black", linewidth=1, linestyle="--", label="all texts human-coded")
    axes.set_yticks(position, table["annotator"])
    axes.set_xlabel(f"log odds ratio of {FOCUS!r} in {FORMULA}")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.18), ncols=4, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure
