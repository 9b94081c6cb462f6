"""A study in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from trueup.study.design import Draw, Float, SampleDesign
from trueup.study.labels import Annotator

if TYPE_CHECKING:
    from trueup.study.study import Contents

_MOST = 10

_MISSING_RULE = {
    "fill": "filled with the annotator's own most frequent class or mean",
    "level": "a class of their own",
}


def describe(contents: Contents) -> str:
    """Return a plain text block: who labelled what, how many, with which probability."""
    first = next(iter(contents.designs.values()))
    return "\n".join(
        [
            f"Study of {contents.n_rows:,} rows",
            *_variables(contents),
            *_annotators(contents),
            *_sampling(contents, first),
        ]
    )


def kish(weights: Float) -> float:
    """Return the size of an equally weighted sample that would be as informative.

    Examples
    --------
    >>> import numpy as np
    >>> kish(np.array([1.0, 1.0, 2.0])).__round__(3)
    2.667
    """
    return float(weights.sum() ** 2 / np.sum(weights**2))


def draw_in_words(design: SampleDesign) -> str:
    """Return the sampling design as a phrase."""
    what = "rows" if design.unit is None else f"whole units ({design.n_units:,} in all)"
    if design.disjoint:
        return "a table of coded rows beside one of other, uncoded rows"
    if design.draw is Draw.SRS:
        return f"simple random sample of {what}"
    if design.draw is Draw.STRATA:
        n_strata = 0 if design.stratum_sizes is None else len(design.stratum_sizes)
        return f"simple random sample of {what} within {n_strata} strata"
    if design.draw is Draw.POISSON:
        return f"{what} drawn independently with known probabilities"
    return f"fixed number of {what} drawn with known unequal probabilities"


def _variables(contents: Contents) -> Iterator[str]:
    yield "Human labels"
    width = max(map(len, contents.human))
    for variable, column in contents.human.items():
        design = contents.designs[variable]
        n, levels = design.n_coded, contents.levels[variable]
        kind = "numbers" if levels is None else f"classes {', '.join(levels[:6])}"
        more = ", ..." if levels is not None and len(levels) > 6 else ""
        yield (
            f"  {variable:<{width}}  column {column!r}, {n:,} coded ({n / design.n_rows:.1%}), "
            f"{kind}{more}"
        )
    if contents.n_tuned:
        yield f"  {contents.n_tuned:,} further coded rows were used to tune annotators and left out"


def _annotators(contents: Contents) -> Iterator[str]:
    plural = "s" if len(contents.annotators) > 1 else ""
    yield f"LLM labels: {len(contents.annotators)} annotator{plural}"
    shown = list(contents.annotators.values())[:_MOST]
    width = max(len(a.name) for a in shown)
    for annotator in shown:
        parts = [_metadata(annotator), _missing(contents, annotator)]
        yield f"  {annotator.name:<{width}}  {'; '.join(p for p in parts if p)}".rstrip()
    if len(contents.annotators) > _MOST:
        yield f"  and {len(contents.annotators) - _MOST} more"
    if any(contents.n_missing.values()):
        yield f"  Missing LLM labels are {_MISSING_RULE[contents.missing]}."


def _metadata(annotator: Annotator) -> str:
    return ", ".join(f"{k} {v}" for k, v in annotator.metadata.items())


def _missing(contents: Contents, annotator: Annotator) -> str:
    counts = [
        f"{contents.n_missing[v, annotator.name]:,} missing"
        + (f" ({v})" if len(contents.human) > 1 else "")
        for v in contents.human
        if contents.n_missing[v, annotator.name]
    ]
    return ", ".join(counts) or "none missing"


def _sampling(contents: Contents, design: SampleDesign) -> Iterator[str]:
    columns = contents.sampling.columns
    by = f" (columns {', '.join(map(repr, columns))})" if columns else ""
    yield f"Sampling: {draw_in_words(design)}{by}"
    low, high = design.probability.min(), design.probability.max()
    span = f"{low:.4g}" if np.isclose(low, high) else f"{low:.4g} to {high:.4g}"
    yield f"  probability of a coded row: {span}"
    weights = design.coded_weights
    yield (
        f"  weights of coded rows: largest {weights.max() / weights.mean():.3g} times their mean; "
        f"Kish effective sample size {kish(weights):,.1f} of {design.n_coded:,}"
    )
    if design.cluster is not None:
        n_coded = len(np.unique(design.cluster[design.coded]))
        yield (
            f"Clusters: {contents.cluster_name}, {design.cluster.max() + 1:,} in all, "
            f"{n_coded:,} with coded rows"
        )
    if design.weights is not None:
        yield f"Analysis weights: {design.weights.min():.4g} to {design.weights.max():.4g}"
