"""What goes wrong, through the public API: the error, where it is, and how to mend it.

Each case names the error class, what the message must name (column or argument), and the mend.
The second half is odd but legal data, which must work and give the numbers of the plain form.
"""

import warnings
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import trueup as tu
from trueup.errors import (
    ArgumentError,
    CollinearityError,
    ConvergenceError,
    CorrectionError,
    DesignWarning,
    FitError,
    FormulaError,
    SamplingError,
    SeparationError,
    StudyError,
    TrueupError,
)

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

N, CODED = 300, 80
NAN = float("nan")
F = "y ~ x + t"
CORRECTIONS = ("naive", "human", "ppi", "ppi++", "ptd", "dsl", "pspa", "auto")


@cache
def _base() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    d = pd.DataFrame({"x": rng.normal(size=N), "t": rng.integers(0, 2, N).astype(float)})
    d["g"] = np.array(["a", "b", "c"])[rng.integers(0, 3, N)]
    d["c"] = np.arange(N) % 30
    d["v"] = (rng.uniform(size=N) < 1 / (1 + np.exp(-(0.3 + 0.5 * d.x - 0.4 * d.t)))).astype(float)
    d["f1"] = np.where(rng.uniform(size=N) < 0.15, 1 - d.v, d.v)
    d["f2"] = np.where(rng.uniform(size=N) < 0.25, 1 - d.v, d.v)
    d["z"] = 0.5 + 0.8 * d.v + 0.3 * d.x + rng.normal(size=N)
    d["s"] = 1.0 + rng.poisson(3, N)
    d["s1"] = np.maximum(1, d.s + rng.integers(-1, 2, N))
    d["cls"] = np.where(d.s > 4, "high", np.where(d.s > 2, "mid", "low"))
    d["c1"] = np.where(d.s1 > 4, "high", np.where(d.s1 > 2, "mid", "low"))
    d["coded"] = False
    d.loc[rng.choice(N, CODED, replace=False), "coded"] = True
    d["h"], d["sh"], d["ch"] = (d[v].where(d.coded) for v in ("v", "s", "cls"))
    d["pi"] = CODED / N
    return d


def base(**columns) -> pd.DataFrame:
    """Return the table: label y (coder ``h``), s (``sh``), classes (``ch``), LLM columns."""
    return _base().assign(**columns)


D = base()
FIRST = int(np.flatnonzero(D.coded)[0])
"""Position of the first coded row."""


def study(data=D, human="h", llm=("f1",), **options) -> tu.Study:
    return tu.Study(data, human={"y": human}, llm={"y": list(llm)}, **options)


def classes(data=D, **options) -> tu.Study:
    return study(data, "ch", ["c1"], **options)


def both(data=D, **options) -> tu.Study:
    return tu.Study(
        data,
        human={"y": "h", "s": "sh"},
        llm={"y": {"gpt": "f1"}, "s": {"gpt": "s1"}},
        **options,
    )


def drawn(**options) -> tu.Study:
    return study(sampling=tu.Sampling(**options))


def at(column, value, rows=(FIRST,)) -> pd.DataFrame:
    """Return the table with some values of a column replaced."""
    d = base()
    d.loc[list(rows), column] = value
    return d


def uncoded_level(column) -> pd.DataFrame:
    """Return the table with a level 'zz' in rows that nobody coded."""
    rare = ~D.coded & (D.index % 10 == 0)
    return base(**{column: np.where(rare, "zz", D[column])})


def separated() -> pd.DataFrame:
    """Return the table with a covariate k that tells the human labels of the coded rows."""
    other = np.random.default_rng(0).integers(0, 2, N)
    return base(k=np.where(D.coded, D.v, other).astype(float))


def parts(coded, uncoded) -> tu.Study:
    return tu.Study.from_parts(coded, uncoded, human={"y": "h"}, llm={"y": ["f1"]})


def few(n) -> pd.DataFrame:
    return base(h=D.h.where(D.index.isin(D.index[D.coded][:n])))


def prob(value):
    return study(at("pi", value), sampling=tu.Sampling(probability="pi"))


IN, OUT = D[D.coded], D[~D.coded].drop(columns="h")


def first(cases):
    return [case[0] for case in cases]


def rest(cases):
    return [case[1:] for case in cases]


