"""Statements about all universes at once, from their joint covariance, without refitting."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trueup.errors import ArgumentError, CorrectionError, TrueupWarning
from trueup.inference.curves import FlipShares
from trueup.inference.curves import curve_test as curve_statistics
from trueup.inference.curves import flip_shares as shares_of_flips
from trueup.inference.simultaneous import (
    equality_test,
    max_t_p_value,
    max_t_quantile,
    moving,
    pool_fixed,
    pool_minimum_variance,
    step_down,
)
from trueup.multiverse.covariance import is_naive
from trueup.multiverse.grid import NO_LLM
from trueup.multiverse.universe import Located
from trueup.results.tidy import check_level, p_values, quantiles
from trueup.study.design import Float, SampleDesign

#: A Wald test of more than this share of the degrees of freedom rejects too often.
MOST_CONTRASTS = 0.2

NAIVE_READING = (
    "LLM-only universes: a small p-value says that the answer depends on which {over} was used."
)
CORRECTED_READING = (
    "Corrected universes estimate the same coefficient whatever the {over}: a small p-value says "
    "that the coded sample does not represent the corpus as its sampling design claims."
)
DIFFERENT_READING = (
    "Universes that differ in {over} may estimate different coefficients: a small p-value says "
    "that they do."
)
LARGEST_READING = (
    "max|z|: there are too many estimates for a joint chi-squared or F test from so few coded "
    "rows; the largest distance of an estimate from the mean of its group is tested instead."
)

#: Dimensions that are not about the annotator. All others (model, prompt, ...) move with it.
NOT_OF_ANNOTATOR = frozenset({"formula", "family", "correction", "subset", "vcov"})
#: Dimensions whose levels have coefficients of their own.
ESTIMAND = ("formula", "family", "subset")


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

    def located(self, term: str | None = None) -> Sequence[Located]:
        """Return them with their problems, in the same order."""
        ...


@dataclass(frozen=True, slots=True)
class _Joint:
    table: pd.DataFrame
    b: Float
    V: Float
    df: Float
    naive: NDArray[np.bool_]
    """(U,) which universes take LLM labels for the truth."""
    independent: Float
    """(U,) independent pieces that the covariance is estimated from, less the coefficients."""

    def at(self, places: NDArray[np.int64]) -> _Joint:
        """Return some of the universes."""
        return _Joint(
            self.table.iloc[places].reset_index(drop=True),
            self.b[places],
            self.V[np.ix_(places, places)],
            self.df[places],
            self.naive[places],
            self.independent[places],
        )

    @property
    def reference_df(self) -> float:
        """Degrees of freedom of a joint test; infinite where normal quantiles were asked for."""
        return np.inf if np.isinf(self.df).all() else float(self.independent.min())

    def kinds(self) -> Iterator[tuple[str, _Joint]]:
        """Yield LLM-only universes and the others, each under its name, where there are any."""
        for name, mask in (("LLM-only", self.naive), ("others", ~self.naive)):
            if mask.any():
                yield name, self.at(np.flatnonzero(mask))


def _joint(mv: Curve, term: str | None) -> _Joint:
    """Return the estimates that have a variance, and their joint law."""
    table, V, found = mv.table(term), mv.covariance(term), mv.located(term)
    joint = _Joint(
        table,
        table["estimate"].to_numpy(dtype=float),
        V,
        table["df"].to_numpy(dtype=float),
        np.array([is_naive(u) for u in found]),
        np.array([_independent(u) for u in found]),
    )
    moves = moving(V)
    if moves.all():
        return joint
    still = ", ".join(map(str, table["universe"][~moves][:5]))
    if not moves.any():
        raise ArgumentError(
            "No universe has an estimate with a sampling variance: there is nothing to infer."
        )
    warnings.warn(
        f"{int((~moves).sum())} universes have estimates without sampling variance (constant "
        f"labels, say) and are left out of joint inference: {still}.",
        TrueupWarning,
        stacklevel=4,
    )
    return joint.at(np.flatnonzero(moves))


def _independent(universe: Located) -> float:
    """Return the rows, drawn units or clusters that a variance rests on, less coefficients."""
    design, p = universe.problem.design, len(universe.outcome.terms)
    if is_naive(universe):
        pieces = design.n_rows if design.cluster is None else int(design.cluster.max()) + 1
        return float(max(pieces - p, 1))
    return float(max(_coded_pieces(design) - p, 1))


def _coded_pieces(design: SampleDesign) -> int:
    if design.cluster is not None:
        return len(np.unique(design.cluster[design.coded]))
    return design.n_coded if design.unit is None else int(design.unit.max()) + 1


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
    chosen = check_level(mv.level if level is None else level)
    joint = _joint(mv, term)
    c = max_t_quantile(joint.V, chosen, joint.df, seed=mv.seed or 0)
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
    """One row for each correction:

    - correction, and kind ("LLM-only" or "others")
    - universes compared, in so many groups that differ in nothing else; low and high, the ends of
      the estimates of the group that reaches farthest
    - statistic, df, df_denom, distribution, p_value: the Wald test, or where it compares too many
      estimates the test of the largest distance
    - largest, p_largest: the largest distance of an estimate from the mean of its group, in
      standard errors, and its p-value, adjusted for having been looked for
    - reading: what a small p-value says
    """

    def __str__(self) -> str:
        lines = [f"Test that {self.term!r} is the same across {self.over}"]
        for row in self.tests.to_dict("records"):
            many = row["groups"] > 1
            groups = f" in {row['groups']} groups, the widest" if many else ""
            lines.append(
                f"  {row['correction']}: {row['universes']} estimates{groups} from "
                f"{row['low']:.3f} to {row['high']:.3f}; {_result(row)}"
            )
        lines += [f"{r}" for r in dict.fromkeys(self.tests["reading"])]
        if self.tests["distribution"].str.startswith("max").any():
            lines.append(LARGEST_READING)
        return "\n".join(lines)


def _result(row: Mapping[Any, Any]) -> str:
    if np.isnan(row["p_value"]):
        return "no difference between them has a sampling variance to test"
    return f"{row['distribution']} = {row['statistic']:.2f}, p-value {_p(row['p_value'])}"


def _p(p: float) -> str:
    return "<1e-4" if p < 1e-4 else f"{p:.4f}"


def agree_test(mv: Curve, term: str | None = None, over: str = "llm") -> EqualityTest:
    r"""Test that estimates are equal across one dimension, by correction.

    :math:`W = (Lb)'(LVL')^+(Lb)`, L the contrasts within groups of universes that differ in
    ``over`` only, against Hotelling's F (chi-squared where normal quantiles were asked for).
    Influence functions describe estimates to first order; contrasts whose variance is below
    1/n of that of the estimates drown in what they leave out, and are not tested. Beside it, the
    largest distance of an estimate from the mean of its group, which needs no inverse: it is the
    test where estimates are many and coded rows few.

    Parameters
    ----------
    mv : Multiverse
    term : str, optional
    over : str
        A dimension: ``"llm"``, ``"prompt"``, ``"formula"``, ``"correction"``, ...

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
    if over == "vcov":
        raise ArgumentError("vcov changes standard errors, not estimates: choose another over=.")
    joint = _joint(mv, term)
    # Universes that differ in vcov alone have the same estimate: one of them is enough.
    joint = joint.at(np.flatnonzero(joint.table["vcov"] == joint.table["vcov"].iloc[0]))
    rows = []
    for kind, part in joint.kinds():
        label = (
            part.table["correction"] if over != "correction" else pd.Series(kind, part.table.index)
        )
        for correction in dict.fromkeys(label):
            one = part.at(np.flatnonzero(label == correction))
            groups = _groups(one.table, mv.dimensions, over)
            if groups:
                head = {"correction": str(correction), "kind": kind}
                rows.append(head | _compared(one, groups, mv.seed) | {"reading": _read(kind, over)})
    if not rows:
        raise ArgumentError(
            f"No two universes differ in {over!r} alone: there is nothing to compare."
        )
    return EqualityTest(term or mv.focus, over, pd.DataFrame(rows))


