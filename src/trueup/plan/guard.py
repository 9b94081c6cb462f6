"""Bounds on the text of a plan: formulas and conditions are data from someone else.

Everything here looks at text alone. Nothing is expanded or evaluated, so that a text made to run
for ever, to fill the memory or to reach into Python is refused in the time it takes to read it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from math import inf
from typing import NoReturn, TypeGuard

from trueup.errors import ArgumentError, FormulaError, PlanError
from trueup.formula.parse import Parsed, parse, split_formula
from trueup.multiverse.formulas import count_variants

#: Functions that a formula of a plan may call.
TRANSFORMS = ("C", "I", "log", "log2", "log10", "exp", "abs", "scale", "center", "poly", "bs")
#: Contrasts that may stand in ``C(column, ...)``, with constant arguments or none.
CONTRASTS = (
    *("contr.treatment", "contr.sum", "contr.helmert", "contr.diff", "contr.poly"),
    *("Treatment", "Sum", "Helmert", "Diff", "Poly"),
)
#: Characters of one formula or condition.
LENGTH = 2_000
#: Brackets within brackets.
NESTING = 20
#: Formulas that the operators sw, csw and mvsw may make of all those in a plan.
FORMULAS = 1_000
#: Terms that one formula may expand to, a column of poly() or bs() counted as one.
TERMS = 500
#: Terms of all formulas together.
ALL_TERMS = 20_000
#: The largest power, and the largest degree of poly() and bs().
POWER = 10
#: The largest number of columns that bs() may make, and of its knots.
SPLINE = 50
#: The largest constant: all whole numbers below it are exact.
CONSTANT = 2**53

_TOKEN = re.compile(r"""`[^`]*`|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
_STRANGE = re.compile(r"[^\w\s+\-*/^:()\[\],.~|<>=!&%]")
#: What stands in the checked copy of a text for a name in backticks.
_COLUMN = "column"
_PLUS, _TIMES = (ast.Add, ast.Sub), (ast.Mult, ast.Div)
_ARITHMETIC = (*_PLUS, *_TIMES, ast.FloorDiv, ast.Mod)
_LOGIC = (ast.BitAnd, ast.BitOr)
#: Names that mean no column within a call.
_NAMESPACES = ("np", "contr", "Treatment", "Sum", "Helmert", "Diff", "Poly")
#: Operations within one another; a sum of terms counts as one.
_DEPTH = 60


def check_formula(formula: str) -> None:
    """Refuse a formula that does more than combine columns by named transforms.

    Allowed are names of columns, the operators of formulas, comparisons and arithmetic inside
    ``I(...)`` and the other transforms (``C``, ``log``, ``log2``, ``log10``, ``exp``, ``abs``,
    ``scale``, ``center``, ``poly``, ``bs``), and contrasts inside ``C(...)``:
    ``contr.treatment``, ``contr.sum``, ``contr.helmert``, ``contr.diff``, ``contr.poly``, with
    constant arguments. No other name may have a dot: write a column with one in backticks.

    Raises
    ------
    PlanError
        Showing the piece that is not allowed, or that is too large to be expanded.

    Examples
    --------
    >>> check_formula("y ~ x + log(words) + C(source, contr.treatment('press'))")
    """
    bound_of(formula)
    try:
        parse(formula)
    except FormulaError as error:
        raise PlanError(f"The formula {shown(formula)} cannot be used. {error}") from error


def check_size(formulas: Iterable[str]) -> None:
    """Refuse formulas, operators and all, that would become too many or too long.

    Raises
    ------
    PlanError
        Showing the formula at fault.
    """
    total = 0
    for formula in formulas:
        _check_text(formula, "formula")
        try:
            total += count_variants(formula)
        except (FormulaError, ArgumentError) as error:
            raise PlanError(f"The formula {shown(formula)} cannot be used. {error}") from error
        if total > FORMULAS:
            raise PlanError(
                f"The operators of {shown(formula)} make {total:,} formulas, more than the "
                f"{FORMULAS:,} that a plan may hold: name the sets of controls that you want."
            )


def check_total(formulas: Iterable[str]) -> None:
    """Refuse formulas that together have too many terms to be read in seconds."""
    total = sum(bound_of(formula) for formula in formulas)
    if total > ALL_TERMS:
        raise PlanError(
            f"The formulas of the plan have {total:,.0f} terms together, more than the "
            f"{ALL_TERMS:,} that a plan may hold: write fewer or shorter ones."
        )


def check_condition(text: str, where: str, *, arithmetic: bool = True) -> None:
    """Refuse a condition on rows or universes that does more than compare.

    Raises
    ------
    PlanError
        Showing the piece that is not allowed.
    """
    what = f"condition of {where}"
    _check_text(text, what)
    tree = _syntax(text.strip(), text, what)
    _Pieces(text, text.strip(), what, arithmetic).value(tree)


def shown(text: str) -> str:
    """Return a text for a message: in quotes, its middle left out where it is long."""
    return repr(text if len(text) <= 160 else f"{text[:100]} ... {text[-40:]}")


def computed_columns(parsed: Parsed) -> tuple[str, ...]:
    """Return the columns that arithmetic is done on, which must hold numbers."""
    found: list[str] = []
    for part in _parts(parsed):
        copy, names = _copy(part)
        for node in ast.walk(_syntax(copy, parsed.formula, "formula")):
            if isinstance(node, ast.Call):
                found += [names.get(n, n) for n in _operands(node)]
    return tuple(dict.fromkeys(found))


def condition_columns(text: str) -> tuple[str, ...]:
    """Return the columns of a condition that arithmetic is done on."""
    return tuple(dict.fromkeys(_operands(_syntax(text.strip(), text, "condition"))))


def _operands(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (*_ARITHMETIC, ast.Pow)):
            yield from (n.id for side in (node.left, node.right) for n in _bare(side))


def _bare(node: ast.AST) -> Iterator[ast.Name]:
    """Iterate over the names whose values reach a node as they are."""
    if isinstance(node, ast.Name):
        yield node
    elif isinstance(node, ast.Call):
        yield from (n for a in node.args for n in _bare(a))
    elif isinstance(node, (ast.BinOp, ast.UnaryOp, ast.BoolOp)):
        yield from (n for child in ast.iter_child_nodes(node) for n in _bare(child))


def _check_text(text: str, what: str) -> None:
    """Refuse a text that is too long or too deep, or in which quotes could hide something."""
    if len(text) > LENGTH:
        raise PlanError(
            f"The {what} {shown(text)} has {len(text):,} characters, more than the {LENGTH:,} "
            "that a plan may have in one: compute columns in the data, or write it shorter."
        )
    for token in _TOKEN.findall(text):
        strange = "'\"\\\n" if token[0] == "`" else "`'\"\\()[]{}\n"
        if any(c in strange for c in token[1:-1]):
            raise PlanError(
                f"The {what} {shown(text)} has {token}, which a plan may not use: text in quotes "
                "holds no brackets, quotes or backslashes, a name in backticks no quotes. Rename "
                "it in the data."
            )
    plain = _TOKEN.sub("_", text)
    strange_one = _STRANGE.search(plain)
    if strange_one:
        piece = strange_one.group()
        why = "that is not closed" if piece in "'\"`" else "which a plan may not use"
        raise PlanError(f"The {what} {shown(text)} has {piece!r}, {why}.")
    depth = 0
    for character in plain:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if depth > NESTING:
            raise PlanError(
                f"The {what} {shown(text)} has more than {NESTING} brackets within one another: "
                "write it flat."
            )


