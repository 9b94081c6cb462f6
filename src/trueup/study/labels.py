"""Who labelled what: annotators and the columns that hold their labels."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter

from trueup.errors import StudyError
from trueup.study.tables import Table, nearest

#: What ``llm={"positive": ...}`` may hold: a column pattern, columns, or {annotator: column}.
LLMColumns = str | Sequence[str] | Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Annotator:
    """An LLM (with its prompt and settings) that labelled every row.

    Examples
    --------
    >>> Annotator("gpt__p1", {"positive": "gpt__p1"}, {"model": "gpt", "prompt": "p1"}).name
    'gpt__p1'
    """

    name: str
    columns: Mapping[str, str]
    """Column of the table for each labelled variable."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What the fields of the column pattern stand for, e.g. ``{"model": "gpt-4o"}``."""


@dataclass(frozen=True, slots=True)
class _Match:
    column: str
    name: str | None
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A column pattern such as ``"{model}__{prompt}"``.

    Every ``{field}`` stands for a piece of text that holds none of the literal text between
    fields, so that ``"{model}__{prompt}"`` does not match ``"gpt__p1__toxic"``.

    Parameters
    ----------
    text : str
        The pattern.

    Raises
    ------
    StudyError
        If the pattern cannot be read or would match every column.

    Examples
    --------
    >>> Pattern("{model}__{prompt}").match("gpt-4o__p1")
    {'model': 'gpt-4o', 'prompt': 'p1'}
    >>> Pattern("{model}__{prompt}").match("gpt-4o__p1__toxic") is None
    True
    """

    text: str

    def __post_init__(self) -> None:
        self._pieces()

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields, in order."""
        return tuple(name for _, name in self._pieces() if name is not None)

    def match(self, column: str) -> dict[str, str] | None:
        """Return the value of each field where the column fits the pattern, else None."""
        pieces = self._pieces()
        between = [literal for literal, name in pieces[1:] if literal and name is not None]
        stop = "".join(f"(?!{re.escape(literal)})" for literal in between)
        regex = "".join(
            re.escape(literal) + ("" if name is None else f"(?P<{name}>(?:{stop}.)+?)")
            for literal, name in pieces
        )
        found = re.fullmatch(regex, column)
        return None if found is None else found.groupdict()

    def _pieces(self) -> list[tuple[str, str | None]]:
        """Return (literal text, name of the field that follows it)."""
        try:
            parsed = list(Formatter().parse(self.text))
        except ValueError as err:
            raise StudyError(f"The column pattern {self.text!r} cannot be read: {err}.") from err
        names = [name for _, name, _, _ in parsed if name is not None]
        good = all(name.isidentifier() for name in names) and len(set(names)) == len(names)
        if not good or any(spec or conversion for _, _, spec, conversion in parsed):
            raise StudyError(
                f"The column pattern {self.text!r} cannot be read: write each field as a plain "
                "name in braces, used once, as in '{model}__{prompt}'."
            )
        if not any(literal for literal, _, _, _ in parsed):
            raise StudyError(
                f"The column pattern {self.text!r} would match every column: add text that sets "
                "label columns apart, as in 'llm_{model}', or give a list of columns."
            )
        if any(not literal for literal, name, _, _ in parsed[1:] if name is not None):
            raise StudyError(
                f"The column pattern {self.text!r} is ambiguous: put text between its fields."
            )
        return [(literal, name) for literal, name, _, _ in parsed]


def parse_annotators(
    table: Table,
    human: Mapping[str, str],
    llm: Mapping[str, LLMColumns],
    reserved: Collection[str] = (),
) -> tuple[Annotator, ...]:
    """Find the annotators and their columns.

    Parameters
    ----------
    table : Table
        The data.
    human : mapping of str to str
        Variable -> column of human labels.
    llm : mapping
        Variable -> column pattern, list of columns, or mapping of annotator to column. With
        one labelled variable, an annotator found by pattern or list has the name of its
        column. With several, annotators found by patterns are matched by the values of the
        fields and named by joining these with ``"__"``.
    reserved : collection of str
        Columns with another job (sampling, cluster, weights): patterns pass them over.

    Returns
    -------
    tuple of Annotator
        In the order of the first variable's columns.

    Raises
    ------
    StudyError
        If a variable has human labels without LLM labels or the reverse, a column is missing
        or used twice, a pattern matches nothing, or an annotator did not label a variable.
    """
    _check_variables(table, human, llm)
    taken = {*human.values(), *reserved}
    matches = {v: _matches(table, v, llm[v], taken) for v in human}
    _check_columns_used_once(human, matches)
    found: dict[str, dict[str, _Match]] = {}
    order = _field_order(matches)
    for variable, items in matches.items():
        for item in items:
            name = item.name or _name(item, order, single=len(human) == 1)
            if variable in found.setdefault(name, {}):
                raise StudyError(
                    f"Two columns of variable {variable!r} belong to annotator {name!r}: "
                    f"{found[name][variable].column!r} and {item.column!r}. Leave one out, or "
                    "name them as {annotator: column}."
                )
            found[name][variable] = item
    _check_complete(human, found)
    return tuple(
        Annotator(
            name,
            {v: item.column for v, item in by_variable.items()},
            {k: x for item in by_variable.values() for k, x in item.metadata.items()},
        )
        for name, by_variable in found.items()
    )