def _read(kind: str, over: str) -> str:
    if kind == "LLM-only":
        return NAIVE_READING.format(over=over)
    return (DIFFERENT_READING if over in ESTIMAND else CORRECTED_READING).format(over=over)


def _groups(table: pd.DataFrame, dimensions: Sequence[str], over: str) -> list[NDArray[np.int64]]:
    """Return positions of universes that differ in ``over`` only, where there are two or more."""
    others = [d for d in dimensions if d != over]
    if over == "llm":
        others = [d for d in others if d in NOT_OF_ANNOTATOR]
    elif over not in NOT_OF_ANNOTATOR:
        others = [d for d in others if d != "llm"]
    together = [table.index[g] for g in table.groupby(others, sort=False).indices.values()]
    if over == "correction":
        # The human-only fit belongs to every annotator's group.
        alone = table["llm"] == NO_LLM
        shared = [d for d in others if d in NOT_OF_ANNOTATOR]
        for k, group in enumerate(together):
            same = (table[shared] == table.loc[group[0], shared]).all(axis=1)
            if not alone[group[0]]:
                together[k] = group.append(table.index[alone & same])
    return [group.to_numpy() for group in together if len(group) > 1]


def _compared(
    joint: _Joint, groups: Sequence[NDArray[np.int64]], seed: int | None
) -> dict[str, Any]:
    """Return both tests of equality within groups."""
    stacked = np.concatenate(groups)
    used = len(np.unique(stacked))
    D = np.zeros((len(stacked), len(joint.b)))
    start = 0
    for places in groups:
        stop = start + len(places)
        D[start:stop, places] = np.eye(len(places)) - 1.0 / len(places)
        start = stop
    widest = max((joint.b[places] for places in groups), key=np.ptp)
    nu = joint.reference_df
    tolerance = 1.0 / float(joint.independent.min())
    test = equality_test(joint.b, joint.V, D, df=nu, tolerance=tolerance)
    largest, p_largest = _largest(D @ joint.b, D @ joint.V @ D.T, nu, tolerance, joint.V, seed)
    few = test.df <= MOST_CONTRASTS * nu
    return {
        "universes": used,
        "groups": len(groups),
        "low": widest.min(),
        "high": widest.max(),
        "statistic": test.statistic if few else largest,
        "df": test.df,
        "df_denom": test.df_denom if few else nu,
        "distribution": test.distribution if few else f"max|z| of {used}",
        "p_value": test.p_value if few else p_largest,
        "largest": largest,
        "p_largest": p_largest,
    }


