"""Wald tests of linear constraints on coefficients."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from trueup.errors import ArgumentError
from trueup.study.design import Float

#: Singular values below this share of the largest are zero: the constraint repeats others.
_RANK_TOLERANCE = 1e-8

#: A constraint whose variance is below this share of what its coefficients' would sum to
#: is not estimated with error.
_NO_VARIANCE = 1e-14


@dataclass(frozen=True, slots=True)
class WaldTest:
    """A test that linear constraints on the coefficients hold.

    ``df_denom`` is infinite for a chi-squared test; then ``statistic`` is chi-squared with
    ``df_num`` degrees of freedom. Otherwise it is F. Where the test cannot be computed, the
    statistic and the p-value are NaN and ``reason`` says why.
    """

    statistic: float
    df_num: int
    """Number of independent constraints."""
    df_denom: float
    """The smallest degrees of freedom among the coefficients tested; infinite = chi-squared."""
    p_value: float
    constraint: str
    """The constraints, in words."""
    reason: str | None = None

    @property
    def distribution(self) -> str:
        """Reference distribution, e.g. ``"F(2, 45.3)"`` or ``"chi2(2)"``."""
        if np.isinf(self.df_denom):
            return f"chi2({self.df_num})"
        return f"F({self.df_num}, {self.df_denom:.4g})"

    def __str__(self) -> str:
        if self.reason is not None:
            return f"No test of {self.constraint}: {self.reason}"
        p = f"= {self.p_value:.4g}" if self.p_value >= 2e-16 else "< 2e-16"
        return f"{self.distribution} = {self.statistic:.4g}, p {p}, for {self.constraint}"


def wald_test(
    theta: Float, vcov: Float, df: Float, terms: Sequence[str], constraint: Any
) -> WaldTest:
    r"""Test :math:`R\theta = r`.

    The statistic is :math:`(R\theta - r)'(R V R')^{-1}(R\theta - r)` over independent
    constraints. With finite degrees of freedom it is divided by their number and compared with
    F, using the smallest degrees of freedom among the coefficients that the constraints touch.

    Parameters
    ----------
    theta : (p,) array
    vcov : (p, p) array
    df : (p,) array
    terms : sequence of p str
    constraint : str, list of str, (q, p) array, or tuple of (q, p) and (q,) arrays
        Such as ``"a = 0"``, ``"a = b, c = 1"``; an array R tests ``R theta = 0``.

    Raises
    ------
    ArgumentError
        If a constraint cannot be read, names an unknown term, or contradicts another.
    """
    R, r = parse_constraints(constraint, terms)
    words = "; ".join(_in_words(row, value, terms) for row, value in zip(R, r, strict=True))
    R, r = _independent(R, r, np.sqrt(np.maximum(np.diag(vcov), 0.0)), words)
    smallest = float(df[np.any(R != 0, axis=0)].min())
    if _has_no_variance(R, vcov):
        reason = "a combination of these coefficients has no sampling variance."
        return WaldTest(np.nan, len(R), smallest, np.nan, words, reason)
    statistic, rank = quadratic_form(R @ theta - r, R @ vcov @ R.T)
    if rank < len(R):
        reason = "the covariance of these coefficients is singular; test fewer of them at a time."
        return WaldTest(np.nan, len(R), smallest, np.nan, words, reason)
    if np.isinf(smallest):
        return WaldTest(statistic, rank, np.inf, float(special.chdtrc(rank, statistic)), words)
    F = statistic / rank
    return WaldTest(F, rank, smallest, float(special.fdtrc(rank, smallest, F)), words)


def quadratic_form(difference: Float, vcov: Float, tolerance: float = 1e-10) -> tuple[float, int]:
    """Return ``difference' vcov^+ difference`` and the rank of ``vcov``.

    Every entry is first divided by its standard error, so that the rank does not depend on
    units.

    Parameters
    ----------
    difference : (q,) array
    vcov : (q, q) array
    tolerance : float
        Eigenvalues of the correlation matrix below this share of the largest count as zero.
    """
    scale = np.sqrt(np.maximum(np.diag(vcov), 0.0))
    keep = scale > 0
    if not keep.any():
        return 0.0, 0
    scale = scale[keep]
    values, vectors = np.linalg.eigh(vcov[np.ix_(keep, keep)] / np.outer(scale, scale))
    large = values > tolerance * values[-1]
    z = vectors[:, large].T @ (difference[keep] / scale)
    return float((z**2 / values[large]).sum()), int(large.sum())


def parse_constraints(constraint: Any, terms: Sequence[str]) -> tuple[Float, Float]:
    """Return the (q, p) matrix R and (q,) values r of ``R theta = r``.

    Raises
    ------
    ArgumentError
        If the constraints cannot be read.
    """
    texts = [constraint] if isinstance(constraint, str) else constraint
    if isinstance(texts, list | tuple) and texts and all(isinstance(c, str) for c in texts):
        parts = [_parse_text(piece, terms) for text in texts for piece in _split(text)]
        R, r = np.vstack([a for a, _ in parts]), np.concatenate([b for _, b in parts])
    else:
        R, r = _parse_arrays(constraint, len(terms))
    empty = ~np.any(R != 0, axis=1)
    if empty.any():
        raise ArgumentError(
            f"Constraint {int(np.flatnonzero(empty)[0]) + 1} of {constraint!r} involves no "
            f"coefficient. {_example(terms)}"
        )
    return R, r


def _example(terms: Sequence[str]) -> str:
    shown = ", ".join(map(repr, terms[:20])) + (", ..." if len(terms) > 20 else "")
    return f"Write for instance {_quoted(terms[-1]) + ' = 0'!r}. The terms are: {shown}."


def _split(text: str) -> list[str]:
    """Split at the commas that are outside brackets, quotes and backticks."""
    pieces: list[str] = []
    depth, quote, start = 0, "", 0
    for i, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "`'\"":
            quote = letter
        elif letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif letter == "," and depth == 0:
            pieces.append(text[start:i])
            start = i + 1
    return [*pieces, text[start:]]


def _quoted(term: str) -> str:
    return term if term.isidentifier() else f"`{term}`"


def _quote_terms(text: str, terms: Sequence[str]) -> str:
    """Put backticks around terms that are no plain names, such as ``a:b`` or ``C(x)[T.y]``."""
    special = sorted((t for t in terms if not t.isidentifier()), key=len, reverse=True)
    if not special:
        return text
    names = "|".join(map(re.escape, special))
    pattern = rf"`[^`]*`|(?<![\w.:])(?:{names})(?![\w:\[])"
    return re.sub(pattern, lambda m: m[0] if m[0].startswith("`") else f"`{m[0]}`", text)


def _parse_text(text: str, terms: Sequence[str]) -> tuple[Float, Float]:
    from formulaic.errors import FormulaicError
    from formulaic.utils.constraints import LinearConstraints

    quoted = _quote_terms(text.strip(), terms)
    equals = re.sub(r"`[^`]*`", "", quoted).count("=")
    if equals > 1:
        raise ArgumentError(
            f"The constraint {text.strip()!r} has {equals} signs '=': write each constraint with "
            f"one '=', and several in a list. {_example(terms)}"
        )
    try:
        found = LinearConstraints.from_spec(quoted, list(terms))
    except (FormulaicError, KeyError, RuntimeError, ValueError, TypeError) as err:
        why = "it is no equation between terms and numbers"
        if isinstance(err, KeyError):
            why = f"there is no term {err.args[0]!r}"
        elif isinstance(err, RuntimeError):
            why = "it is not linear in the terms"
        raise ArgumentError(
            f"The constraint {text.strip()!r} cannot be read: {why}. {_example(terms)}"
        ) from err
    if not len(found.constraint_matrix):
        raise ArgumentError(f"The constraint is empty. {_example(terms)}")
    return np.asarray(found.constraint_matrix, float), np.asarray(found.constraint_values, float)


def _parse_arrays(constraint: Any, p: int) -> tuple[Float, Float]:
    pair = isinstance(constraint, tuple) and len(constraint) == 2
    matrix, values = constraint if pair else (constraint, 0.0)
    try:
        R = np.atleast_2d(np.asarray(matrix, dtype=float))
        r = np.broadcast_to(np.asarray(values, dtype=float), (len(R),)).copy()
    except (TypeError, ValueError) as err:
        raise ArgumentError(
            f"The constraint {constraint!r} cannot be read: give text such as 'a = b', a list of "
            "texts, a (q, p) array R for R theta = 0, or a tuple (R, r)."
        ) from err
    if R.ndim != 2 or R.shape[1] != p or not len(R):
        raise ArgumentError(
            f"The constraint matrix has shape {R.shape}: it needs one column for each of the {p} "
            "coefficients."
        )
    if not (np.isfinite(R).all() and np.isfinite(r).all()):
        raise ArgumentError("The constraint matrix has missing or infinite values.")
    return R, r


def _in_words(row: Float, value: float, terms: Sequence[str]) -> str:
    pieces: list[str] = []
    for j in map(int, np.flatnonzero(row)):
        size = abs(row[j])
        sign = "-" if row[j] < 0 else "+" if pieces else ""
        name = terms[j] if size == 1 else f"{size:g} {terms[j]}"
        pieces.append(f"{sign} {name}" if pieces else f"{sign}{name}")
    return f"{' '.join(pieces)} = {value:g}"


def _independent(R: Float, r: Float, se: Float, words: str) -> tuple[Float, Float]:
    """Reduce to independent constraints; coefficients count in units of their standard error."""
    scale = np.where(se > 0, se, 1.0)
    scaled = R * scale
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    scaled, values = scaled / length, r / length[:, 0]
    u, s, vt = np.linalg.svd(scaled, full_matrices=False)
    keep = s > _RANK_TOLERANCE * s[0]
    if keep.all():
        return R, r
    reduced = (u[:, keep].T @ values) / s[keep]
    if not np.allclose(scaled @ (vt[keep].T @ reduced), values, rtol=1e-8, atol=1e-10):
        raise ArgumentError(f"The constraints contradict each other: {words}. Leave one out.")
    out = vt[keep] / scale
    out[:, ~np.any(R != 0, axis=0)] = 0.0
    return out, reduced


def _has_no_variance(R: Float, vcov: Float) -> bool:
    """Whether some constraint is on a combination without sampling variance."""
    variance = np.einsum("qp,pk,qk->q", R, vcov, R)
    most = (R**2) @ np.maximum(np.diag(vcov), 0.0)
    return bool((variance <= _NO_VARIANCE * np.maximum(most, np.finfo(float).tiny)).any())
