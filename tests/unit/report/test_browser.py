"""The page in a real browser: nothing from data runs, tables sort and filter."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from trueup.report.html import ReportContent, ReportTable, page

from .test_html import Page

CHROMIUM = Path("/usr/bin/chromium")
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium")

N = 1_200


def dump(path, folder):
    """Return the page's elements after its scripts have run."""
    profile = folder / "profile"
    quiet = ("gpu", "quic", "background-networking", "component-update", "sync")
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--no-first-run",
        *(f"--disable-{name}" for name in quiet),
        f"--user-data-dir={profile}",
        "--virtual-time-budget=4000",
        "--dump-dom",
        path.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    shutil.rmtree(profile, ignore_errors=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_payloads_stay_text(tmp_path, evil_page):
    path = tmp_path / "evil.html"
    path.write_text(evil_page, encoding="utf-8")
    dom = dump(path, tmp_path)
    parsed = Page(dom)
    assert "data-pwned" not in parsed.all("html")[0]
    assert len(parsed.all("script")) == 1
    assert not [(t, a) for t, a in parsed.elements for n in a if n.startswith("on")]
    assert "svg" not in {t for t, _ in parsed.elements}
    # The page's own script has run, or the test above would prove little.
    assert [b for b in parsed.all("button") if b.get("title") == "Sort by this column"]


STEPS = """
const box = document.querySelector("[data-table]"), out = {};
const column = (j) => [...box.querySelectorAll("tbody tr")].map((r) => r.cells[j].textContent);
const heads = () => [...box.querySelectorAll("th")];
const state = (j) => ({first: column(j).slice(0, 3), rows: column(j).length,
  sort: heads().map((h) => h.getAttribute("aria-sort")),
  said: box.querySelector("output").textContent});
const filter = (text, then) => {
  const input = box.querySelector("input");
  input.value = text;
  input.dispatchEvent(new Event("input"));
  setTimeout(then, 300);
};
const click = (j) => heads()[j].querySelector("button").click();
out.start = state(0);
click(1); out.up = state(1);
click(1); out.down = state(1);
click(2); out.words = state(2);
filter("BETA 11", () => {
  out.filtered = state(0);
  filter("", () => {
    out.more = !box.querySelector(".more").hidden;
    box.querySelector(".more").click();
    click(1); click(1);
    out.all = state(1);
    out.last = column(1).slice(-2);
    out.focusable = heads().every((h) => h.querySelector("button").tabIndex === 0);
    const said = document.createElement("pre");
    said.id = "out";
    said.textContent = JSON.stringify(out);
    document.body.append(said);
  });
});
"""


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """Return what the page shows after clicks; and whether a foreign script ran."""
    folder = tmp_path_factory.mktemp("browser")
    value = np.random.default_rng(0).permutation(N) / 1e6
    value[5] = np.nan
    data = pd.DataFrame(
        {
            "row": np.arange(N),
            "value": value,
            "name": [f"{'alpha' if i % 2 else 'beta'} {i}" for i in range(N)],
        }
    )
    table = {"Big": ReportTable(data, "many rows")}
    text = page(ReportContent(title="T", question=[], study="", headline=[], tables=table))
    # Clicks come from a second script, let in by its hash; a third one is not let in.
    digest = base64.b64encode(hashlib.sha256(STEPS.encode()).digest()).decode()
    text = text.replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    foreign = "<script>document.documentElement.setAttribute('data-foreign','ran')</script>"
    path = folder / "steps.html"
    path.write_text(text.replace("</body>", f"<script>{STEPS}</script>{foreign}</body>"))
    dom = dump(path, folder)
    said = "".join(Page(dom[dom.index('<pre id="out">') :]).texts["pre"])
    return json.loads(said) | {"foreign": bool(re.search(r"<html[^>]*data-foreign", dom))}, data


def test_long_table_starts_with_its_first_rows(steps):
    out, _ = steps
    assert out["start"]["rows"] == 50
    assert out["start"]["first"] == ["0", "1", "2"]
    assert out["start"]["said"] == "50 of 1,200 rows shown"
    assert out["start"]["sort"] == [None, None, None]


def test_columns_sort_by_value_both_ways_with_empty_cells_last(steps):
    out, data = steps
    ordered = data["value"].dropna().sort_values()
    # Four shown digits would tie or order "9e-06" after "1e-05": the full value must be used.
    assert [float(v) for v in out["up"]["first"]] == pytest.approx(ordered.head(3), rel=1e-3)
    assert [float(v) for v in out["down"]["first"]] == pytest.approx(
        ordered[::-1].head(3), rel=1e-3
    )
    assert out["up"]["sort"] == [None, "ascending", None]
    assert out["down"]["sort"] == [None, "descending", None]
    assert out["all"]["rows"] == N
    assert out["last"][1] == ""
    assert float(out["last"][0]) == ordered.iloc[0]


def test_words_sort_as_people_count(steps):
    out, _ = steps
    assert out["words"]["first"] == ["alpha 1", "alpha 3", "alpha 5"]


def test_filter_takes_rows_with_every_word(steps):
    out, data = steps
    matching = [i for i in range(N) if i % 2 == 0 and "11" in "\n".join(map(str, data.loc[i]))]
    assert set(map(int, out["filtered"]["first"])) <= set(matching)
    found = re.fullmatch(r"(\d+) of 1,200 rows shown, (\d+) match", out["filtered"]["said"])
    assert int(found[1]) == min(50, int(found[2])) == out["filtered"]["rows"]
    assert out["more"]
    assert out["focusable"]


def test_policy_keeps_a_foreign_script_from_running(steps):
    assert not steps[0]["foreign"]