def bound_of(formula: str) -> float:
    """Return an upper bound of the terms a formula expands to, after checking its pieces."""
    _check_text(formula, "formula")
    try:
        parsed = split_formula(formula)
    except FormulaError as error:
        raise PlanError(f"The formula {shown(formula)} cannot be used. {error}") from error
    return sum(_part_terms(formula, part) for part in _parts(parsed))


def _parts(parsed: Parsed) -> list[str]:
    parts = (parsed.outcome, parsed.exogenous, parsed.endogenous, parsed.instruments)
    return [part for part in parts if part]


def _part_terms(formula: str, part: str) -> float:
    copy, _ = _copy(part)
    return _Pieces(formula, copy, "formula").terms(_syntax(copy, formula, "formula", part))


def _copy(part: str) -> tuple[str, dict[str, str]]:
    """Return a piece of a formula as Python could read it, and what its new names stand for."""
    names: dict[str, str] = {}

    def rename(token: str) -> str:
        if token[0] != "`":
            return token
        name = f"{_COLUMN}{len(names)}"
        names[name] = token[1:-1]
        return name

    plain = [p.replace(":", "*").replace("^", "**") for p in _TOKEN.split(part)]
    quoted = [*map(rename, _TOKEN.findall(part)), ""]
    text = "".join(a + b for a, b in zip(plain, quoted, strict=True)).strip()
    return (f"0 {text}" if text.startswith(("-", "+")) else text), names


