"""Plan files and the command line."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import trueup as tu
from trueup.cli import app
from trueup.errors import PlanError
from trueup.plan import check_formula, read_data, read_plan

PLAN = """
data = "articles.csv"
formulas = ["v ~ t + log(words)"]
family = "logit"
focus = "t"
corrections = ["naive", "human", "auto"]
seed = 1
[human]
v = "v_human"
[llm]
v = "{model}__{prompt}"
[subsets]
all = ""
land = "place == 'land'"
"""


def invoke(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def folder(tmp_path, data):
    data.drop(columns="v").assign(words=np.arange(1, 601)).to_csv(
        tmp_path / "articles.csv", index=False
    )
    (tmp_path / "plan.toml").write_text(PLAN)
    return tmp_path


def test_a_plan_is_run_and_its_report_rebuilt(folder):
    out = folder / "results"
    done = CliRunner().invoke(app, ["run", str(folder / "plan.toml"), "--out", str(out)])
    assert done.exit_code == 0, done.output
    table = pd.read_csv(out / "estimates.csv")
    assert set(table["subset"]) == {"all", "land"}
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["seed"] == 1
    assert len(manifest["data"]["sha256"]) == 64
    page = (out / "report.html").read_text()
    (out / "report.html").unlink()
    again = CliRunner().invoke(app, ["report", str(out)])
    assert again.exit_code == 0, again.output
    assert len((out / "report.html").read_text()) == pytest.approx(len(page), rel=0.02)
    pd.testing.assert_frame_equal(
        table.drop(columns="seconds"),
        pd.read_csv(out / "estimates.csv").drop(columns="seconds"),
    )


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (("focus =", "focal ="), "Did you mean 'focus'"),
        (("seed = 1", 'seed = "one"'), "'seed' must be int, got str"),
        (("articles.csv", "papers.csv"), "papers.csv"),
        (("[human]", "[humans]"), "Did you mean 'human'"),
        (("[subsets]", "[sampling]\nstrat = 'place'\n[subsets]"), "Did you mean 'strata'"),
        (('data = "articles.csv"', "data = "), "not valid TOML"),
        (('data = "articles.csv"\n', ""), "lacks 'data'"),
        (("log(words)", "__import__('os').system('x')"), "__import__"),
        (("log(words)", "open('x')"), r"open\('x'\)"),
        (("log(words)", "np.log(words)"), "may not use"),
        (("log(words)", "I((lambda: 1)())"), "lambda"),
        (("log(words)", "I([a for a in words])"), "may not use"),
        (("log(words)", "I(words ** 9 ** 9 ** 9)"), "may not use"),
        (("log(words)", "I(words ** 99)"), "may not use"),
        (("log(words)", "I('a' * 10 > words)"), "may not use"),
        (("log(words)", "I([0] * 10 > words)"), "may not use"),
        (("log(words)", "sw(words"), "not closed"),
        (("log(words)", "C(place, contr.custom)"), "may not use"),
        (('["v ~ t + log(words)"]', '["v ~ t", 3]'), "'formulas' must hold text"),
        (('["v ~ t + log(words)"]', "{a = 3}"), "'formulas' must hold text"),
        (('["v ~ t + log(words)"]', "[]"), "formulas= is empty"),
        (('v = "v_human"', "v = 3"), "'human' must hold variable = column"),
        (('v = "{model}__{prompt}"', "v = 3"), "'llm' must hold"),
        (("land = \"place == 'land'\"", "land = 3"), "'subsets' must hold"),
        (("[subsets]", "[sampling]\nstrata = 3\n[subsets]"), "'sampling' must hold"),
        (('"auto"]', "3]"), "'corrections' must hold text"),
        (("seed = 1", "seed = true"), "'seed' must be int, got bool"),
        (("seed = 1", "use = [1]"), "'use' must hold annotators"),
        (("seed = 1", f"seed = {'9' * 5000}"), "not valid TOML"),
        (("seed = 1", f"use = {'[' * 3000}{']' * 3000}"), "nested too deeply|not valid TOML"),
        (("seed = 1", f'title = "{"x" * 1_000_001}"'), "larger than 1,000,000 bytes"),
        (("seed = 1", "exclude = \"llm * 999999999 == 'a'\""), "condition of exclude"),
        (("place == 'land'", "place * 2 > 'a' * 999999999"), "condition of subset 'land'"),
        (("v ~ t + log(words)", "v ~ (((t+x)**9)**9)**9"), "more than 500 terms"),
        (("log(words)", "mvsw(a,b,c,d,e,f,g,h,i,j,k)"), "make 2,048 formulas"),
        (("log(words)", "mvsw(a,b,c,d,e,f,g,h,i) + (a+b+c+d+e)**3"), "terms together"),
    ],
)
def test_bad_plans(folder, change, match):
    plan = folder / "plan.toml"
    plan.write_text(PLAN.replace(*change))
    with pytest.raises(PlanError, match=match):
        read_plan(plan)
    done = CliRunner().invoke(app, ["run", str(plan), "--out", str(folder / "r")])
    assert done.exit_code == 1
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (("log(words)", "log(word)"), "'word', which is neither.*Did you mean 'words'"),
        (("log(words)", "C(plaice)"), "Did you mean 'place'"),
        (("v ~", "w ~"), "'w', which is neither"),
        (("log(words)", "v_human"), "'v_human', which holds the human labels of 'v'"),
        (("log(words)", "I(place * 999999999)"), "calculates with 'place'"),
        (("place == 'land'", "place * 999999999 == 'land'"), "calculates with 'place'"),
        (("log(words)", "C(words)*C(x)"), "about 360,001 columns.*absorb effects after a bar"),
        (("log(words)", "C(words):poly(x, 9)"), "about 5,39. columns"),
        (('focus = "t"', 'focus = "tt"'), "Did you mean 't'"),
    ],
)
def test_names_are_checked_against_the_data_before_anything_is_fitted(
    folder, change, match, monkeypatch
):
    def never(*_, **__):
        raise AssertionError("fitted")

    monkeypatch.setattr("trueup.api.run_universes", never)
    (folder / "plan.toml").write_text(PLAN.replace(*change))
    done = invoke("run", folder / "plan.toml", "--out", folder / "r")
    assert done.exit_code == 1
    assert re.search(match, done.output), done.output


def test_a_column_of_lists_is_refused(folder):
    table = pd.read_csv(folder / "articles.csv").assign(parts=[[1, 2]] * 600)
    table.to_parquet(folder / "articles.parquet")
    text = PLAN.replace("articles.csv", "articles.parquet").replace("log(words)", "parts")
    (folder / "plan.toml").write_text(text)
    done = invoke("run", folder / "plan.toml", "--out", folder / "r")
    assert done.exit_code == 1
    assert "Error: Column 'parts'" in done.output


@pytest.mark.parametrize("contrast", ["contr.treatment('town')", "contr.sum", "contr.helmert()"])
def test_contrasts_of_a_plan(folder, contrast):
    text = PLAN.replace("log(words)", f"C(place, {contrast})")
    (folder / "plan.toml").write_text(text)
    done = invoke("run", folder / "plan.toml", "--out", folder / "r")
    assert done.exit_code == 0, done.output
    table = pd.read_csv(folder / "r/estimates.csv")
    assert table.loc[table["subset"] == "all", "term"].str.contains("place").any()


def test_a_run_in_which_every_universe_fails_says_why(folder):
    text = PLAN.replace('family = "logit"', 'family = "iv"')
    (folder / "plan.toml").write_text(text)
    out = folder / "r"
    done = invoke("run", folder / "plan.toml", "--out", out)
    assert done.exit_code == 1
    assert "Traceback" not in done.output
    assert re.search(r"none of \d+ universes could be fitted", done.output)
    assert re.search(r"\d+ universes: FormulaError: ", done.output)
    table = pd.read_csv(out / "estimates.csv")
    assert set(table["status"]) == {"failed"}
    assert table["error"].str.len().min() > 20
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["failed"] == manifest["universes"] == len(table)
    page = (out / "report.html").read_text()
    assert "so there is no estimate" in page
    assert page.count("FormulaError") >= len(table)
    assert (out / "estimates.parquet").is_file()
    again = invoke("report", out)
    assert again.exit_code == 1
    assert "could be fitted" in again.output


def test_missing_files(tmp_path):
    with pytest.raises(PlanError, match="cannot be read"):
        read_plan(tmp_path / "none.toml")
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert done.exit_code == 1


def test_formulas_that_never_end_are_refused_before_they_are_read():
    with pytest.raises(PlanError, match="may not use"):
        check_formula("y ~ I(2 ** x)")
    check_formula("y ~ (a + b)**2 + I(x ** 0.5)")


def test_the_report_comes_from_the_store_and_needs_the_same_data(folder):
    out = folder / "results"
    assert invoke("run", folder / "plan.toml", "--out", out).exit_code == 0
    kept = {f: f.stat().st_mtime_ns for f in (out / "store").iterdir()}
    manifest = (out / "manifest.json").read_text()
    # The results say what their plan was, whatever became of the file, and wherever they are.
    (folder / "plan.toml").write_text("changed")
    moved = folder.with_name(f"{folder.name}-moved")
    folder.rename(moved)
    done = invoke("report", moved / "results")
    assert done.exit_code == 0, done.output
    assert (moved / "results/manifest.json").read_text() == manifest
    assert {f.name for f in (moved / "results/store").iterdir()} == {f.name for f in kept}
    data = moved / "articles.csv"
    data.write_text(data.read_text().replace("land", "town", 1))
    again = invoke("report", moved / "results")
    assert again.exit_code == 1
    assert "have changed since" in again.output


def test_tables_of_a_run(folder):
    out = folder / "results"
    title = PLAN.replace("seed = 1", 'seed = 1\ntitle = "Blame & <praise>"')
    (folder / "plan.toml").write_text(title)
    assert invoke("run", folder / "plan.toml", "--out", out, "--jobs", "1").exit_code == 0
    pd.testing.assert_frame_equal(
        pd.read_parquet(out / "estimates.parquet").drop(columns=["error", "warnings"]),
        pd.read_csv(out / "estimates.csv").drop(columns=["error", "warnings"]),
    )
    focus = pd.read_csv(out / "focus.csv")
    assert set(focus["term"]) == {"t"}
    assert focus["simultaneous_low"].notna().all()
    assert "Blame &amp; &lt;praise&gt;" in (out / "report.html").read_text()
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["annotators"]["gpt__short"] == {"model": "gpt", "prompt": "short"}
    assert manifest["versions"]["trueup"] == tu.__version__
    assert manifest["data"]["path"] == "../articles.csv"


def test_a_label_called_none_is_no_missing_value(tmp_path):
    file = tmp_path / "d.csv"
    file.write_text("h,f,x\nNone,n/a,1\n,NA,2\n")
    table = read_data(file)
    assert table["h"].tolist()[0] == "None"
    assert table["f"].tolist()[0] == "n/a"
    assert table.isna().sum().tolist() == [1, 1, 0]


@pytest.mark.parametrize("name", ["d.csv", "d.csv.gz", "d.tsv", "d.parquet"])
def test_kinds_of_data_files(tmp_path, name):
    table = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    file = tmp_path / name
    if name.endswith("parquet"):
        table.to_parquet(file)
    else:
        table.to_csv(file, index=False, sep="\t" if "tsv" in name else ",")
    pd.testing.assert_frame_equal(read_data(file), table)


def test_data_that_cannot_be_read(tmp_path):
    file = tmp_path / "d.csv"
    file.write_text("")
    with pytest.raises(PlanError, match="cannot be read"):
        read_data(file)


def test_results_that_cannot_be_written(folder):
    (folder / "taken").write_text("a file")
    done = invoke("run", folder / "plan.toml", "--out", folder / "taken")
    assert done.exit_code == 1
    assert "Error: The store" in done.output
