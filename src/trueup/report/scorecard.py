"""A scorecard: one row for each annotator, one narrow panel for each criterion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from trueup.errors import ArgumentError
from trueup.report import style
from trueup.results.fonts import readable
from trueup.study.design import Float

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Marker and colour of values without and with a flag (Okabe and Ito's palette).
_PLAIN, _FLAGGED = ("o", "#0072B2"), ("s", "#D55E00")
#: Smaller p-values stand at the edge of their panel.
_SMALLEST_P = 1e-6
_NAME_WIDTH = 30
#: Inches of a row with few and with many annotators, and of a panel.
_TALL, _LOW, _PANEL = 0.3, 0.19, 1.45
#: Up to this many annotators the rows are tall.
_FEW = 15


@dataclass(frozen=True, slots=True)
class Criterion:
    """One panel of a scorecard.

    Parameters
    ----------
    column : str
        Column of the table with the values.
    title : str
        Heading; ``\\n`` breaks it.
    better : {"more", "less", "near"}
        Where good values lie: to the right, to the left, or near the reference.
    low, high : str, optional
        Columns with the ends of an interval.
    reference : float, optional
        Value that the panel's line marks.
    band : float, optional
        Half the width of the shaded band around the reference.
    flag : str, optional
        Column that says which values are marked as a warning.
    scale : {"linear", "p-value"}
    """

    column: str
    title: str
    better: Literal["more", "less", "near"]
    low: str | None = None
    high: str | None = None
    reference: float | None = None
    band: float | None = None
    flag: str | None = None
    scale: Literal["linear", "p-value"] = "linear"

    @property
    def columns(self) -> list[str]:
        """Columns of the table that the panel reads."""
        return [c for c in (self.column, self.low, self.high, self.flag) if c is not None]


@readable
def scorecard(
    table: pd.DataFrame,
    criteria: Sequence[Criterion],
    *,
    title: str,
    flagged: str = "flagged",
    names: str = "annotator",
) -> Figure:
    """Draw one row for each annotator and one panel for each criterion.

    Every panel has its own scale, so that each criterion is read for itself: there is no
    overall grade. Values that are not known are a dash.

    Parameters
    ----------
    table : DataFrame
        One row for each annotator, from top to bottom.
    criteria : sequence of Criterion
        Panels, from left to right.
    title : str
    flagged : str
        What a flag means, for the legend.
    names : str
        Column with the names of the annotators.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ArgumentError
        If a column is missing, or there are no rows or no criteria.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"annotator": ["a", "b"], "accuracy": [0.9, 0.8]})
    >>> figure = scorecard(table, [Criterion("accuracy", "Accuracy", "more")], title="Two")
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['a', 'b']
    """
    from matplotlib import pyplot as plt

    _check(table, criteria, names)
    K, m = len(table), len(criteria)
    step = _TALL if K <= _FEW else _LOW
    figure, grid = plt.subplots(
        1,
        m,
        sharey=True,
        squeeze=False,
        figsize=(2.2 + _PANEL * m, K * step + 1.7),
        layout="constrained",
    )
    plt.close(figure)
    for axes, criterion in zip(grid[0], criteria, strict=True):
        _panel(axes, table, criterion)
    first = grid[0][0]
    size = 8.5 if K <= _FEW else 7.0
    first.set_yticks(range(K), style.short_names(table[names], _NAME_WIDTH), fontsize=size)
    first.set_ylim(K - 0.5, -0.5)
    if any(c.flag is not None for c in criteria):
        keys = [
            style.key("not " + flagged, _PLAIN[1], _PLAIN[0]),
            style.key(flagged, _FLAGGED[1], _FLAGGED[0]),
        ]
        style.legend(figure, keys, title)
    else:
        figure.suptitle(style.plain(title), x=0.01, ha="left", fontsize=12)
    return figure


def _check(table: pd.DataFrame, criteria: Sequence[Criterion], names: str) -> None:
    if not len(table) or not len(criteria):
        raise ArgumentError("A scorecard needs at least one annotator and one criterion.")
    for column in [names, *(c for criterion in criteria for c in criterion.columns)]:
        if column not in table.columns:
            raise ArgumentError(
                f"The table of the scorecard lacks the column {column!r}. It has: "
                f"{', '.join(map(repr, table.columns))}."
            )


def _panel(axes: Axes, table: pd.DataFrame, criterion: Criterion) -> None:
    values = style.numbers(table, criterion.column)
    for y in range(0, len(table), 2):
        axes.axhspan(y - 0.5, y + 0.5, color="0.955", linewidth=0, zorder=0)
    _line(axes, criterion)
    known = np.isfinite(values)
    if criterion.low is not None and criterion.high is not None:
        low, high = (style.numbers(table, c) for c in (criterion.low, criterion.high))
        axes.hlines(np.arange(len(values)), low, high, color="0.55", lw=1.1, zorder=2)
    flags = _flags(table, criterion)
    _points(axes, _clipped(values, criterion), known, flags, len(table) > _FEW)
    place = axes.get_yaxis_transform()
    for gap in np.flatnonzero(~known):
        axes.text(0.5, float(gap), "–", transform=place, ha="center", va="center", color="0.45")
    _dress(axes, criterion, bool(known.any()))


def _flags(table: pd.DataFrame, criterion: Criterion) -> Float:
    if criterion.flag is None:
        return np.zeros(len(table))
    return table[criterion.flag].fillna(False).to_numpy(dtype=float)


def _clipped(values: Float, criterion: Criterion) -> Float:
    return np.maximum(values, _SMALLEST_P) if criterion.scale == "p-value" else values


def _points(axes: Axes, values: Float, known: Float, flags: Float, small: bool) -> None:
    y = np.arange(len(values))
    for flag, (marker, colour) in enumerate((_PLAIN, _FLAGGED)):
        at = known.astype(bool) & (flags == flag)
        (points,) = axes.plot(
            values[at],
            y[at],
            ls="none",
            marker=marker,
            color=colour,
            ms=4 if small else 5.5,
            zorder=3,
            clip_on=False,
        )
        # A line without points has its place at the corner of the figure.
        points.set_in_layout(False)


def _line(axes: Axes, criterion: Criterion) -> None:
    if criterion.reference is None:
        return
    at = criterion.reference
    if criterion.band is not None:
        low, high = at - criterion.band, at + criterion.band
        axes.axvspan(low, high, color="#56B4E9", alpha=0.22, linewidth=0, zorder=0.5)
    axes.axvline(at, color="0.35", lw=0.9, ls="--", zorder=1)


_ARROW = {"more": "better →", "less": "← better", "near": "better near the line"}


def _dress(axes: Axes, criterion: Criterion, known: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    lines = criterion.title.split("\n")
    axes.set_title("\n".join(map(style.plain, lines)), fontsize=8.5)
    axes.set_xlabel(_ARROW[criterion.better], fontsize=7.5, color="0.35")
    axes.tick_params(axis="both", length=0, labelsize=7.5)
    style.bare(axes, "top", "right", "left")
    if criterion.scale == "p-value":
        axes.set_xscale("log")
        axes.set_xlim(_SMALLEST_P * 0.6, 1.5)
        axes.set_xticks([_SMALLEST_P, 1e-3, 1.0], ["≤1e-6", ".001", "1"])
        axes.minorticks_off()
    elif known:
        axes.margins(x=0.12)
        axes.xaxis.set_major_locator(MaxNLocator(3))
    else:
        axes.set_xticks([])
