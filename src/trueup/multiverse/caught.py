"""Warnings as text, caught thread by thread."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _Router:
    """Sends each warning to the list of the thread that gave it.

    ``warnings.catch_warnings`` changes the state of the whole process: threads that enter and
    leave it in turn would lose each other's warnings, and leave them caught for good.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._state: warnings.catch_warnings[Any] | None = None
        self._before: Callable[..., Any] = warnings.showwarning
        self._lists = threading.local()

    def enter(self) -> list[str]:
        with self._lock:
            if self._open == 0:
                self._state = warnings.catch_warnings()
                self._state.__enter__()
                self._before = warnings.showwarning
                warnings.simplefilter("always")
                warnings.showwarning = self._show
            self._open += 1
        caught: list[str] = []
        self._stack().append(caught)
        return caught

    def leave(self) -> None:
        self._stack().pop()
        with self._lock:
            self._open -= 1
            if self._open == 0 and self._state is not None:
                self._state.__exit__(None, None, None)
                self._state = None

    def _stack(self) -> list[list[str]]:
        if not hasattr(self._lists, "stack"):
            self._lists.stack = []
        stack: list[list[str]] = self._lists.stack
        return stack

    def _show(self, message: Warning | str, *args: Any, **options: Any) -> None:
        stack = self._stack()
        if stack:
            stack[-1].append(str(message))
        else:
            self._before(message, *args, **options)


_ROUTER = _Router()


@contextmanager
def caught_warnings() -> Iterator[list[str]]:
    """Collect the text of the warnings that this thread gives, in a list that fills as they come.

    Examples
    --------
    >>> import warnings
    >>> with caught_warnings() as said:
    ...     warnings.warn("few coded rows")
    >>> said
    ['few coded rows']
    """
    caught = _ROUTER.enter()
    try:
        yield caught
    finally:
        _ROUTER.leave()
