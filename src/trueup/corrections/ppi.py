"""Prediction-powered inference, plain (lambda = 1) and tuned (PPI++)."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Literal

import numpy as np

from trueup.corrections.base import Estimate, Frame, Problem
from trueup.corrections.common import common_estimate, common_rows, solve_common
from trueup.corrections.difference import difference_estimate
from trueup.corrections.parts import (
    HumanFit,
    HumanPart,
    MachinePart,
    human_part,
    llm_part,
)
from trueup.corrections.ptd import check_human_fit
from trueup.corrections.shared import Reference
from trueup.errors import ArgumentError, CorrectionError
from trueup.estimation.blocks import mean_hessian, mean_score, score_meat
from trueup.formula.rows import Rows

NAMED = ("scalar", "coordinate", "published")


@dataclass(frozen=True, slots=True)
class PPI:
    r"""Prediction-powered inference.

    *Difference form*: :math:`\hat\theta = \hat\theta_g + \lambda(\hat\gamma_{ref} -
    \hat\gamma_g)`. *Loss form*: theta solves
    :math:`\lambda\bar\psi_{ref}(\theta;F) + \bar\psi_R(\theta;V) = \lambda\bar\psi_R(\theta;F)`.
    Both are valid and usually close; the difference form exists whenever the three ordinary fits
    do.

    Parameters
    ----------
    tuning : float in [0, 1], or {"scalar", "coordinate", "published"}
        Lambda, how much of the LLM's part is used: 1 is plain PPI, 0 is human labels only.
        ``"scalar"`` is PPI++: the one number that minimises the summed variance.
        ``"coordinate"``: one number for each coefficient. ``"published"``: the number that
        the PPI++ paper's software computes (at the fit with lambda = 1, from scores at a common
        theta), for comparison. Estimated lambdas are kept within [0, 1].
    reference : {"auto", "all", "uncoded"}
        What the coded rows are compared with: all rows, or those not coded. ``"auto"`` is
        ``"uncoded"`` for a study made of two tables, ``"all"`` otherwise.
    form : {"auto", "difference", "loss"}
        ``"auto"``: the loss form where it is convex, which is for GLMs (not OLS) whose *outcome*
        is the labelled variable; the difference form otherwise.
    human_fit : {"ml", "one-step", "firth"}
        How to fit the coded rows where a binary outcome is separated; other than ``"ml"``, it
        asks for the difference form.

    Raises
    ------
    ArgumentError
        If lambda is outside [0, 1] or an option is unknown.

    Examples
    --------
    >>> import trueup as tu
    >>> tu.PPI(tuning=0.5).name
    'ppi'
    >>> tu.PPI(tuning="scalar").name
    'ppi++'

    References
    ----------
    Angelopoulos et al. (2023), Prediction-powered inference. Angelopoulos, Duchi and Zrnic
    (2023), PPI++: Efficient prediction-powered inference, sections 3-6.
    """

    tuning: float | Literal["scalar", "coordinate", "published"] = 1.0
    reference: Literal["auto", "all", "uncoded"] = "auto"
    form: Literal["auto", "difference", "loss"] = "auto"
    human_fit: HumanFit = "ml"

    def __post_init__(self) -> None:
        """Check the options."""
        if isinstance(self.tuning, str):
            if self.tuning not in NAMED:
                raise ArgumentError(
                    f"tuning={self.tuning!r} is unknown: use a number in [0, 1] or one of {NAMED}."
                )
        elif not isinstance(self.tuning, Real) or not 0.0 <= self.tuning <= 1.0:
            raise ArgumentError(
                f"tuning={self.tuning!r} is outside [0, 1]: 0 uses human labels only, 1 is plain "
                'PPI. Use tuning="scalar" to estimate it.'
            )
        if self.reference not in ("auto", "all", "uncoded"):
            raise ArgumentError(
                f'reference={self.reference!r} is unknown: use "auto", "all" or "uncoded".'
            )
        if self.form not in ("auto", "difference", "loss"):
            raise ArgumentError(
                f'form={self.form!r} is unknown: use "auto", "difference" or "loss".'
            )
        check_human_fit(self.human_fit)

    @property
    def name(self) -> str:
        """Return ``"ppi"`` for a given lambda, ``"ppi++"`` for an estimated one."""
        return "ppi++" if isinstance(self.tuning, str) else "ppi"

    def estimate(self, problem: Problem) -> Estimate:
        """Return the corrected estimate.

        Raises
        ------
        CorrectionError
            If the loss form is asked for with several annotators, or a tuning it lacks.
        """
        reference = self._reference(problem)
        convex = loss_is_convex(problem) and self.human_fit == "ml"
        loss = self.form == "loss" or (self.form == "auto" and convex)
        if loss and (self.tuning == "coordinate" or len(problem.annotators) > 1):
            if self.form == "loss":
                raise CorrectionError(
                    'form="loss" takes one LLM and one lambda: use form="difference".'
                )
            loss = False
        if loss:
            return self._loss(problem, reference)
        return self._difference(problem, reference)

    def _reference(self, problem: Problem) -> Reference:
        if self.reference == "auto":
            return "uncoded" if problem.design.disjoint else "all"
        return self.reference

    def _loss(self, problem: Problem, reference: Reference) -> Estimate:
        every = problem.frame.llm(problem.annotators[0])
        if self.tuning == "published":
            lam = published_tuning(problem, every, reference)
        elif isinstance(self.tuning, str):
            human = human_part(problem, self.human_fit)
            first = llm_part(problem, problem.annotators[0], reference)
            tuned = difference_estimate(problem, human, [first], "scalar", clip=True)
            assert tuned.tuning is not None
            lam = float(tuned.tuning[0, 0])
        else:
            lam = float(self.tuning)
        return common_estimate(problem, every, lam, reference=reference)

    def _difference(self, problem: Problem, reference: Reference) -> Estimate:
        human = human_part(problem, self.human_fit)
        machines = [llm_part(problem, a, reference) for a in problem.annotators]
        if self.tuning == "scalar":
            return difference_estimate(problem, human, machines, "scalar", clip=True)
        if self.tuning == "coordinate":
            return difference_estimate(problem, human, machines, "diagonal", clip=True)
        if self.tuning == "published":
            every = problem.frame.llm(problem.annotators[0])
            lam = published_tuning(problem, every, reference, human, machines)
        else:
            lam = float(self.tuning)
        p, k = len(human.theta), len(machines)
        omega = np.tile(lam / k * np.eye(p), (1, k))
        return difference_estimate(problem, human, machines, omega)


def loss_is_convex(problem: Problem) -> bool:
    """Whether the loss form is convex for lambda in [0, 1]: labels in a GLM's outcome only."""
    return (
        problem.family.canonical
        and not problem.family.linear
        and labels_only_in_outcome(problem.frame)
    )


