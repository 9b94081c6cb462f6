"""Statements about all universes at once, from their joint covariance, without refitting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trueup.errors import ArgumentError, CorrectionError
from trueup.inference.simultaneous import (
    FlipShares,
    Wald,
    equality_test,
    max_t_quantile,
    pool_fixed,
    pool_minimum_variance,
    step_down,
)
from trueup.inference.simultaneous import curve_test as curve_statistics
from trueup.inference.simultaneous import flip_shares as shares_of_flips
from trueup.results.tidy import p_values, quantiles
from trueup.study.design import Float

#: How far covariances are shrunk before weights of a pooled estimate are made of them.
SHRINKAGE = 0.1

NAIVE_READING = (
    "LLM-only universes: a small p-value says that the answer depends on which {over} was used."
)
CORRECTED_READING = (
    "Corrected universes estimate the same coefficient whatever the {over}: a small p-value says "
    "that the coded sample does not represent the corpus as its sampling design claims."
)


class Curve(Protocol):
    """What joint inference needs of a multiverse."""

    @property
    def focus(self) -> str:
        """Focal term."""
        ...

    @property
    def level(self) -> float:
        """Level of intervals."""
        ...

    @property
    def seed(self) -> int | None:
        """Random state."""
        ...

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Names of the dimensions."""
        ...

    def table(self, term: str | None = None) -> pd.DataFrame:
        """Return fitted universes: universe, dimensions, estimate, std_error, df."""
        ...

    def covariance(self, term: str | None = None) -> Float:
        """Return their (U, U) covariance, in the same order."""
        ...


@dataclass(frozen=True, slots=True)
class _Joint:
    table: pd.DataFrame
    b: Float
    V: Float
    df: Float


def _joint(mv: Curve, term: str | None) -> _Joint:
    """Return estimates with a variance, and their joint law."""
    table, V = mv.table(term), mv.covariance(term)
    moves = np.diag(V) > 0
    table = table[moves].reset_index(drop=True)
    if table.empty:
        raise ArgumentError("No universe has an estimate with a variance.")
    return _Joint(
        table,
        table["estimate"].to_numpy(dtype=float),
        V[np.ix_(moves, moves)],
        table["df"].to_numpy(dtype=float),
    )


def bands(mv: Curve, term: str | None = None, level: float | None = None) -> pd.DataFrame:
    r"""Return sup-t intervals: all of them hold at once with the given probability.

    :math:`b_u \pm c\,s_u` with c the quantile of :math:`\max_u |Z_u|`, so they also hold for a
    universe picked after looking.

    Parameters
    ----------
    mv : Multiverse
    term : str, optional
    level : float, optional

    Returns
    -------
    DataFrame
        ``universe``, the dimensions, ``estimate``, ``std_error``, ``simultaneous_low``,
        ``simultaneous_high``, ``critical_value``.

    References
    ----------
    Montiel Olea and Plagborg-Møller (2019), Simultaneous confidence bands.
    """
    joint = _joint(mv, term)
    c = max_t_quantile(joint.V, level or mv.level, joint.df, seed=mv.seed or 0)
    se = np.sqrt(np.diag(joint.V))
    head = joint.table[["universe", *mv.dimensions, "estimate", "std_error"]]
    return head.assign(
        simultaneous_low=joint.b - c * se,
        simultaneous_high=joint.b + c * se,
        critical_value=c,
    )


@dataclass(frozen=True, slots=True)
class EqualityTest:
    """Tests that estimates that differ only in one dimension have the same limit."""

    term: str
    over: str
    tests: pd.DataFrame
    """One row for each kind of correction: statistic, df, distribution, p_value, universes,
    low, high, reading."""

    def __str__(self) -> str:
        lines = [f"Test that {self.term!r} is the same across {self.over}"]
        for row in self.tests.to_dict("records"):
            lines.append(
                f"  {row['correction']}: {row['universes']} estimates from {row['low']:.3f} to "
                f"{row['high']:.3f}; {row['distribution']} = {row['statistic']:.2f}, "
                f"p-value {_p(row['p_value'])}"
            )
        lines += [f"{r}" for r in dict.fromkeys(self.tests["reading"])]
        return "\n".join(lines)


def _p(p: float) -> str:
    return "not available" if np.isnan(p) else ("<1e-4" if p < 1e-4 else f"{p:.4f}")


