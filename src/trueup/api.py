"""What users call: one function for each family."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from trueup.corrections.base import Correction
from trueup.corrections.problem import build_problem
from trueup.corrections.registry import as_correction
from trueup.errors import ArgumentError, SmallSampleWarning
from trueup.families.base import Family
from trueup.families.registry import family_for, glm_family
from trueup.inference.vcov import Vcov, as_vcov
from trueup.multiverse.focus import check_focus, warn_focus
from trueup.multiverse.grid import Annotators, Corrections, Exclude, LLMs, build_grid
from trueup.multiverse.multiverse import Multiverse
from trueup.multiverse.runner import run_universes
from trueup.multiverse.store import Store
from trueup.multiverse.workers import count_workers
from trueup.results.fit import Fit
from trueup.results.tidy import check_level
from trueup.study.study import Study

__all__ = [
    "absorb",
    "glm",
    "grid",
    "iv",
    "logit",
    "mean",
    "multiverse",
    "ols",
    "poisson",
    "probit",
]

LLM = str | Sequence[str] | None
Function = TypeVar("Function", bound=Callable[..., Fit])


def fit_family(
    formula: str,
    study: Study,
    family: Family,
    llm: LLM,
    correction: str | Correction,
    vcov: str | Vcov,
    level: float,
    seed: int | None,
    call: str,
) -> Fit:
    """Fit any family: check everything, then estimate."""
    if not isinstance(study, Study):
        raise ArgumentError(
            f"study must be a tu.Study, got {type(study).__name__}: build one with "
            "tu.Study(data, human={...}, llm={...})."
        )
    if not isinstance(level, (int, float)) or not 0.0 < level < 1.0:
        raise ArgumentError(f"level={level!r} must be between 0 and 1, such as 0.95.")
    options, how = as_vcov(vcov), as_correction(correction)
    annotators = study.resolve(llm)
    problem = build_problem(formula, study, family, annotators, options, seed)
    estimate = how.estimate(problem)
    for text in estimate.warnings:
        warnings.warn(text, SmallSampleWarning, stacklevel=3)
    return Fit(
        estimate=estimate,
        problem=problem,
        study=study,
        formula=formula,
        correction=how,
        level=float(level),
        call=_call(call, formula, llm, correction, vcov, seed),
    )


def _call(
    name: str,
    formula: str,
    llm: LLM,
    correction: str | Correction,
    vcov: str | Vcov,
    seed: int | None,
) -> str:
    parts = [repr(formula), "study"]
    if llm is not None:
        parts.append(f"llm={llm!r}")
    if correction != "auto":
        parts.append(f"correction={correction!r}")
    if vcov != "HC3":
        parts.append(f"vcov={vcov!r}")
    if seed is not None:
        parts.append(f"seed={seed!r}")
    return f"tu.{name}({', '.join(parts)})"


_PARAMETERS = """
    Parameters
    ----------
    {formula}
    study : Study
        The data, who labelled what, and how the coded rows were drawn.
    llm : str or sequence of str, optional
        Annotators to use: a name, a pattern such as ``"gpt*"``, ``"all"``, or a list. Several
        are used jointly. May be left out where the study has only one.
    correction : str or Correction, default "auto"
        ``"auto"``, ``"naive"`` (LLM labels only), ``"human"`` (coded rows only), ``"ppi"``,
        ``"ppi++"``, ``"ptd"``, ``"dsl"``, ``"pspa"``, or an object with options such as
        ``tu.PTD(tuning="diagonal")``.
    vcov : str or Vcov, default "HC3"
        Small-sample adjustment. ``"HC2"`` and ``"HC3"`` use t quantiles with effective degrees
        of freedom; ``"HC1"`` uses t with n - p; ``"HC0"`` is the plug-in with normal quantiles
        that most published software reports.
    level : float, default 0.95
        Level of confidence intervals, between 0 and 1.
    seed : int, optional
        Random state of what is drawn (the folds of DSL).

    Returns
    -------
    Fit
        With ``summary()``, ``tidy()``, ``compare()``, ``plot()`` and more.

    Raises
    ------
    FormulaError, StudyError, FitError, CorrectionError, ArgumentError
        Before any long work, saying which column or argument is at fault and how to mend it.
