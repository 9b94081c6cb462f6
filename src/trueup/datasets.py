"""The data that come with trueup: ``load``, ``names`` and ``card``."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from trueup.errors import ArgumentError

_NAMES = ("antibiotics", "sentiment")


def names() -> list[str]:
    """Names of the data sets that come with trueup.

    Returns
    -------
    list of str
        What :func:`load` and :func:`card` accept.

    Examples
    --------
    >>> from trueup import datasets
    >>> datasets.names()
    ['antibiotics', 'sentiment']
    """
    return list(_NAMES)


def load(name: str) -> pd.DataFrame:
    """Read a data set that comes with trueup.

    Parameters
    ----------
    name : str
        ``"antibiotics"``: 10,000 made reports with a known true effect, labelled by three
        annotators, with 500 of them coded. ``"sentiment"``: 23,703 real texts as columns of
        numbers, each rated by at least 15 people and labelled by four models, with two
        calibration samples of 500. :func:`card` describes every column.

    Returns
    -------
    DataFrame
        A fresh table, yours to change.

    Raises
    ------
    ArgumentError
        If there is no data set of that name.

    Examples
    --------
    >>> from trueup import datasets
    >>> reports = datasets.load("antibiotics")
    >>> len(reports), int(reports["coder"].notna().sum())
    (10000, 500)
    """
    return pd.read_csv(_folder(name) / f"{name}.csv.gz")


def card(name: str) -> str:
    """Where a data set comes from, its licence, its columns and how it was made.

    Parameters
    ----------
    name : str
        One of :func:`names`.

    Returns
    -------
    str
        Markdown text.

    Raises
    ------
    ArgumentError
        If there is no data set of that name.

    Examples
    --------
    >>> from trueup import datasets
    >>> print(datasets.card("antibiotics").splitlines()[0])
    # antibiotics
    """
    return (_folder(name) / "card.md").read_text(encoding="utf-8")


def _folder(name: str) -> Path:
    if name not in _NAMES:
        known = ", ".join(repr(known) for known in _NAMES)
        raise ArgumentError(f"There is no data set {name!r}: choose one of {known}.")
    package = Path(__file__).parent
    installed = package / "_data"
    # In a source checkout the files stand in the repository's own datasets folder.
    root = installed if installed.is_dir() else package.parents[1] / "datasets"
    return root / name
