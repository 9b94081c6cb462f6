"""How much of the spread across universes each choice makes; accuracy beside estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any, Protocol

import numpy as np
import pandas as pd

from trueup.diagnostics.disagreement import disagreement
from trueup.errors import ArgumentError
from trueup.multiverse.joint import Curve
from trueup.study.design import Float, Int
from trueup.study.study import Study

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

    def __str__(self) -> str:
        lines = [f"Spread of {self.term!r} across universes: standard deviation {self.spread:.4f}"]
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
    ``choice`` is the rest of the share, set to zero where noise exceeds it.

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
    out["noise"] = out["noise"].clip(lower=0.0)
    out["choice"] = (out["share"] - out["noise"]).clip(lower=0.0)
    spread = float(np.sqrt(total / max(len(b) - 1, 1)))
    return Decomposition(term or mv.focus, spread, out)


def _separate(table: pd.DataFrame, dimensions: Sequence[str]) -> list[str]:
    """Return dimensions that vary and are not another under a different name.

    ``llm`` is left out where the fields of its name (model, prompt) tell the annotators apart.
    """
    varying = [d for d in dimensions if table[d].nunique() > 1]
    fields = [d for d in varying if d not in ("llm", "formula", "family", "correction", "subset")]
    fields = [d for d in fields if d != "vcov"]
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
    annotators: pd.DataFrame
    pairs: pd.DataFrame

    def __str__(self) -> str:
        a = self.annotators
        lines = [
            f"Accuracy of annotators runs from {a['accuracy'].min():.3f} to "
            f"{a['accuracy'].max():.3f}, their LLM-only estimates of {self.term!r} from "
            f"{a['naive'].min():.3f} to {a['naive'].max():.3f}.",
            "",
            a.round(3).to_string(index=False),
            "",
            "Pairs that disagree most:",
            self.pairs.sort_values("disagreement", ascending=False)
            .head(10)
            .round(3)
            .to_string(index=False),
        ]
        return "\n".join(lines)


def illusion(mv: Decomposable, term: str | None = None) -> Illusion:
    """Return the spread of accuracy beside the spread of estimates.

    Parameters
    ----------
    mv : Multiverse
    term : str, optional

    Returns
    -------
    Illusion
        ``annotators``: accuracy on the coded rows (weighted), LLM-only and corrected estimates
        with standard errors, from the first formula, family and subset. ``pairs``: share of all
        rows on which two annotators differ, beside the difference of their LLM-only estimates
        with its joint standard error.

    Raises
    ------
    ArgumentError
        If there are no LLM-only universes, several labelled variables, or numeric labels.
    """
    study = mv.study
    if len(study.variables) != 1:
        raise ArgumentError("The table of accuracy needs a study with one labelled variable.")
    table, V = mv.table(term), mv.covariance(term)
    first = [d for d in ("formula", "family", "subset", "vcov") if d in table]
    for d in first:
        keep = (table[d] == table[d].iloc[0]).to_numpy()
        table, V = table[keep].reset_index(drop=True), V[np.ix_(keep, keep)]
    naive = np.flatnonzero((table["correction"] == "naive") & table["llm"].isin(study.annotators))
    if not len(naive):
        raise ArgumentError('Add "naive" to corrections=: the table compares LLM-only estimates.')
    variable = study.variables[0]
    labels = {a: study.llm_labels(variable, a) for a in table["llm"].iloc[naive]}
    design = study.design(variable)
    human = study.human_labels(variable)[design.coded]
    w = design.inverse_probability / design.inverse_probability.sum()
    corrected = next((c for c in table["correction"] if c not in ("naive", "human")), None)
    rows = []
    for k in naive:
        name = table["llm"].iloc[k]
        row = {
            "llm": name,
            "accuracy": float(w @ (labels[name][design.coded] == human)),
            "naive": table["estimate"].iloc[k],
            "naive_se": table["std_error"].iloc[k],
        }
        match = table[(table["llm"] == name) & (table["correction"] == corrected)]
        if len(match):
            row |= {
                "corrected": match["estimate"].iloc[0],
                "corrected_se": match["std_error"].iloc[0],
            }
        rows.append(row)
    pairs = _pairs(table, V, naive, labels)
    return Illusion(term or mv.focus, pd.DataFrame(rows), pairs)


def _pairs(table: pd.DataFrame, V: Float, naive: Int, labels: dict[str, Float]) -> pd.DataFrame:
    if len(naive) < 2:
        return pd.DataFrame(columns=["first", "second", "disagreement", "difference", "std_error"])
    matrix = disagreement(pd.DataFrame(labels)).matrix
    rows = []
    for i, j in combinations(naive, 2):
        one, other = table["llm"].iloc[i], table["llm"].iloc[j]
        variance = V[i, i] + V[j, j] - 2 * V[i, j]
        rows.append(
            {
                "first": one,
                "second": other,
                "disagreement": float(matrix.loc[one, other]),
                "difference": float(table["estimate"].iloc[i] - table["estimate"].iloc[j]),
                "std_error": float(np.sqrt(max(variance, 0.0))),
            }
        )
    return pd.DataFrame(rows)
