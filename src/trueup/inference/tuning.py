r"""How much of the LLM's part to use: the tuning matrix Omega."""

from __future__ import annotations

from typing import Literal

import numpy as np

from trueup.study.design import Float

Tuning = Literal["identity", "scalar", "diagonal", "full"]

#: Singular values of the LLM part below this share of the largest are taken as zero: an LLM
#: that is constant, or a copy of another, adds no information.
RELATIVE_TOLERANCE = 1e-9

#: An LLM influence this much smaller than the human one is rounding error of a constant LLM.
NEGLIGIBLE = 1e-10


def silence(human: Float, machine: Float) -> Float:
    """Return the (r, q) LLM part with zeros in the columns that are rounding error only."""
    size = np.tile(np.sqrt((human**2).sum(axis=0)), machine.shape[1] // human.shape[1])
    silent = np.sqrt((machine**2).sum(axis=0)) <= NEGLIGIBLE * size
    return np.where(silent, 0.0, machine)


def optimal_tuning(human: Float, machine: Float, kind: str) -> Float:
    r"""Return the Omega that minimises the variance of ``h - Omega phi``.

    Parameters
    ----------
    human : (r, p) array
        Factor rows of the human influence h.
    machine : (r, q) array, q = K p
        Factor rows of the stacked LLM influences phi.
    kind : {"identity", "scalar", "diagonal", "full"}
        ``full``: :math:`V(h,\phi) V(\phi,\phi)^+`; ``diagonal``: one number for each coefficient
        and annotator; ``scalar``: one number for all; ``identity``: one, for one annotator.

    Returns
    -------
    (p, q) array

    References
    ----------
    Kluger et al. (2025), Prediction-powered inference with imputed covariates and nonuniform
    sampling, section 3; Gronsbell et al. (2024).
    """
    p, q = human.shape[1], machine.shape[1]
    blocks = q // p
    machine = silence(human, machine)
    eye = np.tile(np.eye(p), (1, blocks))
    if kind == "identity":
        return np.asarray(eye / blocks)
    if kind == "full":
        return np.asarray(least_squares(machine, human).T)
    if kind == "diagonal":
        out = np.zeros((p, q))
        for j in range(p):
            own = np.arange(j, q, p)
            out[j, own] = least_squares(machine[:, own], human[:, [j]])[:, 0]
        return out
    stacked = np.column_stack([machine[:, k * p : (k + 1) * p].ravel() for k in range(blocks)])
    scalars = least_squares(stacked, human.reshape(-1, 1))[:, 0]
    return np.asarray(np.hstack([s * np.eye(p) for s in scalars]))


def least_squares(x: Float, y: Float) -> Float:
    """Return the minimum-norm least squares coefficients, columns on a common scale."""
    scale = np.sqrt((x**2).sum(axis=0))
    top = float(scale.max()) if scale.size else 0.0
    if top == 0.0:
        return np.zeros((x.shape[1], y.shape[1]))
    live = scale > 1e-12 * top
    out = np.zeros((x.shape[1], y.shape[1]))
    out[live] = (
        np.linalg.lstsq(x[:, live] / scale[live], y, rcond=RELATIVE_TOLERANCE)[0]
        / scale[live][:, None]
    )
    return out


def tuning_rank(machine: Float) -> int:
    """Return the number of independent LLM controls."""
    scale = np.sqrt((machine**2).sum(axis=0))
    live = scale > 0
    if not live.any():
        return 0
    s = np.linalg.svd(machine[:, live] / scale[live], compute_uv=False)
    return int((s > RELATIVE_TOLERANCE * s[0]).sum())