def _largest(
    distance: Float, D: Float, nu: float, tolerance: float, V: Float, seed: int | None
) -> tuple[float, float]:
    """Return the largest of the distances in standard errors, and its p-value."""
    variance = np.diag(D)
    known = variance > tolerance * float(np.diag(V).max())
    if not known.any():
        return np.nan, np.nan
    t = distance[known] / np.sqrt(variance[known])
    p = max_t_p_value(t, D[np.ix_(known, known)], nu, seed=seed or 0)
    return float(np.abs(t).max()), p


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
    for label, part in joint.kinds():
        result = curve_statistics(part.b, part.V, part.df, level=mv.level, seed=mv.seed or 0)
        for name, observed, p in zip(result.names, result.observed, result.p_values, strict=True):
            rows.append({"universes": label, "statistic": name, "observed": observed, "p_value": p})
    note = (
        "LLM-only: the null is that the LLMs find no effect, not the coders."
        if joint.naive.any()
        else ""
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
            n = row["universes"]
            low, high, same, other = (
                round(row[k] * n)
                for k in ("bound_low", "bound_high", "significant_same", "significant_opposite")
            )
            lines.append(
                f"  {row['kind']}: {counted(row['flipped'], n)} on the other side (of the true "
                f"values at least {low:,} and at most {high:,}, jointly); significant on the same "
                f"side {same:,}, on the other {other:,}"
            )
        return "\n".join(lines)


def counted(share: float, n: int) -> str:
    """Return a share of universes as a count, which is plain where they are few."""
    percent = f" ({share:.0%})" if n >= 20 else ""
    return f"{round(share * n):,} of {n:,} universe{'' if n == 1 else 's'}{percent}"


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
    rows = [{"kind": kind, **_flip_row(mv, part, sign)} for kind, part in joint.kinds()]
    return Flips(term or mv.focus, sign, told, pd.DataFrame(rows))


def _reference_sign(joint: _Joint, reference: int | None) -> tuple[int, str]:
    numbers = joint.table["universe"].to_numpy()
    if reference is None:
        human = np.flatnonzero(joint.table["correction"] == "human")
        if len(human) != 1:
            sign = 1 if (joint.b > 0).mean() >= 0.5 else -1
            return sign, "most universes"
        return (1 if joint.b[human[0]] > 0 else -1), "human-only"
    found = np.flatnonzero(numbers == reference)
    if not len(found):
        raise ArgumentError(f"reference={reference!r} is no fitted universe with this term.")
    return (1 if joint.b[found[0]] > 0 else -1), f"universe {reference}"


def _flip_row(mv: Curve, joint: _Joint, sign: int) -> dict[str, Any]:
    result: FlipShares = shares_of_flips(
        joint.b, joint.V, float(sign), joint.df, level=mv.level, seed=mv.seed or 0
    )
    t = joint.b * sign / np.sqrt(np.diag(joint.V))
    cut = quantiles(mv.level, joint.df)
    return {
        "universes": len(t),
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
    where: Mapping[str, str | Sequence[str]] | None = None,
) -> Pooled:
    r"""Pool corrected universes that share one estimand.

    :math:`w'b` with standard error :math:`\sqrt{w'Vw}`. Weights of minimum variance are
    :math:`w = V_a^+ 1/(1'V_a^+ 1)`, where :math:`V_a = (1-a)V + a\,\mathrm{diag}(V)` and
    :math:`a = U/(U + \nu)` for U universes whose variances have :math:`\nu` degrees of freedom:
    many covariances estimated from few coded rows would else promise too much.

    Parameters
    ----------
    mv : Multiverse
    term : str, optional
    weights : array or mapping of universe number to weight, optional
        For ``method="fixed"``; default equal weights. They are scaled to sum to one.
    method : {"minimum variance", "fixed"}
    where : mapping of dimension to level or levels, optional
        Universes to pool, such as ``{"formula": "y ~ x", "correction": ["ptd", "dsl"]}``;
        where it says nothing of the correction, all but the LLM-only ones.

    Returns
    -------
    Pooled

    Raises
    ------
    CorrectionError
        If LLM-only universes are chosen, or universes with different coefficients.
    ArgumentError
        If the method or a dimension is unknown, or weights do not fit.
    """
    if method not in ("minimum variance", "fixed"):
        raise ArgumentError(f'method={method!r} is unknown: use "minimum variance" or "fixed".')
    joint = _pooled_universes(_joint(mv, term), mv.dimensions, where or {})
    if method == "fixed":
        w = _weights(joint.table, weights)
        estimate, se = pool_fixed(joint.b, joint.V, w)
    else:
        if weights is not None:
            raise ArgumentError('weights= are for method="fixed".')
        U, nu = len(joint.b), min(float(joint.df.min()), float(joint.independent.min()))
        estimate, se, w = pool_minimum_variance(joint.b, joint.V, U / (U + nu))
    reach = float(quantiles(mv.level, np.array([joint.df.min()]))[0]) * se
    return Pooled(
        term or mv.focus,
        method,
        estimate,
        se,
        estimate - reach,
        estimate + reach,
        joint.table[["universe", *mv.dimensions]].assign(weight=w),
    )


def _pooled_universes(
    joint: _Joint, dimensions: Sequence[str], where: Mapping[str, str | Sequence[str]]
) -> _Joint:
    """Return the universes asked for, if a mean of them is an answer to something."""
    chosen = np.ones(len(joint.b), dtype=bool) if "correction" in where else ~joint.naive
    for dimension, levels in where.items():
        if dimension not in dimensions:
            raise ArgumentError(
                f"where= names {dimension!r}, which is no dimension: use {', '.join(dimensions)}."
            )
        wanted = [levels] if isinstance(levels, str) else list(levels)
        absent = [x for x in wanted if x not in set(joint.table[dimension])]
        if absent:
            raise ArgumentError(
                f"where= asks for {dimension} {absent[0]!r}, which no universe has: there are "
                f"{', '.join(map(repr, joint.table[dimension].unique()[:5]))}."
            )
        chosen &= joint.table[dimension].isin(wanted).to_numpy()
    if (chosen & joint.naive).any() or not (~joint.naive).any():
        raise CorrectionError(
            "LLM-only universes cannot be pooled: each estimates what its own LLM would find, so "
            "their mean is no one's answer. Pool corrected universes."
        )
    if not chosen.any():
        raise ArgumentError("where= leaves no universe: ask for levels that occur together.")
    joint = joint.at(np.flatnonzero(chosen))
    for dimension in (*ESTIMAND, "vcov"):
        found = joint.table[dimension].unique()
        if len(found) > 1:
            reason = (
                "repeat the same estimates"
                if dimension == "vcov"
                else "estimate different coefficients, and a mean of them answers no question"
            )
            raise CorrectionError(
                f"The universes differ in {dimension} ({', '.join(map(repr, found[:3]))}), so "
                f"they {reason}: choose one, as in where={{{dimension!r}: {found[0]!r}}}."
            )
    return joint


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
