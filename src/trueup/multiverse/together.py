"""Which universes joint statements can be made about: those of one coded sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trueup.corrections.base import Problem
from trueup.errors import TrueupError
from trueup.multiverse.universe import Located, Outcome
from trueup.study.design import SampleDesign
from trueup.study.study import Study

#: Universes that a message names.
NAMED = 8


@dataclass(frozen=True, slots=True)
class Together:
    """Universes whose influence functions can be put beside each other."""

    located: tuple[Located, ...]
    design: SampleDesign
    """The coded sample of the whole study that they rest on."""
    left_out: tuple[Outcome, ...]
    """Corrected or human-only universes of variables that were coded on other rows."""
    variables: tuple[str, ...]
    """Labelled variables of ``located`` that were coded on the rows of ``design``."""

    def told(self) -> str:
        """Say which universes are left out and why."""
        out = self.left_out
        numbers = ", ".join(str(o.universe.number) for o in out[:NAMED])
        more = ", ..." if len(out) > NAMED else ""
        formulas = "; ".join(dict.fromkeys(o.universe.formula for o in out))
        return (
            f"Joint statements leave out {len(out)} universe{'s' if len(out) > 1 else ''} "
            f"({numbers}{more}; {formulas}): their variables were coded on other rows than "
            f"{', '.join(map(repr, self.variables))}, and nothing says how the two samples were "
            "drawn together. They keep their own intervals; run a multiverse of their formulas "
            "alone for joint statements about them."
        )


def put_together(
    outcomes: Sequence[Outcome],
    problem_of: Callable[[Outcome], Problem],
    study: Study,
    part_of: Callable[[str], Study],
) -> Together:
    """Return the largest set of universes that meet on one coded sample.

    LLM-only universes use no coded rows and stay in whatever their variables; what links them to
    the corrected ones is read off the coded rows of these.

    Parameters
    ----------
    outcomes : sequence of Outcome
        All fitted.
    problem_of : function
        Returns the problem of an outcome.
    study : Study
    part_of : function
        Returns the study of a subset, by its name.
    """
    problems = [problem_of(o) for o in outcomes]
    samples: dict[bytes, tuple[SampleDesign, set[str]]] = {}
    rests_on: dict[bytes, list[bool]] = {}
    keys = []
    for outcome, problem in zip(outcomes, problems, strict=True):
        variables = problem.frame.variables
        design = study.design(variables)
        key = design.coded.tobytes()
        samples.setdefault(key, (design, set()))[1].update(variables)
        rests_on.setdefault(key, []).append(not _llm_only(outcome))
        keys.append(key)
    best = max(rests_on, key=lambda k: (sum(rests_on[k]), len(rests_on[k])))
    design, names = samples[best]
    located, left_out = [], []
    for outcome, problem, key in zip(outcomes, problems, keys, strict=True):
        if key == best:
            located.append(Located(outcome, problem, problem.design))
        elif (other := _sample_in(outcome, names, part_of)) is not None:
            located.append(Located(outcome, problem, other))
        else:
            left_out.append(outcome)
    return Together(tuple(located), design, tuple(left_out), tuple(sorted(names)))


def _llm_only(outcome: Outcome) -> bool:
    return outcome.estimate is not None and outcome.estimate.h is None


def _sample_in(
    outcome: Outcome, variables: set[str], part_of: Callable[[str], Study]
) -> SampleDesign | None:
    """Return the coded sample of other variables in the rows of an LLM-only universe."""
    if not _llm_only(outcome):
        return None
    try:
        return part_of(outcome.universe.subset).design(sorted(variables))
    except TrueupError:
        return None  # none of its rows was coded for them
