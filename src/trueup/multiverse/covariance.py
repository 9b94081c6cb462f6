r"""The covariance between universes, from their influence functions, without refitting.

All universes use rows of one study, so their influence functions stack:

- corrected and corrected: factor rows of the coded rows (or units, or clusters) multiply;
- LLM-only and corrected: :math:`N^{-2}\sum_R \phi_i h_i/\pi_i`, the coding of the rows is
  independent of what the LLM says of them;
- LLM-only and LLM-only: :math:`N^{-2}\sum_N \phi_i\phi_i'`, one pass over all rows.

Universes on different subsets meet on the rows (or clusters) they have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.corrections.base import Problem
from trueup.inference.variance import SUBTRACTED, phase_one_rows
from trueup.multiverse.universe import Located
from trueup.study.design import Float, Int, SampleDesign

#: Rows held at a time in the pass over all rows, for all LLM-only universes together.
PASS_ROWS = 65_536


def joint_covariance(
    universes: Sequence[Located], terms: Sequence[str], full: SampleDesign
) -> Float:
    """Return the (U, U) covariance of one coefficient of each universe.

    Parameters
    ----------
    universes : sequence of Located
        All fitted.
    terms : sequence of str
        The coefficient of each universe.
    full : SampleDesign
        The coded sample of the whole study that all universes meet on.

    Returns
    -------
    (U, U) array, its diagonal the squared standard errors of the single fits; positive
    semi-definite (mixed blocks are made so where estimation left them indefinite)
    """
    U = len(universes)
    column = [u.outcome.terms.index(t) for u, t in zip(universes, terms, strict=True)]
    naive = [u.outcome.estimate is not None and is_naive(u) for u in universes]
    V = np.zeros((U, U))
    for i in range(U):
        estimate = universes[i].outcome.estimate
        assert estimate is not None
        V[i, i] = estimate.vcov[column[i], column[i]]
    factors = [_factors(u, c, full) for u, c in zip(universes, column, strict=True)]
    diagonal = np.diag(V).copy()
    V += _products(factors, np.array(naive))
    np.fill_diagonal(V, diagonal)
    alone = [k for k in range(U) if naive[k] and "cluster" not in factors[k]]
    if len(alone) > 1:
        gram = _naive_gram([universes[k] for k in alone], [column[k] for k in alone], full.n_rows)
        scale = np.sqrt(np.array([V[k, k] for k in alone]) / np.diag(gram))
        gram = gram * np.outer(scale, scale)
        V[np.ix_(alone, alone)] = gram
    return valid_covariance(V)


def is_naive(universe: Located) -> bool:
    """Whether the universe takes LLM labels for the truth."""
    estimate = universe.outcome.estimate
    return estimate is not None and estimate.h is None


Keyed = tuple[Int, Float]


def _factors(universe: Located, column: int, full: SampleDesign) -> dict[str, Keyed]:
    """Return factor columns of one coefficient with the global keys of their rows."""
    estimate = universe.outcome.estimate
    assert estimate is not None
    design = universe.design
    keys = _keys(design, universe.outcome.positions, full)
    out: dict[str, Keyed] = {}
    if is_naive(universe):
        if design is universe.problem.design:
            phi = estimate.extra["phi"][:, [column]]
        else:
            phi = _RowInfluence.of(universe, column).at(design.coded)[:, None] * design.n_rows
        first = phase_one_rows(design, phi)
        out["first"] = (keys["first"], first[:, 0])
        if estimate.influence is not None:
            rows = estimate.influence.blocks["cluster"][:, column]
            out["cluster"] = (keys["cluster"], rows)
        return out
    assert estimate.influence is not None
    for name, rows in estimate.influence.blocks.items():
        out[name] = (keys[name], rows[:, column])
    return out


def _keys(design: SampleDesign, positions: Int | None, full: SampleDesign) -> dict[str, Int]:
    """Return keys of factor rows that mean the same row, unit or cluster in every subset."""
    where = np.arange(full.n_rows) if positions is None else positions
    coded = where[design.coded]
    drawn = coded
    if design.unit is not None and full.unit is not None:
        unit_of = full.unit[np.searchsorted(full.coded, coded)]
        drawn = _first_of(design.unit, unit_of)
    keys = {"first": drawn, "second": drawn, "independent": drawn}
    if design.cluster is not None and full.cluster is not None:
        keys["cluster"] = _first_of(design.cluster, full.cluster[where])
        cluster = full.cluster[coded]
        stratum = np.zeros(len(coded), dtype=np.int64)
        if design.stratum is not None and full.stratum is not None:
            stratum = full.stratum[np.searchsorted(full.coded, coded)]
        pair = cluster * (int(stratum.max(initial=0)) + 1_000_003) + stratum
        local = np.zeros_like(stratum) if design.stratum is None else design.stratum
        both = np.column_stack([design.cluster[design.coded], local])
        _, cell = np.unique(both, axis=0, return_inverse=True)
        keys["pairs"] = _first_of(cell.ravel(), pair)
        keys["pair_rows"] = coded
    return keys


def _first_of(codes: Int, values: Int) -> Int:
    """Return, for each code 0..m-1, the value of the first row that has it."""
    first = np.full(int(codes.max()) + 1, -1, dtype=np.int64)
    first[codes[::-1]] = values[::-1]
    return first


def _products(factors: Sequence[dict[str, Keyed]], naive: NDArray[np.bool_]) -> Float:
    """Return the (U, U) sums of products of factor rows that have the same key."""
    clustered = np.array(["cluster" in f for f in factors])
    both_naive = np.outer(naive, naive)
    out = np.zeros((len(factors), len(factors)))
    for name in dict.fromkeys(n for f in factors for n in f):
        part = _block_products(factors, name)
        if name != "cluster":
            part[both_naive] = 0.0
        if name == "first":
            # A naive universe knows its clusters' sums: they hold what its coded rows would say.
            part[np.outer(clustered, clustered)] = 0.0
        out += -part if name in SUBTRACTED else part
    return out


def _block_products(factors: Sequence[dict[str, Keyed]], name: str) -> Float:
    """Return the (U, U) products of the factor rows of one name, 0 where a universe has none."""
    out = np.zeros((len(factors), len(factors)))
    # Universes with the same keys meet in one matrix product.
    alike: dict[bytes, list[int]] = {}
    for u, f in enumerate(factors):
        if name in f:
            alike.setdefault(f[name][0].tobytes(), []).append(u)
    groups = list(alike.values())
    rows = [np.column_stack([factors[u][name][1] for u in group]) for group in groups]
    keys = [factors[group[0]][name][0] for group in groups]
    for a in range(len(groups)):
        out[np.ix_(groups[a], groups[a])] = rows[a].T @ rows[a]
        for b in range(a):
            _, i, j = np.intersect1d(keys[a], keys[b], return_indices=True)
            block = rows[a][i].T @ rows[b][j]
            out[np.ix_(groups[a], groups[b])] = block
            out[np.ix_(groups[b], groups[a])] = block.T
    return out


def _naive_gram(universes: Sequence[Located], columns: Sequence[int], n_rows: int) -> Float:
    """Return the (k, k) sums of products of the LLM-only influences over all rows."""
    sources = [_RowInfluence.of(u, c) for u, c in zip(universes, columns, strict=True)]
    gram = np.zeros((len(sources), len(sources)))
    for start in range(0, n_rows, PASS_ROWS):
        stop = min(start + PASS_ROWS, n_rows)
        block = np.zeros((stop - start, len(sources)))
        for k, source in enumerate(sources):
            inside, values = source.between(start, stop)
            block[inside, k] = values
        gram += block.T @ block
    return gram


@dataclass(frozen=True, slots=True)
class _RowInfluence:
    """Influence of every row on one coefficient of an LLM-only fit, computed block by block."""

    problem: Problem
    theta: Float
    direction: Float
    """(p,) d with influence psi_i'd."""
    positions: Int | None
    labels: dict[str, NDArray[Any]]
    known: Float | None
    """(N,) influences, where the family has nuisance parts that need all rows at once."""

    @classmethod
    def of(cls, universe: Located, column: int) -> _RowInfluence:
        problem, estimate = universe.problem, universe.outcome.estimate
        assert estimate is not None
        frame, annotator = problem.frame, problem.annotators[0]
        labels = {v: frame.llm_labels(v, annotator) for v in frame.variables}
        first = frame.rows({v: a[:1] for v, a in labels.items()}, np.zeros(1, dtype=np.int64))
        direction = estimate.extra["row_inverse"][column]
        known = None
        if first.groups or first.Z is not None:
            known = _with_nuisance(problem, annotator, estimate.theta, direction)
        positions = universe.outcome.positions
        return cls(problem, estimate.theta, direction, positions, labels, known)

    def between(self, start: int, stop: int) -> tuple[Int, Float]:
        """Return which of rows start..stop the universe has, and their influences."""
        if self.positions is None:
            local = np.arange(start, stop)
            inside = local - start
        else:
            low, high = np.searchsorted(self.positions, [start, stop])
            local = np.arange(low, high)
            inside = self.positions[low:high] - start
        if not len(local):
            return inside, np.zeros(0)
        return inside, self.at(local)

    def at(self, local: Int) -> Float:
        """Return the influences of rows, by their places among the universe's own rows."""
        if self.known is not None:
            return self.known[local]
        rows = self.problem.frame.rows({v: a[local] for v, a in self.labels.items()}, local)
        values = self.problem.family.score(self.theta, rows) @ self.direction
        if self.problem.design.weights is not None:
            values = values * self.problem.design.weights[local]
        missing = self.problem.missing.get(self.problem.annotators[0])
        if missing is not None:
            values = values * ~missing[local]
        return np.asarray(values)


def _with_nuisance(problem: Problem, annotator: str, theta: Float, direction: Float) -> Float:
    """Return (N,) influences; nuisance parts come from the rows that the fit used."""
    design, missing = problem.design, problem.missing.get(annotator)
    kept = np.arange(design.n_rows) if missing is None else np.flatnonzero(~missing)
    a = None if design.weights is None else design.weights[kept]
    rows = problem.family.prepare(problem.frame.llm(annotator).take(kept), a)
    out = np.zeros(design.n_rows)
    out[kept] = problem.family.score(theta, rows) @ direction
    return out if design.weights is None else out * design.weights


def valid_covariance(V: Float) -> Float:
    """Return V with negative eigenvalues set to zero and its diagonal kept."""
    V = (V + V.T) / 2.0
    values, vectors = np.linalg.eigh(V)
    if not len(values) or values[0] >= -1e-12 * max(values[-1], 0.0):
        return V
    fixed = (vectors * np.maximum(values, 0.0)) @ vectors.T
    scale = np.sqrt(np.diag(V) / np.maximum(np.diag(fixed), 1e-300))
    return np.asarray(fixed * np.outer(scale, scale))
