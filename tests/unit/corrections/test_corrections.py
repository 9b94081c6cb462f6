"""Corrections: options, choices, and cases that identities do not reach."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import trueup as tu
from support.made import poisson, study, texts
from trueup.errors import ArgumentError, CorrectionError, SeparationError

OUTCOME, COVARIATE = "v ~ x + t", "z ~ v + x + t"


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: tu.PPI(tuning=1.5), r"outside \[0, 1\]"),
        (lambda: tu.PPI(tuning=-0.1), r"outside \[0, 1\]"),
        (lambda: tu.PPI(tuning="best"), "tuning='best'"),
        (lambda: tu.PPI(reference="some"), "reference='some'"),
        (lambda: tu.PPI(form="square"), "form='square'"),
        (lambda: tu.PTD(tuning="none"), "tuning='none'"),
        (lambda: tu.PTD(reference="half"), "reference='half'"),
        (lambda: tu.PTD(human_fit="ridge"), "human_fit='ridge'"),
        (lambda: tu.PTD(linearise="here"), "linearise='here'"),
        (lambda: tu.DSL(folds=1), "folds=1.*2 or more"),
        (lambda: tu.DSL(tuning="half"), "tuning='half'"),
        (lambda: tu.DSL(tuning="full", normalise="ht"), "leave them out"),
        (lambda: tu.DSL(normalise="none"), "normalise"),
    ],
)
def test_unknown_options_are_refused(make, match):
    with pytest.raises(ArgumentError, match=match):
        make()


@pytest.mark.parametrize("name", ["ptdd", tu.PTD, None, 3])
def test_unknown_corrections_are_refused(name):
    with pytest.raises(ArgumentError, match="correction="):
        tu.ols(OUTCOME, study(texts()), correction=name)


def test_auto_chooses_by_counts_and_says_so():
    s = study(texts(n=120), llm=["f1", "f2"])
    few = study(texts(n=40), llm=["f1", "f2"])

    def chosen(s, llm):
        return tu.ols(OUTCOME, s, llm=llm, seed=1).estimate

    assert chosen(s, "f1").extra["chosen"] == tu.PTD(tuning="full")
    assert chosen(few, "f1").extra["chosen"] == tu.PTD(tuning="diagonal")
    assert chosen(s, "all").extra["chosen"] == tu.DSL(tuning="full")
    assert chosen(few, "all").extra["chosen"] == tu.DSL(tuning="diagonal")
    assert "PTD(tuning='full')" in chosen(s, "f1").notes[0]


def test_the_same_seed_gives_the_same_numbers():
    s = study(texts(), llm=["f1", "f2"])
    a, b, c = (tu.ols(OUTCOME, s, llm="all", correction="dsl", seed=k).coef() for k in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_dsl_reports_the_median_over_repeats():
    s = study(texts())
    fit = tu.ols(OUTCOME, s, correction=tu.DSL(repeats=7), seed=1, vcov="HC0")
    theta, se = fit.estimate.extra["repeat_theta"], fit.estimate.extra["repeat_se"]
    assert theta.shape == (7, 3)
    middle = np.median(theta, axis=0)
    np.testing.assert_allclose(fit.coef(), middle)
    expected = np.median(se**2 + (theta - middle) ** 2, axis=0)
    np.testing.assert_allclose(fit.se() ** 2, expected)


def test_dsl_takes_a_scikit_learn_learner():
    s = study(texts(outcome="binary"))
    fit = tu.logit(OUTCOME, s, correction=tu.DSL(repeats=1, learner=LogisticRegression()), seed=1)
    human = tu.logit(OUTCOME, s, correction="human")
    assert (fit.se() < human.se() * 1.05).all()


def test_dsl_keeps_clusters_within_folds():
    from trueup.corrections.pseudo import draw_folds

    s = study(texts(clusters=40), cluster="c")
    design = s.design("v")
    folds = draw_folds(design, 5, np.random.default_rng(1))
    per_cluster = pd.Series(folds).groupby(design.cluster).nunique()
    assert (per_cluster == 1).all()
    coded = pd.Series(design.cluster[design.coded]).drop_duplicates()
    counts = pd.Series(folds).groupby(design.cluster).first()[coded].value_counts()
    assert counts.max() - counts.min() <= 1


def classes(seed=0, N=600, n=200):
    rng = np.random.default_rng(seed)
    d = texts(N=N, n=n, seed=seed)
    v = np.array(["bad", "good", "so-so"])[rng.integers(0, 3, N)]
    f = np.where(rng.uniform(size=N) < 0.15, np.roll(v, 1), v)
    effect = pd.Series(v).map({"bad": 0.0, "good": 1.0, "so-so": 0.5}).to_numpy()
    z = effect + 0.5 * d["x"] + rng.normal(size=N)
    return d.assign(v=v, f1=f, z=z, v_human=pd.Series(v).where(d["v_human"].notna()))


@pytest.mark.parametrize("correction", ["ptd", tu.DSL(repeats=2), tu.DSL(repeats=1, tuning="full")])
@pytest.mark.parametrize("formula", ["z ~ C(v) + x", "z ~ C(v) * t", "I(v == 'good') ~ x + t"])
def test_class_labels_anywhere(correction, formula):
    s = study(classes())
    fit = tu.ols(formula, s, correction=correction, seed=1)
    human = tu.ols(formula, s, correction="human")
    gap = np.abs(fit.coef() - human.coef()) / human.se()
    assert gap.max() < 3.5
    assert fit.se().mean() < human.se().mean()


def test_class_probabilities_mix_the_designs_of_the_classes():
    from trueup.corrections.pseudo import Prediction, pseudo_rows

    s = study(classes())
    problem = tu.ols("z ~ C(v) + x", s).problem
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(3), size=s.n_rows)
    rows = pseudo_rows(problem, {"v": Prediction(p, ("bad", "good", "so-so"))})
    np.testing.assert_allclose(rows.X[:, [1, 2]], p[:, 1:], atol=1e-12)
    np.testing.assert_allclose(rows.X[:, 0], 1.0)


def test_predictions_are_checked():
    s = study(texts())
    n = s.n_rows
    with pytest.raises(CorrectionError, match="one row for each"):
        tu.ols(OUTCOME, s, correction=tu.DSL(predictions=np.zeros(n - 1)))
    with pytest.raises(CorrectionError, match="missing or infinite"):
        tu.ols(OUTCOME, s, correction=tu.DSL(predictions=np.full(n, np.nan)))
    with pytest.raises(CorrectionError, match="labelled variables are"):
        tu.ols(OUTCOME, s, correction=tu.DSL(predictions={"w": np.zeros(n)}))


def separated(seed=1):
    d = texts(N=400, n=40, seed=seed, outcome="binary")
    coded = d["v_human"].notna()
    d.loc[coded, "v_human"] = (d.loc[coded, "t"] == 1).astype(float)
    d.loc[coded & (d["x"] > 1.0), "v_human"] = d.loc[coded & (d["x"] > 1.0), "t"]
    return d


def test_separation_in_the_coded_rows_raises_and_the_fallbacks_work():
    s = study(separated())
    with pytest.raises(SeparationError, match="one-step"):
        tu.logit(OUTCOME, s, correction="ptd")
    for method in ("one-step", "firth"):
        fit = tu.logit(OUTCOME, s, correction=tu.PTD(tuning="diagonal", human_fit=method))
        assert np.isfinite(fit.se()).all()
        assert np.isfinite(fit.coef()).all()
        assert any("read the estimate as a direction" in w for w in fit.estimate.warnings)


def test_firth_needs_logit():
    with pytest.raises(CorrectionError, match="logit only"):
        tu.ols(OUTCOME, study(texts()), correction=tu.PTD(human_fit="firth"))


def test_naive_takes_one_llm_and_leaves_missing_rows_out():
    d = texts()
    d.loc[d.index[:50], "f1"] = np.nan
    s = study(d, llm=["f1", "f2"])
    with pytest.raises(CorrectionError, match="one LLM"):
        tu.ols(OUTCOME, s, llm="all", correction="naive")
    fit = tu.ols(OUTCOME, s, llm="f1", correction="naive")
    rest = d.iloc[50:]
    X = np.column_stack([np.ones(len(rest)), rest["x"], rest["t"]])
    expected = np.linalg.lstsq(X, rest["f1"], rcond=None)[0]
    np.testing.assert_allclose(fit.coef(), expected)
    assert any("50 rows" in note for note in fit.estimate.notes)


@pytest.mark.parametrize("correction", ["ptd", "ppi", "ppi++", "dsl", "human", "pspa"])
@pytest.mark.parametrize("draw", ["srs", "poisson", "strata", "units", "clusters"])
def test_every_correction_on_every_design(correction, draw):
    options = {}
    d = texts(N=600, n=200, draw="poisson" if draw == "poisson" else "srs", clusters=60)
    if draw == "poisson":
        options["sampling"] = poisson()
    elif draw == "strata":
        options["sampling"] = tu.Sampling(strata="t")
    elif draw == "units":
        drawn = np.random.default_rng(1).choice(60, 20, replace=False)
        d["v_human"] = d["v"].where(d["c"].isin(drawn))
        options["sampling"] = tu.Sampling(unit="c")
    elif draw == "clusters":
        options["cluster"] = "c"
    s = study(d, **options)
    for formula in (OUTCOME, COVARIATE):
        if correction == "pspa" and draw in ("clusters", "units"):
            if draw == "clusters":
                with pytest.raises(CorrectionError, match="clustered"):
                    tu.ols(formula, s, correction=correction)
            continue
        fit = tu.ols(formula, s, correction=correction, seed=1)
        human = tu.ols(formula, s, correction="human")
        assert np.isfinite(fit.vcov().to_numpy()).all()
        assert (np.abs(fit.coef() - human.coef()) < 4 * human.se()).all()
        assert fit.se().mean() < 1.1 * human.se().mean()


def test_the_two_forms_of_ppi_are_close_but_not_the_same():
    s = study(texts(N=4000, n=1000, outcome="binary"))
    loss, other = (tu.logit(OUTCOME, s, correction=tu.PPI(form=f)) for f in ("loss", "difference"))
    gap = np.abs(loss.coef() - other.coef()) / other.se()
    assert 1e-6 < gap.max() < 0.5
    np.testing.assert_allclose(loss.se(), other.se(), rtol=0.05)


def test_scalar_and_coordinate_tuning_stay_within_bounds():
    rng = np.random.default_rng(1)
    d = texts().assign(f1=lambda d: -d["v"] + rng.normal(size=len(d)))
    s = study(d)
    for tuning in ("scalar", "coordinate"):
        omega = tu.ols(OUTCOME, s, correction=tu.PPI(tuning=tuning)).estimate.tuning
        assert (omega >= 0).all()
        assert (omega <= 1).all()


def test_the_llm_may_give_probabilities():
    rng = np.random.default_rng(1)
    d = texts(N=2000, n=300, outcome="binary")
    d["f1"] = np.clip(0.8 * d["v"] + 0.1 + 0.1 * rng.normal(size=2000), 0.01, 0.99)
    s = study(d)
    fit, human = (tu.logit(OUTCOME, s, correction=c) for c in ("auto", "human"))
    assert (fit.se() < human.se()).all()