"""

_FORMULA = """formula : str
        Such as ``"y ~ x + C(group)"``. Labelled variables may stand anywhere in it."""


def _documented(formula: str = _FORMULA) -> Callable[[Function], Function]:
    """Put the parameters that all families share into a docstring, before its examples."""

    def decorate(function: Function) -> Function:
        head, rest = (function.__doc__ or "").split("\n\n    Examples", 1)
        shared = _PARAMETERS.format(formula=formula)
        function.__doc__ = f"{head}\n{shared}\n    Examples{rest}"
        return function

    return decorate


@_documented("""variable : str
        A labelled variable, or an expression such as ``"log(score)"``.""")
def mean(
    variable: str,
    study: Study,
    llm: LLM = None,
    correction: str | Correction = "auto",
    vcov: str | Vcov = "HC3",
    level: float = 0.95,
    seed: int | None = None,
) -> Fit:
    r"""Mean of a labelled variable, such as the share of positive texts.

    Solves :math:`\sum_i w_i (y_i - \theta) = 0`.

    Examples
    --------
    >>> import trueup as tu
    >>> data = tu.simulate.antibiotics(2_000, seed=1).assign(coder=lambda d: d.reaction)
    >>> data.loc[400:, "coder"] = float("nan")
    >>> study = tu.Study(data, human={"y": "coder"}, llm={"y": ["under_treated"]})
    >>> tu.mean("y", study).tidy().round(2)["estimate"].tolist()
    [0.28]

    References
    ----------
    Angelopoulos et al. (2023), Prediction-powered inference, section 2.
    """
    formula = variable if "~" in variable else f"{variable} ~ 1"
    family = family_for("mean")
    return fit_family(formula, study, family, llm, correction, vcov, level, seed, "mean")


@_documented()
def ols(
    formula: str,
    study: Study,
    llm: LLM = None,
    correction: str | Correction = "auto",
    vcov: str | Vcov = "HC3",
    level: float = 0.95,
    seed: int | None = None,
) -> Fit:
    r"""Linear regression by least squares.

    Solves :math:`\sum_i w_i x_i (y_i - x_i^\top\theta) = 0`.

    Examples
    --------
    >>> import trueup as tu
    >>> data = tu.datasets.load("antibiotics")
    >>> study = tu.Study(data, human={"y": "coder"}, llm={"y": ["under_treated"]})
    >>> fit = tu.ols("y ~ treated", study)
    >>> fit.coef().index.tolist()
    ['Intercept', 'treated']

    References
    ----------
    Kluger et al. (2025), Prediction-powered inference with imputed covariates and nonuniform
    sampling.
    """
    family = family_for("ols")
    return fit_family(formula, study, family, llm, correction, vcov, level, seed, "ols")


@_documented()
def logit(
    formula: str,
    study: Study,
    llm: LLM = None,
    correction: str | Correction = "auto",
    vcov: str | Vcov = "HC3",
    level: float = 0.95,
    seed: int | None = None,
) -> Fit:
    r"""Logistic regression; coefficients are log odds ratios.

    Solves :math:`\sum_i w_i x_i (y_i - \mu_i) = 0`, :math:`\mu_i = 1/(1+e^{-x_i^\top\theta})`.
    The outcome is 0/1; an LLM may give a probability instead.

    Examples
    --------
    >>> import trueup as tu
    >>> data = tu.datasets.load("antibiotics")
    >>> study = tu.Study(data, human={"y": "coder"}, llm={"y": ["under_treated"]})
    >>> fit = tu.logit("y ~ treated", study)
    >>> bool(fit.confint().loc["treated", "conf_low"] < 1.0)
    True

    References
    ----------
    Angelopoulos, Duchi and Zrnic (2023), PPI++, section 4; Kluger et al. (2025).
    """
    family = family_for("logit")
    return fit_family(formula, study, family, llm, correction, vcov, level, seed, "logit")


@_documented()
def probit(
    formula: str,
    study: Study,
    llm: LLM = None,
    correction: str | Correction = "auto",
    vcov: str | Vcov = "HC3",
    level: float = 0.95,
    seed: int | None = None,
) -> Fit:
    r"""Probit regression of a 0/1 outcome.

    Solves :math:`\sum_i w_i x_i (y_i-\mu_i)\varphi(x_i^\top\theta)/[\mu_i(1-\mu_i)] = 0`,
    :math:`\mu_i = \Phi(x_i^\top\theta)`.

    Examples
    --------
    >>> import trueup as tu
    >>> data = tu.datasets.load("antibiotics")
    >>> study = tu.Study(data, human={"y": "coder"}, llm={"y": ["under_treated"]})
    >>> tu.probit("y ~ treated", study).glance()["family"].item()
    'probit'

    References
    ----------
    Kluger et al. (2025), Prediction-powered inference with imputed covariates and nonuniform
    sampling.
    """
    family = family_for("probit")
    return fit_family(formula, study, family, llm, correction, vcov, level, seed, "probit")


@_documented()
def poisson(
    formula: str,
    study: Study,
    llm: LLM = None,
    correction: str | Correction = "auto",
    vcov: str | Vcov = "HC3",
    level: float = 0.95,
    seed: int | None = None,
) -> Fit:
    r"""Poisson regression of a count (or any non-negative outcome) with log link.

    Solves :math:`\sum_i w_i x_i (y_i - e^{x_i^\top\theta}) = 0`.

    Examples
    --------
    >>> import trueup as tu
    >>> data = tu.datasets.load("antibiotics")
    >>> study = tu.Study(data, human={"y": "coder"}, llm={"y": ["under_treated"]})
    >>> tu.poisson("y ~ treated", study).glance()["family"].item()
    'poisson'

    References
    ----------
    Angelopoulos, Duchi and Zrnic (2023), PPI++, section 4.
    """
    family = family_for("poisson")
    return fit_family(formula, study, family, llm, correction, vcov, level, seed, "poisson")


@_documented(
    _FORMULA
    + """
    family : str
        ``"gaussian"``, ``"binomial"``, ``"poisson"``, ``"gamma"``, ``"inverse_gaussian"`` or
        ``"negative_binomial"`` (dispersion 1).
    link : str, optional
        Link of statsmodels, such as ``"cloglog"``; default: the family's own."""
)
def glm(
    formula: str,
    study: Study,
    llm: LLM = None,
    family: str = "gaussian",
    link: str | None = None,
    correction: str | Correction = "auto",
    vcov: str | Vcov = "HC3",
    level: float = 0.95,
    seed: int | None = None,
) -> Fit:
    r"""Generalised linear model with a family and a link of statsmodels.

    Solves :math:`\sum_i w_i x_i (y_i-\mu_i)\,\mu'(\eta_i)/V(\mu_i) = 0`,
    :math:`\eta_i = x_i^\top\theta`.

    Examples
    --------
    >>> import trueup as tu
    >>> data = tu.datasets.load("antibiotics")
    >>> study = tu.Study(data, human={"y": "coder"}, llm={"y": ["under_treated"]})
    >>> tu.glm("y ~ treated", study, family="binomial", link="cloglog").coef().shape
    (2,)

    References
    ----------
    McCullagh and Nelder (1989), Generalized Linear Models, section 2.5.
    """
    kind = glm_family(family, link)
    return fit_family(formula, study, kind, llm, correction, vcov, level, seed, "glm")