STUDY = [
    ("human column", StudyError, lambda: study(human="hh"), ["'hh'", "human=", "mean 'h'"]),
    ("llm column", StudyError, lambda: study(llm=["f11"]), ["'f11'", "llm=", "mean 'f1'"]),
    ("cluster", StudyError, lambda: study(cluster="cc"), ["'cc'", "cluster=", "mean 'c'"]),
    ("weights", StudyError, lambda: study(weights="pii"), ["'pii'", "weights=", "mean 'pi'"]),
    ("strata", StudyError, lambda: drawn(strata="gg"), ["'gg'", "strata=", "mean 'g'"]),
    ("probability", StudyError, lambda: drawn(probability="p"), ["'p'", "probability=", "'pi'"]),
    ("unit", StudyError, lambda: drawn(unit="cc"), ["'cc'", "unit=", "mean 'c'"]),
    ("tuned_on", StudyError, lambda: study(tuned_on="code"), ["'code'", "tuned_on=", "'coded'"]),
    (
        "pattern",
        StudyError,
        lambda: tu.Study(D, human={"y": "h"}, llm={"y": "{model}__{prompt}"}),
        ["'{model}__{prompt}'", "matches no column", "There are: 'x'"],
    ),
    ("no llm", StudyError, lambda: tu.Study(D, {"y": "h"}, {}), ["llm={}", "as in llm="]),
    ("no human", StudyError, lambda: tu.Study(D, {}, {"y": "f1"}), ["human={}", "as in human="]),
    ("human text", StudyError, lambda: tu.Study(D, "h", {"y": "f1"}), ["human='h'", "as in"]),
    (
        "variable without llm",
        StudyError,
        lambda: tu.Study(D, {"y": "h", "s": "sh"}, {"y": ["f1"]}),
        ["'s' is in human= but not in llm=", "give it a column in both"],
    ),
    (
        "variable without human",
        StudyError,
        lambda: tu.Study(D, {"y": "h"}, {"y": ["f1"], "s": ["s1"]}),
        ["'s' is in llm= but not in human=", "give it a column in both"],
    ),
    (
        "variable no formula can name",
        StudyError,
        lambda: tu.Study(D, {"a`b": "h"}, {"a`b": ["f1"]}),
        ["'a`b'", "name of letters"],
    ),
    ("llm twice", StudyError, lambda: study(llm=["f1", "f1"]), ["'f1' is used twice", "narrow"]),
    ("nobody coded", StudyError, lambda: study(base(h=NAN)), ["column 'h'", "code some rows"]),
    ("one row coded", SamplingError, lambda: study(few(1)), ["one row", "at least two rows"]),
    ("probability missing", SamplingError, lambda: prob(NAN), ["'pi' is missing", "fill it in"]),
    ("probability 0", SamplingError, lambda: prob(0.0), ["'pi' is zero", str(FIRST), "dropped"]),
    ("probability < 0", SamplingError, lambda: prob(-0.1), ["'pi' is zero or neg", "dropped"]),
    ("probability > 1", SamplingError, lambda: prob(1.5), ["'pi' is above 1", "percentages"]),
    ("probability inf", SamplingError, lambda: prob(np.inf), ["'pi' is above 1", "percentages"]),
    (
        "probability of text",
        StudyError,
        lambda: drawn(probability="g"),
        ["probability='g'", "must hold numbers"],
    ),
    (
        "sure but not coded",
        SamplingError,
        lambda: study(base(pi=1.0), sampling=tu.Sampling(probability="pi")),
        ["'pi' is 1 in 220 rows", "code these rows"],
    ),
    (
        "fixed size without probability",
        ArgumentError,
        lambda: tu.Sampling(method="fixed"),
        ["method='fixed'", "probability="],
    ),
    ("method", ArgumentError, lambda: tu.Sampling(method="x"), ["method='x'", "'poisson'"]),
    ("strata type", ArgumentError, lambda: tu.Sampling(strata=3), ["strata=3", "column name"]),
    (
        "sampling type",
        ArgumentError,
        lambda: study(sampling="g"),
        ["sampling=", "tu.Sampling(strata="],
    ),
    (
        "one coded row in a stratum",
        SamplingError,
        lambda: study(
            base(q=np.where((D.index == FIRST) | (~D.coded & (D.index % 50 == 0)), "lone", D.g)),
            sampling=tu.Sampling(strata="q"),
        ),
        ["q = 'lone'", "single coded row", "merge strata"],
    ),
    (
        "no coded row in a stratum",
        SamplingError,
        lambda: study(uncoded_level("g"), sampling=tu.Sampling(strata="g")),
        ["g = 'zz'", "no coded row", "merge strata"],
    ),
    (
        "stratum missing",
        SamplingError,
        lambda: study(at("g", None), sampling=tu.Sampling(strata="g")),
        ["'g' (strata=) is missing in 1 rows", "fill it in"],
    ),
    (
        "probability against strata",
        SamplingError,
        lambda: drawn(strata="g", probability="pi"),
        ["g = ", "Leave out one of strata= and probability="],
    ),
    (
        "unit coded in part",
        SamplingError,
        lambda: drawn(unit="c"),
        ["unit='c'", "coded in part", "Code all their rows"],
    ),
    (
        "unit in two strata",
        SamplingError,
        lambda: study(base(h=D.v.where(D.c < 9)), sampling=tu.Sampling(unit="c", strata="g")),
        ["several: 0, 1", "constant within 'c'"],
    ),
    (
        "one unit",
        SamplingError,
        lambda: study(base(h=D.v.where(D.c == 1)), sampling=tu.Sampling(unit="c")),
        ["one unit", "at least two units"],
    ),
    (
        "all coded rows in one cluster",
        SamplingError,
        lambda: study(base(c=np.where(D.coded, 99, D.c)), cluster="c"),
        ["one cluster", "finer cluster column"],
    ),
    ("one cluster", SamplingError, lambda: study(base(c=1), cluster="c"), ["one cluster", "finer"]),
    (
        "cluster missing",
        StudyError,
        lambda: study(base(c=D.c.where(D.c > 2)), cluster="c"),
        ["cluster= is missing in 30 rows", "give every row a cluster"],
    ),
    (
        "cluster length",
        StudyError,
        lambda: study(cluster=D.c[:9]),
        ["cluster=", "(9,)", "each row"],
    ),
    ("weights negative", StudyError, lambda: study(weights="x"), ["weights=", "zero or more"]),
    ("weights missing", StudyError, lambda: study(weights="sh"), ["weights=", "every row"]),
    (
        "weights zero",
        StudyError,
        lambda: study(weights=(~D.coded).astype(float)),
        ["weights= is zero in every coded row of 'y'", "correct the weights"],
    ),
    (
        "llm missing",
        StudyError,
        lambda: study(at("f1", NAN), missing="error"),
        ["f1 1 (y)", "missing='fill'"],
    ),
    ("missing rule", ArgumentError, lambda: study(missing="drop"), ["missing='drop'", "'fill'"]),
    (
        "a class of missing numbers",
        StudyError,
        lambda: study(at("f1", NAN), missing="level"),
        ["'y' is a number", "missing='fill'"],
    ),
    ("llm empty", StudyError, lambda: study(base(f1=NAN)), ["'f1'", "leave this annotator out"]),
    (
        "text against numbers",
        StudyError,
        lambda: study(base(h=D.h.map({1.0: "pos", 0.0: "neg"}))),
        ["'h' are text", "'f1' are numbers", "Code both alike"],
    ),
    (
        "labels of mixed kinds",
        StudyError,
        lambda: study(base(h=D.h.astype(object).where(D.x < 1, "?"))),
        ["'h' mixes text", "'?'", "all numbers"],
    ),
    (
        "NA written out",
        StudyError,
        lambda: classes(base(ch=D.ch.fillna("NA"))),
        ["'ch' holds 'NA' in 220 rows", "make these missing"],
    ),
    (
        "empty text",
        StudyError,
        lambda: classes(base(ch=D.ch.fillna(" "))),
        ["'ch' holds empty text in 220 rows", "make these missing"],
    ),
    (
        "spelling",
        StudyError,
        lambda: classes(base(c1=D.c1.str.upper())),
        ["'HIGH' and 'high'", "spell them alike"],
    ),
    ("infinite", StudyError, lambda: study(at("f1", np.inf)), ["'f1'", "infinite", "mend them"]),
    (
        "numeric categories",
        StudyError,
        lambda: study(base(f1=D.f1.astype("category"))),
        ["'f1'", "convert it to plain numbers"],
    ),
    (
        "dates",
        StudyError,
        lambda: study(base(f1=pd.Timestamp("2020-01-01"))),
        ["'f1' holds datetime", "must be numbers"],
    ),
    ("no rows", StudyError, lambda: study(D[:0]), ["no rows"]),
    ("a list", StudyError, lambda: study(D.to_dict("records")), ["not builtins.list", "pandas"]),
    ("lazy", StudyError, lambda: study(pl.from_pandas(D).lazy()), ["LazyFrame", ".collect()"]),
    (
        "repeated column",
        StudyError,
        lambda: study(pd.concat([D, D[["x"]]], axis=1)),
        ["'x'", "rename"],
    ),
    ("number as name", StudyError, lambda: study(D.rename(columns={"x": 5})), ["[5]", "Rename"]),
    (
        "parts: coded lack a column",
        StudyError,
        lambda: parts(IN.drop(columns="x"), OUT),
        ["only the uncoded table has 'x'", "same columns"],
    ),
    (
        "parts: uncoded lack a column",
        StudyError,
        lambda: parts(IN, OUT.drop(columns="x")),
        ["only the coded table has 'x'", "same columns"],
    ),
    (
        "parts: a coded row without label",
        StudyError,
        lambda: parts(D[: FIRST + 1], OUT),
        [f"{FIRST} rows of the coded table", "'h'", "move them to the uncoded table"],
    ),
    (
        "parts: an uncoded row with label",
        StudyError,
        lambda: parts(IN, OUT.assign(h=1.0)),
        ["220 rows of the uncoded table", "'h'", "move them to the coded table"],
    ),
    (
        "parts: text in one table",
        StudyError,
        lambda: parts(IN.assign(x="a"), OUT),
        ["'x'", "text", "convert"],
    ),
    (
        "tuned on uncoded rows",
        StudyError,
        lambda: study(tuned_on=~D.coded.to_numpy()),
        ["tuned_on=", "220 rows without a human label", "Unmark"],
    ),
    (
        "tuned on all coded rows",
        SamplingError,
        lambda: study(tuned_on="coded"),
        ["tuned_on=", "Keep some"],
    ),
]


