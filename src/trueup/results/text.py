"""Numbers and tables as text and as HTML."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence

import numpy as np

from trueup.study.design import Float

#: Columns of a terminal that a printed result fits in.
WIDTH = 88

#: Longest name that stands on the line of its numbers; longer ones get their own line.
_LONGEST_NAME = 28


def fixed(values: Float, unit: Float) -> list[list[str]]:
    """Write rows of numbers with the decimals that their uncertainty calls for.

    All rows share the number of decimals that gives the smallest unit three significant
    digits, within 0 to 5; rows whose numbers would vanish or overflow use powers of ten.

    Parameters
    ----------
    values : (m, k) array
    unit : (m,) array
        Standard errors.

    Returns
    -------
    list of m lists of k str

    Examples
    --------
    >>> import numpy as np
    >>> fixed(np.array([[1.23456, 0.0123], [2.0, 1.5]]), np.array([0.0123, 1.5]))
    [['1.2346', '0.0123'], ['2.0000', '1.5000']]
    """
    size = unit[np.isfinite(unit) & (unit > 0)]
    places = int(np.clip(2 - np.floor(np.log10(size.min())), 0, 5)) if len(size) else 4
    return [_row(row, u, places) for row, u in zip(values, unit, strict=True)]


def _row(row: Float, unit: float, places: int) -> list[str]:
    tiny = 0 < unit < 10.0 ** (1 - places)
    huge = bool(np.any(np.abs(row[np.isfinite(row)]) >= 1e6))
    return [f"{x:.2e}" if tiny or huge else f"{x:.{places}f}" for x in row]


def p_text(p: float) -> str:
    """Write a p-value as R does."""
    if np.isnan(p):
        return "NA"
    if p < 2e-16:
        return "<2e-16"
    return f"{p:.2e}" if p < 1e-4 else f"{p:.4f}"


def paragraph(text: str, indent: str = "", first: str | None = None) -> list[str]:
    """Break a text into lines of at most ``WIDTH`` columns."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align a table: first column left, others right. ``\\n`` in the header breaks it.

    A name that is too long for its column stands on a line of its own.
    """
    lines = [h.split("\n") for h in header]
    height = max(map(len, lines))
    heads = [[""] * (height - len(h)) + h for h in lines]
    numbers = [max(map(len, [*heads[j], *(row[j] for row in rows)])) for j in range(1, len(header))]
    wanted = min(max([len(row[0]) for row in rows] + [len(h) for h in heads[0]]), _LONGEST_NAME)
    space = WIDTH - sum(numbers)
    gap = 2 if wanted + 2 * len(numbers) <= space else 1
    name = min(wanted, max(space - gap * len(numbers), 8))

    def line(cells: Sequence[str]) -> str:
        right = (f"{'':{gap}}{c:>{w}}" for c, w in zip(cells[1:], numbers, strict=True))
        return f"{cells[0]:<{name}}{''.join(right)}".rstrip()

    out = [line([h[k] for h in heads]) for k in range(height)]
    for row in rows:
        if len(row[0]) > name:
            out += textwrap.wrap(row[0], WIDTH, break_on_hyphens=False)
            row = ["", *row[1:]]
        out.append(line(row))
    return out


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the same table as HTML, everything escaped."""
    head = "".join(f"<th>{html.escape(' '.join(h.split()))}</th>" for h in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_paragraphs(texts: Sequence[str]) -> str:
    """Return texts as HTML paragraphs, escaped."""
    return "".join(f"<p>{html.escape(t)}</p>" for t in texts)
