"""``import trueup`` stays cheap: heavy libraries come in when they are used."""

import subprocess
import sys

import pytest

HEAVY = ["statsmodels", "linearmodels", "matplotlib", "sklearn", "polars", "pyarrow", "typer"]


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("library", HEAVY)
def test_import_trueup_leaves_heavy_libraries_alone(library):
    # What formulaic and pandas import on their own is not ours to avoid.
    own = modules_after("import trueup") - modules_after("import formulaic, narwhals")
    assert library not in own
