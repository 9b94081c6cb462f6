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

#: Kind of universe -> colour and marker (Okabe and Ito's palette, as in the plot of one fit).
#: The light colours stand for the simultaneous intervals.
COLOUR = {LLM_ONLY: "#D55E00", HUMAN_ONLY: "#0072B2", CORRECTED: "#000000"}
LIGHT = {LLM_ONLY: "#F3C6A5", HUMAN_ONLY: "#A9CFE6", CORRECTED: "#BDBDBD"}
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
    estimate : float
    low, high : float, optional
        Its interval, drawn as a band.

    Examples
    --------
    >>> Reference("human-only", 0.4, 0.1, 0.7).estimate
    0.4
    """

    label: str
    estimate: float
    low: float | None = None
    high: float | None = None


def references(given: Reference | Sequence[Reference] | None) -> tuple[Reference, ...]:
    """Return the references as a tuple, all of them numbers."""
    if given is None:
        return ()
    out = (given,) if isinstance(given, Reference) else tuple(given)
    for one in out:
        if not np.isfinite(one.estimate):
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


def shorten(text: object, width: int) -> str:
    """Cut a long name in its middle, where names of one family differ least.

    Examples
    --------
    >>> shorten("meta-llama/Llama-3.3-70B-Instruct__prompt_7", 24)
    'meta-llama/L…__prompt_7'
    """
    name = " ".join(str(text).split())
    if len(name) <= width:
        return name
    head = width // 2
    return f"{name[:head]}…{name[len(name) - (width - head - 2) :]}"


def short_names(names: Iterable[object], width: int) -> list[str]:
    """Shorten distinct names such that they stay distinct, ready to be drawn."""
    short = [shorten(n, width) for n in names]
    clashes = Counter(short)
    seen: Counter[str] = Counter()
    out = []
    for name in short:
        seen[name] += 1
        out.append(plain(name if clashes[name] == 1 else f"{name} ({seen[name]})"))
    return out


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

    Interval ends may stretch the frame to twice the range of the middle 96% of them; a single
    useless universe would otherwise press all others flat.
    """
    ends_low, ends_high = low[np.isfinite(low)], high[np.isfinite(high)]
    bottom, top = float(estimates.min()), float(estimates.max())
    if len(ends_low) and len(ends_high):
        core_low = float(np.quantile(ends_low, 0.02))
        core_high = float(np.quantile(ends_high, 0.98))
        slack = 0.5 * (core_high - core_low)
        bottom = min(bottom, max(float(ends_low.min()), core_low - slack))
        top = max(top, min(float(ends_high.max()), core_high + slack))
    pad = 0.04 * (top - bottom) or 0.5
    return bottom - pad, top + pad


def widen(limits: tuple[float, float], values: Iterable[float]) -> tuple[float, float]:
    """Return limits that hold these values too."""
    low, high = limits
    pad = 0.03 * (high - low)
    held = [v for v in values if np.isfinite(v)]
    return min([low, *(v - pad for v in held)]), max([high, *(v + pad for v in held)])


def draw_references(axes: Axes, given: Sequence[Reference], *, vertical: bool) -> None:
    """Draw each reference as a line over the whole frame, its interval as a band."""
    for k, one in enumerate(given):
        line = axes.axvline if vertical else axes.axhline
        style = _REFERENCE_STYLES[k % len(_REFERENCE_STYLES)]
        colour = COLOUR[HUMAN_ONLY]
        label = plain(shorten(one.label, 40))
        banded = one.low is not None and one.high is not None and len(given) <= _MOST_BANDS
        if banded:
            span = axes.axvspan if vertical else axes.axhspan
            assert one.low is not None
            assert one.high is not None
            span(one.low, one.high, color=colour, alpha=0.13, linewidth=0, zorder=0)
            label += ", with interval"
        line(one.estimate, color=colour, linewidth=1.1, linestyle=style, zorder=1, label=label)


def bare(axes: Axes, *sides: str) -> None:
    """Take frame lines away."""
    for side in sides:
        axes.spines[side].set_visible(False)
