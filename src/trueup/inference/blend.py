r"""One variance from two: what the coded rows show, and what a model of the labels expects.

The coded rows estimate a variance without bias, but with few mislabelled rows the estimate is
noisy: its relative variance is 1/n, n the effective number of rows that carry it. A model of the
labels is not noisy, but may be wrong. Where the variance has a gamma prior worth m rows about the
model's value, its posterior mean and reference distribution are

.. math:: k = \frac{n\,k_{coded} + m\,k_{model}}{n + m}, \qquad \nu = 2\,(n + m) + 4.

A variance with relative variance 1/(n + m) gives the standardised estimate the excess kurtosis
3/(n + m), which is that of a t distribution with these degrees of freedom. The number n is what
the model expects under the design, from all rows: a sample that happens to miss the mislabelled
rows looks well informed to itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trueup.study.design import Float

#: What the model is worth, in informative coded rows.
MODEL_ROWS = 1.0
#: Fewest degrees of freedom.
FEWEST = 2.5


@dataclass(frozen=True, slots=True)
class Blended:
    """A variance and its degrees of freedom; (p,) each."""

    variance: Float
    df: Float


def blend(coded: Float, model: Float, informative: Float, most: float) -> Blended:
    """Combine two estimates of a variance.

    Parameters
    ----------
    coded : (p,) array
        From the coded rows.
    model : (p,) array
        From the model.
    informative : (p,) array
        Effective number of coded rows that carry the variance, as the model expects.
    most : float
        Largest degrees of freedom.

    Examples
    --------
    >>> import numpy as np
    >>> both = blend(np.array([1.0]), np.array([3.0]), np.array([1.0]), 100.0)
    >>> both.variance, both.df
    (array([2.]), array([8.]))
    """
    weight = informative / (informative + MODEL_ROWS)
    df = 2.0 * (informative + MODEL_ROWS) + 4.0
    return Blended(weight * coded + (1.0 - weight) * model, np.clip(df, FEWEST, max(most, FEWEST)))
