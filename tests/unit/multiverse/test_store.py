"""The store: keys change with all that numbers depend on, and nothing else."""

import errno
import json
import multiprocessing
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trueup as tu
from trueup.errors import StoreError
from trueup.multiverse import store as store_module
from trueup.multiverse.grid import build_grid
from trueup.multiverse.runner import run_universes
from trueup.multiverse.store import MANIFEST, Store, rows_fingerprint, study_fingerprint

SUBSETS = {"all": None, "up": "x > 0"}


def make(data, **options):
    given = {"human": {"v": "v_human"}, "llm": {"v": "{model}__{prompt}"}} | options
    return tu.Study(data.drop(columns="v"), **given)


@pytest.fixture
def universe(small):
    return build_grid("v ~ t", small, corrections=[tu.DSL(repeats=2)]).universes[0]


def test_all_numbers_come_back_as_they_went(small, tmp_path):
    grid = build_grid(
        "v ~ t",
        small,
        family=["ols", "logit"],
        corrections=["naive", "human", "auto", tu.PPI(tuning=0.5), tu.DSL(repeats=2)],
        subsets=SUBSETS,
    )
    store = Store.open(tmp_path, small, grid.subsets)
    first = run_universes(grid.universes, small, grid.subsets, 3, store=store, progress=False)
    for made in first:
        read = store.read(made.universe, 3, made.positions)
        assert (read.terms, read.warnings, read.seconds) == (
            made.terms,
            made.warnings,
            made.seconds,
        )
        a, b = made.estimate, read.estimate
        for name in ("theta", "vcov", "df", "h", "d", "tuning", "vcov_human", "informative"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        assert (a.notes, a.warnings) == (b.notes, b.warnings)
        assert set(a.extra) - {"chosen"} == set(b.extra)
        for name, value in b.extra.items():
            np.testing.assert_array_equal(a.extra[name], value)
        assert (a.influence is None) == (b.influence is None)
        for name, rows in ({} if a.influence is None else a.influence.blocks).items():
            np.testing.assert_array_equal(b.influence.blocks[name], rows)
    again = run_universes(grid.universes, small, grid.subsets, 3, store=store, progress=False)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a.positions, b.positions)


def test_the_key_changes_with_what_is_computed(small, tmp_path, universe, monkeypatch):
    store = Store.open(tmp_path, small, SUBSETS)
    predictions = np.linspace(0, 1, 5000)
    other = predictions.copy()
    other[2500] += 1e-9  # in the part of an array that its printed form leaves out
    keys = [
        store.key(universe, 1),
        store.key(universe, 2),
        store.key(replace(universe, correction=tu.DSL(repeats=3)), 1),
        store.key(replace(universe, correction=tu.DSL(predictions=predictions)), 1),
        store.key(replace(universe, correction=tu.DSL(predictions=other)), 1),
        store.key(replace(universe, formula="v ~ x"), 1),
        store.key(replace(universe, subset="up"), 1),
        store.key(replace(universe, vcov=tu.Vcov("HC0")), 1),
        store.key(replace(universe, llm=("gpt__long",)), 1),
        Store.open(tmp_path, small, {"all": "x > 0"}).key(universe, 1),
    ]
    monkeypatch.setattr(store_module, "version", lambda name: "99")
    keys.append(store.key(universe, 1))
    assert len(set(keys)) == len(keys)


def test_the_key_does_not_change_with_names_and_order(small, tmp_path, universe):
    store = Store.open(tmp_path, small, SUBSETS)
    renamed = replace(universe, number=9, dimensions={"llm": "other"})
    assert store.key(universe, 1) == store.key(renamed, 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.assign(x=d["x"].where(d.index != 5, 0.0)),
        lambda d: d.assign(gpt__short=1 - d["gpt__short"]),
        lambda d: d.assign(v_human=d["v_human"].where(d.index != d["v_human"].first_valid_index())),
        lambda d: d.assign(place=pd.Categorical(d["place"], ["town", "land"])),
        lambda d: d.iloc[::-1],
        lambda d: d.iloc[:-1],
        lambda d: d.assign(extra=1),
    ],
)
def test_the_fingerprint_changes_with_the_data(data, change):
    categories = data.assign(place=pd.Categorical(data["place"], ["land", "town"]))
    assert study_fingerprint(make(categories)) != study_fingerprint(make(change(categories)))


