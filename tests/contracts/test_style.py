"""Style, types and the order of rooms, checked by the tools that define them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize("arguments", [["check"], ["format", "--check"]], ids=["check", "format"])
def test_ruff(arguments):
    run(sys.executable, "-m", "ruff", *arguments, "src", "tests", "datasets")


def test_mypy_strict_on_src():
    run(sys.executable, "-m", "mypy")


def test_rooms_import_only_from_rooms_above():
    linter = Path(sys.executable).with_name("lint-imports")
    run(str(linter), "--no-cache")


def test_every_module_of_the_package_stands_in_the_layer_contract():
    import tomllib

    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = config["tool"]["importlinter"]["contracts"][0]["layers"]
    rooms = {f"trueup.{p.stem}" for p in (ROOT / "src/trueup").iterdir() if p.stem[0] != "_"}
    assert rooms - {"trueup.py"} == set(layers)


def test_ci_runs_exactly_the_command_of_the_readme():
    command = (ROOT / ".ci/run").read_text().strip().splitlines()[-1]
    assert command in (ROOT / "README.md").read_text()


def test_project_speaks_of_the_project_alone():
    hosts = re.compile(r"https?://(?!doi\.org|arxiv\.org|www\.r-project\.org)[\w.]*pypi", re.I)
    for path in [*ROOT.glob("*.md"), *ROOT.glob("vignettes/*.md"), *ROOT.glob("src/**/*.py")]:
        assert not hosts.search(path.read_text()), path


def test_no_source_file_is_ignored_by_git():
    # A rule meant for the folder of a run once hid a whole room from every clone.
    files = [str(p.relative_to(ROOT)) for p in (ROOT / "src").rglob("*.py")]
    done = subprocess.run(
        ["git", "check-ignore", *files], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
