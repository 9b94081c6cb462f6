"""Pieces of work on any joblib backend, where a worker process may die.

Dask clusters are driven by their own client: joblib's Dask backend never hears of a task that the
cluster gave up on, and waits for it for ever.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from numbers import Integral
from typing import Any

from trueup.errors import ArgumentError
from trueup.multiverse.universe import Outcome, Universe

Piece = list[Universe]
#: Fits a piece, given what all pieces have in common.
Run = Callable[[Piece, Any], list[Outcome]]


class _Died(Exception):
    """The worker process died that held a piece of work."""


def count_workers(n_jobs: int | None) -> int:
    """Return how many workers joblib makes of ``n_jobs=``.

    Raises
    ------
    ArgumentError
        If it is no number of workers.
    """
    from joblib import effective_n_jobs

    whole = n_jobs is None or (isinstance(n_jobs, Integral) and not isinstance(n_jobs, bool))
    try:
        if whole:
            return int(effective_n_jobs(n_jobs))
        reason = None
    except (TypeError, ValueError) as error:
        reason = error
    raise ArgumentError(
        f"n_jobs={n_jobs!r} cannot be used: give a number of workers, -1 for all cores, or "
        "None for what joblib is configured to."
    ) from reason


def on_cluster() -> bool:
    """Whether joblib is configured to use a Dask cluster, whatever its size."""
    return _dask_client()[0] is not None


def spread(
    pieces: Sequence[Piece], run: Run, work: Any, n_jobs: int | None
) -> Iterator[list[Outcome]]:
    """Yield the outcomes of each piece, in whatever order they finish.

    Where a worker process dies, the pieces that are not done are tried one at a time, and a piece
    that kills its worker again universe by universe, so that only the guilty ones fail.

    Parameters
    ----------
    pieces : sequence of lists of Universe
        None of them empty.
    run : callable
        Importable by workers; called as ``run(piece, work)``.
    work : object
        Sent once for each piece, to a Dask cluster once for all.
    n_jobs : int, optional
    """
    client, options = _dask_client()
    pool = _Joblib(run, work, n_jobs) if client is None else _Dask(run, work, client, options)
    left = list(pieces)
    try:
        for part in pool.all(left):
            numbers = {o.universe.number for o in part}
            left = [p for p in left if p[0].number not in numbers]
            yield part
    except _Died:
        yield from _one_at_a_time(left, pool)


def _one_at_a_time(pieces: Sequence[Piece], pool: _Joblib | _Dask) -> Iterator[list[Outcome]]:
    for piece in pieces:
        try:
            yield from pool.all([piece])
        except _Died as error:
            if len(piece) == 1:
                yield [_failed(piece[0], error)]
            else:
                yield from _one_at_a_time([[u] for u in piece], pool)


def _failed(universe: Universe, error: _Died) -> Outcome:
    reason = (
        f"{error}: the worker process died while it fitted this universe, often for lack of "
        "memory: use fewer workers (n_jobs=) or fit it by itself."
    )
    return Outcome(universe, "failed", error=reason)


class _Joblib:
    """Workers of the joblib backend in use."""

    def __init__(self, run: Run, work: Any, n_jobs: int | None) -> None:
        self._run = run
        self._work = work
        self._n_jobs = n_jobs

    def all(self, pieces: Sequence[Piece]) -> Iterator[list[Outcome]]:
        """Yield the outcomes of pieces that run side by side."""
        from joblib import Parallel, delayed

        parallel = Parallel(n_jobs=self._n_jobs, return_as="generator_unordered")
        try:
            yield from parallel(delayed(self._run)(p, self._work) for p in pieces)
        except BrokenExecutor as error:
            raise _Died(type(error).__name__) from error


class _Dask:
    """Workers of a Dask cluster."""

    def __init__(self, run: Run, work: Any, client: Any, options: dict[str, Any]) -> None:
        self._run = run
        self._work = work
        self._client = client
        self._options = options
        self._sent: Any = None

    def all(self, pieces: Sequence[Piece]) -> Iterator[list[Outcome]]:
        """Yield the outcomes of pieces that run side by side.

        All that can be finished are, before a death is reported. A cluster that has lost all
        workers waits for new ones, as long as its ``no-workers-timeout`` says.
        """
        from distributed import CancelledError, KilledWorker, as_completed

        futures = [self._submit(piece) for piece in pieces]
        lost: BaseException | None = None
        try:
            for future in as_completed(futures):
                try:
                    part = future.result()
                except (KilledWorker, CancelledError) as error:
                    lost = error
                else:
                    yield part
        finally:
            # Where something stopped the run, nothing of it keeps the cluster busy.
            self._client.cancel(futures)
        if lost is not None:
            if isinstance(lost, CancelledError):
                self._sent = None  # the cluster was restarted, and has forgotten it
            raise _Died(type(lost).__name__) from lost

    def _submit(self, piece: Piece) -> Any:
        if self._sent is None:
            self._sent = self._send()
        # Without pure=False a second try would be given the error of the first.
        return self._client.submit(self._run, piece, self._sent, pure=False, **self._options)

    def _send(self) -> Any:
        """Send the common work once, as a task of its own.

        Scattered data are gone when the workers that hold them die, and cannot be scattered while
        the cluster has yet to notice a death; what a task gives is made again by itself.
        """
        with warnings.catch_warnings():
            # It is advice to scatter instead.
            warnings.filterwarnings("ignore", message="Sending large graph")
            return self._client.submit(_itself, self._work, pure=False, **self._options)


def _itself(work: Any) -> Any:
    return work


def _dask_client() -> tuple[Any, dict[str, Any]]:
    """Return the client of joblib's Dask backend and options of its tasks; None for others."""
    from joblib.parallel import get_active_backend

    distributed = sys.modules.get("distributed")
    backend = get_active_backend()[0]
    client = getattr(backend, "client", None)
    if distributed is None or not isinstance(client, distributed.Client):
        return None, {}
    try:
        distributed.get_worker()
    except ValueError:
        return client, dict(getattr(backend, "submit_kwargs", {}))
    # Within a task of the cluster joblib knows how to wait without holding up its worker.
    return None, {}
