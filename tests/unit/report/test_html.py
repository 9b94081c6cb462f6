"""The page: self-contained, escaped, the same for the same content."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from trueup.errors import ArgumentError
from trueup.report.content import counted_warnings, range_sentences, report_content
from trueup.report.html import (
    ReportContent,
    ReportFigure,
    ReportTable,
    image_source,
    page,
    write_report,
)
from trueup.report.plots import Reference, specification_curve

from .evil import EVIL, evil_content


class Page(HTMLParser):
    """Elements as (tag, attributes), texts of the elements asked for."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._open = [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, text):
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(text)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def simple(**more):
    given = {"title": "T", "question": ["Q?"], "study": "Study of 3 rows", "headline": ["Found."]}
    return ReportContent(**(given | more))


def policy(parsed):
    return next(m["content"] for m in parsed.all("meta") if "http-equiv" in m)


def test_nothing_from_data_becomes_an_element_or_an_attribute(evil_page):
    parsed = Page(evil_page)
    assert len(parsed.all("script")) == 1
    assert not [(t, a) for t, a in parsed.elements for n in a if n.startswith("on")]
    assert all(a["src"].startswith("data:image/") for a in parsed.all("img"))
    assert len(parsed.all("img")) == 4
    assert not {"iframe", "svg", "object", "embed", "base", "form"} & {
        t for t, _ in parsed.elements
    }
    assert all(any(e in text for texts in parsed.texts.values() for text in texts) for e in EVIL)


def test_policy_allows_the_pages_own_style_and_script_alone():
    text = page(simple())
    parsed = Page(text)
    assert policy(parsed).startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy(parsed)
    for tag in ("style", "script"):
        body = re.search(f"<{tag}>(.*?)</{tag}>", text, re.S).group(1)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy(parsed)
    assert "style" not in {n for _, attributes in parsed.elements for n in attributes}


def test_page_asks_no_server(evil_page):
    parsed = Page(evil_page)
    addresses = [a[n] for _, a in parsed.elements for n in ("src", "href") if n in a]
    assert addresses
    assert all(a.startswith(("#", "data:")) for a in addresses)
    css = "".join(parsed.texts["style"])
    assert "url(" not in css
    assert "@import" not in css


def test_page_can_be_read_by_everybody(evil_page):
    parsed = Page(evil_page)
    assert parsed.all("html") == [{"lang": "en"}]
    assert [m for m in parsed.all("meta") if m.get("name") == "viewport"]
    assert all(len(a["alt"]) > 20 for a in parsed.all("img"))
    levels = [int(t[1]) for t, _ in parsed.elements if re.fullmatch(r"h\d", t)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    ids = [a["id"] for _, a in parsed.elements if "id" in a]
    assert len(ids) == len(set(ids))
    targets = {a["href"][1:] for a in parsed.all("a")}
    assert targets <= set(ids)


def test_same_content_gives_the_same_bytes(tmp_path, evil_page):
    written = write_report(tmp_path / "report.html", evil_content()).read_bytes()
    assert written == evil_page.encode()


def test_cells_show_four_digits_and_sort_by_all_of_them():
    data = pd.DataFrame(
        {
            "estimate": [0.123456789, np.nan, -np.inf],
            "p_value": [1e-20, 0.5, np.nan],
            "n": [5, 1_234_567, 0],
            "ok": [True, False, True],
            "who": ["a<b", None, ("x", "y")],
        }
    )
    text = page(simple(tables={"Numbers": ReportTable(data, "c")}))
    rows = re.findall(r"<tr>(<td.*?)</tr>", text)
    cells = [re.findall(r"<td(?: class=\"number\" data-v=\"(.*?)\")?>(.*?)</td>", r) for r in rows]
    assert cells[0] == [
        ("0.123456789", "0.1235"),
        ("1e-20", "&lt;2e-16"),
        ("5", "5"),
        ("", "yes"),
        ("", "a&lt;b"),
    ]
    assert cells[1] == [("", ""), ("0.5", "0.5000"), ("1234567", "1,234,567"), ("", "no"), ("", "")]
    assert cells[2][0] == ("-Infinity", "−∞")
    assert cells[2][4] == ("", "x; y")


def test_figures_are_well_formed_images_without_script(eight):
    eight["model"] = eight["model"].replace("alpha", "<script>x</script>--\x08")
    figure = specification_curve(eight, ["model", "correction"], focus="x")
    kind, data = image_source(figure).split(",")
    assert kind == "data:image/svg+xml;base64"
    root = ElementTree.fromstring(base64.b64decode(data))
    assert not [e for e in root.iter() if e.tag.endswith("}script")]


def test_heavy_figure_becomes_a_bitmap():
    from matplotlib.figure import Figure

    figure = Figure()
    noise = np.random.default_rng(0).normal(size=(2, 60_000))
    figure.subplots().plot(*noise, ",")
    figure.axes[0].lines[0].set_marker("o")
    source = image_source(figure)
    assert source.startswith("data:image/png;base64,iVBOR")


def test_sections_that_have_nothing_to_say_are_absent():
    parsed = Page(page(simple()))
    sections = [a["id"] for a in parsed.all("section")]
    assert sections == ["headline", "question", "study", "warnings", "failed", "computed"]
    assert "None: every universe was fitted." in parsed.texts["p"]


def test_figure_of_ones_own_and_facts_are_shown(eight):
    figure = specification_curve(eight, ["correction"], focus="x")
    content = simple(
        figures={"Mine": ReportFigure(figure, "caption & more", 'alt "text" of mine')},
        seed=7,
        created="2026-12-01",
        seconds=1234.56,
        versions={"trueup": "9.9"},
        plan="seed = 7 # <b>",
    )
    text = page(content)
    parsed = Page(text)
    assert parsed.all("img")[0]["alt"] == 'alt "text" of mine'
    assert "Made by trueup 9.9, 2026-12-01" in text
    assert {"7", "1,234.6 seconds", "9.9"} <= set(parsed.texts["dd"])
    assert "seed = 7 # &lt;b&gt;" in text


def test_path_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="is a folder"):
        write_report(tmp_path, simple())
    with pytest.raises(ArgumentError, match="does not exist; make it first"):
        write_report(tmp_path / "no" / "report.html", simple())


