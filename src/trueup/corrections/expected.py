r"""The expected-score equation and the conditional moments of its influence.

.. math:: N^{-1}\sum_N E_p\,\psi(\theta; v)
          + \sum_R \tilde w_i\,[\psi(\theta; V_i) - E_{p^{(-i)}}\psi(\theta; v)] = 0

``E_p`` is the mean over scenarios (see ``support``); :math:`\tilde w` are inverse probabilities
that sum to one. Whatever the learner gets wrong, the second sum puts right on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trueup.corrections.base import Problem
from trueup.corrections.support import Scenario
from trueup.estimation.blocks import score_hessian
from trueup.estimation.rank import check_rank
from trueup.estimation.solve import fit, newton_joint
from trueup.formula.rows import Rows
from trueup.study.design import Float

#: A step of the full equation away from the imputed one, in standard deviations of the outcome's
#: linear predictor, beyond which one step is taken instead of the root.
FARTHEST = 3.0
#: Smallest eigenvalue of the bread relative to that of the imputed score.
WEAKEST_BREAD = 0.3
MOST_STEPS = 25
#: Probabilities are kept off zero, so that a scenario can be weighted back.
LEAST_PROBABILITY = 1e-12

Weighted = tuple[Rows, Float]


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """Rows and weights of the expected-score equation; the weights of the first sum to one."""

    imputed: tuple[Weighted, ...]
    """All rows under each scenario (or under the expected label), weighted by probability."""
    human: Rows
    coded_weight: Float
    """(n,) inverse probabilities that sum to one."""
    machine: tuple[Weighted, ...]
    """The coded rows under each scenario (or under the expected label)."""
    scenarios: tuple[Rows, ...]
    """All rows under each scenario, prepared."""


@dataclass(frozen=True, slots=True)
class Root:
    """Solution of the expected-score equation."""

    theta: Float
    inverse: Float
    """(p, p) inverse bread."""
    one_step: bool
    """Whether it is one step from the imputed solution, since the root is far or not there."""


def score_parts(problem: Problem, found: Sequence[Scenario]) -> ScoreParts:
    """Return the rows of the equation, prepared with one set of nuisance parts."""
    frame, design, family = problem.frame, problem.design, problem.family
    every = [frame.rows(s.labels, None) for s in found]
    weights = [np.maximum(s.weight, LEAST_PROBABILITY) for s in found]
    human = frame.human()
    c = design.coded_weights / design.coded_weights.sum()
    check_rank(human.X, frame.terms, weights=c, where="the coded rows (human labels)")
    a = np.ones(design.n_rows) if design.weights is None else design.weights
    total = float(a.sum())
    coded = design.coded
    one_design = all(r.X is every[0].X and r.Z is every[0].Z for r in every)
    nuisance = bool(every[0].groups) or every[0].Z is not None
    if family.outcome_linear and one_design:
        raw = _mean([r.y for r in every], weights)
        mean = replace(every[0], y=raw)
        machine = mean.take(coded)
        if nuisance:
            mean, human, machine = family.prepare_pair(
                mean, human, machine, coded, c * total, design.weights
            )
        scenarios = tuple(replace(mean, y=mean.y + (r.y - raw)) for r in every)
        return ScoreParts(((mean, a / total),), human, c, ((machine, c),), scenarios)
    machines = [r.take(coded) for r in every]
    if nuisance:
        every, human, machines = _prepared(problem, every, human, weights, c * total)
    return ScoreParts(
        tuple((r, a * w / total) for r, w in zip(every, weights, strict=True)),
        human,
        c,
        tuple((r, c * w[coded]) for r, w in zip(machines, weights, strict=True)),
        tuple(every),
    )


def _mean(values: Sequence[Float], weights: Sequence[Float]) -> Float:
    total = np.sum(weights, axis=0)
    return np.asarray(np.sum([v * w for v, w in zip(values, weights, strict=True)], axis=0) / total)


def _prepared(
    problem: Problem, every: list[Rows], human: Rows, weights: list[Float], c: Float
) -> tuple[list[Rows], Rows, list[Rows]]:
    """Prepare rows under all scenarios with one set of nuisance parts, as one long table."""
    design = problem.design
    S, N, n = len(every), design.n_rows, design.n_coded
    a = np.ones(N) if design.weights is None else design.weights
    long, people, machine = problem.family.prepare_pair(
        _stacked(every),
        _stacked([human] * S),
        _stacked([r.take(design.coded) for r in every]),
        np.concatenate([s * N + design.coded for s in range(S)]),
        np.concatenate([c * w[design.coded] for w in weights]),
        np.concatenate([a * w for w in weights]),
    )
    return (
        [long.take(slice(s * N, (s + 1) * N)) for s in range(S)],
        people.take(slice(0, n)),
        [machine.take(slice(s * n, (s + 1) * n)) for s in range(S)],
    )


def _stacked(parts: Sequence[Rows]) -> Rows:
    first = parts[0]
    return replace(
        first,
        y=np.concatenate([p.y for p in parts]),
        X=np.concatenate([p.X for p in parts]),
        Z=None if first.Z is None else np.concatenate([p.Z for p in parts if p.Z is not None]),
        groups=tuple(np.concatenate(g) for g in zip(*(p.groups for p in parts), strict=True)),
    )


def solve(problem: Problem, parts: ScoreParts) -> Root:
    """Solve the equation from the imputed solution, or take one step from it.

    The imputed equation has a solution wherever its weighted fit has; no fit to the coded rows
    alone enters, so that separated coded rows do no harm.

    Raises
    ------
    ConvergenceError
        If not even the imputed equation can be solved.
    """
    family = problem.family

    def imputed(theta: Float) -> tuple[Float, Float]:
        return _sums(problem, parts.imputed, theta)

    def full(theta: Float) -> tuple[Float, Float]:
        score, hessian = imputed(theta)
        human = score_hessian(family, theta, parts.human, parts.coded_weight)
        machine = _sums(problem, parts.machine, theta)
        return score + human[0] - machine[0], hessian + human[1] - machine[1]

    start = _start(problem, parts)
    score, hessian = full(start)
    anchor = imputed(start)[1]
    scale = np.sqrt(np.diag(anchor))
    bread = hessian if _strong(hessian, anchor) else anchor
    step = np.linalg.solve(bread, score)
    if family.linear and bread is hessian:
        return Root(start + step, _inverse(bread), False)
    first = start + step
    theta = first
    for _ in range(MOST_STEPS):
        score, hessian = full(theta)
        if not np.isfinite(score).all() or not _strong(hessian, anchor):
            break
        step = np.linalg.solve(hessian, score)
        theta = theta + step
        if np.abs((theta - start) * scale).max() > FARTHEST:
            break
        if np.abs(step * scale).max() < 1e-9:
            return Root(theta, _inverse(full(theta)[1]), False)
    return Root(first, _inverse(bread), True)


def _inverse(bread: Float) -> Float:
    return np.asarray(np.linalg.inv(bread), dtype=float)


def _start(problem: Problem, parts: ScoreParts) -> Float:
    """Return the solution of the imputed equation."""
    family, terms = problem.family, problem.frame.terms
    if len(parts.imputed) == 1:
        rows, weights = parts.imputed[0]
        flat = None if np.ptp(weights) == 0.0 else weights
        return fit(family, rows, flat, terms, where="all rows (expected labels)")

    def evaluate(theta: Float) -> tuple[Float, Float]:
        return _sums(problem, parts.imputed, theta)

    if family.linear:
        score, hessian = evaluate(np.zeros(len(terms)))
        return np.asarray(np.linalg.solve(hessian, score))
    heaviest, weights = max(parts.imputed, key=lambda part: float(part[1].sum()))
    return newton_joint(evaluate, family.start(heaviest, weights)).theta


def _strong(hessian: Float, anchor: Float) -> bool:
    """Whether the bread is positive and not much weaker than that of the imputed score."""
    if not np.isfinite(hessian).all():
        return False
    values = np.linalg.eigvals(np.linalg.solve(anchor, hessian))
    return bool(values.real.min() >= WEAKEST_BREAD)


def _sums(problem: Problem, parts: Sequence[Weighted], theta: Float) -> tuple[Float, Float]:
    p = len(theta)
    score, hessian = np.zeros(p), np.zeros((p, p))
    for rows, weights in parts:
        s, H = score_hessian(problem.family, theta, rows, weights)
        score, hessian = score + s, hessian + H
    return score, hessian


@dataclass(frozen=True, slots=True)
class Conditional:
    """Moments of the influence of some rows given everything but their human labels."""

    mean: Float
    """(m, p) expected influence."""
    variance: Float
    """(m, p)"""
    fourth: Float
    """(m, p) fourth central moment."""
    root: Float
    """(m, p) square root of the variance, with the sign of the effect of the last scenario."""


def conditional(
    problem: Problem,
    root: Root,
    rows: Sequence[Rows],
    weights: Sequence[Float],
    scale: Float,
) -> Conditional:
    """Return the conditional moments of the influence of rows under all scenarios.

    Parameters
    ----------
    rows : sequence of Rows
        One for each scenario.
    weights : sequence of (m,) arrays
        Probabilities.
    scale : (m, 1) array
        Analysis weight of each row over its mean.
    """
    psi = [problem.family.score(root.theta, r) @ root.inverse.T * scale for r in rows]
    probability = [w[:, None] for w in weights]
    mean = np.sum([w * s for w, s in zip(probability, psi, strict=True)], axis=0)
    away = [(s - mean) ** 2 for s in psi]
    variance = np.sum([w * s for w, s in zip(probability, away, strict=True)], axis=0)
    fourth = np.sum([w * s * s for w, s in zip(probability, away, strict=True)], axis=0)
    return Conditional(mean, variance, fourth, np.sqrt(variance) * np.sign(psi[-1] - psi[0]))
