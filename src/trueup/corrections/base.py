"""What a correction sees and what it returns."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trueup.families.base import Family
from trueup.formula.rows import RowBlocks, Rows
from trueup.inference.variance import Influence
from trueup.inference.vcov import Vcov
from trueup.study.design import Float, SampleDesign


class Frame(Protocol):
    """The design of one formula, under any source of labels (see ``formula.frame``)."""

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the p coefficients."""
        ...

    @property
    def variables(self) -> tuple[str, ...]:
        """Labelled variables that the formula uses."""
        ...

    @property
    def outcome_is_label(self) -> bool:
        """Whether the outcome is made from a labelled variable."""
        ...

    @property
    def covariate_labels(self) -> tuple[str, ...]:
        """Labelled variables on the right-hand side."""
        ...

    @property
    def class_labels(self) -> Mapping[str, tuple[Any, ...]]:
        """Labelled variables that enter as classes, with their levels."""
        ...

    def human_labels(self, variable: str) -> NDArray[Any]:
        """Return the (n,) human labels of the coded rows."""
        ...

    def llm_labels(self, variable: str, annotator: str) -> NDArray[Any]:
        """Return the (N,) labels of one annotator, complete."""
        ...

    def human(self) -> Rows:
        """Return the n coded rows under human labels."""
        ...

    def llm(self, annotator: str) -> Rows:
        """Return all N rows under the labels of one annotator."""
        ...

    def llm_outcome(self, annotator: str) -> Float:
        """Return the (N,) outcome under the labels of one annotator."""
        ...

    def holds(self) -> bool:
        """Return whether the design matrix of all rows is, or may be, held at once."""
        ...

    def blocks(self, annotators: Sequence[str], size: int | None = None) -> RowBlocks:
        """Return all N rows under several annotators, to be gone through block by block."""
        ...

    def rows(self, labels: Mapping[str, NDArray[Any]], index: NDArray[np.int64] | None) -> Rows:
        """Return the rows at ``index`` (all where None) under any labels given."""
        ...


@dataclass(frozen=True, slots=True)
class Problem:
    """One regression to be corrected."""

    family: Family
    frame: Frame
    design: SampleDesign
    annotators: tuple[str, ...]
    vcov: Vcov
    seed: int | None = None
    missing: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    """annotator -> (N,) mask of rows whose LLM label was missing and has been filled."""
    together: tuple[str, ...] = ()
    """Annotators whose LLM labels are fitted in passes that they share, whichever of them a
    correction asks for first; by default those of ``annotators``."""
    cache: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)
    """Fits that several corrections of this problem share; ``dataclasses.replace`` keeps it, so
    replace only the annotators, the covariance options or the seed."""


@dataclass(frozen=True, slots=True)
class Estimate:
    r"""Coefficients, their covariance, and the influence functions both came from.

    The influence function of row i is
    :math:`\xi_i = h_i + (R_i/\pi_i - 1) d_i`, normalised so that
    :math:`\hat\theta - \theta \approx N^{-1}\sum_i \xi_i`.
    """

    theta: Float
    """(p,) coefficients."""
    vcov: Float
    """(p, p) covariance."""
    df: Float
    """(p,) degrees of freedom of the reference t distribution; inf = normal."""
    h: Float | None
    """(n, p) influence of the human score on the coded rows; None for LLM-only fits."""
    d: Float | None
    """(n, p) part of the influence that only the coded rows reveal (human minus LLM)."""
    tuning: Float | None = None
    """Tuning: scalar, (p,), or the (p, q) matrix Omega; None where there is none."""
    vcov_human: Float | None = None
    """(p, p) covariance of the human-only fit on the same rows, by the same rules."""
    informative: Float | None = None
    """(p,) effective number of coded rows that carry each variance (METHODS 3.6)."""
    notes: tuple[str, ...] = ()
    """Sentences for the summary: what was chosen and why."""
    warnings: tuple[str, ...] = ()
    influence: Influence | None = None
    """Factor rows of ``vcov``: multiply with those of another fit on the same coded rows
    for the covariance between the two."""
    extra: Mapping[str, Any] = field(default_factory=dict)


class Correction(Protocol):
    """Combines human and LLM labels on a sampling design; knows no family."""

    @property
    def name(self) -> str:
        """Name shown to users, e.g. ``"ptd"``."""
        ...

    def estimate(self, problem: Problem) -> Estimate:
        """Return the corrected estimate."""
        ...
