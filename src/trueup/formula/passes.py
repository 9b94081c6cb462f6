"""Passes over many rows: partial sums on several threads, added in a fixed order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any

from trueup.study.design import Float

#: Sums of one piece of the rows; those of all pieces are added term by term.
Totals = tuple[Float, ...]


@lru_cache(maxsize=1)
def _controller() -> Any:
    """Return what sets the threads of the matrix library; None where nothing can."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


class _OneBlasThread:
    """Holds matrix products to one thread for as long as any pass runs.

    Products of small blocks gain nothing from a second thread, and lose much where it must wait
    for a processor. The setting belongs to the whole process, so passes in several threads share
    it, and the last one to end restores what was there before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._threads = 1
        self._limit: AbstractContextManager[Any] | None = None

    @contextmanager
    def __call__(self) -> Iterator[int]:
        """Yield how many threads the matrix library was allowed."""
        self._begin()
        try:
            yield self._threads
        finally:
            self._end()

    def _begin(self) -> None:
        controller = _controller()
        with self._lock:
            self._running += 1
            if self._running == 1 and controller is not None:
                blas = [i["num_threads"] for i in controller.info() if i["user_api"] == "blas"]
                self._threads = max(blas, default=1)
                self._limit = controller.limit(limits=1, user_api="blas")
                self._limit.__enter__()

    def _end(self) -> None:
        with self._lock:
            self._running -= 1
            if self._running == 0 and self._limit is not None:
                self._limit.__exit__(None, None, None)
                self._limit = None


_one_blas_thread = _OneBlasThread()


def ordered_total(tasks: Sequence[Callable[[], Totals]]) -> Totals:
    """Run tasks and add what they return, always in their order.

    They run on as many threads as the matrix library may use, so that limits of the environment
    (``OPENBLAS_NUM_THREADS``) and of joblib's worker processes hold here too; and on one where
    the caller is itself one of several threads. The sums do not depend on it.

    Examples
    --------
    >>> import numpy as np
    >>> ordered_total([lambda: (np.ones(2),), lambda: (np.array([1.0, 2.0]),)])
    (array([2., 3.]),)
    """
    with _one_blas_thread() as allowed:
        threads = min(_threads(allowed), len(tasks))
        if threads == 1:
            return _added(task() for task in tasks)
        pool = ThreadPoolExecutor(threads)
        try:
            return _added(pool.map(_call, tasks))
        finally:
            pool.shutdown(cancel_futures=True)


def _threads(allowed: int) -> int:
    """Return how many threads to use: one within a program's own threads."""
    return allowed if threading.current_thread() is threading.main_thread() else 1


def _call(task: Callable[[], Totals]) -> Totals:
    return task()


def _added(results: Iterator[Totals]) -> Totals:
    total = next(results)
    for result in results:
        total = tuple(a + b for a, b in zip(total, result, strict=True))
    return total
