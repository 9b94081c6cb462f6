r"""From influence functions to covariances, by the design that drew the coded rows.

Every estimator of this package has the influence function
:math:`\xi_i = h_i + (R_i/\pi_i - 1)\,d_i`: ``h`` is what row *i* would contribute had it been
coded, ``d`` is the part that only coding reveals. Its variance has two phases,
:math:`V = V_1(h) + V_2(d)`: the rows as a sample from a population, and the coded rows as a
sample from the rows.

Both are bilinear, and both are sums of outer products of *factor rows*: each function here
returns matrices ``E`` with :math:`V = E^\top E`. Factor rows of different estimators on the
same rows multiply to the covariance *between* them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trueup.errors import SamplingError
from trueup.study.design import Draw, Float, Int, SampleDesign

#: A row is never scaled up by more than 1/FLOOR when it is left out of the tuning.
LEAVE_ONE_OUT_FLOOR = 0.1


#: Blocks of factor rows that are subtracted: what other blocks hold already.
SUBTRACTED = frozenset({"independent", "pair_rows"})


@dataclass(frozen=True, slots=True)
class Influence:
    r"""Factor rows of a covariance, in named blocks: :math:`V = \sum_b \pm E_b^\top E_b`.

    ``first`` and ``second`` have a row for each coded row (or coded unit): the rows as a sample
    of a population, and the coded rows as a sample of the rows. With clusters, ``cluster`` has a
    row for each cluster; ``independent`` and ``pair_rows`` are subtracted.
    """

    blocks: Mapping[str, Float]
    """name -> (r, p) array"""

    def covariance(self, other: Influence | None = None) -> Float:
        """Return the (p, p2) covariance with another estimate on the same rows, or with itself."""
        other = self if other is None else other
        parts = [
            (-1.0 if name in SUBTRACTED else 1.0) * (rows.T @ other.blocks[name])
            for name, rows in self.blocks.items()
            if name in other.blocks
        ]
        return np.asarray(np.sum(parts, axis=0))


def row_totals(values: Float, codes: Int, size: int) -> Float:
    """Return the (size, k) sums of the rows of ``values`` by group code."""
    out = np.zeros((size, values.shape[1]))
    for j in range(values.shape[1]):
        out[:, j] = np.bincount(codes, weights=values[:, j], minlength=size)
    return out


def population_size(design: SampleDesign) -> float:
    """Return the estimated number of rows, the sum of 1/pi over the coded rows."""
    return float(design.inverse_probability.sum())


def hajek_centred(design: SampleDesign, values: Float) -> Float:
    """Return ``values`` less their weighted mean over the coded rows."""
    w = design.inverse_probability
    return np.asarray(values - (w @ values) / w.sum())


def _sampled(design: SampleDesign, values: Float) -> tuple[Float, Float, Int | None]:
    """Return totals, probabilities and strata of what was drawn: rows, or whole units."""
    if design.unit is None:
        return values, design.probability, design.stratum
    m = int(design.unit.max()) + 1
    first = np.zeros(m, dtype=np.int64)
    first[design.unit[::-1]] = np.arange(len(design.unit))[::-1]
    stratum = None if design.stratum is None else design.stratum[first]
    return row_totals(values, design.unit, m), design.probability[first], stratum


def phase_two_rows(design: SampleDesign, values: Float) -> Float:
    r"""Factor rows of the variance that comes from coding a sample of the rows.

    The estimator is :math:`\hat N^{-1}\sum_R v_i/\pi_i`; the returned ``E`` has
    :math:`E^\top E = V_2` by the design's own formula:

    - simple random sample: :math:`(1/n - 1/N) S_{vv}`
    - independent draws: :math:`\hat N^{-2}\sum_R (1-\pi)/\pi^2\, v v'`
    - fixed size, unequal: :math:`\hat N^{-2}\sum_R c\,(v/\pi - B)(v/\pi - B)'`,
      :math:`c = (1-\pi)n/(n-1)`, :math:`B = \sum c v/\pi / \sum c`
    - strata: :math:`\sum_s (N_s/N)^2 (1/n_s - 1/N_s) S_s`

    with rows replaced by unit totals where whole units were drawn.

    Parameters
    ----------
    design : SampleDesign
    values : (n, k) array
        Already centred where the estimator divides by the sum of the weights.

    Returns
    -------
    (r, k) array, r = number of coded rows or of coded units

    References
    ----------
    Särndal, Swensson and Wretman (1992), Model Assisted Survey Sampling, ch. 2-3.
    """
    v, pi, stratum = _sampled(design, values)
    n = len(v)
    total = population_size(design)
    if design.draw is Draw.SRS:
        size = design.n_drawn_from
        scale = (size / total) ** 2 * (1.0 / n - 1.0 / size) / max(n - 1, 1)
        return np.asarray(np.sqrt(max(scale, 0.0)) * (v - v.mean(axis=0)))
    if design.draw is Draw.STRATA:
        return _stratified_rows(design, v, stratum, total)
    if design.draw is Draw.POISSON:
        small = n / (n - 1) if design.unit is not None and n > 1 else 1.0
        return np.asarray(v * (np.sqrt(small * (1.0 - pi)) / pi / total)[:, None])
    c = (1.0 - pi) * n / max(n - 1, 1)
    if c.sum() <= 0:
        return np.zeros_like(v)
    expanded = v / pi[:, None]
    centre = (c @ expanded) / c.sum()
    return np.asarray(np.sqrt(c)[:, None] * (expanded - centre) / total)


def _stratified_rows(design: SampleDesign, v: Float, stratum: Int | None, total: float) -> Float:
    if stratum is None or design.stratum_sizes is None:
        raise SamplingError("A stratified design needs the stratum of every coded row.")
    sizes = design.stratum_sizes.astype(float)
    counts = np.bincount(stratum, minlength=len(sizes)).astype(float)
    safe = np.maximum(counts, 1.0)
    centred = v - (row_totals(v, stratum, len(sizes)) / safe[:, None])[stratum]
    scale = (sizes / total) ** 2 * np.maximum(1.0 / safe - 1.0 / sizes, 0.0)
    scale = scale / np.maximum(counts - 1.0, 1.0)
    return np.asarray(centred * np.sqrt(scale)[stratum][:, None])


def phase_one_rows(design: SampleDesign, h: Float) -> Float:
    r"""Factor rows of the variance of N rows drawn from a population.

    :math:`V_1 = N^{-2}\sum_R h_i h_i'/\pi_i`, by unit totals (times m/(m-1)) where whole
    units were drawn.
    """
    v, pi, _ = _sampled(design, h)
    small = len(v) / (len(v) - 1) if design.unit is not None and len(v) > 1 else 1.0
    return np.asarray(v * (np.sqrt(small / pi) / population_size(design))[:, None])


def independent_pieces(design: SampleDesign) -> tuple[int, str]:
    """Return how many independent pieces the coded sample has, and what they are called."""
    if design.unit is not None:
        return int(design.unit.max()) + 1, "drawn units"
    if design.cluster is not None:
        return len(np.unique(design.cluster[design.coded])), "clusters with coded rows"
    return design.n_coded, "coded rows"


def units_are_clusters(design: SampleDesign) -> bool:
    """Whether dependence between rows stays within what was drawn, so that V1 needs no more."""
    if design.cluster is None:
        return True
    if design.unit is None:
        return False
    pairs = np.unique(np.column_stack([design.unit, design.cluster[design.coded]]), axis=0)
    n_units = int(design.unit.max()) + 1
    if len(pairs) > n_units:
        raise SamplingError(
            "Clusters split the units that were drawn whole: a unit's rows lie in several "
            "clusters. Give cluster= at the level of the drawn units or above."
        )
    return len(np.unique(pairs[:, 1])) == n_units


def cluster_rows(design: SampleDesign, d: Float, machine_sums: Float | None) -> Influence:
    r"""Factor rows where rows of a cluster depend on each other.

    With :math:`\xi_i = \Omega\phi_i + (R_i/\pi_i) d_i` known for every row, the cluster sums
    :math:`Z_c = \sum_{i\in c}\xi_i` give :math:`G/(G-1)\,N^{-2}\sum_c Z_c Z_c'`. That formula
    takes the coded rows as independent draws; their own design's variance replaces that part,
    and pairs of coded rows of one cluster and stratum count with their joint probability.

    Parameters
    ----------
    design : SampleDesign
        With ``cluster``.
    d : (n, p) array
    machine_sums : (G, p) array or None
        Sums over *all* rows of each cluster of Omega phi; None where Omega = 0.

    References
    ----------
    Särndal, Swensson and Wretman (1992), section 9.3 (two-phase sampling).
    """
    assert design.cluster is not None
    codes = design.cluster
    G = int(codes.max()) + 1
    total = population_size(design)
    coded_cluster = codes[design.coded]
    w = design.inverse_probability[:, None]
    Z = row_totals(d * w, coded_cluster, G) / total
    if machine_sums is not None:
        Z = Z + machine_sums / design.n_rows
    blocks = {
        "cluster": Z,
        "second": phase_two_rows(design, d),
        "independent": _independent_rows(design, d),
        **_pair_rows(design, d, coded_cluster),
    }
    small = np.sqrt(G / (G - 1))
    return Influence({name: small * rows for name, rows in blocks.items()})


def _independent_rows(design: SampleDesign, d: Float) -> Float:
    v, pi, _ = _sampled(design, d)
    return np.asarray(v * (np.sqrt(1.0 - pi) / pi / population_size(design))[:, None])


def _pair_rows(design: SampleDesign, d: Float, cluster: Int) -> dict[str, Float]:
    """Factor rows that replace 1/(pi_i pi_j) by 1/pi_ij for pairs in one cluster and stratum."""
    if design.unit is not None or design.draw not in (Draw.SRS, Draw.STRATA):
        return {}
    if design.draw is Draw.SRS or design.stratum is None or design.stratum_sizes is None:
        stratum = np.zeros(len(d), dtype=np.int64)
        sizes = np.array([design.n_rows], dtype=float)
    else:
        stratum, sizes = design.stratum, design.stratum_sizes.astype(float)
    counts = np.bincount(stratum, minlength=len(sizes)).astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        joint = sizes * (sizes - 1) / (counts * (counts - 1))
        excess = joint - (sizes / counts) ** 2
    excess = np.where(counts > 1, np.maximum(excess, 0.0), 0.0)
    root = np.sqrt(excess) / population_size(design)
    _, cell = np.unique(np.column_stack([cluster, stratum]), axis=0, return_inverse=True)
    scaled = d * root[stratum][:, None]
    return {"pairs": row_totals(scaled, cell, int(cell.max()) + 1), "pair_rows": scaled}


def tuning_leverage(rows: Float, kind: str) -> Float:
    """Share of each coded row in the tuning that is applied to it.

    Parameters
    ----------
    rows : (r, q) array
        Phase-two factor rows of the LLM influence phi.
    kind : {"full", "diagonal", "scalar", "fixed"}

    Returns
    -------
    (r, 1) array, or (r, q) for "diagonal": values in [0, 1 - floor]
    """
    top = 1.0 - LEAVE_ONE_OUT_FLOOR
    if kind == "fixed" or not rows.size:
        return np.zeros((len(rows), 1))
    if kind == "full":
        size = np.sqrt((rows**2).sum(axis=0))
        u, s, _ = np.linalg.svd(rows / np.where(size > 0, size, 1.0), full_matrices=False)
        keep = s > 1e-8 * max(float(s.max(initial=0.0)), 1e-300)
        return np.asarray(np.minimum((u[:, keep] ** 2).sum(axis=1), top)[:, None])
    squares = rows**2
    if kind == "scalar":
        squares = squares.sum(axis=1, keepdims=True)
    sums = squares.sum(axis=0)
    return np.minimum(squares / np.where(sums > 0, sums, 1.0), top)


def effective_df(contributions: Float, most: float) -> Float:
    r"""Satterthwaite degrees of freedom from the contributions to a variance.

    :math:`\nu = 2 / (\sum a_i^2/(\sum a_i)^2 - 1/n)`, which is n for normal contributions and
    small where a handful of rows carries the variance.

    Parameters
    ----------
    contributions : (r, p) array of non-negative terms that sum to each variance
    most : float
        Upper bound, the degrees of freedom of a fit to the coded rows.
    """
    n = len(contributions)
    share = concentration(contributions)
    excess = np.maximum(share - 1.0 / n, 0.0)
    with np.errstate(divide="ignore"):
        nu = np.where(excess > 0, 2.0 / np.where(excess > 0, excess, 1.0), np.inf)
    return np.asarray(np.clip(nu, 1.0, max(most, 1.0)))


def concentration(contributions: Float) -> Float:
    r"""Return :math:`\sum a_i^2/(\sum a_i)^2` by column; 1/n where all terms are equal."""
    sums = contributions.sum(axis=0)
    n = len(contributions)
    squares = (contributions**2).sum(axis=0)
    return np.asarray(np.where(sums > 0, squares / np.where(sums > 0, sums**2, 1.0), 1.0 / n))
