"""Figures of many annotators: arrows, disagreement, accuracy beside estimates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from trueup.errors import ArgumentError
from trueup.report import style
from trueup.report.curve import specification_curve
from trueup.report.labels import place_labels
from trueup.report.style import Reference
from trueup.results.compare import CORRECTED, HUMAN_ONLY, LLM_ONLY
from trueup.results.fonts import readable
from trueup.study.design import Float, Int

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

__all__ = ["Reference", "accuracy_against_estimate", "arrows", "heatmap", "specification_curve"]

#: Estimate, lower and upper end of its interval; those of one annotator, by correction.
_End = tuple[float, float, float]
_Row = dict[str, _End]

_NAME_WIDTH = 38
#: Up to this many annotators the numbers stand in the cells of a heat map.
_ANNOTATED = 15
#: Inches: a cell of a heat map with and without numbers, and the largest map.
_CELL, _SMALL_CELL, _LARGEST = 0.5, 0.17, 14.0


@readable
def arrows(
    table: pd.DataFrame,
    *,
    focus: str,
    reference: Reference | Sequence[Reference] | None = None,
    by: Sequence[str] = ("llm",),
) -> Figure:
    """Draw an arrow from the LLM-only to the corrected estimate of each annotator.

    Where the annotators scatter before and meet after the correction, the human labels have
    taken out what each LLM added.

    Parameters
    ----------
    table : DataFrame, one row per universe
        Columns ``estimate``, ``conf_low``, ``conf_high``, ``correction`` and those of ``by``;
        ``status`` where present. Human-only universes are ignored: give them as ``reference``.
    focus : str
        The term that was estimated, for the axis.
    reference : Reference or sequence of Reference, optional
    by : sequence of str
        Columns that make a row of the figure; at most one universe per row and correction.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ArgumentError
        When columns are missing, no row has both an LLM-only and a corrected estimate, or a row
        has two universes with the same correction.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "llm": ["a", "b", "a", "b"], "correction": ["naive", "naive", "dsl", "dsl"],
    ...     "estimate": [0.2, 0.9, 0.5, 0.6], "conf_low": [0.1, 0.8, 0.2, 0.3],
    ...     "conf_high": [0.3, 1.0, 0.8, 0.9]})
    >>> figure = arrows(table, focus="treated")
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['a', 'b']
    """
    from matplotlib import pyplot as plt

    given = style.references(reference)
    needed = ["estimate", "conf_low", "conf_high", "correction", *by]
    ok = style.checked(table, needed, "arrows")
    ok = ok.assign(kind=[style.kind_of(str(c)) for c in ok["correction"]])
    ok = ok[ok["kind"] != HUMAN_ONLY]
    rows = _arrow_rows(ok, by)
    corrections = [str(c) for c in pd.unique(ok.loc[ok["kind"] == CORRECTED, "correction"])]
    step = 0.17 * len(corrections) + 0.15
    figure, axes = plt.subplots(figsize=(7.5, len(rows) * step + 1.2), layout="constrained")
    plt.close(figure)
    keys = style.draw_references(axes, given, vertical=True)
    for y, row in enumerate(rows.values()):
        _draw_arrows(axes, y, row, corrections)
    style.legend(figure, [*_arrow_keys(corrections), *keys])
    _dress_arrows(axes, ok, given, [" · ".join(map(str, key)) for key in rows], focus)
    return figure


def _arrow_rows(table: pd.DataFrame, by: Sequence[str]) -> dict[tuple[str, ...], _Row]:
    """Return rows of the figure that have both ends, by rising LLM-only estimate."""
    double = table.duplicated([*by, "correction"], keep=False)
    if double.any():
        first = table[double].iloc[0]
        varying = [c for c in table.columns if c not in by and table[double][c].nunique() > 1]
        raise ArgumentError(
            f"Two universes have {', '.join(f'{c} = {first[c]!r}' for c in [*by, 'correction'])}. "
            "Select rows of the table such that one is left, or add the columns in which they "
            f"differ to by= (they differ in {', '.join(map(repr, varying))})."
        )
    found: dict[tuple[str, ...], _Row] = {}
    ends = zip(*(style.numbers(table, c) for c in style.ESTIMATE), strict=True)
    keys = table[list(by)].astype(str).itertuples(index=False, name=None)
    for key, correction, kind, end in zip(
        keys, table["correction"], table["kind"], ends, strict=True
    ):
        name = LLM_ONLY if kind == LLM_ONLY else str(correction)
        found.setdefault(key, {})[name] = end
    both = {key: row for key, row in found.items() if LLM_ONLY in row and len(row) > 1}
    if not both:
        raise ArgumentError(
            f"No {' x '.join(by)} has both an LLM-only ('naive') and a corrected estimate. Put "
            "'naive' and another correction into the grid."
        )
    return dict(sorted(both.items(), key=lambda item: item[1][LLM_ONLY][0]))


def _draw_arrows(axes: Axes, y: int, row: _Row, corrections: Sequence[str]) -> None:
    """Draw the LLM-only end at the top of a row, the corrected ends below it."""
    top = y - 0.22
    for k, correction in enumerate(corrections):
        if correction in row:
            at = top + 0.62 * (k + 1) / (len(corrections) + 1)
            _end(axes, row[correction], at, *style.CORRECTIONS[k % len(style.CORRECTIONS)])
            axes.annotate(
                "",
                (row[correction][0], at),
                (row[LLM_ONLY][0], top),
                arrowprops={"arrowstyle": "->", "color": "0.45", "shrinkA": 3, "shrinkB": 3},
                zorder=2,
            )
    _end(axes, row[LLM_ONLY], top, style.COLOUR[LLM_ONLY], style.MARKER[LLM_ONLY])


def _end(axes: Axes, end: _End, y: float, colour: str, marker: str) -> None:
    estimate, low, high = end
    if np.isfinite(low) and np.isfinite(high):
        axes.hlines(y, low, high, color=colour, linewidth=1.3, alpha=0.75)
    axes.plot(estimate, y, marker, color=colour, markersize=5, zorder=3)


def _arrow_keys(corrections: Sequence[str]) -> list[Line2D]:
    keys = [style.key(LLM_ONLY, style.COLOUR[LLM_ONLY], style.MARKER[LLM_ONLY])]
    for k, name in enumerate(corrections):
        label = f"{CORRECTED}: {style.plain(style.shorten(name, 24))}"
        keys.append(style.key(label, *style.CORRECTIONS[k % len(style.CORRECTIONS)]))
    return keys


def _dress_arrows(
    axes: Axes,
    table: pd.DataFrame,
    given: Sequence[Reference],
    names: Sequence[str],
    focus: str,
) -> None:
    limits = style.frame_limits(*(style.numbers(table, c) for c in style.ESTIMATE))
    limits = style.widen(limits, [v for r in given for v in r.drawn])
    if limits[0] < 0 < limits[1]:
        axes.axvline(0.0, color="0.35", linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    axes.set_xlim(limits)
    axes.set_yticks(np.arange(len(names)), style.short_names(names, _NAME_WIDTH), fontsize=8.5)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"Coefficient of {style.plain(style.shorten(focus, 48))}, with intervals")
    for y in np.arange(0.5, len(names) - 1):
        axes.axhline(y, color="0.92", linewidth=0.8, zorder=0)
    style.bare(axes, "top", "right", "left")


@readable
def heatmap(matrix: pd.DataFrame, *, title: str, ordered: bool = True) -> Figure:
    """Draw how far every two annotators disagree.

    Parameters
    ----------
    matrix : (K, K) DataFrame
        Symmetric, annotators as index and columns, for example the share of rows on which two
        annotators give different labels. Unknown cells (NaN) are grey.
    title : str
        What the numbers are.
    ordered : bool
        Put similar annotators beside each other (average-linkage clustering).

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ArgumentError
        When the matrix is not square and symmetric, or has negative or infinite entries.

    Examples
    --------
    >>> import pandas as pd
    >>> names = ["a", "b", "c"]
    >>> matrix = pd.DataFrame([[0, .4, .1], [.4, 0, .3], [.1, .3, 0]], names, names)
    >>> figure = heatmap(matrix, title="Pairwise disagreement")
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['b', 'c', 'a']
    """
    from matplotlib import colormaps
    from matplotlib import pyplot as plt

    values = _square(matrix)
    order = _similar_first(values) if ordered and len(values) > 2 else np.arange(len(values))
    values = values[np.ix_(order, order)]
    k = len(values)
    cell = min(_CELL if k <= _ANNOTATED else _SMALL_CELL, _LARGEST / k)
    figure, axes = plt.subplots(
        figsize=(max(k * cell, 2.0) + 3.4, max(k * cell, 1.2) + 2.4), layout="constrained"
    )
    plt.close(figure)
    off_diagonal = values[~np.eye(k, dtype=bool)]
    top = float(np.nanmax(off_diagonal)) if np.isfinite(off_diagonal).any() else 1.0
    shown = colormaps["cividis"].with_extremes(bad="0.85")
    image = axes.imshow(np.ma.masked_invalid(values), cmap=shown, vmin=0.0, vmax=top or 1.0)
    figure.colorbar(image, ax=axes, shrink=0.7, aspect=25)
    if k <= _ANNOTATED:
        _write_cells(axes, values, top)
    _name_cells(axes, [matrix.index[i] for i in order], cell)
    axes.set_title(style.plain(title), fontsize=11, loc="left")
    return figure


def _square(matrix: pd.DataFrame) -> Float:
    if not len(matrix) or list(matrix.index) != list(matrix.columns):
        raise ArgumentError(
            "The matrix of a heat map needs the same annotators, in the same order, as index and "
            f"columns; this one is {matrix.shape[0]} x {matrix.shape[1]}."
        )
    values = matrix.to_numpy(dtype=float, na_value=np.nan)
    if not np.allclose(values, values.T, equal_nan=True):
        raise ArgumentError("The matrix of a heat map must be symmetric; this one is not.")
    known = values[~np.isnan(values)]
    if not (np.isfinite(known) & (known >= 0)).all():
        raise ArgumentError(
            "The matrix of a heat map holds disagreements: finite numbers of 0 or more. This one "
            f"has {known[~(np.isfinite(known) & (known >= 0))][0]:g}."
        )
    return values


def _similar_first(values: Float) -> Int:
    """Return the order of annotators in which neighbours disagree least."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    known = np.isfinite(values)
    # An unknown pair is taken as typical: it should neither join nor part two annotators.
    filled = np.where(known, values, values[known].mean() if known.any() else 0.0)
    np.fill_diagonal(filled, 0.0)
    distances = squareform((filled + filled.T) / 2, checks=False)
    tree = linkage(distances, method="average", optimal_ordering=True)
    return np.asarray(leaves_list(tree), dtype=np.int64)


