"""The store: keys change with all that numbers depend on, and nothing else."""

import errno
import io
import multiprocessing
import os
import pickle
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

import trueup as tu
from trueup.errors import StoreError, TrueupWarning
from trueup.multiverse import keys as keys_module
from trueup.multiverse import runner as runner_module
from trueup.multiverse.grid import build_grid
from trueup.multiverse.keys import Keys, study_fingerprint
from trueup.multiverse.runner import run_universes
from trueup.multiverse.store import _MAGIC, MANIFEST, DamagedEntry, Store, _digest

SUBSETS = {"all": None, "up": "x > 0"}
RUN = {"focus": "t", "corrections": ["naive", "human", tu.DSL(repeats=2)], "progress": False}
FORMULAS = ["v ~ t", "v ~ t + log(words)", "v ~ t + C(place)"]


def make(data, **options):
    given = {"human": {"v": "v_human"}, "llm": {"v": "{model}__{prompt}"}} | options
    return tu.Study(data.drop(columns="v"), **given)


@pytest.fixture(scope="module")
def words(data):
    """Data with a column that only the second formula reads."""
    return data.assign(words=np.arange(600) % 7 + 1.0)


def fits(folder):
    return sorted(f for f in folder.iterdir() if f.suffix == ".fit")


def computed(study, folder, formulas=FORMULAS, **options):
    """Return what a run with a store computes itself: (annotator, formula, correction)."""
    before = set(fits(folder)) if folder.exists() else set()
    seen = []
    real = runner_module._fit

    def fit(universe, *rest):
        seen.append((universe.llm[0], universe.formula, universe.correction.name))
        return real(universe, *rest)

    runner_module._fit = fit
    try:
        tu.multiverse(formulas, study, **(RUN | {"store": folder, "seed": 1} | options))
    finally:
        runner_module._fit = real
    assert before <= set(fits(folder))
    return seen


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
    store, known = Store.open(tmp_path, small), Keys(small, 3)
    first = run_universes(grid.universes, small, grid.subsets, 3, store=store, progress=False)
    for made in first:
        key = known.key(made.universe, made.positions)
        read = store.read(key, made.universe, made.positions)
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


def test_the_key_changes_with_what_is_computed(small, universe, monkeypatch):
    known = Keys(small, 1)
    predictions = np.linspace(0, 1, 5000)
    other = predictions.copy()
    other[2500] += 1e-9  # in the part of an array that its printed form leaves out
    keys = [
        known.key(universe, None),
        Keys(small, 2).key(universe, None),
        known.key(replace(universe, correction=tu.DSL(repeats=3)), None),
        known.key(replace(universe, correction=tu.DSL(predictions=predictions)), None),
        known.key(replace(universe, correction=tu.DSL(predictions=other)), None),
        known.key(replace(universe, formula="v ~ x"), None),
        known.key(replace(universe, subset="up"), np.arange(300)),
        known.key(replace(universe, subset="down"), np.arange(299)),
        known.key(replace(universe, vcov=tu.Vcov("HC0")), None),
        known.key(replace(universe, llm=("gpt__long",)), None),
    ]
    monkeypatch.setattr(keys_module, "version", lambda name: "99")
    keys.append(Keys(small, 1).key(universe, None))
    assert len(set(keys)) == len(keys)


def test_the_key_does_not_change_with_names_and_order(data, small, universe):
    renamed = replace(universe, number=9, dimensions={"llm": "other"}, subset="everything")
    key = Keys(small, 1).key(universe, None)
    assert Keys(small, 1).key(renamed, None) == key
    turned = make(data[data.columns[::-1]], llm={"v": ["gpt__long", "gpt__short"]})
    assert Keys(turned, 1).key(universe, None) == key
    shuffled = make(data.set_index(np.arange(600)[::-1]))  # positions count, not the index
    assert Keys(shuffled, 1).key(universe, None) == key


