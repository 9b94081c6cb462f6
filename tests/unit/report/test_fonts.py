"""Names in scripts that the usual font lacks."""

import io
import warnings

import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.font_manager import fontManager

from trueup.errors import TrueupWarning
from trueup.results import fonts
from trueup.results.fonts import readable

#: Has a letter in the fonts that come with matplotlib, though not in the usual one.
SOMEWHERE = next(
    c
    for f in fontManager.ttflist
    if f.name == "STIXGeneral" and f.style == "normal" and f.weight == 400
    for c in sorted(fonts._letters(f.fname) - fonts._letters_of_usual_font())
    if c.isalpha()
)
NOWHERE = "\U0001e900"  # Adlam


@readable
def drawing(table):
    figure, axes = plt.subplots()
    plt.close(figure)
    axes.set_title(table["name"].iloc[0])
    return figure


@pytest.fixture
def afresh():
    fonts._warn_of_script.cache_clear()
    with warnings.catch_warnings():
        yield
    fonts._warn_of_script.cache_clear()


def families(figure):
    return figure.axes[0].title.get_fontfamily()


def test_an_installed_font_stands_in(afresh):
    usual = families(drawing(pd.DataFrame({"name": ["plain"]})))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = drawing(pd.DataFrame({"name": ["x" + SOMEWHERE]}))
        figure.savefig(io.BytesIO())
    assert families(figure)[: len(usual)] == usual
    (found,) = families(figure)[len(usual) :]
    path = next(
        f.fname
        for f in fontManager.ttflist
        if f.name == found and f.style == "normal" and f.weight == 400
    )
    assert SOMEWHERE in fonts._letters(path)


def test_letters_that_no_font_has_are_said_once(afresh, monkeypatch):
    usual = [f for f in fontManager.ttflist if f.name == "DejaVu Sans"]
    monkeypatch.setattr(fontManager, "ttflist", usual)
    table = pd.DataFrame({"name": [NOWHERE]})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            drawing(table).savefig(io.BytesIO())
    assert [w.category for w in said] == [TrueupWarning]
    assert "ADLAM" in str(said[0].message)
    assert "Noto" in str(said[0].message)
