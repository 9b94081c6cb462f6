"""R dsl 0.1.0 at the exact root of its equation, given its own cross-fitted predictions.

Tolerance: 1e-6 relative to the largest coefficient or standard error of the fit; the reference
is rounded to 12 digits in the predictions.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import trueup as tu

DATA = Path(__file__).parent / "data" / "dsl"
CASES = sorted(p.stem for p in DATA.glob("dsl_*_l*.json")) + sorted(
    p.stem for p in DATA.glob("dsl_panel_*.json")
)


def load(case):
    reference = json.loads((DATA / f"{case}.json").read_text())
    rows = pd.read_csv(DATA / reference["csv"])
    ghat = pd.read_csv(DATA / f"{case}_ghat.csv")
    return reference, rows, ghat


def as_list(value):
    return value if isinstance(value, list) else [value]


def estimate(reference, rows, ghat):
    args = reference["args"]
    variables, llm = as_list(args["predicted_var"]), as_list(args["prediction"])
    predictions = {
        v: ghat[[c for c in ghat if c.startswith(f"{v}__")]].to_numpy() for v in variables
    }
    data = rows.rename(columns={v: f"{v}_human" for v in variables})
    weighted = isinstance(args.get("sample_prob"), str)
    study = tu.Study(
        data,
        human={v: f"{v}_human" for v in variables},
        llm={v: {"llm": column} for v, column in zip(variables, llm, strict=True)},
        sampling=tu.Sampling(probability="pi", method="poisson") if weighted else tu.Sampling(),
        cluster=args.get("cluster"),
    )
    formula, family = args["formula"], {"lm": tu.ols, "logit": tu.logit, "felm": tu.absorb}
    if args["model"] == "felm":
        formula += " | " + " + ".join(as_list(args["index"])[: _effects(args)])
    correction = tu.DSL(predictions=predictions, normalise="ht", variance="rows")
    return family[args["model"]](formula, study, correction=correction, vcov="HC0")


def _effects(args):
    return 2 if args["fixed_effect"] == "twoways" else 1


@pytest.mark.filterwarnings("ignore::trueup.errors.TrueupWarning")
@pytest.mark.parametrize("case", CASES)
def test_dsl(case):
    reference, rows, ghat = load(case)
    result = estimate(reference, rows, ghat)
    exact = reference["exact_root"]
    splits = result.estimate.extra["repeat_theta"]
    coef, se = np.array(exact["coef"]), np.array(exact["se"])
    np.testing.assert_allclose(splits, exact["per_split_coef"], atol=1e-6 * np.abs(coef).max())
    np.testing.assert_allclose(result.coef(), coef, atol=1e-6 * np.abs(coef).max())
    np.testing.assert_allclose(result.se(), se, atol=1e-6 * se.max())
