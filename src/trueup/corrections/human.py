"""Human labels only: the coded rows, weighted by their inverse probability."""

from __future__ import annotations

from dataclasses import dataclass

from trueup.corrections.advice import advise, fallback_advice
from trueup.corrections.base import Estimate, Problem
from trueup.corrections.difference import human_sandwich
from trueup.corrections.parts import HumanFit, human_part
from trueup.corrections.ptd import check_human_fit


@dataclass(frozen=True, slots=True)
class Human:
    r"""Fit the coded rows alone, weighted by the inverse of their inclusion probability.

    Solves :math:`\sum_R \pi_i^{-1} a_i \psi(\theta; V_i) = 0`. Valid whatever the LLM does,
    and as wide as the coded sample is small.

    Parameters
    ----------
    human_fit : {"ml", "one-step", "firth"}
        What to do on the coded rows where a binary outcome is separated.

    Examples
    --------
    >>> import trueup as tu
    >>> tu.Human().name
    'human'

    References
    ----------
    Binder (1983), On the variances of asymptotically normal estimators from complex surveys.
    """

    human_fit: HumanFit = "ml"

    def __post_init__(self) -> None:
        """Check the option."""
        check_human_fit(self.human_fit)

    @property
    def name(self) -> str:
        """Return ``"human"``."""
        return "human"

    def estimate(self, problem: Problem) -> Estimate:
        """Return the design-weighted fit to the coded rows."""
        human = human_part(problem, self.human_fit)
        result = human_sandwich(problem, human)
        return Estimate(
            theta=human.theta,
            vcov=result.vcov,
            df=result.df,
            h=human.h,
            d=human.h,
            vcov_human=result.vcov,
            informative=result.informative,
            warnings=fallback_advice(human.method) + advise(problem, result.informative),
            influence=result.influence,
        )
