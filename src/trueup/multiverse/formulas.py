"""Several formulas from one: stepwise operators as in pyfixest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations, product

from trueup.errors import ArgumentError, FormulaError

OPERATORS = ("sw", "sw0", "csw", "csw0", "mvsw")
_CALL = re.compile(r"(?<![\w.])(mvsw|csw0|csw|sw0|sw)\s*\(")


def expand_formulas(formulas: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Return named formulas.

    Parameters
    ----------
    formulas : str, sequence of str, or mapping of name to formula
        A formula may hold operators: ``sw(a, b)`` one of a and b; ``sw0`` also none;
        ``csw(a, b)`` a, then a + b; ``csw0`` also none; ``mvsw(a, b)`` every subset. On the left
        ``sw(y1, y2) ~ ...`` means several outcomes.

    Returns
    -------
    dict of str to str
        Name -> formula without operators; unnamed ones are named by themselves.

    Raises
    ------
    FormulaError
        If an operator has unbalanced brackets or nothing inside.
    ArgumentError
        If there is no formula, or a name or formula stands twice.

    Examples
    --------
    >>> list(expand_formulas("y ~ x + csw0(a, b)"))
    ['y ~ x', 'y ~ x + a', 'y ~ x + a + b']
    """
    if isinstance(formulas, Mapping):
        named = list(formulas.items())
    else:
        given = [formulas] if isinstance(formulas, str) else list(formulas)
        named = [("", f) for f in given]
    out: dict[str, str] = {}
    for name, formula in named:
        if not isinstance(formula, str) or not isinstance(name, str):
            raise ArgumentError(f"formulas= must be text, got {formula!r}.")
        variants = _expand(formula)
        for number, variant in enumerate(variants, 1):
            key = name or variant
            if name and len(variants) > 1:
                key = f"{name} {number}"
            if key in out:
                raise ArgumentError(f"The formula {key!r} stands twice: name each formula once.")
            out[key] = variant
    if not out:
        raise ArgumentError("formulas= is empty: give at least one formula.")
    return out


def _expand(formula: str) -> list[str]:
    found = _CALL.search(formula)
    if found is None:
        return [_tidy(formula)]
    start = found.end()
    stop = _closing(formula, start)
    pieces = _arguments(formula[start:stop])
    if not pieces or not all(pieces):
        raise FormulaError(
            f"{found.group(1)}(...) in {formula!r} has an empty argument: write "
            f"{found.group(1)}(a, b)."
        )
    before, after = formula[: found.start()], formula[stop + 1 :]
    variants = [f"{before}{choice}{after}" for choice in _choices(found.group(1), pieces)]
    return [done for variant in variants for done in _expand(variant)]


def _choices(operator: str, pieces: list[str]) -> list[str]:
    if operator == "mvsw":
        sizes = range(len(pieces) + 1)
        sets = [c for size in sizes for c in combinations(pieces, size)]
        return [" + ".join(c) or "0_nothing" for c in sets]
    steps = [" + ".join(pieces[: k + 1]) for k in range(len(pieces))]
    chosen = steps if operator.startswith("csw") else pieces
    return ["0_nothing", *chosen] if operator.endswith("0") else chosen


def _closing(formula: str, start: int) -> int:
    depth = 1
    for position in range(start, len(formula)):
        depth += {"(": 1, ")": -1}.get(formula[position], 0)
        if depth == 0:
            return position
    raise FormulaError(f"A bracket is not closed in {formula!r}.")


def _arguments(text: str) -> list[str]:
    pieces, depth, last = [], 0, 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1, "[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            pieces.append(text[last:position].strip())
            last = position + 1
    return [*pieces, text[last:].strip()]


def _tidy(formula: str) -> str:
    """Take out the places where an operator chose nothing."""
    formula = re.sub(r"\s*\+\s*0_nothing", "", formula)
    formula = re.sub(r"0_nothing\s*\+\s*", "", formula)
    formula = re.sub(r"0_nothing", "1", formula)
    return re.sub(r"\s+", " ", formula).strip()


def cross(choices: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Return every combination of the choices, the last varying fastest."""
    names = list(choices)
    return [dict(zip(names, c, strict=True)) for c in product(*choices.values())]
