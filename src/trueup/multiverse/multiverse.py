"""What a user holds after a multiverse has run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import pandas as pd

from trueup.corrections.auto import Auto
from trueup.corrections.base import Problem
from trueup.errors import ArgumentError, TrueupWarning
from trueup.inference.simultaneous import max_t_quantile, moving
from trueup.multiverse.choose import find_outcome
from trueup.multiverse.covariance import joint_covariance
from trueup.multiverse.runner import Problems, take_subset
from trueup.multiverse.together import Together, put_together
from trueup.multiverse.universe import Located, Outcome
from trueup.results.fit import Fit
from trueup.results.tidy import check_level, p_values, quantiles
from trueup.study.design import Float
from trueup.study.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from trueup.multiverse.decompose import Decomposition, Illusion
    from trueup.multiverse.joint import CurveTest, EqualityTest, Flips, Pooled

Kept = TypeVar("Kept")
Plot = Literal["curve", "arrows", "disagreement", "accuracy"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Multiverse:
    """Every universe of a grid, fitted, with joint inference across them.

    You get one from ``tu.multiverse``. Methods that take ``term`` mean the focal term where it
    is left out.
    """

    outcomes: tuple[Outcome, ...]
    study: Study
    dimensions: tuple[str, ...]
    subsets: Mapping[str, Any]
    focus: str
    level: float = 0.95
    seed: int | None = None
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        ok = sum(o.status == "ok" for o in self.outcomes)
        return (
            f"<multiverse of {len(self.outcomes)} universes ({len(self.outcomes) - ok} failed), "
            f"focus {self.focus!r}; see .summary(), .tidy(), .plot()>"
        )

    def chosen(self, term: str | None = None) -> list[Outcome]:
        """Return the fitted universes that have the term, in order."""
        name = self.focus if term is None else term
        found = [o for o in self.outcomes if name in o.terms]
        if not found:
            terms = sorted({t for o in self.outcomes for t in o.terms})
            near = get_close_matches(name, terms, n=3)
            hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
            raise ArgumentError(f"No fitted universe has a term {name!r}.{hint}")
        return found

    def tidy(
        self, term: str | None = None, *, all_terms: bool = False, level: float | None = None
    ) -> pd.DataFrame:
        """Return one row for each universe and term.

        Parameters
        ----------
        term : str, optional
            Default: the focal term.
        all_terms : bool
            Whether to give every coefficient of every universe.
        level : float, optional
            Level of the intervals; default: that of the multiverse.

        Returns
        -------
        DataFrame
            ``universe``, the dimensions, ``term``, ``estimate``, ``std_error``, ``statistic``,
            ``p_value``, ``conf_low``, ``conf_high``, ``df``; ``simultaneous_low`` and
            ``simultaneous_high`` (they hold for all universes at once; only with one term);
            ``status``, ``error``, ``warnings``, ``seconds``. Failed universes have no numbers.

        Raises
        ------
        ArgumentError
            If no fitted universe has the term.

        Warns
        -----
        TrueupWarning
            If universes use variables that were coded on other rows than those of most, so that
            they have no simultaneous intervals.
        """
        chosen_level = check_level(self.level if level is None else level)
        name = self.focus if term is None else term
        if all_terms:
            return _coefficients(self.outcomes, None, chosen_level)
        if any(o.status == "ok" for o in self.outcomes):
            self.chosen(name)
        table = _coefficients(self.outcomes, name, chosen_level)
        ok = table["estimate"].notna()
        widths = self._half_widths(name, chosen_level) if ok.any() else {}
        half = table["universe"].map(widths).astype(float)
        place = list(table.columns).index("conf_high") + 1
        table.insert(place, "simultaneous_low", table["estimate"] - half)
        table.insert(place + 1, "simultaneous_high", table["estimate"] + half)
        return table

    def _half_widths(self, term: str, level: float) -> dict[int, float]:
        """Return half the width of simultaneous intervals by universe, where there are any."""
        return self._once(("half widths", term, level), lambda: self._widths(term, level))

    def _widths(self, term: str, level: float) -> dict[int, float]:
        table, V = self.table(term), self.covariance(term)
        df = table["df"].to_numpy(dtype=float)
        # An LLM that never varies within a subset gives an estimate without variance.
        se = np.sqrt(np.diag(V))
        moves = moving(V)
        half = np.zeros(len(V))
        if moves.any():
            q = max_t_quantile(V[np.ix_(moves, moves)], level, df[moves], seed=self.seed or 0)
            half[moves] = q * se[moves]
        return dict(zip(table["universe"], half.tolist(), strict=True))

    def table(self, term: str | None = None) -> pd.DataFrame:
        """Return the universes of joint statements, in the order of ``covariance``."""
        name = self.focus if term is None else term
        outcomes = [u.outcome for u in self.located(term)]
        return _coefficients(outcomes, name, self.level)

    def covariance(self, term: str | None = None) -> Float:
        """Return the (U, U) covariance of the term's estimates, in the order of ``table``."""
        name = self.focus if term is None else term
        together = self._together(name)
        return self._once(
            ("covariance", name),
            lambda: joint_covariance(
                together.located, [name] * len(together.located), together.design
            ),
        )

    def _copy(self, key: tuple[Any, ...], compute: Callable[[], Kept]) -> Kept:
        """Return a copy of what :meth:`_once` keeps, which the caller may change."""
        return deepcopy(self._once(key, compute))

    def vcov(self, term: str | None = None) -> pd.DataFrame:
        """Return the covariance across universes, rows and columns by universe number."""
        numbers = [u.outcome.universe.number for u in self.located(term)]
        return pd.DataFrame(self.covariance(term), index=numbers, columns=numbers, copy=True)

    def located(self, term: str | None = None) -> list[Located]:
        """Return the universes of joint statements, each with its problem.

        They are all fitted universes that have the term, but for those whose variables were coded
        on other rows; the first time that some are left out, a warning names them.
        """
        return list(self._together(self.focus if term is None else term).located)

    def _together(self, term: str) -> Together:
        def found() -> Together:
            together = put_together(self.chosen(term), self._problem, self.study, self._part)
            if together.left_out:
                warnings.warn(together.told(), TrueupWarning, stacklevel=6)
            return together

        return self._once(("together", term), found)

    def left_out(self, term: str | None = None) -> str:
        """Return which universes joint statements leave out and why; empty where none."""
        together = self._together(self.focus if term is None else term)
        return together.told() if together.left_out else ""

    def _once(self, key: tuple[Any, ...], compute: Callable[[], Kept]) -> Kept:
        """Return what was computed under this key before, or compute and keep it."""
        if key not in self._kept:
            self._kept[key] = compute()
        kept: Kept = self._kept[key]
        return kept

    def _problem(self, outcome: Outcome) -> Problem:
        u = outcome.universe
        shared = (u.formula, u.family.name, u.subset)

        def problems() -> Problems:
            group = [
                o.universe
                for o in self.outcomes
                if (o.universe.formula, o.universe.family.name, o.universe.subset) == shared
            ]
            return Problems(self._part(u.subset), group, self.seed)

        return self._once(("problems", *shared), problems).of(u)

    def _part(self, subset: str) -> Study:
        return self._once(
            ("subset", subset), lambda: take_subset(self.study, self.subsets[subset])[0]
        )

    def fit(self, universe: int | Mapping[str, Any]) -> Fit:
        """Return the single fit of a universe.

        Parameters
        ----------
        universe : int, or mapping of dimension to level
            Its number, or choices that only one universe made, such as
            ``{"llm": "gpt", "correction": "ptd"}``.

        Raises
        ------
        ArgumentError
            If there is no such universe, several match, or it failed (with the reason).
        """
        outcome = find_outcome(self.outcomes, universe)
        number = outcome.universe.number
        if outcome.estimate is None:
            raise ArgumentError(f"Universe {number} failed: {outcome.error}")
        problem = self._problem(outcome)
        estimate = outcome.estimate
        u = outcome.universe
        if isinstance(u.correction, Auto) and "chosen" not in estimate.extra:
            chosen = u.correction.choose(problem)[0]
            estimate = replace(estimate, extra={**estimate.extra, "chosen": chosen})
        return Fit(
            estimate=estimate,
            problem=problem,
            study=self._part(u.subset),
            formula=u.formula,
            correction=u.correction,
            level=self.level,
            call=f"multiverse.fit({number})",
        )

    def failed(self) -> pd.DataFrame:
        """Return the universes that failed, with the reason."""
        rows = [
            {"universe": o.universe.number, **o.universe.dimensions, "error": o.error}
            for o in self.outcomes
            if o.status == "failed"
        ]
        return pd.DataFrame(rows, columns=["universe", *self.dimensions, "error"])

    def bands(self, term: str | None = None, level: float | None = None) -> pd.DataFrame:
        """Return intervals that hold for all universes at once; see :mod:`~.joint`."""
        from trueup.multiverse import joint

        key = ("bands", term or self.focus, self.level if level is None else level)
        return self._copy(key, lambda: joint.bands(self, term, level))

    def agree_test(self, term: str | None = None, over: str = "llm") -> EqualityTest:
        """Test that estimates that differ only in one dimension are equal."""
        from trueup.multiverse import joint

        key = ("agree", term or self.focus, over)
        return self._copy(key, lambda: joint.agree_test(self, term, over))

    def adjusted(self, term: str | None = None) -> pd.DataFrame:
        """Return p-values adjusted for the number of universes (Romano-Wolf step-down)."""
        from trueup.multiverse import joint

        key = ("adjusted", term or self.focus)
        return self._copy(key, lambda: joint.adjusted(self, term))

    def curve_test(self, term: str | None = None) -> CurveTest:
        """Test the specification curve as a whole against no effect anywhere."""
        from trueup.multiverse import joint

        key = ("curve", term or self.focus)
        return self._copy(key, lambda: joint.curve_test(self, term))

    def flips(self, term: str | None = None, reference: int | None = None) -> Flips:
        """Return the shares of universes with another sign, or another significance."""
        from trueup.multiverse import joint

        key = ("flips", term or self.focus, reference)
        return self._copy(key, lambda: joint.flips(self, term, reference))

    def pool(
        self,
        term: str | None = None,
        weights: Any | None = None,
        method: str = "minimum variance",
        where: Mapping[str, str | Sequence[str]] | None = None,
    ) -> Pooled:
        """Pool corrected universes that share one estimand; ``where=`` chooses them."""
        from trueup.multiverse import joint

        return joint.pool(self, term, weights, method, where)

    def decompose(self, term: str | None = None) -> Decomposition:
        """Return how much of the spread across universes is due to each dimension."""
        from trueup.multiverse import decompose

        key = ("decompose", term or self.focus)
        return self._copy(key, lambda: decompose.decompose(self, term))

    def illusion(self, term: str | None = None) -> Illusion:
        """Return accuracy beside estimates, by annotator and by pair of annotators."""
        from trueup.multiverse import decompose

        return decompose.illusion(self, term)

    def plot(self, kind: Plot = "curve", term: str | None = None) -> Figure:
        """Draw the specification curve, arrows, disagreement, or accuracy against estimate."""
        from trueup.multiverse import present

        return present.plot(self, kind, term)

    def summary(self, term: str | None = None) -> str:
        """Return the headline as text."""
        from trueup.multiverse import present

        return present.summary(self, term)

    def report(self, path: str | Path, *, title: str | None = None, plan: str = "") -> Path:
        """Write one self-contained page that a referee can read.

        Parameters
        ----------
        path : path
            File to write; one that exists is replaced.
        title : str, optional
            Default: names the focal term.
        plan : str
            Text of the plan file that was run, shown on the page.

        Returns
        -------
        Path
        """
        from trueup.multiverse import present

        return present.report(self, Path(path), title, plan)


