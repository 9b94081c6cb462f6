"""The mean of a labelled variable."""

from __future__ import annotations

from dataclasses import dataclass

from trueup.families.linear import OLS


@dataclass(frozen=True, slots=True)
class Mean(OLS):
    r"""Weighted mean: least squares on an intercept, score :math:`\psi_i = y_i - \theta`.

    Examples
    --------
    >>> import numpy as np
    >>> from trueup.formula.rows import Rows
    >>> rows = Rows(y=np.array([0.0, 1.0, 1.0]), X=np.ones((3, 1)))
    >>> Mean().score(np.array([0.5]), rows).ravel()
    array([-0.5,  0.5,  0.5])
    """

    name: str = "mean"
