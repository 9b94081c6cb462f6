"""The one argument that makes a draw repeatable."""

from __future__ import annotations

from typing import Any

import numpy as np

from trueup.errors import ArgumentError


def check_seed(seed: Any) -> None:
    """Raise where a seed is neither None nor a whole number of 0 or more.

    Raises
    ------
    ArgumentError
        With the seed that was given.
    """
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if seed is not None and (not whole or seed < 0):
        raise ArgumentError(f"seed={seed!r} must be a whole number of 0 or more, or left out.")