def agree_test(mv: Curve, term: str | None = None, over: str = "llm") -> EqualityTest:
    r"""Test that estimates are equal across one dimension, by kind of correction.

    :math:`W = (Lb)'(LVL')^+(Lb)`, L the contrasts within groups of universes that differ in
    ``over`` only.

    Parameters
    ----------
    mv : Multiverse
    term : str, optional
    over : str
        A dimension: ``"llm"``, ``"prompt"``, ``"formula"``, ...

    Returns
    -------
    EqualityTest
        Printed with the right reading: LLM-only universes ask whether the choice matters,
        corrected ones whether the coded sample represents the corpus.

    Raises
    ------
    ArgumentError
        If the dimension does not exist, or nothing differs in it alone.
    """
    if over not in mv.dimensions:
        raise ArgumentError(
            f"over={over!r} is no dimension: use one of {', '.join(mv.dimensions)}."
        )
    joint = _joint(mv, term)
    rows = []
    for correction in dict.fromkeys(joint.table["correction"]):
        at = np.flatnonzero(joint.table["correction"] == correction)
        L = _contrasts(joint.table.iloc[at], mv.dimensions, over)
        if not len(L):
            continue
        V = joint.V[np.ix_(at, at)]
        test = equality_test(joint.b[at], V, L, df=_shared_df(joint.df[at]))
        used = at[np.abs(L).sum(axis=0) > 0]
        reading = NAIVE_READING if correction == "naive" else CORRECTED_READING
        if over not in ("llm", "model", "prompt") and correction != "naive":
            reading = (
                "Universes that differ in {over} may estimate different coefficients: a small "
                "p-value says that they do."
            )
        rows.append(_equality_row(str(correction), test, joint.b[used], reading.format(over=over)))
    if not rows:
        raise ArgumentError(
            f"No two universes differ in {over!r} alone: there is nothing to compare."
        )
    return EqualityTest(term or mv.focus, over, pd.DataFrame(rows))


def _shared_df(df: Float) -> float:
    """Return one number of degrees of freedom for a joint test: the smallest."""
    low = float(df.min())
    return np.inf if low > 1e6 else low


def _equality_row(correction: str, test: Wald, b: Float, reading: str) -> dict[str, Any]:
    return {
        "correction": correction,
        "universes": len(b),
        "low": b.min(),
        "high": b.max(),
        "statistic": test.statistic,
        "df": test.df,
        "df_denom": test.df_denom,
        "distribution": test.distribution,
        "p_value": test.p_value,
        "reading": reading,
    }


#: Dimensions that describe the annotator: they move together with it.
_OF_ANNOTATOR = frozenset({"formula", "family", "correction", "subset", "vcov"})


def _contrasts(table: pd.DataFrame, dimensions: Sequence[str], over: str) -> Float:
    """Return contrasts to the first universe of each group that differs in ``over`` only."""
    others = [d for d in dimensions if d != over]
    if over == "llm":
        others = [d for d in others if d in _OF_ANNOTATOR]
    elif over not in _OF_ANNOTATOR:
        others = [d for d in others if d != "llm"]
    rows = []
    for places in table.reset_index(drop=True).groupby(others, sort=False).indices.values():
        for k in places[1:]:
            contrast = np.zeros(len(table))
            contrast[places[0]], contrast[k] = -1.0, 1.0
            rows.append(contrast)
    return np.array(rows).reshape(len(rows), len(table))


def adjusted(mv: Curve, term: str | None = None) -> pd.DataFrame:
    """Return p-values adjusted for looking at all universes, by Romano-Wolf step-down.

    Parameters
    ----------
    mv : Multiverse
    term : str, optional

    Returns
    -------
    DataFrame
        ``universe``, the dimensions, ``estimate``, ``statistic``, ``p_value``, ``p_adjusted``.

    References
    ----------
    Romano and Wolf (2005), Stepwise multiple testing as formalized data snooping.
    """
    joint = _joint(mv, term)
    t = joint.b / np.sqrt(np.diag(joint.V))
    head = joint.table[["universe", *mv.dimensions, "estimate"]]
    return head.assign(
        statistic=t,
        p_value=p_values(t, joint.df),
        p_adjusted=step_down(t, joint.V, joint.df, seed=mv.seed or 0),
    )