@_documented(
    """formula : str
        Such as ``"y ~ x | school + year"``: effects after the bar are absorbed."""
)
def absorb(
    formula: str,
    study: Study,
    llm: LLM = None,
    correction: str | Correction = "auto",
    vcov: str | Vcov = "HC3",
    level: float = 0.95,
    seed: int | None = None,
) -> Fit:
    r"""Linear regression with absorbed (fixed) effects.

    Solves :math:`\sum_i w_i \tilde x_i (\tilde y_i - \tilde x_i^\top\theta) = 0`, the tilde
    meaning less the fitted effects.

    Examples
    --------
    >>> import trueup as tu
    >>> data = tu.datasets.load("antibiotics")
    >>> data["ward"] = data.index % 10
    >>> study = tu.Study(data, human={"y": "coder"}, llm={"y": ["under_treated"]})
    >>> tu.absorb("y ~ treated | ward", study).coef().index.tolist()
    ['treated']

    References
    ----------
    Egami et al. (2024), Using large language model annotations for the social sciences, on
    fixed effects; Correia (2016) on absorbing several.
    """
    family = family_for("absorb")
    return fit_family(formula, study, family, llm, correction, vcov, level, seed, "absorb")


@_documented(
    """formula : str
        Such as ``"y ~ x + [d ~ z]"``: d is endogenous, z its instrument."""
)
def iv(
    formula: str,
    study: Study,
    llm: LLM = None,
    correction: str | Correction = "auto",
    vcov: str | Vcov = "HC3",
    level: float = 0.95,
    seed: int | None = None,
) -> Fit:
    r"""Instrumental variables by two-stage least squares.

    Solves :math:`\sum_i w_i \hat x_i (y_i - x_i^\top\theta) = 0`, :math:`\hat x_i` the
    projection of :math:`x_i` on the instruments.

    Examples
    --------
    >>> import numpy as np, trueup as tu
    >>> data = tu.datasets.load("antibiotics")
    >>> data["nudge"] = data["treated"] + np.random.default_rng(1).normal(size=len(data))
    >>> study = tu.Study(data, human={"y": "coder"}, llm={"y": ["under_treated"]})
    >>> tu.iv("y ~ 1 + [treated ~ nudge]", study).coef().index.tolist()
    ['Intercept', 'treated']

    References
    ----------
    Hansen (2022), Econometrics, chapter 12.
    """
    family = family_for("iv")
    return fit_family(formula, study, family, llm, correction, vcov, level, seed, "iv")


