"""From replications to the table that is kept, and the page that sums it up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from .data import truth
from .design import Cell
from .methods import uses_one_llm
from .shards import load

TABLE = Path(__file__).with_name("table.csv")
#: Coverage that is aimed at.
AIM = (0.94, 0.965)
WORST = 10
#: Methods that take LLM labels for true.
NOT_VALID = ("naive", "statsmodels")


def cell_table(cell: Cell, draws: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each method of a cell.

    Columns: ``reps``; ``bias_sd`` bias over SD; ``sd_human`` SD over that of human-only; ``se_sd``
    mean standard error over SD; ``coverage`` of the 95% interval and ``mc_error``,
    its Monte Carlo error; ``below`` and ``above``, shares of intervals wholly below and above the
    truth; ``width``, median width, and ``width_human``, over that of human-only; ``sd_best``, SD
    over the smallest of all valid methods that use no more LLMs; ``failures``, share of
    replications without a number (left out of all others), and the most frequent reason;
    ``warned``, share of replications with a warning.
    """
    rows = [
        {"cell": cell.id, "method": method, **_measures(group, truth(cell))}
        for method, group in draws.groupby("method", sort=False)
    ]
    table = pd.DataFrame(rows)
    human = table.loc[table["method"] == "human"]
    for column in ("sd", "width"):
        base = human[column].iloc[0] if len(human) else np.nan
        table[f"{column}_human"] = table[column] / base
    valid = table[~table["method"].isin(NOT_VALID)]
    one = valid["method"].map(uses_one_llm)
    best = {False: valid["sd"].min(), True: valid.loc[one, "sd"].min()}
    table["sd_best"] = valid["sd"] / one.map(best)  # none for methods that are not valid
    return table


def _measures(draws: pd.DataFrame, target: float) -> dict[str, float | str | int]:
    done = draws[draws["failure"] == ""]
    reasons = draws.loc[draws["failure"] != "", "failure"]
    out: dict[str, float | str | int] = {
        "reps": len(draws),
        "failures": len(reasons) / len(draws),
        "reason": reasons.mode().iloc[0] if len(reasons) else "",
    }
    if len(done) < 2:
        return out
    sd = done["estimate"].std()
    below, above = (done["high"] < target).mean(), (done["low"] > target).mean()
    cover = 1.0 - below - above
    return out | {
        "bias_sd": (done["estimate"].mean() - target) / sd,
        "sd": sd,
        "se_sd": done["se"].mean() / sd,
        "coverage": cover,
        "mc_error": float(np.sqrt(cover * (1.0 - cover) / len(done))),
        "below": below,
        "above": above,
        "width": (done["high"] - done["low"]).median(),
        "informative": done["informative"].median(),
        "warned": done["warned"].mean(),
    }


COLUMNS = [
    "cell",
    "held_out",
    "method",
    "reps",
    "bias_sd",
    "sd",
    "sd_human",
    "sd_best",
    "se_sd",
    "coverage",
    "mc_error",
    "below",
    "above",
    "width",
    "width_human",
    "informative",
    "warned",
    "failures",
    "reason",
]


def build(work: Path, cells: Iterable[Cell]) -> pd.DataFrame:
    """Return the table of all cells that have replications."""
    parts = []
    for cell in cells:
        draws = load(work, cell)
        if len(draws):
            parts.append(cell_table(cell, draws).assign(held_out=cell.held_out))
    if not parts:
        raise SystemExit(f"There are no replications in {work}: run some first.")
    return pd.concat(parts, ignore_index=True).reindex(columns=COLUMNS)


def merge(new: pd.DataFrame, path: Path = TABLE) -> pd.DataFrame:
    """Return the kept table, in which new rows replace those of the same cell and method."""
    if not path.exists():
        return new
    kept = pd.read_csv(path, keep_default_na=False, na_values=[""])
    both = pd.concat([kept, new], ignore_index=True)
    both = both.drop_duplicates(["cell", "method"], keep="last")
    both["reason"] = both["reason"].fillna("")
    methods = {m: i for i, m in enumerate(dict.fromkeys([*new["method"], *both["method"]]))}
    order = sorted(
        range(len(both)),
        key=lambda i: (_order(both["cell"].iloc[i]), methods[both["method"].iloc[i]]),
    )
    return both.iloc[order].reset_index(drop=True)