@dataclass(frozen=True, slots=True)
class CurveTest:
    """Test of a specification curve as a whole against no effect in any universe."""

    term: str
    tests: pd.DataFrame
    """Rows: kind of universe and statistic; columns observed, p_value."""
    note: str

    def __str__(self) -> str:
        lines = [f"Specification curve of {self.term!r} against no effect anywhere"]
        for row in self.tests.to_dict("records"):
            lines.append(
                f"  {row['universes']:<10} {row['statistic']:<24} {row['observed']:>9.3f}   "
                f"p-value {_p(row['p_value'])}"
            )
        return "\n".join([*lines, self.note] if self.note else lines)


def curve_test(mv: Curve, term: str | None = None) -> CurveTest:
    """Test the curve as a whole: median, share of dominant sign, share significant, mean z.

    LLM-only and other universes are tested apart. For LLM-only ones "no effect" means that the
    *LLM* would find none; with errors that follow the covariates it can be rejected although the
    coders would find none.

    Parameters
    ----------
    mv : Multiverse
    term : str, optional

    Returns
    -------
    CurveTest

    References
    ----------
    Simonsohn, Simmons and Nelson (2020), Specification curve analysis.
    """
    joint = _joint(mv, term)
    rows = []
    naive = (joint.table["correction"] == "naive").to_numpy()
    for label, at in (("LLM-only", np.flatnonzero(naive)), ("others", np.flatnonzero(~naive))):
        if not len(at):
            continue
        result = curve_statistics(
            joint.b[at], joint.V[np.ix_(at, at)], joint.df[at], level=mv.level, seed=mv.seed or 0
        )
        for name, observed, p in zip(result.names, result.observed, result.p_values, strict=True):
            rows.append({"universes": label, "statistic": name, "observed": observed, "p_value": p})
    note = (
        "LLM-only: the null is that the LLMs find no effect, not the coders." if naive.any() else ""
    )
    return CurveTest(term or mv.focus, pd.DataFrame(rows), note)


@dataclass(frozen=True, slots=True)
class Flips:
    """Shares of universes with another sign, or another verdict, than the reference."""

    term: str
    sign: int
    reference: str
    shares: pd.DataFrame
    """Rows: kind of universe; columns universes, flipped, expected, low, high, bound_low,
    bound_high, significant_same, significant_opposite."""

    def __str__(self) -> str:
        word = "positive" if self.sign > 0 else "negative"
        lines = [f"Sign of {self.term!r} against {self.reference} ({word})"]
        for row in self.shares.to_dict("records"):
            lines.append(
                f"  {row['kind']}: {row['flipped']:.0%} of {row['universes']} universes on the "
                f"other side (at least {row['bound_low']:.0%}, at most {row['bound_high']:.0%} of "
                f"the true values, jointly); significant on the same side "
                f"{row['significant_same']:.0%}, on the other {row['significant_opposite']:.0%}"
            )
        return "\n".join(lines)


def flips(mv: Curve, term: str | None = None, reference: int | None = None) -> Flips:
    """Return how many universes are on the other side of zero, with bounds that hold jointly.

    Parameters
    ----------
    mv : Multiverse
    term : str, optional
    reference : int, optional
        Number of the universe whose sign is compared with; default: the human-only universe
        where there is just one, otherwise the sign of most universes.

    Returns
    -------
    Flips

    Raises
    ------
    ArgumentError
        If the reference is no fitted universe.
    """
    joint = _joint(mv, term)
    sign, told = _reference_sign(joint, reference)
    naive = (joint.table["correction"] == "naive").to_numpy()
    rows = []
    for kind, mask in (("LLM-only", naive), ("others", ~naive)):
        at = np.flatnonzero(mask)
        if len(at):
            rows.append({"kind": kind, **_flip_row(mv, joint, at, sign)})
    return Flips(term or mv.focus, sign, told, pd.DataFrame(rows))


def _reference_sign(joint: _Joint, reference: int | None) -> tuple[int, str]:
    numbers = joint.table["universe"].to_numpy()
    if reference is None:
        human = np.flatnonzero(joint.table["correction"] == "human")
        if len(human) != 1:
            sign = 1 if (joint.b > 0).mean() >= 0.5 else -1
            return sign, "the sign of most universes"
        return (1 if joint.b[human[0]] > 0 else -1), "human-only"
    found = np.flatnonzero(numbers == reference)
    if not len(found):
        raise ArgumentError(f"reference={reference!r} is no fitted universe with this term.")
    return (1 if joint.b[found[0]] > 0 else -1), f"universe {reference}"


