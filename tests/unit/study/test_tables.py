import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from trueup.errors import StudyError
from trueup.study.tables import Table, stack

DATA = {
    "text": ["a", None, "b"],
    "whole": [1, 2, 3],
    "gaps": [1, None, 3],
    "real": [0.5, None, 1.5],
    "flag": [True, False, True],
    "maybe": [True, None, False],
}
MAKERS = {
    "pandas": lambda: pd.DataFrame(DATA, index=[7, 7, 1]),
    "pandas-nullable": lambda: pd.DataFrame(DATA).convert_dtypes(),
    "pandas-arrow": lambda: pd.DataFrame(DATA).convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda: pl.DataFrame(DATA),
    "pyarrow": lambda: pa.table(DATA),
    "dict": lambda: DATA,
}
makers = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


@makers
def test_columns_are_the_same_arrays_whatever_the_frame(make):
    table = Table(make())
    assert (table.n_rows, table.columns) == (3, tuple(DATA))
    assert table.column("text").tolist() == ["a", None, "b"]
    assert table.column("text").dtype == object
    assert table.column("whole").dtype.kind == "i"
    np.testing.assert_array_equal(table.column("whole"), [1, 2, 3])
    np.testing.assert_array_equal(table.column("gaps"), [1, np.nan, 3])
    np.testing.assert_array_equal(table.column("real"), [0.5, np.nan, 1.5])
    assert table.column("flag").dtype == bool
    np.testing.assert_array_equal(table.column("flag"), [True, False, True])


@makers
@pytest.mark.parametrize(
    ("part", "rows"), [(None, [0, 1, 2]), (slice(1, 3), [1, 2]), (np.array([2, 0]), [2, 0])]
)
def test_pandas_blocks_go_by_position_and_have_a_fresh_index(make, part, rows):
    block = Table(make()).pandas(["whole", "flag", "text", "gaps", "whole"], part)
    assert list(block.columns) == ["whole", "flag", "text", "gaps"]
    assert block.index.equals(pd.RangeIndex(len(rows)))
    assert block["whole"].tolist() == [DATA["whole"][i] for i in rows]
    assert block["flag"].dtype == bool
    assert pd.api.types.is_numeric_dtype(block["gaps"])
    assert isinstance(block["gaps"].dtype, np.dtype)
    assert block["text"].isna().tolist() == [DATA["text"][i] is None for i in rows]


@makers
def test_missing_booleans_stay_missing(make):
    block = Table(make()).pandas(["maybe"])
    assert block["maybe"].isna().tolist() == [False, True, False]
    assert bool(block["maybe"][0]) is True
    assert bool(block["maybe"][2]) is False


LEVELS = ["small", "large", "unused"]
CATEGORICALS = {
    "pandas": (lambda x: pd.DataFrame({"size": pd.Categorical(x, LEVELS)}), LEVELS),
    "polars-enum": (lambda x: pl.DataFrame({"size": pl.Series(x, dtype=pl.Enum(LEVELS))}), LEVELS),
    "polars": (
        lambda x: pl.DataFrame({"size": pl.Series(x, dtype=pl.Categorical)}),
        ["large", "small"],
    ),
    "pyarrow": (
        lambda x: pa.table({"size": pa.array(x).dictionary_encode()}),
        ["large", "small"],
    ),
}


@pytest.mark.parametrize(("make", "order"), CATEGORICALS.values(), ids=CATEGORICALS.keys())
def test_categoricals_keep_their_kind_and_order(make, order):
    table = Table(make(["small", None, "large"]))
    assert table.categories("size") == tuple(order)
    assert table.column("size").tolist() == ["small", None, "large"]
    block = table.pandas(["size"], np.array([2, 0, 1]))["size"]
    assert isinstance(block.dtype, pd.CategoricalDtype)
    assert block.cat.categories.tolist() == order
    assert block.astype(object).where(block.notna(), None).tolist() == ["large", "small", None]


def test_plain_columns_have_no_categories():
    assert Table(DATA).categories("text") is None


