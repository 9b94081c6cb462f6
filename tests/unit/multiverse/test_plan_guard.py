"""What a plan may say: hostile text is refused by its size and pieces, before it is expanded."""

import time

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from trueup.errors import PlanError
from trueup.formula.parse import split_formula, terms_of
from trueup.multiverse.formulas import count_variants, expand_formulas
from trueup.plan import check_formula
from trueup.plan.guard import bound_of, check_condition, check_size, computed_columns

LETTERS = "+".join("abcdefghijklmnopqrstuvwxyz")
HOSTILE = [
    ("y ~ (((a+b)**9)**9)**9", "more than 500 terms"),
    ("y ~ (((a+b)^9)^9)^9", "more than 500 terms"),
    (f"y ~ ({LETTERS})**10", "more than 500 terms"),
    ("y ~ a*b*c*d*e*f*g*h*i*j", "more than 500 terms"),
    ("y ~ (a+b) * (poly(x, 10)/bs(z, df=50))", "more than 500 terms"),
    ("y ~ (a + b)**x", "its power is not a number"),
    ("y ~ (a + b)**0.5", "whole number"),
    ("y ~ (a + b)**-1", "power"),
    ("y ~ poly(x, 10000)", r"poly\(x, 10000\).*degree is not a whole number from 0 to 10"),
    ("y ~ poly(x, degree=99)", "degree"),
    ("y ~ poly(x, degree=[9])", "degree"),
    ("y ~ bs(x, df=1e9)", "df is not a whole number from 0 to 50"),
    ("y ~ bs(x, 51)", "df"),
    ("y ~ bs(x, 9, [1], 11)", "degree"),
    (f"y ~ bs(x, knots=[{','.join(['1'] * 51)}])", "more than 50 knots"),
    ("y ~ bs(x, **k)", "may not use"),
    ("y ~ I(x * 99999999999999999)", "larger than"),
    ("y ~ I(x * 1e999)", "larger than"),
    ("y ~ I(1 << 99999999)", "may not use"),
    ("y ~ I((9**9)**9 > x)", "power of a number"),
    ("y ~ I(x > 'a' * 99)", "may not use"),
    ("y ~ I(('a' or x) * 99)", "'a'"),
    ("y ~ I(I('a') * 99)", "'a'"),
    ("y ~ I((x, x) * 99)", "may not use"),
    ("y ~ I(f'{x.y}' == g)", "f"),
    ("y ~ I(x if g else x)", "may not use"),
    ("y ~ I(x[0])", "may not use"),
    ("y ~ {x.mean()}", "'{'"),
    ("y ~ x # + y", "'#'"),
    ("y ~ I(x\\n)", r"'\\\\'"),
    ("y ~ I(g == '`' + x.y + '`')", "'`'"),
    ("y ~ I(g == ')' + x.y + '(')", r"'\)'"),
    ("y ~ `it's` + x", "`it's`"),
    ("y ~ log(np)", "'np'"),
    ("y ~ log()", "may not use"),
    ("y ~ x > 3", "may not use"),
    ("y ~ x %in% g", "cannot be read"),
    ("y ~ `x", "not closed"),
    (f"y ~ {'x' * 5000}", r"characters, more than the 2,000"),
    (f"y ~ I(g == '{'x' * 5000}')", r"characters, more than the 2,000"),
    (f"y ~ {'(' * 300}x{')' * 300}", "more than 20 brackets"),
    (f"y ~ I({'~' * 900}x)", "operations within one another|cannot be read"),
    (f"y ~ I({'not ' * 400}x)", "operations within one another|cannot be read"),
    (f"y ~ I({'x+' * 400}x)", "operations within one another|cannot be read"),
    (f"y ~ {'x**1' * 100}", "cannot be read|operations within"),
]
NAMED = [
    ("y ~ C(g, contr.custom([1, 2]))", r"'contr.custom\(\[1, 2\]\)'.*Contrasts stand in C"),
    ("y ~ C(g, contr.treatmnt)", "Did you mean 'contr.treatment'"),
    ("y ~ C(g, contr.treatment(base=x))", "'x'"),
    ("y ~ C(g, contr.treatment(open('f')))", "open"),
    ("y ~ C(g, contr.treatment.__init__)", "contr.treatment.__init__"),
    ("y ~ log(word.count)", "a column with a dot in its name in backticks"),
    ("y ~ word.count", "a column with a dot in its name in backticks"),
    ("y ~ contr.treatment(g)", "Contrasts stand in C"),
    ("y ~ I(contr.sum)", "Contrasts stand in C"),
]
ORDINARY = [
    "y ~ x*C(g) + poly(z, degree=2) - 1",
    "y ~ (a + b + c + d)**3",
    "y ~ (a + b)^2 + bs(x, 6) + bs(z, knots=[1, 2], degree=2, extrapolation='clip')",
    "y ~ I((x - 3)**2 / (z + 1)) + I(-x ** -1) + I(x**0.5)",
    "y ~ C(g, contr.treatment('press')) + C(h, contr.sum) + C(k, contr.poly(scores=[1, -2]))",
    "y ~ C(g, contr.helmert()) + C(h, contr.diff(backward=False)) + C(k, Treatment(base='a'))",
    "y ~ C(g, levels=['a', 'b: c']) + I(g in ['a', 'b'])",
    "y ~ `word.count` + `words (n)`:`a:b`^1 + log(`two words`)",
    "log(y) ~ x / g + I((x > 2) & (z <= 3) | ~(g == 'a'))",
    "y ~ x + [d ~ z + log(w)] | a + b^c",
    f"y ~ {LETTERS}+{LETTERS.upper()}",
]


