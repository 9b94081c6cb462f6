"""One self-contained page that a referee can read."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from trueup.errors import ArgumentError
from trueup.report.template import render
from trueup.results.text import p_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: A vector image with more bytes than this is slow to draw; it becomes a bitmap.
_LARGEST_SVG = 1_500_000
#: Pixels of the page for an inch of a figure.
_PIXELS = 96


@dataclass(frozen=True, slots=True)
class ReportFigure:
    """A figure with what is said below it, and what a screen reader says instead of it."""

    figure: Figure
    caption: str
    alt: str


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table with its caption; the index is not shown."""

    data: pd.DataFrame
    caption: str


@dataclass(frozen=True, slots=True)
class ReportContent:
    """What a report says, as plain data. Any text may hold any character: all is escaped.

    Parameters
    ----------
    title : str
    question : sequence of str
        Paragraphs: the question, the focus term in words.
    study : str
        Who labelled what, and the sampling design: ``str(study)``.
    headline : sequence of str
        The findings, a sentence each.
    formulas : sequence of str
    figures : mapping of str to ReportFigure
    tests : mapping of str to str
        Name of a test -> its printed text.
    tables : mapping of str to ReportTable
    warnings : sequence of str
    failed : DataFrame, optional
        Universes without an estimate, with their reasons.
    plan : str
        Text of the plan file.
    versions : mapping of str to str
        Software -> version.
    seed : int, optional
    created : str
        Date and time, as it should be shown.
    seconds : float, optional
        Time the universes took.
    """

    title: str
    question: Sequence[str]
    study: str
    headline: Sequence[str]
    formulas: Sequence[str] = ()
    figures: Mapping[str, ReportFigure] = field(default_factory=dict)
    tests: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, ReportTable] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    failed: pd.DataFrame | None = None
    plan: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    created: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    value: str | None
    """What numbers sort by; None for words and empty cells."""


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    numeric: bool


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    caption: str
    columns: list[_Column]
    rows: list[list[_Cell]]


@dataclass(frozen=True, slots=True)
class _Image:
    name: str
    caption: str
    alt: str
    source: str
    width: int
    height: int


def write_report(path: str | Path, content: ReportContent) -> Path:
    """Write a report as one HTML file that needs no network.

    Tables sort by a click on a column's name and filter by words; the page reads on a phone and
    prints. Everything that comes from data is escaped, and the page's own content security
    policy forbids a browser to run anything but the script that sorts and filters.

    Parameters
    ----------
    path : str or Path
        File to write; one that exists is replaced.
    content : ReportContent

    Returns
    -------
    Path
        Of the file written.

    Raises
    ------
    ArgumentError
        When the folder does not exist, or the path is a folder.

    Examples
    --------
    >>> import tempfile
    >>> content = ReportContent(
    ...     title="Exclamation and praise", question=["Do positive texts exclaim?"],
    ...     study="Study of 100 rows", headline=["They do."])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(f"{folder}/report.html", content).read_text(encoding="utf-8")
    >>> "<h1>Exclamation and praise</h1>" in page
    True
    """
    target = Path(path)
    if target.is_dir():
        raise ArgumentError(f"path={str(path)!r} is a folder; name a file in it, 'report.html'.")
    if not target.parent.is_dir():
        raise ArgumentError(
            f"path={str(path)!r}: the folder {str(target.parent)!r} does not exist; make it first."
        )
    # Names in data may hold half of a surrogate pair, which no encoding can write.
    target.write_bytes(page(content).encode("utf-8", "backslashreplace"))
    return target


def page(content: ReportContent) -> str:
    """Return the report as HTML text (see :func:`write_report`)."""
    failed = content.failed
    lost = None
    if failed is not None and len(failed):
        lost = _table("Reasons", ReportTable(failed, f"{len(failed):,} in all."))
    return render(
        {
            "content": content,
            "stamp": _stamp(content),
            "sections": _sections(content),
            "figures": [_image(name, f) for name, f in content.figures.items()],
            "tables": [_table(name, t) for name, t in content.tables.items()],
            "failed": lost,
            "facts": _facts(content),
        }
    )


def _stamp(content: ReportContent) -> str:
    version = content.versions.get("trueup")
    made = f"Made by trueup {version}" if version else "Made by trueup"
    return f"{made}, {content.created}" if content.created else made


def _sections(content: ReportContent) -> list[tuple[str, str]]:
    found = [
        ("headline", "Findings", True),
        ("question", "Question", True),
        ("study", "Study", True),
        ("figures", "Figures", bool(content.figures)),
        ("tests", "Tests", bool(content.tests)),
        ("tables", "Tables", bool(content.tables)),
        ("warnings", f"Warnings ({len(content.warnings)})", True),
        ("failed", f"Failed ({0 if content.failed is None else len(content.failed)})", True),
        ("plan", "Plan", bool(content.plan)),
        ("computed", "How computed", True),
    ]
    return [(anchor, name) for anchor, name, there in found if there]


def _facts(content: ReportContent) -> list[tuple[str, str]]:
    facts = [("Seed", "none given" if content.seed is None else str(content.seed))]
    if content.created:
        facts.append(("Time", content.created))
    if content.seconds is not None:
        facts.append(("Fitting took", f"{content.seconds:,.1f} seconds"))
    return facts + [(name, str(version)) for name, version in content.versions.items()]


def _image(name: str, shown: ReportFigure) -> _Image:
    width, height = (round(_PIXELS * float(s)) for s in shown.figure.get_size_inches())
    return _Image(name, shown.caption, shown.alt, image_source(shown.figure), width, height)


def image_source(figure: Figure) -> str:
    """Return a figure as a data address: the same figure gives the same text."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    # In an image element no script of an SVG can run, and letters drawn as paths need no font.
    with rc_context({"svg.fonttype": "path", "svg.hashsalt": "trueup"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    kind = "svg+xml"
    if buffer.tell() > _LARGEST_SVG:
        buffer, kind = io.BytesIO(), "png"
        figure.savefig(buffer, format="png", dpi=180)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _table(name: str, table: ReportTable) -> _Table:
    data = table.data
    columns = [_Column(str(c), _is_number(data.iloc[:, j])) for j, c in enumerate(data.columns)]
    cells = [
        [_cell(v, is_p=column.name == "p_value" or column.name.startswith("p_")) for v in values]
        for column, values in zip(
            columns, (data.iloc[:, j] for j in range(len(columns))), strict=True
        )
    ]
    return _Table(name, table.caption, columns, [list(row) for row in zip(*cells, strict=True)])


def _is_number(column: pd.Series) -> bool:
    types = pd.api.types
    return types.is_numeric_dtype(column) and not types.is_bool_dtype(column)


def _cell(value: object, *, is_p: bool) -> _Cell:
    """Write one value: numbers with four digits, but sortable by all of them."""
    if isinstance(value, bool) or type(value).__name__ == "bool":
        return _Cell("yes" if value else "no", None)
    if isinstance(value, Integral):
        return _Cell(f"{int(value):,}" if abs(int(value)) >= 100_000 else str(value), str(value))
    if isinstance(value, Real):
        number = float(value)
        if math.isnan(number):
            return _Cell("", None)
        if math.isinf(number):
            return _Cell("∞" if number > 0 else "−∞", "Infinity" if number > 0 else "-Infinity")
        return _Cell(p_text(number) if is_p else f"{number:.4g}", repr(number))
    if value is None or value is pd.NA or value is pd.NaT:
        return _Cell("", None)
    if isinstance(value, list | tuple):
        return _Cell("; ".join(map(str, value)), None)
    return _Cell(str(value), None)
