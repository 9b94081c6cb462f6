"""Small hand-made problems: ordinary least squares on made-up rows, without the package's core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from trueup.corrections.base import Estimate, Problem
from trueup.formula.rows import Rows
from trueup.inference.vcov import Vcov
from trueup.results.fit import Fit
from trueup.study.design import Draw, SampleDesign
from trueup.study.labels import Annotator

N, N_CODED = 300, 60
TERMS = ("Intercept", "x", "C(group)[T.b]", "x:C(group)[T.b]")


@dataclass(frozen=True)
class FakeFamily:
    """Least squares, or a mean of exp(X theta) to have a curved one."""

    name: str = "ols"

    def mean(self, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        return X @ theta if self.name == "ols" else np.exp(X @ theta)

    def mean_gradient(self, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        return X if self.name == "ols" else X * np.exp(X @ theta)[:, None]

    def prepare(self, rows: Rows, weights: np.ndarray | None) -> Rows:
        """Take group means out where there are groups (equal weights)."""
        if not rows.groups:
            return rows
        every = pd.DataFrame(np.column_stack([rows.y, rows.X]))
        within = (every - every.groupby(rows.groups[0]).transform("mean")).to_numpy()
        return replace(rows, y=within[:, 0], X=within[:, 1:], groups=())


@dataclass(frozen=True)
class FakeFrame:
    """A design matrix that all sources share, and one outcome for each source."""

    X: np.ndarray
    coder: np.ndarray
    labels: Mapping[str, np.ndarray]
    coded: np.ndarray
    terms: tuple[str, ...] = TERMS
    variables: tuple[str, ...] = ("positive",)
    covariate_labels: tuple[str, ...] = ()
    outcome_is_label: bool = True
    class_labels: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    groups: tuple[np.ndarray, ...] = ()

    def human(self) -> Rows:
        return self._rows(self.coder).take(self.coded)

    def llm(self, annotator: str) -> Rows:
        return self._rows(self.labels[annotator])

    def new_rows(self, data: pd.DataFrame) -> np.ndarray:
        b = (data["group"] == "b").to_numpy(dtype=float)
        x = data["x"].to_numpy(dtype=float)
        return np.column_stack([np.ones(len(x)), x, b, x * b])

    def _rows(self, y: np.ndarray) -> Rows:
        return Rows(y=y, X=self.X, groups=self.groups)


@dataclass(frozen=True)
class FakeStudy:
    frame: FakeFrame
    missing: Mapping[str, np.ndarray]
    metadata: Mapping[str, Mapping[str, str]]

    @property
    def n_rows(self) -> int:
        return len(self.frame.X)

    @property
    def positions(self) -> np.ndarray:
        return np.arange(self.n_rows) + 1000

    def annotator(self, name: str) -> Annotator:
        return Annotator(name, {"positive": name}, self.metadata.get(name, {}))

    def human_labels(self, variable: str) -> np.ndarray:
        out = np.full(self.n_rows, np.nan)
        out[self.frame.coded] = self.frame.coder[self.frame.coded]
        return out

    def llm_labels(self, variable: str, annotator: str) -> np.ndarray:
        return self.frame.labels[annotator]

    def llm_missing(self, variable: str, annotator: str) -> np.ndarray:
        return self.missing.get(annotator, np.zeros(self.n_rows, dtype=bool))


@dataclass(frozen=True)
class FakeCorrection:
    name: str = "ptd"

    def estimate(self, problem: Problem) -> Estimate:
        raise NotImplementedError


@dataclass(frozen=True)
class World:
    """The rows, and their coded part as a statsmodels result to compare with."""

    fit: Fit
    frame: FakeFrame
    reference: Any
    """statsmodels OLS of the human labels on the coded rows, HC3, t with n - p."""


def make_frame() -> FakeFrame:
    rng = np.random.default_rng(5)
    x, b = rng.normal(size=N), rng.integers(0, 2, size=N).astype(float)
    X = np.column_stack([np.ones(N), x, b, x * b])
    y = X @ [0.3, 0.5, -0.2, 0.1] + rng.normal(size=N)
    labels = {
        "gpt__p1": y + 0.4 * x + rng.normal(scale=0.5, size=N),
        "llama__p1": y - 0.2 * b + rng.normal(scale=0.7, size=N),
    }
    coded = np.sort(rng.choice(N, N_CODED, replace=False))
    return FakeFrame(X=X, coder=y, labels=labels, coded=coded)


def ols(y: np.ndarray, X: np.ndarray) -> Any:
    return sm.OLS(y, X).fit(cov_type="HC3", use_t=True)


def make_world(
    correction: str = "ptd",
    annotators: tuple[str, ...] = ("gpt__p1",),
    df: float | np.ndarray | None = None,
    family: str = "ols",
    level: float = 0.95,
    missing: Mapping[str, np.ndarray] | None = None,
    metadata: Mapping[str, Mapping[str, str]] | None = None,
    frame: FakeFrame | None = None,
    design: Mapping[str, Any] | None = None,
    **estimate: Any,
) -> World:
    frame = make_frame() if frame is None else frame
    result = ols(frame.coder[frame.coded], frame.X[frame.coded])
    p = len(result.params)
    e = Estimate(
        theta=result.params,
        vcov=result.cov_params(),
        df=np.full(p, result.df_resid) if df is None else np.broadcast_to(df, (p,)).astype(float),
        h=np.zeros((N_CODED, p)),
        d=np.zeros((N_CODED, p)),
    )
    e = replace(e, **estimate)
    sample = SampleDesign(
        n_rows=N,
        coded=frame.coded,
        draw=Draw.SRS,
        probability=np.full(N_CODED, N_CODED / N),
    )
    missing = {} if missing is None else missing
    problem = Problem(
        family=FakeFamily(family),
        frame=frame,
        design=replace(sample, **(design or {})),
        annotators=annotators,
        vcov=Vcov(),
        missing=missing,
    )
    fit = Fit(
        estimate=e,
        problem=problem,
        study=FakeStudy(frame, missing, metadata or {}),
        formula="positive ~ x * C(group)",
        correction=FakeCorrection(correction),
        level=level,
        call="tu.ols('positive ~ x * C(group)', study, llm='gpt__p1')",
    )
    return World(fit=fit, frame=frame, reference=result)


@pytest.fixture
def world() -> World:
    return make_world()


@pytest.fixture
def make() -> Callable[..., World]:
    return make_world