@pytest.mark.parametrize(("error", "build", "says"), rest(STUDY), ids=first(STUDY))
def test_a_study_that_does_not_fit_is_refused_when_it_is_built(error, build, says):
    refused(error, build, says)


def refused(error, build, says):
    with pytest.raises(error) as caught:
        build()
    assert type(caught.value) is error
    for words in says:
        assert words in str(caught.value), f"{words!r} not in: {caught.value}"


COLLINEAR = base(twice=2 * D.x, flat=3.0, group_a=(D.g == "a") * 1.0, z2=2 * D.z)
TWO = study(llm=["f1", "f2"])

FITS = [
    ("formula column", FormulaError, lambda: tu.ols("y ~ xx", study()), ["'xx'", "mean 'x'"]),
    ("effect", FormulaError, lambda: tu.absorb("y ~ x | gg", study()), ["'gg'", "mean 'g'"]),
    ("instrument", FormulaError, lambda: tu.iv("y ~ 1 + [x ~ zz]", study()), ["'zz'", "mean 'z'"]),
    (
        "human column in a formula",
        FormulaError,
        lambda: tu.ols("h ~ x", study()),
        ["'h' holds the human labels of 'y'", "write 'y'"],
    ),
    ("mean of nothing", FormulaError, lambda: tu.mean("yy", study()), ["'yy'", "mean 'y'"]),
    (
        "no label",
        FormulaError,
        lambda: tu.mean("x", study()),
        ["labelled variable ('y')", "fit"],
    ),
    ("no tilde", FormulaError, lambda: tu.ols("y", study()), ["'y' must have one tilde", "y ~ x"]),
    ("bracket", FormulaError, lambda: tu.ols("y ~ (x", study()), ["')' is missing"]),
    ("function", FormulaError, lambda: tu.ols("y ~ lag2(x)", study()), ["lag2()", "mean 'lag'"]),
    ("itself", FormulaError, lambda: tu.ols("y ~ x + y", study()), ["'y'", "out of one side"]),
    (
        "effects in ols",
        FormulaError,
        lambda: tu.ols("y ~ x | g", study()),
        ["'|'", "tu.absorb", "C(column)"],
    ),
    (
        "absorb nothing",
        FormulaError,
        lambda: tu.absorb(F, study()),
        ["tu.absorb", "x | school"],
    ),
    ("iv of nothing", FormulaError, lambda: tu.iv(F, study()), ["tu.iv", "[d ~ z]"]),
    (
        "absorbed label",
        FormulaError,
        lambda: tu.absorb("z ~ x | y", study()),
        ["'y' is a labelled variable", "C(y)"],
    ),
    *(
        (
            formula,
            FormulaError,
            lambda formula=formula: tu.ols(formula, study()),
            ["learn from the labels 'y'", "fixed numbers"],
        )
        for formula in ("scale(y) ~ x", "z ~ scale(y)", "z ~ poly(y, 2)", "z ~ bs(y, df=4)")
    ),
    (
        "log of 0",
        FormulaError,
        lambda: tu.ols("y ~ log(x)", study()),
        ["'log(x)' in 160", "log(1 + x)"],
    ),
    (
        "text outcome",
        FormulaError,
        lambda: tu.logit("y ~ x", classes()),
        ["'y' is text", "I(y == "],
    ),
    (
        "digits as text everywhere",
        FormulaError,
        lambda: tu.logit(
            "y ~ x", study(base(h=D.h.map({1.0: "1", 0.0: "0"}), f1=D.f1.astype(int).astype(str)))
        ),
        ["'y' is text", "I(y == '1')", "code the column as 0/1"],
    ),
    (
        "probabilities as classes",
        FormulaError,
        lambda: tu.ols("z ~ C(y)", study(base(f1=0.25 + D.f1 / 2))),
        ["C(y)", "'f1'", "Write y without C()"],
    ),
    (
        "too few rows",
        FitError,
        lambda: tu.ols(F, study(few(3))),
        ["3 coded rows", "3 coef"],
    ),
    (
        "too few rows with a weight",
        FitError,
        lambda: tu.ols(F, study(weights=np.where(D.index > FIRST, 0.0, 1.0))),
        ["1 coded rows", "code more rows"],
    ),
    *(
        (
            f"covariate {value}",
            StudyError,
            lambda value=value: tu.ols(F, study(at("x", value, [3, 5]))),
            ["'x' is missing", "positions 3, 5", "Fill these values in"],
        )
        for value in (NAN, np.inf, -np.inf)
    ),
    (
        "text covariate missing",
        StudyError,
        lambda: tu.ols("y ~ g", study(at("g", None, [7]))),
        ["'g' is missing in 1", "positions 7", "Fill these values in"],
    ),
    (
        "absorbed effect missing",
        StudyError,
        lambda: tu.absorb("y ~ x | g", study(at("g", None, [7]))),
        ["'g' is missing in 1", "Fill these values in"],
    ),
    (
        "date covariate",
        FormulaError,
        lambda: tu.ols("y ~ day", study(base(day=pd.Timestamp("2020-01-01")))),
        ["'day' holds datetime", "I(day.dt.year)"],
    ),
    (
        "level of uncoded rows",
        CollinearityError,
        lambda: tu.ols("y ~ x + g", study(uncoded_level("g"))),
        ["level 'zz' of column 'g'", "Merge such levels"],
    ),
    (
        "class that no human gave",
        CollinearityError,
        lambda: tu.ols("z ~ x + y", classes(uncoded_level("c1"))),
        ["class 'zz' of 'y'", "Merge such levels"],
    ),
    (
        "refusals as a class of a covariate",
        CollinearityError,
        lambda: tu.ols("z ~ x + y", classes(at("c1", None, range(90)), missing="level")),
        ["'refused' of 'y'", "missing='fill'"],
    ),
    (
        "collinear",
        CollinearityError,
        lambda: tu.ols("y ~ x + twice", study(COLLINEAR)),
        ["'twice' is a linear combination of 'x'", "Leave such columns out"],
    ),
    (
        "collinear logit",
        CollinearityError,
        lambda: tu.logit("y ~ x + twice", study(COLLINEAR)),
        ["'twice' is a linear combination of 'x'", "Leave such columns out"],
    ),
    (
        "constant covariate",
        CollinearityError,
        lambda: tu.ols("y ~ x + flat", study(COLLINEAR)),
        ["'flat' is constant", "Leave such columns out"],
    ),
    (
        "constant within effects",
        CollinearityError,
        lambda: tu.absorb("y ~ x + group_a | g", study(COLLINEAR)),
        ["'group_a' is 0", "Leave such columns out"],
    ),
    (
        "collinear instruments",
        CollinearityError,
        lambda: tu.iv("y ~ x + [t ~ z + z2]", study(COLLINEAR)),
        ["'z2' is a linear combination of 'z'", "Leave such columns out"],
    ),
    (
        "human outcome that the family forbids",
        FitError,
        lambda: tu.logit(F, study(base(h=2 * D.h))),
        ["human labels", "'y' has", "(2)", "Recode"],
    ),
    (
        "llm outcome that the family forbids",
        FitError,
        lambda: tu.logit(F, study(base(f1=2 * D.f1))),
        ["labels of 'f1'", "'y' has", "(2)", "Recode"],
    ),
    (
        "negative counts",
        FitError,
        lambda: tu.poisson(F, study(base(h=D.h - 1))),
        ["human labels", "(-1)", "0 or more"],
    ),
    (
        "zeros in gamma",
        FitError,
        lambda: tu.glm(F, study(), family="gamma"),
        ["'y' has", "above 0", "another family"],
    ),
    *(
        (
            f"constant llm {name}",
            FitError,
            lambda fit=fit: fit(F, study(base(f1=1.0))),
            ["'f1'", "every row the same 'y' (1)", "other annotators"],
        )
        for name, fit in (("logit", tu.logit), ("poisson", tu.poisson))
    ),
    (
        "constant llm, not corrected",
        FitError,
        lambda: tu.ols(F, study(base(f1=1.0)), correction="naive"),
        ["'f1'", "same outcome (1)", "another annotator"],
    ),
    (
        "constant llm covariate",
        CollinearityError,
        lambda: tu.ols("z ~ y + x", study(base(f1=1.0))),
        ["'f1'", "every row the same 'y' (1.0)", "other annotators"],
    ),
    *(
        (
            f"constant human labels {name}",
            FitError,
            lambda fit=fit: fit(study(base(h=0 * D.h))),
            ["'y' is 0 in all 80 coded rows", "code more rows"],
        )
        for name, fit in (
            ("mean", lambda s: tu.mean("y", s)),
            ("ols", lambda s: tu.ols(F, s)),
            ("poisson", lambda s: tu.poisson(F, s, correction="ppi")),
        )
    ),
    *(
        (
            f"separation {how}",
            SeparationError,
            lambda how=how: tu.logit("y ~ x + k", study(separated()), correction=how),
            ["human labels", "'k' run away", "one-step", "firth"],
        )
        for how in ("auto", "human", "ptd", "ppi++")
    ),
    (
        "separation of the llm",
        SeparationError,
        lambda: tu.logit(F, study(base(f1=D.f1.where(~D.coded, 0.0)))),
        ["coded rows (labels of 'f1')", "run away", 'correction="dsl"', "another annotator"],
    ),
    (
        "uncoded reference without probabilities",
        CorrectionError,
        lambda: tu.ols(
            F,
            study(base(pi=D.pi.where(D.coded)), sampling=tu.Sampling(probability="pi")),
            correction=tu.PTD(reference="uncoded"),
        ),
        ['reference="uncoded"', "every row", 'reference="all"'],
    ),
    (
        "uncoded reference, all coded",
        CorrectionError,
        lambda: tu.ols(F, study(human="v"), correction="pspa"),
        ['reference="uncoded"', 'reference="all"'],
    ),
    (
        "clusters in pspa",
        CorrectionError,
        lambda: tu.ols(F, study(cluster="c"), correction="pspa"),
        ["PSPA", "clustered", "tu.PTD()"],
    ),
    (
        "clusters that split units",
        SamplingError,
        lambda: tu.ols(
            F,
            study(base(h=D.v.where(D.c < 9)), cluster="g", sampling=tu.Sampling(unit="c")),
        ),
        ["Clusters split the units", "Give cluster="],
    ),
    (
        "variables coded on other rows",
        StudyError,
        lambda: tu.ols("y ~ s", both(base(sh=D.s.where(D.index < 100)))),
        ["'y' on 80 rows, 's' on 100 rows", "build separate studies"],
    ),
    ("no study", ArgumentError, lambda: tu.ols(F, D), ["study must be", "tu.Study(data"]),
    ("annotator", ArgumentError, lambda: tu.ols(F, study(), llm="f"), ["llm='f'", "'f1'"]),
    ("which annotator", ArgumentError, lambda: tu.ols(F, TWO), ["llm='...'", "llm='all'"]),
    ("no annotator", ArgumentError, lambda: tu.ols(F, TWO, llm=[]), ["llm= is empty", "name"]),
    ("annotator number", ArgumentError, lambda: tu.ols(F, TWO, llm=3), ["llm=3", "list of names"]),
    (
        "naive of two",
        CorrectionError,
        lambda: tu.ols(F, TWO, llm="all", correction="naive"),
        ["naive", "one LLM at a time", "llm="],
    ),
    ("family", ArgumentError, lambda: tu.glm(F, study(), family="gauss"), ["'gauss'", "gaussian"]),
    (
        "link",
        ArgumentError,
        lambda: tu.glm(F, study(), family="binomial", link="sqrt"),
        ["link='sqrt'", "use identity"],
    ),
]


