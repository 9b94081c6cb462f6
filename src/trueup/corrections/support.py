r"""What the human labels of each row may be, and how likely each possibility is.

A *scenario* gives every labelled variable of the formula a value on every row. The expected score
of a row is the sum over scenarios of probability times score. Several labelled variables follow
the chain rule: the second is learned given the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.corrections.base import Problem
from trueup.corrections.features import Features, Penalty, Values, learn_from, values_of
from trueup.corrections.label_model import ClassModel, LabelModel, NumberModel
from trueup.errors import CorrectionError
from trueup.study.design import Float

#: More scenarios than this would mean as many passes over all rows.
MOST_SCENARIOS = 200


@dataclass(frozen=True, slots=True)
class Scenario:
    """One possibility for the labels of every row."""

    labels: Mapping[str, NDArray[Any]]
    """variable -> (N,) values."""
    weight: Float
    """(N,) probability; of a coded row, what is learned from all others."""


@dataclass(frozen=True, slots=True)
class Learned:
    """All possibilities for the labels of a problem."""

    scenarios: tuple[Scenario, ...]
    free: float
    """Effective number of parameters of the learner."""
    calibration: float
    """Spread of the coded labels about what was learned without them, over the spread expected."""


def learn(problem: Problem, penalty: Penalty) -> Learned:
    """Learn the labels from the coded rows and return all possibilities.

    Raises
    ------
    CorrectionError
        If there are too many combinations of classes.
    """
    design = problem.design
    kinds = {v: values_of(problem, v) for v in problem.frame.variables}
    features = learn_from(problem, kinds, penalty)
    found: tuple[Scenario, ...] = (Scenario({}, np.ones(design.n_rows)),)
    free, seen, expected = 0.0, penalty.smoothing, penalty.smoothing
    for variable in problem.frame.variables:
        model, given = _model(problem, features, penalty, kinds, variable, tuple(found[0].labels))
        free = max(free, model.free)
        spread = _spread(problem, features, kinds, given, variable, tuple(found[0].labels), model)
        seen, expected = seen + spread[0], expected + spread[1]
        found = tuple(
            one
            for scenario in found
            for one in _extended(problem, features, kinds, given, scenario, variable, model)
        )
        if len(found) > MOST_SCENARIOS:
            raise CorrectionError(
                f"The labelled variables {', '.join(problem.frame.variables)} have more than "
                f"{MOST_SCENARIOS} combinations of values: use tu.PTD()."
            )
    return Learned(found, free, seen / expected)


def _spread(
    problem: Problem,
    features: Features,
    kinds: Mapping[str, Values],
    scale: Float,
    variable: str,
    before: tuple[str, ...],
    model: LabelModel,
) -> tuple[float, float]:
    """Return the squared surprise of the coded labels, and what was expected, in rows."""
    frame, coded, kind = problem.frame, problem.design.coded, kinds[variable]
    own = _given(kinds, before, {v: frame.human_labels(v) for v in before}, scale, len(coded))
    at, probability = model.left_out(np.hstack([features.X[coded], own]))
    human = frame.human_labels(variable)
    if kind.values is None:
        mean = (probability * at).sum(axis=1)
        variance = (probability * (at - mean[:, None]) ** 2).sum(axis=1)
        size = max(float(variance.mean()), 1e-300)
        return float(((human.astype(float) - mean) ** 2).sum()) / size, float(len(mean))
    right = np.zeros_like(probability)
    right[np.arange(len(right)), kind.codes(human)] = 1.0
    seen = 0.5 * float(((right - probability) ** 2).sum())
    return seen, 0.5 * float((1.0 - (probability**2).sum(axis=1)).sum())


def _model(
    problem: Problem,
    features: Features,
    penalty: Penalty,
    kinds: Mapping[str, Values],
    variable: str,
    before: tuple[str, ...],
) -> tuple[LabelModel, Float]:
    """Return the learner of one variable, and the scale of the labels it was given."""
    frame, coded = problem.frame, problem.design.coded
    scale = np.array(
        [
            max(float(np.std(frame.human_labels(v).astype(float))), 1e-300)
            if kinds[v].values is None
            else 1.0
            for v in before
        ]
    )
    own = _given(kinds, before, {v: frame.human_labels(v) for v in before}, scale, len(coded))
    x = np.hstack([features.X[coded], own])
    ridge = np.concatenate([features.penalty, np.full(own.shape[1], penalty.label)])
    kind, human = kinds[variable], frame.human_labels(variable)
    if kind.values is None:
        numbers = human.astype(float)
        every = [frame.llm_labels(variable, a).astype(float) for a in problem.annotators]
        low = min(numbers.min(), *(e.min() for e in every))
        high = max(numbers.max(), *(e.max() for e in every))
        return NumberModel.fit(x, numbers, ridge, float(low), float(high)), scale
    codes = kind.codes(human)
    return ClassModel.fit(x, codes, len(kind.values), ridge, penalty.smoothing), scale


def _given(
    kinds: Mapping[str, Values],
    before: tuple[str, ...],
    labels: Mapping[str, NDArray[Any]],
    scale: Float,
    m: int,
) -> Float:
    """Return (m, k) columns of the labels that were learned before."""
    parts = [kinds[v].columns(labels[v]) / s for v, s in zip(before, scale, strict=True)]
    return np.hstack(parts) if parts else np.empty((m, 0))


def _extended(
    problem: Problem,
    features: Features,
    kinds: Mapping[str, Values],
    scale: Float,
    scenario: Scenario,
    variable: str,
    model: LabelModel,
) -> list[Scenario]:
    """Return a scenario with every value of one more variable."""
    coded, kind, before = problem.design.coded, kinds[variable], tuple(scenario.labels)
    n = problem.design.n_rows
    every = np.hstack([features.X, _given(kinds, before, scenario.labels, scale, n)])
    at, probability = model.predict(every)
    at[coded], probability[coded] = model.left_out(every[coded])
    return [
        Scenario(
            {
                **scenario.labels,
                variable: at[:, s] if kind.values is None else kind.constant(s, n),
            },
            scenario.weight * probability[:, s],
        )
        for s in range(probability.shape[1])
    ]
