"""Real labels of real LLMs; skipped where the data are not beside the project."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import trueup as tu

DATA = Path(__file__).parents[4] / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the real labels are not here")


def coded(d, gold, n, seed):
    drawn = np.random.default_rng(seed).choice(len(d), n, replace=False)
    return d.assign(coder=d[gold].where(np.isin(np.arange(len(d)), drawn))).drop(columns=gold)


def test_judges_of_instruction_following_disagree_about_the_sign():
    d = pd.read_csv(DATA / "llmbar.csv")
    d = d[d["kind"].isin(["natural", "adversarial"])]
    X = np.column_stack([np.ones(len(d)), d["log_len_ratio"]])
    human = np.linalg.lstsq(X, d["gold"], rcond=None)[0][1]
    assert human == pytest.approx(-0.202, abs=0.001)
    cells = [c for c in d if "__" in c and not c.endswith("__swap")]
    cells = [c for c in cells if d[c].notna().any()]
    s = tu.Study(
        coded(d[["gold", "log_len_ratio", *cells]], "gold", 150, 7),
        human={"gold": "coder"},
        llm={"gold": cells},
    )
    mv = tu.multiverse(
        "gold ~ log_len_ratio",
        s,
        focus="log_len_ratio",
        corrections=["naive", "ptd"],
        progress=False,
    )
    assert len(mv.failed()) == 0
    table = mv.tidy().set_index("correction")
    naive, corrected = table.loc["naive"], table.loc["ptd"]
    assert naive["estimate"].min() < -0.11
    assert naive["estimate"].max() > 0.17
    assert (naive["conf_high"] < 0).any()
    assert (naive["conf_low"] > 0).any()
    assert (corrected["simultaneous_low"] < human).all()
    assert (corrected["simultaneous_high"] > human).all()
    tests = mv.agree_test().tests.set_index("correction")
    assert tests.loc["naive", "p_value"] < 1e-10


def test_graders_of_short_answers_agree_on_the_sign_and_not_on_the_size():
    d = pd.read_csv(DATA / "saq.csv")
    cells = [c for c in d if "__" in c]
    s = tu.Study(
        coded(d[["human", "log_words", "item", *cells]], "human", 250, 3),
        human={"human": "coder"},
        llm={"human": cells},
    )
    mv = tu.multiverse(
        "human ~ log_words + C(item)",
        s,
        focus="log_words",
        corrections=["naive"],
        progress=False,
    )
    estimates = mv.tidy()["estimate"]
    assert len(estimates) == len(cells)
    assert (estimates > 0).all()
    assert estimates.min() < 0.08
    assert estimates.max() > 0.28