@pytest.mark.parametrize(("error", "build", "says"), rest(FITS), ids=first(FITS))
def test_a_regression_that_does_not_fit_is_refused(error, build, says):
    refused(error, build, says)


OPTIONS = [
    *(
        (lambda v=v: tu.ols(F, study(), level=v), f"level={v!r}", "0.95")
        for v in (0, 1, 95, NAN, "a")
    ),
    *((lambda v=v: tu.PPI(tuning=v), f"tuning={v!r}", "[0, 1]") for v in (-0.1, 1.1, NAN, None)),
    (lambda: tu.PPI(tuning="best"), "tuning='best'", "'scalar'"),
    (lambda: tu.PTD(tuning="half"), "tuning='half'", "'diagonal'"),
    *(
        (lambda how=how: how(human_fit="ridge"), "human_fit='ridge'", '"one-step"')
        for how in (tu.PTD, tu.PPI, tu.PSPA, tu.Human)
    ),
    (lambda: tu.DSL(human_fit="firth"), "human_fit='firth'", 'tuning="diagonal"'),
    (lambda: tu.DSL(folds="five"), "folds='five'", "2 or more"),
    (lambda: tu.DSL(repeats=0), "repeats=0", "1 or more"),
    (lambda: tu.Calibration(penalty=-1), "penalty=-1", "0 or more"),
    (lambda: tu.Vcov(hc="HC9"), "hc='HC9'", "'HC3'"),
    (lambda: tu.Vcov(reference="z"), "reference='z'", "'normal'"),
    (lambda: tu.ols(F, study(), vcov="HC9"), "vcov='HC9'", "HC3"),
    (lambda: tu.ols(F, study(), seed=-1), "seed=-1", "whole number"),
    (lambda: tu.ols(F, study(), seed="one"), "seed='one'", "whole number"),
    (lambda: tu.ols(F, study(), correction="ptdd"), "correction='ptdd'", "mean 'ptd'"),
    (lambda: tu.ols(F, study(), correction=tu.PTD), "PTD", "(with brackets)"),
    (lambda: tu.ols(F, study(), correction=None), "correction=None", "use one of"),
]


