"""The default: choose a correction by what is known to hold its level."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from trueup.corrections.base import Correction, Estimate, Problem
from trueup.corrections.dsl import DSL
from trueup.corrections.ptd import PTD
from trueup.inference.variance import independent_pieces

#: Independent pieces (coded rows, clusters, drawn units) for each coefficient that a full tuning
#: matrix needs, and pieces that a number for each coefficient needs.
PIECES_PER_COEFFICIENT = 20
PIECES_FOR_EACH_NUMBER = 40


@dataclass(frozen=True, slots=True)
class Auto:
    """Choose the correction: predict-then-debias for one LLM, a calibrated label for several.

    Full tuning where there are at least 20 independent pieces (coded rows, or clusters, or drawn
    units) for each coefficient; diagonal tuning where there are at least 40 in all; one number
    otherwise. The choice depends on counts only, never on the estimates.

    Examples
    --------
    >>> import trueup as tu
    >>> tu.Auto().name
    'auto'
    """

    @property
    def name(self) -> str:
        """Return ``"auto"``."""
        return "auto"

    def choose(self, problem: Problem) -> tuple[Correction, str]:
        """Return the correction for this problem and a sentence that says why."""
        pieces, what = independent_pieces(problem.design)
        p = len(problem.frame.terms)
        tuning: Literal["full", "diagonal", "scalar"]
        if pieces >= PIECES_PER_COEFFICIENT * p:
            tuning, size = "full", "allow a full tuning matrix"
        elif pieces >= PIECES_FOR_EACH_NUMBER:
            tuning, size = "diagonal", "are too few for a full tuning matrix"
        else:
            tuning, size = "scalar", "are too few for more than one tuning number"
        why = f"{pieces} {what} for {p} coefficient{'s' if p > 1 else ''} {size}"
        if len(problem.annotators) == 1:
            chosen: Correction = PTD(tuning=tuning)
            return chosen, f"Correction chosen: PTD(tuning={tuning!r}), since one LLM; {why}."
        chosen = DSL(tuning=tuning)
        return chosen, (
            f"Correction chosen: DSL(tuning={tuning!r}), one cross-fitted label from "
            f"{len(problem.annotators)} LLMs, since stacking them one by one would estimate too "
            f"many numbers; {why}."
        )

    def estimate(self, problem: Problem) -> Estimate:
        """Return the estimate of the chosen correction."""
        chosen, why = self.choose(problem)
        estimate = chosen.estimate(problem)
        return replace(
            estimate,
            notes=(why, *estimate.notes),
            extra={**estimate.extra, "chosen": chosen},
        )
