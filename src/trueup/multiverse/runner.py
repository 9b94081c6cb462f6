"""Fit every universe: shared work once, failures kept as rows, any joblib backend."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trueup.corrections.base import Problem
from trueup.corrections.problem import build_problem
from trueup.errors import TrueupError
from trueup.multiverse.grid import groups
from trueup.multiverse.store import Store
from trueup.multiverse.universe import Outcome, Universe
from trueup.study.design import Int
from trueup.study.study import Study
from trueup.study.subsets import row_positions

#: Errors of arithmetic that make a universe fail without stopping the others.
FAILURES = (TrueupError, np.linalg.LinAlgError, FloatingPointError, OverflowError)
#: Pieces of work for each worker: enough to keep both busy, few enough to send the table rarely.
PIECES = 3


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

    Universes that the store holds already are read, not computed. The table is sent once for each
    piece of work, not once for each universe.
    """
    done: dict[int, Outcome] = {}
    if store is not None:
        for universe in universes:
            kept = store.read(universe, seed)
            if kept is not None:
                done[universe.number] = kept
    left = [u for u in universes if u.number not in done]
    with _Bar(len(universes), progress) as bar:
        bar.add(list(done.values()))
        for part in _parts(left, study, subsets, seed, n_jobs, store):
            bar.add(part)
            done.update({o.universe.number: o for o in part})
    return tuple(done[u.number] for u in universes)


def _parts(
    universes: Sequence[Universe],
    study: Study,
    subsets: Mapping[str, Any],
    seed: int | None,
    n_jobs: int | None,
    store: Store | None,
) -> Iterator[list[Outcome]]:
    """Yield outcomes as they come: piece by piece, in whatever order they finish."""
    if not universes:
        return
    from joblib import Parallel, delayed, effective_n_jobs

    workers = effective_n_jobs(n_jobs)
    if workers == 1:
        for universe_group in groups(universes):
            for outcome in _run_group(universe_group, study, subsets, seed):
                if store is not None:
                    store.write(outcome, seed)
                yield [outcome]
        return
    pieces = _pieces(universes, workers * PIECES)
    parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    yield from parallel(delayed(_run_piece)(p, study, subsets, seed, store) for p in pieces)


def _pieces(universes: Sequence[Universe], count: int) -> list[list[Universe]]:
    """Split the universes into about ``count`` pieces that keep shared work together."""
    together = [part for group in groups(universes) for part in _by_annotator(group, count)]
    together.sort(key=len, reverse=True)
    out: list[list[Universe]] = [[] for _ in range(min(count, len(together)))]
    for part in together:
        min(out, key=len).extend(part)
    return out


def _by_annotator(group: list[Universe], count: int) -> list[list[Universe]]:
    parts: dict[tuple[str, ...], list[Universe]] = {}
    for universe in group:
        parts.setdefault(universe.llm, []).append(universe)
    return list(parts.values()) if len(parts) >= 2 and count > 1 else [group]


def _run_piece(
    universes: list[Universe],
    study: Study,
    subsets: Mapping[str, Any],
    seed: int | None,
    store: Store | None,
) -> list[Outcome]:
    out = []
    for group in groups(universes):
        for outcome in _run_group(group, study, subsets, seed):
            if store is not None:
                store.write(outcome, seed)
            out.append(outcome)
    return out


def _run_group(
    group: list[Universe], study: Study, subsets: Mapping[str, Any], seed: int | None
) -> Iterator[Outcome]:
    """Fit universes that share a formula, a family and a subset."""
    try:
        part, positions = take_subset(study, subsets[group[0].subset])
    except TrueupError as error:
        for universe in group:
            yield _failed(universe, error, 0.0)
        return
    problems = Problems(part, group, seed)
    for universe in group:
        yield _fit(universe, problems, positions)


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

        With labels on the right-hand side as classes, columns depend on the annotators; and
        where one annotator cannot be used the others must not suffer.
        """
        if not self._tried:
            self._tried = True
            try:
                problem = self._build(self._annotators)
            except TrueupError:
                problem = None
            if problem is not None and not problem.frame.class_labels:
                self._shared = problem
        return self._shared

    def _build(self, annotators: tuple[str, ...]) -> Problem:
        u = self._first
        return build_problem(u.formula, self._study, u.family, annotators, u.vcov, self._seed)


def _fit(universe: Universe, problems: Problems, positions: Int | None) -> Outcome:
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            problem = problems.of(universe)
            estimate = universe.correction.estimate(problem)
        except FAILURES as error:
            return _failed(universe, error, time.perf_counter() - start)
    said = [str(w.message) for w in caught] + list(estimate.warnings)
    return Outcome(
        universe=universe,
        status="ok",
        terms=problem.frame.terms,
        estimate=estimate,
        positions=positions,
        warnings=tuple(dict.fromkeys(said)),
        seconds=time.perf_counter() - start,
    )


def _failed(universe: Universe, error: Exception, seconds: float) -> Outcome:
    text = f"{type(error).__name__}: {error}"
    return Outcome(universe, "failed", error=text, seconds=seconds)


class _Bar:
    """Progress with counts of universes done and failed."""

    def __init__(self, total: int, show: bool) -> None:
        self._bar: Any = None
        self._failed = 0
        if show and sys.stderr.isatty():
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, desc="universes", unit="fit")

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Count outcomes."""
        if self._bar is None or not outcomes:
            return
        self._failed += sum(o.status == "failed" for o in outcomes)
        self._bar.set_postfix(failed=self._failed)
        self._bar.update(len(outcomes))


def default_store(folder: str | Path | None, fingerprint: str) -> Store | None:
    """Return the store in a folder, None where none was asked for."""
    return None if folder is None else Store.open(Path(folder), fingerprint)