def _write_cells(axes: Axes, values: Float, top: float) -> None:
    places = 2 if top >= 0.1 else 3
    for i, j in np.ndindex(*values.shape):
        if np.isfinite(values[i, j]):
            dark = values[i, j] < 0.55 * top
            text = f"{values[i, j]:.{places}f}" if i != j else f"{values[i, j]:.2g}"
            colour = "white" if dark else "black"
            axes.text(j, i, text, ha="center", va="center", fontsize=7.5, color=colour)


def _name_cells(axes: Axes, names: Sequence[object], cell: float) -> None:
    """Name the cells; where even the smallest letters would touch, only some of them."""
    size = float(np.clip(cell * 72 * 0.62, 5.0, 8.5))
    every = max(int(np.ceil(size * 1.15 / (cell * 72))), 1)
    at = np.arange(0, len(names), every)
    short = style.short_names(names, 30)
    labels = [short[i] for i in at]
    axes.set_xticks(at, labels, rotation=90, fontsize=size)
    axes.set_yticks(at, labels, fontsize=size)
    axes.tick_params(length=0)
    style.bare(axes, "top", "right", "left", "bottom")


@readable
def accuracy_against_estimate(
    table: pd.DataFrame,
    *,
    focus: str,
    reference: Reference | Sequence[Reference] | None = None,
    annotator: str = "llm",
    measure: str = "Accuracy on the coded sample",
) -> Figure:
    """Draw each annotator's estimate against its accuracy.

    The figure shows how little a benchmark tells: annotators of the same accuracy stand on one
    vertical line, their LLM-only estimates anywhere on it.

    Parameters
    ----------
    table : DataFrame, one row per universe
        Columns ``accuracy``, ``estimate``, ``conf_low``, ``conf_high``, ``correction`` and the
        annotator; ``status`` where present. LLM-only universes are points with intervals and a
        name, corrected ones small open circles; human-only ones are ignored.
    focus : str
        The term that was estimated, for the axis.
    reference : Reference or sequence of Reference, optional
    annotator : str
        Column with the names of the annotators.
    measure : str
        What ``accuracy`` is (for numbers as labels, a correlation).

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ArgumentError
        When columns are missing, or no LLM-only universe has an estimate and an accuracy.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "llm": ["a", "b"], "correction": ["naive", "naive"], "accuracy": [0.85, 0.86],
    ...     "estimate": [0.2, 0.9], "conf_low": [0.1, 0.8], "conf_high": [0.3, 1.0]})
    >>> figure = accuracy_against_estimate(table, focus="treated")
    >>> figure.axes[0].get_ylabel()
    'Coefficient of treated'
    """
    from matplotlib import pyplot as plt

    given = style.references(reference)
    needed = ["accuracy", *style.ESTIMATE, "correction", annotator]
    ok = style.checked(table, needed, "accuracy plot")
    kind = np.array([style.kind_of(str(c)) for c in ok["correction"]])
    known = np.isfinite(style.numbers(ok, "accuracy"))
    naive, corrected = ok[known & (kind == LLM_ONLY)], ok[known & (kind == CORRECTED)]
    if not len(naive):
        raise ArgumentError(
            "No LLM-only ('naive') universe has an estimate and an accuracy: put 'naive' into "
            "the grid, and take an annotator whose labels can be held against human labels."
        )
    size = (7.5, 5.2) if len(naive) <= _ANNOTATED else (9.5, 6.5)
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    plt.close(figure)
    keys = style.draw_references(axes, given, vertical=False)
    keys[:0] = [style.key(LLM_ONLY, style.COLOUR[LLM_ONLY], style.MARKER[LLM_ONLY])]
    if len(corrected):
        keys[1:1] = [style.key(CORRECTED, style.COLOUR[CORRECTED], "o", filled=False)]
    style.legend(figure, keys)
    _draw_accuracy(axes, naive, corrected)
    _dress_accuracy(axes, naive, corrected, given, focus, measure)
    _name_points(figure, axes, naive, corrected, annotator)
    return figure


