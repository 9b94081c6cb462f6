"""Running: any number of workers, warnings, deaths, interrupts, progress."""

import os
import pickle
import threading
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

import trueup as tu
from trueup.errors import ArgumentError, DesignWarning, SmallSampleWarning
from trueup.multiverse.caught import caught_warnings
from trueup.multiverse.grid import build_grid
from trueup.multiverse.runner import _pieces, run_universes


@dataclass(frozen=True)
class Killer:
    """A correction that kills its process where the annotator is the victim."""

    victim: str
    parent: int
    name: str = "killer"

    def estimate(self, problem):
        if problem.annotators == (self.victim,) and os.getpid() != self.parent:
            os._exit(1)
        return tu.PTD().estimate(problem)


@dataclass(frozen=True)
class Talker:
    name: str = "talker"

    def estimate(self, problem):
        warnings.warn(f"I saw {problem.annotators[0]}", stacklevel=2)
        warnings.warn(f"I saw {problem.annotators[0]}", stacklevel=2)
        return tu.PTD().estimate(problem)


def run(study, corrections, **options):
    given = {"llm": "all", "subsets": None, "formulas": "v ~ t"}
    given |= {k: options.pop(k) for k in list(options) if k in given}
    grid = build_grid(given.pop("formulas"), study, corrections=corrections, **given)
    return run_universes(grid.universes, study, grid.subsets, 1, progress=False, **options)


def test_a_worker_that_dies_takes_one_universe_with_it(small):
    correction = Killer("gpt__long", os.getpid())
    options = {"llm": ["gpt__short", "gpt__long"]}
    outcomes = run(small, [correction], n_jobs=2, **options)
    failed = [o for o in outcomes if o.status == "failed"]
    assert [(o.universe.llm, o.universe.correction) for o in failed] == [
        (("gpt__long",), correction)
    ]
    assert "worker process died" in failed[0].error
    serial = run(small, [correction], n_jobs=1, **options)
    for a, b in zip(outcomes, serial, strict=True):
        if a.status == "ok":
            np.testing.assert_array_equal(a.estimate.vcov, b.estimate.vcov)


@pytest.mark.parametrize("backend", ["sequential", "threading"])
def test_each_universe_keeps_its_own_warnings(small, backend):
    from joblib import parallel_config

    shown = warnings.showwarning
    with parallel_config(backend, n_jobs=2):
        outcomes = run(small, [Talker()], formulas=["v ~ t", "v ~ x", "v ~ t + x"])
    for outcome in outcomes:
        texts = [w for w in outcome.warnings if w.startswith("I saw")]
        assert texts == [f"I saw {outcome.universe.llm[0]}"]
    assert warnings.showwarning is shown


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_what_a_subset_warns_of_is_said_by_all_its_universes(data, n_jobs):
    d = data.drop(columns="v").assign(pi=np.where(data["x"] > 0, 0.9, data["pi"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DesignWarning)
        study = tu.Study(
            d,
            human={"v": "v_human"},
            llm={"v": "{model}__{prompt}"},
            sampling=tu.Sampling(probability="pi"),
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error", DesignWarning)
        outcomes = run(
            study, ["human", "ptd"], subsets={"up": "x > 0", "down": "x <= 0"}, n_jobs=n_jobs
        )
    for outcome in outcomes:
        said = any("inverse probabilities" in w for w in outcome.warnings)
        assert said == (outcome.universe.subset == "up")


def test_warnings_of_threads_stay_apart():
    def speak(name, out):
        with caught_warnings() as caught:
            for _ in range(50):
                warnings.warn(name, stacklevel=1)
            out[name] = list(caught)

    out: dict[str, list[str]] = {}
    threads = [threading.Thread(target=speak, args=(str(k), out)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert out == {str(k): [str(k)] * 50 for k in range(8)}
    with pytest.warns(UserWarning, match="heard again"):
        warnings.warn("heard again", stacklevel=1)


def test_a_nested_catch_gives_the_outer_one_nothing():
    with caught_warnings() as outer:
        warnings.warn("a", stacklevel=1)
        with caught_warnings() as inner:
            warnings.warn("b", stacklevel=1)
        warnings.warn("c", stacklevel=1)
    assert (outer, inner) == (["a", "c"], ["b"])


@pytest.mark.parametrize("count", [1, 2, 6, 40])
def test_pieces_hold_every_universe_once_and_keep_shared_work_together(small, count):
    universes = build_grid(["v ~ t", "v ~ x"], small, corrections=["naive", "human"]).universes
    pieces = _pieces(universes, count)
    assert len(pieces) <= count
    assert sorted(u.number for p in pieces for u in p) == [u.number for u in universes]
    if count <= 2:
        # Enough formulas for all workers: each design matrix is built by one of them.
        assert sum(len({u.formula for u in p}) for p in pieces) == 2


def test_order_of_outcomes_is_the_order_of_the_grid(small):
    outcomes = run(small, ["naive", "ptd"], n_jobs=2)
    assert [o.universe.number for o in outcomes] == list(range(len(outcomes)))


def test_an_outcome_is_small_to_send(small):
    (outcome, *_) = run(small, ["ptd"])
    n, p = outcome.estimate.h.shape
    assert len(pickle.dumps(outcome)) < 8 * n * p * 6 + 10_000


@pytest.mark.parametrize("n_jobs", [0, "two", 1.5, True])
def test_impossible_numbers_of_workers(small, n_jobs):
    with pytest.raises(ArgumentError, match="n_jobs"):
        run(small, ["ptd"], n_jobs=n_jobs)


def test_labels_that_are_classes_on_the_right_give_the_single_fits():
    rng = np.random.default_rng(0)
    kind = rng.choice(["a", "b", "c"], 400)
    d = pd.DataFrame({"y": rng.normal(size=400) + (kind == "b"), "h": kind})
    d.loc[200:, "h"] = None
    d["p"] = np.where(rng.uniform(size=400) < 0.2, "a", kind)
    d["q"] = np.where(rng.uniform(size=400) < 0.2, "b", kind)
    study = tu.Study(d, human={"k": "h"}, llm={"k": ["p", "q"]})
    warnings.simplefilter("ignore", SmallSampleWarning)
    for outcome in run(study, ["ptd", "naive", "human"], formulas="y ~ C(k)"):
        u = outcome.universe
        single = tu.ols("y ~ C(k)", study, llm=list(u.llm), correction=u.correction)
        np.testing.assert_array_equal(outcome.estimate.theta, single.estimate.theta)
        np.testing.assert_array_equal(outcome.estimate.vcov, single.estimate.vcov)
