"""Arguments of a multiverse, and its focal term, are checked before anything is fitted."""

import numpy as np
import pandas as pd
import pytest

import trueup as tu
from trueup.errors import ArgumentError, TrueupWarning


@pytest.fixture
def never(monkeypatch):
    """Fail the test where a universe is fitted."""

    def fitted(*_, **__):
        raise AssertionError("fitted")

    monkeypatch.setattr("trueup.api.run_universes", fitted)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"focus": "tt"}, "No universe has a term 'tt'. Did you mean 't'"),
        ({"focus": "place"}, r"Did you mean 'C\(place\)\[T.town\]'|There are: "),
        ({"focus": None}, "focus=None must name one coefficient"),
        ({"focus": ""}, "focus='' must name"),
        ({"focus": ["t"]}, "must name one coefficient"),
        ({"seed": "a"}, "seed='a' must be a whole number"),
        ({"seed": -1}, "seed=-1 must be a whole number"),
        ({"seed": 1.5}, r"seed=1\.5 must be a whole number"),
        ({"seed": True}, "seed=True must be a whole number"),
        ({"level": "x"}, "level='x' cannot be used"),
        ({"level": 95}, r"write level=0\.95"),
        ({"n_jobs": "a"}, "n_jobs='a' cannot be used"),
        ({"n_jobs": 0}, "n_jobs=0 cannot be used"),
        ({"n_jobs": 1.5}, r"n_jobs=1\.5 cannot be used"),
        ({"store": 5}, "store=5 must be the path of a folder"),
    ],
)
def test_bad_arguments_stop_before_anything_is_fitted(small, options, match, never):
    formulas = ["v ~ t + x", "v ~ t + C(place)"]
    with pytest.raises(ArgumentError, match=match):
        tu.multiverse(formulas, small, progress=False, **{"focus": "t", **options})


def test_a_wrong_focus_makes_no_store(small, tmp_path, never):
    with pytest.raises(ArgumentError, match="No universe has a term"):
        tu.multiverse("v ~ t", small, focus="u", store=tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_whole_number_of_numpy_is_a_seed(small):
    mv = tu.multiverse("v ~ t", small, focus="t", seed=np.int64(3), progress=False)
    assert mv.seed == 3


def test_formulas_without_the_focus_are_kept_with_a_warning(small):
    with pytest.warns(TrueupWarning, match=r"absent from 1 formula\(s\): v ~ t\."):
        mv = tu.multiverse(["v ~ t", "v ~ t + x"], small, focus="x", progress=False)
    assert {o.status for o in mv.outcomes} == {"ok"}


def test_a_design_that_cannot_be_built_does_not_hide_the_term_of_another(small):
    formulas = ["v ~ nowhere", "v ~ t"]
    mv = tu.multiverse(formulas, small, focus="t", progress=False)
    failed = mv.failed()
    assert set(failed["formula"]) == {"v ~ nowhere"}
    assert failed["error"].str.contains("nowhere").all()
    with pytest.raises(ArgumentError, match="No universe has a term 'x'"):
        tu.multiverse(formulas, small, focus="x", progress=False)


def test_where_no_design_can_be_built_each_universe_says_why(small, tmp_path):
    mv = tu.multiverse("v ~ nowhere", small, focus="t", progress=False)
    assert mv.failed()["error"].str.contains("nowhere").all()
    assert "0 of" in mv.summary()
    page = mv.report(tmp_path / "r.html").read_text()
    assert "so there is no estimate" in page
    assert f"None of {len(mv.outcomes)} universes" in page
    assert page.count("nowhere") > len(mv.outcomes)


def test_a_level_that_one_subset_lacks_is_found_in_another(small):
    subsets = {"town": "place == 'town'", "none": "x > 99", "all": None}
    focus = "C(place)[T.town]"
    mv = tu.multiverse("v ~ t + C(place)", small, focus=focus, subsets=subsets, progress=False)
    assert {o.universe.subset for o in mv.chosen()} == {"all"}


def test_a_level_that_only_a_later_annotator_gives_is_found():
    rng = np.random.default_rng(0)
    kind = rng.choice(["a", "b"], 300)
    d = pd.DataFrame({"y": rng.normal(size=300), "h": kind, "p": kind, "q": kind})
    d.loc[150:, "h"] = None
    d.loc[rng.choice(300, 30), "q"] = "c"
    d.loc[rng.choice(150, 10), "h"] = "c"
    study = tu.Study(d, human={"k": "h"}, llm={"k": ["p", "q"]})
    mv = tu.multiverse("y ~ k", study, focus="k[T.c]", corrections="ptd", progress=False)
    assert len(mv.chosen()) >= 1


def test_the_check_builds_one_design_where_the_first_has_the_term(small, monkeypatch):
    from trueup.multiverse import focus, runner

    built = []
    build = runner.build_problem
    monkeypatch.setattr(
        runner, "build_problem", lambda *a, **k: built.append(a[0]) or build(*a, **k)
    )
    grid = tu.multiverse(["v ~ t", "v ~ t + x"], small, focus="t", progress=False)
    built.clear()
    universes = [o.universe for o in grid.outcomes]
    focus.check_focus("t", universes, small, grid.subsets, 1)
    assert built == ["v ~ t"]