def test_a_formula_that_cannot_be_read_has_no_key(small, universe):
    assert Keys(small, 1).key(replace(universe, formula="v ~ (t"), None) is None


def test_each_column_is_hashed_once(words, tmp_path, monkeypatch):
    read = []
    real = keys_module._content

    def content(study, name):
        read.append(name)
        return real(study, name)

    monkeypatch.setattr(keys_module, "_content", content)
    tu.multiverse(FORMULAS, make(words), **RUN, store=tmp_path)
    covariates = sorted(name for name in read if name != "v_human")
    assert covariates == ["gpt__long", "gpt__short", "llama__short", "place", "t", "words"]


def nothing(d):
    return d


def changed(name):
    return lambda d: d.assign(**{name: d[name].where(d.index != 5, 1 - d[name])})


ALL = {"gpt__short", "gpt__long", "llama__short"}


@pytest.mark.parametrize(
    ("change", "annotators", "formulas"),
    [
        (nothing, set(), set()),
        (lambda d: d.assign(extra=1, another="a"), set(), set()),
        (lambda d: d[d.columns[::-1]], set(), set()),
        (changed("x"), set(), set()),  # no formula reads it
        (lambda d: d.assign(words=d["words"] + (d.index == 5)), ALL, {FORMULAS[1]}),
        (lambda d: d.assign(place=pd.Categorical(d["place"], ["town", "land"])), ALL, FORMULAS[2:]),
        (changed("t"), ALL, FORMULAS),
        (changed("llama__short"), {"llama__short"}, FORMULAS),
        (lambda d: d.assign(qwen__short=d["llama__short"]), {"qwen__short"}, FORMULAS),
    ],
)
def test_only_universes_that_read_a_changed_column_run_again(
    words, tmp_path, change, annotators, formulas
):
    assert len(computed(make(words), tmp_path)) == len(FORMULAS) * (3 * 2 + 1)
    seen = computed(make(change(words)), tmp_path)
    labelled = {(llm, formula) for llm, formula, correction in seen if correction != "human"}
    assert labelled == {(llm, formula) for llm in annotators for formula in formulas}
    human = {formula for _, formula, correction in seen if correction == "human"}
    # A fit to human labels alone is checked against the first annotator, and reads no other.
    assert human == (set(formulas) if min(ALL) in annotators else set())
    again = tu.multiverse(FORMULAS, make(change(words)), **RUN, store=tmp_path, seed=1)
    fresh = tu.multiverse(FORMULAS, make(change(words)), **RUN, seed=1)
    columns = ["llm", "formula", "correction", "estimate", "std_error", "df"]
    pd.testing.assert_frame_equal(again.tidy()[columns], fresh.tidy()[columns], check_exact=True)


@pytest.mark.parametrize(
    ("options", "other"),
    [
        ({"cluster": "team"}, lambda d: d.assign(team=(d["team"] + (d.index == 5)) % 30)),
        ({"weights": "words"}, lambda d: d.assign(words=d["words"] + (d.index == 5))),
        ({}, {"cluster": "team"}),
        ({}, {"weights": "words"}),
    ],
)
def test_clusters_and_weights_are_read_by_all(words, tmp_path, options, other):
    d = words.assign(team=np.arange(600) % 30)
    n = len(computed(make(d, **options), tmp_path, "v ~ t"))
    study = make(d, **other) if isinstance(other, dict) else make(other(d), **options)
    assert len(computed(study, tmp_path, "v ~ t")) == n


def test_a_subset_is_known_by_its_rows(words, tmp_path):
    options = {"formulas": "v ~ t", "subsets": {"few": "words > 3"}}
    n = len(computed(make(words), tmp_path, **options))
    same = words.assign(words=words["words"].where(words["words"] > 3, 0.0))
    assert computed(make(same), tmp_path, **options) == []
    assert computed(make(words), tmp_path, "v ~ t", subsets={"m": words["words"] > 3}) == []
    other = words.assign(words=words["words"].where(words.index != 5, 1.0))
    assert len(computed(make(other), tmp_path, **options)) == n


