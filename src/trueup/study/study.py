"""The study: a table, its human and LLM labels, and how the coded rows were drawn."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trueup.errors import ArgumentError, SamplingError, StudyError
from trueup.study.describe import describe
from trueup.study.design import Float, Int, SampleDesign
from trueup.study.labels import Annotator, LLMColumns, parse_annotators
from trueup.study.sampling import Bool, Sampling, as_float, column_or_array, resolve
from trueup.study.subsets import row_positions
from trueup.study.tables import Table, nearest, stack
from trueup.study.values import (
    Labels,
    Missing,
    as_numbers,
    check_missing,
    common_levels,
    complete,
    read_labels,
)


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything a study knows, checked. Counted in rows that stay after ``tuned_on=``."""

    table: Table
    rows: Int | None
    """Positions in the table of the rows that stay; None where all do."""
    n_rows: int
    human: Mapping[str, str]
    annotators: Mapping[str, Annotator]
    levels: Mapping[str, tuple[str, ...] | None]
    n_missing: Mapping[tuple[str, str], int]
    """Rows without a label, by (variable, annotator)."""
    missing: Missing
    sampling: Sampling
    designs: Mapping[str, SampleDesign]
    """The design of each variable's coded sample."""
    cluster_name: str | None
    n_tuned: int


class Study:
    """Texts (or other items) that LLMs labelled, some of which humans labelled too.

    A study keeps together what every regression on it needs: which columns hold the human
    labels and which the LLM labels, how the rows that humans coded were drawn, and which rows
    depend on each other. It reads the table by position and never changes it.

    Parameters
    ----------
    data : pandas.DataFrame, polars.DataFrame, pyarrow.Table, or dict of arrays
        One row for each item, N in all.
    human : mapping of str to str
        Labelled variable -> column of human labels, missing where no human looked. The name of
        the variable is what formulas use; there it takes precedence over a column of that
        name.
    llm : mapping
        Labelled variable -> where its LLM labels are: a column pattern such as
        ``"{model}__{prompt}"`` (the fields become metadata of the annotator), a list of
        columns, or a mapping of annotator to column. Labels are numbers (0/1, probabilities,
        counts, scores), booleans (read as 0/1), or text and categories (classes).
    sampling : Sampling
        How the coded rows were drawn. Default: a simple random sample of rows.
    cluster : str or array of shape (N,), optional
        Rows with the same value depend on each other (posts of one user).
    weights : str or array of shape (N,), optional
        Analysis weights of all rows, for instance survey weights.
    tuned_on : str, bool array of shape (N,), or array of positions, optional
        Coded rows that were used to write the prompt or to train the annotator. The LLM has
        seen their labels, so they would make it look better than it is. They leave the study,
        both as coded rows and as rows to be labelled. They are taken for a random part of the
        coded rows of their stratum (of all coded rows, without strata): the probabilities of
        the coded rows that stay are adjusted, and where rows stayed with different
        probabilities the analysis weights make up for it.
    missing : {"fill", "level", "error"}
        What stands for a missing LLM label (a refusal, say). ``"fill"``: the annotator's own
        most frequent class (for classes and 0/1), or its mean (other numbers); a fixed rule
        such as this keeps corrected estimates valid. ``"level"``: a class of its own,
        ``"refused"``, which the human labels never take. ``"error"``: stop.

    Raises
    ------
    StudyError
        If columns are missing, labels do not fit each other, or no row is coded.
    SamplingError
        If the coded rows do not fit the description of how they were drawn.
    ArgumentError
        If an argument has an unknown value.

    Examples
    --------
    >>> data = {"coder": [1, 0, 1, None, None, None], "gpt": [1, 0, 0, 1, 0, 1],
    ...         "words": [4, 9, 2, 5, 7, 3]}
    >>> study = Study(data, human={"positive": "coder"}, llm={"positive": ["gpt"]})
    >>> study.n_rows, study.variables, study.annotators
    (6, ('positive',), ('gpt',))
    >>> study.coded("positive")
    array([0, 1, 2])
    """

    __slots__ = ("_contents",)

    _contents: Contents

    def __init__(
        self,
        data: Any,
        human: Mapping[str, str],
        llm: Mapping[str, LLMColumns],
        *,
        sampling: Sampling | None = None,
        cluster: str | NDArray[Any] | None = None,
        weights: str | NDArray[Any] | None = None,
        tuned_on: str | NDArray[Any] | Sequence[int] | None = None,
        missing: Missing = "fill",
    ) -> None:
        sampling = Sampling() if sampling is None else sampling
        if not isinstance(sampling, Sampling):
            raise ArgumentError("sampling= must be a Sampling, e.g. tu.Sampling(strata='source').")
        self._contents = _build(
            Table(data), human, llm, sampling, cluster, weights, tuned_on, missing
        )

    @classmethod
    def from_parts(
        cls,
        coded: Any,
        uncoded: Any,
        *,
        human: Mapping[str, str],
        llm: Mapping[str, LLMColumns],
        cluster: str | None = None,
        weights: str | None = None,
        missing: Missing = "fill",
    ) -> Study:
        """Build a study from a table of coded rows and a table of *other*, uncoded rows.

        This is the convention of the prediction-powered inference papers: the two tables are
        independent samples of the same population. The study stacks them, uncoded rows first.

        Parameters
        ----------
        coded : data frame
            n rows, each with a human label of every variable.
        uncoded : data frame
            m rows with the same columns; those of human labels may be left out.
        human, llm, missing
            As for :class:`Study`.
        cluster, weights : str, optional
            Columns of both tables.

        Returns
        -------
        Study
            With ``m + n`` rows; ``design(...).disjoint`` is True.

        Raises
        ------
        StudyError
            If the tables have different columns, a coded row lacks a human label, or an
            uncoded row has one.

        Examples
        --------
        >>> coded = {"coder": [1, 0, 1], "gpt": [1, 0, 0]}
        >>> study = Study.from_parts(coded, {"gpt": [1, 0]}, human={"y": "coder"},
        ...                          llm={"y": ["gpt"]})
        >>> study.coded("y")
        array([2, 3, 4])
        """
        first, second = Table(uncoded), Table(coded)
        columns = list(human.values()) if isinstance(human, Mapping) else []
        table = stack(first, second, only_second=columns)
        study = cls.__new__(cls)
        study._contents = _build(
            table, human, llm, Sampling(), cluster, weights, None, missing, first.n_rows
        )
        return study

    @property
    def n_rows(self) -> int:
        """Number of rows, N (without those that ``tuned_on=`` took out)."""
        return self._contents.n_rows

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the labelled variables."""
        return tuple(self._contents.human)

    @property
    def annotators(self) -> tuple[str, ...]:
        """Names of the annotators."""
        return tuple(self._contents.annotators)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that can stand in a formula: all but those of human labels."""
        hidden = set(self._contents.human.values())
        return tuple(c for c in self._contents.table.columns if c not in hidden)

    @property
    def human_columns(self) -> Mapping[str, str]:
        """Columns of human labels, by labelled variable."""
        return self._contents.human

    @property
    def contents(self) -> Contents:
        """The checked record behind the study."""
        return self._contents

    @property
    def positions(self) -> Int:
        """(N,) positions of the study's rows in the table it was built from."""
        rows = self._contents.rows
        return np.arange(self.n_rows) if rows is None else rows

    def subset(self, rows: str | NDArray[Any] | Sequence[Any]) -> Study:
        """Return the study of a part of the rows.

        The coded rows of the part are taken as drawn from the part, by the same kind of sampling:
        n of its N rows at random, or within each stratum.

        Parameters
        ----------
        rows : str, bool array of shape (N,), or int array
            A condition on columns that are known for every row, such as
            ``"source == 'tweets' and words > 5"``; a mask; or positions.

        Returns
        -------
        Study

        Raises
        ------
        StudyError
            If no row, or no coded row, is left.
        SamplingError
            If a stratum keeps too few coded rows.

        Examples
        --------
        >>> study = Study({"h": [1, 0, 1, None], "a": [1, 0, 1, 1], "x": [1, 2, 3, 4]},
        ...               human={"y": "h"}, llm={"y": ["a"]})
        >>> study.subset("x > 1").n_rows
        3
        """
        return _subset(self, row_positions(self, rows))

    def annotator(self, name: str) -> Annotator:
        """Return one annotator with its columns and metadata.

        Raises
        ------
        ArgumentError
            If there is no annotator of that name.

        Examples
        --------
        >>> study = Study({"h": ["yes", "no", None], "gpt": ["yes", None, "yes"], "x": [1, 2, 3]},
        ...               human={"y": "h"}, llm={"y": ["gpt"]})
        >>> study.annotator("gpt").columns["y"]
        'gpt'
        """
        if name not in self._contents.annotators:
            raise ArgumentError(f"There is no annotator {name!r}.{nearest(name, self.annotators)}")
        return self._contents.annotators[name]

    def resolve(self, llm: str | Sequence[str] | None = None) -> tuple[str, ...]:
        """Return the annotators that an ``llm=`` argument means.

        Parameters
        ----------
        llm : str, sequence of str, or None
            A name, a pattern such as ``"gpt*__p1"``, ``"all"``, or several of these; None
            where there is a single annotator.

        Returns
        -------
        tuple of str
            Names, each once.

        Raises
        ------
        ArgumentError
            If a name is unknown, a pattern matches nothing, or None is given although there
            are several annotators.

        Examples
        --------
        >>> study = Study({"h": [1, 0, None], "a1": [1, 0, 1], "a2": [1, 1, 0]},
        ...               human={"y": "h"}, llm={"y": ["a1", "a2"]})
        >>> study.resolve("a*")
        ('a1', 'a2')
        """
        if llm is None:
            if len(self.annotators) == 1:
                return self.annotators
            raise ArgumentError(
                f"The study has {len(self.annotators)} annotators: choose with llm='...', or take "
                f"them together with llm='all'.{nearest('', self.annotators)}"
            )
        if not isinstance(llm, Iterable) or not all(isinstance(w, str) for w in llm):
            raise ArgumentError(
                f"llm={llm!r} must be the name of an annotator, or a list of names."
                f"{nearest('', self.annotators)}"
            )
        wanted = [llm] if isinstance(llm, str) else list(llm)
        if not wanted:
            raise ArgumentError("llm= is empty: name at least one annotator.")
        return tuple(dict.fromkeys(name for w in wanted for name in self._resolve_one(w)))

    def _resolve_one(self, wanted: str) -> Sequence[str]:
        if wanted in self._contents.annotators:
            return (wanted,)
        if wanted == "all":
            return self.annotators
        found = [name for name in self.annotators if fnmatch.fnmatchcase(name, wanted)]
        if not found:
            raise ArgumentError(
                f"llm={wanted!r} is no annotator.{nearest(wanted, self.annotators)}"
            )
        return found

    def coded(self, variables: str | Sequence[str]) -> Int:
        """Return the rows with a human label of every one of these variables.

        Parameters
        ----------
        variables : str or sequence of str
            Labelled variables.

        Returns
        -------
        numpy.ndarray, shape (n,)
            Positions, ascending.

        Raises
        ------
        StudyError
            If the variables were coded on different rows: then no single sampling design
            describes the rows where all are known.

        Examples
        --------
        >>> study = Study({"h": ["yes", "no", None], "gpt": ["yes", None, "yes"], "x": [1, 2, 3]},
        ...               human={"y": "h"}, llm={"y": ["gpt"]})
        >>> study.coded("y")
        array([0, 1])
        """
        return self.design(variables).coded

    def design(self, variables: str | Sequence[str]) -> SampleDesign:
        """Return the sampling design of the rows with a human label of these variables.

        Raises
        ------
        StudyError
            If the variables were coded on different rows.

        Examples
        --------
        >>> study = Study({"h": ["yes", "no", None], "gpt": ["yes", None, "yes"], "x": [1, 2, 3]},
        ...               human={"y": "h"}, llm={"y": ["gpt"]})
        >>> study.design("y").n_coded, study.design("y").probability.round(3)
        (2, array([0.667, 0.667]))
        """
        names = [variables] if isinstance(variables, str) else list(variables)
        if not names:
            raise ArgumentError("Name at least one labelled variable.")
        designs = [self._contents.designs[self._variable(name)] for name in names]
        if any(not np.array_equal(designs[0].coded, d.coded) for d in designs[1:]):
            counts = ", ".join(
                f"{v!r} on {d.n_coded} rows" for v, d in zip(names, designs, strict=True)
            )
            every = set.intersection(*(set(d.coded.tolist()) for d in designs))
            raise StudyError(
                f"The variables were coded on different rows: {counts}, all of them on "
                f"{len(every)}. Blank out the human labels of rows that are not coded for all of "
                "them (if these rows are a sample with known probabilities), or build separate "
                "studies."
            )
        return designs[0]

    def human_labels(self, variable: str) -> NDArray[Any]:
        """Return (N,) human labels: NaN (numbers) or None (classes) where not coded.

        Examples
        --------
        >>> study = Study({"h": ["yes", "no", None], "gpt": ["yes", None, "yes"], "x": [1, 2, 3]},
        ...               human={"y": "h"}, llm={"y": ["gpt"]})
        >>> study.human_labels("y")
        array(['yes', 'no', None], dtype=object)
        """
        return self._read(variable, self.human_columns[self._variable(variable)]).values

    def llm_labels(self, variable: str, annotator: str) -> NDArray[Any]:
        """Return (N,) labels of one annotator, complete by the study's rule for missing ones.

        Examples
        --------
        >>> study = Study({"h": ["yes", "no", None], "gpt": ["yes", None, "yes"], "x": [1, 2, 3]},
        ...               human={"y": "h"}, llm={"y": ["gpt"]})
        >>> study.llm_labels("y", "gpt")
        array(['yes', 'yes', 'yes'], dtype=object)
        """
        labels = self._llm(variable, annotator)
        return complete(labels, self._contents.levels[variable], self._contents.missing)

    def llm_missing(self, variable: str, annotator: str) -> Bool:
        """Return (N,) whether the annotator gave no label.

        Examples
        --------
        >>> study = Study({"h": ["yes", "no", None], "gpt": ["yes", None, "yes"], "x": [1, 2, 3]},
        ...               human={"y": "h"}, llm={"y": ["gpt"]})
        >>> study.llm_missing("y", "gpt")
        array([False,  True, False])
        """
        return self._llm(variable, annotator).missing

    def levels(self, variable: str) -> tuple[str, ...] | None:
        """Return the classes of a variable, None where its labels are numbers.

        Examples
        --------
        >>> study = Study({"h": ["yes", "no", None], "gpt": ["yes", None, "yes"], "x": [1, 2, 3]},
        ...               human={"y": "h"}, llm={"y": ["gpt"]})
        >>> study.levels("y")
        ('no', 'yes')
        """
        return self._contents.levels[self._variable(variable)]

    def covariates(self, columns: Sequence[str], part: slice | Int | None = None) -> pd.DataFrame:
        """Return columns other than human labels, with a fresh index.

        Parameters
        ----------
        columns : sequence of str
            Column names.
        part : slice, int array, or None
            Positions among the study's rows; None for all.

        Returns
        -------
        pandas.DataFrame
            The rows asked for. Do not write into it: it may share memory with the table.

        Raises
        ------
        StudyError
            If a column does not exist or holds human labels.

        Examples
        --------
        >>> study = Study({"h": ["yes", "no", None], "gpt": ["yes", None, "yes"], "x": [1, 2, 3]},
        ...               human={"y": "h"}, llm={"y": ["gpt"]})
        >>> study.covariates(["x"], slice(0, 2))
           x
        0  1
        1  2
        """
        for variable, column in self._contents.human.items():
            if column in columns:
                raise StudyError(
                    f"Column {column!r} holds the human labels of {variable!r}, which most rows "
                    f"lack: use {variable!r} in the formula."
                )
        rows = self._contents.rows
        if rows is not None:
            part = rows if part is None else rows[part]
        return self._contents.table.pandas(columns, part)

    def __repr__(self) -> str:
        return describe(self._contents)

    def _variable(self, name: str) -> str:
        if name not in self._contents.human:
            raise ArgumentError(f"{name!r} is no labelled variable.{nearest(name, self.variables)}")
        return name

    def _llm(self, variable: str, annotator: str) -> Labels:
        return self._read(variable, self.annotator(annotator).columns[self._variable(variable)])

    def _read(self, variable: str, column: str) -> Labels:
        labels = read_labels(self._contents.table, column)
        if self._contents.levels[variable] is None:
            labels = as_numbers(labels)
        rows = self._contents.rows
        return labels if rows is None else labels.take(rows)


