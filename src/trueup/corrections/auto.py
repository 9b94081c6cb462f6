"""The default: choose a correction by what is known to hold its level."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trueup.corrections.base import Correction, Estimate, Problem
from trueup.corrections.dsl import DSL
from trueup.corrections.ptd import PTD

#: Coded rows for each coefficient that a full tuning matrix needs.
ROWS_PER_COEFFICIENT = 20


@dataclass(frozen=True, slots=True)
class Auto:
    """Choose the correction: predict-then-debias for one LLM, a calibrated label for several.

    Full tuning where there are at least 20 coded rows for each coefficient, diagonal tuning
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
        n, p = problem.design.n_coded, len(problem.frame.terms)
        full = n >= ROWS_PER_COEFFICIENT * p
        tuning = "full" if full else "diagonal"
        size = f"{n} coded rows for {p} coefficients"
        why = f"{size} {'allow' if full else 'are too few for'} a full tuning matrix"
        if len(problem.annotators) == 1:
            chosen: Correction = PTD(tuning="full" if full else "diagonal")
            return chosen, f"Correction chosen: PTD(tuning={tuning!r}), since one LLM; {why}."
        chosen = DSL(tuning="full" if full else "diagonal")
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
