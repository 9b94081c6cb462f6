"""The demonstration: a real study, its human labels hidden, corrected, and held to the truth."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from trueup import datasets
from trueup.api import logit
from trueup.errors import SmallSampleWarning
from trueup.study.sampling import Sampling
from trueup.study.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMULA = "positive ~ negation + exclaim + log(words) + C(source)"
FOCUS = "negation"
ALL = "all eight together"
CORRECTIONS = {"llm_only": "naive", "human_only": "human", "corrected": "auto"}


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
    table = pd.DataFrame([*rows, _row(study, ALL, "human_only", "corrected")])
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
    result = plain(FORMULA.replace("log(words)", "log_words"), data).fit(disp=0)
    return float(result.params[FOCUS])


def _row(study: Study, annotator: str, *kinds: str) -> dict[str, object]:
    row: dict[str, object] = {"annotator": annotator}
    llm = "all" if annotator == ALL else annotator
    for name in kinds or CORRECTIONS:
        with warnings.catch_warnings():
            # How many rows carry an interval is said by fit.summary(); here the table is the point.
            warnings.simplefilter("ignore", SmallSampleWarning)
            fit = logit(FORMULA, study, llm=llm, correction=CORRECTIONS[name], seed=1)
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
            if pd.notna(row[k])
            else "-"
            for k in CORRECTIONS
        ]
        lines.append(f"{row['annotator']:<20}" + "".join(f"{c:>23}" for c in cells))
    lines.append("-" * len(head))
    lines.append(f"{'all texts human-coded':<24}{truth:6.2f}")
    return "\n".join(lines)


def _lesson(table: pd.DataFrame, truth: float) -> str:
    single = table[table["annotator"] != ALL]
    together = table[table["annotator"] == ALL].iloc[0]

    def holding(kind: str) -> int:
        inside = (single[f"{kind}_low"] <= truth) & (truth <= single[f"{kind}_high"])
        return int(inside.sum())

    def width(kind: str) -> float:
        return float(together[f"{kind}_high"] - together[f"{kind}_low"])

    low, high = single["llm_only"].min(), single["llm_only"].max()
    return (
        f"LLM-only estimates run from {low:.2f} to {high:.2f}: choosing a model is choosing an "
        f"answer.\nOf {len(single)} LLM-only intervals {holding('llm_only')} holds the all-human "
        f"answer {truth:.2f}; of the corrected ones {holding('corrected')} do.\nThese annotators "
        f"are weak, so one of them alone adds little to the coders; all together narrow\nthe "
        f"interval to {width('corrected') / width('human_only'):.0%} of the human-only one."
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
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.13), ncols=4, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure
