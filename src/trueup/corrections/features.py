"""What is known of every row that helps to tell its human label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.corrections.base import Problem
from trueup.study.design import Float, Int

#: Numeric labels with at most this many different values are classes to the learner.
MOST_NUMBER_CLASSES = 2
#: Rows on which classes are compared for what they do in the formula.
_PROBE_ROWS = 50
#: Other variables of the regression that the learner uses, for each coded row.
OTHERS_PER_ROW = 0.25
#: Products of the mean LLM label with other variables that the learner uses.
MOST_PRODUCTS = 3


@dataclass(frozen=True, slots=True)
class Penalty:
    """Ridge penalties of the learner, in coded rows, and its label smoothing."""

    label: float
    """On the LLM labels themselves."""
    other: float
    """On everything else: other variables, products."""
    smoothing: float
    """Pseudo-errors over all coded rows."""


@dataclass(frozen=True, slots=True)
class Values:
    """What one labelled variable may be."""

    values: tuple[Any, ...] | None
    """One value for each class that the formula tells apart; None for numbers."""
    code: dict[Any, int]
    """Class of every value."""

    def codes(self, labels: NDArray[Any]) -> Int:
        """Return the class of each label."""
        return np.array([self.code[v] for v in labels.tolist()], dtype=np.int64)

    def columns(self, labels: NDArray[Any]) -> Float:
        """Return (m, k) columns: numbers, or indicators of all classes but the first."""
        if self.values is None:
            return np.asarray(labels, dtype=float)[:, None]
        codes = self.codes(labels)
        return np.column_stack([codes == k for k in range(1, len(self.values))]).astype(float)

    def constant(self, k: int, m: int) -> NDArray[Any]:
        """Return (m,) labels of one class."""
        assert self.values is not None
        kind = float if isinstance(self.values[k], (int, float)) else object
        return np.full(m, self.values[k], dtype=kind)


@dataclass(frozen=True, slots=True)
class Features:
    """Features of all rows, with an intercept, and the ridge penalty of each."""

    X: Float
    """(N, q)"""
    penalty: Float
    """(q,)"""


def values_of(problem: Problem, variable: str) -> Values:
    """Return what a variable may be.

    Classes that do the same in the formula are one: ``I(topic == "war")`` asks for war or not.
    """
    frame = problem.frame
    classes = frame.class_labels.get(variable)
    human = frame.human_labels(variable)
    if classes is None:
        labels = [human, *(frame.llm_labels(variable, a) for a in problem.annotators)]
        seen = sorted({float(v) for part in labels for v in np.unique(part.astype(float))})
        if len(seen) > MOST_NUMBER_CLASSES:
            return Values(None, {})
        return Values(tuple(seen), {v: k for k, v in enumerate(seen)})
    index = problem.design.coded[:_PROBE_ROWS]
    others = {v: frame.human_labels(v)[: len(index)] for v in frame.variables if v != variable}
    groups: dict[bytes, int] = {}
    values: list[Any] = []
    code: dict[Any, int] = {}
    for value in classes:
        kind = float if isinstance(value, (int, float)) else object
        given = {**others, variable: np.full(len(index), value, dtype=kind)}
        rows = frame.rows(given, index)
        Z = b"" if rows.Z is None else rows.Z.tobytes()
        key = rows.y.tobytes() + rows.X.tobytes() + Z
        if key not in groups:
            groups[key] = len(values)
            values.append(value)
        code[value] = groups[key]
    return Values(tuple(values), code)


def learn_from(problem: Problem, kinds: dict[str, Values], penalty: Penalty) -> Features:
    """Return features of all rows: LLM labels, the other variables, and a few products.

    The other variables hold the outcome where a covariate is labelled, or predictions would be
    biased toward no effect.
    """
    label = _label_columns(problem, kinds)
    other = _other_columns(problem, kinds)
    middle = [part.mean(axis=0) for part in label]
    products = []
    for parts, mean in zip(label, middle, strict=True):
        if len(parts) > 1:
            products.append(((parts - mean) ** 2).mean(axis=0))
        lead = mean[:, :1] - mean[:, :1].mean()
        products += [lead * other[:, [j]] for j in range(min(other.shape[1], MOST_PRODUCTS))]
    label_side = np.hstack([part for parts in label for part in parts])
    other_side = np.hstack([other, *products])
    coded = problem.design.coded
    label_side = _varying(label_side, coded)
    other_side = _on_unit_scale(_varying(other_side, coded))
    X = np.hstack([np.ones((len(label_side), 1)), label_side, other_side])
    ridge = np.concatenate(
        [
            [0.0],
            np.full(label_side.shape[1], penalty.label),
            np.full(other_side.shape[1], penalty.other),
        ]
    )
    return Features(X, ridge)


def _label_columns(problem: Problem, kinds: dict[str, Values]) -> list[Float]:
    """Return for each variable the (K, N, k) columns of its LLM labels; numbers on unit scale."""
    out = []
    for variable, kind in kinds.items():
        labels = [problem.frame.llm_labels(variable, a) for a in problem.annotators]
        columns = np.stack([kind.columns(part) for part in labels])
        if kind.values is None:
            columns = columns / max(float(columns.std()), 1e-300)
        out.append(columns)
    return out


def _other_columns(problem: Problem, kinds: dict[str, Values]) -> Float:
    """Return (N, q) columns of the regression that do not depend on labels, on unit scale.

    Rows with the same labels everywhere leave the other variables, also those that the formula
    has in products with a label only.
    """
    n = problem.design.n_rows
    labels = {}
    for variable, kind in kinds.items():
        if kind.values is None:
            middle = float(np.median(problem.frame.human_labels(variable).astype(float)))
            labels[variable] = np.full(n, middle if middle != 0.0 else 1.0)
        else:
            labels[variable] = kind.constant(len(kind.values) - 1, n)
    rows = problem.frame.rows(labels, None)
    parts = [rows.y[:, None], rows.X] if rows.Z is None else [rows.y[:, None], rows.X, rows.Z]
    if problem.design.probability_all is not None:
        # Rows were drawn by what is known of them: given that, coded rows are like the others.
        parts.insert(0, np.log(problem.design.probability_all)[:, None])
    columns = _varying(np.hstack(parts), problem.design.coded)
    most = max(int(OTHERS_PER_ROW * problem.design.n_coded), 1)
    columns = _on_unit_scale(columns)
    if columns.shape[1] > most:
        spread = columns[problem.design.coded].var(axis=0)
        columns = columns[:, np.sort(np.argsort(-spread, kind="stable")[:most])]
    return columns


def _varying(columns: Float, coded: Int) -> Float:
    """Return the columns that vary on the coded rows and are no multiple of an earlier one."""
    sample = columns[coded]
    sample = sample - sample.mean(axis=0)
    size = np.sqrt((sample**2).sum(axis=0))
    rounding = 1e-10 * np.maximum(np.abs(columns[coded]).max(axis=0, initial=0.0), 1e-300)
    keep: list[int] = []
    for j in range(columns.shape[1]):
        if size[j] <= rounding[j] * np.sqrt(len(coded)):
            continue
        unit = sample[:, j] / size[j]
        if all(abs(unit @ sample[:, k]) < (1.0 - 1e-10) * size[k] for k in keep):
            keep.append(j)
    return columns[:, keep]


def _on_unit_scale(columns: Float) -> Float:
    spread = columns.std(axis=0)
    return np.asarray((columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1.0))
