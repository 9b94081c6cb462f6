"""The specification curve shows each universe once, where it belongs."""

import io

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from trueup.errors import ArgumentError
from trueup.report import style
from trueup.report.plots import Reference, specification_curve

DIMENSIONS = ["llm", "model", "prompt", "formula", "correction", "subset"]


def curve(table, **options):
    return specification_curve(table, DIMENSIONS, focus="x", **options)


def drawn_points(axes):
    """Return position -> (estimate, colour, marker) of the points in the upper panel."""
    return {
        int(x): (float(y), line.get_color(), line.get_marker())
        for line in axes.lines
        if line.get_marker() not in ("None", None, "")
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }


def names(axes):
    return [t.get_text() for t in axes.get_yticklabels()]


def test_estimates_rise_and_kinds_differ_in_colour_and_marker(eight):
    points = drawn_points(curve(eight).axes[0])
    ordered = eight.sort_values("estimate")
    assert [points[i][0] for i in range(8)] == ordered["estimate"].tolist()
    for i, correction in enumerate(ordered["correction"]):
        kind = style.kind_of(correction)
        assert points[i][1:] == (style.COLOUR[kind], style.MARKER[kind])


def test_intervals_are_those_of_the_table(eight):
    eight.loc[2, "conf_high"] = np.inf
    figure = curve(eight)
    limits = figure.axes[0].get_ylim()
    segments = {
        tuple(np.round([s[0][0], s[0][1], s[1][1]], 9))
        for c in figure.axes[0].collections
        for s in c.get_segments()
    }
    ordered = eight.sort_values("estimate")
    for low, high in [("conf_low", "conf_high"), ("simultaneous_low", "simultaneous_high")]:
        for i, (a, b) in enumerate(zip(ordered[low], ordered[high], strict=True)):
            assert tuple(np.round([i, *np.clip([a, b], *limits)], 9)) in segments


def test_lower_panel_has_the_levels_that_vary_under_their_dimension(eight):
    shown = names(curve(eight).axes[1])
    expected = ["llm", "alpha__p1", "alpha__p2", "beta__p1", "beta__p2"]
    expected += ["model", "alpha", "beta", "prompt", "p1", "p2", "correction", "naive", "dsl"]
    assert shown == expected


def test_dots_stand_where_a_universe_has_the_level(eight):
    axes = curve(eight).axes[1]
    row = names(axes).index("beta__p1")
    at = sorted(
        int(x) for c in axes.collections for x, y in c.get_offsets().tolist() if round(y) == row
    )
    ordered = eight.sort_values("estimate", ignore_index=True)
    assert at == ordered.index[ordered["llm"] == "beta__p1"].tolist()


def test_many_universes_are_strokes_and_a_long_told_dimension_is_left_out(three_hundred):
    figure = curve(three_hundred)
    shown = names(figure.axes[1])
    assert "model" in shown
    assert "llm" not in shown
    assert len(set(shown)) == len(shown) == 1 + 25 + 1 + 3 + 1 + 4
    assert all("…" in s for s in shown[1:26])
    assert all(hasattr(c, "get_segments") for c in figure.axes[1].collections)


def test_height_grows_with_the_number_of_levels(eight, make, three_hundred):
    few, more = curve(eight), curve(make(models=tuple("abcdefg")))
    lines = len(names(more.axes[1])) - len(names(few.axes[1]))
    assert more.get_figheight() - few.get_figheight() == pytest.approx(0.17 * lines)
    assert curve(three_hundred).get_figwidth() <= 11


def test_nothing_is_cut_off_at_the_edges(three_hundred, eight):
    for table in (eight, three_hundred):
        figure = curve(table, title="A title", reference=Reference("human-only", 0.4, 0.1, 0.7))
        figure.draw_without_rendering()
        box = figure.get_tightbbox()
        assert box.x0 >= -0.02
        assert box.y0 >= -0.02
        assert box.x1 <= figure.get_figwidth() + 0.02
        assert box.y1 <= figure.get_figheight() + 0.02


