"""Fit every universe: shared work once, failures kept as rows, any joblib backend."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trueup.corrections.base import Problem
from trueup.corrections.problem import build_problem
from trueup.errors import TrueupError, TrueupWarning
from trueup.multiverse.caught import caught_warnings
from trueup.multiverse.grid import groups
from trueup.multiverse.keys import Keys
from trueup.multiverse.progress import Progress
from trueup.multiverse.store import DamagedEntry, Store
from trueup.multiverse.universe import Outcome, Universe
from trueup.multiverse.workers import count_workers, on_cluster, spread
from trueup.results.tidy import standard_errors
from trueup.study.design import Int
from trueup.study.study import Study
from trueup.study.subsets import row_positions

#: Errors of arithmetic that make a universe fail without stopping the others.
FAILURES = (TrueupError, np.linalg.LinAlgError, FloatingPointError, OverflowError)
#: Pieces of work for each worker: enough to keep all busy, few enough to send the table rarely.
PIECES = 3


@dataclass(frozen=True, slots=True)
class Work:
    """What all universes of a run have in common."""

    study: Study
    subsets: Mapping[str, Any]
    seed: int | None
    store: Store | None = None
    keys: Mapping[int, str] = field(default_factory=dict)
    """Number of a universe -> its key in the store."""


def run_universes(
    universes: Sequence[Universe],
    study: Study,
    subsets: Mapping[str, Any],
    seed: int | None,
    *,
    n_jobs: int | None = None,
    store: Store | None = None,
    progress: bool = True,
) -> tuple[Outcome, ...]:
    """Return what came of every universe, in the order given.

    Universes that the store holds already are read, not computed. Where a worker process dies,
    what it held is tried again by itself, and only the universe that kills it fails.

    Raises
    ------
    ArgumentError
        If ``n_jobs`` cannot be used.
    StoreError
        If the store cannot be written; results so far stay in it.

    Warns
    -----
    TrueupWarning
        If files of the store are damaged, so that their universes are computed anew.
    """
    keys, done = ({}, {}) if store is None else _kept(universes, study, subsets, seed, store)
    work = Work(study, subsets, seed, store, keys)
    left = [u for u in universes if u.number not in done]
    if store is not None and left:
        store.prepare()
    with Progress(len(universes), progress) as bar:
        bar.add(list(done.values()))
        for part in _parts(left, work, n_jobs):
            bar.add(part)
            done.update({o.universe.number: o for o in part})
    return tuple(done[u.number] for u in universes)


def _kept(
    universes: Sequence[Universe],
    study: Study,
    subsets: Mapping[str, Any],
    seed: int | None,
    store: Store,
) -> tuple[dict[int, str], dict[int, Outcome]]:
    """Return the keys of universes in the store, and the outcomes that it holds, by number."""
    known = Keys(study, seed)
    keys: dict[int, str] = {}
    done: dict[int, Outcome] = {}
    damaged = 0
    for group in groups(universes):
        rows = subsets[group[0].subset]
        try:
            positions = None if rows is None else row_positions(study, rows)
        except TrueupError:
            continue  # nothing of it was kept: its universes fail again, with this reason
        for universe in group:
            key = known.key(universe, positions)
            if key is None:
                continue
            keys[universe.number] = key
            try:
                outcome = store.read(key, universe, positions)
            except DamagedEntry:
                damaged += 1
                continue
            if outcome is not None:
                done[universe.number] = outcome
    if damaged:
        warnings.warn(
            f"{damaged} of {len(universes)} results in the store {store.folder} are damaged; "
            "they are computed anew and replaced.",
            TrueupWarning,
            stacklevel=4,
        )
    return keys, done


def _parts(
    universes: Sequence[Universe], work: Work, n_jobs: int | None
) -> Iterator[list[Outcome]]:
    """Yield outcomes as they come: piece by piece, in whatever order they finish."""
    if not universes:
        return
    workers = count_workers(n_jobs)
    if workers > 1 or on_cluster():
        yield from spread(_pieces(universes, workers * PIECES), _run_piece, work, n_jobs)
        return
    for group in groups(universes):
        for outcome in _run_group(group, work):
            yield [outcome]


def _pieces(universes: Sequence[Universe], count: int) -> list[list[Universe]]:
    """Split the universes into at most ``count`` pieces that keep shared work together."""
    together = list(groups(universes))
    # Annotators share one design matrix: part them only where there is not enough other work.
    parts = max(1, count // len(together))
    split = [part for group in together for part in _by_annotator(group, parts)]
    split.sort(key=len, reverse=True)
    out: list[list[Universe]] = [[] for _ in range(min(count, len(split)))]
    for part in split:
        min(out, key=len).extend(part)
    return out


def _by_annotator(group: list[Universe], parts: int) -> list[list[Universe]]:
    by_llm: dict[tuple[str, ...], list[Universe]] = {}
    for universe in group:
        by_llm.setdefault(universe.llm, []).append(universe)
    chunks: list[list[Universe]] = [[] for _ in range(min(parts, len(by_llm)))]
    for i, some in enumerate(by_llm.values()):
        chunks[i * len(chunks) // len(by_llm)].extend(some)
    return chunks


def _run_piece(universes: list[Universe], work: Work) -> list[Outcome]:
    return [outcome for group in groups(universes) for outcome in _run_group(group, work)]


def _run_group(group: list[Universe], work: Work) -> Iterator[Outcome]:
    """Fit universes that share a formula, a family and a subset, and keep what came out."""
    try:
        with caught_warnings() as said:
            part, positions = take_subset(work.study, work.subsets[group[0].subset])
    except TrueupError as error:
        for universe in group:
            yield _failed(universe, error, tuple(said), 0.0)
        return
    problems = Problems(part, group, work.seed)
    for universe in group:
        outcome = _fit(universe, problems, positions, said)
        if work.store is not None and universe.number in work.keys:
            work.store.write(work.keys[universe.number], outcome)
        yield outcome


def take_subset(study: Study, rows: Any) -> tuple[Study, Int | None]:
    """Return the study of a subset and the positions of its rows (None: all rows)."""
    if rows is None:
        return study, None
    positions = row_positions(study, rows)
    return study.subset(positions), positions


class Problems:
    """The problems of a group of universes, built once and sharing their fits."""

    def __init__(self, study: Study, group: Sequence[Universe], seed: int | None) -> None:
        self._study = study
        self._first = group[0]
        self._seed = seed
        self._annotators = tuple(dict.fromkeys(a for u in group for a in u.llm))
        self._shared: Problem | None = None
        self._tried = False
        self._single: dict[tuple[str, ...], Problem] = {}
        self._said: dict[int, tuple[str, ...]] = {}

    def of(self, universe: Universe) -> Problem:
        """Return the problem of one universe."""
        shared = self._common()
        if shared is None:
            if universe.llm not in self._single:
                self._single[universe.llm] = self._build(universe.llm)
            base = self._single[universe.llm]
        else:
            base = shared
        return replace(base, annotators=universe.llm, vcov=universe.vcov)

    def _common(self) -> Problem | None:
        """Return one problem for all annotators, None where each needs its own.

        Where labels are classes on the right-hand side, columns depend on the annotators; and
        where one annotator cannot be used the others must not suffer.
        """
        if not self._tried:
            self._tried = True
            try:
                problem = self._build(self._annotators)
            except TrueupError:
                problem = None
            if problem is not None:
                frame = problem.frame
                if not any(v in frame.class_labels for v in frame.covariate_labels):
                    self._shared = problem
        return self._shared

    def _build(self, annotators: tuple[str, ...]) -> Problem:
        u = self._first
        with caught_warnings() as said:
            problem = build_problem(
                u.formula, self._study, u.family, annotators, u.vcov, self._seed
            )
        self._said[id(problem.cache)] = tuple(said)
        return problem

    def said(self, problem: Problem) -> tuple[str, ...]:
        """Return the warnings given when the problem was built, for whichever universe first."""
        return self._said[id(problem.cache)]


def _fit(
    universe: Universe, problems: Problems, positions: Int | None, subset_said: Sequence[str]
) -> Outcome:
    start = time.perf_counter()
    before: tuple[str, ...] = tuple(subset_said)
    with caught_warnings() as caught:
        try:
            problem = problems.of(universe)
            before += problems.said(problem)
            estimate = universe.correction.estimate(problem)
            standard_errors(estimate.vcov, problem.frame.terms)
        except FAILURES as error:
            return _failed(universe, error, (*before, *caught), time.perf_counter() - start)
    said = (*before, *caught, *estimate.warnings)
    return Outcome(
        universe=universe,
        status="ok",
        terms=problem.frame.terms,
        estimate=estimate,
        positions=positions,
        warnings=tuple(dict.fromkeys(said)),
        seconds=time.perf_counter() - start,
    )


def _failed(universe: Universe, error: Exception, said: tuple[str, ...], seconds: float) -> Outcome:
    text = f"{type(error).__name__}: {error}"
    said = tuple(dict.fromkeys(said))
    return Outcome(universe, "failed", error=text, warnings=said, seconds=seconds)
