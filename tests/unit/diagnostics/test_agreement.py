"""Agreement on the coded rows: exact estimates, design-based errors, intervals that cover."""

import numpy as np
import pandas as pd
import pytest

import trueup as tu
from trueup.diagnostics.kappa import krippendorff_alpha
from trueup.errors import ArgumentError, StudyError


def population(kind, rng, N=2000):
    """Return N rows in three groups; the LLM ``f`` errs more in some of them."""
    g = np.repeat(["a", "b", "c"], [int(0.7 * N), int(0.2 * N), N - int(0.7 * N) - int(0.2 * N)])
    rate = pd.Series(g).map({"a": 0.1, "b": 0.2, "c": 0.15}).to_numpy()
    if kind == "binary":
        v = (rng.random(N) < pd.Series(g).map({"a": 0.3, "b": 0.5, "c": 0.7})).astype(float)
        f = np.where(rng.random(N) < rate, 1 - v, v)
    elif kind == "scores":
        v = rng.integers(0, 5, N).astype(float)
        f = np.clip(v + rng.integers(-1, 2, N) * (rng.random(N) < 4 * rate), 0, 4)
    else:
        v = rng.normal(size=N) + (g == "c")
        f = 0.8 * v + 0.5 * rng.normal(size=N)
    return pd.DataFrame({"g": g, "v": v, "f": f})


