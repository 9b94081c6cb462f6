r"""Corrections at the level of estimates: three ordinary fits and their influence functions.

.. math:: \hat\theta = \hat\theta_g + \Omega\,(\hat\gamma_N - \hat\gamma_g)

``theta_g`` is the fit to human labels on the coded rows, ``gamma_g`` the fit to LLM labels on
the same rows, ``gamma_N`` the fit to LLM labels on all rows. The difference of the last two has
expectation zero by the sampling design, whatever the LLM gets wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trueup.corrections.advice import advise, fallback_advice
from trueup.corrections.base import Estimate, Problem
from trueup.corrections.parts import HumanPart, MachinePart, human_factor
from trueup.inference.sandwich import Sandwich, sandwich
from trueup.inference.tuning import optimal_tuning, silence, tuning_rank
from trueup.inference.variance import (
    hajek_centred,
    phase_two_rows,
    row_totals,
    tuning_leverage,
    units_are_clusters,
)
from trueup.study.design import Float, SampleDesign


def human_sandwich(problem: Problem, human: HumanPart) -> Sandwich:
    """Covariance of the human-only fit."""
    return sandwich(
        problem.design, human.h, human.h, vcov=problem.vcov, factor=human_factor(problem, human)
    )


def tuning_rows(
    design: SampleDesign, h: Float, phi: Float, machines: Sequence[MachinePart]
) -> tuple[Float, Float]:
    """Return factor rows of h and of the stacked controls, in the design's own metric."""
    if units_are_clusters(design):
        return phase_two_rows(design, h), phase_two_rows(design, phi)
    assert design.cluster is not None
    codes = design.cluster[design.coded]
    size = int(design.cluster.max()) + 1
    w = design.inverse_probability[:, None] / design.inverse_probability.sum()
    sums = np.hstack([m.cluster_sums for m in machines if m.cluster_sums is not None])
    return (
        row_totals(w * h, codes, size),
        row_totals(w * phi, codes, size) - sums / design.n_rows,
    )


def difference_estimate(
    problem: Problem,
    human: HumanPart,
    machines: Sequence[MachinePart],
    tuning: str | Float,
    *,
    clip: bool = False,
    centre: bool = True,
    notes: tuple[str, ...] = (),
) -> Estimate:
    """Combine the fits with the tuning asked for.

    Parameters
    ----------
    problem : Problem
    human : HumanPart
    machines : sequence of MachinePart
        One for each annotator.
    tuning : {"identity", "scalar", "diagonal", "full"}, or a fixed Omega
        A fixed Omega is a (p, K p) array.
    clip : bool
        Whether a scalar or diagonal tuning is kept within [0, 1].
    centre : bool
        Whether the LLM influence is centred on the coded rows.
    """
    design = problem.design
    p = len(human.theta)
    phi = np.hstack([m.phi for m in machines])
    if centre:
        phi = hajek_centred(design, phi)
    phi = silence(human.h, phi)
    rank: int | None = None
    if isinstance(tuning, str):
        rows_h, rows_phi = tuning_rows(design, human.h, phi, machines)
        omega = optimal_tuning(rows_h, rows_phi, tuning)
        if clip and tuning in ("scalar", "diagonal"):
            omega = np.clip(omega, 0.0, 1.0)
        kind = "fixed" if tuning == "identity" else tuning
        rank = tuning_rank(rows_phi)
    else:
        omega, kind = tuning, "fixed"
    control = np.concatenate([m.gamma_reference - m.gamma_coded for m in machines])
    d = human.h - phi @ omega.T
    left_out = None
    if problem.vcov.leave_one_out and kind != "fixed":
        left_out = _left_out(phase_two_rows(design, phi), kind, p)
    sums = None
    if not units_are_clusters(design):
        stacked = np.hstack([m.cluster_sums for m in machines if m.cluster_sums is not None])
        sums = stacked @ omega.T
    result = sandwich(
        design,
        human.h,
        d,
        vcov=problem.vcov,
        factor=human_factor(problem, human),
        left_out=left_out,
        machine_sums=sums,
    )
    return Estimate(
        theta=human.theta + omega @ control,
        vcov=result.vcov,
        df=result.df,
        h=human.h,
        d=d,
        tuning=omega,
        vcov_human=human_sandwich(problem, human).vcov,
        informative=result.informative,
        notes=notes,
        warnings=fallback_advice(human.method)
        + advise(problem, result.informative, omega, kind=kind, rank=rank),
        influence=result.influence,
    )


def _left_out(rows: Float, kind: str, p: int) -> Float:
    """Share of a coded row in its tuning, for every coefficient."""
    share = tuning_leverage(rows, kind)
    if kind != "diagonal":
        return share
    blocks = share.reshape(len(rows), -1, p)
    return np.asarray(blocks.max(axis=1))
