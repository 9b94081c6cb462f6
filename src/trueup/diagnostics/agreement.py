"""How far each annotator agrees with the coders, and the coders with each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trueup.diagnostics.answers import look_like_classes, one_variable
from trueup.diagnostics.estimates import (
    Measure,
    average,
    beyond_chance,
    correlation,
    interval,
    weighted_mean,
)
from trueup.diagnostics.kappa import cohen_kappa, krippendorff_alpha
from trueup.errors import ArgumentError, StudyError
from trueup.results.text import paragraph, text_table
from trueup.results.tidy import check_level
from trueup.study.describe import draw_in_words
from trueup.study.design import Float, SampleDesign
from trueup.study.study import Study
from trueup.study.values import REFUSED, as_numbers, read_labels

#: Measures that fit on a line.
_PRINTED = 4


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of annotators and coders. Made by :func:`agreement`."""

    table: pd.DataFrame
    """One row for each comparison and measure: comparison ("LLM-human", "LLM-coder",
    "coder-coder", "all coders"), annotator, versus, measure, estimate, std_error, conf_low,
    conf_high, n, n_missing, note."""
    variable: str
    level: float
    n_coded: int
    design: str
    """How the coded rows were drawn, in words."""

    def tidy(self) -> pd.DataFrame:
        """Return one row for each comparison and measure."""
        return self.table.copy()

    def wide(self, value: str = "estimate") -> pd.DataFrame:
        """Return one row for each comparison, one column for each measure.

        Parameters
        ----------
        value : str
            Column to show: ``"estimate"``, ``"std_error"``, ``"conf_low"``, ``"conf_high"``.

        Raises
        ------
        ArgumentError
            If there is no such column.
        """
        if value not in ("estimate", "std_error", "conf_low", "conf_high", "n"):
            raise ArgumentError(f"value={value!r} is unknown: use 'estimate' or 'std_error'.")
        order = list(dict.fromkeys(self.table["measure"]))
        keys = ["comparison", "annotator", "versus"]
        out = self.table.pivot_table(
            index=keys, columns="measure", values=value, sort=False, dropna=False, observed=True
        )
        return out.dropna(how="all")[order].reset_index().rename_axis(columns=None)

    def summary(self) -> str:
        """Return a text: estimates with standard errors, by comparison."""
        lines = [
            f"Agreement on {self.variable!r}: {self.n_coded:,} coded rows",
            *paragraph(f"Weighted by the design ({self.design}); standard errors in parentheses."),
        ]
        for comparison, part in self.table.groupby("comparison", sort=False):
            measures = list(dict.fromkeys(part["measure"]))
            for first in range(0, len(measures), _PRINTED):
                shown = measures[first : first + _PRINTED]
                lines += ["", str(comparison), *_block(part, shown)]
        notes = self.table.dropna(subset=["note"])
        for row in notes.head(8).to_dict("records"):
            who = f"{row['annotator']} - {row['versus']}, {row['measure']}"
            lines += paragraph(f"{who}: {row['note']}", "  ")
        if len(notes) > 8:
            lines.append(f"  ... and {len(notes) - 8} more notes in .table")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return self.summary()


def _block(part: pd.DataFrame, measures: Sequence[str]) -> list[str]:
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in part.to_dict("records"):
        text = "-"
        if not np.isnan(row["estimate"]):
            text = f"{row['estimate']:.3f} ({row['std_error']:.3f})"
        cells.setdefault((row["annotator"], row["versus"]), {})[row["measure"]] = text
    rows = [
        [a if v in ("human", "") else f"{a} - {v}", *(found.get(m, "-") for m in measures)]
        for (a, v), found in cells.items()
        if any(found.get(m, "-") != "-" for m in measures)
    ]
    return text_table(["", *(m.replace("_", "\n", 1) for m in measures)], rows)


