"""Read a formula: ``y ~ x + [d ~ z] | fe1 + fe2^fe3``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from formulaic import Formula, SimpleFormula
from formulaic.errors import FormulaicError
from formulaic.parser import DefaultFormulaParser
from formulaic.parser.types import Factor, Term
from formulaic.transforms import TRANSFORMS
from formulaic.utils.code import sanitize_variable_names

from trueup.errors import FormulaError
from trueup.study.tables import nearest

#: Python functions that work row by row, besides the transforms of formulaic.
_BUILTINS = ("abs", "pow", "round")
#: Names that stand for something other than a column when they are not called.
_NAMESPACES = ("np", "contr", "Treatment", "Poly", "Sum", "Helmert", "Diff")
#: Transforms that learn something from the rows they see (a mean, knots, ...).
STATEFUL = frozenset(
    name
    for name, function in TRANSFORMS.items()
    if getattr(function, "__is_stateful_transform__", False) and name != "Q"
)
#: Functions of formulaic that trueup does not offer, with what to do instead.
_REFUSED = {
    "Q": "write the name of the column in backticks, `like this`",
    "lag": "compute the lagged column in the table, since it looks at other rows",
}

_OPEN = {"(": ")", "[": "]", "{": "}"}
_CLOSE = frozenset(_OPEN.values())
_COLUMN = re.compile(r"`[^`]+`|[^\W\d][\w.]*")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The pieces of a formula.

    Examples
    --------
    >>> parsed = parse("wage ~ age + [school ~ distance] | region + year^sector")
    >>> parsed.outcome, parsed.exogenous, parsed.endogenous, parsed.instruments
    ('wage', 'age', 'school', 'distance')
    >>> parsed.absorbed
    (('region',), ('year', 'sector'))
    """

    formula: str
    """The formula as it was written."""
    outcome: str
    """Left-hand side."""
    exogenous: str
    """Right-hand side without the piece in square brackets; ``"1"`` if nothing is left."""
    endogenous: str | None = None
    """Regressors that are instrumented: before the tilde in square brackets."""
    instruments: str | None = None
    """Instruments: after the tilde in square brackets."""
    absorbed: tuple[tuple[str, ...], ...] = ()
    """Columns of each absorbed effect; several where effects are crossed with ``^``."""


def parse(formula: str) -> Parsed:
    """Split a formula into outcome, regressors, instruments and absorbed effects.

    Parameters
    ----------
    formula : str
        ``"outcome ~ regressors"`` in the notation of R, optionally with instrumented
        regressors, ``[d ~ z]``, and absorbed (fixed) effects after a bar, ``| school + year``.
        ``school^year`` after the bar absorbs one effect for each combination of the two.

    Returns
    -------
    Parsed
        The pieces, each known to be readable.

    Raises
    ------
    FormulaError
        If the formula cannot be read. The message shows the piece at fault.

    Examples
    --------
    >>> parse("log(words) ~ positive * C(source)").exogenous
    'positive * C(source)'
    """
    parsed = split_formula(formula)
    _check(parsed)
    return parsed


def split_formula(formula: str) -> Parsed:
    """Split a formula as :func:`parse` does, without reading the pieces.

    Nothing is expanded, so this is quick whatever the formula says.

    Raises
    ------
    FormulaError
        If brackets, bars and tildes do not fit together.

    Examples
    --------
    >>> split_formula("y ~ (a + b)**9").exogenous
    '(a + b)**9'
    """
    if not isinstance(formula, str) or not formula.strip():
        raise FormulaError(f"A formula must be text such as 'y ~ x', not {formula!r}.")
    model, *bars = _split(formula, "|")
    if len(bars) > 1:
        raise FormulaError(
            f"The formula {formula!r} has {len(bars)} bars '|': only absorbed effects follow a "
            "bar. Write instruments in square brackets, as in 'y ~ x + [d ~ z] | school'."
        )
    sides = _split(model, "~")
    if len(sides) != 2 or not sides[0].strip() or not sides[1].strip():
        raise FormulaError(
            f"The formula {formula!r} must have one tilde with an outcome before it and "
            "regressors after it, as in 'y ~ x' or, for a mean, 'y ~ 1'."
        )
    exogenous, endogenous, instruments = _take_instruments(sides[1])
    return Parsed(
        formula=formula.strip(),
        outcome=sides[0].strip(),
        exogenous=exogenous,
        endogenous=endogenous,
        instruments=instruments,
        absorbed=tuple(_absorbed(piece) for bar in bars for piece in _split(bar, "+")),
    )


