"""The decomposition against analysis of variance, and accuracy beside estimates."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
import pytest

import trueup as tu
from support.made import study, texts
from trueup.errors import ArgumentError
from trueup.multiverse.decompose import decompose


@dataclass
class Fake:
    """A curve with chosen estimates."""

    frame: pd.DataFrame
    V: np.ndarray
    dimensions: tuple[str, ...]
    focus: str = "t"

    def table(self, term=None):
        return self.frame

    def covariance(self, term=None):
        return self.V


def grid(*sizes, V=None, seed=0, drop=()):
    names = ("llm", "formula", "correction", "subset")[: len(sizes)]
    rows = list(product(*(range(k) for k in sizes)))
    frame = pd.DataFrame(rows, columns=list(names)).map(lambda k: f"l{k}")
    frame["estimate"] = np.random.default_rng(seed).normal(size=len(frame))
    frame = frame.drop(index=list(drop)).reset_index(drop=True)
    V = np.zeros((len(frame), len(frame))) if V is None else V
    return Fake(frame, V, names)


def anova(frame):
    """Return classical sums of squares of a balanced two-way layout without replication."""
    y = frame.pivot(index="llm", columns="formula", values="estimate").to_numpy()
    a, b = y.shape
    rows = b * ((y.mean(axis=1) - y.mean()) ** 2).sum()
    columns = a * ((y.mean(axis=0) - y.mean()) ** 2).sum()
    total = ((y - y.mean()) ** 2).sum()
    return rows / total, columns / total, 1 - (rows + columns) / total, total


def test_balanced_grids_give_the_analysis_of_variance():
    fake = grid(4, 3)
    llm, formula, both, _ = anova(fake.frame)
    table = decompose(fake).table.set_index("source")
    expected = {"llm": llm, "formula": formula, "llm x formula": both, "rest": 0.0}
    assert dict(table["share"]) == pytest.approx(expected, abs=1e-12)
    assert (table["noise"] == 0).all()


def test_independent_errors_make_noise_by_degrees_of_freedom():
    V = 0.01 * np.eye(12)
    fake = grid(4, 3, V=V)
    total = anova(fake.frame)[3]
    table = decompose(fake).table.set_index("source")
    for source, df in (("llm", 3), ("formula", 2), ("llm x formula", 6)):
        assert table.loc[source, "noise"] == pytest.approx(0.01 * df / total)
    share = table["share"] - table["noise"]
    np.testing.assert_allclose(table["choice"], share.clip(lower=0))


def test_an_error_that_all_universes_share_is_no_noise():
    table = decompose(grid(4, 3, V=np.ones((12, 12)))).table
    np.testing.assert_allclose(table["noise"], 0.0, atol=1e-12)


def test_three_dimensions_leave_a_rest():
    fake = grid(3, 2, 2)
    y = fake.frame["estimate"].to_numpy().reshape(3, 2, 2)
    table = decompose(fake).table.set_index("source")["share"]
    total = ((y - y.mean()) ** 2).sum()
    main = 4 * ((y.mean(axis=(1, 2)) - y.mean()) ** 2).sum() / total
    assert table["llm"] == pytest.approx(main)
    cell = y.mean(axis=2)
    both = cell - cell.mean(axis=1, keepdims=True) - cell.mean(axis=0) + y.mean()
    assert table["llm x formula"] == pytest.approx(2 * (both**2).sum() / total)
    assert table.sum() == pytest.approx(1.0)
    assert table["rest"] > 0


def test_an_unbalanced_grid_adds_up_and_no_order_is_preferred():
    fake = grid(3, 3, drop=(0, 4))
    table = decompose(fake).table.set_index("source")["share"]
    assert table.sum() == pytest.approx(1.0)
    swapped = Fake(fake.frame, fake.V, fake.dimensions[::-1])
    other = decompose(swapped).table.set_index("source")["share"]
    assert other["llm"] == pytest.approx(table["llm"])
    assert other["formula"] == pytest.approx(table["formula"])
    X = pd.get_dummies(fake.frame[["llm", "formula"]], drop_first=True).to_numpy(dtype=float)
    X = np.column_stack([np.ones(len(X)), X])
    y = fake.frame["estimate"].to_numpy()
    fitted = X @ np.linalg.lstsq(X, y, rcond=None)[0]
    R2 = ((fitted - y.mean()) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    assert table["llm"] + table["formula"] == pytest.approx(R2)


def test_choice_is_unbiased_before_it_is_cut_at_zero():
    rng = np.random.default_rng(1)
    fake = grid(5, 4)
    A = rng.normal(size=(20, 20)) / 10
    truth, V = fake.frame["estimate"].to_numpy(), A @ A.T
    found = []
    for _ in range(400):
        frame = fake.frame.assign(estimate=truth + A @ rng.normal(size=20))
        out = decompose(Fake(frame, V, fake.dimensions))
        squares = out.spread**2 * 19
        row = out.table.set_index("source").loc["llm"]
        found.append(squares * (row["share"] - row["noise"]))
    expected = anova(fake.frame)[0] * anova(fake.frame)[3]
    assert np.mean(found) == pytest.approx(expected, abs=4 * np.std(found) / 20)


def test_fields_of_the_annotator_take_its_place():
    fake = grid(4, 3)
    frame = fake.frame.rename(columns={"llm": "model", "formula": "prompt"})
    frame["llm"] = frame["model"] + frame["prompt"]
    out = decompose(Fake(frame, fake.V, ("llm", "model", "prompt")))
    assert list(out.table["source"]) == ["model", "prompt", "model x prompt", "rest"]


def test_human_only_universes_are_set_apart():
    fake = grid(3, 3)
    human = fake.frame.iloc[[0]].assign(llm="(human)", estimate=50.0)
    frame = pd.concat([fake.frame, human], ignore_index=True)
    out = decompose(Fake(frame, np.zeros((10, 10)), fake.dimensions))
    assert (out.universes, out.left_out) == (9, 1)
    assert out.spread == pytest.approx(fake.frame["estimate"].std())
    assert "1 human-only" in str(out)


@pytest.mark.parametrize(
    ("frame", "match"),
    [(grid(2, 1), "at least three"), (grid(3, 1), "no spread")],
)
def test_nothing_to_decompose(frame, match):
    frame.frame["estimate"] = 1.0
    with pytest.raises(ArgumentError, match=match):
        decompose(frame)


def curve(d, how=None, llm=("f1", "f2"), **options):
    settings = {"focus": "t", "corrections": ["naive", "human", "ptd"], "progress": False}
    return tu.multiverse("v ~ t + x", study(d, llm=list(llm), **(how or {})), **settings | options)


def test_numbers_are_scored_by_their_correlation():
    d = texts(N=400, n=120, seed=2)
    out = curve(d).illusion()
    g = d.dropna(subset="v_human")
    assert out.measure == "correlation"
    rows = out.annotators.set_index("llm")
    for llm in ("f1", "f2"):
        assert rows.loc[llm, "correlation"] == pytest.approx(np.corrcoef(g[llm], g["v"])[0, 1])
    assert rows.loc["f1", "agreement"] == pytest.approx(np.corrcoef(d["f1"], d["f2"])[0, 1])
    assert out.pairs.loc[0, "disagreement"] == pytest.approx((d["f1"] - d["f2"]).abs().mean())
    assert "Correlation of annotators runs from" in str(out)


def test_classes_with_missing_labels_and_estimates_beside_them():
    d = texts(N=400, n=120, seed=2, outcome="binary")
    d.loc[::7, "f1"] = np.nan
    mv = curve(d, subsets={"part": "x > 0", "all": None})
    out = mv.illusion()
    rows = out.annotators.set_index("llm")
    g = d.dropna(subset=["v_human", "f1"])
    assert rows.loc["f1", "accuracy"] == pytest.approx((g["f1"] == g["v"]).mean())
    both = d.dropna(subset="f1")
    assert rows.loc["f1", "agreement"] == pytest.approx((both["f1"] == both["f2"]).mean())
    table = mv.table()
    table = table[table["subset"] == "all"].set_index(["llm", "correction"])
    for llm in ("f1", "f2"):
        for column, correction in (("naive", "naive"), ("corrected", "ptd")):
            assert rows.loc[llm, column] == table.loc[(llm, correction), "estimate"]
            assert rows.loc[llm, f"{column}_se"] == table.loc[(llm, correction), "std_error"]
    spread = out.spread
    assert spread.loc["naive", "high"] == rows["naive"].max()
    assert list(spread.index) == ["accuracy", "naive", "corrected"]
    pair = out.pairs.loc[0]
    assert pair["difference"] == pytest.approx(rows.loc["f1", "naive"] - rows.loc["f2", "naive"])
    assert 0 < pair["p_value"] < 1


def test_one_annotator_has_no_pairs():
    out = curve(texts(N=400, n=120, seed=2, outcome="binary"), llm=["f1"]).illusion()
    assert out.pairs.empty
    assert "Pairs" not in str(out)


def test_the_illusion_needs_llm_only_universes():
    d = texts(N=400, n=120, seed=2, outcome="binary")
    with pytest.raises(ArgumentError, match='Add "naive"'):
        curve(d, corrections=["human", "ptd"]).illusion()
    two = {"human": {"v": "v_human", "u": "u_human"}, "llm": {"v": ["f1"], "u": ["f1b"]}}
    d = d.drop(columns="v").assign(u_human=d["v_human"], f1b=d["f1"])
    s = tu.Study(d, **(two | {"llm": {"v": {"a": "f1"}, "u": {"a": "f1b"}}}))
    mv = tu.multiverse("z ~ v + t + I(u * t)", s, focus="t", corrections=["naive"], progress=False)
    with pytest.raises(ArgumentError, match="accuracy of which"):
        mv.illusion()
    mv = tu.multiverse("v ~ t", s, focus="t", corrections=["naive"], progress=False)
    assert len(mv.illusion().annotators) == 1


def test_kinds_of_covariance_have_no_row_and_nothing_is_below_zero(mv_of_two_kinds):
    table = mv_of_two_kinds.decompose().table
    assert not table["source"].str.contains("vcov").any()
    assert (table[["share", "noise", "choice"]] >= 0).all(axis=None)
    assert "-0.0%" not in str(mv_of_two_kinds.decompose())


@pytest.fixture(scope="module")
def mv_of_two_kinds():
    s = study(texts(N=400, n=120, seed=2, outcome="binary"), llm=["f1", "f2"])
    return tu.multiverse(
        ["v ~ t", "v ~ t + x"],
        s,
        focus="t",
        corrections=["naive", "ptd"],
        vcov=["HC0", "HC3"],
        progress=False,
    )
