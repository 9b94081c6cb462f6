"""The regression that a scorecard is about: of a fit, or the first of a multiverse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from trueup.corrections.auto import Auto
from trueup.corrections.base import Correction
from trueup.errors import ArgumentError
from trueup.families.base import Family
from trueup.inference.vcov import Vcov
from trueup.multiverse.multiverse import Multiverse
from trueup.multiverse.runner import take_subset
from trueup.multiverse.universe import Outcome, Universe
from trueup.results.fit import Fit
from trueup.results.tidy import applied_correction, slopes
from trueup.study.study import Study
from trueup.study.tables import nearest


@dataclass(frozen=True, slots=True)
class Task:
    """One regression, to be fitted with each annotator in turn."""

    study: Study
    formula: str
    family: Family
    vcov: Vcov
    correction: Correction
    subset: str
    seed: int | None
    level: float
    focus: str
    variables: tuple[str, ...]
    """Labelled variables of the formula."""
    annotators: tuple[str, ...]
    fields: Mapping[str, Mapping[str, str]]
    """Metadata of each annotator."""
    known: Mapping[str, Callable[[], Fit]]
    """Fits that exist already."""


def task_of(source: Fit | Multiverse, focus: str | None) -> Task:
    """Return the regression of a fit, or the first one of a multiverse that has the focal term.

    Raises
    ------
    ArgumentError
        If the source is neither, there is no such coefficient, or the correction was given
        predictions of its own.
    """
    if isinstance(source, Fit):
        return _of_fit(source, focus)
    if isinstance(source, Multiverse):
        return _of_multiverse(source, focus)
    raise ArgumentError(
        f"alignment() takes a fit or a multiverse, not {type(source).__name__}: fit one formula "
        "first, as in tu.ols('y ~ x', study, llm=...)."
    )


def _of_fit(fit: Fit, focus: str | None) -> Task:
    if focus is not None and focus not in fit.terms:
        raise ArgumentError(f"focus={focus!r} is no coefficient.{nearest(focus, fit.terms)}")
    problem, study = fit.problem, fit.study
    own = applied_correction(fit).name not in ("naive", "human")
    same = own and len(problem.annotators) == 1
    return Task(
        study=study,
        formula=fit.formula,
        family=problem.family,
        vcov=problem.vcov,
        correction=_reusable(fit.correction) if own else Auto(),
        subset="all",
        seed=problem.seed,
        level=fit.level,
        focus=fit.terms[slopes(fit.terms)[0]] if focus is None else focus,
        variables=problem.frame.variables,
        annotators=study.annotators,
        fields={a: study.annotator(a).metadata for a in study.annotators},
        known={problem.annotators[0]: lambda: fit} if same else {},
    )


def _of_multiverse(mv: Multiverse, focus: str | None) -> Task:
    first = mv.chosen(focus)[0].universe
    key = _place(first)
    here = [o for o in mv.outcomes if o.status == "ok" and _place(o.universe) == key]
    used = [o.universe for o in mv.outcomes if _place(o.universe) == key]
    corrected = [u for u in used if u.correction.name not in ("naive", "human")]
    correction = _reusable(corrected[0].correction) if corrected else Auto()
    label = corrected[0].dimensions["correction"] if corrected else ""
    annotators = tuple(dict.fromkeys(a for o in mv.outcomes for a in o.universe.llm))
    fields = {a: dict(mv.study.annotator(a).metadata) for a in annotators}
    for o in mv.outcomes:
        if o.universe.dimensions.get("llm") == o.universe.llm[0]:
            own = {k: v for k, v in o.universe.dimensions.items() if k not in _CHOICES}
            fields[o.universe.llm[0]] |= own
    some = mv.fit(mv.chosen(focus)[0].universe.number)
    return Task(
        study=take_subset(mv.study, mv.subsets[first.subset])[0],
        formula=first.formula,
        family=first.family,
        vcov=first.vcov,
        correction=correction,
        subset=first.subset,
        seed=mv.seed,
        level=mv.level,
        focus=mv.focus if focus is None else focus,
        variables=some.problem.frame.variables,
        annotators=annotators,
        fields=fields,
        known=dict(_fitted(mv, here, label)),
    )


#: Dimensions of a grid that say nothing about an annotator.
_CHOICES = ("llm", "formula", "family", "correction", "subset", "vcov")


def _place(universe: Universe) -> tuple[str, str, str, str]:
    return universe.formula, universe.family.name, universe.subset, repr(universe.vcov)


def _fitted(
    mv: Multiverse, outcomes: Sequence[Outcome], correction: str
) -> Iterator[tuple[str, Callable[[], Fit]]]:
    for o in outcomes:
        if o.universe.dimensions["correction"] == correction and len(o.universe.llm) == 1:
            yield o.universe.llm[0], partial(mv.fit, o.universe.number)


def _reusable(correction: Correction) -> Correction:
    if getattr(correction, "predictions", None) is not None:
        raise ArgumentError(
            f"The correction {correction.name!r} was given predictions=, which are the same "
            "whichever annotator is scored: fit without them, or with another correction."
        )
    return correction


def scored_variable(task: Task, variable: str | None) -> str:
    """Return the labelled variable that is scored.

    Raises
    ------
    ArgumentError
        If the formula uses several and none is named, or not the one that is.
    """
    names = ", ".join(map(repr, task.variables))
    if variable is None and len(task.variables) > 1:
        raise ArgumentError(
            f"The formula {task.formula!r} uses the labelled variables {names}: say which one to "
            f"score, as in variable={task.variables[0]!r}."
        )
    if variable is not None and variable not in task.variables:
        raise ArgumentError(
            f"variable={variable!r} is no labelled variable of {task.formula!r}, which uses "
            f"{names}."
        )
    return task.variables[0] if variable is None else variable
