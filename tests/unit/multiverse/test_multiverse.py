"""The grid, the runner and the store: every way of running gives the same numbers."""

import numpy as np
import pandas as pd
import pytest

import trueup as tu
from trueup.errors import ArgumentError, StoreError, TrueupWarning

FORMULAS = ["v ~ t", "v ~ t + x"]
NUMBERS = ["estimate", "std_error", "df", "conf_low", "conf_high", "p_value"]


def run(study, options, **changes):
    return tu.multiverse(FORMULAS, study, **{**options, **changes})


def same(a, b):
    pd.testing.assert_frame_equal(
        a.tidy(all_terms=True)[NUMBERS], b.tidy(all_terms=True)[NUMBERS], check_exact=True
    )


def test_the_grid_shows_every_combination_once(small, options):
    grid = tu.grid(
        FORMULAS,
        small,
        family=options["family"],
        corrections=options["corrections"],
        subsets=options["subsets"],
    )
    # 2 formulas x 2 families x 2 subsets x (3 annotators x 3 corrections + human once)
    assert len(grid) == 2 * 2 * 2 * (3 * 3 + 1)
    assert list(grid.columns) == [
        "universe", "llm", "model", "prompt", "formula", "family", "correction", "subset", "vcov",
    ]  # fmt: skip
    assert set(grid["model"]) == {"gpt", "llama", "(human)"}
    assert not grid.drop(columns="universe").duplicated().any()


def test_exclusions_by_query_and_by_function(small):
    a = tu.grid("v ~ t", small, exclude="correction == 'naive' and model == 'gpt'")
    b = tu.grid(
        "v ~ t", small, exclude=lambda u: u["correction"] == "naive" and u["model"] == "gpt"
    )
    pd.testing.assert_frame_equal(a, b)
    assert len(a) == 3 * 2 + 1 - 2
    with pytest.raises(ArgumentError, match="No universe is left"):
        tu.grid("v ~ t", small, exclude="vcov == 'HC3'")
    with pytest.raises(ArgumentError, match="cannot be evaluated"):
        tu.grid("v ~ t", small, exclude="colour == 'red'")


def test_annotators_may_be_used_jointly_and_described(small):
    table = pd.DataFrame({"size": ["big", "big", "small"]}, index=list(small.annotators))
    grid = tu.grid("v ~ t", small, llm=["gpt*", ["gpt__short", "llama__short"]], annotators=table)
    joint = grid[grid["llm"] == "gpt__short+llama__short"]
    assert set(joint["correction"]) == {"auto"}
    assert set(joint["size"]) == {"big+small"}
    with pytest.raises(ArgumentError, match="does not have"):
        tu.grid("v ~ t", small, annotators=pd.DataFrame({"size": ["big"]}, index=["gpt5"]))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"corrections": []}, "corrections= is empty"),
        ({"corrections": ["ptd", "ptd"]}, "twice"),
        ({"llm": []}, "llm= is empty"),
        ({"llm": "claude"}, "claude"),
        ({"vcov": ["HC3", "HC3"]}, "each once"),
        ({"subsets": {}}, "subsets="),
        ({"focus": "treated"}, "No universe has a term 'treated'"),
        ({"level": 1.5}, "level"),
    ],
)
def test_bad_arguments(small, options, changes, match):
    with pytest.raises(ArgumentError, match=match):
        run(small, options, **changes)


def test_a_row_equals_its_own_single_fit(small, options, mv):
    table = mv.tidy().set_index("universe")
    for outcome in mv.outcomes:
        u = outcome.universe
        part = small if u.subset == "all" else small.subset(options["subsets"][u.subset])
        single = getattr(tu, u.family.name)(
            u.formula, part, llm=list(u.llm), correction=u.correction, seed=7
        )
        row = single.tidy().set_index("term").loc["t"]
        for name in NUMBERS:
            np.testing.assert_allclose(table.loc[u.number, name], row[name], rtol=1e-12)
        kept = mv.fit(u.number)
        np.testing.assert_array_equal(kept.vcov(), single.vcov())
        assert str(kept.summary())


def test_workers_and_the_order_of_the_grid_change_nothing(small, options, mv):
    same(mv, run(small, options, n_jobs=2))
    turned = tu.multiverse(
        FORMULAS[::-1], small, **{**options, "corrections": options["corrections"][::-1]}
    )
    keys = [*mv.dimensions]
    a = mv.tidy().sort_values(keys)[NUMBERS].reset_index(drop=True)
    b = turned.tidy().sort_values(keys)[NUMBERS].reset_index(drop=True)
    pd.testing.assert_frame_equal(a, b, check_exact=True)


