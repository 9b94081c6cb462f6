"""What the summary says, and that it fits the page."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trueup.corrections.naive import WHAT_IT_IS
from trueup.study.design import Draw


def lines(fit, **options) -> list[str]:
    return str(fit.summary(**options)).splitlines()


def flat(fit, **options) -> str:
    return " ".join(str(fit.summary(**options)).split())


@pytest.fixture
def rich(make):
    base = make().fit.estimate
    missing = np.zeros(300, dtype=bool)
    missing[:9] = True
    return make(
        vcov_human=base.vcov * 4,
        informative=np.array([50.0, 11.4, 30.0, 44.0]),
        tuning=np.ones((4, 4)),
        df=np.array([20.0, 30.0, 40.0, 10.5]),
        missing={"gpt__p1": missing},
        metadata={"gpt__p1": {"model": "gpt", "prompt": "p1"}},
        notes=("Correction chosen: PTD, since one LLM.",),
        warnings=("About 11 coded rows carry the standard error of 'x'.",),
    )


def test_it_says_who_labelled_what_and_how(rich):
    text = flat(rich.fit)
    for said in (
        "Call: tu.ols('positive ~ x * C(group)', study, llm='gpt__p1')",
        "Formula: positive ~ x * C(group)",
        "Family: ols",
        "Correction: ptd, tuning 4 x 4 matrix",
        "Labels: 300 rows; positive",
        "human 60 rows coded (20.0%)",
        "LLM gpt__p1 (model gpt, prompt p1): 291 rows labelled, 9 missing and filled in",
        "Coded rows: simple random sample of rows; inclusion probability 0.2",
        "Coefficients (corrected):",
        "95% CI 95% CI human-only Estimate Std. Error t value Pr(>|t|) low high Std. Error",
        "t distribution with 10.5 to 40.0 degrees of freedom",
        "worth 240 human labels (you coded 60)",
        "11 at the least, for 'x'; fewer than 30, so take its interval as approximate",
        "Notes: - Correction chosen: PTD, since one LLM.",
        "Warnings: - About 11 coded rows carry the standard error of 'x'.",
    ):
        assert said in text


def test_the_table_holds_the_numbers(rich):
    row = next(line for line in lines(rich.fit) if line.startswith("x "))
    cells = row.split()
    table = rich.fit.tidy().loc[1]
    shown = [float(c) for c in cells[1:]]
    expected = [
        table["estimate"],
        table["std_error"],
        table["statistic"],
        table["p_value"],
        table["conf_low"],
        table["conf_high"],
        table["std_error"] * 2,
    ]
    np.testing.assert_allclose(shown, expected, atol=6e-4)


def test_the_level_can_be_chosen(rich):
    row = next(line for line in lines(rich.fit, level=0.5) if line.startswith("x "))
    table = rich.fit.tidy(level=0.5).loc[1]
    assert float(row.split()[5]) == pytest.approx(table["conf_low"], abs=6e-4)
    assert flat(rich.fit, level=0.5).count("50% CI") == 2


def test_normal_reference_says_z(make):
    text = flat(make(df=np.inf).fit)
    assert "z value" in text
    assert "Pr(>|z|)" in text
    assert "normal reference distribution" in text


def test_no_column_for_human_only_where_it_is_unknown_or_the_same(make):
    assert "human-only" not in flat(make().fit)
    base = make().fit.estimate
    text = flat(make(correction="human", vcov_human=base.vcov).fit)
    assert "human-only" not in text
    assert "worth" not in text
    assert "LLM " not in text
    assert "Coefficients (human labels only):" in text


def test_enough_informative_rows(make):
    text = flat(make(informative=np.array([50.0, 35.0, 99.0, 44.0])).fit)
    assert "35 at the least, for 'x'; enough to take the intervals at face value" in text


def test_naive_is_called_what_it_is(make):
    missing = np.zeros(300, dtype=bool)
    missing[:9] = True
    w = make(correction="naive", missing={"gpt__p1": missing}, notes=(WHAT_IT_IS, "Other."))
    text = flat(w.fit)
    assert "taken for human labels" in text
    assert text.count(WHAT_IT_IS) == 1
    assert text.index(WHAT_IT_IS) < text.index("Coefficients (LLM labels only, not corrected):")
    assert "Notes: - Other." in text
    assert "9 missing and left out" in text
    assert "rows coded" not in text
    assert "Coded rows:" not in text


def test_stars_are_optional(rich):
    e = rich.fit.estimate
    rich = replace(rich, fit=replace(rich.fit, estimate=replace(e, vcov=e.vcov / 9)))
    assert "Signif. codes" not in flat(rich.fit)
    text = str(rich.fit.summary(stars=True))
    assert "Signif. codes" in text
    marked = []
    for term, p in rich.fit.tidy().set_index("term")["p_value"].items():
        row = next(line for line in text.splitlines() if line.startswith(f"{term} "))
        after_p = row.split()[5]
        if p < 0.1:
            mark = "***" if p < 0.001 else "**" if p < 0.01 else "*" if p < 0.05 else "."
            assert after_p == mark
            marked.append(term)
        else:
            float(after_p)  # the low end of the interval
    assert 0 < len(marked) < 4


@pytest.mark.parametrize(
    ("design", "said"),
    [
        (
            {
                "draw": Draw.STRATA,
                "stratum": np.zeros(60, int),
                "stratum_sizes": np.array([200, 100]),
            },
            "within 2 strata",
        ),
        (
            {"draw": Draw.POISSON, "probability": np.linspace(0.1, 0.5, 60)},
            "drawn independently with known probabilities; inclusion probability 0.1 to 0.5",
        ),
        ({"unit": np.arange(60) // 6, "n_units": 50}, "whole units (50 in all)"),
        ({"cluster": np.arange(300) // 10}, "Clusters: 30, rows within each may depend"),
        ({"weights": np.ones(300)}, "Weights: analysis weights"),
    ],
)
def test_designs_in_words(make, design, said):
    assert said in flat(make(design=design).fit)


def test_many_annotators_are_counted(make):
    frame = make().frame
    names = tuple(f"llm{i}" for i in range(14))
    frame = replace(frame, labels=dict.fromkeys(names, frame.labels["gpt__p1"]))
    text = flat(make(frame=frame, annotators=names).fit)
    assert "llm9" in text
    assert "llm10" not in text
    assert "and 4 more" in text


@pytest.mark.parametrize("scale", [1e-7, 1.0, 3e8])
def test_it_fits_the_page_and_keeps_digits(make, scale):
    base = make()
    D = np.array([1.0, scale, 1.0, 1.0])
    frame = replace(
        base.frame,
        terms=(
            "Intercept",
            "a_very_long_variable_name_indeed:C(another_long_one)[T.some level]",
            "C(group)[T.b]",
            "x",
        ),
    )
    V = base.fit.estimate.vcov * np.outer(D, D)
    theta = base.fit.estimate.theta * D
    w = make(frame=frame, theta=theta, vcov=V, vcov_human=V, warnings=("long words " * 30,))
    found = lines(w.fit, stars=True)
    assert max(map(len, found)) <= 88
    at = next(i for i, line in enumerate(found) if line.startswith("a_very_long"))
    shown = float(found[at + 1].split()[0])
    assert shown == pytest.approx(theta[1], rel=5e-3)


def test_html_escapes_everything(make):
    frame = make().frame
    frame = replace(
        frame,
        terms=("Intercept", "x", "C(s)[T.<b>&]", "z"),
        labels={"<script>": frame.labels["gpt__p1"]},
    )
    w = make(
        frame=frame,
        annotators=("<script>",),
        metadata={"<script>": {"model": "<i>"}},
        notes=("a < b",),
        warnings=("c > d",),
    )
    fit = replace(w.fit, formula="y ~ I(a < b)", call="tu.ols('<u>')")
    page = fit.summary()._repr_html_()
    for raw in ("<script>", "<b>", "<i>", "a < b", "c > d", "<u>"):
        assert raw not in page
    assert page.count("<table>") == 2
    assert repr(fit.summary()) == str(fit.summary())
