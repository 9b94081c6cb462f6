"""Several formulas from one: stepwise operators as in pyfixest."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, combinations
from math import prod
from operator import mul

from trueup.errors import ArgumentError, FormulaError
from trueup.formula.parse import parse

OPERATORS = ("sw", "sw0", "csw", "csw0", "mvsw")
_CALL = re.compile(r"(?<![\w.])(mvsw|csw0|csw|sw0|sw)\s*\(")
_QUOTED = re.compile(r"""`[^`]*`|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
#: Stands where an operator chose nothing; no formula can hold it.
_NOTHING = "\0"


def expand_formulas(
    formulas: str | Sequence[str] | Mapping[str, str], check: Callable[[str], object] = parse
) -> dict[str, str]:
    """Return named formulas, each known to be readable.

    Parameters
    ----------
    formulas : str, sequence of str, or mapping of name to formula
        A formula may hold operators: ``sw(a, b)`` one of a and b; ``sw0`` also none;
        ``csw(a, b)`` a, then a + b; ``csw0`` also none; ``mvsw(a, b)`` every subset. On the left
        ``sw(y1, y2) ~ ...`` means several outcomes.
    check : callable
        Called with each formula that comes out; raises where it cannot be used.

    Returns
    -------
    dict of str to str
        Name -> formula without operators; unnamed ones are named by themselves.

    Raises
    ------
    FormulaError
        If a formula cannot be read, or an operator has unbalanced brackets or nothing inside.
    ArgumentError
        If there is no formula, or a name or formula stands twice.

    Examples
    --------
    >>> list(expand_formulas("y ~ x + csw0(a, b)"))
    ['y ~ x', 'y ~ x + a', 'y ~ x + a + b']
    """
    out: dict[str, str] = {}
    for name, formula in _named(formulas):
        if not isinstance(formula, str) or not isinstance(name, str):
            raise ArgumentError(f"formulas= must be text, got {name or formula!r}.")
        variants = _expand(formula)
        for number, variant in enumerate(variants, 1):
            key = name or variant
            if name and len(variants) > 1:
                key = f"{name} {number}"
            if key in out:
                raise ArgumentError(f"The formula {key!r} stands twice: name each formula once.")
            check(variant)
            out[key] = variant
    if not out:
        raise ArgumentError("formulas= is empty: give at least one formula.")
    return out


def count_variants(formula: str) -> int:
    """Return how many formulas the operators in one make, without making them.

    Raises
    ------
    FormulaError
        If a bracket is not closed.

    Examples
    --------
    >>> count_variants("y ~ x + mvsw(a, b, c) + sw(d, csw0(e, f))")
    32
    """
    plain = _blank_quotes(formula)
    count, position = 1, 0
    while found := _CALL.search(plain, position):
        position = _closing(plain, found.end(), formula)
        inside = [count_variants(p) for p in _arguments(formula[found.end() : position])]
        count *= _count_choices(found.group(1), inside)
    return count


def _count_choices(operator: str, inside: list[int]) -> int:
    if operator == "mvsw":
        return prod(1 + n for n in inside)
    chosen = sum(accumulate(inside, mul)) if operator.startswith("csw") else sum(inside)
    return chosen + operator.endswith("0")


def _named(formulas: str | Sequence[str] | Mapping[str, str]) -> list[tuple[str, str]]:
    if isinstance(formulas, Mapping):
        return list(formulas.items())
    if isinstance(formulas, str):
        return [("", formulas)]
    if not isinstance(formulas, Sequence):
        raise ArgumentError(
            f"formulas= must be a formula, a list, or a mapping of names to formulas, got "
            f"{type(formulas).__name__}."
        )
    return [("", f) for f in formulas]


def _expand(formula: str) -> list[str]:
    out: list[str] = []
    left = [formula]
    while left:
        text = left.pop()
        found = _CALL.search(_blank_quotes(text))
        if found is None:
            out.append(_tidy(text))
        else:
            left += _variants(text, found)[::-1]
    return out


def _variants(formula: str, found: re.Match[str]) -> list[str]:
    """Return a formula once for each choice of one of its operators."""
    stop = _closing(_blank_quotes(formula), found.end(), formula)
    pieces = _arguments(formula[found.end() : stop])
    if not all(pieces):
        raise FormulaError(
            f"{found.group(1)}(...) in {formula!r} has an empty argument: write "
            f"{found.group(1)}(a, b)."
        )
    before, after = formula[: found.start()], formula[stop + 1 :]
    return [f"{before}{choice}{after}" for choice in _choices(found.group(1), pieces)]


def _choices(operator: str, pieces: list[str]) -> list[str]:
    if operator == "mvsw":
        sizes = range(len(pieces) + 1)
        sets = [c for size in sizes for c in combinations(pieces, size)]
        return [" + ".join(c) or _NOTHING for c in sets]
    steps = [" + ".join(pieces[: k + 1]) for k in range(len(pieces))]
    chosen = steps if operator.startswith("csw") else pieces
    return [_NOTHING, *chosen] if operator.endswith("0") else chosen


def _blank_quotes(text: str) -> str:
    """Return text of the same length in which nothing quoted can be taken for an operator."""
    return _QUOTED.sub(lambda m: "_" * len(m.group()), text)


def _closing(plain: str, start: int, formula: str) -> int:
    depth = 1
    for position in range(start, len(plain)):
        depth += {"(": 1, ")": -1}.get(plain[position], 0)
        if depth == 0:
            return position
    raise FormulaError(f"A bracket is not closed in {formula!r}.")


def _arguments(text: str) -> list[str]:
    plain = _blank_quotes(text)
    pieces, depth, last = [], 0, 0
    for position, character in enumerate(plain):
        depth += {"(": 1, ")": -1, "[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            pieces.append(text[last:position].strip())
            last = position + 1
    return [*pieces, text[last:].strip()]


def _tidy(formula: str) -> str:
    """Take out the places where an operator chose nothing, and spare blanks."""
    text = re.sub(rf"\s*\+\s*{_NOTHING}", "", formula)
    text = re.sub(rf"{_NOTHING}\s*\+\s*", "", text)
    text = re.sub(rf"\s*\|\s*{_NOTHING}\s*$", "", text)
    text = re.sub(rf"~\s*{_NOTHING}(?=\s*(\||$))", "~ 1", text)
    if _NOTHING in text:
        shown = text.replace(_NOTHING, "(nothing)").strip()
        raise FormulaError(
            f"An operator that may choose nothing makes {shown!r}: join sw0(), csw0() and mvsw() "
            "to the other terms with '+'."
        )
    pieces = _QUOTED.split(text)
    quoted = [*_QUOTED.findall(text), ""]
    spaced = [re.sub(r"\s+", " ", piece) for piece in pieces]
    return "".join(a + b for a, b in zip(spaced, quoted, strict=True)).strip()
