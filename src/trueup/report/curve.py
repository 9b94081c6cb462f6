"""The specification curve: every universe's estimate, and the choices that made it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from trueup.errors import ArgumentError
from trueup.report import style
from trueup.results.fonts import readable
from trueup.study.design import Float, Int

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

#: Inches: height of the estimates, of a line of the lower panel, width of few and of many columns.
_TOP, _LINE, _NARROW, _WIDE = 3.3, 0.17, 7.5, 11.0
#: Inches that names take at the left, and points of an inch.
_NAMES, _POINTS = 2.2, 72.0
#: Inches of a letter of the note.
_LETTER = 0.06
_NAME_WIDTH = 34
#: From this many universes on, strokes are drawn in place of dots that would run together.
_DENSE = 90
#: A dimension with more levels than this is left out if the other dimensions tell it.
_MANY_LEVELS = 20


@dataclass(frozen=True, slots=True)
class _Curve:
    """The universes that are drawn, sorted by estimate."""

    table: pd.DataFrame
    kind: list[str]
    estimate: Float
    low: Float
    high: Float
    simultaneous_low: Float
    simultaneous_high: Float
    n_absent: int

    def of_kind(self, kind: str) -> Int:
        return np.array([i for i, k in enumerate(self.kind) if k == kind], dtype=np.int64)


@readable
def specification_curve(
    table: pd.DataFrame,
    dimensions: Sequence[str],
    *,
    focus: str,
    bands: pd.DataFrame | None = None,
    reference: style.Reference | Sequence[style.Reference] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the estimate of every universe in rising order, and below which choices made it.

    The upper panel shows one estimate per universe with its own (pointwise) interval in full
    colour and the simultaneous interval, which covers all universes jointly, behind it in a
    lighter one. LLM-only, human-only and corrected universes differ in colour and marker. The
    lower panel has a line for each level of each dimension and a dot where a universe has it.

    Parameters
    ----------
    table : DataFrame, one row per universe
        Columns ``estimate``, ``conf_low``, ``conf_high``, ``correction`` and the dimensions;
        ``status`` ("ok" or "failed") and ``simultaneous_low``, ``simultaneous_high`` are
        used where present. Universes without an estimate are counted below the figure.
    dimensions : sequence of str
        Columns of choices. Dimensions that do not vary are not shown, nor are long ones
        (over 20 levels) that the other dimensions tell (an annotator is its model and prompt).
    focus : str
        The term that was estimated, for the axis.
    bands : DataFrame, optional
        Columns ``universe``, ``simultaneous_low``, ``simultaneous_high``, matched to the
        table's ``universe``.
    reference : Reference or sequence of Reference, optional
        Lines to hold the curve against.
    title : str, optional

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ArgumentError
        When columns are missing or no universe has an estimate.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({
    ...     "llm": ["a", "b", "a", "b"], "correction": ["naive", "naive", "dsl", "dsl"],
    ...     "estimate": [0.2, 0.9, 0.5, 0.6], "conf_low": [0.1, 0.8, 0.2, 0.3],
    ...     "conf_high": [0.3, 1.0, 0.8, 0.9]})
    >>> figure = specification_curve(table, ["llm", "correction"], focus="treated")
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['Coefficient of treated', '']

    References
    ----------
    Simonsohn, Simmons and Nelson (2020). Specification curve analysis. Nature Human Behaviour 4.
    """
    from matplotlib import pyplot as plt

    given = style.references(reference)
    curve = _sorted_curve(table, dimensions, bands)
    shown = _varying(curve.table, dimensions)
    n, n_lines = len(curve.estimate), sum(len(levels) + 1 for levels in shown.values())
    width = float(np.clip(_NARROW + (n - 40) / 60, _NARROW, _WIDE))
    lower = max(n_lines * _LINE, 0.01)
    figure, (top, bottom) = plt.subplots(
        2,
        1,
        figsize=(width, _TOP + lower + 0.9),
        height_ratios=[_TOP, lower],
        layout="constrained",
    )
    plt.close(figure)
    pitch = (width - _NAMES) * _POINTS / n
    keys = style.draw_references(top, given, vertical=False)
    _draw_estimates(top, curve, given, pitch)
    top.set_ylabel(style.coefficient(focus))
    _draw_choices(bottom, curve, shown, pitch)
    for axes in (top, bottom):
        axes.set_xlim(-0.8, n - 0.2)
    style.legend(figure, [*_kind_keys(curve), *keys], title)
    note = textwrap.fill(_note(curve, top.get_ylim()), int((width - _NAMES) / _LETTER))
    bottom.set_xlabel(note, fontsize=8.5, color="0.25")
    return figure


