"""Made annotators: how often one errs, in which rows, and on the same items as others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from trueup.errors import ArgumentError

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Kind = Literal["binary", "continuous", "classes"]
#: A number for all rows, or one for each level of the annotator's ``by``.
Rate = float | Mapping[Any, float]
#: One row of probabilities for each true class, or such a table for each level of ``by``.
Confusion = Sequence[Sequence[float]] | NDArray[Any] | Mapping[Any, Any]

#: Columns that ``by`` can name, and their levels (those of "label" are the study's classes).
BY_LEVELS: Mapping[str, tuple[Any, ...] | None] = {
    "treated": (0, 1),
    "group": ("a", "b", "c", "d"),
    "y_high": (0, 1),
    "label": None,
}
#: The fields that say how an annotator errs, for each kind of label.
_FIELDS: Mapping[Kind, tuple[str, ...]] = {
    "binary": ("sensitivity", "specificity"),
    "continuous": ("bias", "noise"),
    "classes": ("accuracy", "confusion"),
}
_SHARES = ("sensitivity", "specificity", "accuracy")


@dataclass(frozen=True, slots=True, eq=False)
class Annotator:
    r"""A made annotator, which stands in for an LLM, with errors of your choice.

    Which fields count depends on the kind of label in :func:`study`: for 0/1 labels
    ``sensitivity`` and ``specificity``, for numbers ``bias`` and ``noise``, for classes
    ``accuracy`` or ``confusion``. Each is one number, or one for each level of ``by``; errors
    that follow ``by`` bend a regression that takes the labels at their word.

    Items are hard to a degree :math:`z_i \sim N(0, 1)` that all annotators share. Annotator k
    errs on item i where

    .. math:: \sqrt{d_k}\, z_i + \sqrt{1 - d_k}\, e_{ik} < \Phi^{-1}(r_{ik}),
              \qquad e_{ik} \sim N(0, 1),

    with :math:`r_{ik}` its error rate in such rows and :math:`d_k` its ``shared_difficulty``
    (a Gaussian copula). The rates hold exactly whatever :math:`d`; the larger it is, the more
    often annotators err on the same items.

    Parameters
    ----------
    name : str
        Name of the annotator and of its column.
    sensitivity, specificity : float or mapping
        0/1 labels: share of the true ones, and of the true zeros, that it gets right.
    accuracy : float or mapping
        Classes: share of right labels; a wrong label is each other class equally often.
    confusion : array of shape (C, C) or mapping, optional
        Classes, in place of ``accuracy``: row c holds the probabilities of each label where
        class c is true.
    bias, noise : float or mapping
        Numbers: mean and standard deviation of the error.
    by : {"treated", "group", "y_high", "label"}, optional
        Column whose levels the mappings name. ``"treated"``: 0, 1. ``"group"``: "a" to "d".
        ``"y_high"``: 0, 1, whether the outcome is above its median; where the label is a
        covariate. ``"label"``: the true class; where the label has classes.
    shared_difficulty : float
        In [0, 1]. 0: errs independently of others. 1: errs on the hardest items only, so that
        the errors of two such annotators are nested. For numbers, the correlation of the
        errors of two annotators with the same value.

    Raises
    ------
    ArgumentError
        If a rate is outside [0, 1], ``by`` is unknown, or mappings and ``by`` do not fit.

    Examples
    --------
    >>> from trueup.simulate import Annotator
    >>> Annotator("misses_treated", sensitivity={0: 0.95, 1: 0.65}, by="treated").specificity
    0.9
    """

    name: str
    sensitivity: Rate = 0.9
    specificity: Rate = 0.9
    accuracy: Rate = 0.8
    confusion: Confusion | None = None
    bias: Rate = 0.0
    noise: Rate = 0.5
    by: str | None = None
    shared_difficulty: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ArgumentError(
                f"Annotator name {self.name!r} must be a word of letters, digits and underscores, "
                "since it names a column."
            )
        if self.by is not None and self.by not in tuple(BY_LEVELS):
            raise ArgumentError(
                f"Annotator {self.name!r}: by={self.by!r} is unknown: use one of "
                f"{', '.join(map(repr, BY_LEVELS))}."
            )
        if not 0 <= _number(self, "shared_difficulty", self.shared_difficulty) <= 1:
            raise ArgumentError(
                f"Annotator {self.name!r}: shared_difficulty={self.shared_difficulty!r} must be "
                "between 0 and 1."
            )
        for field in ("sensitivity", "specificity", "accuracy", "bias", "noise"):
            _check_numbers(self, field)
        self._check_mappings()

    def _check_mappings(self) -> None:
        mapped = [f for names in _FIELDS.values() for f in names if _is_mapping(self, f)]
        if mapped and self.by is None:
            raise ArgumentError(
                f"Annotator {self.name!r}: {mapped[0]}= is a mapping, so say with by= which "
                "column its levels are of, for instance by='treated'."
            )
        if self.by is not None and not mapped:
            raise ArgumentError(
                f"Annotator {self.name!r}: by={self.by!r} has no effect while no rate is a "
                "mapping: give for instance sensitivity={0: .9, 1: .7}, or leave by= out."
            )


def _is_mapping(annotator: Annotator, field: str) -> bool:
    return isinstance(getattr(annotator, field), Mapping)


def _number(annotator: Annotator, field: str, value: Any) -> float:
    number = isinstance(value, int | float | np.integer | np.floating)
    if not number or isinstance(value, bool) or not np.isfinite(value):
        raise ArgumentError(
            f"Annotator {annotator.name!r}: {field} must be a finite number, or a mapping from the "
            f"levels of by= to numbers, got {value!r}."
        )
    return float(value)


def _check_numbers(annotator: Annotator, field: str) -> None:
    value = getattr(annotator, field)
    for one in value.values() if isinstance(value, Mapping) else (value,):
        number = _number(annotator, field, one)
        if field in _SHARES and not 0 <= number <= 1:
            raise ArgumentError(
                f"Annotator {annotator.name!r}: {field}={one!r} must be between 0 and 1."
            )
        if field == "noise" and number < 0:
            raise ArgumentError(
                f"Annotator {annotator.name!r}: noise={one!r} is a standard deviation: use 0 or "
                "more."
            )


def check_kind(annotator: Annotator, kind: Kind) -> None:
    """Raise where a field was set that means nothing here."""
    default = {field.name: field.default for field in fields(Annotator)}
    if annotator.confusion is not None and annotator.accuracy != default["accuracy"]:
        raise ArgumentError(
            f"Annotator {annotator.name!r} has both accuracy= and confusion=, which says how "
            "accurate it is in each class: leave accuracy= out."
        )
    for other, names in _FIELDS.items():
        for name in names:
            # Arrays have no single truth value, so a confusion matrix is tested for absence.
            value = getattr(annotator, name)
            changed = value is not None if name == "confusion" else value != default[name]
            if other != kind and changed:
                raise ArgumentError(
                    f"Annotator {annotator.name!r}: {name}= is for kind={other!r}, but the labels "
                    f"are of kind={kind!r}: set {' and '.join(_FIELDS[kind])} instead."
                )


def draw_labels(
    annotator: Annotator,
    kind: Kind,
    true: NDArray[Any],
    table: pd.DataFrame,
    levels: tuple[str, ...],
    difficulty: Float,
    rng: np.random.Generator,
) -> NDArray[Any]:
    """Return an annotator's labels.

    Parameters
    ----------
    annotator : Annotator
    kind : str
    true : array, shape (n,)
        True labels: 0/1, numbers, or positions in ``levels``.
    table : DataFrame
        Holds the column ``by`` names.
    levels : tuple of str
        Classes; empty for other kinds.
    difficulty : array, shape (n, 2)
        How hard each item is, and which way it leads astray; standard normal.
    rng : Generator

    Returns
    -------
    array, shape (n,)
        Labels coded as ``true`` is.
    """
    d = float(annotator.shared_difficulty)
    latent = np.sqrt(d) * difficulty + np.sqrt(1 - d) * rng.standard_normal(difficulty.shape)
    if kind == "continuous":
        bias, noise = (_per_row(annotator, f, table, levels) for f in ("bias", "noise"))
        return np.asarray(true + bias + noise * latent[:, 0])
    if kind == "classes":
        probabilities = _class_probabilities(annotator, true, table, levels)
        return _draw_classes(probabilities, true, latent)
    right = np.where(
        true == 1,
        _per_row(annotator, "sensitivity", table, levels),
        _per_row(annotator, "specificity", table, levels),
    )
    errs = latent[:, 0] < ndtri(1 - right)
    return np.where(errs, 1 - true, true)


def _per_row(
    annotator: Annotator, field: str, table: pd.DataFrame, levels: tuple[str, ...]
) -> Float:
    value = getattr(annotator, field)
    if not isinstance(value, Mapping):
        return np.full(len(table), float(value))
    wanted = _levels_of(annotator, field, value, levels)
    column = table[annotator.by].to_numpy()
    out = np.empty(len(table))
    for level in wanted:
        out[column == level] = float(value[level])
    return out


def _levels_of(
    annotator: Annotator, field: str, value: Mapping[Any, Any], levels: tuple[str, ...]
) -> tuple[Any, ...]:
    wanted = BY_LEVELS[annotator.by or ""] or levels
    if set(value) != set(wanted):
        raise ArgumentError(
            f"Annotator {annotator.name!r}: {field}= names the levels {sorted(value, key=str)} of "
            f"{annotator.by!r}, whose levels are {list(wanted)}: give a number for each of these."
        )
    return wanted


def _class_probabilities(
    annotator: Annotator, true: Int, table: pd.DataFrame, levels: tuple[str, ...]
) -> Float:
    """Return (n, C) probabilities of each label."""
    size = len(levels)
    if annotator.confusion is None:
        right = _per_row(annotator, "accuracy", table, levels)
        out = np.repeat(((1 - right) / (size - 1))[:, None], size, axis=1)
        out[np.arange(len(true)), true] = right
        return out
    if not isinstance(annotator.confusion, Mapping):
        return _matrix(annotator, annotator.confusion, size)[true]
    wanted = _levels_of(annotator, "confusion", annotator.confusion, levels)
    column = table[annotator.by].to_numpy()
    out = np.empty((len(true), size))
    for level in wanted:
        here = column == level
        out[here] = _matrix(annotator, annotator.confusion[level], size)[true[here]]
    return out


def _matrix(annotator: Annotator, value: Any, size: int) -> Float:
    try:
        matrix = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"Annotator {annotator.name!r}: confusion= must hold numbers, got {value!r}."
        ) from error
    if matrix.shape != (size, size):
        raise ArgumentError(
            f"Annotator {annotator.name!r}: confusion= has shape {matrix.shape}, but the labels "
            f"have {size} classes: give {size} rows of {size} probabilities."
        )
    sums = matrix.sum(axis=1)
    # Written so that a NaN fails too.
    if not ((matrix >= 0).all() and np.allclose(sums, 1, rtol=0, atol=1e-9)):
        raise ArgumentError(
            f"Annotator {annotator.name!r}: each row of confusion= must hold probabilities that "
            f"sum to 1; the rows sum to {sums.round(6).tolist()}."
        )
    return matrix


def _draw_classes(probabilities: Float, true: Int, latent: Float) -> Int:
    rows = np.arange(len(true))
    right = probabilities[rows, true]
    errs = latent[:, 0] < ndtri(np.clip(1 - right, 0, 1))
    others = probabilities.copy()
    others[rows, true] = 0.0
    # A second shared latent, so that hard items are taken for the same wrong class.
    reached = others.cumsum(axis=1)
    point = ndtr(latent[:, 1]) * reached[:, -1]
    wrong = np.minimum((reached <= point[:, None]).sum(axis=1), probabilities.shape[1] - 1)
    return np.where(errs, wrong, true)
