"""The methods that are compared: all corrections of the package, and other software run for real.

A method is a name. ``auto``, ``dsl``, ``es`` and others that take several LLMs get all of the
cell's; ``auto@1`` is the same with the first LLM only. Methods that take one LLM get the first.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

import trueup as tu
from trueup.corrections.base import Correction, Problem
from trueup.corrections.problem import build_problem
from trueup.corrections.registry import NAMES
from trueup.families.registry import family_for
from trueup.inference.variance import independent_pieces
from trueup.inference.vcov import as_vcov
from trueup.results.tidy import quantiles, standard_errors

from . import data
from .design import Cell

LEVEL = 0.95
DEFAULT = ("human", "naive", "ppi", "ppi++", "ptd", "pspa", "dsl", "auto", "auto@1", "es", "es@1")
COMPETITORS = ("ppi_py", "statsmodels")
#: Methods that take one LLM.
ONE = ("human", "naive", "ppi", "ppi++", "ptd", "pspa", *COMPETITORS)

#: What a method may end with besides a number; anything else is a fault of this harness.
FAILURES = (tu.errors.TrueupError, ArithmeticError, ValueError, np.linalg.LinAlgError)


@dataclass(frozen=True, slots=True)
class Result:
    """What one method says in one replication."""

    estimate: float = np.nan
    se: float = np.nan
    low: float = np.nan
    high: float = np.nan
    df: float = np.nan
    informative: float = np.nan
    """Effective number of coded rows that carry the interval, where the method gives it."""
    warned: bool = False
    failure: str = ""
    """Why there is no number; empty where there is one."""


def known() -> tuple[str, ...]:
    """Return all methods that can run here."""
    installed = [m for m in COMPETITORS if find_spec(m) is not None]
    return (*NAMES, *(f"{m}@1" for m in NAMES if m not in ONE), *installed)


def uses_one_llm(method: str) -> bool:
    """Whether a method uses no more than the first LLM."""
    return method in ONE or method.endswith("@1")


def applies(method: str, cell: Cell) -> bool:
    """Whether a method exists for a cell; a method for which it does not is not run there."""
    if method == "ppi_py":
        return cell.side == "outcome" and cell.draw == "srs" and cell.family != "absorb"
    if method == "pspa":
        return cell.family != "absorb" and cell.draw != "nested"
    return not (method.endswith("@1") and cell.K == 1)


def problem_of(cell: Cell, sample: data.Sample, seed: int) -> Problem:
    """Return the regression of a replication, which all methods share."""
    study = data.study(cell, sample)
    family = family_for(cell.family)
    return build_problem(data.formula(cell), study, family, study.annotators, as_vcov("HC3"), seed)


def replicate(cell: Cell, rep: int, methods: Iterable[str]) -> dict[str, Result]:
    """Return what each method says in one replication."""
    sample = data.draw(cell, rep)
    wanted = [m for m in methods if applies(m, cell)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tu.errors.TrueupWarning)
        try:
            problem = problem_of(cell, sample, rep)
        except tu.errors.TrueupError as error:
            return {m: Result(failure=_reason(error)) for m in wanted}
        return {m: attempt(m, cell, problem) for m in wanted}


def attempt(method: str, cell: Cell, problem: Problem) -> Result:
    """Run one method; a failure is a result that names its reason."""
    name, _, few = method.partition("@")
    if name in ONE or few:
        problem = replace(problem, annotators=problem.annotators[: int(few or 1)])
    run = _OTHERS.get(name, _package)
    try:
        result = run(name, cell, problem)
    except FAILURES as error:
        return Result(failure=_reason(error))
    numbers = (result.estimate, result.se, result.low, result.high)
    if not np.isfinite(numbers).all():
        return Result(failure="not finite")
    return result


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:100]}"


def _correction(name: str, problem: Problem) -> Correction:
    """Return the correction of a name; for ``ptd`` with the tuning that its size allows.

    ``dsl`` takes the median over two divisions into folds, not ten as by default: more of them only
    take out noise of the division, and cost more than all other methods together.
    """
    if name == "dsl":
        return tu.DSL(repeats=2)
    if name != "ptd":
        return NAMES[name]()
    pieces, _ = independent_pieces(problem.design)
    if pieces >= 20 * len(problem.frame.terms):
        return tu.PTD(tuning="full")
    return tu.PTD(tuning="diagonal" if pieces >= 40 else "scalar")


def _package(name: str, cell: Cell, problem: Problem) -> Result:
    """Run a correction of the package."""
    made = _correction(name, problem).estimate(problem)
    j = problem.frame.terms.index(data.focus(cell))
    se = float(standard_errors(made.vcov, problem.frame.terms)[j])
    half = float(quantiles(LEVEL, made.df)[j]) * se
    theta = float(made.theta[j])
    return Result(
        estimate=theta,
        se=se,
        low=theta - half,
        high=theta + half,
        df=float(made.df[j]),
        informative=np.nan if made.informative is None else float(made.informative[j]),
        warned=bool(made.warnings),
    )


def _statsmodels(name: str, cell: Cell, problem: Problem) -> Result:
    """Run statsmodels on the labels of the first LLM, as if they were true."""
    import statsmodels.api as sm

    rows = problem.frame.llm(problem.annotators[0])
    models = {"logit": sm.families.Binomial(), "poisson": sm.families.Poisson()}
    design = problem.design
    how: dict[str, Any] = {"cov_type": "HC1"}
    if design.cluster is not None:
        how = {"cov_type": "cluster", "cov_kwds": {"groups": design.cluster}}
    if cell.family in models:
        fit = sm.GLM(rows.y, rows.X, family=models[cell.family]).fit(**how)
    else:
        dummies = [np.eye(int(g.max()) + 1)[g] for g in rows.groups]
        fit = sm.OLS(rows.y, np.column_stack([rows.X, *dummies])).fit(**how)
    j = problem.frame.terms.index(data.focus(cell))
    low, high = fit.conf_int(1.0 - LEVEL)[j]
    return Result(float(fit.params[j]), float(fit.bse[j]), float(low), float(high))


def _ppi_py(name: str, cell: Cell, problem: Problem) -> Result:
    """Run ppi-python with its tuned lambda: coded rows against all others."""
    import ppi_py

    human, every = problem.frame.human(), problem.frame.llm(problem.annotators[0])
    coded, rest = problem.design.coded, problem.design.uncoded
    labels = (human.y, every.y[coded], every.y[rest])
    if cell.family == "mean":
        bounds = ppi_py.ppi_mean_ci(*labels, alpha=1.0 - LEVEL)
        return _from_interval(bounds, 0)
    intervals: dict[str, Callable[..., tuple[NDArray[Any], NDArray[Any]]]] = {
        "ols": ppi_py.ppi_ols_ci,
        "logit": ppi_py.ppi_logistic_ci,
        "poisson": ppi_py.ppi_poisson_ci,
    }
    y, llm, others = labels
    bounds = intervals[cell.family](human.X, y, llm, every.X[rest], others, alpha=1.0 - LEVEL)
    return _from_interval(bounds, problem.frame.terms.index(data.focus(cell)))


def _from_interval(bounds: tuple[Any, Any], j: int) -> Result:
    """Return the result of a normal interval: its middle and its standard error."""
    low, high = (float(np.ravel(b)[j]) for b in bounds)
    half = float(quantiles(LEVEL, np.array([np.inf]))[0])
    return Result((low + high) / 2.0, (high - low) / (2.0 * half), low, high)


_OTHERS: dict[str, Callable[[str, Cell, Problem], Result]] = {
    "statsmodels": _statsmodels,
    "ppi_py": _ppi_py,
}
