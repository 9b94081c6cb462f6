import pytest

from trueup.errors import FormulaError
from trueup.formula.parse import parse, variables_of


def test_a_plain_formula_has_an_outcome_and_regressors_only():
    parsed = parse("positive ~ exclaim + log(words)")
    assert parsed.outcome == "positive"
    assert parsed.exogenous == "exclaim + log(words)"
    assert parsed.endogenous is None
    assert parsed.instruments is None
    assert parsed.absorbed == ()


@pytest.mark.parametrize(
    ("right", "exogenous"),
    [
        ("x + [d ~ z]", "x"),
        ("[d ~ z] + x", "x"),
        ("x + [d ~ z] + w", "x + w"),
        ("[d ~ z]", "1"),
        ("x + [d ~ z] - 1", "x - 1"),
        ("[d ~ z] - 1", "- 1"),
    ],
)
def test_the_bracket_leaves_the_other_regressors(right, exogenous):
    parsed = parse(f"y ~ {right}")
    assert (parsed.exogenous, parsed.endogenous, parsed.instruments) == (exogenous, "d", "z")


def test_effects_after_the_bar_may_be_crossed_and_quoted():
    parsed = parse("y ~ x | school + year^`my sector`")
    assert parsed.absorbed == (("school",), ("year", "my sector"))


def test_separators_inside_brackets_and_quotes_are_not_separators():
    parsed = parse("I(y == 'a ~ b | c') ~ I((x > 1) | (w < 2)) + `odd | ~ name`")
    assert parsed.outcome == "I(y == 'a ~ b | c')"
    assert parsed.absorbed == ()
    assert variables_of(parsed) == ("y", "x", "w", "odd | ~ name")


def test_a_subscript_is_no_instrument():
    assert parse("y ~ x[0]").exogenous == "x[0]"


def test_variables_come_once_in_the_order_of_the_formula():
    parsed = parse("log(y) ~ b*a + C(g, contr.sum) + np.sqrt(abs(c)) + [d ~ z + a] | fe^year")
    assert variables_of(parsed) == ("y", "b", "a", "g", "c", "d", "z", "fe", "year")


def test_methods_of_a_column_count_as_the_column():
    assert variables_of(parse("y ~ C(g.str.lower()) + I(x.clip(0, 1))")) == ("y", "g", "x")


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        ("", "must be text"),
        ("y", "one tilde"),
        ("y ~ ", "one tilde"),
        ("~ x", "one tilde"),
        ("y ~ x ~ z", "one tilde"),
        ("y ~ x + (w", r"'\)' is missing"),
        ("y ~ x + w)", r"Unexpected '\)' after 'y ~ x \+ w'"),
        ("y ~ I(g == 'a)", r"not closed.*'a\)"),
        ("y ~ x +", r"Cannot read 'x \+'"),
        ("y ~ x $ w", "'x \\$ w'"),
        ("y ~ .", "'.' does not stand for all columns"),
        ("y ~ I(x >)", r"Cannot read 'I\(x >\)'"),
        ("y ~ (x | w)", "Cannot read"),
        ("y ~ x | fe | d ~ z", "instruments in square brackets"),
        ("y ~ x | log(fe)", r"Cannot absorb 'log\(fe\)'"),
        ("y ~ x | fe +", "Cannot absorb ''"),
        ("y ~ x + [d]", r"not \[d\]"),
        ("y ~ x + [d ~ ]", "instrumented regressors"),
        ("y ~ x + [d ~ z] + [e ~ q]", "several pieces"),
        ("y ~ x * [d ~ z]", "must be added"),
        ("y ~ x + [d ~ 1]", "names no instrument"),
        ("a + b ~ x", r"write I\(a \+ b\)"),
        ("1 ~ x", "must be one column"),
        ("y ~ lgo(x)", r"calls lgo\(\).*Did you mean 'log'"),
        ("y ~ lag(x)", "not offered"),
        ("y ~ Q('x')", "backticks"),
    ],
)
def test_bad_syntax_shows_the_piece(formula, says):
    with pytest.raises(FormulaError, match=says):
        parse(formula)


def test_something_other_than_text_is_refused():
    with pytest.raises(FormulaError, match="must be text"):
        parse(3)
