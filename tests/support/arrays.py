"""A frame made of arrays, for tests and benchmarks that go below formulas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trueup.formula.blocks import compact
from trueup.formula.rows import MadeBlocks, Rows, block_size


@dataclass(frozen=True)
class ArrayFrame:
    """Labels in the outcome only: one design matrix for every source of labels."""

    X: np.ndarray
    coded: np.ndarray
    v: np.ndarray
    llm_outcomes: Mapping[str, np.ndarray]
    variables: tuple[str, ...] = ("y",)
    outcome_is_label: bool = True
    covariate_labels: tuple[str, ...] = ()
    class_labels: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def terms(self):
        return tuple(f"x{j}" for j in range(self.X.shape[1]))

    def human(self):
        return Rows(y=self.v, X=self.X[self.coded])

    def llm(self, annotator):
        return Rows(y=self.llm_outcomes[annotator], X=self.X)

    def llm_outcome(self, annotator):
        return self.llm_outcomes[annotator]

    def holds(self):
        return True

    def blocks(self, annotators, size=None):
        X, outcomes = self.X, [compact(self.llm_outcomes[a]) for a in annotators]

        def make(part):
            shared = X[part]
            return tuple(Rows(np.asarray(y[part], float), shared) for y in outcomes)

        size = block_size(X.shape[1]) if size is None else size
        return MadeBlocks(len(X), X.shape[1], True, True, size, make, 65_536)

    def rows(self, labels, index):
        X = self.X if index is None else self.X[index]
        return Rows(y=labels["y"], X=X)

    def human_labels(self, variable):
        return self.v

    def llm_labels(self, variable, annotator):
        return self.llm_outcomes[annotator]
