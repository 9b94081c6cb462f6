"""``import trueup`` stays cheap: heavy libraries come in when they are used."""

import subprocess
import sys

HEAVY = [
    "statsmodels",
    "linearmodels",
    "matplotlib",
    "scipy.optimize",
    "scipy.stats",
    "sklearn",
    "polars",
    "pyarrow",
    "typer",
]


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_trueup_leaves_heavy_libraries_alone():
    # What formulaic and narwhals import on their own is not ours to avoid.
    own = modules_after("import trueup") - modules_after("import formulaic, narwhals")
    assert not own.intersection(HEAVY)
