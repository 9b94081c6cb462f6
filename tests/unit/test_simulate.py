"""The antibiotics study: what the closed form says, and that draws follow it."""

import numpy as np
import pandas as pd
import pytest

from trueup.errors import ArgumentError
from trueup.simulate import antibiotics, antibiotics_limits

# Annotator: accuracy, log odds ratio.
PUBLISHED = {
    "random": (0.850, 0.620),
    "under_treated": (0.936, 0.371),
    "under_control": (0.938, 1.430),
}


@pytest.fixture(scope="module")
def large():
    return antibiotics(2_000_000, seed=7)


def log_odds(share):
    return np.log(share / (1 - share))


def effect(data, label):
    """The saturated logit of a label on one 0/1 covariate is a difference of log odds."""
    share = data.groupby("treated")[label].mean()
    return log_odds(share[1]) - log_odds(share[0])


def test_limits_are_the_published_ones():
    limits = antibiotics_limits().set_index("annotator")
    assert limits.index.tolist() == list(PUBLISHED)
    for name, (accuracy, estimate) in PUBLISHED.items():
        assert limits.loc[name, "accuracy"] == pytest.approx(accuracy, abs=1e-3)
        assert limits.loc[name, "estimate"] == pytest.approx(estimate, abs=1e-3)


def test_intercept_of_the_random_annotator_by_hand():
    control = 1 / (1 + np.exp(1.43))
    seen = control * 0.85 + (1 - control) * 0.15
    limits = antibiotics_limits().set_index("annotator")
    assert limits.loc["random", "intercept"] == pytest.approx(log_odds(seen), abs=1e-12)


# Tolerances are four standard errors of two million reports.
def test_a_large_draw_has_the_true_model(large):
    control = large.loc[large["treated"] == 0, "reaction"].mean()
    assert large["treated"].mean() == pytest.approx(0.36, abs=0.0014)
    assert log_odds(control) == pytest.approx(-1.43, abs=0.009)
    assert effect(large, "reaction") == pytest.approx(1.0, abs=0.013)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_large_draw_goes_to_the_limits(large, name):
    limit = antibiotics_limits().set_index("annotator").loc[name]
    assert (large[name] == large["reaction"]).mean() == pytest.approx(limit["accuracy"], abs=0.001)
    assert effect(large, name) == pytest.approx(limit["estimate"], abs=0.015)
    control = large.loc[large["treated"] == 0, name].mean()
    assert log_odds(control) == pytest.approx(limit["intercept"], abs=0.012)


def test_errors_follow_the_group_they_are_said_to_follow(large):
    missed = large[large["reaction"] == 1].groupby("treated").mean()
    # Found is (1 - missed) flipped at 1.85%.
    assert 1 - missed.loc[1, "under_treated"] == pytest.approx(0.334 * 0.963 + 0.0185, abs=0.004)
    assert 1 - missed.loc[0, "under_treated"] == pytest.approx(0.0185, abs=0.002)
    assert 1 - missed.loc[0, "under_control"] == pytest.approx(0.365 * 0.963 + 0.0185, abs=0.004)
    assert 1 - missed.loc[1, "under_control"] == pytest.approx(0.0185, abs=0.002)


def test_same_seed_same_data_other_seed_other_data():
    first = antibiotics(500, seed=3)
    pd.testing.assert_frame_equal(first, antibiotics(500, seed=3))
    assert not first.equals(antibiotics(500, seed=4))


def test_table_is_complete_and_zero_one():
    data = antibiotics(seed=1)
    assert data.shape == (10_000, 5)
    assert data.isin([0, 1]).all(axis=None)
    assert (data.dtypes == "int64").all()


@pytest.mark.parametrize("n", [0, -5, 2.5, True, "100"])
def test_unusable_number_of_reports_is_refused(n):
    with pytest.raises(ArgumentError, match="whole number above 0"):
        antibiotics(n)


@pytest.mark.parametrize("seed", [-1, 1.5, "x"])
def test_unusable_seed_is_refused(seed):
    with pytest.raises(ArgumentError, match="seed="):
        antibiotics(100, seed)


@pytest.fixture(scope="module")
def draws():
    """Accuracies and LLM-only estimates of 200 studies of 10,000 reports."""
    rows = []
    for seed in range(200):
        data = antibiotics(10_000, seed=seed)
        for name in PUBLISHED:
            accuracy = (data[name] == data["reaction"]).mean()
            rows.append((name, accuracy, effect(data, name)))
    return pd.DataFrame(rows, columns=["annotator", "accuracy", "estimate"]).groupby("annotator")


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("measure", ["accuracy", "estimate"])
def test_two_hundred_draws_centre_at_the_limits(draws, name, measure):
    """Within 3.3 Monte Carlo errors, one draw in a thousand."""
    found = draws.get_group(name)[measure]
    error = found.std() / np.sqrt(len(found))
    published = PUBLISHED[name][measure == "estimate"]
    # The published numbers are rounded, and the log odds of a share have a bias of order 1/n.
    assert abs(found.mean() - published) < 3.3 * error + 5e-4
    assert error < 0.004
