"""Every vignette runs from top to bottom."""

from pathlib import Path

import pytest

VIGNETTES = sorted((Path(__file__).parents[2] / "vignettes").glob("*.md"))


@pytest.mark.parametrize("path", VIGNETTES, ids=lambda p: p.stem)
def test_vignette_runs(path):
    import jupytext

    notebook = jupytext.read(path)
    cells = [c["source"] for c in notebook["cells"] if c["cell_type"] == "code"]
    assert len(cells) > 3
    names: dict = {}
    for number, source in enumerate(cells, 1):
        exec(compile(source, f"{path.name}, cell {number}", "exec"), names)
