"""Made studies: data, annotators, a coded sample, and the coefficient that is true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from trueup.errors import ArgumentError
from trueup.simulate.annotators import BY_LEVELS, Annotator, Float, Kind, check_kind, draw_labels
from trueup.simulate.seeds import check_seed
from trueup.study.sampling import Bool, Sampling
from trueup.study.study import Study

Side = Literal["outcome", "covariate"]
Draw = Literal["srs", "stratified", "unequal", "clusters"]

_GROUP_SHARES = (0.4, 0.3, 0.2, 0.1)
_PER_AUTHOR = 10
_MOST_CLASSES = 10
#: How much likelier a row is coded where the first annotator flags it.
_OVERSAMPLED = 3.0
_RESERVED = ("treated", "x", "group", "author", "y", "y_high", "label", "coder", "pi")


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedStudy:
    """A study whose true answer is known. Made by :func:`study`."""

    study: Study = field(repr=False)
    """Ready for a regression; its labelled variable is ``label``."""
    data: pd.DataFrame = field(repr=False)
    """Its table and the column ``label``, the true label of every row."""
    truth: float
    """The true coefficient of ``focus``."""
    formula: str
    family: str
    """Name of the function to call: ``"ols"`` or ``"logit"``."""
    focus: str
    """The coefficient that is known."""


def study(
    n: int = 10_000,
    effect: float = 1.0,
    annotators: Sequence[Annotator] = (),
    *,
    kind: Kind = "binary",
    side: Side = "outcome",
    n_classes: int = 3,
    sampling: Draw = "srs",
    n_coded: int = 500,
    seed: int | None = None,
) -> SimulatedStudy:
    r"""Make a study with annotators of your choice and a known true coefficient.

    Half of the rows are ``treated``, ``x`` is standard normal (half of its variance lies between
    the authors, who wrote ten rows each), and :math:`\eta = -0.5 + b\,\text{treated} + 0.5 x`.

    - ``side="outcome"``: :math:`b` is ``effect``. A 0/1 label is 1 with probability
      expit(:math:`\eta`); a number is :math:`\eta` and standard normal noise; of the classes
      "a", "b", ... "b" has probability expit(:math:`\eta`) and the others share the rest. The
      label is regressed on ``treated`` and ``x``, with classes whether it is "b".
    - ``side="covariate"``: :math:`b = 0.5`, the label comes about as above, and the outcome is
      :math:`y = 1 + \text{effect} \cdot v + 0.5\,\text{treated} + 0.5 x` and standard normal
      noise, with :math:`v` the label (for classes 0, 1, 2, ...). ``y`` is regressed on the label,
      ``treated`` and ``x``.

    Half of the variance of an item's difficulty is its author's.

    Parameters
    ----------
    n : int
        Number of rows.
    effect : float
        The true coefficient: log odds ratio for 0/1 labels and classes as outcome, else slope.
    annotators : sequence of Annotator
        At least one.
    kind : {"binary", "continuous", "classes"}
        Kind of label.
    side : {"outcome", "covariate"}
        Where the label stands in the regression.
    n_classes : int
        Number of classes, 2 to 10, with ``kind="classes"``.
    sampling : {"srs", "stratified", "unequal", "clusters"}
        How the coded rows are drawn. ``"srs"``: at random. ``"stratified"``: as many rows from
        each group "a" to "d", which hold 40%, 30%, 20% and 10% of the rows. ``"unequal"``: each
        row by itself, with three times the probability where the first annotator flags it (label
        1, a number above its median, any class but "a"). ``"clusters"``: whole authors.
    n_coded : int
        Number of coded rows; with ``"unequal"`` their expected number, with ``"clusters"``
        rounded down to whole authors.
    seed : int, optional
        The same seed gives the same study. The rows, their true labels and the labels of the
        first annotators do not change when annotators are added at the end.

    Returns
    -------
    SimulatedStudy

    Raises
    ------
    ArgumentError
        If there is no annotator, names clash, or an argument has a value that cannot be used.

    Examples
    --------
    >>> import trueup as tu
    >>> misses = tu.simulate.Annotator("misses", sensitivity={0: 0.95, 1: 0.6}, by="treated")
    >>> sim = tu.simulate.study(4_000, effect=1.0, annotators=[misses], seed=1)
    >>> sim.truth, sim.formula, sim.focus
    (1.0, 'label ~ treated + x', 'treated')
    >>> naive = tu.logit(sim.formula, sim.study, correction="naive")
    >>> round(float(naive.coef()["treated"]), 2)
    -0.11
    >>> low, high = tu.logit(sim.formula, sim.study).confint().loc["treated"]
    >>> bool(low < sim.truth < high)
    True

    References
    ----------
    Nelsen (2006), An introduction to copulas. Carroll, Ruppert, Stefanski and Crainiceanu
    (2006), Measurement error in nonlinear models.
    """
    _check_numbers(n, effect, n_coded, n_classes)
    for name, value, allowed in (("kind", kind, Kind), ("side", side, Side)):
        _check_choice(name, value, get_args(allowed))
    _check_choice("sampling", sampling, get_args(Draw))
    check_seed(seed)
    people = _check_annotators(annotators, kind, side)
    levels = tuple("abcdefghij"[:n_classes]) if kind == "classes" else ()
    # Streams of their own: another annotator or another sample leaves the rows as they are.
    rows_stream, sample_stream, *streams = np.random.default_rng(seed).spawn(2 + len(people))
    table, true, difficulty = _rows(rows_stream, n, effect, kind, side, levels)
    given = {
        person.name: _written(
            draw_labels(person, kind, true, table, levels, difficulty, stream), levels
        )
        for person, stream in zip(people, streams, strict=True)
    }
    first = given[people[0].name]
    # All at once: a frame that grows column by column is slow, and says so.
    table = pd.concat([table, pd.DataFrame(given)], axis=1)
    coded, probability, design = _sample(sample_stream, sampling, n_coded, table, first, kind)
    table["coder"] = table["label"].where(coded)
    if probability is not None:
        table["pi"] = probability
    made = Study(
        table.drop(columns="label"),
        human={"label": "coder"},
        llm={"label": [person.name for person in people]},
        sampling=design,
    )
    formula, family, focus = _regression(kind, side)
    return SimulatedStudy(made, table, float(effect), formula, family, focus)


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _check_numbers(n: Any, effect: Any, n_coded: Any, n_classes: Any) -> None:
    if not _whole(n) or n < 1:
        raise ArgumentError(f"n={n!r} is not a number of rows: use a whole number above 0.")
    number = isinstance(effect, int | float | np.number) and not isinstance(effect, bool)
    if not number or not np.isfinite(effect):
        raise ArgumentError(f"effect={effect!r} must be a finite number.")
    if not _whole(n_coded) or not 1 <= n_coded <= n:
        raise ArgumentError(
            f"n_coded={n_coded!r} must be a whole number from 1 to n={n}: so many rows are coded."
        )
    if not _whole(n_classes) or not 2 <= n_classes <= _MOST_CLASSES:
        raise ArgumentError(
            f"n_classes={n_classes!r} must be a whole number from 2 to {_MOST_CLASSES}."
        )


def _check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ArgumentError(f"{name}={value!r} is unknown: use one of {', '.join(allowed)}.")


def _check_annotators(annotators: Any, kind: Kind, side: Side) -> list[Annotator]:
    people = [annotators] if isinstance(annotators, Annotator) else list(annotators)
    if not people or not all(isinstance(person, Annotator) for person in people):
        raise ArgumentError(
            "annotators= needs at least one tu.simulate.Annotator, for instance "
            "annotators=[tu.simulate.Annotator('llm', sensitivity=.9)]."
        )
    names = [person.name for person in people]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ArgumentError(f"Two annotators are named {twice[0]!r}: give each its own name.")
    taken = [name for name in names if name in _RESERVED]
    if taken:
        raise ArgumentError(
            f"An annotator cannot be named {taken[0]!r}: the table has a column of that name."
        )
    for person in people:
        check_kind(person, kind)
        _check_by(person, kind, side)
    return people


def _check_by(person: Annotator, kind: Kind, side: Side) -> None:
    if person.by == "y_high" and side != "covariate":
        raise ArgumentError(
            f"Annotator {person.name!r}: by='y_high' needs side='covariate': with side='outcome' "
            "the label is the outcome itself."
        )
    if person.by == "label" and kind != "classes":
        raise ArgumentError(
            f"Annotator {person.name!r}: by='label' needs kind='classes'. For 0/1 labels "
            "sensitivity and specificity say how errors follow the true label."
        )


def _rows(
    rng: np.random.Generator,
    n: int,
    effect: float,
    kind: Kind,
    side: Side,
    levels: tuple[str, ...],
) -> tuple[pd.DataFrame, NDArray[Any], Float]:
    """Return the table with the true label, the label as numbers, and (n, 2) difficulty."""
    author = np.arange(n) // _PER_AUTHOR
    table = pd.DataFrame({"treated": rng.integers(0, 2, n)})
    table["x"] = _within_authors(rng, author, 1)[:, 0]
    table["group"] = rng.choice(BY_LEVELS["group"] or (), n, p=_GROUP_SHARES).astype(object)
    table["author"] = author
    slope = effect if side == "outcome" else 0.5
    eta = (-0.5 + slope * table["treated"] + 0.5 * table["x"]).to_numpy()
    true = _true_labels(rng, eta, kind, len(levels))
    if side == "covariate":
        mean = 1 + effect * true + 0.5 * table["treated"] + 0.5 * table["x"]
        table["y"] = mean + rng.standard_normal(n)
        table["y_high"] = (table["y"] > table["y"].median()).astype("int64")
    table["label"] = _written(true, levels)
    return table, true, _within_authors(rng, author, 2)


def _within_authors(rng: np.random.Generator, author: NDArray[Any], columns: int) -> Float:
    """Return (n, columns) standard normal numbers, correlated .5 within authors."""
    shared = rng.standard_normal((author[-1] + 1, columns))[author]
    own = rng.standard_normal((len(author), columns))
    return np.asarray(np.sqrt(0.5) * (shared + own))


def _true_labels(rng: np.random.Generator, eta: Float, kind: Kind, n_classes: int) -> NDArray[Any]:
    if kind == "continuous":
        return np.asarray(eta + rng.standard_normal(len(eta)))
    one = rng.random(len(eta)) < expit(eta)
    if kind == "binary":
        return one.astype(np.int64)
    others = np.delete(np.arange(n_classes), 1)
    return np.where(one, 1, rng.choice(others, len(eta)))


def _written(labels: NDArray[Any], levels: tuple[str, ...]) -> NDArray[Any]:
    return np.array(levels, dtype=object)[labels] if levels else labels


def _regression(kind: Kind, side: Side) -> tuple[str, str, str]:
    if side == "covariate":
        term, focus = ("C(label)", "C(label)[T.b]") if kind == "classes" else ("label", "label")
        return f"y ~ {term} + treated + x", "ols", focus
    left = "I(label == 'b')" if kind == "classes" else "label"
    return f"{left} ~ treated + x", "ols" if kind == "continuous" else "logit", "treated"


def _sample(
    rng: np.random.Generator,
    draw: Draw,
    n_coded: int,
    table: pd.DataFrame,
    first: NDArray[Any],
    kind: Kind,
) -> tuple[Bool, Float | None, Sampling]:
    """Return which rows are coded, their probabilities if they differ, and the design."""
    n = len(table)
    if draw == "stratified":
        return _stratified(rng, table["group"].to_numpy(), n_coded), None, Sampling(strata="group")
    if draw == "clusters":
        author = table["author"].to_numpy()
        return _whole_authors(rng, author, n_coded), None, Sampling(unit="author")
    if draw == "unequal":
        probability = _probabilities(np.where(_flagged(first, kind), _OVERSAMPLED, 1.0), n_coded)
        return rng.random(n) < probability, probability, Sampling(probability="pi")
    return np.isin(np.arange(n), rng.choice(n, n_coded, replace=False)), None, Sampling()


def _flagged(labels: NDArray[Any], kind: Kind) -> Bool:
    if kind == "classes":
        return np.asarray(labels != "a", dtype=np.bool_)
    return np.asarray(labels > np.median(labels) if kind == "continuous" else labels == 1)


def _stratified(rng: np.random.Generator, group: NDArray[Any], n_coded: int) -> Bool:
    names, sizes = np.unique(group.astype(str), return_counts=True)
    if n_coded < 2 * len(names):
        raise ArgumentError(
            f"n_coded={n_coded} is too few for sampling='stratified': at least two rows from each "
            f"of {len(names)} groups, {2 * len(names)} in all."
        )
    coded = np.zeros(len(group), dtype=np.bool_)
    left = n_coded
    # Small groups first: what they cannot give is shared out among the larger ones.
    for place, index in enumerate(np.argsort(sizes)):
        take = min(int(sizes[index]), left // (len(names) - place))
        rows = np.flatnonzero(group == names[index])
        coded[rng.choice(rows, take, replace=False)] = True
        left -= take
    return coded


def _whole_authors(rng: np.random.Generator, author: NDArray[Any], n_coded: int) -> Bool:
    count = n_coded // _PER_AUTHOR
    if count < 2:
        raise ArgumentError(
            f"n_coded={n_coded} is too few for sampling='clusters': at least two authors of "
            f"{_PER_AUTHOR} rows each."
        )
    return np.isin(author, rng.choice(author[-1] + 1, count, replace=False))


def _probabilities(size: Float, total: int) -> Float:
    """Return probabilities in proportion to ``size``, none above 1, that sum to ``total``."""
    certain = np.zeros(len(size), dtype=np.bool_)
    while True:
        rest = size[~certain].sum()
        factor = (total - certain.sum()) / rest if rest > 0 else 0.0
        out = np.where(certain, 1.0, size * factor)
        if not (out > 1).any():
            return out
        certain |= out >= 1