def _check_variables(table: Table, human: Mapping[str, str], llm: Mapping[str, LLMColumns]) -> None:
    for argument, value in (("human", human), ("llm", llm)):
        if not isinstance(value, Mapping) or not value:
            raise StudyError(
                f"{argument}={value!r} must map labelled variables to columns, as in "
                f'{argument}={{"positive": {"..." if argument == "llm" else "coder"!r}}}.'
            )
    for variable, column in human.items():
        if not isinstance(variable, str) or not isinstance(column, str):
            raise StudyError(
                f"human= maps {variable!r} to {column!r}: variable and column must both be text."
            )
        if not variable.strip() or "`" in variable:
            raise StudyError(
                f"human= names a variable {variable!r}, which no formula could mention: give it a "
                "name of letters, without backticks."
            )
        table.require(column, f"human={{{variable!r}: ...}}")
    for have, lack, ours, theirs in ((human, llm, "human", "llm"), (llm, human, "llm", "human")):
        alone = [v for v in have if v not in lack]
        if alone:
            raise StudyError(
                f"Variable {alone[0]!r} is in {ours}= but not in {theirs}=: give it a column "
                f"in both, or leave it out of both.{nearest(str(alone[0]), map(str, lack))}"
            )


def _matches(table: Table, variable: str, spec: LLMColumns, taken: Collection[str]) -> list[_Match]:
    where = f"llm={{{variable!r}: ...}}"
    if isinstance(spec, str) and spec not in table.columns and "{" in spec:
        return _matches_pattern(table, variable, Pattern(spec), taken)
    if isinstance(spec, Mapping):
        items = [_Match(column, name, {}) for name, column in spec.items()]
    elif isinstance(spec, str):
        items = [_Match(spec, None, {})]
    elif isinstance(spec, Sequence):
        items = [_Match(column, None, {}) for column in spec]
    else:
        raise StudyError(
            f"{where} is {spec!r}: give a column pattern such as '{{model}}__{{prompt}}', a list "
            "of columns, or {annotator: column}."
        )
    if not items:
        raise StudyError(f"{where} names no column: give at least one annotator.")
    for item in items:
        if not isinstance(item.column, str) or not isinstance(item.name, str | None):
            raise StudyError(f"{where}: annotators and columns must be text, not {item.column!r}.")
        table.require(item.column, where)
    return items


def _matches_pattern(
    table: Table, variable: str, pattern: Pattern, taken: Collection[str]
) -> list[_Match]:
    free = [c for c in table.columns if c not in taken]
    found = [(c, pattern.match(c)) for c in free]
    items = [_Match(c, None, metadata) for c, metadata in found if metadata is not None]
    if not items:
        raise StudyError(
            f"The pattern {pattern.text!r} in llm={{{variable!r}: ...}} matches no column."
            f"{nearest(pattern.text, free)}"
        )
    return items


def _field_order(matches: Mapping[str, list[_Match]]) -> dict[str, int]:
    """Rank fields as the first pattern has them, so that names agree across patterns."""
    fields = [k for items in matches.values() for item in items for k in item.metadata]
    return {name: rank for rank, name in enumerate(dict.fromkeys(fields))}


def _name(item: _Match, order: Mapping[str, int], *, single: bool) -> str:
    if single or not item.metadata:
        return item.column
    return "__".join(item.metadata[k] for k in sorted(item.metadata, key=order.__getitem__))


def _check_columns_used_once(human: Mapping[str, str], matches: Mapping[str, list[_Match]]) -> None:
    uses = [(column, f"the human labels of {v!r}") for v, column in human.items()]
    uses += [
        (item.column, f"LLM labels of {v!r}") for v, items in matches.items() for item in items
    ]
    seen: dict[str, str] = {}
    for column, use in uses:
        if column in seen:
            raise StudyError(
                f"Column {column!r} is used twice, as {seen[column]} and as {use}: narrow the "
                "pattern, or name the columns as {annotator: column}."
            )
        seen[column] = use


def _check_complete(human: Mapping[str, str], found: Mapping[str, Mapping[str, _Match]]) -> None:
    for name, by_variable in found.items():
        lacking = [v for v in human if v not in by_variable]
        if lacking:
            raise StudyError(
                f"Annotator {name!r} has no labels for {', '.join(map(repr, lacking))} (it has "
                f"some for {', '.join(map(repr, by_variable))}). Every annotator needs a column "
                "for each labelled variable: name annotators alike across variables with "
                "{annotator: column} or with patterns that share their fields, or build "
                "separate studies."
            )
