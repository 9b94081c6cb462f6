"""Data of a cell whose true coefficient is known exactly, drawn anew for every replication.

The regression of a cell is right in the superpopulation that its rows come from, so that its true
coefficient is the number put in (:func:`truth`), without any simulation:

- linear models of a 0/1 outcome have a probability that is linear in bounded covariates;
- rows of a cluster depend on each other through a Gaussian copula, which leaves the distribution of
  each row given its covariates as it is, where a random effect would bend a logit;
- classes as an outcome enter as ``I(v == "b")``, whose probability follows the family; classes as a
  covariate enter as dummies.

The labelled outcome is called ``v``, the labelled covariate ``w``; the first LLM's labels of them
are ``v1`` and ``w1``. LLMs err on the same difficult items: whether a label is wrong (how far off a
number is) depends on a latent normal of which 30% of the variance is the item's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr, ndtri

import trueup as tu

from .design import Cell

Array = NDArray[Any]

CLASSES = np.array(list("abcd"), dtype=object)
#: Correlation of rows of a cluster, on the scale of the latent normals.
WITHIN_CLUSTER = 0.15
#: Share of the item in the variance of the latent normal of an error.
WITHIN_ITEM = 0.3
#: Error rates of the LLMs relative to the first.
RELATIVE = (1.0, 1.4, 0.9, 1.2, 1.6, 0.8, 1.1, 1.3)
#: Three in ten items are hard where errors concentrate, and have 78% of the errors.
HARD, EFFORT = 0.3, (2.6, 0.314)
#: Share of treated rows.
TREATED = 0.4
#: Effects of the classes b, c and d against a, relative to that of b.
CLASS_EFFECTS = np.array([0.0, 1.0, 0.5, -0.2])

_MOST_COUNTS = 200
_LINEAR = ("mean", "ols", "absorb")


@dataclass(frozen=True, slots=True)
class Sample:
    """The data of one replication."""

    columns: dict[str, Array]
    """The table: covariates, LLM labels, human labels of the coded rows."""
    true: dict[str, Array]
    """Labelled variable -> its true values, for all rows."""
    coded: Array
    options: dict[str, Any]
    """Arguments of ``tu.Study`` that describe the sampling."""


def effect(cell: Cell) -> float:
    """Return the coefficient that is put in."""
    if cell.family in _LINEAR:
        return 0.25 if _binary_outcome(cell) else 1.0
    return 1.0 if cell.family == "logit" else 0.5


def truth(cell: Cell) -> float:
    """Return the true value of the focal coefficient."""
    return 0.3 + TREATED * effect(cell) if cell.family == "mean" else effect(cell)


def formula(cell: Cell) -> str:
    """Return the formula that is fitted."""
    if cell.side == "covariate":
        outcome = "y"
    else:
        outcome = 'I(v == "b")' if cell.kind == "classes" and cell.side == "outcome" else "v"
    if cell.family == "mean":
        return f"{outcome} ~ 1"
    covariate = "C(w)" if cell.kind == "classes" else "w"
    first = "t" if cell.side == "outcome" else covariate
    right = " + ".join([first, *(f"x{j}" for j in range(1, n_controls(cell) + 1))])
    return f"{outcome} ~ {right}" + (" | school" if cell.family == "absorb" else "")


def focus(cell: Cell) -> str:
    """Return the name of the focal coefficient."""
    if cell.family == "mean":
        return "Intercept"
    if cell.side == "outcome":
        return "t"
    return "C(w)[T.b]" if cell.kind == "classes" else "w"


def n_controls(cell: Cell) -> int:
    """Return the number of covariates beside the focal variable."""
    focal = 3 if cell.kind == "classes" and cell.side != "outcome" else 1
    return 0 if cell.family == "mean" else cell.p - focal - (cell.family != "absorb")


def draw(cell: Cell, rep: int) -> Sample:
    """Return the data of a replication; the same for the same cell and number."""
    rng = np.random.default_rng([crc32(cell.id.encode()), rep])
    columns, true = population(cell, rng)
    labels = {name: _labels(cell, name, columns, true, rng) for name in true}
    coded, options = _sample(cell, columns, labels, rng)
    for name, given in labels.items():
        columns |= {f"{name}{k + 1}": _written(given[:, k]) for k in range(cell.K)}
        human = _written(true[name])
        columns[f"coder_{name}"] = np.where(coded, human, _nothing(human))
    return Sample(columns, true, coded, options)


def study(cell: Cell, sample: Sample) -> tu.Study:
    """Return the study of a sample."""
    return tu.Study(
        sample.columns,
        human={name: f"coder_{name}" for name in sample.true},
        llm={name: {f"llm{k}": f"{name}{k}" for k in range(1, cell.K + 1)} for name in sample.true},
        **sample.options,
    )


def population(
    cell: Cell, rng: np.random.Generator, N: int | None = None
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return covariates and clusters, and the true values of what is labelled.

    Classes are numbers 0 to 3 here.
    """
    N = cell.N if N is None else N
    group = np.arange(N) % (N // cell.cluster_size)
    clustered = cell.draw in ("units", "nested")
    rho = WITHIN_CLUSTER if clustered else 0.0
    school = group % cell.n_groups
    tilt = np.sin(school) if cell.family == "absorb" else np.zeros(N)
    m = max(1, n_controls(cell))
    x = rng.uniform(-(3**0.5), 3**0.5, size=(N, m))
    if clustered:
        x[:, 0] = 3**0.5 * (2.0 * ndtr(_latent(rng, group, 2 * rho)) - 1.0)
    chance = rng.uniform(size=N)
    t = ((chance[group] if cell.draw == "nested" else chance) < TREATED + 0.1 * tilt).astype(float)
    columns = {"t": t, "group": group, "school": school}
    columns |= {f"x{j + 1}": x[:, j] for j in range(m)}
    true = {}
    focal = t
    if cell.side != "outcome":
        true["w"] = _covariate(cell, x[:, 0] + tilt, ndtr(_latent(rng, group, rho)), rng)
        focal = CLASS_EFFECTS[true["w"]] if cell.kind == "classes" else true["w"]
    used = m if cell.family == "mean" else n_controls(cell)
    outcome = _outcome(cell, focal, x[:, :used] @ _slopes(used), tilt, _latent(rng, group, rho))
    if cell.side == "covariate":
        columns["y"] = outcome
    elif cell.side == "outcome" and cell.kind == "classes":
        other = np.searchsorted([0.4, 0.75], rng.uniform(size=N))
        true["v"] = np.where(outcome == 1.0, 1, np.array([0, 2, 3])[other])
    else:
        true["v"] = outcome
    return columns, true


def _latent(rng: np.random.Generator, group: Array, rho: float) -> Array:
    """Return standard normals with a correlation of rho within groups."""
    own = rng.normal(size=len(group))
    if rho == 0.0:
        return own
    return rho**0.5 * rng.normal(size=len(group))[group] + (1.0 - rho) ** 0.5 * own


def _slopes(m: int) -> Array:
    """Return the slopes of m covariates: a large one, and small ones of changing sign."""
    small = 0.5 / max(m - 1, 1) ** 0.5
    return np.array([1.0, *(small * (-1) ** j for j in range(m - 1))])[:m]


def _covariate(cell: Cell, x: Array, u: Array, rng: np.random.Generator) -> Array:
    """Return the labelled covariate from uniforms."""
    if cell.kind == "binary":
        return (u < expit(-0.3 + 0.6 * x)).astype(float)
    if cell.kind == "continuous":
        return 0.6 * x + ndtri(u)
    eta = np.column_stack([0.0 * x, 0.2 + 0.6 * x, 0.0 * x - 0.1, -0.2 - 0.3 * x])
    odds = np.exp(eta)
    bounds = np.cumsum(odds, axis=1) / odds.sum(axis=1, keepdims=True)
    return (u[:, None] > bounds[:, :3]).sum(axis=1)


def _poisson(u: Array, mean: Array) -> Array:
    """Return Poisson counts from uniforms: how many values of the distribution function u passes.

    Ten times as fast as the quantile function of scipy, for counts that are small.
    """
    chance = np.exp(-mean)
    below = chance.copy()
    counts = np.zeros(len(u))
    for k in range(1, _MOST_COUNTS):
        more = u > below
        if not more.any():
            break
        counts += more
        chance *= mean / k
        below += chance
    return counts


def _binary_outcome(cell: Cell) -> bool:
    """Whether the outcome of a linear model is a label of two classes."""
    return cell.side != "covariate" and cell.kind != "continuous"


def _outcome(cell: Cell, focal: Array, x: Array, tilt: Array, latent: Array) -> Array:
    """Return the outcome from latent standard normals; ``x`` is the part of the controls."""
    b = effect(cell)
    if cell.family == "logit":
        start = -2.75 if cell.rare else -0.5
        return (ndtr(latent) < expit(start + b * focal + 0.5 * x)).astype(float)
    if cell.family == "poisson":
        return _poisson(ndtr(latent), np.exp(0.2 + b * focal + 0.25 * x))
    if not _binary_outcome(cell):
        return 0.3 + b * focal + 0.5 * x + 0.4 * tilt + latent
    largest = 3**0.5 * np.abs(_slopes(max(1, n_controls(cell)))).sum()
    chance = 0.3 + b * focal + 0.15 / largest * x + 0.05 * tilt
    return (ndtr(latent) < chance).astype(float)


def _labels(
    cell: Cell,
    name: str,
    columns: dict[str, Array],
    true: dict[str, Array],
    rng: np.random.Generator,
) -> Array:
    """Return (N, K) labels of the LLMs (of two at least: the sampling may look at the second)."""
    value = true[name]
    N, K = len(value), max(cell.K, 2)
    rate = np.minimum((1.0 - cell.quality) * np.array(RELATIVE[:K]), 0.45)
    shared = rng.normal(size=(N, 1))
    own = rng.normal(size=(N, K))
    latent = WITHIN_ITEM**0.5 * shared + (1.0 - WITHIN_ITEM) ** 0.5 * own
    effort = np.ones(N)
    if cell.error == "hard":
        effort = np.where(rng.uniform(size=N) < HARD, *EFFORT)
    follows = _follows(cell, name, columns, true) if cell.error == "differential" else None
    if _continuous(cell, name):
        sd = value.std() * np.sqrt(rate / (1.0 - rate))
        noise = latent * np.sqrt(effort)[:, None]
        if follows is not None:
            sign = (-1.0) ** np.arange(K)
            noise = 0.8 * noise - 1.2 * sign * (follows - follows.mean())[:, None]
        return value[:, None] + sd * noise
    positive = _positive(cell, name, value)
    chance = np.repeat(effort[:, None], K, axis=1)
    if follows is not None:
        missed = (positive & follows)[:, None]
        invented = (~positive & ~follows)[:, None]
        odd = (np.arange(K) % 2).astype(bool)
        chance *= 0.4 + 2.0 * np.where(odd, invented, missed)
    chance *= rate / chance.mean(axis=0)
    wrong = ndtr(latent) < np.minimum(chance, 0.9)
    return np.where(wrong, _mistake(cell, name, value, positive, rng)[:, None], value[:, None])


def _continuous(cell: Cell, name: str) -> bool:
    """Whether a labelled variable is a number with decimals."""
    if cell.kind != "continuous":
        return False
    return name == "w" or cell.family not in ("logit", "poisson")


def _counts(cell: Cell, name: str) -> bool:
    return name == "v" and cell.family == "poisson"


def _positive(cell: Cell, name: str, value: Array) -> Array:
    """Return which rows count as positive: 1, "b", or a count of two or more."""
    return value >= 2 if _counts(cell, name) else value == 1


def _mistake(
    cell: Cell, name: str, value: Array, positive: Array, rng: np.random.Generator
) -> Array:
    """Return (N,) wrong labels; LLMs that are wrong about an item say the same."""
    if _counts(cell, name):
        size = 1.0 + (rng.uniform(size=len(value)) < 0.3)
        return np.where(positive, value - size, value + size)
    classes = cell.kind == "classes" and (name == "w" or cell.side == "outcome")
    if classes:
        return (value + rng.integers(1, 4, size=len(value))) % 4
    return 1.0 - value


def _follows(cell: Cell, name: str, columns: dict[str, Array], true: dict[str, Array]) -> Array:
    """Return (N,) rows where differential errors go one way: by the other side of the formula."""
    if name == "w":
        outcome = columns["y"] if "y" in columns else true["v"]
        two = cell.family == "logit" or (cell.family in _LINEAR and _binary_outcome(cell))
        return outcome > (0.5 if two else 1.0)
    if "w" in true:
        return true["w"] >= 0.5
    return columns["t"] == 1.0


def _sample(
    cell: Cell, columns: dict[str, Array], labels: dict[str, Array], rng: np.random.Generator
) -> tuple[Array, dict[str, Any]]:
    """Return which rows are coded, and the options of the study."""
    N = len(columns["t"])
    coded = np.zeros(N, dtype=bool)
    if cell.draw == "unequal":
        columns["pi"] = _probability(cell, columns, labels)
        coded = rng.uniform(size=N) < columns["pi"]
        return coded, {"sampling": tu.Sampling(probability="pi", method="poisson")}
    if cell.draw == "strata":
        columns["stratum"] = _strata(cell, columns, labels)
        places = np.unique(columns["stratum"])
        for stratum in places:
            rows = np.flatnonzero(columns["stratum"] == stratum)
            coded[rng.choice(rows, min(cell.n // len(places), len(rows)), replace=False)] = True
        return coded, {"sampling": tu.Sampling(strata="stratum")}
    if cell.draw == "units":
        n_units = int(columns["group"].max()) + 1
        drawn = np.zeros(n_units, dtype=bool)
        drawn[rng.choice(n_units, cell.n // cell.cluster_size, replace=False)] = True
        return drawn[columns["group"]], {"sampling": tu.Sampling(unit="group")}
    coded[rng.choice(N, cell.n, replace=False)] = True
    return coded, {"cluster": "group"} if cell.draw == "nested" else {}


def _probability(cell: Cell, columns: dict[str, Array], labels: dict[str, Array]) -> Array:
    """Return (N,) probabilities that oversample likely errors."""
    raw = 1.0 + 0.5 * (np.abs(columns["x1"]) > 1.0)
    raw += 0.8 * (columns["y"] > 0.7 if "y" in columns else columns["t"] == 1.0)
    for name, given in labels.items():
        apart = np.abs(given[:, 0] - given[:, 1])
        far = given[:, 0].std() if _continuous(cell, name) else 0.0
        raw += 2.0 / len(labels) * (apart > 0.5 * far)
    return np.minimum(cell.n * raw / raw.sum(), 1.0)


def _strata(cell: Cell, columns: dict[str, Array], labels: dict[str, Array]) -> Array:
    """Return (N,) strata: what the first LLM says, and the sign of the first covariate."""
    name = next(iter(labels))
    said = labels[name][:, 0]
    if _continuous(cell, name) or _counts(cell, name):
        said = said > np.median(said)
    return (2 * said + (columns["x1"] > 0)).astype(np.int64)


def _written(values: Array) -> Array:
    """Return labels as they stand in the table: letters for classes."""
    return CLASSES[values] if values.dtype.kind == "i" else values


def _nothing(values: Array) -> Any:
    return None if values.dtype == object else np.nan