def draw(data, design, rng, n=120):
    """Return the study of a coded sample."""
    N = len(data)
    coded = np.zeros(N, dtype=bool)
    sampling = tu.Sampling()
    if design == "srs":
        coded[rng.choice(N, n, replace=False)] = True
    elif design == "strata":
        for g in "abc":
            coded[rng.choice(np.flatnonzero(data["g"] == g), n // 3, replace=False)] = True
        sampling = tu.Sampling(strata="g")
    else:
        pi = data["g"].map({"a": 0.04, "b": 0.1, "c": 0.2})
        coded = rng.random(N) < pi
        data = data.assign(pi=pi)
        sampling = tu.Sampling(probability="pi", method="poisson")
    table = data.assign(h=data["v"].where(coded)).drop(columns="v")
    return tu.Study(table, human={"y": "h"}, llm={"y": ["f"]}, sampling=sampling)


def estimates(study, **options):
    return tu.agreement(study, **options).table.set_index("measure")


def test_every_measure_by_hand_with_unequal_weights():
    rng = np.random.default_rng(0)
    study = draw(population("binary", rng), "strata", rng)
    found = estimates(study)
    design = study.design("y")
    v, f = study.human_labels("y")[design.coded], study.llm_labels("y", "f")[design.coded]
    w = design.inverse_probability
    assert found.loc["accuracy", "estimate"] == pytest.approx(np.average(f == v, weights=w))
    sensitivity = np.average(f[v == 1] == 1, weights=w[v == 1])
    assert found.loc["sensitivity", "estimate"] == pytest.approx(sensitivity)
    specificity = np.average(f[v == 0] == 0, weights=w[v == 0])
    assert found.loc["specificity", "estimate"] == pytest.approx(specificity)
    assert found.loc["mean_error", "estimate"] == pytest.approx(np.average(f - v, weights=w))
    metrics = pytest.importorskip("sklearn.metrics")
    kappa = metrics.cohen_kappa_score(v, f, sample_weight=w)
    assert found.loc["kappa", "estimate"] == pytest.approx(kappa, abs=1e-12)
    assert set(found.index) == {
        "accuracy", "sensitivity", "specificity", "kappa", "alpha_nominal", "mean_error",
    }  # fmt: skip


def test_the_error_of_accuracy_is_that_of_a_design_based_mean():
    rng = np.random.default_rng(1)
    for design in ("srs", "strata", "poisson"):
        data = population("binary", rng)
        study = draw(data, design, rng)
        right = study.contents.table.pandas(["f", "h"])
        table = data.drop(columns="v").assign(
            h=(right["f"] == right["h"]).where(right["h"].notna())
        )
        if design == "poisson":
            table["pi"] = data["g"].map({"a": 0.04, "b": 0.1, "c": 0.2})
        mean = tu.mean(
            "y ~ 1",
            tu.Study(table, {"y": "h"}, {"y": ["f"]}, sampling=study.contents.sampling),
            correction="human",
            vcov="HC1",
        )
        ours = estimates(study).loc["accuracy", "std_error"]
        assert ours == pytest.approx(mean.se().iloc[0], rel=1e-10)


def test_numbers_have_correlation_and_errors():
    rng = np.random.default_rng(2)
    study = draw(population("numbers", rng), "srs", rng)
    found = estimates(study)
    coded = study.coded("y")
    v, f = study.human_labels("y")[coded], study.llm_labels("y", "f")[coded]
    assert found.loc["correlation", "estimate"] == pytest.approx(np.corrcoef(v, f)[0, 1])
    assert found.loc["mean_abs_error", "estimate"] == pytest.approx(np.abs(f - v).mean())
    alpha = krippendorff_alpha(np.column_stack([f, v]), "interval").estimate
    assert found.loc["alpha_interval", "estimate"] == pytest.approx(alpha)
    assert "accuracy" not in found.index


def test_single_coders_stand_beside_the_llm():
    rng = np.random.default_rng(3)
    data = population("binary", rng)
    for j in range(3):
        data[f"c{j}"] = np.where(rng.random(len(data)) < 0.05, 1 - data["v"], data["v"])
    data.loc[::7, "c2"] = np.nan
    study = draw(data, "srs", rng, n=200)
    found = tu.agreement(study, coders=["c0", "c1", "c2"])
    coded = study.coded("y")
    c = data[["c0", "c1", "c2"]].to_numpy()[coded]
    table = found.table.set_index(["comparison", "annotator", "versus", "measure"])
    pair = table.loc[("coder-coder", "c0", "c1", "agreement"), "estimate"]
    assert pair == pytest.approx((c[:, 0] == c[:, 1]).mean())
    known = ~np.isnan(c[:, 2])
    with_third = table.loc[("coder-coder", "c0", "c2", "agreement")]
    assert with_third["estimate"] == pytest.approx((c[:, 0] == c[:, 2])[known].mean())
    assert with_third["n_missing"] == (~known).sum()
    every = table.loc[("all coders", "3 coders", "", "alpha_nominal"), "estimate"]
    assert every == pytest.approx(krippendorff_alpha(c).estimate)
    f = study.llm_labels("y", "f")[coded]
    mean = np.mean([(f == x)[~np.isnan(x)].mean() for x in c.T])
    ours = table.loc[("LLM-coder", "f", "coders (mean)", "agreement"), "estimate"]
    assert ours == pytest.approx(mean)
    text = str(found)
    assert "coder-coder" in text
    assert max(map(len, text.splitlines())) <= 88


def test_text_classes_and_order():
    rng = np.random.default_rng(4)
    data = population("scores", rng)
    names = np.array(["0 none", "1 low", "2 some", "3 much", "4 all"], dtype=object)
    words = data.assign(v=names[data["v"].astype(int)], f=names[data["f"].astype(int)])
    seed = np.random.default_rng(5).bit_generator.state["state"]["state"] % 1000
    numbers = estimates(draw(data, "srs", np.random.default_rng(seed)))
    text = estimates(draw(words, "srs", np.random.default_rng(seed)), ordered=True)
    for measure in ("accuracy", "kappa", "kappa_quadratic", "alpha_nominal", "alpha_ordinal"):
        for column in ("estimate", "std_error", "conf_low"):
            assert text.loc[measure, column] == pytest.approx(numbers.loc[measure, column])


def test_rows_without_an_llm_label_are_left_out_and_counted():
    data = {"h": [1, 0, 1, 1, 0, None], "f": [1, 0, None, 0, None, 1]}
    found = estimates(tu.Study(data, {"y": "h"}, {"y": ["f"]}))
    assert found.loc["accuracy", ["n", "n_missing"]].tolist() == [3, 2]
    assert found.loc["accuracy", "estimate"] == pytest.approx(2 / 3)
    words = {k: ["yes" if x == 1 else "no" if x == 0 else None for x in v] for k, v in data.items()}
    study = tu.Study(words, {"y": "h"}, {"y": ["f"]}, missing="level")
    refusing = estimates(study)
    assert refusing.loc["accuracy", ["n", "n_missing"]].tolist() == [5, 0]
    assert refusing.loc["accuracy", "estimate"] == pytest.approx(0.4)
    assert refusing.loc["specificity", "estimate"] == 0.5
    assert refusing.loc["sensitivity", "estimate"] == pytest.approx(1 / 3)


def test_the_positive_class_may_be_chosen():
    words = {"h": ["bad", "good", "bad", None], "f": ["bad", "bad", "bad", "good"]}
    study = tu.Study(words, {"y": "h"}, {"y": ["f"]})
    assert estimates(study).loc["sensitivity", "estimate"] == 0.0
    assert estimates(study, positive="bad").loc["sensitivity", "estimate"] == 1.0


def test_analysis_weights_enter():
    data = {"h": [1, 0, 1, 1, None], "f": [1, 0, 0, 1, 1], "w": [1.0, 1.0, 2.0, 4.0, 1.0]}
    found = estimates(tu.Study(data, {"y": "h"}, {"y": ["f"]}, weights="w"))
    assert found.loc["accuracy", "estimate"] == pytest.approx(6 / 8)


def test_perfect_annotators_have_intervals_and_reasons():
    h = [1, 0] * 20 + [None] * 20
    f = [1, 0] * 30
    found = estimates(tu.Study({"h": h, "f": f}, {"y": "h"}, {"y": ["f"]}))
    assert found.loc["accuracy", "conf_high"] == 1.0
    # 40 rows without an error: Wilson leaves about 10% possible.
    assert 0.88 < found.loc["accuracy", "conf_low"] < 0.93
    assert 0.75 < found.loc["kappa", "conf_low"] < 0.87
    assert "no disagreement" in found.loc["kappa", "note"]
    ones = estimates(tu.Study({"h": [1, 1, 1, None], "f": [1, 1, 0, 0]}, {"y": "h"}, {"y": ["f"]}))
    assert np.isnan(ones.loc["specificity", "estimate"])
    assert "no coded row lacks" in ones.loc["specificity", "note"]


@pytest.mark.parametrize("design", ["srs", "strata"])
@pytest.mark.parametrize("kind", ["binary", "scores"])
def test_intervals_cover_and_errors_are_right(kind, design):
    """Bounds are three Monte Carlo errors of 250 draws around .95 and 1, with a slack of .015."""
    truth = estimates(
        tu.Study(
            population(kind, np.random.default_rng(9), 200_000).assign(h=lambda d: d["v"]),
            human={"y": "h"},
            llm={"y": ["f"]},
        )
    )["estimate"]
    rng = np.random.default_rng(11)
    draws = [estimates(draw(population(kind, rng), design, rng, n=150)) for _ in range(250)]
    for measure in ("accuracy", "kappa", "alpha_nominal"):
        rows = pd.DataFrame([d.loc[measure] for d in draws])
        covered = rows["conf_low"].le(truth[measure]) & rows["conf_high"].ge(truth[measure])
        assert 0.95 - 0.056 <= covered.mean() <= 0.995, measure
        ratio = rows["std_error"].mean() / rows["estimate"].astype(float).std()
        assert 0.86 < ratio < 1.16, measure


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"variable": "z"}, ArgumentError, "none of them"),
        ({"llm": "g"}, ArgumentError, "no annotator"),
        ({"level": 95}, ArgumentError, "level"),
        ({"coders": ["c"]}, ArgumentError, "at least two"),
        ({"coders": ["c", "d"]}, StudyError, "no column 'd'"),
        ({"coders": ["c", "empty"]}, StudyError, "'empty' labelled none"),
        ({"coders": ["c", "text"]}, StudyError, "gives text"),
        ({"positive": "yes"}, ArgumentError, "one of two classes"),
    ],
)
def test_bad_input_says_what_is_wrong(options, error, words):
    data = pd.DataFrame({"h": [1, 0, 1, None], "f": [1, 0, 0, 1], "c": [1, 1, 0, 1]})
    data["empty"] = np.nan
    data["text"] = ["yes", "no", "yes", "no"]
    study = tu.Study(data, {"y": "h"}, {"y": ["f"]})
    with pytest.raises(error, match=words):
        tu.agreement(study, **options)