def test_later_changes_to_the_users_frame_do_not_reach_the_table():
    frame = pd.DataFrame({"x": [1.0, 2.0]})
    table = Table(frame)
    frame["x"] = [8.0, 9.0]
    frame["z"] = 0
    np.testing.assert_array_equal(table.column("x"), [1.0, 2.0])
    assert table.columns == ("x",)


def test_series_in_a_dict_are_not_aligned_by_label():
    table = Table({"a": pd.Series([1, 2], index=[1, 0]), "b": [3, 4]})
    assert table.column("a").tolist() == [1, 2]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_table_can_be_pickled(make):
    table = pickle.loads(pickle.dumps(Table(make(DATA))))
    assert table.column("text").tolist() == ["a", None, "b"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda: pd.DataFrame([[1, 2]], columns=["a", "a"]), "several columns named 'a'"),
        (lambda: pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), "named 'a'"),
        (lambda: pd.DataFrame([[1, 2]]), "Column names must be text"),
        (lambda: pd.DataFrame({"a": []}), "no rows"),
        (lambda: pl.LazyFrame({"a": [1]}), r"\.collect\(\)"),
        (lambda: [1, 2], "must be a pandas DataFrame.*not builtins.list"),
        (lambda: {"a": [1, 2], "b": [1]}, "different lengths"),
        (lambda: {"a": [1, 2], "b": 1}, r"one-dimensional array; look at \['b'\]"),
    ],
)
def test_unusable_data_are_refused(data, words):
    with pytest.raises(StudyError, match=words):
        Table(data())


def test_an_unknown_column_is_answered_with_the_nearest_names():
    table = Table({"coder": [1], "words": [2]})
    with pytest.raises(StudyError, match=r"no column 'codr' .*Did you mean 'coder'\?"):
        table.require("codr", "human=")
    with pytest.raises(StudyError, match="There are: 'coder', 'words'"):
        table.column("zzz")


def test_polars_needs_no_pyarrow():
    script = """
import sys
sys.modules["pyarrow"] = None
import numpy as np, polars as pl
from trueup.study.tables import Table
t = Table(pl.DataFrame({
    "s": pl.Series(["a", None], dtype=pl.Categorical), "t": ["x", None], "b": [True, None],
    "i": [1, None], "f": [1.0, None], "d": pl.Series([1, 2]).cast(pl.Decimal(10, 2)),
}))
for part in (None, slice(0, 1), np.array([1, 0])):
    assert t.pandas(t.columns, part)["s"].iloc[-1] == "a" or part is None
assert t.column("s").tolist() == t.column("s").tolist() == ["a", None]
assert t.column("d").tolist() == [1.0, 2.0]
assert np.isnan(t.column("b")[1]) and np.isnan(t.column("i")[1])
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_stacking_keeps_order_categories_and_fills_absent_columns():
    first = Table({"x": [1, 2], "g": pd.Categorical(["a", "b"])})
    second = Table(pl.DataFrame({"g": ["b"], "y": [1], "x": [3]}))
    table = stack(first, second, only_second=["y"])
    assert table.column("x").tolist() == [1, 2, 3]
    np.testing.assert_array_equal(table.column("y"), [np.nan, np.nan, 1])
    assert table.column("g").tolist() == ["a", "b", "b"]
    both = stack(Table({"g": pd.Categorical(["a", "c"])}), Table({"g": pd.Categorical(["b"])}))
    assert set(both.categories("g")) == {"a", "b", "c"}
    assert both.column("g").tolist() == ["a", "c", "b"]


def test_stacking_refuses_other_columns_and_other_kinds():
    with pytest.raises(StudyError, match=r"only the uncoded table has 'a'; only the coded.*'b'"):
        stack(Table({"a": [1]}), Table({"b": [1]}))
    with pytest.raises(StudyError, match="'a' holds numbers in the uncoded table but text"):
        stack(Table({"a": [1]}), Table({"a": ["1"]}))