def _syntax(text: str, whole: str, what: str, part: str = "") -> ast.expr:
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        at = f" at {shown(part)}" if part and part != whole else ""
        raise PlanError(f"The {what} {shown(whole)} cannot be read{at}.") from error
    # Step by step: what is read next goes down the tree by calling itself.
    left = [(tree, 0)]
    while left:
        node, depth = left.pop()
        if depth > _DEPTH:
            raise PlanError(
                f"The {what} {shown(whole)} has more than {_DEPTH} operations within one "
                "another: compute columns in the data, or write it shorter."
            )
        first = node.left if _is_sum(node) and depth == 0 else None
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                left.append((child, depth if child is first else depth + 1))
    return tree


class _Pieces:
    """Checks the pieces of one text; ``copy`` is what the tree was read from."""

    def __init__(self, whole: str, copy: str, what: str, arithmetic: bool = True) -> None:
        self._whole = whole
        self._copy = copy
        self._what = what
        self._arithmetic = arithmetic

    def terms(self, node: ast.expr) -> float:
        """Return how many terms a piece of a formula can expand to."""
        count = self._count(node)
        if count > TERMS:
            self._refuse(node, f"it expands to more than {TERMS} terms: name those that you want")
        return count

    def _count(self, node: ast.expr) -> float:
        total = 0.0
        while _is_sum(node):
            total += self.terms(node.right)
            node = node.left
        return total + self._one(node)

    def _one(self, node: ast.expr) -> float:
        """Return how many terms a piece that is no sum can expand to."""
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.Pow):
                # A product of the terms with themselves, before equal ones are joined.
                return float(self.terms(node.left) ** self._power(node, whole=True))
            if isinstance(node.op, _TIMES):
                left, right = self.terms(node.left), self.terms(node.right)
                return left + right + left * right
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
            return self.terms(node.operand)
        if isinstance(node, ast.Call):
            self.value(node)
            return basis_columns(node)
        if isinstance(node, ast.Name) and not node.id.startswith("__"):
            return 1
        if isinstance(node, ast.Constant):
            self.constant(node)
            return 1
        return self._refuse(node)

    def value(self, node: ast.expr) -> None:
        """Refuse an expression unless it computes a column from columns, row by row."""
        if isinstance(node, ast.BinOp):
            self._binary(node)
        elif isinstance(node, ast.UnaryOp):
            self.value(node.operand)
        elif isinstance(node, ast.BoolOp):
            for one in node.values:
                self.value(one)
        elif isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                self._compared(side)
        elif isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, ast.Constant) and not isinstance(node.value, str):
            self.constant(node)
        elif not isinstance(node, ast.Name) or node.id.startswith("__") or node.id in _NAMESPACES:
            self._refuse(node)

    def constant(self, node: ast.Constant) -> None:
        """Refuse a constant that is neither text nor a number of ordinary size."""
        if isinstance(node.value, (int, float)) and abs(node.value) > CONSTANT:
            self._refuse(node, f"it is larger than {CONSTANT:,}: rescale the column in the data")
        if not isinstance(node.value, (int, float, str)):
            self._refuse(node)

    def _binary(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Pow):
            self._power(node)
            # Whole numbers without a column grow without end, columns of numbers do not.
            if not any(isinstance(n, ast.Name) for n in ast.walk(node.left)):
                self._refuse(node, "it is a power of a number")
        elif not isinstance(node.op, (*_ARITHMETIC, *_LOGIC)):
            self._refuse(node)
        if isinstance(node.op, _LOGIC) or self._arithmetic:
            self.value(node.left)
            if not isinstance(node.op, ast.Pow):
                self.value(node.right)
        else:
            self._refuse(node)

    def _power(self, node: ast.BinOp, *, whole: bool = False) -> float:
        right = node.right
        sign = 1
        if isinstance(right, ast.UnaryOp) and isinstance(right.op, ast.USub) and not whole:
            right, sign = right.operand, -1
        power = right.value if isinstance(right, ast.Constant) else None
        if isinstance(power, bool) or not isinstance(power, (int, float)) or not power <= POWER:
            self._refuse(node, f"its power is not a number up to {POWER}")
        if whole and (not isinstance(power, int) or power < 1):
            self._refuse(node, "its power is not a whole number (write I(x ** 0.5))")
        return sign * power

    def _compared(self, node: ast.expr) -> None:
        if isinstance(node, (ast.List, ast.Tuple)):
            for one in node.elts:
                self._option(one)
        elif isinstance(node, ast.Constant):
            self.constant(node)
        else:
            self.value(node)

    def _call(self, node: ast.Call) -> None:
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        if function not in TRANSFORMS or not node.args:
            self._refuse(node)
        self.value(node.args[0])
        for option in (*node.args[1:], *(k.value for k in node.keywords)):
            if function != "C" or not self._contrast(option):
                self._option(option)
        if any(k.arg is None for k in node.keywords):
            self._refuse(node)
        if function in ("poly", "bs"):
            self._basis(node, function)

    def _contrast(self, node: ast.expr) -> bool:
        """Return whether a piece is a contrast, after checking its arguments."""
        call = node if isinstance(node, ast.Call) else None
        if _dotted(call.func if call else node) not in CONTRASTS:
            return False
        for argument in (*call.args, *(k.value for k in call.keywords)) if call else ():
            self._option(argument)
        return True

    def _option(self, node: ast.expr) -> None:
        """Refuse an argument that is not a constant or a list of constants."""
        if isinstance(node, (ast.List, ast.Tuple)):
            for one in node.elts:
                self._option(one)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
            self._option(node.operand)
        elif not isinstance(node, ast.Constant):
            self._refuse(node)
        elif node.value is not None:
            self.constant(node)

    def _basis(self, node: ast.Call, function: str) -> None:
        names = ("degree", "raw") if function == "poly" else ("df", "knots", "degree")
        for name, argument in _arguments(node, names):
            value = argument.value if isinstance(argument, ast.Constant) else None
            most = {"degree": POWER, "df": SPLINE}.get(name, inf)
            if most < inf and value is not None and not 0 <= _number(value) <= most:
                self._refuse(node, f"{name} is not a whole number from 0 to {most}")
            if most < inf and not isinstance(argument, ast.Constant):
                self._refuse(node, f"{name} is not a whole number")
            if isinstance(argument, (ast.List, ast.Tuple)) and len(argument.elts) > SPLINE:
                self._refuse(node, f"it has more than {SPLINE} knots")

    def _refuse(self, node: ast.AST, why: str = "") -> NoReturn:
        piece = ast.get_source_segment(self._copy, node) or type(node).__name__
        start = f"The {self._what} {shown(self._whole)} has {shown(piece)}, which "
        if why:
            raise PlanError(f"{start}a plan may not use: {why}.")
        hint = ""
        name = _dotted(node.func if isinstance(node, ast.Call) else node)
        if "." in name:
            hint = (
                " A dot is read as reaching into an object: write a column with a dot in its name "
                f"in backticks. Contrasts stand in C(column, ...): {', '.join(CONTRASTS[:5])}."
            )
            close = get_close_matches(name, CONTRASTS, n=1, cutoff=0.8)
            hint += f" Did you mean {close[0]!r}?" if close else ""
        if self._what != "formula":
            raise PlanError(f"{start}a plan may not use: compare columns with constants.")
        raise PlanError(
            f"{start}a plan may not use. Allowed are columns, operators and "
            f"{', '.join(TRANSFORMS)}, with constants as their options; compute anything else as "
            f"a column of the data.{hint}"
        )