@pytest.mark.parametrize(("build", "argument", "mend"), OPTIONS, ids=[c[1] for c in OPTIONS])
def test_an_option_that_does_not_exist_is_refused(build, argument, mend):
    refused(ArgumentError, build, [argument, mend])


PREDICTIONS = [
    (D.f1[:9], "(9,)", "each of the 300 rows"),
    (D.h, "missing or infinite", "'y'"),
    (D.g, "not numbers", "probability"),
]


@pytest.mark.parametrize(("given", "names", "mend"), PREDICTIONS, ids=["short", "gaps", "text"])
def test_predictions_that_do_not_fit_are_refused(given, names, mend):
    refused(
        CorrectionError,
        lambda: tu.ols(F, study(), correction=tu.DSL(predictions=given)),
        ["predictions= for 'y'", names, mend],
    )


def test_probabilities_that_do_not_add_up_to_the_table_are_warned_of():
    with pytest.warns(DesignWarning, match=r"add up to 89.*300 rows. Check"):
        study(base(pi=0.9), sampling=tu.Sampling(probability="pi"))


@pytest.mark.parametrize("how", CORRECTIONS)
def test_separated_rows_give_a_fit_or_an_error_of_ours(how):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        k = np.where(D.coded, D.v, rng.integers(0, 2, N)).astype(float)
        s = both(base(k=k, sh=D.s.where(D.coded) * k))
        for fit, formula in ((tu.logit, "y ~ x + k"), (tu.poisson, "s ~ x + k")):
            try:
                table = fit(formula, s, correction=how, seed=seed).tidy()
            except TrueupError:
                continue
            assert table.notna().all(axis=None)


