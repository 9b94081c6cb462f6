"""Learn the human label from LLM labels and the other variables of the regression."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trueup.corrections.label_model import multinomial_ridge, softmax
from trueup.errors import ArgumentError, CorrectionError
from trueup.study.design import Float


class Learner(Protocol):
    """Predicts labels: numbers, or a probability for each class."""

    def predict(
        self, features: Float, labels: NDArray[Any], classes: tuple[Any, ...] | None, new: Float
    ) -> Float:
        """Return (m,) numbers, or (m, C) probabilities where classes are given."""
        ...


@dataclass(frozen=True, slots=True)
class Calibration:
    """Ridge regression for numbers, ridge-penalised (multinomial) logit for classes.

    Parameters
    ----------
    penalty : float
        Ridge penalty on standardised features, in units of one coded row.
    """

    penalty: float = 1.0

    def __post_init__(self) -> None:
        """Check the penalty."""
        if not isinstance(self.penalty, Real) or not 0.0 <= self.penalty < np.inf:
            raise ArgumentError(
                f"penalty={self.penalty!r} cannot be used: give a number of 0 or more."
            )

    def predict(
        self, features: Float, labels: NDArray[Any], classes: tuple[Any, ...] | None, new: Float
    ) -> Float:
        """Fit on ``features`` (n, q) and ``labels`` (n,), predict for ``new`` (m, q)."""
        centre, spread = features.mean(axis=0), features.std(axis=0)
        spread = np.where(spread > 1e-12 * np.maximum(np.abs(centre), 1.0), spread, np.inf)
        x = np.column_stack([np.ones(len(features)), (features - centre) / spread])
        if classes is None:
            coef = _ridge(x, labels.astype(float), self.penalty)
        else:
            coef = _multinomial(x, labels, classes, self.penalty)
        slope = coef[1:] / spread[:, None]
        eta = new @ slope + (coef[0] - centre @ slope)
        return eta[:, 0] if classes is None else softmax(eta)


@dataclass(frozen=True, slots=True)
class SklearnLearner:
    """Any scikit-learn classifier or regressor."""

    estimator: Any

    def predict(
        self, features: Float, labels: NDArray[Any], classes: tuple[Any, ...] | None, new: Float
    ) -> Float:
        """Fit a clone of the estimator and predict."""
        from sklearn.base import clone

        model = clone(self.estimator)
        if classes is None and getattr(model, "_estimator_type", "") == "classifier":
            raise CorrectionError(
                f"learner={self.estimator!r} is a classifier, but the label is a number: give a "
                "regressor."
            )
        if classes is None:
            return np.asarray(model.fit(features, labels.astype(float)).predict(new), dtype=float)
        codes = np.array([classes.index(v) for v in labels.tolist()])
        present = np.unique(codes)
        out = np.zeros((len(new), len(classes)))
        if len(present) == 1:
            out[:, present[0]] = 1.0
            return out
        model.fit(features, codes)
        if hasattr(model, "predict_proba"):
            out[:, model.classes_] = model.predict_proba(new)
        elif len(classes) == 2:
            out[:, 1] = np.clip(model.predict(new), 0.0, 1.0)
            out[:, 0] = 1.0 - out[:, 1]
        else:
            out[np.arange(len(new)), np.asarray(model.predict(new), dtype=int)] = 1.0
        return out


def as_learner(learner: Any) -> Learner:
    """Return a learner for None, one of ours, or a scikit-learn estimator."""
    if learner is None:
        return Calibration()
    if isinstance(learner, (Calibration, SklearnLearner)):
        return learner
    if hasattr(learner, "fit") and hasattr(learner, "predict"):
        return SklearnLearner(learner)
    raise CorrectionError(
        f"learner={learner!r} has no fit and predict methods: give a scikit-learn classifier "
        "or regressor, or leave it out."
    )


def _ridge(x: Float, y: Float, penalty: float) -> Float:
    gram = x.T @ x
    gram[np.arange(1, len(gram)), np.arange(1, len(gram))] += penalty
    return np.asarray(np.linalg.solve(gram, x.T @ y)[:, None])


def _multinomial(x: Float, labels: NDArray[Any], classes: tuple[Any, ...], penalty: float) -> Float:
    """Return (q + 1, C - 1) coefficients by Newton steps on the penalised log-likelihood.

    The intercepts get a penalty of a hundredth of a row: enough for a class that no coded row
    of the fold has, too little to matter otherwise.
    """
    target = np.column_stack([labels == c for c in classes]).astype(float)[:, 1:]
    ridge = np.full(x.shape[1], penalty)
    ridge[0] = 0.01
    advice = "Raise its penalty: tu.DSL(learner=tu.Calibration(penalty=10))."
    return multinomial_ridge(x, target, ridge, advice)[0]
