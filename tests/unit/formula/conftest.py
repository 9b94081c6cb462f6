"""A small stand-in for a study, with every kind of column a formula may meet."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest

from trueup.study.design import Draw, SampleDesign

N, CODED = 400, 120


@dataclass
class FakeStudy:
    """What the formula room needs from a study, over plain arrays."""

    table: pd.DataFrame
    human: dict[str, np.ndarray]
    llm: dict[tuple[str, str], np.ndarray]
    coded: np.ndarray
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def n_rows(self):
        return len(self.table)

    @property
    def variables(self):
        return tuple(self.human)

    @property
    def columns(self):
        return tuple(self.table.columns)

    @property
    def human_columns(self):
        return {v: f"{v} by hand" for v in self.human}

    @property
    def annotators(self):
        return tuple(dict.fromkeys(a for _, a in self.llm))

    def human_labels(self, variable):
        return self.human[variable]

    def llm_labels(self, variable, annotator):
        return self.llm[variable, annotator]

    def levels(self, variable):
        return self.classes.get(variable)

    def covariates(self, columns, part=None):
        rows = self.table.loc[:, list(columns)]
        return (rows if part is None else rows.iloc[part]).reset_index(drop=True)

    def design(self, variables):
        n = len(self.coded)
        return SampleDesign(
            n_rows=self.n_rows,
            coded=self.coded,
            draw=Draw.SRS,
            probability=np.full(n, n / self.n_rows),
        )

    def data(self, annotator):
        """All columns and the labels of one annotator, as one would give them to formulaic."""
        labels = {v: self.llm[v, annotator] for v in self.human}
        return self.table.assign(**labels)

    def human_data(self):
        labels = {v: self.human[v][self.coded] for v in self.human}
        return self.table.iloc[self.coded].reset_index(drop=True).assign(**labels)


def mostly(rng, truth, wrong):
    """Labels that agree with the truth three times out of four."""
    return np.where(rng.random(len(truth)) < 0.75, truth, wrong)


def hide(values, coded):
    missing = None if values.dtype == object else np.nan
    out = np.full(len(values), missing, dtype=values.dtype)
    out[coded] = values[coded]
    return out


def make_study(seed=1):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "x": rng.normal(size=N),
            "w": rng.integers(1, 60, N),
            "z": rng.gamma(2.0, size=N),
            "flag": rng.random(N) < 0.4,
            "g": rng.choice(["news", "tweet", "film"], N),
            "grade": pd.Categorical(
                rng.choice(["low", "mid", "high"], N), ["low", "mid", "high", "never"]
            ),
            "year": rng.integers(2019, 2023, N),
            "my col": rng.normal(size=N),
            "school": rng.choice(["s1", "s2", "s3", "s4"], N),
        }
    )
    coded = np.sort(rng.choice(N, CODED, replace=False))
    pos = (rng.random(N) < 0.5).astype(float)
    score = rng.normal(3.0, 1.0, N)
    topic = rng.choice(np.array(["econ", "law", "war"], dtype=object), N)
    other = rng.choice(np.array(["econ", "law", "war"], dtype=object), N)
    llm = {}
    for a in ("gpt", "bert"):
        llm["pos", a] = mostly(rng, pos, 1.0 - pos)
        llm["score", a] = score + rng.normal(size=N)
        llm["topic", a] = mostly(rng, topic, other).astype(object)
    human = {v: hide(x, coded) for v, x in (("pos", pos), ("score", score), ("topic", topic))}
    return FakeStudy(table, human, llm, coded, {"topic": ("econ", "law", "war")})


@pytest.fixture
def study():
    return make_study()