def _order(cell: str) -> tuple[bool, str]:
    return (cell[0] != "f", cell)


def write_table(table: pd.DataFrame, path: Path = TABLE) -> None:
    """Write the table with four significant digits, so that changes are easy to see."""
    table.to_csv(path, index=False, float_format="%.4g", lineterminator="\n")


def page(table: pd.DataFrame, cells: Mapping[str, Cell]) -> str:
    """Return the summary: every method over all cells, tuned and held out, and its worst cells."""
    known = table[table["cell"].isin(list(cells))]
    text = [
        "# Do the intervals hold?",
        "",
        "Written by `python -m tests.simulation.validity.run` from the table beside it. Cells are "
        "described in `cells.csv`. Intervals of 95%; `inside`: share of cells with coverage in "
        f"{AIM[0]:g}-{AIM[1]:g}; `inside, allowing`: the same where coverage is within two Monte "
        "Carlo errors of that range; `near the best`: share of cells with an SD no more than 3% "
        "above the smallest of all valid methods run that use no more LLMs. SD, width, SE / SD: "
        "medians over cells. Nothing was tuned on cells that are held out.",
        "",
    ]
    blocks = {
        "All cells": known,
        "Cells open to tuning": known[~known["held_out"].astype(bool)],
        "Cells held out": known[known["held_out"].astype(bool)],
    }
    for title, part in blocks.items():
        if len(part):
            text += [f"## {title}", "", *_overview(part), ""]
    for method, part in known.groupby("method", sort=False):
        if method not in NOT_VALID:
            text += [f"## Worst cells of {method}", "", *_worst(part, cells), ""]
    return "\n".join(text)


def _overview(table: pd.DataFrame) -> list[str]:
    lines = [
        "| method | cells | replications | lowest | mean | highest | inside | inside, allowing "
        "| SD / human-only | near the best | width / human-only | SE / SD | failures | warned |",
        "|---" * 14 + "|",
    ]
    for method, part in table.groupby("method", sort=False):
        cover, error = part["coverage"], part["mc_error"]
        inside = cover.between(*AIM).mean()
        allowing = ((cover >= AIM[0] - 2 * error) & (cover <= AIM[1] + 2 * error)).mean()
        near = "" if method in NOT_VALID else f"{(part['sd_best'] <= 1.03).mean():.2f}"
        lines.append(
            f"| {method} | {len(part)} | {part['reps'].min()}-{part['reps'].max()} "
            f"| {cover.min():.3f} | {cover.mean():.3f} | {cover.max():.3f} "
            f"| {inside:.2f} | {allowing:.2f} | {part['sd_human'].median():.2f} "
            f"| {near} | {part['width_human'].median():.2f} | {part['se_sd'].median():.2f} "
            f"| {part['failures'].mean():.3f} | {part['warned'].mean():.2f} |"
        )
    return lines


def _worst(table: pd.DataFrame, cells: Mapping[str, Cell]) -> list[str]:
    """Return the cells furthest outside the aim, by name; lack of coverage counts double."""
    low, high = AIM
    short = np.maximum(low - table["coverage"], 0.0)
    over = np.maximum(table["coverage"] - high, 0.0)
    distance = (2.0 * short + over).fillna(np.inf)
    worst = table.assign(distance=distance)
    worst = worst[worst["distance"] > 0].nlargest(WORST, "distance")
    if worst.empty:
        return [f"None: every cell is inside {low:g}-{high:g}."]
    lines = [
        "| cell | coverage | below | above | bias / SD | SE / SD | SD / human-only | warned "
        "| failures |",
        "|---" * 9 + "|",
    ]
    for row in worst.itertuples():
        lines.append(
            f"| {cells[row.cell].name} | {row.coverage:.3f} ({row.mc_error:.3f}) "
            f"| {row.below:.3f} | {row.above:.3f} | {row.bias_sd:.2f} | {row.se_sd:.2f} "
            f"| {row.sd_human:.2f} | {row.warned:.2f} | {row.failures:.3f} |"
        )
    return lines
