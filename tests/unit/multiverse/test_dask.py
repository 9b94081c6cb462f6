"""The multiverse on a Dask cluster of two worker processes: the same numbers, bit for bit."""

import os
from dataclasses import dataclass

import pandas as pd
import pytest

import trueup as tu
from trueup.multiverse.runner import Work

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

COLUMNS = ["estimate", "std_error", "df", "conf_low", "conf_high", "p_value"]


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
class Broken:
    """A correction with a mistake in its code, which no universe should hide."""

    name: str = "broken"

    def estimate(self, problem):
        raise ZeroDivisionError("a mistake")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    # One death is enough to give a task up, not four: each worker takes seconds to restart.
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            local_directory=str(tmp_path_factory.mktemp("dask")),
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def client(cluster):
    from joblib import parallel_config

    with distributed.Client(cluster) as client, parallel_config(backend="dask"):
        yield client


def test_a_dask_cluster_gives_the_same_numbers(small, options, mv, client):
    other = tu.multiverse(["v ~ t", "v ~ t + x"], small, **options)
    pd.testing.assert_frame_equal(
        mv.tidy(all_terms=True)[COLUMNS], other.tidy(all_terms=True)[COLUMNS], check_exact=True
    )


def test_the_table_is_sent_once(small, options, client, monkeypatch):
    sent = []
    submit = distributed.Client.submit

    def counting(self, function, *args, **how):
        sent.extend(a for a in args if isinstance(a, Work))
        return submit(self, function, *args, **how)

    monkeypatch.setattr(distributed.Client, "submit", counting)
    tu.multiverse(["v ~ t", "v ~ t + x"], small, **options)
    assert [work.study is small for work in sent] == [True]


def test_a_mistake_in_a_correction_is_not_taken_for_a_death(small, client):
    with pytest.raises(ZeroDivisionError, match="a mistake"):
        tu.multiverse("v ~ t", small, focus="t", corrections=[Broken()], progress=False)


def without_others(u):
    """Leave the correction that kills to one formula."""
    return u["correction"].startswith("Killer") and "x" in u["formula"]


def test_a_dask_worker_that_dies_takes_one_universe_with_it(small, client):
    from joblib import parallel_config

    options = {
        "focus": "t",
        "corrections": ["naive", "ptd", Killer("gpt__long", os.getpid())],
        "exclude": without_others,
        "progress": False,
    }
    other = tu.multiverse(["v ~ t", "v ~ t + x"], small, **options)
    failed = other.failed()
    assert failed[["llm", "formula"]].to_numpy().tolist() == [["gpt__long", "v ~ t"]]
    assert failed["error"].str.contains("KilledWorker: the worker process died").all()
    with parallel_config(backend="sequential"):
        serial = tu.multiverse(["v ~ t", "v ~ t + x"], small, **options)
    ok = [o.status == "ok" for o in other.outcomes]
    assert sum(ok) == len(ok) - 1
    pd.testing.assert_frame_equal(
        serial.tidy()[COLUMNS][ok], other.tidy()[COLUMNS][ok], check_exact=True
    )
