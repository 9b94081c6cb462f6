"""Cross-fitted predictions of the human label, and the rows they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.corrections.base import Problem
from trueup.corrections.learners import Learner
from trueup.errors import CorrectionError
from trueup.formula.rows import Rows
from trueup.study.design import Float, Int, SampleDesign

#: More combinations of classes than this would mean as many design matrices.
MOST_COMBINATIONS = 200


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted labels of one variable on all rows."""

    values: Float
    """(N,) numbers, or (N, C) class probabilities."""
    classes: tuple[Any, ...] | None


def learner_features(problem: Problem) -> Float:
    """Return (N, q) features: LLM labels and every other variable of the regression.

    For a labelled covariate these must hold the outcome, or the predictions would be biased
    toward no effect; taking the design matrix and the outcome of every annotator sees to that.
    """
    columns: list[Float] = []
    seen: Rows | None = None
    for annotator in problem.annotators:
        rows = problem.frame.llm(annotator)
        blocks = [rows.y[:, None]]
        if seen is None or seen.X is not rows.X:
            blocks.append(rows.X)
        if rows.Z is not None and (seen is None or seen.Z is not rows.Z):
            blocks.append(rows.Z)
        columns.extend(blocks)
        seen = rows
    keep = _distinct(np.hstack([block[problem.design.coded] for block in columns]))
    every = [column for block in columns for column in block.T]
    return np.column_stack([every[j] for j in keep]) if keep else np.empty((len(every[0]), 0))


def _distinct(sample: Float) -> list[int]:
    """Return the columns that are neither constant nor repeat another on the coded rows."""
    keep: list[int] = []
    kept: set[bytes] = set()
    for j in range(sample.shape[1]):
        column = np.ascontiguousarray(sample[:, j])
        key = column.tobytes()
        if np.ptp(column) > 0 and key not in kept:
            keep.append(j)
            kept.add(key)
    return keep


def draw_folds(design: SampleDesign, folds: int, rng: np.random.Generator) -> Int:
    """Return (N,) fold codes; rows of a cluster (or drawn unit) share a fold.

    Coded rows (or clusters with coded rows) are spread evenly over the folds.
    """
    group = np.arange(design.n_rows) if design.cluster is None else design.cluster
    size = int(group.max()) + 1
    coded = np.zeros(size, dtype=bool)
    coded[group[design.coded]] = True
    n_coded = int(coded.sum())
    if n_coded < folds:
        what = "coded rows" if design.cluster is None else "clusters with coded rows"
        raise CorrectionError(f"{n_coded} {what} are fewer than folds={folds}: use fewer folds.")
    out = np.empty(size, dtype=np.int64)
    out[coded] = _balanced(n_coded, folds, rng)
    out[~coded] = _balanced(size - n_coded, folds, rng)
    return np.asarray(out[group])


def _balanced(size: int, folds: int, rng: np.random.Generator) -> Int:
    return rng.permutation(np.arange(size) % folds)


def cross_fit(
    problem: Problem, features: Float, folds: Int, learner: Learner
) -> dict[str, Prediction]:
    """Predict every labelled variable on all rows, each row by learners that never saw its fold."""
    design = problem.design
    fold_of_coded = folds[design.coded]
    coded_features = features[design.coded]
    out: dict[str, Prediction] = {}
    for variable in problem.frame.variables:
        labels = problem.frame.human_labels(variable)
        classes = problem.frame.class_labels.get(variable) or _binary(labels)
        width = () if classes is None else (len(classes),)
        values = np.empty((design.n_rows, *width))
        for fold in np.unique(folds):
            train = fold_of_coded != fold
            here = folds == fold
            values[here] = learner.predict(
                coded_features[train], labels[train], classes, features[here]
            )
        out[variable] = Prediction(values, classes)
    return out


def _binary(labels: NDArray[Any]) -> tuple[Any, ...] | None:
    """Return (0.0, 1.0) where labels are 0/1, so that predictions are probabilities."""
    return (0.0, 1.0) if np.isin(labels, (0.0, 1.0)).all() else None


def pseudo_rows(problem: Problem, predictions: Mapping[str, Prediction]) -> Rows:
    """Return all rows under predicted labels.

    A numeric label takes its prediction. A label that enters as classes gives the mean of the
    designs of its classes, weighted by their probabilities.
    """
    frame = problem.frame
    numeric: dict[str, NDArray[Any]] = {}
    mixed: dict[str, Prediction] = {}
    for variable, p in predictions.items():
        if variable in frame.class_labels:
            mixed[variable] = p
        elif p.classes is None:
            numeric[variable] = p.values
        else:
            numeric[variable] = p.values[:, 1]
    if not mixed:
        return frame.rows(numeric, None)
    return _mixture(problem, numeric, mixed)


def _mixture(
    problem: Problem, numeric: dict[str, NDArray[Any]], mixed: dict[str, Prediction]
) -> Rows:
    names = list(mixed)
    choices = [list(enumerate(mixed[v].classes or ())) for v in names]
    if np.prod([len(c) for c in choices]) > MOST_COMBINATIONS:
        raise CorrectionError(
            f"The labelled variables {', '.join(names)} have too many combinations of classes "
            f"for DSL (more than {MOST_COMBINATIONS}): use tu.PTD()."
        )
    n = problem.design.n_rows
    total: Rows | None = None
    for combination in product(*choices):
        weight = np.ones(n)
        labels = dict(numeric)
        for name, (code, value) in zip(names, combination, strict=True):
            weight = weight * mixed[name].values[:, code]
            labels[name] = _constant(value, n)
        part = problem.frame.rows(labels, None)
        y, X = weight * part.y, weight[:, None] * part.X
        Z = None if part.Z is None else weight[:, None] * part.Z
        if total is None:
            total = replace(part, y=y, X=X, Z=Z)
        else:
            Z = None if Z is None or total.Z is None else total.Z + Z
            total = replace(total, y=total.y + y, X=total.X + X, Z=Z)
    assert total is not None
    return total


def _constant(value: Any, n: int) -> NDArray[Any]:
    return np.full(n, value, dtype=float if isinstance(value, (int, float)) else object)
