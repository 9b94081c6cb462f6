"""How far a run has come: a bar on terminals and in notebooks, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from trueup.multiverse.universe import Outcome

#: Seconds between two plain lines; a run that takes less time writes none.
EVERY = 30.0


class Progress:
    """Counts of universes done and failed, shown as they come."""

    def __init__(self, total: int, show: bool) -> None:
        self._bar: Any = None
        self._total = total
        self._done = self._failed = 0
        self._lines = show
        self._start = self._last = time.monotonic()
        self._said = 0
        if show and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, desc="universes", unit="fit")
            self._lines = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._lines and self._done > self._said and self._late(self._start):
            self._write()

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Count outcomes."""
        if not outcomes:
            return
        self._done += len(outcomes)
        self._failed += sum(o.status == "failed" for o in outcomes)
        if self._bar is not None:
            self._bar.set_postfix(failed=self._failed, refresh=False)
            self._bar.update(len(outcomes))
        elif self._lines and self._late(self._last):
            self._write()

    def _late(self, since: float) -> bool:
        return time.monotonic() - since >= EVERY

    def _write(self) -> None:
        self._last, self._said = time.monotonic(), self._done
        left = self._total - self._done
        print(
            f"universes: {self._done:,} done, {self._failed:,} of them failed, {left:,} left",
            file=sys.stderr,
            flush=True,
        )
