"""Two-stage least squares, ``y ~ x + [d ~ z]``."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from trueup.errors import ArgumentError, CollinearityError, FitError
from trueup.families.linear import OLS
from trueup.formula.rows import Rows
from trueup.study.design import Float, Int

#: Share of an instrument's own variation, beyond the others, below which they are collinear.
INSTRUMENT_TOLERANCE = 1e-7


@dataclass(frozen=True, slots=True, kw_only=True)
class IVRows(Rows):
    """Rows with the first stage that was estimated for them.

    Shapes: ``first_stage`` (q, p), ``Szz_inverse`` (q, q), ``Szx`` (q, p), ``Szy`` (q,).
    """

    first_stage: Float
    """Coefficients of X on Z: Szz^-1 Szx."""
    Szz_inverse: Float
    Szx: Float
    Szy: Float


@dataclass(frozen=True, slots=True)
class _Moments:
    """Sums of cross-products of Z with Z, X and y."""

    zz: Float
    zx: Float
    zy: Float


@dataclass(frozen=True, slots=True)
class IV(OLS):
    r"""Two-stage least squares with its exact influence function.

    With :math:`S` the weighted moments of the prepared rows,
    :math:`\hat x_i = S_{xz} S_{zz}^{-1} z_i`, :math:`u_i = y_i - x_i'\theta` and
    :math:`s_i = z_i' S_{zz}^{-1} (S_{zy} - S_{zx}\theta)`, the score of one row is

    .. math:: \psi_i = \hat x_i u_i + (x_i - \hat x_i)\, s_i .

    The second part carries the estimation of the first stage. Over the prepared rows it sums to
    zero at every theta, so the root is that of two-stage least squares; it is zero row by row
    when there are as many instruments as coefficients, and keeps the covariance right when
    there are more and the model is only an approximation.

    References
    ----------
    Hall and Inoue (2003), The large sample behaviour of the generalized method of moments
    estimator in misspecified models, Journal of Econometrics 114.
    """

    name: str = "iv"

    def prepare(self, rows: Rows, weights: Float | None) -> Rows:
        """Return the rows with the first stage of these rows.

        Raises
        ------
        FitError
            If there are no instruments, or fewer than coefficients.
        CollinearityError
            If the instruments are collinear.
        """
        return _with_first_stage(rows, _moments(rows, weights))

    def prepare_pair(
        self,
        every: Rows,
        human: Rows,
        machine: Rows,
        coded: Int,
        correction_weights: Float,
        weights: Float | None,
    ) -> tuple[Rows, Rows, Rows]:
        """Return the rows with one first stage, of the corrected moments."""
        parts = [
            _moments(every, weights),
            _moments(human, correction_weights),
            _moments(machine, -correction_weights),
        ]
        total = _Moments(
            zz=sum((part.zz for part in parts[1:]), start=parts[0].zz),
            zx=sum((part.zx for part in parts[1:]), start=parts[0].zx),
            zy=sum((part.zy for part in parts[1:]), start=parts[0].zy),
        )
        return (
            _with_first_stage(every, total),
            _with_first_stage(human, total),
            _with_first_stage(machine, total),
        )

    def score(self, theta: Float, rows: Rows) -> Float:
        """Return (m, p) scores, unweighted."""
        rows = _prepared(rows)
        fitted, residual, stage = _pieces(theta, rows)
        return np.asarray(fitted * (residual - stage)[:, None] + rows.X * stage[:, None])

    def score_sum(self, theta: Float, rows: Rows, weights: Float | None) -> Float:
        """Return the (p,) weighted sum of scores."""
        rows = _prepared(rows)
        fitted, residual, stage = _pieces(theta, rows)
        if weights is not None:
            residual, stage = residual * weights, stage * weights
        return np.asarray(fitted.T @ (residual - stage) + rows.X.T @ stage)

    def hessian_sum(self, theta: Float, rows: Rows, weights: Float | None) -> Float:
        """Return the (p, p) weighted sum of minus the derivatives of the scores."""
        rows = _prepared(rows)
        fitted = _instruments(rows) @ rows.first_stage
        heavy = fitted if weights is None else fitted * weights[:, None]
        cross = heavy.T @ rows.X
        return np.asarray(cross + cross.T - heavy.T @ fitted)

    def leverage(self, theta: Float, rows: Rows, weights: Float) -> Float:
        """Return (m,) hat values of the second stage, whose columns are the fitted ones."""
        prepared = _prepared(rows)
        fitted = _instruments(prepared) @ prepared.first_stage
        return OLS.leverage(self, theta, Rows(y=rows.y, X=fitted), weights)


def _instruments(rows: Rows) -> Float:
    """Return the instruments of the rows."""
    if rows.Z is None:
        raise FitError("There are no instruments: write 'y ~ x + [d ~ z]', or use tu.ols.")
    return rows.Z


def _prepared(rows: Rows) -> IVRows:
    """Return the rows, which must hold a first stage."""
    if not isinstance(rows, IVRows):
        raise ArgumentError("These rows have no first stage: call prepare or prepare_pair first.")
    return rows


def _pieces(theta: Float, rows: IVRows) -> tuple[Float, Float, Float]:
    """Return fitted columns, residuals and the first-stage part s of the score."""
    Z = _instruments(rows)
    moment = rows.Szz_inverse @ (rows.Szy - rows.Szx @ theta)
    return Z @ rows.first_stage, rows.y - rows.X @ theta, Z @ moment


def _moments(rows: Rows, weights: Float | None) -> _Moments:
    """Return the weighted sums of cross-products, over blocks of rows."""
    q, p = _instruments(rows).shape[1], rows.n_coef
    if q < p:
        raise FitError(
            f"There are fewer instruments than endogenous columns: {q} columns of exogenous "
            f"covariates and instruments for {p} coefficients. Add instruments after '~' in "
            "'[d ~ z]', or treat a column as exogenous."
        )
    zz, zx, zy = np.zeros((q, q)), np.zeros((q, p)), np.zeros(q)
    for part, block in rows.blocks():
        Z = _instruments(block)
        heavy = Z if weights is None else Z * weights[part][:, None]
        zz += heavy.T @ Z
        zx += heavy.T @ block.X
        zy += heavy.T @ block.y
    return _Moments(zz, zx, zy)


def _with_first_stage(rows: Rows, moments: _Moments) -> IVRows:
    """Return the rows with a first stage."""
    scale = np.sqrt(np.abs(np.diag(moments.zz)))
    _check_instruments(moments.zz, scale)
    inverse = np.linalg.inv(moments.zz / np.outer(scale, scale)) / np.outer(scale, scale)
    plain = {f.name: getattr(rows, f.name) for f in fields(Rows)}
    return IVRows(
        **plain,
        first_stage=inverse @ moments.zx,
        Szz_inverse=inverse,
        Szx=moments.zx,
        Szy=moments.zy,
    )


def _check_instruments(zz: Float, scale: Float) -> None:
    """Raise where columns of Z are collinear, saying which."""
    if not np.isfinite(zz).all():
        raise FitError("The instruments have missing or infinite values: fill or remove them.")
    if (scale == 0).any():
        _refuse_instrument(int(np.flatnonzero(scale == 0)[0]), "is 0 in every row")
    values, vectors = np.linalg.eigh(zz / np.outer(scale, scale))
    if np.abs(values).min() < INSTRUMENT_TOLERANCE**2 * len(zz):
        direction = np.abs(vectors[:, np.abs(values).argmin()])
        last = int(np.flatnonzero(direction > 1e-4 * direction.max())[-1])
        _refuse_instrument(last, "is a linear combination of others")


def _refuse_instrument(column: int, what: str) -> None:
    """Raise for a column of Z."""
    raise CollinearityError(
        f"Column {column + 1} of the instruments (exogenous covariates first, then the "
        f"instruments in the order of the formula) {what}. Leave it out of the formula."
    )
