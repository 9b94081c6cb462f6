"""Names that fit and stay apart."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.errors import ArgumentError
from trueup.report.style import Reference, human_only, plain, references, short_names, shorten


@given(st.lists(st.text(max_size=60), max_size=12), st.integers(8, 30))
def test_short_names_are_as_many_and_fit(names, width):
    short = short_names(names, width)
    assert len(short) == len(names)
    # Room for the number that tells equal ones apart, and for escaped dollar signs.
    assert all(len(s.replace(r"\$", "$")) <= width + 5 for s in short)


@given(st.text(max_size=80), st.integers(4, 40))
def test_shortened_text_is_short_and_keeps_its_ends(text, width):
    full, short = " ".join(text.split()), shorten(text, width)
    assert len(short) <= width
    assert short == full or (full.startswith(short[: width // 2]) and short[-1] == full[-1])


def test_names_that_differ_in_the_middle_stay_apart():
    names = [f"meta-llama/Llama-3.{i}-70B-Instruct__prompt" for i in range(9)]
    short = short_names(names, 24)
    assert len(set(short)) == 9
    assert not any("(" in s for s in short)


def test_plain_takes_control_characters_and_formulas_away():
    assert plain("a\x00b\n$c$") == r"a b \$c\$"


def test_one_reference_is_a_sequence_of_one():
    one = Reference("human-only", 1.0)
    assert references(one) == references([one]) == (one,)
    assert references(None) == ()


def human(*estimates):
    return pd.DataFrame({"correction": "human", "estimate": estimates}).assign(
        conf_low=lambda d: d["estimate"] - 1, conf_high=lambda d: d["estimate"] + 1
    )


def test_one_human_only_universe_is_a_line_and_several_are_a_range():
    assert human_only(human()) is None
    assert human_only(human(float("nan"))) is None
    assert human_only(human(0.5)) == Reference("human-only", 0.5, -0.5, 1.5)
    assert human_only(human(0.5, 0.5)) == Reference("human-only", 0.5)  # kinds of covariance
    several = human_only(human(0.5, -0.25, float("nan")))
    assert (several.estimate, several.drawn) == (None, (-0.25, 0.5))
    assert references(several) == (several,)
    with pytest.raises(ArgumentError, match="'nothing'"):
        references(Reference("nothing", None))
