"""Blocks of rows under several annotators hold what the frame gives for all rows at once."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import trueup as tu
from trueup.errors import FormulaError
from trueup.formula import blocks as blocks_module
from trueup.formula.blocks import compact
from trueup.formula.frame import build_frame
from trueup.formula.rows import block_size

N, ANNOTATORS = 211, ("a", "b", "c")


@pytest.fixture(scope="module")
def study():
    rng = np.random.default_rng(5)
    data = pd.DataFrame(
        {
            "x": rng.normal(size=N),
            "z": rng.normal(size=N),
            "w": rng.normal(size=N),
            "g": rng.choice(list("pqr"), N),
            "firm": rng.integers(0, 9, N),
        }
    )
    for k, name in enumerate(ANNOTATORS):
        data[f"y_{name}"] = rng.integers(0, 2, N)
        data[f"d_{name}"] = rng.integers(1, 5, N) + (0.5 * k)
        data[f"k_{name}"] = rng.choice(["low", "mid", "high"], N)
    coded = rng.choice(N, 90, replace=False)
    for name, source in {"y": "y_a", "d": "d_a", "k": "k_b"}.items():
        data[f"{name}_human"] = data[source].astype(object)
        data.loc[~data.index.isin(coded), f"{name}_human"] = None
    for name in ("y", "d"):
        data[f"{name}_human"] = data[f"{name}_human"].astype(float)
    return tu.Study(
        data,
        human={v: f"{v}_human" for v in "ydk"},
        llm={v: {a: f"{v}_{a}" for a in ANNOTATORS} for v in "ydk"},
    )


SHARED = ["y ~ x + C(g)", "I(y == 1) ~ x:z + bs(x, df=4)", "y ~ x | firm", "log(d) ~ x + [z ~ w]"]
MOVING = ["x ~ d + C(g):z", "y ~ x*d + C(k)", "x ~ log(d) + z", "z ~ x + [d ~ w]"]


@pytest.mark.parametrize("size", [1, 64, 1000, None])
@pytest.mark.parametrize("formula", SHARED + MOVING)
def test_blocks_hold_the_rows_of_the_frame(study, formula, size):
    frame = build_frame(formula, study, annotators=ANNOTATORS, block_rows=100)
    whole = {a: frame.llm(a) for a in ANNOTATORS}
    blocks = frame.blocks(ANNOTATORS, size=size)
    assert (blocks.n_rows, blocks.n_coef) == (N, len(frame.terms))
    assert blocks.shared_design is (formula in SHARED)
    for _ in range(2):  # a second pass sees the same
        stop = 0
        for part, rows in blocks:
            assert part.start == stop
            stop = part.stop
            for a, found in zip(ANNOTATORS, rows, strict=True):
                wanted = whole[a].take(part)
                np.testing.assert_array_equal(found.y, wanted.y)
                np.testing.assert_array_equal(found.X, wanted.X)
                assert found.y.dtype == found.X.dtype == np.float64
                assert (found.Z is None) is (wanted.Z is None)
                if found.Z is not None:
                    np.testing.assert_array_equal(found.Z, wanted.Z)
                for codes, expected in zip(found.groups, wanted.groups, strict=True):
                    np.testing.assert_array_equal(codes, expected)
            assert (rows[0].X is rows[1].X is rows[2].X) is blocks.shared_design
        assert stop == N


def test_a_design_that_is_kept_is_not_copied(study):
    frame = build_frame("y ~ x + C(g)", study, annotators=ANNOTATORS)
    X = frame.llm("a").X
    assert all(np.shares_memory(rows[0].X, X) for _, rows in frame.blocks(ANNOTATORS))
    assert frame.blocks(ANNOTATORS).stored


@pytest.mark.parametrize("formula", [SHARED[0], *MOVING])
def test_a_design_too_large_to_keep_is_made_block_by_block(study, formula, monkeypatch):
    usual = build_frame(formula, study, annotators=ANNOTATORS)
    wanted, coded = {a: usual.llm(a) for a in ANNOTATORS}, usual.human()
    monkeypatch.setattr(blocks_module, "MOST_BYTES", 0)
    frame = build_frame(formula, study, annotators=ANNOTATORS)
    blocks = frame.blocks(ANNOTATORS, size=50)
    assert not blocks.stored
    found = [rows for _, rows in blocks]
    for k, a in enumerate(ANNOTATORS):
        np.testing.assert_array_equal(np.vstack([rows[k].X for rows in found]), wanted[a].X)
    np.testing.assert_array_equal(frame.human().X, coded.X)
    np.testing.assert_array_equal(frame.llm_outcome("a"), wanted["a"].y)
    with pytest.raises(FormulaError, match=r"211 rows of \d+ columns would take .* GB"):
        frame.llm("a")


def test_the_outcome_alone(study):
    for formula in (*SHARED, *MOVING):
        frame = build_frame(formula, study, annotators=ANNOTATORS)
        np.testing.assert_array_equal(frame.llm_outcome("b"), frame.llm("b").y)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([0.0, 1.0], "int8"), ([-128.0, 127.0], "int8"), ([1.0, 128.0], "float64")],
)
def test_whole_numbers_are_held_in_one_byte(values, dtype):
    held = compact(np.array(values))
    assert held.dtype == dtype
    np.testing.assert_array_equal(held, values)


def test_a_block_has_few_rows_where_columns_are_many():
    sizes = [block_size(p) for p in (1, 10, 20, 100, 2_000, 10**6)]
    assert sizes == [8192, 4096, 2048, 512, 256, 256]