def agreement(
    study: Study,
    variable: str | None = None,
    llm: str | Sequence[str] = "all",
    level: float = 0.95,
    coders: Sequence[str] | None = None,
    *,
    positive: Any = None,
    ordered: bool = False,
) -> Agreement:
    r"""Measure how far LLM labels agree with human labels, with honest intervals.

    Every measure is computed on the coded rows, each weighted by the inverse of its inclusion
    probability, so that it estimates what would be found had everything been coded. With the
    influence function :math:`\mathrm{IF}_i` of a measure, its error is about
    :math:`\sum_R w_i \mathrm{IF}_i / \sum_R w_i`, whose variance the sampling design gives.

    Classes: accuracy, sensitivity and specificity (two classes), Cohen's kappa, Krippendorff's
    alpha. Numbers: correlation, mean error (LLM minus human), mean absolute error, alpha; few
    whole numbers (scores) get both.

    Parameters
    ----------
    study : Study
    variable : str, optional
        Labelled variable; may be left out where there is one.
    llm : str or sequence of str
        Annotators, as in :meth:`Study.resolve`.
    level : float
        Of the intervals.
    coders : sequence of str, optional
        Columns with the labels of single coders, at least two. Their agreement with each other
        is shown beside that of each LLM with them, the fair comparison: a single LLM is not
        expected to agree with a single coder better than coders agree among themselves.
    positive : optional
        The class that sensitivity is about; by default 1, or the second class.
    ordered : bool
        Whether classes are ordered, as in the study's levels: adds quadratic kappa and ordinal
        alpha.

    Returns
    -------
    Agreement

    Raises
    ------
    ArgumentError, StudyError
        If the variable, an annotator or a column of coders is unknown.

    Notes
    -----
    Coded rows that an annotator did not label do not count for it, and ``n_missing`` counts
    them; with ``missing="level"`` in the study, a refusal is a label that is never right.

    Examples
    --------
    >>> import trueup as tu
    >>> data = {"coder": [1, 0, 1, 1, 0, None], "gpt": [1, 0, 1, 0, 0, 1]}
    >>> study = tu.Study(data, human={"y": "coder"}, llm={"y": ["gpt"]})
    >>> tu.agreement(study).wide()[["accuracy", "sensitivity"]].round(3).values.tolist()
    [[0.8, 0.667]]

    References
    ----------
    Cohen (1960), A coefficient of agreement for nominal scales. Krippendorff (2011), Computing
    Krippendorff's alpha-reliability. Deville (1999), Variance estimation for complex statistics
    and estimators.
    """
    check_level(level)
    name = one_variable(study, variable)
    annotators = study.resolve(llm)
    sources = _Sources.of(study, name, coders, positive, ordered)
    rows: list[dict[str, Any]] = []
    for comparison, annotator, versus, n_missing, measures in _comparisons(
        study, name, annotators, sources
    ):
        for measure in measures:
            found = interval(sources.design, measure, level)
            rows.append(
                {
                    "comparison": comparison,
                    "annotator": annotator,
                    "versus": versus,
                    "measure": measure.name,
                    "estimate": measure.estimate,
                    "std_error": found.std_error,
                    "conf_low": found.low,
                    "conf_high": found.high,
                    "n": measure.n,
                    "n_missing": n_missing,
                    "note": found.note,
                }
            )
    table = pd.DataFrame(rows)
    words = draw_in_words(sources.design)
    return Agreement(table, name, level, sources.design.n_coded, words)


def target_labels(
    study: Study, variable: str, annotator: str, design: SampleDesign
) -> NDArray[Any]:
    """Return the (n,) LLM labels of the coded rows, missing where the annotator gave none.

    Where the study makes refusals a class, they are labels like others.
    """
    labels = study.llm_labels(variable, annotator)[design.coded].copy()
    if study.contents.missing != "level":
        gone = study.llm_missing(variable, annotator)[design.coded]
        labels[gone] = None if labels.dtype == object else np.nan
    return labels


_Row = tuple[str, str, str, int, list[Measure]]


