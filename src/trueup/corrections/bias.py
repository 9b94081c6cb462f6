"""How far the LLM-only fit is from a corrected one, with its covariance."""

from __future__ import annotations

import numpy as np

from trueup.corrections.base import Estimate, Problem
from trueup.errors import CorrectionError
from trueup.inference.variance import phase_one_rows, units_are_clusters
from trueup.study.design import Float


def bias_vcov(problem: Problem, naive: Estimate, corrected: Estimate) -> Float:
    r"""Covariance of LLM-only minus corrected.

    :math:`V_\Delta = V(\hat\gamma_N) - 2\,\mathrm{sym}\,N^{-2}\sum_R \phi_i h_i'/\pi_i +
    V(\hat\theta)`: the two fits share rows, so their difference is far less variable than the
    sum of their variances says.

    Parameters
    ----------
    problem : Problem
    naive : Estimate
        Of :class:`trueup.corrections.naive.Naive`.
    corrected : Estimate
        Of any other correction of the same problem.

    Returns
    -------
    (p, p) array, positive semi-definite up to rounding

    Raises
    ------
    CorrectionError
        If the corrected estimate has no influence functions.

    References
    ----------
    Hausman (1978), Specification tests in econometrics; here with the covariance computed
    rather than subtracted.
    """
    if corrected.h is None or corrected.influence is None:
        raise CorrectionError("The bias test needs a corrected fit with influence functions.")
    design = problem.design
    if naive.influence is not None and not units_are_clusters(design):
        cross = naive.influence.covariance(corrected.influence)
    else:
        phi = phase_one_rows(design, naive.extra["phi"])
        cross = phi.T @ phase_one_rows(design, corrected.h)
    V = np.asarray(naive.vcov - cross - cross.T + corrected.vcov)
    return _positive(V)


def _positive(V: Float) -> Float:
    """Return V with eigenvalues that estimation made negative set to zero."""
    values, vectors = np.linalg.eigh((V + V.T) / 2)
    if values.min() >= 0:
        return V
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
