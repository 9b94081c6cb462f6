"""Made tables of universes: no fitting, known numbers."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

DIMENSIONS = ("llm", "model", "prompt", "formula", "correction", "subset")


def universes(
    models=("alpha", "beta"),
    prompts=("p1", "p2"),
    formulas=("y ~ x",),
    subsets=("all",),
    corrections=("naive", "dsl"),
    human=False,
):
    """Return a tidy table whose estimates are all different."""
    rows = []
    for model, prompt, formula, subset, correction in product(
        models, prompts, formulas, subsets, corrections
    ):
        rows.append((f"{model}__{prompt}", model, prompt, formula, correction, subset))
    if human:
        rows += [("none", "none", "none", f, "human", s) for f, s in product(formulas, subsets)]
    table = pd.DataFrame(rows, columns=list(DIMENSIONS))
    table.insert(0, "universe", np.arange(len(table)))
    # Distinct, and not in the order of the rows.
    table["estimate"] = (np.arange(len(table)) * 7 % len(table)) / len(table) - 0.25
    table["std_error"] = np.where(table["correction"] == "naive", 0.05, 0.1)
    for name, width in [("conf", 2.0), ("simultaneous", 3.0)]:
        table[f"{name}_low"] = table["estimate"] - width * table["std_error"]
        table[f"{name}_high"] = table["estimate"] + width * table["std_error"]
    table["p_value"] = 0.5
    return table.assign(status="ok", error="", warnings="")


@pytest.fixture
def eight():
    return universes()


@pytest.fixture(scope="session")
def three_hundred():
    models = tuple(f"family/model-{i}-instruct-with-a-long-name" for i in range(25))
    return universes(
        models, ("p1", "p2", "p3"), ("y ~ x",), ("all",), ("naive", "ppi++", "dsl", "ptd")
    )


@pytest.fixture
def make():
    return universes


@pytest.fixture(scope="session")
def evil_page():
    from trueup.report.html import page

    from .evil import evil_content

    return page(evil_content())