def variables_of(parsed: Parsed) -> tuple[str, ...]:
    """Return the names of the data columns and labelled variables that a formula uses.

    Parameters
    ----------
    parsed : Parsed
        A formula that was read.

    Returns
    -------
    tuple of str
        Each name once, in the order of the formula.

    Examples
    --------
    >>> variables_of(parse("log(y) ~ np.sqrt(x) + C(g, Sum) | `my fe`"))
    ('y', 'x', 'g', 'my fe')
    """
    terms = [outcome_term(parsed), *terms_of(parsed.exogenous)]
    for piece in (parsed.endogenous, parsed.instruments):
        if piece is not None:
            terms.extend(terms_of(piece, intercept=False))
    names = [name for term in terms for name in term_variables(term)]
    names.extend(column for columns in parsed.absorbed for column in columns)
    return tuple(dict.fromkeys(names))


def terms_of(piece: str, *, intercept: bool = True) -> list[Term]:
    """Return the terms of one piece of a formula, an intercept first unless it is left out.

    Raises
    ------
    FormulaError
        If the piece cannot be read.
    """
    try:
        formula = Formula(piece, _parser=DefaultFormulaParser(include_intercept=intercept))
    except (FormulaicError, SyntaxError) as error:
        raise FormulaError(f"Cannot read {piece!r} in the formula: {_reason(error)}") from error
    if not isinstance(formula, SimpleFormula):
        raise FormulaError(f"Cannot read {piece!r} in the formula: a tilde or bar is misplaced.")
    return list(formula)


def outcome_term(parsed: Parsed) -> Term:
    """Return the single term on the left-hand side.

    Raises
    ------
    FormulaError
        If the left-hand side is not one column or one expression.
    """
    terms = terms_of(parsed.outcome, intercept=False)
    if len(terms) != 1 or len(terms[0].factors) != 1 or not term_variables(terms[0]):
        raise FormulaError(
            f"The outcome {parsed.outcome!r} must be one column or one expression: write "
            f"I({parsed.outcome}) if arithmetic is meant."
        )
    return terms[0]


def is_intercept(term: Term) -> bool:
    """Return whether a term is the intercept."""
    return [factor.expr for factor in term.factors] == ["1"]


def term_variables(term: Term) -> tuple[str, ...]:
    """Return the columns and labelled variables that a term uses, each once, in order."""
    return tuple(dict.fromkeys(v for factor in term.factors for v in factor_variables(factor)))


def factor_variables(factor: Factor) -> tuple[str, ...]:
    """Return the columns and labelled variables that a factor uses, each once, in order.

    Raises
    ------
    FormulaError
        If the expression cannot be read or calls an unknown function.
    """
    if factor.eval_method is Factor.EvalMethod.LOOKUP:
        return (factor.expr,)
    if factor.eval_method is Factor.EvalMethod.LITERAL:
        return ()
    tree, aliases = read_expression(factor.expr)
    callees = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found: list[str] = []
    for name in _names(tree):
        column = aliases.get(name.id, name.id)
        if id(name) in callees:
            _check_function(name.id, factor.expr)
        elif name.id not in _NAMESPACES:
            found.append(column)
    return tuple(dict.fromkeys(found))


def stateful_calls(factor: Factor) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Iterate over the calls of stateful transforms in a factor: text, columns they use."""
    if factor.eval_method is not Factor.EvalMethod.PYTHON:
        return
    tree, aliases = read_expression(factor.expr)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in STATEFUL:
            names = [aliases.get(n.id, n.id) for n in _names(node) if n is not node.func]
            yield ast.unparse(node), tuple(dict.fromkeys(names))


def marked_categorical(factor: Factor) -> str | None:
    """Return the column that a factor ``C(column, ...)`` makes categorical, else None."""
    if factor.eval_method is not Factor.EvalMethod.PYTHON:
        return None
    tree, aliases = read_expression(factor.expr)
    call = tree.body
    if not isinstance(call, ast.Call) or getattr(call.func, "id", None) != "C" or not call.args:
        return None
    column, *rest = call.args
    others = [*rest, *(k.value for k in call.keywords)]
    if not isinstance(column, ast.Name) or any(
        n.id not in _NAMESPACES and n.id not in TRANSFORMS
        for other in others
        for n in _names(other)
    ):
        return None
    return aliases.get(column.id, column.id)


def read_expression(expression: str) -> tuple[ast.Expression, dict[str, str]]:
    """Return the syntax tree of an expression and what its backticked names stand for."""
    aliases: dict[str, str] = {}
    try:
        tree = ast.parse(sanitize_variable_names(expression, {}, aliases), mode="eval")
    except SyntaxError as error:
        raise FormulaError(f"Cannot read {expression!r} in the formula: {error.msg}.") from error
    return tree, aliases


def _names(tree: ast.AST) -> list[ast.Name]:
    """Return the names in an expression, in the order they are written."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return sorted(names, key=lambda n: (n.lineno, n.col_offset))


