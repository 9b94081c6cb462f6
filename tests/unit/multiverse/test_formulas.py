"""Stepwise operators."""

import pytest

from trueup.errors import ArgumentError, FormulaError
from trueup.multiverse.formulas import expand_formulas


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("y ~ x", ["y ~ x"]),
        ("y ~ x + sw(a, b)", ["y ~ x + a", "y ~ x + b"]),
        ("y ~ x + sw0(a, b)", ["y ~ x", "y ~ x + a", "y ~ x + b"]),
        ("y ~ x + csw(a, b)", ["y ~ x + a", "y ~ x + a + b"]),
        ("y ~ x + csw0(a, b)", ["y ~ x", "y ~ x + a", "y ~ x + a + b"]),
        ("y ~ x + mvsw(a, b)", ["y ~ x", "y ~ x + a", "y ~ x + b", "y ~ x + a + b"]),
        ("y ~ csw0(a)", ["y ~ 1", "y ~ a"]),
        ("sw(y, z) ~ x", ["y ~ x", "z ~ x"]),
        ("y ~ sw(log(a + 1), C(b, contr.sum))", ["y ~ log(a + 1)", "y ~ C(b, contr.sum)"]),
        ("y ~ sw(a, b) + sw0(c)", ["y ~ a", "y ~ a + c", "y ~ b", "y ~ b + c"]),
        ("y ~ swim + x.sw(a)", ["y ~ swim + x.sw(a)"]),
    ],
)
def test_operators(formula, expected):
    assert list(expand_formulas(formula).values()) == expected


def test_names_are_kept_and_numbered():
    named = expand_formulas({"plain": "y ~ x", "steps": "y ~ x + sw(a, b)"})
    assert named == {"plain": "y ~ x", "steps 1": "y ~ x + a", "steps 2": "y ~ x + b"}


@pytest.mark.parametrize("formula", ["y ~ sw()", "y ~ sw(a,)", "y ~ sw(a, b"])
def test_bad_operators(formula):
    with pytest.raises(FormulaError):
        expand_formulas(formula)


@pytest.mark.parametrize("formulas", [[], ["y ~ x", "y ~ x"], [3], {"a": 1}])
def test_bad_lists(formulas):
    with pytest.raises(ArgumentError):
        expand_formulas(formulas)