def grid(
    formulas: str | Sequence[str] | Mapping[str, str],
    study: Study,
    *,
    family: str | Family | Sequence[str] = "ols",
    llm: LLMs = "all",
    corrections: Corrections = ("naive", "human", "auto"),
    subsets: Mapping[str, Any] | None = None,
    vcov: str | Vcov | Sequence[str | Vcov] = "HC3",
    exclude: Exclude = None,
    annotators: Annotators = None,
) -> pd.DataFrame:
    """Return the universes that :func:`multiverse` would fit, before anything runs.

    Parameters
    ----------
    formulas, study, family, llm, corrections, subsets, vcov, exclude, annotators
        As for :func:`multiverse`.

    Returns
    -------
    DataFrame
        One row for each universe: its number and a column for each dimension.

    Raises
    ------
    ArgumentError, FormulaError
        If the grid is empty or a name is unknown.

    Examples
    --------
    >>> import trueup as tu
    >>> data = tu.datasets.load("antibiotics")
    >>> names = ["random", "under_treated"]
    >>> study = tu.Study(data, human={"y": "coder"}, llm={"y": names})
    >>> len(tu.grid("y ~ treated", study, corrections=["naive", "ptd"]))
    4
    """
    return build_grid(
        formulas,
        study,
        family=family,
        llm=llm,
        corrections=corrections,
        subsets=subsets,
        vcov=vcov,
        exclude=exclude,
        annotators=annotators,
    ).table()


def _seed(seed: int | None) -> int:
    """Return the random state to use, drawn where none was given."""
    if seed is None:
        return secrets.randbits(32)
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise ArgumentError(f"seed={seed!r} must be a whole number of 0 or more, or None.")
    return int(seed)