@pytest.mark.parametrize(("formula", "match"), HOSTILE + NAMED)
def test_what_a_plan_may_not_say_is_refused_at_once(formula, match):
    start = time.perf_counter()
    with pytest.raises(PlanError, match=match) as caught:
        check_formula(formula)
    assert time.perf_counter() - start < 1
    assert len(str(caught.value)) < 900


@pytest.mark.parametrize("formula", ORDINARY)
def test_ordinary_formulas_pass(formula):
    check_formula(formula)


def test_the_longest_formula_that_passes_is_read_in_seconds():
    start = time.perf_counter()
    check_formula("y ~ (a1+b2+c3+d4+e5+f6+g7)**3 + " + "+".join(f"x{k}" for k in range(150)))
    check_formula("y ~ " + "+".join(f"x{k}" for k in range(380)))
    assert time.perf_counter() - start < 5


def pieces():
    def joined(inner):
        return st.one_of(
            st.tuples(inner, st.sampled_from(["+", "-", "*", ":", "/"]), inner).map("".join),
            st.tuples(inner, st.sampled_from(["**", "^"]), st.sampled_from("123")).map(
                lambda t: f"({t[0]}){t[1]}{t[2]}"
            ),
            st.tuples(inner, st.sampled_from(["**2", "^3"])).map("".join),
            inner.map(lambda t: f"({t})"),
        )

    return st.recursive(st.sampled_from(["a", "b", "c", "log(d)", "`e f`"]), joined, max_leaves=6)


@settings(max_examples=150, deadline=None)
@given(pieces())
def test_the_bound_on_terms_is_never_too_low(piece):
    try:
        bound = bound_of(f"y ~ {piece}")
    except PlanError:  # too large, or a power of a power
        reject()
    assert len(terms_of(piece, intercept=False)) <= bound


@pytest.mark.parametrize(
    ("formula", "count"),
    [
        ("y ~ x", 1),
        ("y ~ x + sw(a, b)", 2),
        ("y ~ x + sw0(a, b) + csw(a, b, c)", 9),
        ("sw(y1, y2) ~ x + mvsw(a, b, c)", 16),
        ("y ~ csw0(sw(a, b), sw(c, d))", 7),
        ("y ~ x + mvsw(csw(a, b), c)", 6),
        ("y ~ I(g == 'sw(a, b)') + sw(a, `sw(b, c)`)", 2),
    ],
)
def test_variants_are_counted_as_they_are_made(formula, count):
    assert count_variants(formula) == count == len(expand_formulas(formula))


@pytest.mark.parametrize(
    "formula",
    [
        f"y ~ x + mvsw({','.join(f'a{k}' for k in range(40))})",
        "y ~ x" + " + sw(a, b)" * 60,
        "y ~ x" + " + csw(a, b, c)" * 7,
    ],
)
def test_operators_that_multiply_are_counted_not_expanded(formula):
    with pytest.raises(PlanError, match="formulas, more than the 1,000"):
        check_size([formula])


def test_many_operators_of_one_choice_do_not_run_out_of_stack():
    assert len(expand_formulas("y ~ " + "+".join(f"sw(a{k})" for k in range(180)))) == 1


@pytest.mark.parametrize(
    ("condition", "match"),
    [
        ("'a' * 99999999 == g", "'a'"),
        (f"{'(' * 300}x > 1{')' * 300}", "more than 20 brackets"),
        (f"{'not ' * 400}x", "operations within one another|cannot be read"),
        ("x.y > 1", "compare columns with constants"),
        ("x > 10**99", "may not use"),
        ("x = 3", "cannot be read"),
        ("x" * 3000 + " > 1", "more than the 2,000"),
    ],
)
def test_conditions_are_bounded_too(condition, match):
    with pytest.raises(PlanError, match=match):
        check_condition(condition, "subset 'a'")


def test_conditions_on_dimensions_do_no_arithmetic():
    check_condition("words / 2 > 3 and source in ['a', 'b']", "subset 'a'")
    check_condition("llm == 'gpt' and not model in ['a']", "exclude", arithmetic=False)
    with pytest.raises(PlanError, match="exclude"):
        check_condition("llm * 99999 == 'a'", "exclude", arithmetic=False)


def test_columns_that_are_calculated_with():
    formula = "log(y) ~ a*b + I(c + 2*`d e`) + I(f > 3) + abs(g) + I(log(h) / 2) + I((i > 2) * j)"
    found = computed_columns(split_formula(formula))
    assert set(found) == {"c", "d e", "h", "j"}
