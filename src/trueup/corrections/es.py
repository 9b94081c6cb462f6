"""Expected score: learn what each label may be, average the score over it, correct the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real

import numpy as np

from trueup.corrections.advice import weight_advice
from trueup.corrections.base import Estimate, Problem
from trueup.corrections.es_advice import es_advice, es_note
from trueup.corrections.es_variance import Pieces, calibrated, influence_rows, pieces_of
from trueup.corrections.expected import conditional, score_parts, solve
from trueup.corrections.features import Penalty
from trueup.corrections.human import Human
from trueup.corrections.support import learn
from trueup.errors import ArgumentError, ConvergenceError, SeparationError
from trueup.formula.rows import Rows
from trueup.inference.blend import blend
from trueup.inference.sandwich import leverage_factor, sandwich
from trueup.inference.variance import hajek_centred, independent_pieces, population_size
from trueup.study.design import Float


@dataclass(frozen=True, slots=True)
class ExpectedScore:
    r"""Average the score over what each label may be, and correct with the coded rows.

    A learner gives every row the probability :math:`p_i(v)` of each human label, from the labels
    of all LLMs and the other variables of the regression. Then theta solves

    .. math:: N^{-1}\sum_N E_{p_i}\psi(\theta; v)
              + \sum_R \tilde w_i [\psi(\theta; V_i) - E_{p_i}\psi(\theta; v)] = 0,
              \quad \tilde w_i \propto 1/\pi_i,

    where a coded row is left out of its own prediction. The known inclusion probabilities make
    it right whatever was learned. The variance weighs what the coded rows show against what the
    learner expects, by the number of informative rows expected under the design, so that the
    interval holds where only a handful of coded rows are mislabelled.

    Parameters
    ----------
    penalty : float
        Ridge penalty on the LLM labels in the learner, in coded rows.
    other_penalty : float
        The same for all other variables, which are on unit scale.
    smoothing : float
        Pseudo-errors, over all coded rows, that keep probabilities off 0 and 1.
    fallback : bool
        Whether to report the human-only fit where the learner expects no gain from the LLM labels.
        The decision does not look at the estimates.

    Raises
    ------
    ArgumentError
        If an option is no positive number.

    Examples
    --------
    >>> import trueup as tu
    >>> tu.ExpectedScore().name
    'es'

    Notes
    -----
    Labels that are classes (or 0/1) have a multinomial logit with label smoothing; numbers have a
    ridge regression with log-linear variance and normal residuals. Several labelled variables
    are learned one given the other.

    References
    ----------
    Robins, Rotnitzky and Zhao (1994), Estimation of regression coefficients when some regressors
    are not always observed, for the estimating equation. The variance is this package's own.
    """

    penalty: float = 0.25
    other_penalty: float = 1.0
    smoothing: float = 0.5
    fallback: bool = True

    def __post_init__(self) -> None:
        """Check the options."""
        for name in ("penalty", "other_penalty", "smoothing"):
            value = getattr(self, name)
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not number or not 0.0 < float(value) < np.inf:
                raise ArgumentError(f"{name}={value!r} cannot be used: give a number above 0.")

    @property
    def name(self) -> str:
        """Return ``"es"``."""
        return "es"

    def estimate(self, problem: Problem) -> Estimate:
        """Return the corrected estimate."""
        design, family = problem.design, problem.family
        learned = learn(problem, Penalty(self.penalty, self.other_penalty, self.smoothing))
        found = learned.scenarios
        parts = score_parts(problem, found)
        root = solve(problem, parts)
        # Weights sum to one in the equation; a coded row counts a_i N / sum(a) in the influence.
        own = (parts.coded_weight * population_size(design) * design.probability)[:, None]
        h = family.score(root.theta, parts.human) @ root.inverse.T * own
        rows = [r.take(design.coded) for r in parts.scenarios]
        weights = [s.weight[design.coded] for s in found]
        at_coded = conditional(problem, root, rows, weights, own)
        d = hajek_centred(design, h - at_coded.mean)
        pieces = calibrated(
            pieces_of(problem, found, parts, root, d, at_coded), learned.calibration
        )
        if self.fallback and no_gain(problem, pieces, learned.free):
            human_only = _human_only(problem)
            if human_only is not None:
                return human_only
        n = independent_pieces(design)[0]
        blended = blend(pieces.coded, pieces.model, pieces.n_model, 2.0 * n)
        influence = influence_rows(design, h, d, pieces, blended.variance)
        return Estimate(
            theta=root.theta,
            vcov=influence.covariance(),
            df=reference_df(problem, pieces, blended.variance, blended.df),
            h=h,
            d=d,
            vcov_human=_human_vcov(problem, parts.human, root.theta, h),
            informative=pieces.n_model,
            notes=es_note(problem, pieces),
            warnings=es_advice(problem, pieces, d, root.one_step) + weight_advice(design),
            influence=influence,
            extra={"pieces": pieces},
        )


def reference_df(problem: Problem, pieces: Pieces, variance: Float, df: Float) -> Float:
    """Return (p,) degrees of freedom of the sum of the two parts (Satterthwaite)."""
    p = len(df)
    if problem.vcov.reference == "normal":
        return np.full(p, np.inf)
    if problem.vcov.reference == "residual":
        return np.full(p, float(max(independent_pieces(problem.design)[0] - p, 1)))
    share = variance / (pieces.known + variance)
    return np.asarray(1.0 / (share**2 / df + (1.0 - share) ** 2 / pieces.known_df))


def no_gain(problem: Problem, pieces: Pieces, free: float) -> bool:
    """Whether the learner expects the human-only fit to be as precise, averaged over slopes.

    What the learner estimates costs it a share ``free / n`` of its precision.
    """
    n = problem.design.n_coded
    cost = 1.0 + free / max(n - free, 1.0)
    slopes = [k for k, term in enumerate(problem.frame.terms) if term != "Intercept"] or [0]
    ratio = (pieces.known + cost * pieces.model)[slopes] / pieces.human[slopes]
    return bool(ratio.mean() >= 1.0)


def _human_only(problem: Problem) -> Estimate | None:
    """Return the human-only fit, None where it does not exist."""
    try:
        estimate = Human().estimate(problem)
    except (SeparationError, ConvergenceError):
        return None
    note = (
        "The LLM labels are expected to add nothing to the coded rows of this study: this is the "
        "human-only fit. The decision does not look at the estimates."
    )
    return replace(estimate, notes=(note, *estimate.notes))


def _human_vcov(problem: Problem, human: Rows, theta: Float, h: Float) -> Float:
    """Return the covariance of the human-only fit, evaluated at theta."""
    design, family = problem.design, problem.family
    leverage = family.leverage(theta, human, design.coded_weights)
    factor = leverage_factor(leverage, problem.vcov.hc, *h.shape)
    centred = hajek_centred(design, h)
    return sandwich(design, centred, centred, vcov=problem.vcov, factor=factor).vcov
