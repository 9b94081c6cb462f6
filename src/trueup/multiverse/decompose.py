"""How much of the spread across universes each choice makes; accuracy beside estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd

from trueup.diagnostics.agreement import agreement
from trueup.diagnostics.disagreement import disagreement
from trueup.errors import ArgumentError
from trueup.multiverse.covariance import is_naive
from trueup.multiverse.grid import NO_LLM
from trueup.multiverse.joint import NOT_OF_ANNOTATOR, Curve
from trueup.multiverse.universe import Located
from trueup.results.tidy import p_values
from trueup.study.design import Float, Int
from trueup.study.study import Study

Measure = Literal["accuracy", "correlation"]

#: Orders in which dimensions are entered, at most; all of them up to five dimensions.
MOST_ORDERS = 120


class Decomposable(Curve, Protocol):
    """A multiverse with its study."""

    @property
    def study(self) -> Study:
        """The study that was fitted."""
        ...


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Shares of the spread of estimates across universes."""

    term: str
    spread: float
    """Standard deviation of the estimates."""
    table: pd.DataFrame
    """Rows: dimensions, their pairs, rest; columns share, noise, choice."""
    universes: int
    left_out: int
    """Human-only universes, which no choice of LLM enters."""

    def __str__(self) -> str:
        lines = [
            f"Spread of {self.term!r} across {self.universes} universes: standard deviation "
            f"{self.spread:.4f}"
        ]
        if self.left_out:
            lines.append(f"  (without {self.left_out} human-only, which have no LLM to choose)")
        for row in self.table.to_dict("records"):
            lines.append(
                f"  {row['source']:<28} {row['share']:>6.1%}   of which sampling noise "
                f"{row['noise']:>6.1%}"
            )
        return "\n".join(lines)


def decompose(mv: Curve, term: str | None = None) -> Decomposition:
    r"""Share the spread across universes out between the choices that made them.

    The sum of squares of the estimates about their mean is split into main effects of the
    dimensions, two-way interactions, and a rest, by projections: the sum of squares of a set of
    effects is :math:`b'Pb`, P the projection on their dummies. A main effect is the gain when its
    dimension enters, averaged over the orders of entry (as dimensions may be unbalanced); each
    interaction is the gain over all main effects, scaled to sum to the joint gain. Sampling alone
    would give :math:`\mathrm{tr}(PV)`, V the joint covariance of the estimates: column ``noise``.
    ``choice`` is the rest of the share, set to zero where noise exceeds it. Human-only universes
    are left out where the LLM varies: they would be a level of it that crosses with nothing.

    Parameters
    ----------
    mv : Multiverse
    term : str, optional

    Returns
    -------
    Decomposition

    Raises
    ------
    ArgumentError
        If there are fewer than three universes, or they differ in nothing.

    References
    ----------
    Lindeman, Merenda and Gold (1980), on averaging over orders.
    """
    table, V = mv.table(term), mv.covariance(term)
    if "vcov" in mv.dimensions:
        table, V = _one_vcov(table, V)
    table, V, left_out = _with_llm(table, V)
    b = table["estimate"].to_numpy(dtype=float)
    dimensions = _separate(table, mv.dimensions)
    if len(b) < 3 or not dimensions:
        raise ArgumentError(
            f"{len(b)} universes that differ in {len(dimensions)} dimensions cannot be decomposed: "
            "fit at least three universes that differ."
        )
    one = np.ones((len(b), 1))
    total = float(((b - b.mean()) ** 2).sum())
    if total <= 0:
        raise ArgumentError("All universes have the same estimate: there is no spread.")
    dummies = {d: _dummies(table[d]) for d in dimensions}
    noise_total = float(np.trace(V) - V.sum() / len(b))
    main = _main_effects(b, V, one, dummies)
    rows: list[dict[str, Any]] = [
        {"source": d, "share": s / total, "noise": n / total} for d, (s, n) in main.items()
    ]
    mains = _basis([one, *dummies.values()])
    pairs = _interactions(b, V, mains, table, dimensions)
    rows += [{"source": k, "share": s / total, "noise": n / total} for k, (s, n) in pairs.items()]
    done = sum(r["share"] for r in rows)
    noise = sum(r["noise"] for r in rows)
    rows.append(
        {"source": "rest", "share": max(1.0 - done, 0.0), "noise": noise_total / total - noise}
    )
    out = pd.DataFrame(rows)
    # Rounding, and orders of entry in an unbalanced grid, can leave either just below zero.
    for column in ("share", "noise"):
        out[column] = out[column].clip(lower=0.0)
    out["choice"] = (out["share"] - out["noise"]).clip(lower=0.0)
    spread = float(np.sqrt(total / max(len(b) - 1, 1)))
    return Decomposition(term or mv.focus, spread, out, len(b), left_out)


