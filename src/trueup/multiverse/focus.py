"""The focal term: looked for before anything is fitted, and in what came out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trueup.errors import ArgumentError, TrueupError, TrueupWarning
from trueup.multiverse.caught import caught_warnings
from trueup.multiverse.grid import groups
from trueup.multiverse.multiverse import Multiverse
from trueup.multiverse.runner import FAILURES, Problems, take_subset
from trueup.multiverse.universe import Universe
from trueup.study.study import Study
from trueup.study.tables import nearest


def check_focus(
    focus: str,
    universes: Sequence[Universe],
    study: Study,
    subsets: Mapping[str, Any],
    seed: int | None,
) -> None:
    """Raise unless some universe has the focal term, before any of them is fitted.

    Designs are built until one has the term, so that the usual price is one of them. Universes
    whose design cannot be built say so when they run.

    Raises
    ------
    ArgumentError
        If no design that can be built has the term, with the nearest names.
    """
    if not isinstance(focus, str) or not focus.strip():
        raise ArgumentError(
            f"focus={focus!r} must name one coefficient, as it is named in fit.coef()."
        )
    seen: dict[str, None] = {}
    for terms in _terms(universes, study, subsets, seed):
        if focus in terms:
            return
        seen.update(dict.fromkeys(terms))
    if seen:
        raise ArgumentError(f"No universe has a term {focus!r}.{nearest(focus, seen)}")


def _terms(
    universes: Sequence[Universe], study: Study, subsets: Mapping[str, Any], seed: int | None
) -> Iterator[Sequence[str]]:
    """Yield the terms of designs: first of each formula and family, then of all groups.

    Levels may differ between subsets, and between annotators where their labels are regressors.
    """
    first: dict[tuple[str, str], Universe] = {}
    for u in universes:
        first.setdefault((u.formula, u.family.name), u)
    for u in first.values():
        yield from _group_terms([u], study, subsets, seed)
    for group in groups(universes):
        one = list({u.llm: u for u in group}.values())
        yield from _group_terms(one, study, subsets, seed)


def _group_terms(
    group: Sequence[Universe], study: Study, subsets: Mapping[str, Any], seed: int | None
) -> Iterator[Sequence[str]]:
    with caught_warnings():  # given again, and kept, when the universes run
        try:
            part, _ = take_subset(study, subsets[group[0].subset])
        except TrueupError:
            return
        problems = Problems(part, group, seed)
        found: list[Sequence[str]] = []
        for universe in group:
            try:
                found.append(problems.of(universe).frame.terms)
            except FAILURES:
                continue  # the universe fails with this reason when it runs
    yield from found


def warn_focus(multiverse: Multiverse) -> None:
    """Warn of formulas without the focal term; raise where every fitted universe lacks it."""
    fitted = [o for o in multiverse.outcomes if o.status == "ok"]
    if not fitted:
        return
    multiverse.chosen()
    without = sorted({o.universe.formula for o in fitted if multiverse.focus not in o.terms})
    if without:
        warnings.warn(
            f"The focal term {multiverse.focus!r} is absent from {len(without)} formula(s): "
            f"{'; '.join(without[:3])}. Their universes are kept without it.",
            TrueupWarning,
            stacklevel=3,
        )