def test_probabilities_within_a_subset_are_read(words, tmp_path):
    """They may be unknown where no one coded, and still decide a fit to a part of the rows."""
    sampling = tu.Sampling(probability="pi")
    uncoded = np.flatnonzero(words["v_human"].isna())
    d = words.assign(pi=words["pi"].where(words.index != uncoded[0]))
    options = {"formulas": "v ~ t", "subsets": {"part": np.arange(600) != uncoded[0]}}
    n = len(computed(make(d, sampling=sampling), tmp_path, **options))
    other = d.assign(pi=d["pi"].where(d.index != uncoded[1], d["pi"] / 2))
    assert study_fingerprint(make(other, sampling=sampling)) == study_fingerprint(
        make(d, sampling=sampling)
    )
    assert len(computed(make(other, sampling=sampling), tmp_path, **options)) == n


@dataclass(frozen=True)
class Own:
    """A correction that someone else wrote, which may read anything."""

    name: str = "own"

    def estimate(self, problem):
        return tu.PTD().estimate(problem)


def test_a_correction_from_elsewhere_reads_every_column(words, tmp_path):
    own = {"corrections": ["ptd", Own()]}
    computed(make(words), tmp_path, "v ~ t", **own)
    seen = computed(make(words.assign(extra=1)), tmp_path, "v ~ t", **own)
    assert [correction for _, _, correction in seen] == ["own"] * 3


def test_a_correction_that_cannot_be_told_apart_is_refused(small, tmp_path):
    class Local(Own):
        pass

    with pytest.raises(StoreError, match=r"'own' cannot be kept.*top of a module"):
        tu.multiverse("v ~ t", small, focus="t", corrections=[Local()], store=tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.assign(v_human=d["v_human"].where(d.index != d["v_human"].first_valid_index())),
        lambda d: d.assign(v_human=1 - d["v_human"]),
        lambda d: d.iloc[::-1],
        lambda d: d.iloc[:-1],
    ],
)
def test_the_fingerprint_changes_with_rows_and_human_labels(data, change):
    assert study_fingerprint(make(change(data))) != study_fingerprint(make(data))


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": tu.Sampling(probability="pi")},
        {"sampling": tu.Sampling(strata="place")},
        {"human": {"w": "v_human"}, "llm": {"w": "{model}__{prompt}"}},
    ],
)
def test_the_fingerprint_changes_with_the_design(data, small, options):
    assert study_fingerprint(make(data, **options)) != study_fingerprint(small)


@pytest.mark.parametrize("options", [{"missing": "error"}, {"llm": {"v": {"a": "gpt__short"}}}])
def test_the_fingerprint_is_that_of_what_all_universes_share(data, small, options):
    assert study_fingerprint(make(data.assign(x=0.0), **options)) == study_fingerprint(small)


