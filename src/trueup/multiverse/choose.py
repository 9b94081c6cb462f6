"""Find one universe by its number or by the choices that made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from trueup.errors import ArgumentError
from trueup.multiverse.universe import Outcome

#: Universes, or levels of a dimension, that a message names.
NAMED = 6


def find_outcome(outcomes: Sequence[Outcome], wanted: int | Mapping[str, Any]) -> Outcome:
    """Return the outcome of the one universe that is asked for.

    Parameters
    ----------
    outcomes : sequence of Outcome
    wanted : int, or mapping of dimension to level
        A number, or choices that only one universe made, such as
        ``{"llm": "gpt", "correction": "ptd"}``.

    Raises
    ------
    ArgumentError
        If no universe is asked for, or several are.
    """
    if not isinstance(wanted, Mapping):
        found = [o for o in outcomes if o.universe.number == wanted]
        if not found:
            raise ArgumentError(
                f"There is no universe {wanted!r}: they are numbered 0 to "
                f"{max(o.universe.number for o in outcomes)}."
            )
        return found[0]
    _check(outcomes, wanted)
    found = [
        o
        for o in outcomes
        if all(o.universe.dimensions[d] == str(level) for d, level in wanted.items())
    ]
    if not found:
        asked = ", ".join(f"{d}={str(level)!r}" for d, level in wanted.items())
        raise ArgumentError(
            f"No universe has {asked} together: .tidy() shows which choices were combined."
        )
    if len(found) > 1:
        raise ArgumentError(_ambiguous(found, wanted))
    return found[0]


def _check(outcomes: Sequence[Outcome], wanted: Mapping[str, Any]) -> None:
    """Raise where a dimension or a level does not exist."""
    dimensions = list(outcomes[0].universe.dimensions)
    unknown = [d for d in wanted if d not in dimensions]
    if unknown:
        near = get_close_matches(str(unknown[0]), dimensions, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ArgumentError(
            f"{', '.join(map(repr, unknown))} {'is' if len(unknown) == 1 else 'are'} no "
            f"dimension of this multiverse: use {', '.join(dimensions)}.{hint}"
        )
    for dimension, level in wanted.items():
        levels = list(dict.fromkeys(o.universe.dimensions[dimension] for o in outcomes))
        if str(level) not in levels:
            near = get_close_matches(str(level), levels, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            more = ", ..." if len(levels) > NAMED else ""
            raise ArgumentError(
                f"No universe has {dimension}={str(level)!r}: there are "
                f"{', '.join(map(repr, levels[:NAMED]))}{more}.{hint}"
            )


def _ambiguous(found: Sequence[Outcome], wanted: Mapping[str, Any]) -> str:
    """Say which universes match and what would tell them apart."""
    varying = [
        d
        for d in found[0].universe.dimensions
        if d not in wanted and len({o.universe.dimensions[d] for o in found}) > 1
    ]
    listed = "; ".join(
        f"{o.universe.number} ({', '.join(f'{d}={o.universe.dimensions[d]!r}' for d in varying)})"
        for o in found[:NAMED]
    )
    more = "; ..." if len(found) > NAMED else ""
    return (
        f"{len(found)} universes match: {listed}{more}. Say more of {', '.join(varying)}, or give "
        "a number."
    )