def test_wide_refuses_unknown_columns():
    study = tu.Study({"h": [1, 0, 1, None], "f": [1, 0, 0, 1]}, {"y": "h"}, {"y": ["f"]})
    assert tu.agreement(study).wide("n").loc[0, "accuracy"] == 3
    with pytest.raises(ArgumentError, match="value='p'"):
        tu.agreement(study).wide("p")


def test_no_variation_without_agreement_has_no_interval():
    """A constant annotator has kappa 0, and two rows that both differ kappa -1: not 1."""
    h = [1, 0] * 20 + [None] * 20
    constant = estimates(tu.Study({"h": h, "f": [1] * 60}, {"y": "h"}, {"y": ["f"]}))
    assert constant.loc["kappa", "estimate"] == pytest.approx(0.0, abs=1e-12)
    opposite = estimates(
        tu.Study({"h": [1, 0, None], "f": [0, 1, 1]}, {"y": "h"}, {"y": ["f"]}),
    )
    assert opposite.loc["kappa", "estimate"] == -1.0
    for row in (constant.loc["kappa"], opposite.loc["kappa"], opposite.loc["alpha_nominal"]):
        assert np.isnan(row["conf_low"])
        assert np.isnan(row["conf_high"])
        assert "no interval" in row["note"]


@pytest.mark.parametrize("ask", [tu.agreement, tu.error_profile])
def test_a_table_is_no_study(ask):
    with pytest.raises(ArgumentError, match="needs a study, not DataFrame"):
        ask(pd.DataFrame({"h": [1, 0], "f": [1, 0]}))