@pytest.mark.parametrize(
    "options",
    [
        {"cluster": "place"},
        {"weights": "pi"},
        {"sampling": tu.Sampling(probability="pi")},
        {"sampling": tu.Sampling(strata="place")},
        {"missing": "error"},
        {"llm": {"v": {"a": "gpt__short"}}},
    ],
)
def test_the_fingerprint_changes_with_the_design(data, small, options):
    assert study_fingerprint(make(data, **options)) != study_fingerprint(small)


def test_the_fingerprint_is_that_of_what_the_data_say(data, small):
    shuffled = data.set_index(np.arange(600)[::-1])  # positions count, not the index
    assert study_fingerprint(make(shuffled)) == study_fingerprint(small)


def test_rows_of_a_subset_have_a_fingerprint():
    mask = np.array([True, False])
    seen = {rows_fingerprint(r) for r in (None, "x > 0", mask, ~mask, np.array([0]))}
    assert len(seen) == 5


def test_a_store_of_other_data_is_refused_with_both_fingerprints(data, small, tmp_path):
    Store.open(tmp_path, small, SUBSETS)
    other = make(data.assign(x=0.0))
    with pytest.raises(StoreError) as caught:
        Store.open(tmp_path, other, SUBSETS)
    assert study_fingerprint(small) in str(caught.value)
    assert study_fingerprint(other) in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", "{"])
def test_a_broken_manifest_is_refused(small, tmp_path, text):
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(StoreError, match="cannot be used"):
        Store.open(tmp_path, small, SUBSETS)


def test_a_full_disk_leaves_no_half_files(small, tmp_path, universe, monkeypatch):
    store = Store.open(tmp_path, small, SUBSETS)
    (outcome,) = run_universes([universe], small, SUBSETS, 1, progress=False)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(StoreError, match="run again to resume"):
        store.write(outcome, 1)
    assert [f.name for f in tmp_path.iterdir()] == [MANIFEST]


def test_failed_universes_are_tried_again(data, tmp_path, universe):
    bad = make(data.assign(gpt__short=np.where(data.index < 599, data["gpt__short"], np.nan)))
    store = Store.open(tmp_path, bad, {"none": "x > 99"})
    (outcome,) = run_universes(
        [replace(universe, subset="none")], bad, {"none": "x > 99"}, 1, store=store, progress=False
    )
    assert outcome.status == "failed"
    assert [f.name for f in tmp_path.iterdir()] == [MANIFEST]


def fill(folder, data):
    study = make(data)
    tu.multiverse(
        ["v ~ t", "v ~ t + x"],
        study,
        focus="t",
        corrections=["naive", "human", tu.DSL(repeats=2)],
        store=folder,
        progress=False,
        seed=1,
    )


def test_two_processes_on_one_store(data, tmp_path):
    spawn = multiprocessing.get_context("spawn")
    both = [spawn.Process(target=fill, args=(tmp_path, data)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [p.exitcode for p in both] == [0, 0]
    records = [f for f in tmp_path.glob("*.json") if f.name != MANIFEST]
    assert len(records) == 2 * (3 * 2 + 1)
    assert all(json.loads(f.read_text())["terms"] for f in records)
    assert not list(tmp_path.glob("*.tmp"))
    before = {f: f.stat().st_mtime_ns for f in tmp_path.iterdir()}
    fill(tmp_path, data)
    assert {f: f.stat().st_mtime_ns for f in tmp_path.iterdir()} == before
