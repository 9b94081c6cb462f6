"""Predict-then-debias: the difference of two LLM fits, tuned, corrects the human fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trueup.corrections.base import Estimate, Problem
from trueup.corrections.difference import difference_estimate
from trueup.corrections.parts import (
    HumanFit,
    Linearise,
    human_part,
    llm_part,
)
from trueup.corrections.shared import Reference
from trueup.errors import ArgumentError

TUNINGS = ("identity", "scalar", "diagonal", "full")


@dataclass(frozen=True, slots=True)
class PTD:
    r"""Predict-then-debias.

    .. math:: \hat\theta = \hat\theta_g + \Omega(\hat\gamma_N - \hat\gamma_g)

    Three ordinary fits of the same formula: to human labels on the coded rows, to LLM labels on
    all rows, to LLM labels on the coded rows. The last two differ only by the draw of the coded
    rows, so their difference tells how the coded sample is off, in the LLM's currency; Omega
    converts it. Works for a label anywhere in the formula. Several LLMs are stacked.

    Parameters
    ----------
    tuning : {"full", "diagonal", "scalar", "identity"}
        Omega: a full matrix, one number for each coefficient, one number, or the identity
        (the mean over LLMs, where there are several).
    reference : {"all", "uncoded"}
        Rows of the large LLM fit: all rows, or those that were not coded.
    human_fit : {"ml", "one-step", "firth"}
        How to fit the coded rows where a binary outcome is separated.
    linearise : {"coded", "all"}
        Where the influence of the LLM fit is evaluated: at its coefficients on the coded rows
        (exact where the LLM is perfect), or on all rows, as Chen and Chen do.

    Raises
    ------
    ArgumentError
        If an option is unknown.

    Examples
    --------
    >>> import trueup as tu
    >>> tu.PTD(tuning="diagonal").tuning
    'diagonal'

    References
    ----------
    Kluger et al. (2025), Prediction-powered inference with imputed covariates and nonuniform
    sampling. Chen and Chen (2000), A unified approach to regression analysis under
    double-sampling designs. Gronsbell et al. (2024), Another look at inference after prediction.
    """

    tuning: Literal["identity", "scalar", "diagonal", "full"] = "full"
    reference: Reference = "all"
    human_fit: HumanFit = "ml"
    linearise: Linearise = "coded"

    def __post_init__(self) -> None:
        """Check the options."""
        if self.tuning not in TUNINGS:
            raise ArgumentError(f"tuning={self.tuning!r} is unknown: use one of {TUNINGS}.")
        check_reference(self.reference)
        check_human_fit(self.human_fit)
        if self.linearise not in ("coded", "all"):
            raise ArgumentError(f'linearise={self.linearise!r} is unknown: use "coded" or "all".')

    @property
    def name(self) -> str:
        """Return ``"ptd"``."""
        return "ptd"

    def estimate(self, problem: Problem) -> Estimate:
        """Return the corrected estimate."""
        human = human_part(problem, self.human_fit)
        machines = [
            llm_part(problem, a, self.reference, self.linearise) for a in problem.annotators
        ]
        centre = self.linearise == "coded"
        return difference_estimate(problem, human, machines, self.tuning, centre=centre)


def check_reference(reference: str) -> None:
    """Raise ArgumentError unless ``reference`` is known."""
    if reference not in ("all", "uncoded"):
        raise ArgumentError(f'reference={reference!r} is unknown: use "all" or "uncoded".')


def check_human_fit(method: str) -> None:
    """Raise ArgumentError unless ``method`` is known."""
    if method not in ("ml", "one-step", "firth"):
        raise ArgumentError(f'human_fit={method!r} is unknown: use "ml", "one-step" or "firth".')