def _subset(study: Study, rows: Int) -> Study:
    """Build the study of the rows at these positions of ``study``."""
    contents = study.contents
    design = next(iter(contents.designs.values()))
    human = contents.human
    for variable, d in contents.designs.items():
        if not np.isin(d.coded, rows).any():
            raise StudyError(
                f"No coded row of {variable!r} lies in the subset: code rows there, or leave the "
                "subset out."
            )
    sampling = _part_sampling(contents, design, rows)
    llm = {v: {a.name: a.columns[v] for a in contents.annotators.values()} for v in human}
    part = Study.__new__(Study)
    part._contents = replace(
        _build(
            contents.table.take(study.positions[rows]),
            human,
            llm,
            sampling,
            None
            if contents.cluster_name is None or design.cluster is None
            else design.cluster[rows],
            None if design.weights is None else design.weights[rows],
            None,
            contents.missing,
            int((rows < design.n_rows - design.n_coded).sum()) if design.disjoint else None,
        ),
        annotators={
            name: replace(a, metadata=contents.annotators[name].metadata)
            for name, a in contents.annotators.items()
        },
        cluster_name=contents.cluster_name,
        levels=contents.levels,
    )
    return part


def _part_sampling(contents: Contents, design: SampleDesign, rows: Int) -> Sampling:
    """Return how the coded rows among some rows were drawn.

    Within strata the probability follows from the counts in the part, whatever column was given
    beside them. A column of probabilities still holds for each row, unless coded rows that tuned
    an annotator have left: then those of the design do.
    """
    sampling = contents.sampling
    if sampling.probability is None:
        return sampling
    if sampling.strata_columns:
        return replace(sampling, probability=None, method="poisson")
    if isinstance(sampling.probability, str) and not contents.n_tuned:
        return sampling
    probability = design.probability_all
    if probability is None:
        probability = np.full(design.n_rows, np.nan)
        probability[design.coded] = design.probability
    return replace(sampling, probability=probability[rows])