def basis_columns(call: ast.Call) -> float:
    """Return how many columns a transform makes, as far as its text says."""
    function = call.func.id if isinstance(call.func, ast.Name) else ""
    found = 1.0
    if function in ("poly", "bs"):
        for name, argument in _arguments(call, ("degree",) if function == "poly" else ("df",)):
            if name in ("degree", "df") and isinstance(argument, ast.Constant):
                found = max(found, _number(argument.value or 0))
            if isinstance(argument, (ast.List, ast.Tuple)):
                found = max(found, len(argument.elts) + 3)
    return found


def _arguments(call: ast.Call, names: tuple[str, ...]) -> Iterator[tuple[str, ast.expr]]:
    for place, argument in enumerate(call.args[1:]):
        yield (names[place] if place < len(names) else ""), argument
    for keyword in call.keywords:
        yield keyword.arg or "", keyword.value


def _number(value: object) -> float:
    """Return a whole number, and for anything else one that no limit allows."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else inf


def _is_sum(node: ast.AST) -> TypeGuard[ast.BinOp]:
    return isinstance(node, ast.BinOp) and isinstance(node.op, _PLUS)


def _dotted(node: ast.AST) -> str:
    """Return a name with its attributes, as in ``contr.sum``; empty for anything else."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *names[::-1]]) if isinstance(node, ast.Name) else ""