def _coefficients(outcomes: Sequence[Outcome], term: str | None, level: float) -> pd.DataFrame:
    """Return one row for each universe, or with ``term=None`` for each of its coefficients."""
    at: list[tuple[Outcome, int]] = []
    for o in outcomes:
        if o.estimate is None or (term is not None and term not in o.terms):
            at.append((o, -1))
        else:
            places = range(len(o.terms)) if term is None else [o.terms.index(term)]
            at += [(o, k) for k in places]
    # All universes at once: a table for each would take longer than their fits.
    numbers = np.full((3, len(at)), np.nan)
    for row, (o, k) in enumerate(at):
        if k >= 0 and o.estimate is not None:
            e = o.estimate
            numbers[:, row] = e.theta[k], max(e.vcov[k, k], 0.0), e.df[k]
    theta, se, df = numbers[0], np.sqrt(numbers[1]), numbers[2]
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = theta / se
    half = quantiles(level, df) * se
    columns: dict[str, Any] = {"universe": [o.universe.number for o, _ in at]}
    for name in outcomes[0].universe.dimensions:
        columns[name] = [o.universe.dimensions[name] for o, _ in at]
    columns["term"] = [o.terms[k] if k >= 0 else term or "" for o, k in at]
    columns |= {"estimate": theta, "std_error": se, "statistic": statistic}
    columns["p_value"] = p_values(statistic, df)
    columns |= {"conf_low": theta - half, "conf_high": theta + half, "df": df}
    columns["status"] = [o.status for o, _ in at]
    columns["error"] = [o.error for o, _ in at]
    columns["warnings"] = ["; ".join(o.warnings) for o, _ in at]
    columns["seconds"] = [o.seconds for o, _ in at]
    return pd.DataFrame(columns)
