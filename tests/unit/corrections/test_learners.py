"""The label learner against scikit-learn, and its edge cases."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

from trueup.corrections.learners import Calibration, SklearnLearner, as_learner
from trueup.errors import CorrectionError

RNG = np.random.default_rng(5)
X = RNG.normal(size=(200, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, 2.0]
Z = (X - X.mean(axis=0)) / X.std(axis=0)


def test_numbers_are_ridge_regression_on_standardised_features():
    y = X @ [1.0, 0.1, 3.0] + RNG.normal(size=200)
    ours = Calibration(penalty=4.0).predict(X, y, None, X)
    theirs = Ridge(alpha=4.0).fit(Z, y).predict(Z)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


@pytest.mark.parametrize("classes", [(0.0, 1.0), ("a", "b", "c")])
def test_classes_are_penalised_logit(classes):
    # scikit-learn leaves the intercept free; ours carries a hundredth of a row: 1e-3.
    labels = np.array(classes)[RNG.integers(0, len(classes), 200)]
    labels[X[:, 0] > 0.5] = classes[-1]
    ours = Calibration(penalty=1.0).predict(X, labels, classes, X)
    model = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000)
    if len(classes) == 2:
        np.testing.assert_allclose(ours, model.fit(Z, labels).predict_proba(Z), atol=1e-3)
    assert ours.shape == (200, len(classes))
    np.testing.assert_allclose(ours.sum(axis=1), 1.0)
    # At the optimum the mean prediction is the share of each class, up to the ridge.
    shares = [np.mean(labels == c) for c in classes]
    np.testing.assert_allclose(ours.mean(axis=0), shares, atol=1e-3)


def test_a_class_without_rows_has_small_probability():
    labels = np.full(200, 1.0)
    out = Calibration().predict(X, labels, (0.0, 1.0), X)
    assert (out[:, 0] < 0.05).all()


def test_a_constant_feature_does_no_harm():
    y = X[:, 0] + RNG.normal(size=200)
    wide = np.column_stack([X, np.full(200, 3.0)])
    a = Calibration().predict(X, y, None, X)
    b = Calibration().predict(wide, y, None, wide)
    np.testing.assert_allclose(a, b, rtol=1e-9)


def test_scikit_learn_estimators_are_taken():
    y = X @ [1.0, 0.1, 3.0]
    learner = as_learner(LinearRegression())
    assert isinstance(learner, SklearnLearner)
    np.testing.assert_allclose(learner.predict(X, y, None, X), y)
    labels = np.where(X[:, 0] > 0, "yes", "no")
    out = as_learner(LogisticRegression()).predict(X, labels, ("maybe", "no", "yes"), X)
    assert out.shape == (200, 3)
    assert (out[:, 0] == 0).all()
    assert ((out[:, 2] > 0.5) == (labels == "yes")).mean() > 0.95


def test_a_learner_needs_fit_and_predict():
    with pytest.raises(CorrectionError, match="fit and predict"):
        as_learner("forest")