def _one_vcov(table: pd.DataFrame, V: Float) -> tuple[pd.DataFrame, Float]:
    """Leave out universes that repeat the estimate of another with another standard error."""
    first = (table["vcov"] == table["vcov"].iloc[0]).to_numpy()
    return table[first].reset_index(drop=True), V[np.ix_(first, first)]


def _with_llm(table: pd.DataFrame, V: Float) -> tuple[pd.DataFrame, Float, int]:
    """Leave out human-only universes where there are several annotators among the others."""
    has = (table["llm"] != NO_LLM).to_numpy()
    if has.all() or table.loc[has, "llm"].nunique() < 2:
        return table, V, 0
    return table[has].reset_index(drop=True), V[np.ix_(has, has)], int((~has).sum())


def _separate(table: pd.DataFrame, dimensions: Sequence[str]) -> list[str]:
    """Return dimensions that vary and are not another under a different name.

    ``llm`` is left out where the fields of its name (model, prompt) tell the annotators apart.
    """
    varying = [d for d in dimensions if table[d].nunique() > 1]
    fields = [d for d in varying if d not in NOT_OF_ANNOTATOR and d != "llm"]
    if "llm" in varying and fields:
        told_apart = table[["llm", *fields]].drop_duplicates()
        if told_apart[fields].drop_duplicates().shape[0] == told_apart["llm"].nunique():
            varying.remove("llm")
    seen: dict[bytes, str] = {}
    for d in varying:
        seen.setdefault(pd.factorize(table[d])[0].tobytes(), d)
    return list(seen.values())


def _dummies(levels: pd.Series) -> Float:
    return pd.get_dummies(levels).to_numpy(dtype=float)


def _basis(parts: Sequence[Float]) -> Float:
    """Return an orthonormal basis of the columns of all parts."""
    u, s, _ = np.linalg.svd(np.hstack(list(parts)), full_matrices=False)
    return np.asarray(u[:, s > 1e-9 * s[0]])


def _squares(b: Float, V: Float, Q: Float) -> tuple[float, float]:
    """Return b'Pb and tr(PV) for the projection P = QQ'."""
    fitted = Q.T @ b
    return float(fitted @ fitted), float(np.einsum("ij,ik,kj->", Q, V, Q))


def _main_effects(
    b: Float, V: Float, one: Float, dummies: dict[str, Float]
) -> dict[str, tuple[float, float]]:
    """Return gains in squares and in noise by dimension, averaged over orders of entry."""
    names = list(dummies)
    rng = np.random.default_rng(0)
    kept: dict[frozenset[str], tuple[float, float]] = {}

    def value(chosen: frozenset[str]) -> tuple[float, float]:
        if chosen not in kept:
            kept[chosen] = _squares(b, V, _basis([one, *(dummies[d] for d in sorted(chosen))]))
        return kept[chosen]

    orders = [rng.permutation(len(names)) for _ in range(MOST_ORDERS)] if len(names) > 5 else None
    if orders is None:
        orders = [np.array(p) for p in permutations(range(len(names)))]
    gains = {d: np.zeros(2) for d in names}
    for order in orders:
        entered: frozenset[str] = frozenset()
        for k in order:
            before = value(entered)
            entered = entered | {names[k]}
            gains[names[k]] += np.subtract(value(entered), before)
    return {d: (float(g[0] / len(orders)), float(g[1] / len(orders))) for d, g in gains.items()}


