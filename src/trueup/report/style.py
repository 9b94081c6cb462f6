"""What the figures share: colours, markers, names that fit, tables that are checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from trueup.errors import ArgumentError
from trueup.results.compare import CORRECTED, HUMAN_ONLY, LLM_ONLY
from trueup.study.design import Float

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

#: Kind of universe -> colour and marker (Okabe and Ito's palette, as in the plot of one fit).
#: Estimates are in full colour, their own intervals lighter, simultaneous intervals lightest.
COLOUR = {LLM_ONLY: "#D55E00", HUMAN_ONLY: "#0072B2", CORRECTED: "#000000"}
LIGHT = {LLM_ONLY: "#EBA06B", HUMAN_ONLY: "#6AAAD1", CORRECTED: "#8C8C8C"}
LIGHTEST = {LLM_ONLY: "#FAE0CC", HUMAN_ONLY: "#CCE3F0", CORRECTED: "#DEDEDE"}
MARKER = {LLM_ONLY: "s", HUMAN_ONLY: "o", CORRECTED: "D"}
KINDS = (LLM_ONLY, HUMAN_ONLY, CORRECTED)

#: Colours and markers of several corrections in one figure.
CORRECTIONS = (
    ("#000000", "D"),
    ("#009E73", "^"),
    ("#CC79A7", "v"),
    ("#E69F00", "P"),
    ("#56B4E9", "X"),
)

#: Inches that an entry of a legend takes: its marker and margins, and each letter.
_ENTRY, _LETTER = 0.65, 0.075

_REFERENCE_STYLES = ("-", "--", ":", "-.")
#: With more references than this their bands would hide one another: lines only.
_MOST_BANDS = 2


@dataclass(frozen=True, slots=True)
class Reference:
    """A result that a figure is held against, for example the human-only estimate.

    Parameters
    ----------
    label : str
        How the legend names it.
    estimate : float or None
        None where ``low`` and ``high`` are the ends of several estimates.
    low, high : float, optional
        Its interval, drawn as a band.

    Examples
    --------
    >>> Reference("human-only", 0.4, 0.1, 0.7).estimate
    0.4
    """

    label: str
    estimate: float | None
    low: float | None = None
    high: float | None = None

    @property
    def drawn(self) -> tuple[float, ...]:
        """Values that a figure has to show: the estimate, or the ends of several."""
        if self.estimate is not None:
            return (self.estimate,)
        return tuple(v for v in (self.low, self.high) if v is not None)


def human_only(table: pd.DataFrame) -> Reference | None:
    """Return what the human labels alone say: an estimate, or the range of several.

    Human-only universes of several formulas or subsets estimate different coefficients; no line
    through one of them would be a reference for the others.

    Examples
    --------
    >>> table = pd.DataFrame({"correction": ["human", "human", "dsl"], "estimate": [0.2, 0.5, 0.3],
    ...     "conf_low": [0.1, 0.4, 0.2], "conf_high": [0.3, 0.6, 0.4]})
    >>> human_only(table)
    Reference(label='human-only range, 0.2 to 0.5', estimate=None, low=0.2, high=0.5)
    """
    kinds = table["correction"].map(lambda c: kind_of(str(c)))
    rows = table[(kinds == HUMAN_ONLY) & table["estimate"].notna()]
    if rows.empty:
        return None
    if len(rows) == 1:
        low, high = (float(rows[c].iloc[0]) for c in ("conf_low", "conf_high"))
        return Reference("human-only", float(rows["estimate"].iloc[0]), low, high)
    low, high = float(rows["estimate"].min()), float(rows["estimate"].max())
    if np.isclose(low, high, rtol=1e-8, atol=0.0):  # kinds of covariance
        return Reference("human-only", low)
    return Reference(f"human-only range, {low:.3g} to {high:.3g}", None, low, high)


def references(given: Reference | Sequence[Reference] | None) -> tuple[Reference, ...]:
    """Return the references as a tuple, all of them numbers."""
    if given is None:
        return ()
    out = (given,) if isinstance(given, Reference) else tuple(given)
    for one in out:
        if not one.drawn or not np.isfinite(one.drawn).all():
            raise ArgumentError(
                f"reference {one.label!r} has the estimate {one.estimate}; give a finite number "
                "or leave the reference out."
            )
    return out


def kind_of(correction: str) -> str:
    """Return which kind of universe a correction makes: LLM-only, human-only or corrected.

    Examples
    --------
    >>> kind_of("naive"), kind_of("human"), kind_of("ppi++")
    ('LLM-only', 'human-only', 'corrected')
    """
    name = correction.strip().lower()
    return LLM_ONLY if name == "naive" else HUMAN_ONLY if name == "human" else CORRECTED


def plain(text: object) -> str:
    """Return a text that is drawn letter by letter.

    Dollar signs would start a formula, and control characters make an SVG unreadable.
    """
    shown = "".join(c if c.isprintable() else " " for c in str(text))
    return " ".join(shown.split()).replace("$", r"\$")


def shorten(text: object, width: int, head: int | None = None) -> str:
    """Cut a long name in its middle, or after ``head`` letters.

    Examples
    --------
    >>> shorten("meta-llama/Llama-3.3-70B-Instruct__prompt_7", 24)
    'meta-llama/L…t__prompt_7'
    """
    name = " ".join(str(text).split())
    if len(name) <= width:
        return name
    first = width // 2 if head is None else head
    return f"{name[:first]}…{name[len(name) - (width - first - 1) :]}"


def short_names(names: Iterable[object], width: int) -> list[str]:
    """Shorten distinct names such that they stay distinct, ready to be drawn.

    The cut moves from the middle to where it hides least of what tells the names apart.

    Examples
    --------
    >>> short_names(["Llama-3.1-70B-Instruct", "Llama-3.2-70B-Instruct"], 16)
    ['Llama-3.1…struct', 'Llama-3.2…struct']
    """
    full = list(names)
    heads = sorted(range(1, width - 2), key=lambda head: abs(head - width // 2))
    cuts = [[shorten(n, width, head) for n in full] for head in heads]
    short = max(cuts, key=lambda cut: len(set(cut)))
    clashes = Counter(short)
    seen: Counter[str] = Counter()
    out = []
    for name in short:
        seen[name] += 1
        out.append(plain(name if clashes[name] == 1 else f"{name} ({seen[name]})"))
    return out


def coefficient(focus: str) -> str:
    """Return the name of an axis; a long term stands on a line of its own.

    Examples
    --------
    >>> coefficient("treated")
    'Coefficient of treated'
    """
    gap = " " if len(focus) <= 18 else "\n"
    return f"Coefficient of{gap}{plain(shorten(focus, 34))}"


def checked(table: pd.DataFrame, columns: Sequence[str], what: str) -> pd.DataFrame:
    """Return the rows with an estimate, after all columns were found; never an empty table."""
    missing = [c for c in dict.fromkeys(columns) if c not in table.columns]
    if missing:
        raise ArgumentError(
            f"The table of the {what} lacks the column{'s' if len(missing) > 1 else ''} "
            f"{', '.join(map(repr, missing))}. It has: {', '.join(map(repr, table.columns))}."
        )
    ok = np.isfinite(table["estimate"].to_numpy(dtype=float, na_value=np.nan))
    if "status" in table.columns:
        ok &= (table["status"] == "ok").to_numpy()
    if not ok.any():
        raise ArgumentError(
            f"There is nothing to draw in the {what}: none of the {len(table)} rows has status "
            "'ok' and a finite estimate. The column 'error' of the table says why they failed."
        )
    out: pd.DataFrame = table[ok].reset_index(drop=True)
    unnamed = [c for c in columns if out[c].isna().any() and c not in (*ESTIMATE, "accuracy")]
    if unnamed:
        raise ArgumentError(
            f"Column {unnamed[0]!r} of the table of the {what} has missing values; give every "
            "row a level, such as 'none'."
        )
    return out


#: What a figure reads of an estimate.
ESTIMATE = ("estimate", "conf_low", "conf_high")


def numbers(table: pd.DataFrame, column: str) -> Float:
    """Return a column as floats, missing values as NaN."""
    return table[column].to_numpy(dtype=float, na_value=np.nan)


def frame_limits(estimates: Float, low: Float, high: Float) -> tuple[float, float]:
    """Return limits that show every estimate, though not every end of an extreme interval.

    An end is left outside if it lies farther from all estimates than these spread, plus three
    typical widths: a single useless universe would otherwise press all others flat.

    Examples
    --------
    >>> import numpy as np
    >>> mid = np.arange(10.0)
    >>> low, high = frame_limits(mid, mid - 1, np.append(mid[:9] + 1, 1e6))
    >>> round(low, 2), round(high, 2)
    (-1.4, 9.4)
    """
    bottom, top = float(estimates.min()), float(estimates.max())
    known = np.isfinite(low) & np.isfinite(high)
    if known.any():
        reach = top - bottom + 3 * float(np.median((high - low)[known]))
        bottom, top = (
            float(np.min(low[known & (low >= bottom - reach)], initial=bottom)),
            float(np.max(high[known & (high <= top + reach)], initial=top)),
        )
    pad = 0.04 * (top - bottom) or 0.5
    return bottom - pad, top + pad


def widen(limits: tuple[float, float], values: Iterable[float]) -> tuple[float, float]:
    """Return limits that hold these values too."""
    low, high = limits
    pad = 0.03 * (high - low)
    held = [v for v in values if np.isfinite(v)]
    return min([low, *(v - pad for v in held)]), max([high, *(v + pad for v in held)])


def draw_references(axes: Axes, given: Sequence[Reference], *, vertical: bool) -> list[Line2D]:
    """Draw each reference as a line over the whole frame, its interval as a band.

    Returns
    -------
    list of matplotlib.lines.Line2D
        For the legend.
    """
    out = []
    for k, one in enumerate(given):
        line = axes.axvline if vertical else axes.axhline
        dashes = _REFERENCE_STYLES[k % len(_REFERENCE_STYLES)]
        colour = COLOUR[HUMAN_ONLY]
        label = plain(shorten(one.label, 48))
        if one.estimate is None:
            out.append(_draw_range(axes, one, label, vertical=vertical))
            continue
        if one.low is not None and one.high is not None and len(given) <= _MOST_BANDS:
            span = axes.axvspan if vertical else axes.axhspan
            span(one.low, one.high, color=colour, alpha=0.13, linewidth=0, zorder=0)
            label += ", with interval"
        out.append(line(one.estimate, color=colour, lw=1.1, ls=dashes, zorder=3.5, label=label))
    return out


def _draw_range(axes: Axes, one: Reference, label: str, *, vertical: bool) -> Line2D:
    """Draw the range of several estimates as a band with edges."""
    from matplotlib.lines import Line2D

    colour = COLOUR[HUMAN_ONLY]
    span = axes.axvspan if vertical else axes.axhspan
    line = axes.axvline if vertical else axes.axhline
    span(*one.drawn, color=colour, alpha=0.13, linewidth=0, zorder=0)
    for end in one.drawn:
        line(end, color=colour, lw=0.8, ls=(0, (1, 2)), zorder=3.5)
    return Line2D([], [], color=colour, alpha=0.25, linewidth=7, label=label)


def key(label: str, colour: str, marker: str, *, filled: bool = True) -> Line2D:
    """Return an entry of a legend: its marker is readable whatever the size in the figure."""
    from matplotlib.lines import Line2D

    face = colour if filled else "none"
    return Line2D([], [], ls="none", marker=marker, mfc=face, mec=colour, markersize=5, label=label)


def legend(figure: Figure, entries: Sequence[Line2D], title: str | None = None) -> None:
    """Put a legend above the figure, in as many columns as its width holds."""
    widths = [_ENTRY + _LETTER * len(str(entry.get_label())) for entry in entries]
    room = float(figure.get_figwidth())
    columns = len(entries) if sum(widths) < room else max(int(room / max(widths)), 1)
    figure.legend(
        handles=list(entries),
        loc="outside upper left",
        ncols=columns,
        frameon=False,
        fontsize=8.5,
        title=None if title is None else plain(title),
        title_fontsize=12,
        alignment="left",
    )


def bare(axes: Axes, *sides: str) -> None:
    """Take frame lines away."""
    for side in sides:
        axes.spines[side].set_visible(False)