def _build(
    table: Table,
    human: Mapping[str, str],
    llm: Mapping[str, LLMColumns],
    sampling: Sampling,
    cluster: str | NDArray[Any] | None,
    weights: str | NDArray[Any] | None,
    tuned_on: str | NDArray[Any] | Sequence[int] | None,
    missing: str,
    n_uncoded: int | None = None,
) -> Contents:
    """Check everything there is to check and return the record of the study."""
    rule = check_missing(missing)
    named = (c for c in (cluster, weights, tuned_on) if isinstance(c, str))
    reserved = (*sampling.columns, *named)
    annotators = parse_annotators(table, human, llm, reserved)
    levels, n_missing, coded = _read_all(table, human, annotators, rule)
    if n_uncoded is not None:
        _check_parts(human, coded, n_uncoded)
    tuned = None if tuned_on is None else _tuned(table, tuned_on, coded)
    cluster_codes = None if cluster is None else _cluster_codes(table, cluster)
    row_weights = None if weights is None else _row_weights(table, weights)
    designs: dict[str, SampleDesign] = {}
    for variable, mask in coded.items():
        same = next((v for v in designs if np.array_equal(coded[v], mask)), None)
        designs[variable] = (
            designs[same]
            if same is not None
            else resolve(
                sampling,
                table,
                mask,
                tuned=tuned,
                cluster=cluster_codes,
                weights=row_weights,
                disjoint=n_uncoded is not None,
            )
        )
        _check_design(variable, designs[variable])
    rows = None if tuned is None or not tuned.any() else np.flatnonzero(~tuned)
    if rows is not None:
        levels, n_missing, _ = _read_all(table, human, annotators, rule, rows)
    return Contents(
        table=table,
        rows=rows,
        n_rows=table.n_rows if rows is None else len(rows),
        human=dict(human),
        annotators={a.name: a for a in annotators},
        levels=levels,
        n_missing=n_missing,
        missing=rule,
        sampling=sampling,
        designs=designs,
        cluster_name=cluster if isinstance(cluster, str) or cluster is None else "(array)",
        n_tuned=0 if rows is None else table.n_rows - len(rows),
    )