def _check_function(name: str, expression: str) -> None:
    if name in _REFUSED:
        raise FormulaError(f"{name}() in {expression!r} is not offered: {_REFUSED[name]}.")
    if name not in TRANSFORMS and name not in _BUILTINS:
        raise FormulaError(
            f"The formula calls {name}() in {expression!r}, which is no known function."
            f"{nearest(name, [*TRANSFORMS, *_BUILTINS])}"
        )


def _check(parsed: Parsed) -> None:
    """Raise unless every piece can be read and says something."""
    variables_of(parsed)
    for piece, word in ((parsed.endogenous, "regressor"), (parsed.instruments, "instrument")):
        if piece is not None and not any(
            term_variables(t) for t in terms_of(piece, intercept=False)
        ):
            raise FormulaError(f"{piece!r} in square brackets names no {word}: write [d ~ z].")


def _reason(error: Exception) -> str:
    """Return the first line of a parser's message."""
    if isinstance(error, SyntaxError):
        return f"{error.msg}."
    text = str(error)
    if "__formulaic_variables_available__" in text:
        return "'.' does not stand for all columns here. Name the columns."
    return text.strip().splitlines()[0]


def _scan(text: str) -> Iterator[tuple[int, str, int]]:
    """Iterate over the characters outside quotes as (position, character, depth).

    Opening and closing brackets have the depth outside them.
    """
    closers: list[str] = []
    quote, start, escaped = "", 0, False
    for i, char in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif char == "\\" and quote != "`":
                escaped = True
            elif char == quote:
                quote = ""
            continue
        if char in "'\"`":
            quote, start = char, i
            continue
        if char in _CLOSE:
            if not closers or closers.pop() != char:
                raise FormulaError(f"Unexpected {char!r} after {text[:i]!r} in the formula.")
            yield i, char, len(closers)
            continue
        yield i, char, len(closers)
        if char in _OPEN:
            closers.append(_OPEN[char])
    if quote:
        raise FormulaError(f"The quote {quote} is not closed in the formula: {text[start:]!r}.")
    if closers:
        raise FormulaError(f"{closers[-1]!r} is missing in the formula: {text.strip()!r}.")


def _split(text: str, separator: str) -> list[str]:
    """Split at a character that stands outside quotes and brackets."""
    cuts = [i for i, char, depth in _scan(text) if depth == 0 and char == separator]
    starts = [0, *(i + 1 for i in cuts)]
    return [text[a:b] for a, b in zip(starts, [*cuts, len(text)], strict=True)]


def _take_instruments(right: str) -> tuple[str, str | None, str | None]:
    """Split a right-hand side into exogenous, endogenous and instruments."""
    brackets = list(_own_brackets(right))
    if not brackets:
        return right.strip(), None, None
    if len(brackets) > 1:
        raise FormulaError(
            f"{right.strip()!r} has several pieces in square brackets: put them into one, as in "
            "[d1 + d2 ~ z1 + z2]."
        )
    first, last = brackets[0]
    piece = right[first + 1 : last]
    sides = [side.strip() for side in _split(piece, "~")]
    if len(sides) != 2 or not all(sides):
        raise FormulaError(
            f"Square brackets hold instrumented regressors, a tilde and instruments, as in "
            f"[d ~ z], not [{piece}]."
        )
    return _without(right, first, last), sides[0], sides[1]


def _own_brackets(right: str) -> Iterator[tuple[int, int]]:
    """Iterate over square brackets that are a term of their own, not ``column[...]``."""
    first = -1
    for i, char, depth in _scan(right):
        if depth == 0 and char == "[" and not re.search(r"[\w.`)\]]\s*$", right[:i]):
            first = i
        elif depth == 0 and char == "]" and first >= 0:
            yield first, i
            first = -1


def _without(right: str, first: int, last: int) -> str:
    """Return the right-hand side without the bracketed term and the plus that joined it."""
    before, after = right[:first].strip(), right[last + 1 :].strip()
    if (before and before[-1] != "+") or (after and after[0] not in "+-"):
        raise FormulaError(
            f"The piece in square brackets in {right.strip()!r} must be added to the other "
            "regressors with '+'."
        )
    if before:
        return f"{before[:-1].strip()} {after}".strip()
    return after.removeprefix("+").strip() or "1"


def _absorbed(piece: str) -> tuple[str, ...]:
    """Return the columns of one absorbed effect."""
    columns = [column.strip() for column in _split(piece, "^")]
    if not all(_COLUMN.fullmatch(column) for column in columns):
        raise FormulaError(
            f"Cannot absorb {piece.strip()!r}: effects after the bar are names of columns, joined "
            "with '+', or crossed as in school^year. Compute other effects as a column first."
        )
    return tuple(column.strip("`") for column in columns)
