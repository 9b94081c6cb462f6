"""A small study with two annotators on which a whole multiverse takes a second."""

import numpy as np
import pytest

import trueup as tu
from support.made import texts


@pytest.fixture(scope="session")
def data():
    d = texts(N=600, n=150, outcome="binary", seed=3)
    d["place"] = np.where(np.arange(600) % 3 == 0, "town", "land")
    return d.rename(columns={"f1": "gpt__short", "f2": "gpt__long"}).assign(
        llama__short=lambda d: d["gpt__long"].where(d["x"] > -1, 1 - d["gpt__long"])
    )


@pytest.fixture(scope="session")
def small(data):
    return tu.Study(data.drop(columns="v"), human={"v": "v_human"}, llm={"v": "{model}__{prompt}"})


@pytest.fixture(scope="session")
def options():
    return {
        "family": ["ols", "logit"],
        "focus": "t",
        "corrections": ["naive", "human", "ptd", tu.DSL(repeats=2)],
        "subsets": {"all": None, "land": "place == 'land'"},
        "progress": False,
        "seed": 7,
    }


@pytest.fixture(scope="session")
def mv(small, options):
    return tu.multiverse(["v ~ t", "v ~ t + x"], small, **options)
