"""Numbers and tables as text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.results.text import fixed, p_text, text_table


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.5, "0.5000"), (0.00012, "0.0001"), (0.00002, "2.00e-05"), (0.0, "<2e-16"), (np.nan, "NA")],
)
def test_p_values(p, text):
    assert p_text(p) == text


@given(st.floats(1e-9, 1e9), st.floats(-50, 50))
def test_numbers_keep_three_digits_of_their_uncertainty(se, t):
    ((estimate, error),) = fixed(np.array([[t * se, se]]), np.array([se]))
    assert float(error) == pytest.approx(se, rel=6e-3)
    assert float(estimate) == pytest.approx(t * se, abs=0.6 * max(se, abs(t * se)) * 1e-2 + 1e-300)


def test_rows_of_like_size_share_decimals():
    rows = fixed(np.array([[1.0, 0.02], [100.0, 3.0]]), np.array([0.02, 3.0]))
    assert rows == [["1.0000", "0.0200"], ["100.0000", "3.0000"]]


def test_a_table_is_aligned_and_long_names_stand_alone():
    out = text_table(["", "one\ntwo", "b"], [["x", "1.5", "2"], ["n" * 40, "10.25", "3"]])
    assert out == [
        f"{'':28}    one",
        f"{'':28}    two  b",
        f"{'x':28}    1.5  2",
        "n" * 40,
        f"{'':28}  10.25  3",
    ]