def _flip_row(mv: Curve, joint: _Joint, at: NDArray[np.int64], sign: int) -> dict[str, Any]:
    V = joint.V[np.ix_(at, at)]
    result: FlipShares = shares_of_flips(
        joint.b[at], V, float(sign), joint.df[at], level=mv.level, seed=mv.seed or 0
    )
    t = joint.b[at] * sign / np.sqrt(np.diag(V))
    cut = quantiles(mv.level, joint.df[at])
    return {
        "universes": len(at),
        "flipped": result.share,
        "expected": result.expected,
        "low": result.low,
        "high": result.high,
        "bound_low": result.bound_low,
        "bound_high": result.bound_high,
        "significant_same": float((t > cut).mean()),
        "significant_opposite": float((t < -cut).mean()),
    }


@dataclass(frozen=True, slots=True)
class Pooled:
    """One estimate from several corrected universes of the same estimand."""

    term: str
    method: str
    estimate: float
    std_error: float
    conf_low: float
    conf_high: float
    weights: pd.DataFrame

    def __str__(self) -> str:
        return (
            f"Pooled {self.term!r} ({self.method}, {len(self.weights)} universes): "
            f"{self.estimate:.4f} ({self.std_error:.4f}) [{self.conf_low:.4f}, "
            f"{self.conf_high:.4f}]"
        )


def pool(
    mv: Curve,
    term: str | None = None,
    weights: Any | None = None,
    method: str = "minimum variance",
) -> Pooled:
    """Pool corrected universes that share one estimand.

    Parameters
    ----------
    mv : Multiverse
    term : str, optional
    weights : array or mapping of universe number to weight, optional
        For ``method="fixed"``; default equal weights. They are scaled to sum to one.
    method : {"minimum variance", "fixed"}

    Returns
    -------
    Pooled

    Raises
    ------
    CorrectionError
        If there are no corrected universes, or they differ in formula, family or subset.
    ArgumentError
        If the method is unknown or weights do not fit.
    """
    if method not in ("minimum variance", "fixed"):
        raise ArgumentError(f'method={method!r} is unknown: use "minimum variance" or "fixed".')
    joint = _joint(mv, term)
    at = np.flatnonzero(joint.table["correction"] != "naive")
    if not len(at):
        raise CorrectionError(
            "Only LLM-only universes were fitted. Each estimates what its LLM would find, so their "
            "mean is no one's answer: add corrected universes."
        )
    table = joint.table.iloc[at].reset_index(drop=True)
    for dimension in ("formula", "family", "subset"):
        levels = table[dimension].unique()
        if len(levels) > 1:
            raise CorrectionError(
                f"The universes differ in {dimension} ({', '.join(map(repr, levels[:3]))}), so "
                "they estimate different coefficients, and a mean of them answers no question: "
                "run a multiverse for one of them."
            )
    b, V = joint.b[at], joint.V[np.ix_(at, at)]
    if method == "fixed":
        w = _weights(table, weights)
        estimate, se = pool_fixed(b, V, w)
    else:
        if weights is not None:
            raise ArgumentError('weights= are for method="fixed".')
        estimate, se, w = pool_minimum_variance(b, V, SHRINKAGE)
    reach = float(quantiles(mv.level, np.array([joint.df[at].min()]))[0]) * se
    return Pooled(
        term or mv.focus,
        method,
        estimate,
        se,
        estimate - reach,
        estimate + reach,
        table[["universe", *mv.dimensions]].assign(weight=w),
    )


def _weights(table: pd.DataFrame, weights: Any | None) -> Float:
    if weights is None:
        return np.full(len(table), 1.0 / len(table))
    if isinstance(weights, dict):
        unknown = set(weights) - set(table["universe"])
        if unknown:
            raise ArgumentError(f"weights= names universes that cannot be pooled: {unknown}.")
        w = table["universe"].map(weights).fillna(0.0).to_numpy(dtype=float)
    else:
        w = np.asarray(weights, dtype=float)
    if w.shape != (len(table),) or not np.isfinite(w).all() or w.sum() <= 0:
        raise ArgumentError(
            f"weights= need one finite number for each of the {len(table)} corrected universes, "
            "with a positive sum."
        )
    return np.asarray(w / w.sum())