def labels_only_in_outcome(frame: Frame) -> bool:
    """Whether no covariate is labelled, so that LLM and human rows share one design matrix."""
    return frame.outcome_is_label and not frame.covariate_labels


def published_tuning(
    problem: Problem,
    every: Rows,
    reference: Reference,
    human: HumanPart | None = None,
    machines: list[MachinePart] | None = None,
) -> float:
    r"""Return lambda as the software of the PPI++ paper computes it, within [0, 1].

    :math:`\lambda = \mathrm{tr}(H(C + C')H) / (2(1 + n/m)\,\mathrm{tr}(H S_\phi H))` with
    scores at the common theta of the fit with lambda = 1, C their covariance (divisor n) on
    coded rows, :math:`S_\phi` the covariance of LLM scores over coded and uncoded rows
    (divisor N - 1), H the inverse mean Hessian over all rows.

    References
    ----------
    Angelopoulos, Duchi and Zrnic (2023), PPI++, section 6.
    """
    family, design = problem.family, problem.design
    if len(problem.annotators) > 1:
        raise CorrectionError('tuning="published" takes one LLM; use tuning="scalar".')
    rows = common_rows(problem, every, reference, "hajek", 1.0)
    if human is not None and machines is not None:
        first = machines[0]
        theta = human.theta + first.gamma_reference - first.gamma_coded
    else:
        theta, _ = solve_common(problem, rows, 1.0)
    n, N = design.n_coded, design.n_rows
    # The software scales analysis weights to mean one in each of the two tables.
    a = np.ones(N) if design.weights is None else design.weights.copy()
    coded = np.zeros(N, dtype=bool)
    coded[design.coded] = True
    a[coded] /= a[coded].mean()
    a[~coded] /= a[~coded].mean()
    relative = (rows.coded_weights * n)[:, None]
    own = family.score(theta, rows.human) * relative
    llm = family.score(theta, rows.machine) * relative
    C = (own - own.mean(axis=0)).T @ (llm - llm.mean(axis=0)) / n
    centre = mean_score(family, theta, every, a)
    S = (score_meat(family, theta, every, a) - N * np.outer(centre, centre)) / (N - 1)
    H = np.linalg.inv(mean_hessian(family, theta, every, a))
    top = float(np.trace(H @ (C + C.T) @ H))
    bottom = 2.0 * (1.0 + n / (N - n)) * float(np.trace(H @ S @ H))
    return float(np.clip(top / bottom, 0.0, 1.0)) if bottom > 0 else 0.0