@pytest.mark.parametrize("method", ["one-step", "firth"])
def test_the_fallbacks_offered_for_separation_exist(method):
    fit = tu.logit("y ~ x + k", study(separated()), correction=tu.PTD(human_fit=method))
    assert np.isfinite(fit.tidy()[["estimate", "std_error"]]).all(axis=None)


# Odd but legal ------------------------------------------------------------------------------


def numbers(s, formula=F, fit=tu.ols, **options):
    """Return estimates and standard errors after making every table and text of a fit."""
    out = fit(formula, s, **options)
    str(out.summary()), out.glance(), out.compare().tidy()
    table = out.tidy()
    assert table.notna().all(axis=None)
    return table[["estimate", "std_error"]].to_numpy()


def same(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def reindexed(index):
    d = base()
    d.index = index
    return d


@pytest.mark.parametrize(
    "index",
    [
        np.repeat([5, 5, 9], N // 3),
        np.arange(N)[::-1] * 7,
        [f"r{i}" for i in range(N)],
        pd.MultiIndex.from_product([range(30), range(10)]),
    ],
    ids=["duplicates", "gaps", "text", "multi"],
)
def test_rows_are_told_apart_by_position_whatever_the_index(index):
    d = reindexed(index)
    design = tu.Sampling(probability=d.pi)
    plain = tu.Sampling(probability=D.pi.to_numpy())
    same(
        numbers(study(d, cluster=d.c, weights=d.s, sampling=design)),
        numbers(study(cluster="c", weights="s", sampling=plain)),
    )
    half = study(d, tuned_on=d.coded & (d.x > 1))
    assert half.n_rows == N - int((D.coded & (D.x > 1)).sum())


@pytest.mark.parametrize(
    "convert",
    [
        pl.from_pandas,
        pa.Table.from_pandas,
        lambda d: {c: d[c].to_numpy() for c in d},
        lambda d: d.convert_dtypes(dtype_backend="pyarrow"),
        lambda d: d.convert_dtypes(dtype_backend="numpy_nullable"),
        lambda d: pl.from_pandas(d).with_columns(pl.col("g", "c1", "ch").cast(pl.Categorical)),
        lambda d: pl.from_pandas(d).with_columns(pl.col("h").fill_null(NAN)),
        lambda d: pa.Table.from_pandas(d.astype({"g": "category"})),
    ],
    ids=["polars", "arrow", "dict", "pandas-arrow", "nullable", "categorical", "nan", "dictionary"],
)
def test_every_make_of_table_gives_the_same(convert):
    table = convert(D)
    strata = {"cluster": "c", "sampling": tu.Sampling(strata="g")}
    same(numbers(study(table, **strata), "y ~ x + g"), numbers(study(**strata), "y ~ x + g"))
    same(numbers(classes(table), "z ~ y + x"), numbers(classes(), "z ~ y + x"))


def test_tables_of_two_makes_can_be_parts_of_one_study():
    same(
        numbers(parts(pl.from_pandas(IN), OUT)),
        numbers(parts(IN, pa.Table.from_pandas(OUT, preserve_index=False))),
    )


@pytest.mark.parametrize(
    "columns",
    [
        {"h": D.h.map({1.0: True, 0.0: False})},
        {"h": D.h.map({1.0: True, 0.0: False}).astype("boolean")},
        {"h": D.h.astype("Int64"), "f1": D.f1 == 1},
        {"h": D.h.map({1.0: "1", 0.0: "0"})},
        {"h": D.h.map({1.0: "1", 0.0: "0"}).astype("category")},
        {"f1": D.f1.map({1.0: "1", 0.0: "0.0"})},
    ],
    ids=["bool", "boolean", "integers", "text", "categories", "llm text"],
)
def test_labels_of_0_and_1_may_be_written_in_many_ways(columns):
    same(numbers(study(base(**columns)), fit=tu.logit), numbers(study(), fit=tu.logit))


@pytest.mark.parametrize("llm", ["object", "category"])
@pytest.mark.parametrize("human", ["object", "category"])
def test_classes_may_be_text_or_categories(human, llm):
    words = {1.0: "pos", 0.0: "neg"}
    s = study(base(h=D.h.map(words).astype(human), f1=D.f1.map(words).astype(llm)))
    same(numbers(s, "I(y == 'pos') ~ x + t"), numbers(study()))
    same(numbers(s, "z ~ x + C(y)"), numbers(study(), "z ~ x + y"))
    same(numbers(s, "z ~ x + y"), numbers(study(), "z ~ x + y"))


def test_text_covariates_with_and_without_c():
    same(numbers(study(), "y ~ C(g)"), numbers(study(), "y ~ g"))


@pytest.mark.parametrize("how", [c for c in CORRECTIONS if c not in ("naive", "pspa")])
@pytest.mark.parametrize("fit", [tu.ols, tu.logit])
def test_with_every_row_coded_all_corrections_are_the_human_fit(fit, how):
    s = study(human="v")
    human = numbers(s, fit=fit, correction="human")
    np.testing.assert_allclose(numbers(s, fit=fit, correction=how), human, rtol=1e-6)


@pytest.mark.parametrize("how", ["human", "ppi", "ppi++", "ptd", "auto"])
@pytest.mark.parametrize("vcov", ["HC0", "HC1", "HC2", "HC3"])
def test_one_coded_row_more_than_coefficients(how, vcov):
    fit = tu.ols(F, study(few(4)), correction=how, vcov=vcov)
    assert fit.tidy().notna().all(axis=None)
    assert any("rests on about" in w for w in fit.estimate.warnings)


def test_too_few_coded_rows_for_the_folds_say_so():
    build = lambda: tu.ols(F, study(few(4)), correction="dsl")  # noqa: E731
    refused(CorrectionError, build, ["4 coded rows", "folds=5", "use fewer folds"])


@pytest.mark.parametrize("how", ["ppi", "ppi++", "ptd", "auto"])
def test_an_annotator_that_equals_the_coders_gives_the_fit_to_all_rows(how):
    s = study(base(f1=D.v))
    same(
        numbers(s, correction=how, vcov="HC0")[:, 0],
        numbers(study(human="v"), correction="human")[:, 0],
    )


@pytest.mark.parametrize("how", ["ppi", "ppi++", "ptd", "auto"])
def test_a_constant_annotator_does_no_harm_to_least_squares(how):
    fit = tu.ols(F, study(base(f1=1.0)), correction=how)
    human = tu.ols(F, study(), correction="human")
    same(fit.coef(), human.coef())
    same(fit.se(), human.se())
    if how in ("ptd", "auto"):
        assert any("an LLM is constant" in w for w in fit.estimate.warnings)


@pytest.mark.parametrize("formula", [F, "z ~ y + x"])
def test_identical_annotators_used_jointly_are_one(formula):
    twins = study(base(f2=D.f1), llm=["f1", "f2"])
    same(
        numbers(twins, formula, llm="all", correction="ptd"),
        numbers(study(), formula, correction="ptd"),
    )
    for how in ("ppi", "ppi++", "dsl", "auto"):
        numbers(twins, formula, llm="all", correction=how, seed=1)


GAPS = np.random.default_rng(3).uniform(size=N) < 0.3
GAPPY = base(f1=D.f1.mask(GAPS), c1=D.c1.mask(GAPS))


@pytest.mark.parametrize("how", CORRECTIONS)
def test_missing_llm_labels_are_filled_by_a_fixed_rule_and_counted(how):
    fit = tu.ols(F, study(GAPPY), correction=how, seed=1)
    text = str(fit.summary())
    count = str(int(GAPS.sum()))
    if how == "naive":
        assert f"{count} rows without a label of 'f1' are left out" in text
        kept = tu.ols(F, study(D[~GAPS]), correction="naive")
        same(fit.coef(), kept.coef())
    elif how != "human":
        most = float(D.f1[~GAPS].mean() > 0.5)
        filled = tu.ols(F, study(base(f1=D.f1.mask(GAPS, most))), correction=how, seed=1)
        same(fit.coef(), filled.coef())
    assert count in text


@pytest.mark.parametrize("how", CORRECTIONS)
def test_refusals_can_be_a_class_of_the_outcome(how):
    outcome = "I(y == 'mid') ~ x"
    level = tu.ols(outcome, classes(GAPPY, missing="level"), correction=how, seed=1)
    as_other = classes(GAPPY.assign(c1=GAPPY.c1.fillna("high")))
    assert level.tidy().notna().all(axis=None)
    if how != "naive":
        # The learner of dsl sees one class more, which moves its predictions a little.
        other = tu.ols(outcome, as_other, correction=how, seed=1)
        np.testing.assert_allclose(level.coef(), other.coef(), rtol=1e-4 if how == "dsl" else 1e-10)


@pytest.mark.parametrize("how", CORRECTIONS)
def test_rows_of_weight_zero(how):
    weights = np.random.default_rng(4).integers(0, 3, N).astype(float)
    s = study(weights=weights)
    for fit, formula in ((tu.ols, F), (tu.logit, F), (tu.absorb, "y ~ x | g")):
        if how == "pspa" and fit is tu.absorb:
            continue
        numbers(s, formula, fit=fit, correction=how, seed=1)


UNITS = base(h=D.v.where(D.c.isin([0, 3, 5, 8, 9, 12, 20, 23, 26, 29])), half=D.c % 2)


@pytest.mark.parametrize("how", CORRECTIONS)
@pytest.mark.parametrize(
    ("data", "options"),
    [
        (D, {"cluster": "c", "sampling": tu.Sampling(strata="g")}),
        (base(half=D.c % 2), {"cluster": "c", "sampling": tu.Sampling(strata="half")}),
        (UNITS, {"sampling": tu.Sampling(unit="c")}),
        (UNITS, {"sampling": tu.Sampling(unit="c", strata="half")}),
        (UNITS, {"cluster": D.c // 2, "sampling": tu.Sampling(unit="c", strata="half")}),
        (UNITS.assign(pi=1 / 3), {"sampling": tu.Sampling(unit="c", probability="pi")}),
        (D, {"sampling": tu.Sampling(probability="pi")}),
        (D, {"sampling": tu.Sampling(probability="pi", method="fixed")}),
    ],
    ids=["clusters x strata", "nested", "units", "units x strata", "wider", "pi", "pi", "fixed"],
)
def test_designs_of_several_parts(how, data, options):
    s = study(data, **options)
    if how == "pspa" and "cluster" in options:
        with pytest.raises(CorrectionError, match=r"does not support clustered rows: use tu.PTD"):
            numbers(s, correction=how)
    else:
        numbers(s, correction=how, seed=1)


def test_a_fixed_size_with_one_probability_is_a_simple_random_sample():
    fixed = study(sampling=tu.Sampling(probability="pi", method="fixed"))
    same(numbers(fixed), numbers(study()))


FORMULAS = [
    (tu.ols, "z ~ y * C(g)"),
    (tu.ols, "y ~ s + x"),
    (tu.ols, "s ~ I(s ** 2) + x"),
    (tu.ols, "log(s) ~ x + y"),
    (tu.ols, "z ~ x + log(s)"),
    (tu.ols, "y ~ poly(x, 3)"),
    (tu.logit, "y ~ bs(x, df=4)"),
    (tu.poisson, "s ~ x + y"),
    (tu.iv, "y ~ t + [x ~ z]"),
    (tu.iv, "z ~ t + [y ~ x]"),
    (tu.absorb, "y ~ x | g + c"),
]


NO_ROOT = ["no finite solution", "Code more rows", "tu.PTD()"]


@pytest.mark.parametrize("how", CORRECTIONS)
@pytest.mark.parametrize(("fit", "formula"), FORMULAS, ids=[f for _, f in FORMULAS])
def test_labels_anywhere_in_a_formula(how, fit, formula):
    if how == "pspa" and fit in (tu.iv, tu.absorb):
        return
    if (how, formula) == ("dsl", "y ~ bs(x, df=4)"):
        # The spline's ends hold so few coded rows that no solution of the scores exists.
        refused(ConvergenceError, lambda: fit(formula, both(), correction=how, seed=1), NO_ROOT)
        return
    numbers(both(), formula, fit=fit, correction=how, seed=1)


NAMES = ["log", "C", "I", "poly", "class", "lambda", "None", "np", "my label", "1st", "I(x)", "y~x"]


@pytest.mark.parametrize("name", NAMES)
def test_a_label_may_be_called_anything(name):
    s = tu.Study(D, human={name: "h"}, llm={name: ["f1"]})
    same(numbers(s, f"`{name}` ~ x + t"), numbers(study()))
    same(numbers(s, f"z ~ x + `{name}`"), numbers(study(), "z ~ x + y"))


@pytest.mark.parametrize("scale", [1e9, 1e-9])
def test_the_unit_of_a_covariate_does_not_matter(scale):
    scaled = numbers(study(base(x=D.x * scale)), fit=tu.logit).copy()
    scaled[1] *= scale
    np.testing.assert_allclose(scaled, numbers(study(), fit=tu.logit), rtol=1e-6)


def test_small_integers_do_not_overflow():
    d = base(a=(D.c + 100).astype("int8"))
    same(
        numbers(study(d), "y ~ I(a * a) + a:t"),
        numbers(study(d.astype({"a": float})), "y ~ I(a * a) + a:t"),
    )


@pytest.mark.parametrize("how", CORRECTIONS)
def test_ordinary_use_warns_of_nothing(how):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", tu.errors.SmallSampleWarning)  # the sample is small
        for fit, formula in ((tu.ols, F), (tu.logit, F), (tu.poisson, F), (tu.mean, "y")):
            numbers(study(), formula, fit=fit, correction=how, seed=1)