def _sorted_curve(
    table: pd.DataFrame, dimensions: Sequence[str], bands: pd.DataFrame | None
) -> _Curve:
    needed = ["estimate", "conf_low", "conf_high", "correction", *dimensions]
    ok = style.checked(table, needed, "specification curve")
    if bands is not None:
        ok = _with_bands(ok, bands)
    ok = ok.sort_values("estimate", kind="stable")
    nothing = np.full(len(ok), np.nan)
    joint = [
        style.numbers(ok, c) if c in ok.columns else nothing
        for c in ("simultaneous_low", "simultaneous_high")
    ]
    return _Curve(
        table=ok,
        kind=[style.kind_of(str(c)) for c in ok["correction"]],
        estimate=style.numbers(ok, "estimate"),
        low=style.numbers(ok, "conf_low"),
        high=style.numbers(ok, "conf_high"),
        simultaneous_low=joint[0],
        simultaneous_high=joint[1],
        n_absent=len(table) - len(ok),
    )


def _with_bands(table: pd.DataFrame, bands: pd.DataFrame) -> pd.DataFrame:
    columns = ["universe", "simultaneous_low", "simultaneous_high"]
    missing = [c for c in columns if c not in bands.columns]
    if missing or "universe" not in table.columns:
        where = "bands" if missing else "the table"
        raise ArgumentError(
            f"{where} lacks the column {(missing or ['universe'])[0]!r}: bands are matched to "
            "the table by the column 'universe'."
        )
    if bands["universe"].duplicated().any():
        raise ArgumentError("bands has a universe twice; give one row per universe.")
    left = table.drop(columns=columns[1:], errors="ignore")
    return left.merge(bands[columns], on="universe", how="left")


def _varying(table: pd.DataFrame, dimensions: Sequence[str]) -> dict[str, list[str]]:
    """Return the dimensions that vary, with their levels in the order of the table's grid."""
    grid = table.sort_index()
    levels = {d: list(map(str, pd.unique(grid[d]))) for d in dict.fromkeys(dimensions)}
    shown = {d: v for d, v in levels.items() if len(v) > 1}
    for d in sorted(shown, key=lambda d: -len(shown[d])):
        others = [o for o in shown if o != d]
        if len(shown[d]) > _MANY_LEVELS and others:
            told = table.groupby(others, observed=True)[d].nunique().max() == 1
            if told:
                del shown[d]
    return shown


def _draw_estimates(
    axes: Axes, curve: _Curve, given: Sequence[style.Reference], pitch: float
) -> None:
    limits = _limits(curve, given)
    width = float(np.clip(0.55 * pitch, 0.5, 2.2))
    size = float(np.clip(0.75 * pitch, 2.4, 5.0))
    joint = bool(np.isfinite(curve.simultaneous_low).any())
    for kind in style.KINDS:
        at = curve.of_kind(kind)
        if not len(at):
            continue
        light, lightest = style.LIGHT[kind], style.LIGHTEST[kind]
        if joint:
            ends = curve.simultaneous_low[at], curve.simultaneous_high[at]
            _strokes(axes, at, ends, limits, color=lightest, linewidth=1.6 * width, zorder=2)
        ends = curve.low[at], curve.high[at]
        _strokes(axes, at, ends, limits, color=light, linewidth=0.8 * width, zorder=3)
        axes.plot(
            at,
            curve.estimate[at],
            style.MARKER[kind],
            color=style.COLOUR[kind],
            markersize=size,
            markeredgewidth=0,
            zorder=4,
        )
    if limits[0] < 0 < limits[1]:
        axes.axhline(0.0, color="0.35", linewidth=0.9, linestyle=(0, (4, 3)), zorder=3.5)
    axes.set_ylim(limits)
    axes.set_xticks([])
    style.bare(axes, "top", "right", "bottom")


