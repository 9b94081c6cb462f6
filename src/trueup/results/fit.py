"""The fitted regression that a user holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from trueup.corrections.base import Correction, Estimate, Problem
from trueup.results import compare, plot, predict, summary, tidy, wald
from trueup.results.compare import Comparison
from trueup.results.predict import Interval
from trueup.results.summary import Summary
from trueup.results.tidy import Names
from trueup.results.wald import WaldTest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from trueup.study.study import Study


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Fit:
    """A regression on LLM labels, corrected by human labels.

    You get one from ``tu.ols``, ``tu.logit`` and their relatives. ``estimate`` holds the
    numbers as arrays, ``problem`` what they were computed from; the methods present them.
    """

    estimate: Estimate
    """Coefficients, covariance, influence functions."""
    problem: Problem
    """Family, design under each source of labels, sampling design."""
    study: Study
    """The study that was fitted."""
    formula: str
    correction: Correction
    """The correction that was asked for."""
    level: float
    """Level of the intervals, in (0, 1)."""
    call: str
    """What the user wrote."""

    def __post_init__(self) -> None:
        """Check the level."""
        tidy.check_level(self.level)

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the p coefficients."""
        return self.problem.frame.terms

    def __repr__(self) -> str:
        return (
            f"<{self.problem.family.name} fit of {self.formula!r}, correction "
            f"{tidy.applied_correction(self).name!r}, {len(self.terms)} coefficients; "
            "see .summary()>"
        )

    def summary(self, level: float | None = None, *, stars: bool = False) -> Summary:
        """Return a text that says what was fitted, on which labels, and what came out.

        Parameters
        ----------
        level : float, optional
            Level of the intervals; default: that of the fit.
        stars : bool
            Whether to mark small p-values with stars, with a legend.

        Returns
        -------
        Summary
            Prints as text of at most 88 columns, shows as a table in a notebook.

        Examples
        --------
        >>> import trueup as tu
        >>> sim = tu.simulate.study(2_000, annotators=[tu.simulate.Annotator("llm")], seed=1)
        >>> fit = tu.logit(sim.formula, sim.study)
        >>> print(fit.summary())
        Call:
          tu.logit('label ~ treated + x', study)
        ...
        Family:      logit
        ...
        """
        return summary.summarise(self, level, stars=stars)

    def tidy(self, level: float | None = None, names: Names = "snake") -> pd.DataFrame:
        """Return the coefficients as a data frame, one row for each.

        Parameters
        ----------
        level : float, optional
            Level of the intervals; default: that of the fit.
        names : {"snake", "broom"}
            Column names as in Python (``std_error``) or as in R's broom (``std.error``).

        Returns
        -------
        pandas.DataFrame
            Columns term, estimate, std_error, statistic (estimate / std_error), p_value
            (two-sided, against 0), conf_low, conf_high, df (degrees of freedom of the t
            distribution; infinite = normal).

        Raises
        ------
        ArgumentError
            If ``level`` is not in (0, 1) or ``names`` is unknown.

        Examples
        --------
        >>> import trueup as tu
        >>> sim = tu.simulate.study(2_000, annotators=[tu.simulate.Annotator("llm")], seed=1)
        >>> fit = tu.logit(sim.formula, sim.study)
        >>> fit.tidy().round(2)[["term", "estimate", "std_error", "conf_low", "conf_high"]]
                term  estimate  std_error  conf_low  conf_high
        0  Intercept     -0.53       0.10     -0.72      -0.35
        1    treated      1.14       0.14      0.86       1.43
        2          x      0.67       0.08      0.52       0.83
        """
        return tidy.tidy(self, level, names)

    def glance(self) -> pd.DataFrame:
        """Return the fit as a data frame of one row.

        Returns
        -------
        pandas.DataFrame
            formula; family; correction; llm (annotators); n_human (coded rows used); n_llm
            (rows with an LLM label); tuning (a number, or the size of the tuning matrix);
            effective_n (human labels that would give the same standard error alone, median
            over terms other than the intercept); informative (coded rows that carry the least
            well supported standard error); level; vcov; design (how the coded rows were
            drawn); n_clusters; df (smallest over terms).

        Examples
        --------
        >>> import trueup as tu
        >>> sim = tu.simulate.study(2_000, annotators=[tu.simulate.Annotator("llm")], seed=1)
        >>> fit = tu.logit(sim.formula, sim.study)
        >>> fit.glance()[["family", "n_human", "n_llm"]].values.tolist()
        [['logit', 500, 2000]]
        """
        return tidy.glance(self)

    def augment(self) -> pd.DataFrame:
        """Return one row for each row of the study, with its labels and fitted means.

        Returns
        -------
        pandas.DataFrame
            - row: position in the table that the study was built from
            - coded: whether the row counts among the coded ones
            - inclusion_weight: 1 / inclusion probability; NaN where not coded
            - ``<variable>_human``, ``<variable>_llm``: labels (``<variable>_llm_<annotator>``
              with several)
            - .fitted: mean at the corrected coefficients under LLM labels
              (``.fitted_<annotator>`` where several annotators give different ones)
            - .fitted_human, .resid: mean under human labels and human outcome minus it; NaN
              where not coded

        Examples
        --------
        >>> import trueup as tu
        >>> sim = tu.simulate.study(2_000, annotators=[tu.simulate.Annotator("llm")], seed=1)
        >>> fit = tu.logit(sim.formula, sim.study)
        >>> fit.augment().columns[:5].tolist()
        ['row', 'coded', 'inclusion_weight', 'label_human', 'label_llm']
        """
        return predict.augment(self)

    def coef(self) -> pd.Series[float]:
        """Return the coefficients by term.

        Examples
        --------
        >>> import trueup as tu
        >>> sim = tu.simulate.study(2_000, annotators=[tu.simulate.Annotator("llm")], seed=1)
        >>> fit = tu.logit(sim.formula, sim.study)
        >>> fit.coef().round(2).to_dict()
        {'Intercept': -0.53, 'treated': 1.14, 'x': 0.67}
        """
        return pd.Series(self.estimate.theta, index=list(self.terms), name="estimate")

    def se(self) -> pd.Series[float]:
        """Return the standard errors by term.

        Examples
        --------
        >>> import trueup as tu
        >>> sim = tu.simulate.study(2_000, annotators=[tu.simulate.Annotator("llm")], seed=1)
        >>> fit = tu.logit(sim.formula, sim.study)
        >>> fit.se().round(2).to_dict()
        {'Intercept': 0.1, 'treated': 0.14, 'x': 0.08}
        """
        values = tidy.standard_errors(self.estimate.vcov, self.terms)
        return pd.Series(values, index=list(self.terms), name="std_error")

    def vcov(self) -> pd.DataFrame:
        """Return the (p, p) covariance of the coefficients, rows and columns by term.

        Examples
        --------
        >>> import trueup as tu
        >>> sim = tu.simulate.study(2_000, annotators=[tu.simulate.Annotator("llm")], seed=1)
        >>> fit = tu.logit(sim.formula, sim.study)
        >>> fit.vcov().round(3)
                   Intercept  treated      x
        Intercept      0.009   -0.009 -0.000
        treated       -0.009    0.021  0.002
        x             -0.000    0.002  0.006
        """
        terms = list(self.terms)
        return pd.DataFrame(self.estimate.vcov, index=terms, columns=terms)

    def confint(self, level: float | None = None) -> pd.DataFrame:
        """Return intervals by term.

        Parameters
        ----------
        level : float, optional
            Default: that of the fit.

        Returns
        -------
        pandas.DataFrame
            Columns conf_low and conf_high, indexed by term.

        Examples
        --------
        >>> import trueup as tu
        >>> sim = tu.simulate.study(2_000, annotators=[tu.simulate.Annotator("llm")], seed=1)
        >>> fit = tu.logit(sim.formula, sim.study)
        >>> fit.confint(level=0.9).round(2)
                   conf_low  conf_high
        Intercept     -0.69      -0.38
        treated        0.91       1.38
        x              0.54       0.80
        """
        table = tidy.tidy(self, level).set_index("term")
        return table[["conf_low", "conf_high"]].rename_axis(None)

    def predict(
        self,
        newdata: Any | None = None,
        interval: Interval | None = None,
        level: float | None = None,
    ) -> pd.DataFrame:
        """Return fitted means on the scale of the outcome.

        Parameters
        ----------
        newdata : data frame, optional
            Rows to predict for, with the columns that the right-hand side uses (a labelled
            covariate under the name of its variable). Default: all rows of the study, under
            LLM labels.
        interval : "confidence", optional
            Add a standard error and an interval for the mean, by the delta method and the
            smallest degrees of freedom among the coefficients. Close to 0 or 1 an interval
            for a probability can reach beyond.
        level : float, optional
            Default: that of the fit.

        Returns
        -------
        pandas.DataFrame
            Column estimate; with an interval also std_error, conf_low, conf_high.

        Raises
        ------
        ArgumentError
            If an argument is unknown, or the formula absorbs effects, whose levels are not
            estimated.

        Examples
        --------
        >>> import trueup as tu
        >>> sim = tu.simulate.study(2_000, annotators=[tu.simulate.Annotator("llm")], seed=1)
        >>> fit = tu.logit(sim.formula, sim.study)
        >>> new = {"treated": [0, 1], "x": [0.0, 0.0]}
        >>> fit.predict(new, interval="confidence").round(2)
           estimate  std_error  conf_low  conf_high
        0      0.37       0.02      0.33       0.41
        1      0.65       0.02      0.60       0.70
        """
        return predict.predict(self, newdata, interval, level)

    def wald_test(self, constraint: Any) -> WaldTest:
        """Test linear constraints on the coefficients.

        Parameters
        ----------
        constraint : str, list of str, (q, p) array, or tuple of (q, p) and (q,) arrays
            ``"exclaim = 0"``, ``"a = b"``, ``["a = 0", "2 * b = c + 1"]``; an array R tests
            R theta = 0, a tuple (R, r) tests R theta = r. Repeated constraints count once.

        Returns
        -------
        WaldTest
            Chi-squared where the reference distribution is normal; otherwise F with the
            smallest degrees of freedom among the coefficients that the constraints touch.

        Raises
        ------
        ArgumentError
            If a constraint cannot be read, names an unknown term, or contradicts another.

        Examples
        --------
        >>> import trueup as tu
        >>> sim = tu.simulate.study(2_000, annotators=[tu.simulate.Annotator("llm")], seed=1)
        >>> fit = tu.logit(sim.formula, sim.study)
        >>> print(fit.wald_test("treated = 0"))
        F(1, 482.5) = 62.94, p = 1.496e-14, for treated = 0
        """
        e = self.estimate
        return wald.wald_test(e.theta, e.vcov, e.df, self.terms, constraint)

    def compare(self, level: float | None = None) -> Comparison:
        """Set the fit beside LLM-only and human-only ones, and test the LLM's bias.

        Parameters
        ----------
        level : float, optional
            Level of the intervals; default: that of the fit.

        Returns
        -------
        Comparison
            Prints as a table; ``.tidy()`` and ``.glance()`` give data frames.

        Examples
        --------
        >>> import trueup as tu
        >>> sim = tu.simulate.study(2_000, annotators=[tu.simulate.Annotator("llm")], seed=1)
        >>> fit = tu.logit(sim.formula, sim.study)
        >>> fit.compare().tidy().round(2)[["term", "source", "estimate"]].head(3)
                term      source  estimate
        0  Intercept    LLM-only     -0.34
        1  Intercept  human-only     -0.41
        2  Intercept   corrected     -0.53
        """
        return compare.compare(self, level)

    def plot(
        self,
        terms: Sequence[str] | None = None,
        *,
        intercept: bool = False,
        level: float | None = None,
    ) -> Figure:
        """Draw LLM-only, human-only and corrected coefficients with their intervals.

        Parameters
        ----------
        terms : sequence of str, optional
            Terms to draw, in this order; default: all but the intercept.
        intercept : bool
            Whether to draw the intercept as well.
        level : float, optional
            Level of the intervals; default: that of the fit.

        Returns
        -------
        matplotlib.figure.Figure
            Shown where it is the last line of a notebook cell; ``savefig`` writes it to a file.

        Examples
        --------
        >>> import trueup as tu
        >>> sim = tu.simulate.study(2_000, annotators=[tu.simulate.Annotator("llm")], seed=1)
        >>> fit = tu.logit(sim.formula, sim.study)
        >>> figure = fit.plot()
        >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
        ['treated', 'x']
        """
        return plot.plot_comparison(self.compare(level), terms, intercept=intercept)