def multiverse(
    formulas: str | Sequence[str] | Mapping[str, str],
    study: Study,
    *,
    focus: str,
    family: str | Family | Sequence[str] = "ols",
    llm: LLMs = "all",
    corrections: Corrections = ("naive", "human", "auto"),
    subsets: Mapping[str, Any] | None = None,
    vcov: str | Vcov | Sequence[str | Vcov] = "HC3",
    exclude: Exclude = None,
    annotators: Annotators = None,
    level: float = 0.95,
    n_jobs: int | None = None,
    store: str | Path | None = None,
    progress: bool = True,
    seed: int | None = 0,
) -> Multiverse:
    r"""Fit every combination of LLM, formula, family, correction, subset and covariance.

    Each universe is the single fit that ``tu.ols`` and its relatives would give. All use rows of
    one study, so their influence functions stack, :math:`V_{uv} = E_u^\top E_v`, and statements
    about all of them at once need no refitting.

    Parameters
    ----------
    formulas : str, sequence of str, or mapping of name to formula
        May hold the operators ``sw``, ``sw0``, ``csw``, ``csw0`` and ``mvsw`` for sets of
        controls: ``"y ~ x + csw0(a, b)"``.
    study : Study
    focus : str
        The coefficient of interest, as it is named in ``fit.coef()``.
    family : str or sequence of str
        ``"ols"``, ``"logit"``, ``"probit"``, ``"poisson"``, ``"absorb"``, ``"iv"``, ``"mean"``.
    llm : str or sequence
        Annotators, each a level of its own: ``"all"``, names, patterns. A list within the list
        is one level whose annotators are used jointly.
    corrections : sequence of str or Correction, or mapping of name to correction
        A fit to human labels alone uses no LLM and is made once.
    subsets : mapping of name to rows, optional
        A condition such as ``"source == 'tweets'"``, a mask, positions, or None for all rows.
    vcov : str, Vcov, or sequence of them
    exclude : str or callable, optional
        Universes to leave out: a condition on the dimensions, such as
        ``"correction == 'dsl' and subset == 'tweets'"``, or a function of their mapping.
    annotators : DataFrame, or mapping of annotator to mapping, optional
        More metadata, one row for each annotator (index or column ``llm``); each column becomes
        a dimension, beside the fields of the column pattern.
    level : float
        Level of intervals.
    n_jobs : int, optional
        Workers; None follows ``joblib.parallel_config``. Numbers do not depend on it.
    store : path, optional
        Folder that keeps results as they come; a second call computes only what is missing or
        failed. A result is found again by all that it depends on: its choices, the columns that
        it reads, its rows, the seed and the version of this package. Columns that are added or
        changed touch only the universes that read them; other rows, other human labels or
        another way of drawing the coded rows need another folder. A correction that you wrote
        yourself is known by the name of its class and its options, not by its code: use another
        folder when that changes.
    progress : bool
        Whether to show progress: a bar on a terminal or in a notebook; elsewhere a line on the
        standard error stream every half minute, none for a run that takes less.
    seed : int, optional
        Random state of all that is drawn; None draws one and records it. Every universe starts
        from this same seed, as a single fit with ``seed=`` does: its row therefore equals that
        fit, whatever the grid, its order or the number of workers, and universes with the same
        coded rows share their random folds, so that these do not make them differ.

    Returns
    -------
    Multiverse

    Raises
    ------
    ArgumentError
        If an argument cannot be used, the grid is empty, or no formula has the focal term.
    StoreError
        If the store cannot be written (results so far stay in it) or was made from other data.

    Warns
    -----
    TrueupWarning
        If some formulas lack the focal term, or files of the store are damaged, whose universes
        are then computed anew.

    Examples
    --------
    >>> import trueup as tu
    >>> data = tu.datasets.load("antibiotics")
    >>> names = ["random", "under_treated"]
    >>> study = tu.Study(data, human={"y": "coder"}, llm={"y": names})
    >>> mv = tu.multiverse("y ~ treated", study, family="logit", focus="treated")
    >>> mv.tidy().shape[0]
    5

    References
    ----------
    Simonsohn, Simmons and Nelson (2020), Specification curve analysis. Montiel Olea and
    Plagborg-Møller (2019), Simultaneous confidence bands.
    """
    check_level(level)
    count_workers(n_jobs)
    chosen_seed = _seed(seed)
    if store is not None and not isinstance(store, (str, PathLike)):
        raise ArgumentError(f"store={store!r} must be the path of a folder.")
    plan = build_grid(
        formulas,
        study,
        family=family,
        llm=llm,
        corrections=corrections,
        subsets=subsets,
        vcov=vcov,
        exclude=exclude,
        annotators=annotators,
    )
    check_focus(focus, plan.universes, study, plan.subsets, chosen_seed)
    kept = None
    if store is not None:
        kept = Store.open(store, study)
    outcomes = run_universes(
        plan.universes,
        study,
        plan.subsets,
        chosen_seed,
        n_jobs=n_jobs,
        store=kept,
        progress=progress,
    )
    result = Multiverse(
        outcomes, study, plan.dimensions, plan.subsets, focus, float(level), chosen_seed
    )
    warn_focus(result)
    return result