@dataclass(frozen=True, slots=True)
class _Sources:
    """Labels on the coded rows, and how they are to be compared."""

    design: SampleDesign
    human: NDArray[Any]
    coders: dict[str, NDArray[Any]]
    levels: tuple[Any, ...] | None
    """Classes in order; None for numbers."""
    positive: Any
    ordered: bool

    @classmethod
    def of(
        cls,
        study: Study,
        variable: str,
        coders: Sequence[str] | None,
        positive: Any,
        ordered: bool,
    ) -> _Sources:
        design = study.design(variable)
        human = study.human_labels(variable)[design.coded]
        found = _read_coders(study, variable, coders, design)
        classes = study.levels(variable)
        levels: tuple[Any, ...] | None = classes
        if classes is not None:
            given = {x for c in found.values() for x in c if x is not None}
            levels = (*classes, *sorted(given.difference(classes)))
        return cls(design, human, found, levels, _positive(human, classes, positive), ordered)

    @property
    def weights(self) -> Float:
        """(n,) weights of the coded rows."""
        return self.design.coded_weights


def _read_coders(
    study: Study, variable: str, coders: Sequence[str] | None, design: SampleDesign
) -> dict[str, NDArray[Any]]:
    if coders is None:
        return {}
    names = [coders] if isinstance(coders, str) else list(dict.fromkeys(coders))
    if len(names) < 2:
        raise ArgumentError(
            f"coders={coders!r} names one column: agreement between coders takes at least two."
        )
    table = study.contents.table
    out: dict[str, NDArray[Any]] = {}
    for name in names:
        table.require(name, "coders=")
        labels = read_labels(table, name)
        if study.levels(variable) is None:
            labels = as_numbers(labels)
        values = labels.values[study.positions][design.coded]
        if pd.isna(values).all():
            raise StudyError(
                f"Coder {name!r} labelled none of the {design.n_coded} coded rows: leave the "
                "column out of coders=."
            )
        if labels.classes != (study.levels(variable) is not None):
            raise StudyError(
                f"Coder {name!r} gives {'text' if labels.classes else 'numbers'} "
                f"({labels.sample()}), unlike the human labels of {variable!r}: code both alike."
            )
        out[name] = values
    return out


def _positive(human: NDArray[Any], levels: tuple[str, ...] | None, positive: Any) -> Any:
    """Return the class that counts as positive; None where there are not two classes."""
    if levels is None:
        classes: list[Any] = [0.0, 1.0] if np.isin(human, (0.0, 1.0)).all() else []
    else:
        classes = [c for c in levels if c != REFUSED]
    if positive is None:
        return classes[1] if len(classes) == 2 else None
    if positive not in classes or len(classes) != 2:
        raise ArgumentError(
            f"positive={positive!r} must be one of two classes; the human labels have "
            f"{', '.join(map(repr, classes[:6])) or 'numbers'}."
        )
    return positive


def _comparisons(
    study: Study, variable: str, annotators: Sequence[str], sources: _Sources
) -> Iterator[_Row]:
    llm: dict[str, NDArray[Any]] = {}
    for name in annotators:
        llm[name] = labels = target_labels(study, variable, name, sources.design)
        gone = int(pd.isna(labels).sum())
        yield "LLM-human", name, "human", gone, _against_human(labels, sources)
    if not sources.coders:
        return
    for name, labels in llm.items():
        parts = [_symmetric(labels, c, sources) for c in sources.coders.values()]
        gone = int(pd.isna(labels).sum())
        yield "LLM-coder", name, "coders (mean)", gone, _averages(parts)
    yield from _between_coders(sources)


def _between_coders(sources: _Sources) -> Iterator[_Row]:
    pairs = list(combinations(sources.coders, 2))
    parts = [_symmetric(sources.coders[a], sources.coders[b], sources) for a, b in pairs]
    for (a, b), measures in zip(pairs, parts, strict=True):
        either = pd.isna(sources.coders[a]) | pd.isna(sources.coders[b])
        yield "coder-coder", a, b, int(either.sum()), measures
    if len(pairs) > 1:
        yield "coder-coder", "coders (mean)", "coders (mean)", 0, _averages(parts)
    columns = list(sources.coders.values())
    ratings = np.column_stack([c.astype(object) for c in columns])
    few = int(((~pd.isna(ratings)).sum(axis=1) < 2).sum())
    yield "all coders", f"{len(columns)} coders", "", few, _alphas(ratings, sources)