def test_half_a_surrogate_pair_does_not_stop_the_page(tmp_path):
    path = write_report(tmp_path / "r.html", simple(title="a\ud800b"))
    assert "a\\ud800b" in path.read_text(encoding="utf-8")


def test_content_takes_one_slice_for_the_figures_of_annotators(make):
    table = make(formulas=("y ~ x", "y ~ x + z"), human=True)
    accuracy = {llm: 0.8 for llm in table["llm"] if llm != "none"}
    content = report_content(
        table,
        ["llm", "model", "prompt", "formula", "correction", "subset"],
        focus="x",
        study="s",
        accuracy=accuracy,
        reference=Reference("human-only", 0.1),
    )
    assert list(content.figures) == [
        "Specification curve",
        "From LLM-only to corrected",
        "Accuracy and estimate",
    ]
    assert "Shown for formula = y ~ x." in content.figures["Accuracy and estimate"].caption
    assert len(content.figures["From LLM-only to corrected"].figure.axes[0].texts) == 4
    universes = content.tables["All universes"]
    assert "The same in all of them: subset = all." in universes.caption
    assert len(universes.data) == 18


def test_content_says_what_failed_and_counts_warnings(eight):
    eight.loc[2, ["status", "error"]] = ["failed", "SeparationError: too good"]
    eight.loc[5, "estimate"] = np.nan
    eight["warnings"] = [("few coded rows", "weights"), "weights", "", (), None, [], "", ""]
    content = report_content(eight, ["llm", "correction"], focus="x", study="s")
    assert content.failed["universe"].tolist() == [2, 5]
    assert content.failed["reason"].tolist() == [
        "SeparationError: too good",
        "has no finite estimate of this term",
    ]
    assert content.warnings == ["weights (2 universes)", "few coded rows (1 universe)"]
    assert counted_warnings(eight.drop(columns="warnings")) == []
    assert content.headline[0] == "6 of 8 universes have an estimate."


def test_ranges_count_signs_by_the_interval():
    table = pd.DataFrame(
        {
            "correction": ["naive", "naive", "naive", "human", "ptd"],
            "estimate": [-1.0, 0.0, 2.0, 0.5, 0.5],
            "conf_low": [-2.0, -1.0, 1.0, 0.0, 0.1],
            "conf_high": [-0.5, 1.0, 3.0, 1.0, 0.9],
        }
    )
    assert range_sentences(table)[1:] == [
        "LLM-only: 3 estimates, from -1 to 2; 1 significantly below zero, 1 significantly above.",
        "Human-only: 1 estimate, 0.5; 0 significantly below zero, 0 significantly above.",
        "Corrected: 1 estimate, 0.5; 0 significantly below zero, 1 significantly above.",
    ]


def test_content_without_needed_columns_is_refused(eight):
    with pytest.raises(ArgumentError, match="lacks the column 'error'"):
        report_content(eight.drop(columns="error"), ["llm"], focus="x", study="s")