def _read_all(
    table: Table,
    human: Mapping[str, str],
    annotators: Sequence[Annotator],
    missing: Missing,
    rows: Int | None = None,
) -> tuple[
    dict[str, tuple[str, ...] | None], dict[tuple[str, str], int], dict[str, NDArray[np.bool_]]
]:
    """Return levels, counts of missing LLM labels and masks of coded rows."""

    def read(column: str) -> Labels:
        labels = read_labels(table, column)
        return labels if rows is None else labels.take(rows)

    levels: dict[str, tuple[str, ...] | None] = {}
    n_missing: dict[tuple[str, str], int] = {}
    coded: dict[str, NDArray[np.bool_]] = {}
    for variable, column in human.items():
        labels = read(column)
        if labels.empty:
            raise StudyError(
                f"No row is coded: column {column!r} (human labels of {variable!r}) is missing "
                "everywhere. A correction needs some rows with human labels: name the column "
                "that holds them, or code some rows."
            )
        by_llm = {a.name: read(a.columns[variable]) for a in annotators}
        levels[variable] = common_levels(variable, labels, list(by_llm.values()), missing)
        coded[variable] = ~labels.missing
        for name, column_labels in by_llm.items():
            n_missing[variable, name] = int(column_labels.missing.sum())
    if missing == "error" and any(n_missing.values()):
        counts = [f"{a} {k:,} ({v})" for (v, a), k in n_missing.items() if k]
        raise StudyError(
            f"LLM labels are missing: {', '.join(counts[:10])}. Fill them in, or let a fixed rule "
            "do so with missing='fill'."
        )
    return levels, n_missing, coded


