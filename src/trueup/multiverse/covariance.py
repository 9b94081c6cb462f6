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

import numpy as np
from numpy.typing import NDArray

from trueup.corrections.base import Problem
from trueup.estimation.shared import shareable
from trueup.formula.rows import Rows
from trueup.inference.variance import SUBTRACTED, phase_one_rows
from trueup.multiverse.universe import Located
from trueup.study.design import Float, Int, SampleDesign

#: Rows held at a time in the pass over all rows, for all LLM-only universes together.
PASS_ROWS = 8192


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
            phi = _influence_at(universe, column, design.coded)[:, None] * design.n_rows
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
    sources: list[tuple[list[int], _SharedInfluence | _RowInfluence]] = []
    for numbers in _alike(universes):
        some, at = [universes[k] for k in numbers], [columns[k] for k in numbers]
        if shareable(some[0].problem.family):
            sources.append((numbers, _SharedInfluence(some, at)))
        else:
            sources += [([k], _RowInfluence.of(universes[k], columns[k])) for k in numbers]

    gram = np.zeros((len(universes), len(universes)))
    for start in range(0, n_rows, PASS_ROWS):
        stop = min(start + PASS_ROWS, n_rows)
        block = np.zeros((len(universes), stop - start))
        for numbers, source in sources:
            inside, values = source.between(start, stop)
            rows = np.array(numbers)
            block[rows if isinstance(inside, slice) else (rows[:, None], inside)] = values
        gram += block @ block.T
    return gram


def _alike(universes: Sequence[Located]) -> list[list[int]]:
    """Return the numbers of universes whose rows can be gone through together."""
    together: dict[tuple[int, int], list[int]] = {}
    for k, universe in enumerate(universes):
        key = id(universe.problem.frame), id(universe.problem.family)
        together.setdefault(key, []).append(k)
    return list(together.values())


class _SharedInfluence:
    """Influences on one coefficient each of the LLM-only fits of one design, block by block.

    Rows must be asked for in order.
    """

    def __init__(self, universes: Sequence[Located], columns: Sequence[int]) -> None:
        self._problem = universes[0].problem
        self._positions = universes[0].outcome.positions
        annotators = [u.problem.annotators[0] for u in universes]
        names = tuple(dict.fromkeys(annotators))
        self._at = [names.index(a) for a in annotators]
        estimates = [u.outcome.estimate for u in universes]
        self._thetas = np.array([e.theta for e in estimates if e is not None])
        self._directions = np.array(
            [e.extra["row_inverse"][c] for e, c in zip(estimates, columns, strict=True) if e]
        )
        self._missing = [
            (k, mask)
            for k, u in enumerate(universes)
            if (mask := u.problem.missing.get(annotators[k])) is not None
        ]
        self._blocks = iter(self._problem.frame.blocks(names))
        self._left = np.zeros((len(universes), 0))

    def between(self, start: int, stop: int) -> tuple[Int | slice, Float]:
        """Return which of rows start..stop the universes have, and their (k, m) influences."""
        if self._positions is None:
            return slice(None), self._next(stop - start)
        low, high = np.searchsorted(self._positions, [start, stop])
        return self._positions[low:high] - start, self._next(int(high - low))

    def _next(self, count: int) -> Float:
        """Return the influences of the next rows."""
        pieces, have = [self._left], self._left.shape[1]
        while have < count:
            pieces.append(self._values(*next(self._blocks)))
            have += pieces[-1].shape[1]
        values = np.concatenate(pieces, axis=1) if len(pieces) > 1 else pieces[0]
        self._left = values[:, count:]
        return values[:, :count]

    def _values(self, part: slice, every: tuple[Rows, ...]) -> Float:
        family, rows = self._problem.family, [every[k] for k in self._at]
        assert shareable(family)
        if all(r.X is rows[0].X for r in rows):
            X = rows[0].X
            residual = family.residual(self._thetas @ X.T, np.array([r.y for r in rows]))
            values = np.asarray(residual * (self._directions @ X.T))
        else:
            given = zip(self._thetas, self._directions, rows, strict=True)
            values = np.array([family.residual(r.X @ t, r.y) * (r.X @ d) for t, d, r in given])
        if self._problem.design.weights is not None:
            values = values * self._problem.design.weights[part]
        for k, mask in self._missing:
            values[k, mask[part]] = 0.0
        return values


@dataclass(frozen=True, slots=True)
class _RowInfluence:
    """Influence of every row on one coefficient of an LLM-only fit with nuisance parts.

    These (absorbed effects, first stages) need all rows of the fit at once.
    """

    known: Float
    """(N,) influences."""
    positions: Int | None

    @classmethod
    def of(cls, universe: Located, column: int) -> _RowInfluence:
        problem, estimate = universe.problem, universe.outcome.estimate
        assert estimate is not None
        direction = estimate.extra["row_inverse"][column]
        known = _with_nuisance(problem, problem.annotators[0], estimate.theta, direction)
        return cls(known, universe.outcome.positions)

    def between(self, start: int, stop: int) -> tuple[Int | slice, Float]:
        """Return which of rows start..stop the universe has, and their (1, m) influences."""
        if self.positions is None:
            return slice(None), self.known[None, start:stop]
        low, high = np.searchsorted(self.positions, [start, stop])
        return self.positions[low:high] - start, self.known[None, low:high]


def _influence_at(universe: Located, column: int, local: Int) -> Float:
    """Return the influences of a few rows, by their places among the universe's own rows."""
    problem, estimate = universe.problem, universe.outcome.estimate
    assert estimate is not None
    annotator, direction = problem.annotators[0], estimate.extra["row_inverse"][column]
    if not shareable(problem.family):
        return _with_nuisance(problem, annotator, estimate.theta, direction)[local]
    frame = problem.frame
    rows = frame.rows({v: frame.llm_labels(v, annotator)[local] for v in frame.variables}, local)
    values = problem.family.score(estimate.theta, rows) @ direction
    if problem.design.weights is not None:
        values = values * problem.design.weights[local]
    missing = problem.missing.get(annotator)
    return np.asarray(values if missing is None else values * ~missing[local])


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
