"""The antibiotics study: made reports whose true log odds ratio is 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, logit

from trueup.errors import ArgumentError
from trueup.simulate.seeds import check_seed

_INTERCEPT = -1.43
_EFFECT = 1.0
_SHARE_TREATED = 0.36


@dataclass(frozen=True, slots=True)
class _Annotator:
    """How one annotator errs: reactions missed by group, then flips of any label."""

    name: str
    flips: float
    misses_treated: float = 0.0
    misses_control: float = 0.0


_ANNOTATORS = (
    _Annotator("random", flips=0.15),
    _Annotator("under_treated", flips=0.0185, misses_treated=0.334),
    _Annotator("under_control", flips=0.0185, misses_control=0.365),
)


def antibiotics(n: int = 10_000, seed: int | None = None) -> pd.DataFrame:
    r"""Patients' reports: does the treatment raise the odds of an adverse reaction?

    A report comes from a treated patient with probability 0.36. The patient had an adverse
    reaction with probability

    .. math:: P(\text{reaction} = 1) = \operatorname{expit}(-1.43 + 1.0 \cdot \text{treated}),

    so the true log odds ratio of treatment is 1.0. Three annotators, which stand in for LLMs,
    read every report:

    ``random``
        flips 15% of the labels, whatever the report says;
    ``under_treated``
        misses 33.4% of the reactions of treated patients, then flips 1.85% of its labels;
    ``under_control``
        misses 36.5% of the reactions of untreated patients, then flips 1.85% of its labels.

    With more and more reports, their accuracies go to 0.850, 0.936 and 0.938, and the log odds
    ratios estimated from their labels alone to 0.620, 0.371 and 1.430: the two most accurate
    annotators are the most wrong about the treatment, in opposite directions.
    :func:`antibiotics_limits` computes these numbers. One draw of 10,000 reports spreads the
    estimates around them with a standard deviation of about 0.045.

    Parameters
    ----------
    n : int
        Number of reports.
    seed : int, optional
        The same seed gives the same reports.

    Returns
    -------
    DataFrame
        n rows of 0/1 columns: ``treated``; ``reaction``, the human label, known here for every
        report; and the labels of ``random``, ``under_treated`` and ``under_control``.

    Raises
    ------
    ArgumentError
        If ``n`` is not a positive whole number, or ``seed`` not a whole number of 0 or more.

    Examples
    --------
    >>> from trueup.simulate import antibiotics
    >>> reports = antibiotics(2_000, seed=1)
    >>> reports.columns.tolist()
    ['treated', 'reaction', 'random', 'under_treated', 'under_control']
    >>> reports.equals(antibiotics(2_000, seed=1))
    True
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ArgumentError(f"n={n!r} is not a number of reports: use a whole number above 0.")
    check_seed(seed)
    rng = np.random.default_rng(seed)
    treated = rng.random(n) < _SHARE_TREATED
    reaction = rng.random(n) < expit(_INTERCEPT + _EFFECT * treated)
    columns = {"treated": treated, "reaction": reaction}
    columns |= {a.name: _annotate(a, treated, reaction, rng) for a in _ANNOTATORS}
    return pd.DataFrame(columns).astype("int64")


def antibiotics_limits() -> pd.DataFrame:
    """What each annotator of :func:`antibiotics` tends to as the reports grow in number.

    Computed from the probabilities of the model, without drawing anything.

    Returns
    -------
    DataFrame
        One row for each annotator: ``annotator``; ``accuracy``, the share of labels that equal
        the human label; ``intercept`` and ``estimate``, the coefficients of the LLM-only logit
        of the label on ``treated``. The true coefficients are -1.43 and 1.0.

    Examples
    --------
    >>> from trueup.simulate import antibiotics_limits
    >>> antibiotics_limits().round(3)
           annotator  accuracy  intercept  estimate
    0         random     0.850     -0.919     0.620
    1  under_treated     0.936     -1.359     0.371
    2  under_control     0.938     -1.844     1.430
    """
    return pd.DataFrame([_limits(annotator) for annotator in _ANNOTATORS])


def _annotate(
    annotator: _Annotator,
    treated: NDArray[np.bool_],
    reaction: NDArray[np.bool_],
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    n = len(treated)
    missed = rng.random(n) < np.where(treated, annotator.misses_treated, annotator.misses_control)
    return (reaction & ~missed) ^ (rng.random(n) < annotator.flips)


def _limits(annotator: _Annotator) -> dict[str, str | float]:
    flips = annotator.flips
    share = np.array([1 - _SHARE_TREATED, _SHARE_TREATED])
    reaction = expit(_INTERCEPT + _EFFECT * np.array([0, 1]))
    missed = reaction * np.array([annotator.misses_control, annotator.misses_treated])
    # A flip turns a right label wrong and a missed reaction right.
    accuracy = share @ ((1 - missed) * (1 - flips) + missed * flips)
    seen = (reaction - missed) * (1 - flips) + (1 - reaction + missed) * flips
    control, treated = logit(seen)
    return {
        "annotator": annotator.name,
        "accuracy": float(accuracy),
        "intercept": float(control),
        "estimate": float(treated - control),
    }
