"""Post-prediction adaptive inference: one step from the human fit, weighted by coordinate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trueup.corrections.advice import advise
from trueup.corrections.base import Estimate, Problem
from trueup.corrections.difference import human_sandwich
from trueup.corrections.parts import (
    HumanFit,
    coded_analysis_weights,
    human_factor,
    human_part,
)
from trueup.corrections.ptd import check_human_fit
from trueup.corrections.shared import complement
from trueup.errors import CorrectionError
from trueup.estimation.blocks import mean_hessian, mean_score, score_meat
from trueup.formula.rows import Rows
from trueup.inference.sandwich import sandwich
from trueup.inference.variance import hajek_centred, population_size, units_are_clusters
from trueup.study.design import Float


@dataclass(frozen=True, slots=True)
class PSPA:
    r"""Post-prediction adaptive inference.

    One Newton step from the human-only fit:

    .. math:: \hat\theta = \hat\theta_g -
              A^{-1}W[\bar\psi_R(\hat\theta_g;F) - \bar\psi_{U}(\hat\theta_g;F)],

    with a diagonal W in [0, 1] on the scale of the scores, U the uncoded rows, and A the bread of
    all rows (OLS) or of the combined equation.

    Parameters
    ----------
    human_fit : {"ml", "one-step", "firth"}
        How to fit separated coded rows.

    Examples
    --------
    >>> import trueup as tu
    >>> tu.PSPA().name
    'pspa'

    References
    ----------
    Miao et al. (2025), Assumption-lean and data-adaptive post-prediction inference, JMLR.
    """

    human_fit: HumanFit = "ml"

    def __post_init__(self) -> None:
        """Check the options."""
        check_human_fit(self.human_fit)

    @property
    def name(self) -> str:
        """Return ``"pspa"``."""
        return "pspa"

    def estimate(self, problem: Problem) -> Estimate:
        """Return the corrected estimate.

        Raises
        ------
        CorrectionError
            With several LLMs, absorbed effects, instruments, or clusters.
        """
        design, family = problem.design, problem.family
        every = problem.frame.llm(problem.annotators[0])
        if len(problem.annotators) != 1 or every.groups or every.Z is not None:
            raise CorrectionError("PSPA takes one LLM and a plain regression: use tu.PTD().")
        if not units_are_clusters(design):
            raise CorrectionError("PSPA does not support clustered rows: use tu.PTD().")
        human = human_part(problem, self.human_fit)
        theta = human.theta
        outside = complement(design)
        rest = design.uncoded
        a = (outside if design.weights is None else outside * design.weights)[rest]
        uncoded = every.take(rest)
        coded = every.take(design.coded)
        w = design.coded_weights
        own = human.h @ human.bread.T
        llm = family.score(theta, coded) * coded_analysis_weights(design)
        meat, ratio = _uncoded_moments(problem, theta, uncoded)
        weight = _weights(np.asarray(np.linalg.inv(human.bread), float), own, llm, meat, ratio)
        if family.linear:
            bread = mean_hessian(family, theta, every, None)
        else:
            there = mean_hessian(family, theta, uncoded, a)
            here = family.hessian_sum(theta, coded, w) / w.sum()
            bread = human.bread + weight[:, None] * (there - here)
        inverse = np.linalg.inv(bread)
        centre = family.score_sum(theta, coded, w) / w.sum()
        step = mean_score(family, theta, uncoded, a) - centre
        h = own @ inverse.T
        phi = (weight * llm) @ inverse.T * outside[design.coded][:, None]
        d = h - hajek_centred(design, phi)
        result = sandwich(design, h, d, vcov=problem.vcov, factor=human_factor(problem, human))
        return Estimate(
            theta=theta + inverse @ (weight * step) * (w.sum() / population_size(design)),
            vcov=result.vcov,
            df=result.df,
            h=h,
            d=d,
            tuning=weight,
            vcov_human=human_sandwich(problem, human).vcov,
            informative=result.informative,
            warnings=advise(problem, result.informative),
            influence=result.influence,
        )


def _uncoded_moments(problem: Problem, theta: Float, uncoded: Rows) -> tuple[Float, float]:

    m = len(uncoded)
    meat = score_meat(problem.family, theta, uncoded, None)
    centre = mean_score(problem.family, theta, uncoded, None)
    return (meat - m * np.outer(centre, centre)) / (m - 1), problem.design.n_coded / m


def _weights(inverse: Float, own: Float, llm: Float, uncoded: Float, ratio: float) -> Float:
    """Return (p,) weights that minimise each variance, within [0, 1]."""
    free = len(own) - 1
    centred = llm - llm.mean(axis=0)
    cross = centred.T @ (own - own.mean(axis=0)) / free
    spread = centred.T @ centred / free + ratio * uncoded
    top = np.diag(inverse @ cross @ inverse)
    bottom = np.diag(inverse @ spread @ inverse)
    safe = np.where(bottom > 0, bottom, 1.0)
    return np.asarray(np.clip(np.where(bottom > 0, top / safe, 0.0), 0.0, 1.0))
