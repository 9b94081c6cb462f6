r"""Corrections at the level of scores: one theta in the human and the LLM score.

.. math:: \lambda\,\bar\psi_N(\theta; F) + \bar\psi_R(\theta; V) - \lambda\,\bar\psi_R(\theta; F)
          = 0

Means over the coded rows R are weighted by 1/pi. The loss form of prediction-powered inference
and design-based supervised learning are of this kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from trueup.corrections.advice import advise
from trueup.corrections.base import Estimate, Problem
from trueup.corrections.shared import Reference, complement
from trueup.errors import ConvergenceError, CorrectionError
from trueup.estimation.blocks import cluster_scores, score_hessian, score_meat, total_weight
from trueup.estimation.rank import check_rank
from trueup.estimation.solve import newton_joint, rough_fit
from trueup.formula.rows import Rows
from trueup.inference.sandwich import leverage_factor, sandwich
from trueup.inference.variance import hajek_centred, population_size, units_are_clusters
from trueup.study.design import Float, SampleDesign

#: Condition of the bread above which coefficients have run away.
MOST_CONDITION = 1e12
NO_ROOT = (
    "The corrected score equation has no finite solution in these coded rows. Code more rows, "
    'shorten the formula, or combine estimates rather than scores: tu.PTD(), or form="difference" '
    'of tu.PPI(), or tuning="diagonal" of tu.DSL().'
)

Normalise = Literal["hajek", "ht"]


@dataclass(frozen=True, slots=True)
class CommonRows:
    """The three groups of rows that share one theta, with weights that each sum to one."""

    reference: Rows
    human: Rows
    machine: Rows
    reference_weights: Float
    coded_weights: Float


def _coded_weights(design: SampleDesign, normalise: Normalise) -> Float:
    """Return (n,) weights of the coded rows in a mean over all rows."""
    w = design.coded_weights
    if normalise == "hajek":
        return np.asarray(w / w.sum())
    if design.probability_all is None:
        raise CorrectionError(
            'normalise="ht" needs the inclusion probability of every row: give a probability '
            'column without gaps, or use normalise="hajek".'
        )
    rescale = design.probability_all.mean() / (design.n_coded / design.n_rows)
    total = design.n_rows if design.weights is None else design.weights.sum()
    return np.asarray(w * rescale / total)


def common_rows(
    problem: Problem, every: Rows, reference: Reference, normalise: Normalise, tuning: float
) -> CommonRows:
    """Prepare the rows of a common-theta correction.

    Raises
    ------
    CorrectionError
        If the family has nuisance parts that can be shared only at tuning 1 over all rows.
    """
    family, design = problem.family, problem.design
    a = np.ones(design.n_rows) if design.weights is None else design.weights
    coded = _coded_weights(design, normalise)
    human, machine = problem.frame.human(), every.take(design.coded)
    check_rank(human.X, problem.frame.terms, weights=coded, where="the coded rows (human labels)")
    if reference == "uncoded":
        rest = design.uncoded
        a = (a * complement(design))[rest]
        every = every.take(rest)
    if every.groups or every.Z is not None:
        if reference == "uncoded" or tuning != 1.0:
            raise CorrectionError(
                f"Family {family.name!r} supports a common-theta correction only with tuning 1 "
                'and reference="all". Use form="difference" or tu.PTD().'
            )
        every, human, machine = family.prepare_pair(
            every, human, machine, design.coded, coded * a.sum(), design.weights
        )
    return CommonRows(every, human, machine, a / a.sum(), coded)


def solve_common(problem: Problem, rows: CommonRows, tuning: float) -> tuple[Float, Float]:
    """Solve the common-theta equation; return theta and the bread at theta.

    Raises
    ------
    ConvergenceError
        If the equation has no finite root in this sample, as happens with few coded rows.
    """
    family = problem.family
    flat = bool(np.ptp(rows.reference_weights) == 0)
    a = None if flat else rows.reference_weights
    c = rows.coded_weights

    total = total_weight(rows.reference, a)

    def evaluate(theta: Float) -> tuple[Float, Float]:
        every = score_hessian(family, theta, rows.reference, a)
        human = score_hessian(family, theta, rows.human, c)
        machine = score_hessian(family, theta, rows.machine, c)
        score, hessian = (
            np.asarray(tuning * (e / total) + h - tuning * m)
            for e, h, m in zip(every, human, machine, strict=True)
        )
        return score, hessian

    if family.linear:
        start = np.zeros(rows.human.n_coef)
    else:
        start = rough_fit(family, rows.reference, a, problem.frame.terms)
    try:
        theta = newton_joint(evaluate, start).theta
    except ConvergenceError as error:
        raise ConvergenceError(NO_ROOT) from error
    bread = evaluate(theta)[1]
    scale = np.sqrt(np.abs(np.diag(bread)))
    if not (scale > 0).all() or np.linalg.cond(bread / np.outer(scale, scale)) > MOST_CONDITION:
        raise ConvergenceError(NO_ROOT)
    return theta, bread


def common_estimate(
    problem: Problem,
    every: Rows,
    tuning: float = 1.0,
    *,
    reference: Reference = "all",
    normalise: Normalise = "hajek",
    variance: Literal["design", "rows"] = "design",
) -> Estimate:
    """Solve the common-theta equation and compute its covariance.

    Parameters
    ----------
    problem : Problem
    every : Rows
        All N rows under the LLM labels, or predictions of the human label made from them.
    tuning : float
        The weight lambda of the LLM part.
    reference, normalise, variance
        See :class:`trueup.corrections.ppi.PPI` and :class:`trueup.corrections.dsl.DSL`.
    """
    family, design = problem.family, problem.design
    rows = common_rows(problem, every, reference, normalise, tuning)
    theta, bread = solve_common(problem, rows, tuning)
    inverse = np.asarray(np.linalg.inv(bread), float)
    human = family.score(theta, rows.human) @ inverse.T
    machine = tuning * family.score(theta, rows.machine) @ inverse.T
    scale = (rows.coded_weights * population_size(design) * design.probability)[:, None]
    h = human * scale
    outside = np.ones((len(h), 1))
    if reference == "uncoded":
        outside = complement(design)[design.coded][:, None]
    d = h - machine * scale * outside
    if normalise == "hajek":
        h, d = hajek_centred(design, h), hajek_centred(design, d)
    p = len(theta)
    if variance == "rows":
        V = row_variance(problem, rows, theta, inverse, tuning, human - machine)
        no = np.full(p, np.inf)
        return Estimate(theta, V, no, h, d, np.asarray(tuning), informative=no)
    leverage = family.leverage(theta, rows.human, design.coded_weights)
    factor = leverage_factor(leverage, problem.vcov.hc, len(h), p)
    sums = None
    if not units_are_clusters(design):
        assert design.cluster is not None
        size = int(design.cluster.max()) + 1
        codes = design.cluster
        if reference == "uncoded":
            codes = np.delete(codes, design.coded)
        raw = cluster_scores(family, theta, rows.reference, rows.reference_weights, codes, size)
        sums = tuning * design.n_rows * raw @ inverse.T
        if reference == "uncoded":
            # The reference holds uncoded rows only: give the coded ones their share of it, so
            # that xi = Omega phi + (R/pi) d holds for every row.
            sums = sums + _coded_share(design, machine * scale * outside, size)
    result = sandwich(design, h, d, vcov=problem.vcov, factor=factor, machine_sums=sums)
    return Estimate(
        theta=theta,
        vcov=result.vcov,
        df=result.df,
        h=h,
        d=d,
        tuning=np.asarray(tuning),
        vcov_human=sandwich(design, h, h, vcov=problem.vcov, factor=factor).vcov,
        informative=result.informative,
        warnings=advise(problem, result.informative),
        influence=result.influence,
    )


def _coded_share(design: SampleDesign, phi: Float, size: int) -> Float:
    assert design.cluster is not None
    out = np.zeros((size, phi.shape[1]))
    np.add.at(out, design.cluster[design.coded], phi)
    return out


def row_variance(
    problem: Problem, rows: CommonRows, theta: Float, inverse: Float, tuning: float, gap: Float
) -> Float:
    r"""Covariance that takes rows (or clusters) as independent draws of everything.

    :math:`A^{-1}\sum_c Z_c Z_c'A^{-1}`, :math:`Z_c` the cluster sum (or the row) of
    :math:`N^{-1}[\psi(\theta;F_i) + (R_i/\pi_i)(\psi(\theta;V_i)-\psi(\theta;F_i))]`,
    as in the R package dsl: uncentred, without small-sample factor.
    """
    family, design = problem.family, problem.design
    part = gap * rows.coded_weights[:, None]
    a = rows.reference_weights
    if design.cluster is not None:
        size = int(design.cluster.max()) + 1
        Z = tuning * cluster_scores(family, theta, rows.reference, a, design.cluster, size)
        Z = Z @ inverse.T
        np.add.at(Z, design.cluster[design.coded], part)
        return np.asarray(Z.T @ Z)
    meat = tuning**2 * score_meat(family, theta, rows.reference, a)
    machine = tuning * family.score(theta, rows.machine) @ inverse.T * a[design.coded][:, None]
    cross = machine.T @ part
    return np.asarray(inverse @ meat @ inverse.T + cross + cross.T + part.T @ part)