def _name_points(
    figure: Figure, axes: Axes, naive: pd.DataFrame, corrected: pd.DataFrame, annotator: str
) -> None:
    names = style.short_names(naive[annotator], 28)
    x, y = style.numbers(naive, "accuracy"), _estimate(naive)
    others = np.column_stack([style.numbers(corrected, "accuracy"), _estimate(corrected)])
    measure = axes.get_xlabel()
    # The line of the note is there before names are placed, since it moves the frame.
    axes.set_xlabel(f"{measure}\n")
    left_out = place_labels(axes, np.column_stack([x, y]), names, others)
    note = f"({left_out} of {len(names)} names left out for lack of room)" if left_out else ""
    axes.set_xlabel(f"{measure}\n{note}")


def _estimate(table: pd.DataFrame) -> Float:
    return style.numbers(table, "estimate")


def _draw_accuracy(axes: Axes, naive: pd.DataFrame, corrected: pd.DataFrame) -> None:
    x, colour = style.numbers(naive, "accuracy"), style.COLOUR[LLM_ONLY]
    size = float(np.clip(40 / np.sqrt(len(naive)), 3.0, 6.0))
    low, high = style.numbers(naive, "conf_low"), style.numbers(naive, "conf_high")
    drawn = np.isfinite(low) & np.isfinite(high)
    axes.vlines(x[drawn], low[drawn], high[drawn], color=colour, linewidth=0.2 * size, alpha=0.55)
    marker = style.MARKER[LLM_ONLY]
    axes.plot(x, _estimate(naive), marker, color=colour, markersize=size, zorder=4)
    if len(corrected):
        axes.plot(
            style.numbers(corrected, "accuracy"),
            _estimate(corrected),
            "o",
            markerfacecolor="none",
            markeredgecolor=style.COLOUR[CORRECTED],
            markeredgewidth=0.8,
            markersize=0.8 * size,
            zorder=3,
        )


def _dress_accuracy(
    axes: Axes,
    naive: pd.DataFrame,
    corrected: pd.DataFrame,
    given: Sequence[Reference],
    focus: str,
    measure: str,
) -> None:
    limits = style.frame_limits(*(style.numbers(naive, c) for c in style.ESTIMATE))
    limits = style.widen(limits, [*(v for r in given for v in r.drawn), *_estimate(corrected)])
    axes.set_ylim(limits)
    axes.margins(x=0.08)
    if limits[0] < 0 < limits[1]:
        axes.axhline(0.0, color="0.35", linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    axes.set_xlabel(style.plain(measure))
    axes.set_ylabel(style.coefficient(focus))
    style.bare(axes, "top", "right")
