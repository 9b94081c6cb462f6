"""What to know about an expected-score interval, in sentences."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from trueup.corrections.advice import least_informed
from trueup.corrections.base import Problem
from trueup.corrections.es_variance import Pieces
from trueup.inference.variance import independent_pieces
from trueup.study.design import Float

#: Below this many informative rows the interval is mostly t quantile and label model.
VERY_FEW = 6.0
#: Coded rows (or clusters) below which no method was seen to hold its level.
TOO_FEW_PIECES = 30
#: Coded rows of the rarest class below which the learner hardly knows it.
RARE = 10
#: Ratio of the two variances beyond which the label model and the coded rows disagree.
DISAGREE = 3.0
#: Share of one coded row in the variance above which it is named.
DOMINANT = 0.5


def es_note(problem: Problem, pieces: Pieces) -> tuple[str, ...]:
    """Return how many rows carry the interval, and how far to trust it."""
    k = least_informed(problem.frame.terms, pieces.n_model)
    term, carried = problem.frame.terms[k], float(pieces.n_model[k])
    pieces_, what = independent_pieces(problem.design)
    if carried < VERY_FEW:
        trust = "it rests mostly on the t quantile and on what the learner expects"
    elif carried < 30:
        trust = "it allows for that with few degrees of freedom"
    else:
        trust = "it can be read like any other"
    return (
        f"About {carried:.3g} informative rows are expected to carry '{term}' ({pieces_} {what}); "
        f"read its interval accordingly: {trust}.",
    )


def es_advice(problem: Problem, pieces: Pieces, d: Float, one_step: bool) -> tuple[str, ...]:
    """Return sentences about what makes the interval fragile."""
    said = []
    terms = problem.frame.terms
    k = least_informed(terms, pieces.n_model)
    carried = float(pieces.n_model[k])
    count, what = independent_pieces(problem.design)
    if carried < VERY_FEW:
        said.append(
            f"Only about {carried:.2g} informative rows are expected behind '{terms[k]}': the "
            "interval is mostly t quantile and label model. Code more rows, above all where LLMs "
            "disagree."
        )
    if count < TOO_FEW_PIECES:
        said.append(
            f"{count} {what} are so few that no method is known to hold its level: give the "
            'human-only result (correction="human") beside this one.'
        )
    said += _agreement(problem)
    said += _classes(problem)
    ratio = float(pieces.model[k] / max(float(pieces.coded[k]), 1e-300))
    if carried >= 2.0 and not 1.0 / DISAGREE < ratio < DISAGREE:
        said.append(
            f"For '{terms[k]}' the label model expects {ratio:.2g} times the variance that the "
            "coded rows show. Both enter the interval, by the number of informative rows."
        )
    said += _dominant(problem, d[:, k], terms[k])
    if one_step:
        said.append(
            "The corrected equation has no root near that of the expected labels in these coded "
            "rows: one step toward it is reported. Code more rows or shorten the formula."
        )
    return tuple(said)


def _agreement(problem: Problem) -> list[str]:
    """Return a sentence where no coded row was mislabelled by any LLM."""
    frame, coded = problem.frame, problem.design.coded
    for variable in frame.variables:
        human = frame.human_labels(variable)
        labels = [frame.llm_labels(variable, a)[coded] for a in problem.annotators]
        if all(bool((part == human).all()) for part in labels):
            n = len(human)
            return [
                f"No coded row has an LLM label of {variable!r} that differs from the coder's. "
                f"That bounds the error rate (below {3.0 / n:.2g} with 95% confidence in a simple "
                "random sample) but does not make it zero: the interval allows for the errors "
                "that the learner's smoothing supposes."
            ]
    return []


def _classes(problem: Problem) -> list[str]:
    said = []
    for variable in problem.frame.variables:
        human = problem.frame.human_labels(variable)
        if variable not in problem.frame.class_labels and not _binary(human):
            continue
        value, count = min(Counter(human.tolist()).items(), key=lambda item: item[1])
        if count < RARE:
            said.append(
                f"Only {count} coded rows have {variable!r} = {value!r}: the learner hardly knows "
                "that class. Code more rows where LLMs see it."
            )
    return said


def _binary(labels: NDArray[np.generic]) -> bool:
    return len(set(labels.tolist())) <= 2


def _dominant(problem: Problem, d: Float, term: str) -> list[str]:
    """Name a coded row that has more than half of the variance for itself."""
    contribution = (d / problem.design.probability) ** 2
    total = float(contribution.sum())
    worst = int(np.argmax(contribution))
    if total <= 0.0 or contribution[worst] <= DOMINANT * total or len(d) < 3:
        return []
    design = problem.design
    return [
        f"One coded row has {contribution[worst] / total:.0%} of the variance of '{term}': row "
        f"{int(design.coded[worst])} (probability {design.probability[worst]:.3g}, weight "
        f"{1.0 / design.probability[worst]:.3g}). Check its label, and code more rows like it."
    ]