def test_a_store_of_other_data_is_refused_with_both_fingerprints(data, small, tmp_path):
    Store.open(tmp_path, small)
    other = make(data.iloc[:-1])
    with pytest.raises(StoreError, match=r"600 rows.*599 rows.*human labels") as caught:
        Store.open(tmp_path, other)
    assert study_fingerprint(small) in str(caught.value)
    assert study_fingerprint(other) in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", "{"])
def test_a_broken_manifest_is_refused(small, tmp_path, text):
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(StoreError, match=r"cannot be used.*damaged"):
        Store.open(tmp_path, small)


@pytest.fixture
def entry(small, tmp_path, universe):
    """Return (store, key, file) of one kept universe."""
    store, key = Store.open(tmp_path, small), Keys(small, 1).key(universe, None)
    run_universes([universe], small, SUBSETS, 1, store=store, progress=False)
    (file,) = fits(tmp_path)
    return store, key, file


def sealed(**arrays):
    """Return a file that is whole but holds these arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return _MAGIC + _digest(buffer.getvalue()) + b"\n" + buffer.getvalue()


def kept_arrays(file):
    with np.load(io.BytesIO(file.read_bytes().partition(b"\n")[2])) as arrays:
        return dict(arrays)


def test_no_byte_of_a_file_can_change_unseen(entry, universe):
    store, key, file = entry
    content = file.read_bytes()
    assert store.read(key, universe).estimate is not None
    for at in np.linspace(0, len(content) - 1, 200).astype(int):
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(DamagedEntry):
            store.read(key, universe)
        file.write_bytes(content[:at])
        with pytest.raises(DamagedEntry):
            store.read(key, universe)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.pop("record"),
        lambda a: a.pop("theta"),
        lambda a: a.pop("block_first"),
        lambda a: a.update(vcov=a["vcov"][:1]),
        lambda a: a.update(theta=np.append(a["theta"], 0.0)),
        lambda a: a.update(theta=a["theta"].astype(object)),
        lambda a: a.update(record=np.frombuffer(b"{}", dtype=np.uint8)),
        lambda a: a.update(record=np.frombuffer(b"[]", dtype=np.uint8)),
        lambda a: a.update(record=np.frombuffer(b"no", dtype=np.uint8)),
    ],
)
def test_an_incomplete_file_is_damaged(entry, universe, change):
    store, key, file = entry
    arrays = kept_arrays(file)
    file.write_bytes(sealed(**arrays))
    assert store.read(key, universe) is not None
    change(arrays)
    file.write_bytes(sealed(**arrays))
    with pytest.raises(DamagedEntry):
        store.read(key, universe)


class Bomb:
    """Fails the test where it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("a pickled object was loaded",))


def test_pickled_objects_are_never_loaded(entry, universe):
    store, key, file = entry
    file.write_bytes(sealed(**kept_arrays(file) | {"theta": np.array([Bomb()], dtype=object)}))
    with pytest.raises(DamagedEntry):
        store.read(key, universe)