def _averages(parts: Sequence[list[Measure]]) -> list[Measure]:
    names = dict.fromkeys(m.name for measures in parts for m in measures)
    return [average(n, [m for measures in parts for m in measures if m.name == n]) for n in names]


def _against_human(labels: NDArray[Any], sources: _Sources) -> list[Measure]:
    """Return all measures of LLM labels that are held against the human ones."""
    w, human = sources.weights, sources.human
    out: list[Measure] = []
    known = ~pd.isna(labels)
    if _as_classes(sources, [human, labels]):
        right = _equal(labels, human)
        out.append(weighted_mean("accuracy", right, w, known, "share"))
        if sources.positive is not None:
            for name, where in (
                ("sensitivity", human == sources.positive),
                ("specificity", human != sources.positive),
            ):
                reason = f"no coded row {'has' if name == 'sensitivity' else 'lacks'} the class "
                reason += f"{sources.positive!r}."
                # Of the negatives, those not called positive: a refusal calls nothing.
                hit = right if name == "sensitivity" else _negative(labels, sources)
                out.append(weighted_mean(name, hit, w, known & where, "share", reason))
    return out + _chance_and_size(labels, human, sources)


def _negative(labels: NDArray[Any], sources: _Sources) -> Float:
    refused = labels == REFUSED if labels.dtype == object else np.zeros(len(labels), dtype=bool)
    return np.asarray((labels != sources.positive) & ~refused, dtype=np.float64)


def _symmetric(a: NDArray[Any], b: NDArray[Any], sources: _Sources) -> list[Measure]:
    """Return measures of two annotators neither of whom is taken for the truth."""
    out: list[Measure] = []
    if _as_classes(sources, [a, b]):
        both = ~pd.isna(a) & ~pd.isna(b)
        out.append(weighted_mean("agreement", _equal(a, b), sources.weights, both, "share"))
    return out + [m for m in _chance_and_size(a, b, sources) if m.name != "mean_error"]


def _as_classes(sources: _Sources, columns: Sequence[NDArray[Any]]) -> bool:
    return sources.levels is not None or look_like_classes(columns)


def _equal(a: NDArray[Any], b: NDArray[Any]) -> Float:
    return np.asarray(a == b, dtype=np.float64)


def _chance_and_size(a: NDArray[Any], b: NDArray[Any], sources: _Sources) -> list[Measure]:
    """Return agreement beyond chance and, for numbers, correlation and errors of a against b."""
    w, levels = sources.weights, sources.levels
    out: list[Measure] = []
    ranked = sources.ordered or (levels is None and sources.positive is None)
    if _as_classes(sources, [a, b]):
        out.append(beyond_chance("kappa", cohen_kappa(a, b, w, levels=levels)))
        if ranked:
            found = cohen_kappa(a, b, w, distance="quadratic", levels=levels)
            out.append(beyond_chance("kappa_quadratic", found))
    out += _alphas(np.column_stack([a.astype(object), b.astype(object)]), sources)
    if levels is None:
        both = ~np.isnan(a) & ~np.isnan(b)
        error = np.where(both, a - b, 0.0)
        if not (sources.positive is not None and _as_classes(sources, [a, b])):
            out.append(correlation(a, b, w, both))
            out.append(weighted_mean("mean_abs_error", np.abs(error), w, both, "size"))
        out.append(weighted_mean("mean_error", error, w, both, "mean"))
    return out


def _alphas(ratings: NDArray[Any], sources: _Sources) -> list[Measure]:
    w, levels = sources.weights, sources.levels
    columns = [ratings[:, j] for j in range(ratings.shape[1])]
    numbers = levels is None
    classes = not numbers or look_like_classes([c.astype(np.float64) for c in columns])
    binary = sources.positive is not None and classes
    scales: list[Any] = ["nominal"] if classes else []
    if (numbers or sources.ordered) and not binary:
        scales.append("ordinal")
    if numbers and not binary:
        scales.append("interval")
    out = []
    for scale in scales:
        found = krippendorff_alpha(ratings, scale, w, levels=levels)
        out.append(beyond_chance(f"alpha_{scale}", found))
    return out
