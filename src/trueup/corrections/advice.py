"""What a user must know about how far an interval can be trusted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trueup.corrections.base import Problem
from trueup.inference.variance import independent_pieces
from trueup.study.design import Float, SampleDesign

#: Below this many rows that carry a variance the interval rests on its t quantile.
FEW_INFORMATIVE = 30
#: Tuning parameters for one coefficient should stay below this share of the coded rows.
MOST_TUNING_SHARE = 1 / 20


def advise(
    problem: Problem,
    informative: Float,
    omega: Float | None = None,
    *,
    kind: str = "fixed",
    rank: int | None = None,
) -> tuple[str, ...]:
    """Return sentences about what makes the interval fragile."""
    said = []
    low = least_informed(problem.frame.terms, informative)
    carried = int(informative[low])
    if carried < FEW_INFORMATIVE:
        _, what = independent_pieces(problem.design)
        said.append(
            f"The standard error of '{problem.frame.terms[low]}' rests on about {carried} of the "
            f"{what} (fewer than {FEW_INFORMATIVE}). The interval uses few degrees of freedom to "
            "allow for that; code more to rely on it."
        )
    n = problem.design.n_coded
    if kind == "full" and omega is not None:
        q = omega.shape[1]
        if q > n * MOST_TUNING_SHARE:
            said.append(
                f"Full tuning estimates {q} numbers for each coefficient from {n} coded rows. "
                'Prefer tuning="diagonal", fewer LLMs, or DSL, or code more rows.'
            )
        if rank is not None and rank < q:
            said.append(
                f"Only {rank} of {q} LLM controls are independent: an LLM is constant, a copy "
                "of another, or the sampling design already balances it. No harm is done; "
                "the others are used."
            )
    said.extend(weight_advice(problem.design))
    return tuple(said)


def least_informed(terms: Sequence[str], informative: Float) -> int:
    """Return which coefficient the fewest rows carry, leaving out the intercept if it can."""
    slopes = [k for k, term in enumerate(terms) if term != "Intercept"] or [0]
    return min(slopes, key=lambda k: float(informative[k]))


def fallback_advice(method: str) -> tuple[str, ...]:
    """Return a sentence where the human fit is not the maximum likelihood one."""
    if method == "ml":
        return ()
    return (
        f'The coded rows were fitted with human_fit="{method}", which exists where the outcome is '
        "separated. Residuals nearly vanish there, so the standard error and the interval are "
        "too small: read the estimate as a direction, and code more rows.",
    )


def weight_advice(design: SampleDesign) -> tuple[str, ...]:
    """Return a sentence where very unequal design weights lower the effective sample size."""
    w = design.inverse_probability
    kish = float(w.sum() ** 2 / (w**2).sum())
    if kish >= 0.5 * len(w):
        return ()
    worst = int(np.argmax(w))
    return (
        f"Design weights are very unequal: {len(w)} coded rows are worth {kish:.0f} equally "
        f"weighted ones. The largest weight is {w[worst]:.1f} (row {int(design.coded[worst])}, "
        f"probability {design.probability[worst]:.3g}).",
    )