def test_damaged_files_are_computed_anew_with_one_warning(small, tmp_path):
    first = tu.multiverse("v ~ t", small, **RUN, store=tmp_path)
    files = fits(tmp_path)
    contents = {f: kept_arrays(f) for f in files}
    files[0].write_bytes(b"")
    files[1].write_bytes(b"{}")
    files[2].write_bytes(files[3].read_bytes()[:-9])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        again = tu.multiverse("v ~ t", small, **RUN, store=tmp_path)
    said = [w for w in caught if issubclass(w.category, TrueupWarning)]
    assert [str(w.message).partition(" in ")[0] for w in said] == ["3 of 7 results"]
    assert said[0].filename == __file__
    np.testing.assert_array_equal(again.tidy()["std_error"], first.tidy()["std_error"])
    assert fits(tmp_path) == files
    for file, arrays in contents.items():
        np.testing.assert_array_equal(kept_arrays(file)["vcov"], arrays["vcov"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrueupWarning)
        assert computed(small, tmp_path, "v ~ t", seed=0) == []


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def forbidden(*_, **__):
    raise PermissionError(errno.EACCES, "Permission denied")


def test_a_full_disk_leaves_no_half_files(small, tmp_path, universe, monkeypatch):
    store = Store.open(tmp_path, small)
    (outcome,) = run_universes([universe], small, SUBSETS, 1, progress=False)
    monkeypatch.setattr("os.replace", full)
    with pytest.raises(StoreError, match="free space and run again to resume"):
        store.write("key", outcome)
    assert [f.name for f in tmp_path.iterdir()] == [MANIFEST]


@pytest.mark.parametrize("backend", ["sequential", "threading"])
def test_a_disk_that_fills_up_keeps_results_so_far(small, tmp_path, monkeypatch, backend):
    from joblib import parallel_config

    real, placed = os.replace, []

    def fills_up(source, target):
        placed.append(target)
        return real(source, target) if len(placed) <= 4 else full()

    monkeypatch.setattr("os.replace", fills_up)
    with parallel_config(backend, n_jobs=2), pytest.raises(StoreError, match="run again"):
        tu.multiverse("v ~ t", small, **RUN, store=tmp_path, seed=1)
    monkeypatch.undo()
    assert len(fits(tmp_path)) == 3
    assert len(list(tmp_path.iterdir())) == 4
    assert len(computed(small, tmp_path, "v ~ t")) == 7 - 3


def test_a_folder_that_cannot_be_written_stops_before_work(small, tmp_path, monkeypatch):
    computed(small, tmp_path, "v ~ t")
    monkeypatch.setattr("tempfile.mkstemp", forbidden)
    assert computed(small, tmp_path, "v ~ t") == []  # reading needs no permission to write
    monkeypatch.setattr(runner_module, "_fit", lambda *_: pytest.fail("work was begun"))
    with pytest.raises(StoreError, match=r"Permission denied.*Make the folder writable"):
        tu.multiverse(["v ~ t", "v ~ x"], small, **RUN, store=tmp_path, seed=1)


def test_what_dead_processes_left_is_cleared_and_what_others_write_is_not(small, tmp_path):
    store = Store.open(tmp_path, small)
    old, new = tmp_path / "old.part", tmp_path / "new.part"
    old.touch()
    new.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    store.prepare()
    assert sorted(f.name for f in tmp_path.iterdir()) == ["new.part", MANIFEST]


def test_failed_universes_are_tried_again(small, tmp_path):
    options = {"subsets": {"none": "x > 99"}, "corrections": ["human"]}
    for _ in range(2):
        mv = tu.multiverse("v ~ t", small, **RUN | options, store=tmp_path)
        assert [o.status for o in mv.outcomes] == ["failed"]
    assert [f.name for f in tmp_path.iterdir()] == [MANIFEST]


def fill(folder, data, barrier=None):
    study = make(data)
    if barrier is not None:
        barrier.wait()
    return tu.multiverse(["v ~ t", "v ~ t + x"], study, **RUN, store=folder, seed=1)


def test_two_processes_on_one_store(data, tmp_path):
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(2)
    both = [spawn.Process(target=fill, args=(tmp_path, data, barrier)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [p.exitcode for p in both] == [0, 0]
    assert len(fits(tmp_path)) == 2 * (3 * 2 + 1)
    assert len(list(tmp_path.iterdir())) == len(fits(tmp_path)) + 1
    before = {f: f.stat().st_mtime_ns for f in tmp_path.iterdir()}
    read = fill(tmp_path, data)
    assert {f: f.stat().st_mtime_ns for f in tmp_path.iterdir()} == before
    fresh = tu.multiverse(["v ~ t", "v ~ t + x"], make(data), **RUN, seed=1)
    np.testing.assert_array_equal(read.tidy()["std_error"], fresh.tidy()["std_error"])


def test_a_killed_process_loses_only_what_was_in_flight(data, tmp_path):
    """Killed between writing the fourth result and moving it into place."""
    code = """
import os, sys, pickle
import trueup as tu
folder, data, options = pickle.load(sys.stdin.buffer)
study = tu.Study(data, human={"v": "v_human"}, llm={"v": "{model}__{prompt}"})
real, done = os.replace, []
def replace(source, target):
    if str(target).endswith(".fit"):
        done.append(target)
    if len(done) == 4:
        os.kill(os.getpid(), 9)
    real(source, target)
os.replace = replace
tu.multiverse(["v ~ t", "v ~ t + x"], study, **options, store=folder, seed=1)
"""
    given = pickle.dumps((tmp_path, data.drop(columns="v"), RUN))
    done = subprocess.run(
        [sys.executable, "-c", code], input=given, check=False, capture_output=True
    )
    assert done.returncode == -9, done.stderr.decode()
    assert len(fits(tmp_path)) == 3
    assert len(computed(make(data), tmp_path, ["v ~ t", "v ~ t + x"])) == 14 - 3