def test_long_term_does_not_reach_into_the_lower_panel(eight):
    figure = specification_curve(eight, DIMENSIONS, focus="C(source)[T.movie]:" * 5)
    figure.draw_without_rendering()
    label, axes = figure.axes[0].yaxis.label.get_window_extent(), figure.axes[0].bbox
    assert axes.y0 <= label.y0
    assert label.y1 <= axes.y1


def test_universes_without_an_estimate_are_counted(eight):
    eight.loc[0, "estimate"] = np.nan
    eight.loc[1, "status"] = "failed"
    figure = curve(eight)
    assert len(drawn_points(figure.axes[0])) == 6
    assert "2 without an estimate not shown" in figure.axes[1].get_xlabel()


def test_bands_are_matched_by_universe_not_by_position(eight):
    bands = eight[["universe"]].assign(
        simultaneous_low=eight["estimate"] - 0.125, simultaneous_high=eight["estimate"] + 0.125
    )
    plain = eight.drop(columns=["simultaneous_low", "simultaneous_high"])
    assert "simultaneous" not in curve(plain).axes[1].get_xlabel()
    figure = curve(plain, bands=bands.sample(frac=1, random_state=0))
    lengths = [s[1][1] - s[0][1] for c in figure.axes[0].collections for s in c.get_segments()]
    assert sum(np.isclose(length, 0.25) for length in lengths) == 8


def test_reference_has_a_line_a_band_and_a_name(eight):
    figure = curve(eight, reference=Reference("all-human", 0.3, 0.2, 0.4))
    line = [c for c in figure.axes[0].lines if list(c.get_ydata()) == [0.3, 0.3]]
    assert len(line) == 1
    assert len(figure.axes[0].patches) == 1
    assert "all-human, with interval" in [t.get_text() for t in figure.legends[0].get_texts()]


def test_one_absurd_interval_does_not_press_the_others_flat(eight):
    eight.loc[3, "conf_high"] = 1e6
    figure = curve(eight)
    assert figure.axes[0].get_ylim()[1] < 1.5
    assert "1 interval cut off by the frame" in figure.axes[1].get_xlabel()


def test_names_are_drawn_letter_by_letter(eight):
    eight["model"] = eight["model"].replace({"alpha": "$\\frac{1}$ \x00\x0b<b>", "beta": "a_$b"})
    figure = curve(eight, title="$x", reference=Reference("$\\bad$", 0.0))
    figure.savefig(io.BytesIO(), format="svg")
    shown = names(figure.axes[1])
    assert r"\$\frac{1}\$ <b>" in shown


def test_figures_are_closed(eight):
    curve(eight)
    assert plt.get_fignums() == []


def test_table_that_cannot_be_drawn_is_refused(eight):
    with pytest.raises(ArgumentError, match=r"lacks the columns 'conf_low', 'conf_high'.*It has"):
        curve(eight.drop(columns=["conf_low", "conf_high"]))
    with pytest.raises(ArgumentError, match="none of the 8 rows has status 'ok'"):
        curve(eight.assign(status="failed"))
    with pytest.raises(ArgumentError, match=r"Column 'model'.*missing values"):
        curve(eight.assign(model=[None, *"abcdefg"]))
    with pytest.raises(ArgumentError, match="bands lacks the column 'simultaneous_low'"):
        curve(eight, bands=eight[["universe"]])
    double = pd.concat([eight, eight])
    with pytest.raises(ArgumentError, match="twice"):
        curve(eight, bands=double)
    with pytest.raises(ArgumentError, match="finite number"):
        curve(eight, reference=Reference("human-only", np.nan))


def test_a_range_of_references_is_a_band_with_edges(eight):
    figure = curve(eight, reference=Reference("human-only range", None, -0.9, 0.9))
    top = figure.axes[0]
    low, high = top.get_ylim()
    assert low < -0.9 < 0.9 < high
    edges = {line.get_ydata()[0] for line in top.lines if len(set(line.get_ydata())) == 1}
    assert {-0.9, 0.9} <= edges
    assert "human-only range" in [t.get_text() for t in figure.legends[0].get_texts()]
