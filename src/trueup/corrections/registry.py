"""Corrections by name."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from trueup.corrections.auto import Auto
from trueup.corrections.base import Correction
from trueup.corrections.dsl import DSL
from trueup.corrections.es import ExpectedScore
from trueup.corrections.human import Human
from trueup.corrections.naive import Naive
from trueup.corrections.ppi import PPI
from trueup.corrections.pspa import PSPA
from trueup.corrections.ptd import PTD
from trueup.errors import ArgumentError

NAMES: dict[str, Callable[[], Correction]] = {
    "auto": Auto,
    "naive": Naive,
    "human": Human,
    "ppi": PPI,
    "ppi++": lambda: PPI(tuning="scalar"),
    "ptd": PTD,
    "dsl": DSL,
    "es": ExpectedScore,
    "pspa": PSPA,
}


def as_correction(correction: str | Correction) -> Correction:
    """Return the correction for a name or an object.

    Raises
    ------
    ArgumentError
        If the name is unknown.
    """
    if isinstance(correction, str):
        if correction not in NAMES:
            near = get_close_matches(correction, NAMES, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ArgumentError(
                f"correction={correction!r} is unknown: use one of {', '.join(NAMES)}, or an "
                f"object such as tu.PTD(tuning='diagonal').{hint}"
            )
        return NAMES[correction]()
    if isinstance(correction, type) or not hasattr(correction, "estimate"):
        raise ArgumentError(
            f"correction={correction!r} is not a correction: use one of {', '.join(NAMES)}, or an "
            "object such as tu.PTD() (with brackets)."
        )
    return correction
