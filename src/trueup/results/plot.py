"""The coefficient plot: LLM-only, human-only and corrected, term by term."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from trueup.errors import ArgumentError
from trueup.results.compare import CORRECTED, HUMAN_ONLY, LLM_ONLY, Comparison, Source
from trueup.results.fonts import readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart with all common colour vision deficiencies; markers
# differ as well, so that the plot survives a black-and-white printer.
_FIXED = {HUMAN_ONLY: ("#0072B2", "o"), CORRECTED: ("#000000", "D")}
_COLOURS, _MARKERS = ("#D55E00", "#CC79A7", "#E69F00", "#56B4E9"), "s^v<>pX"

#: Inches: width of the figure, height of one interval, room between terms.
_WIDTH, _STEP, _GAP = 7.0, 0.19, 0.22
#: Inches that a legend entry takes: its marker and margins, and each letter.
_ENTRY, _LETTER = 0.6, 0.085
_NAME_WIDTH = 32


@readable
def plot_comparison(
    comparison: Comparison, terms: Sequence[str] | None = None, *, intercept: bool = False
) -> Figure:
    """Draw the estimates of a comparison with their intervals (see :meth:`Fit.plot`)."""
    # pyplot, because notebooks learn from it how to show a figure; closed, because a figure
    # that pyplot holds would be shown twice.
    from matplotlib import pyplot as plt

    shown = _terms(comparison, terms, intercept=intercept)
    k = len(comparison.sources)
    spacing = k * _STEP + _GAP
    longest = max(len(_label(source)) for source in comparison.sources)
    columns = min(max(int(_WIDTH / (_ENTRY + _LETTER * longest)), 1), k)
    height = len(shown) * spacing + 0.9 + 0.22 * np.ceil(k / columns)
    figure, axes = plt.subplots(figsize=(_WIDTH, height), layout="constrained")
    plt.close(figure)
    table = comparison.tidy()
    llm_style = zip(cycle(_COLOURS), cycle(_MARKERS), strict=False)
    for i, source in enumerate(comparison.sources):
        style = next(llm_style) if source.name == LLM_ONLY else _FIXED[source.name]
        offset = (i - (k - 1) / 2) * _STEP / spacing
        _draw(axes, table, source, shown, offset, style)
    _dress(axes, comparison, shown)
    figure.legend(loc="outside upper left", ncols=columns, frameon=False)
    return figure


def _terms(
    comparison: Comparison, terms: Sequence[str] | None, *, intercept: bool
) -> tuple[str, ...]:
    if terms is None:
        shown = tuple(t for t in comparison.terms if intercept or t != "Intercept")
        return shown or comparison.terms
    wanted = (terms,) if isinstance(terms, str) else tuple(terms)
    unknown = [t for t in wanted if t not in comparison.terms]
    if unknown or not wanted:
        said = (
            f"terms={wanted!r} names no term" if not wanted else f"There is no term {unknown[0]!r}"
        )
        raise ArgumentError(f"{said}. The terms are: {', '.join(map(repr, comparison.terms))}.")
    return wanted


def _label(source: Source) -> str:
    return source.name if source.llm is None else f"{source.name}: {source.llm}"


def _draw(
    axes: Axes,
    table: pd.DataFrame,
    source: Source,
    shown: Sequence[str],
    offset: float,
    style: tuple[str, str],
) -> None:
    colour, marker = style
    same_llm = table["llm"].isna() if source.llm is None else table["llm"] == source.llm
    rows = table[(table["source"] == source.name) & same_llm].set_index("term").loc[list(shown)]
    y = np.arange(len(shown)) + offset
    axes.hlines(y, rows["conf_low"], rows["conf_high"], color=colour, linewidth=1.6)
    axes.plot(
        rows["estimate"], y, marker, color=colour, markersize=5.5, label=_label(source), zorder=3
    )


def _dress(axes: Axes, comparison: Comparison, shown: Sequence[str]) -> None:
    axes.axvline(0.0, color="0.55", linewidth=0.9, linestyle="--", zorder=0)
    names = [textwrap.fill(t, _NAME_WIDTH, break_on_hyphens=False) for t in shown]
    axes.set_yticks(np.arange(len(shown)), names)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlabel(f"Coefficient, with {comparison.level * 100:.6g}% interval")
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    for y in np.arange(0.5, len(shown) - 1):
        axes.axhline(y, color="0.92", linewidth=0.8, zorder=0)
