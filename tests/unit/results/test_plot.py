"""The coefficient plot draws the numbers of the comparison."""

from __future__ import annotations

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest

from trueup.errors import ArgumentError
from trueup.results.compare import Bias, Comparison, Source
from trueup.results.plot import plot_comparison
from trueup.results.wald import WaldTest

from .conftest import make_world

mpl.use("Agg")


@pytest.fixture
def comparison() -> Comparison:
    base = make_world().fit.estimate
    other = make_world(theta=base.theta + 1, vcov=base.vcov * 4).fit.estimate
    test = WaldTest(1.0, 4, np.inf, 0.5, "")
    flat = np.ones(4)
    return Comparison(
        terms=make_world().fit.terms,
        level=0.9,
        reference="corrected",
        sources=(
            Source("LLM-only", "gpt", other),
            Source("LLM-only", "llama", other),
            Source("human-only", None, other),
            Source("corrected", None, base),
        ),
        biases=(Bias("gpt", flat, flat, flat, test), Bias("llama", flat, flat, flat, test)),
    )


def drawn(figure) -> dict[str, np.ndarray]:
    (axes,) = figure.axes
    return {
        line.get_label(): line.get_xydata() for line in axes.lines if line.get_marker() in "Dos^"
    }


def ticks(figure) -> list[str]:
    return [t.get_text() for t in figure.axes[0].get_yticklabels()]


def test_it_draws_every_source_at_its_estimates(comparison):
    figure = plot_comparison(comparison)
    points = drawn(figure)
    assert list(points) == ["LLM-only: gpt", "LLM-only: llama", "human-only", "corrected"]
    theta = comparison.source("corrected").estimate.theta
    np.testing.assert_allclose(points["corrected"][:, 0], theta[1:])
    np.testing.assert_allclose(points["human-only"][:, 0], theta[1:] + 1)
    assert ticks(figure) == ["x", "C(group)[T.b]", "x:C(group)[T.b]"]


def test_intervals_are_those_of_the_table(comparison):
    figure = plot_comparison(comparison)
    table = comparison.tidy().query("source == 'corrected'").iloc[1:]
    segments = figure.axes[0].collections[-1].get_segments()
    np.testing.assert_allclose([s[:, 0] for s in segments], table[["conf_low", "conf_high"]])


def test_sources_do_not_overlap(comparison):
    y = np.sort(np.concatenate([p[:, 1] for p in drawn(plot_comparison(comparison)).values()]))
    assert np.diff(y).min() > 0.1


def test_terms_and_intercept_can_be_chosen(comparison):
    assert ticks(plot_comparison(comparison, intercept=True))[0] == "Intercept"
    assert ticks(plot_comparison(comparison, ["C(group)[T.b]", "x"])) == ["C(group)[T.b]", "x"]
    assert ticks(plot_comparison(comparison, "x")) == ["x"]


@pytest.mark.parametrize("terms", [["nosuch"], []])
def test_terms_that_are_not_there(comparison, terms):
    with pytest.raises(ArgumentError, match="The terms are: 'Intercept'"):
        plot_comparison(comparison, terms)


def test_nothing_is_left_open(comparison):
    from matplotlib import pyplot as plt

    before = plt.get_fignums()
    plot_comparison(comparison)
    assert plt.get_fignums() == before


def test_many_llms_look_different_and_the_legend_fits(comparison):
    e = comparison.sources[0].estimate
    llms = [Source("LLM-only", f"a-rather-long-model-name-{i}__prompt", e) for i in range(12)]
    many = replace(comparison, sources=(*llms, *comparison.sources[2:]), biases=())
    figure = plot_comparison(many, "x")
    figure.canvas.draw()
    styles = [(line.get_color(), line.get_marker()) for line in figure.axes[0].lines[:14]]
    assert len(set(styles)) == 14
    (legend,) = figure.legends
    box, page = legend.get_window_extent(), figure.bbox
    assert page.x0 <= box.x0
    assert box.x1 <= page.x1
    assert figure.axes[0].get_window_extent().height > 14 * 0.15 * figure.dpi
