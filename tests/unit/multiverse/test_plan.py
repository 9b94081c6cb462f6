"""Plan files and the command line."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from trueup.cli import app
from trueup.errors import PlanError
from trueup.plan import check_formula, read_plan

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


def test_missing_files(tmp_path):
    with pytest.raises(PlanError, match="cannot be read"):
        read_plan(tmp_path / "none.toml")
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert done.exit_code == 1


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ x + log(z)",
        "y ~ x*C(g) + poly(z, degree=2) - 1",
        "log(y) ~ bs(x, df=4):g + I(x**2 > 3)",
        "y ~ x + [d ~ z] | a + b^c",
        "y ~ `a column` + I(g == 'it''s')",
    ],
)
def test_ordinary_formulas_pass(formula):
    check_formula(formula)
