"""What a family must know: the score of one row, its derivative, and nothing about LLMs."""

from __future__ import annotations

from typing import Protocol

from trueup.formula.rows import Rows
from trueup.study.design import Float, Int


class Family(Protocol):
    r"""An M-estimator: coefficients solve :math:`\sum_i w_i \psi(\theta; \mathrm{row}_i) = 0`.

    Rows given to ``score``, ``score_sum`` and ``hessian_sum`` have been through ``prepare``
    (or ``prepare_pair``), which is the identity for families without nuisance parts.
    """

    @property
    def name(self) -> str:
        """Name shown to users, e.g. ``"logit"``."""
        ...

    @property
    def linear(self) -> bool:
        """Whether the score is affine in theta, so that one Newton step from zero solves."""
        ...

    @property
    def outcome_linear(self) -> bool:
        """Whether the score is affine in the outcome."""
        ...

    @property
    def canonical(self) -> bool:
        """Whether the Hessian is free of the outcome, as for canonical links."""
        ...

    def check_outcome(self, y: Float, variable: str) -> None:
        """Raise :class:`~trueup.errors.FitError` where ``y`` has values the family forbids."""
        ...

    def prepare(self, rows: Rows, weights: Float | None) -> Rows:
        """Estimate nuisance parts (absorbed effects, first stages) from these rows alone."""
        ...

    def prepare_pair(
        self,
        every: Rows,
        human: Rows,
        machine: Rows,
        coded: Int,
        correction_weights: Float,
        weights: Float | None,
    ) -> tuple[Rows, Rows, Rows]:
        r"""Estimate nuisance parts once for rows that share one theta.

        The nuisance equations are solved for the sum
        :math:`\sum_N a_i \psi(\mathrm{every}_i) + \sum_R c_i [\psi(\mathrm{human}_i) -
        \psi(\mathrm{machine}_i)]` with ``c = correction_weights`` on the coded rows.
        ``every`` has N rows; ``human`` and ``machine`` are the ``coded`` ones, in order.
        """
        ...

    def start(self, rows: Rows, weights: Float | None) -> Float:
        """Return (p,) starting values for Newton."""
        ...

    def score(self, theta: Float, rows: Rows) -> Float:
        """Return (m, p) scores psi, unweighted."""
        ...

    def score_sum(self, theta: Float, rows: Rows, weights: Float | None) -> Float:
        """Return (p,) weighted sum of scores, without the (m, p) array where possible."""
        ...

    def hessian_sum(self, theta: Float, rows: Rows, weights: Float | None) -> Float:
        """Return (p, p) weighted sum of minus the derivative of psi."""
        ...

    def leverage(self, theta: Float, rows: Rows, weights: Float) -> Float:
        """Return (m,) hat values of the weighted fit, for HC2 and HC3."""
        ...

    def mean(self, theta: Float, X: Float) -> Float:
        """Return (m,) fitted means on the outcome scale."""
        ...

    def mean_gradient(self, theta: Float, X: Float) -> Float:
        """Return (m, p) derivatives of the fitted means with respect to theta."""
        ...