def _kind_keys(curve: _Curve) -> list[Line2D]:
    found = [(kind, len(curve.of_kind(kind))) for kind in style.KINDS]
    return [
        style.key(f"{kind} ({n})", style.COLOUR[kind], style.MARKER[kind]) for kind, n in found if n
    ]


def _limits(curve: _Curve, given: Sequence[style.Reference]) -> tuple[float, float]:
    low = np.fmin(curve.low, curve.simultaneous_low)
    high = np.fmax(curve.high, curve.simultaneous_high)
    limits = style.frame_limits(curve.estimate, low, high)
    bottom, top = style.widen(limits, [v for r in given for v in r.drawn])
    # Zero is what a sign is read against: show it unless that would press the curve flat.
    reach = 0.5 * (top - bottom)
    return (
        min(bottom, -0.03 * (top - bottom)) if 0 < bottom < reach else bottom,
        max(top, 0.03 * (top - bottom)) if -reach < top < 0 else top,
    )


def _strokes(
    axes: Axes,
    at: Int,
    ends: tuple[Float, Float],
    limits: tuple[float, float],
    *,
    color: str,
    linewidth: float,
    zorder: int,
) -> None:
    low, high = (np.clip(e, *limits) for e in ends)
    drawn = np.isfinite(low) & np.isfinite(high)
    axes.vlines(
        at[drawn],
        low[drawn],
        high[drawn],
        color=color,
        linewidth=linewidth,
        zorder=zorder,
    )


def _draw_choices(axes: Axes, curve: _Curve, shown: dict[str, list[str]], pitch: float) -> None:
    colours = np.array([style.COLOUR[k] for k in curve.kind])
    names: list[str] = []
    heads: list[int] = []
    for dimension, levels in shown.items():
        heads.append(len(names))
        names.append(style.plain(style.shorten(dimension, _NAME_WIDTH)))
        values = curve.table[dimension].astype(str).to_numpy()
        for k, level in enumerate(levels):
            y = len(names) + k
            if k % 2 == 0:
                axes.axhspan(y - 0.5, y + 0.5, color="0.955", linewidth=0, zorder=0)
            at = np.flatnonzero(values == level)
            _mark(axes, at, y, colours[at], pitch, dense=len(values) >= _DENSE)
        names += style.short_names(levels, _NAME_WIDTH)
    axes.set_yticks(np.arange(len(names)), names, fontsize=8)
    for k in heads:
        axes.get_yticklabels()[k].set_fontweight("bold")
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([])
    style.bare(axes, "top", "right", "left", "bottom")


def _mark(axes: Axes, at: Int, y: int, colours: object, pitch: float, *, dense: bool) -> None:
    if dense:
        width = float(np.clip(0.7 * pitch, 0.5, 2.5))
        axes.vlines(at, y - 0.36, y + 0.36, colors=colours, linewidth=width)  # type: ignore[arg-type]
    else:
        axes.scatter(at, np.full(len(at), y), s=min(pitch, 5.5) ** 2, c=colours, linewidth=0)  # type: ignore[arg-type]


def _note(curve: _Curve, limits: tuple[float, float]) -> str:
    said = [f"{len(curve.estimate)} universes, sorted by estimate"]
    said.append("line: pointwise interval")
    if np.isfinite(curve.simultaneous_low).any():
        said[-1] += ", lighter: simultaneous interval"
    unknown = int((~np.isfinite(curve.low) | ~np.isfinite(curve.high)).sum())
    if unknown:
        said.append(f"{unknown} without a finite interval")
    ends_low = np.fmin(curve.low, curve.simultaneous_low)
    ends_high = np.fmax(curve.high, curve.simultaneous_high)
    cut = int(((ends_low < limits[0]) | (ends_high > limits[1])).sum())
    if cut:
        said.append(f"{cut} interval{'s' if cut > 1 else ''} cut off by the frame")
    if curve.n_absent:
        said.append(f"{curve.n_absent} without an estimate not shown")
    return "; ".join(said)