def test_backend_of_the_user_is_honoured(small, options, mv):
    from joblib import parallel_config

    with parallel_config(backend="threading", n_jobs=2):
        same(mv, run(small, options))


def test_joint_covariance_has_the_squared_errors_on_its_diagonal(mv):
    V = mv.vcov()
    se = mv.table()["std_error"].to_numpy()
    np.testing.assert_allclose(np.diag(V), se**2, rtol=1e-10)
    values = np.linalg.eigvalsh(V)
    assert values.min() > -1e-10 * values.max()


def test_simultaneous_intervals_contain_the_pointwise_ones(mv):
    table = mv.tidy()
    assert (table["simultaneous_low"] < table["conf_low"]).all()
    assert (table["simultaneous_high"] > table["conf_high"]).all()


def test_a_failing_universe_is_a_row_with_its_reason(data, options):
    d = data.drop(columns="v").assign(llama__short=1.0)
    study = tu.Study(d, human={"v": "v_human"}, llm={"v": "{model}__{prompt}"})
    with pytest.warns(TrueupWarning, match="absent"):
        mv = tu.multiverse(
            ["v ~ t", "v ~ x"],
            study,
            **{**options, "subsets": {"all": None, "few": "x > 1.9"}},
        )
    failed = mv.failed()
    assert len(failed)
    assert failed["error"].str.contains("Error: ").all()
    assert (mv.tidy()["status"] == "failed").sum() == len(failed)
    with pytest.raises(ArgumentError, match="failed"):
        mv.fit(int(failed["universe"].iloc[0]))
    with pytest.raises(ArgumentError, match="no universe 999"):
        mv.fit(999)


def test_a_stopped_run_is_resumed(small, options, mv, tmp_path):
    store = tmp_path / "store"
    run(small, options, subsets={"all": None}, store=store)
    # A grid that grew takes what it has from the store.
    before = {f: f.stat().st_mtime_ns for f in store.glob("*.fit")}
    assert before
    same(mv, run(small, options, store=store))
    assert all(f.stat().st_mtime_ns == kept for f, kept in before.items())
    assert len(list(store.glob("*.fit"))) == len(mv.outcomes)
    for file in sorted(store.glob("*.fit"))[::2]:
        file.unlink()
    again = run(small, options, store=store, n_jobs=2)
    same(mv, again)
    read = run(small, options, store=store)
    np.testing.assert_array_equal(read.vcov(), mv.vcov())
    assert str(read.fit(2).summary())


def test_a_store_that_cannot_be_written(small, options, tmp_path):
    file = tmp_path / "file"
    file.write_text("not a folder")
    with pytest.raises(StoreError, match="cannot be used"):
        run(small, options, store=file)


def test_the_table_is_sent_once_for_each_piece_of_work(small, options):
    from trueup.multiverse.grid import build_grid
    from trueup.multiverse.runner import PIECES, _pieces

    universes = build_grid(
        FORMULAS, small, family=options["family"], subsets=options["subsets"]
    ).universes
    pieces = _pieces(universes, 2 * PIECES)
    assert len(pieces) <= 2 * PIECES
    assert sorted(u.number for p in pieces for u in p) == [u.number for u in universes]


def test_presentation(mv, tmp_path):
    text = mv.summary()
    assert "universes" in text
    assert "'t'" in text
    for kind in ("curve", "disagreement"):
        assert mv.plot(kind).axes
    with pytest.raises(ArgumentError, match="kind='pie'"):
        mv.plot("pie")
    page = mv.report(tmp_path / "report.html").read_text()
    assert "<script" in page
    assert "gpt__short" in page


def test_a_fit_by_its_choices(mv):
    table = mv.tidy()
    row = table.loc[table["universe"] == 5].iloc[0]
    choices = {d: row[d] for d in mv.dimensions}
    assert mv.fit(choices).tidy().equals(mv.fit(5).tidy())
    del choices["vcov"]
    assert mv.fit(choices).call == "multiverse.fit(5)"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"corection": "ptd"}, r"'corection' is no dimension .* Did you mean 'correction'\?"),
        ({"llm": "gpt__shrt"}, r"No universe has llm='gpt__shrt'.* Did you mean 'gpt__short'\?"),
        ({"correction": "human", "llm": "gpt__short"}, "together"),
        ({"llm": "gpt__short"}, r"universes match: 0 \(.*correction='naive'.*\.\.\.\. Say more of"),
        (10_000, "There is no universe 10000"),
    ],
)
def test_a_fit_that_cannot_be_found(mv, wanted, said):
    with pytest.raises(tu.errors.ArgumentError, match=said):
        mv.fit(wanted)
