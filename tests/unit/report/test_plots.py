"""Arrows, heat map, accuracy beside estimates."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.text import Text

from trueup.errors import ArgumentError
from trueup.report.plots import Reference, accuracy_against_estimate, arrows, heatmap


def names(axes):
    return [t.get_text() for t in axes.get_yticklabels()]


def disagreement(k, groups=2, seed=0):
    """Annotators of one group disagree on a tenth, of two on a third or so."""
    group = np.arange(k) % groups
    noise = np.random.default_rng(seed).uniform(0, 0.05, (k, k))
    values = np.where(group[:, None] == group, 0.1, 0.3) + (noise + noise.T) / 2
    np.fill_diagonal(values, 0)
    labels = [f"g{g}-{i}" for i, g in enumerate(group)]
    return pd.DataFrame(values, labels, labels)


def test_arrows_run_from_llm_only_to_corrected_in_rising_order(eight):
    axes = arrows(eight, focus="x").axes[0]
    wide = eight.pivot(index="llm", columns="correction", values="estimate").sort_values("naive")
    assert names(axes) == wide.index.tolist()
    ends = [(a.xyann[0], a.xy[0]) for a in axes.texts]
    assert ends == list(zip(wide["naive"], wide["dsl"], strict=True))


def test_arrows_to_several_corrections_start_at_one_point(make):
    table = make(corrections=("naive", "ppi++", "dsl"), human=True)
    figure = arrows(table, focus="x", reference=Reference("human-only", 0.1))
    starts = {a.xyann for a in figure.axes[0].texts}
    assert len(starts) == 4
    assert len(figure.axes[0].texts) == 8
    legend = [t.get_text() for t in figure.legends[0].get_texts()]
    assert legend == ["LLM-only", "corrected: ppi++", "corrected: dsl", "human-only"]


def test_arrows_need_one_universe_per_annotator_and_correction(make):
    table = make(formulas=("y ~ x", "y ~ x + z"))
    with pytest.raises(ArgumentError, match=r"alpha__p1.*'naive'.*they differ in.*'formula'"):
        arrows(table, focus="x")
    assert len(names(arrows(table, focus="x", by=("llm", "formula")).axes[0])) == 8
    with pytest.raises(ArgumentError, match="both an LLM-only"):
        arrows(table[table["correction"] == "dsl"], focus="x", by=("llm", "formula"))


@pytest.mark.parametrize("k", [2, 8, 16])
def test_heat_map_writes_numbers_up_to_fifteen_annotators(k):
    axes = heatmap(disagreement(k), title="Disagreement").axes[0]
    assert len(axes.texts) == (k * k if k <= 15 else 0)


def test_heat_map_puts_similar_annotators_together():
    matrix = disagreement(10)
    groups = [n[:2] for n in names(heatmap(matrix, title="d").axes[0])]
    assert groups in (["g0"] * 5 + ["g1"] * 5, ["g1"] * 5 + ["g0"] * 5)
    assert names(heatmap(matrix, title="d", ordered=False).axes[0]) == list(matrix.index)


def test_heat_map_keeps_unknown_pairs_apart_from_zero():
    matrix = disagreement(4)
    matrix.iloc[0, 1] = matrix.iloc[1, 0] = np.nan
    axes = heatmap(matrix, title="d").axes[0]
    assert len(axes.texts) == 14
    assert axes.images[0].get_array().mask.sum() == 2


def test_heat_map_refuses_what_is_no_disagreement():
    matrix = disagreement(4)
    with pytest.raises(ArgumentError, match="same annotators"):
        heatmap(matrix.iloc[:3], title="d")
    with pytest.raises(ArgumentError, match="same annotators"):
        heatmap(pd.DataFrame(), title="d")
    with pytest.raises(ArgumentError, match="symmetric"):
        heatmap(matrix + np.triu(np.ones((4, 4))), title="d")
    with pytest.raises(ArgumentError, match="has -0"):
        heatmap(-matrix, title="d")


def accuracies(table, low=0.8, high=0.9):
    llm = list(dict.fromkeys(table["llm"]))
    spread = np.linspace(low, high, len(llm))
    return table.assign(accuracy=table["llm"].map(dict(zip(llm, spread, strict=True))))


def test_accuracy_plot_has_llm_only_points_and_corrected_circles(eight):
    table = accuracies(eight)
    figure = accuracy_against_estimate(table, focus="x", reference=Reference("human-only", 0.3))
    squares = next(c for c in figure.axes[0].lines if c.get_marker() == "s")
    circles = next(c for c in figure.axes[0].lines if c.get_marker() == "o")
    for line, correction in [(squares, "naive"), (circles, "dsl")]:
        rows = table[table["correction"] == correction]
        assert line.get_xdata().tolist() == rows["accuracy"].tolist()
        assert line.get_ydata().tolist() == rows["estimate"].tolist()
    assert circles.get_markerfacecolor() == "none"
    assert {t.get_text() for t in figure.axes[0].texts} == set(table["llm"])


def overlaps(a, b):
    return min(a.x1, b.x1) - max(a.x0, b.x0) > 0.5 and min(a.y1, b.y1) - max(a.y0, b.y0) > 0.5


def test_names_do_not_overlap_and_those_left_out_are_counted(three_hundred):
    table = accuracies(three_hundred)
    axes = accuracy_against_estimate(table, focus="x").axes[0]
    axes.figure.draw_without_rendering()
    texts = [t for t in axes.texts if t.get_text()]
    boxes = [Text.get_window_extent(t) for t in texts]  # without the line to the point
    assert 5 < len(texts) <= 30
    assert not any(overlaps(a, b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert f"({75 - len(texts)} of 75 names left out for lack of room)" in axes.get_xlabel()


def test_accuracy_plot_needs_an_llm_only_universe_with_an_accuracy(eight):
    with pytest.raises(ArgumentError, match="lacks the column 'accuracy'"):
        accuracy_against_estimate(eight, focus="x")
    with pytest.raises(ArgumentError, match="No LLM-only"):
        accuracy_against_estimate(eight.assign(accuracy=np.nan), focus="x")


def test_figures_are_closed(eight):
    arrows(eight, focus="x")
    heatmap(disagreement(3), title="d")
    accuracy_against_estimate(accuracies(eight), focus="x")
    assert plt.get_fignums() == []