def _interactions(
    b: Float, V: Float, mains: Float, table: pd.DataFrame, dimensions: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Return gains of two-way interactions over the main effects."""
    base = _squares(b, V, mains)
    cells: dict[str, Float] = {}
    for one, other in combinations(dimensions, 2):
        cells[f"{one} x {other}"] = _dummies(table[one] + "\x1f" + table[other])
    if not cells:
        return {}
    joint = _squares(b, V, _basis([mains, *cells.values()]))
    single = {name: _squares(b, V, _basis([mains, c])) for name, c in cells.items()}
    gains = {n: np.maximum(np.subtract(s, base), 0.0) for n, s in single.items()}
    wanted = np.maximum(np.subtract(joint, base), 0.0)
    sums = np.sum(list(gains.values()), axis=0)
    scale = np.where(sums > 0, wanted / np.where(sums > 0, sums, 1.0), 0.0)
    return {n: (float(g[0] * scale[0]), float(g[1] * scale[1])) for n, g in gains.items()}


@dataclass(frozen=True, slots=True)
class Illusion:
    """Accuracy beside estimates: by annotator, and by pair of annotators."""

    term: str
    measure: Measure
    """What benchmarks report: accuracy for classes, correlation for numbers."""
    annotators: pd.DataFrame
    """One row for each annotator: llm; accuracy (or correlation) with the human labels, with
    score_se; agreement (mean share of labels shared with the others, or mean correlation with
    them); naive and corrected estimates with naive_se and corrected_se."""
    pairs: pd.DataFrame
    """One row for each pair: first, second, disagreement (of numbers: the mean absolute
    difference), difference of the LLM-only estimates with its joint std_error, and p_value."""

    @property
    def spread(self) -> pd.DataFrame:
        """Lowest, highest and standard deviation of scores and of estimates."""
        columns = [c for c in (self.measure, "naive", "corrected") if c in self.annotators]
        part = self.annotators[columns]
        return pd.DataFrame({"low": part.min(), "high": part.max(), "std_dev": part.std()})

    def __str__(self) -> str:
        score, naive = (self.spread.loc[k] for k in (self.measure, "naive"))
        lines = [
            f"{self.measure.capitalize()} of annotators runs from {score['low']:.3f} to "
            f"{score['high']:.3f}, their LLM-only estimates of {self.term!r} from "
            f"{naive['low']:.3f} to {naive['high']:.3f}.",
            "",
            self.annotators.round(3).to_string(index=False),
        ]
        if len(self.pairs):
            most = self.pairs.sort_values("disagreement", ascending=False).head(10)
            lines += ["", "Pairs that disagree most:", most.round(3).to_string(index=False)]
        return "\n".join(lines)


def illusion(mv: Decomposable, term: str | None = None) -> Illusion:
    """Return the spread of accuracy beside the spread of estimates.

    Annotators of near-equal accuracy can give different answers, since it matters *which* labels
    are wrong. Universes are those of the first formula, family and kind of covariance, on all
    rows where there are such; the corrected estimate is that of the first correction that is
    neither LLM-only nor human-only.

    Parameters
    ----------
    mv : Multiverse
    term : str, optional

    Returns
    -------
    Illusion
        Accuracy and correlation are of the coded rows, weighted by the sampling design, without
        labels that are missing; disagreement is of all rows.

    Raises
    ------
    ArgumentError
        If there are no LLM-only universes, or the formula uses several labelled variables.
    """
    table, V, located = _first_universes(mv, term)
    alone = np.array([is_naive(u) for u in located])
    naive = np.flatnonzero(alone)
    if not len(naive):
        raise ArgumentError('Add "naive" to corrections=: the table compares LLM-only estimates.')
    first = located[naive[0]]
    variables = first.problem.frame.variables
    if len(variables) != 1:
        raise ArgumentError(
            f"The formula uses the labelled variables {', '.join(map(repr, variables))}: accuracy "
            "of which? Run a multiverse of formulas with one of them."
        )
    where = first.outcome.positions
    study = mv.study if where is None else mv.study.subset(where)
    names = table["llm"].iloc[naive].tolist()
    measure, scores = annotator_scores(study, variables[0], names)
    out = scores.set_axis([measure, "score_se"], axis=1).rename_axis("llm").reset_index()
    out["naive"] = table["estimate"].to_numpy()[naive]
    out["naive_se"] = table["std_error"].to_numpy()[naive]
    corrected = table[~alone & (table["llm"] != NO_LLM)]
    if len(corrected):
        one = corrected[corrected["correction"] == corrected["correction"].iloc[0]].set_index("llm")
        out["corrected"] = one["estimate"].reindex(names).to_numpy()
        out["corrected_se"] = one["std_error"].reindex(names).to_numpy()
    pairs = pd.DataFrame(columns=["first", "second", "disagreement", "difference", "std_error"])
    if len(naive) > 1:
        like, pairs = _pairs(table, V, naive, study, variables[0], measure)
        out.insert(3, "agreement", like)
    return Illusion(term or mv.focus, measure, out, pairs)


def _first_universes(
    mv: Decomposable, term: str | None
) -> tuple[pd.DataFrame, Float, list[Located]]:
    table, V, located = mv.table(term), mv.covariance(term), list(mv.located(term))
    whole = np.array([u.outcome.positions is None for u in located])
    keep = whole if whole.any() else ~whole
    for d in ("formula", "family", "subset", "vcov"):
        keep &= (table[d] == table.loc[keep, d].iloc[0]).to_numpy()
    chosen = [u for u, kept in zip(located, keep, strict=True) if kept]
    return table[keep].reset_index(drop=True), V[np.ix_(keep, keep)], chosen


def annotator_scores(
    study: Study, variable: str, annotators: Sequence[str]
) -> tuple[Measure, pd.DataFrame]:
    """Return the accuracy of annotators, or where labels are numbers their correlation.

    Returns
    -------
    measure, (K, 2) DataFrame by annotator with estimate and std_error
    """
    found = agreement(study, variable, list(annotators)).table
    right = found[found["measure"] == "accuracy"].set_index("annotator")
    measure: Measure = "accuracy"
    # Numbers with few values are classes too; with many, "exactly right" means little.
    if not set(annotators) <= set(right.index):
        measure = "correlation"
        right = found[found["measure"] == "correlation"].set_index("annotator")
    return measure, right.loc[list(annotators), ["estimate", "std_error"]]


def _pairs(
    table: pd.DataFrame, V: Float, naive: Int, study: Study, variable: str, measure: Measure
) -> tuple[Float, pd.DataFrame]:
    """Return the mean likeness of each annotator to the others, and the table of pairs."""
    names = table["llm"].iloc[naive].tolist()
    found = disagreement(
        study,
        variable=variable,
        annotators=names,
        kind="class" if measure == "accuracy" else "numeric",
    )
    pairs = found.pairs
    column = "disagreement" if measure == "accuracy" else "mean_abs_difference"
    like = (1.0 - pairs[column]) if measure == "accuracy" else pairs["correlation"]
    mean = [float(like[(pairs["a"] == a) | (pairs["b"] == a)].mean()) for a in names]
    at = dict(zip(names, naive, strict=True))
    i, j = (pairs[side].map(at).to_numpy() for side in ("a", "b"))
    b = table["estimate"].to_numpy(dtype=float)
    se = np.sqrt(np.maximum(V[i, i] + V[j, j] - 2 * V[i, j], 0.0))
    out = pd.DataFrame(
        {
            "first": pairs["a"],
            "second": pairs["b"],
            "disagreement": pairs[column],
            "difference": b[i] - b[j],
            "std_error": se,
        }
    )
    known = se > 0
    out["p_value"] = np.nan
    df = np.minimum(*(table["df"].to_numpy(dtype=float)[k] for k in (i, j)))
    out.loc[known, "p_value"] = p_values((b[i] - b[j])[known] / se[known], df[known])
    return np.array(mean), out