def _check_parts(
    human: Mapping[str, str], coded: Mapping[str, NDArray[np.bool_]], n_uncoded: int
) -> None:
    for variable, mask in coded.items():
        lacking, extra = int((~mask[n_uncoded:]).sum()), int(mask[:n_uncoded].sum())
        if lacking:
            raise StudyError(
                f"{lacking} rows of the coded table have no human label of {variable!r} (column "
                f"{human[variable]!r}): move them to the uncoded table."
            )
        if extra:
            raise StudyError(
                f"{extra} rows of the uncoded table have a human label of {variable!r} (column "
                f"{human[variable]!r}): move them to the coded table, or leave the column out."
            )


def _tuned(table: Table, tuned_on: Any, coded: Mapping[str, NDArray[np.bool_]]) -> Bool:
    """Return the rows marked by ``tuned_on=`` as a mask."""
    masks = list(coded.values())
    every = masks[0]
    if any(not np.array_equal(every, mask) for mask in masks[1:]):
        raise StudyError(
            "tuned_on= needs all variables to be coded on the same rows: build separate studies."
        )
    tuned = _tuned_mask(table, tuned_on, every)
    stray = tuned & ~every
    if stray.any():
        raise StudyError(
            f"tuned_on= marks {int(stray.sum())} rows without a human label (first at positions "
            f"{np.flatnonzero(stray)[:5].tolist()}): it is for coded rows. Unmark them, or drop "
            "them from the data."
        )
    return tuned


def _tuned_mask(table: Table, tuned_on: Any, coded: Bool) -> Bool:
    if isinstance(tuned_on, str):
        marks = as_float(column_or_array(table, tuned_on, "tuned_on"), f"tuned_on={tuned_on!r}")
        unknown = np.isnan(marks) & coded
        if unknown.any() or not np.isin(marks[~np.isnan(marks)], (0.0, 1.0)).all():
            raise StudyError(
                f"Column {tuned_on!r} (tuned_on=) must say True or False (1 or 0) for every coded "
                "row."
            )
        return np.asarray(marks == 1.0)
    values = np.asarray(tuned_on)
    if values.dtype == np.bool_:
        return column_or_array(table, values, "tuned_on")
    mask = np.zeros(table.n_rows, dtype=bool)
    if values.size == 0:
        return mask
    if values.dtype.kind not in "iu" or values.min() < 0 or values.max() >= table.n_rows:
        raise StudyError(
            "tuned_on= must be a boolean column, a boolean array with one value for each row, or "
            f"positions between 0 and {table.n_rows - 1}."
        )
    mask[values] = True
    return mask


def _cluster_codes(table: Table, cluster: str | NDArray[Any]) -> Int:
    codes = pd.factorize(column_or_array(table, cluster, "cluster"))[0].astype(np.int64)
    unknown = np.flatnonzero(codes < 0)
    if len(unknown):
        raise StudyError(
            f"cluster= is missing in {len(unknown)} rows (first at positions "
            f"{unknown[:5].tolist()}): give every row a cluster, its own if it stands alone."
        )
    return codes


def _row_weights(table: Table, weights: str | NDArray[Any]) -> Float:
    values = as_float(column_or_array(table, weights, "weights"), "weights=")
    bad = np.flatnonzero(~np.isfinite(values) | (values < 0))
    if len(bad):
        raise StudyError(
            f"weights= is missing, infinite or negative in {len(bad)} rows (first at positions "
            f"{bad[:5].tolist()}): weights must be zero or more, and known for every row."
        )
    return values


def _check_design(variable: str, design: SampleDesign) -> None:
    if design.weights is not None and not design.weights[design.coded].any():
        raise StudyError(
            f"weights= is zero in every coded row of {variable!r}, so that they say nothing: code "
            "rows that have a weight, or correct the weights."
        )
    if design.cluster is not None and len(np.unique(design.cluster[design.coded])) < 2:
        raise SamplingError(
            f"All coded rows of {variable!r} lie in one cluster, so that nothing is known about "
            "how clusters differ: code rows in several clusters, or use a finer cluster column."
        )
