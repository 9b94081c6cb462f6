"""One point of the grid, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trueup.corrections.base import Correction, Estimate, Problem
from trueup.families.base import Family
from trueup.inference.vcov import Vcov
from trueup.study.design import Int, SampleDesign


@dataclass(frozen=True, slots=True)
class Universe:
    """One combination of choices.

    ``dimensions`` are what tables and plots show: name of the dimension -> level, all strings,
    in the order of the grid (llm, model, prompt, ..., formula, family, correction, subset, vcov).
    """

    number: int
    llm: tuple[str, ...]
    """Annotators used, one or several."""
    formula: str
    family: Family
    correction: Correction
    subset: str
    """Name of the subset of rows; "all" for all rows."""
    vcov: Vcov
    dimensions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a universe: an estimate, or the reason why there is none."""

    universe: Universe
    status: Literal["ok", "failed"]
    terms: tuple[str, ...] = ()
    estimate: Estimate | None = None
    positions: Int | None = None
    """(N_subset,) rows of the study in the subset; None for all rows."""
    error: str = ""
    """Class and message of the error of a failed universe."""
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Located:
    """A fitted universe with what is needed to put its influence beside that of another."""

    outcome: Outcome
    problem: Problem
    """The problem that was solved (rebuilt on demand; shared by universes of one design)."""
    design: SampleDesign
    """Its rows with the coded sample that all located universes meet on: that of the problem, but
    for LLM-only universes of variables that were coded on other rows."""
