"""The cells of the validity study: which situations are simulated, and how they were chosen.

Two blocks. Cells ``f..`` cross the labelled side, the family, the sampling and the number of coded
rows around an LLM that is right on 94%, with a few cells at 98%, at 75% and with a rare outcome.
Cells ``c..`` are a fraction of the product of all factors, which is far too large to run: each
next cell is the one, among some hundreds drawn at random from all that make sense, that shows
most pairs of levels not shown yet while every level keeps its share (:func:`grid`).

What makes no sense is left out, by the rules of :func:`why_not`.

A quarter of all cells is marked ``held_out``: nothing may be tuned on them. They were drawn by a
seed from the cells ``c..``, because the situations of ``f..`` had been looked at before.

``cells.csv`` beside this file is what :func:`make` returns; ``python -m
tests.simulation.validity.design`` writes it anew.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass, fields, replace
from hashlib import sha256
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

CELLS = Path(__file__).with_name("cells.csv")
SEED = 20_261_201
GRID_CELLS = 108
CANDIDATES = 400

#: Levels of each factor and their share among the cells.
LEVELS: dict[str, dict[Any, float]] = {
    "family": {"mean": 0.14, "ols": 0.23, "logit": 0.21, "poisson": 0.21, "absorb": 0.21},
    "side": {"outcome": 0.4, "covariate": 0.35, "both": 0.25},
    "kind": {"binary": 0.34, "classes": 0.33, "continuous": 0.33},
    "draw": dict.fromkeys(("srs", "unequal", "strata", "units", "nested"), 0.2),
    "n": dict.fromkeys((50, 100, 200, 500, 2_000), 0.2),
    "K": dict.fromkeys((1, 3, 8), 1 / 3),
    "quality": dict.fromkeys((0.75, 0.94, 0.98), 1 / 3),
    "error": dict.fromkeys(("nondifferential", "differential", "hard"), 1 / 3),
    "p": {1: 0.14, 2: 0.215, 3: 0.215, 6: 0.215, 15: 0.215},
    "N": {2_000: 0.3, 5_000: 0.34, 10_000: 0.3, 100_000: 0.06},
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One situation."""

    id: str
    family: str
    """ "mean", "ols", "logit", "poisson" or "absorb" """
    side: str
    """What LLMs label: the "outcome", a "covariate", or "both"."""
    kind: str
    """ "binary", "classes" (four of them) or "continuous" (counts for a Poisson outcome); of the
    covariate where both are labelled"""
    draw: str
    """ "srs", "unequal" probabilities, "strata", "units" (whole clusters are coded) or "nested"
    (rows are drawn, but depend on each other within clusters)"""
    n: int
    """Number of coded rows (expected number with unequal probabilities)."""
    K: int
    """Number of LLMs."""
    quality: float
    """Share of right labels of the first LLM; for numbers its squared correlation."""
    error: str
    """ "nondifferential", "differential" or "hard" (concentrated in hard items)"""
    p: int
    """Number of coefficients, without absorbed effects."""
    N: int
    """Number of rows."""
    rare: bool = False
    """Whether only about one row in ten has the outcome."""
    held_out: bool = False

    @property
    def name(self) -> str:
        """Return the id and the levels, for tables."""
        rare = "-rare" if self.rare else ""
        return (
            f"{self.id} {self.side}-{self.family}-{self.kind}{rare} {self.draw} n={self.n} "
            f"K={self.K} {self.quality:.0%} {self.error} p={self.p} N={self.N}"
        )

    @property
    def cluster_size(self) -> int:
        """Rows of a cluster: small where few rows are coded as whole clusters."""
        return min(20, max(4, self.n // 20)) if self.draw == "units" else 20

    @property
    def n_groups(self) -> int:
        """Levels of the absorbed effect: about fifteen coded rows for each."""
        return min(40, max(4, self.n // 15))

    @property
    def fingerprint(self) -> str:
        """Return eight letters that change with the situation, not with the name or the mark."""
        text = repr(astuple(replace(self, id="", held_out=False)))
        return sha256(text.encode()).hexdigest()[:8]


def why_not(cell: Cell) -> str | None:
    """Return why a cell makes no sense, None where it does."""
    dummies = cell.kind == "classes" and cell.side != "outcome"
    fixed = (0 if cell.family == "absorb" else 1) + (3 if dummies else 1)
    units = cell.n // cell.cluster_size
    rules = {
        "a mean has one coefficient, and no covariate": (cell.family == "mean") != (cell.p == 1)
        or (cell.family == "mean" and cell.side != "outcome"),
        "a logit needs an outcome of two classes": cell.family == "logit"
        and cell.side == "outcome"
        and cell.kind == "continuous",
        "the labelled outcome of a Poisson regression is a count": cell.family == "poisson"
        and cell.side == "outcome"
        and cell.kind != "continuous",
        "the coefficients do not hold the labelled variable": cell.family != "mean"
        and cell.p < fixed,
        "fewer than ten coded rows for each coefficient": cell.n < 10 * cell.p,
        "fewer than ten drawn units, or than two for each coefficient": cell.draw == "units"
        and units < max(10, 2 * cell.p),
        "fewer than 100 coded rows, in units, for absorbed effects": cell.draw == "units"
        and cell.family == "absorb"
        and cell.n < 100,
        "more than 40% of the rows are coded": cell.n > 0.4 * cell.N,
    }
    return next((reason for reason, holds in rules.items() if holds), None)


def frontier() -> list[Cell]:
    """Return the cells ``f..``: three LLMs whose errors depend on the data, N = 10,000."""
    base = Cell("", "ols", "outcome", "binary", "srs", 100, 3, 0.94, "differential", 3, 10_000)
    sides, families = ("covariate", "outcome"), ("ols", "logit")
    cells = [
        replace(base, side=side, family=family, draw=draw, n=n)
        for side, family, draw, n in product(
            sides, families, ("srs", "unequal"), (50, 100, 200, 500)
        )
    ]
    cells += [
        replace(base, side=side, family=family, quality=quality)
        for quality, side, family in product((0.98, 0.75), sides, families)
    ]
    rare = replace(base, family="logit", rare=True)
    cells += [
        rare,
        replace(rare, n=200),
        replace(rare, draw="unequal"),
        replace(rare, side="covariate"),
    ]
    return [replace(cell, id=f"f{i:02d}") for i, cell in enumerate(cells, 1)]


def grid(size: int = GRID_CELLS, seed: int = SEED) -> list[Cell]:
    """Return the cells ``c..``, chosen one by one for the pairs of levels they add."""
    rng = np.random.default_rng(seed)
    pairs: Counter[tuple[Any, ...]] = Counter()
    levels: Counter[tuple[str, Any]] = Counter()
    cells: list[Cell] = []
    while len(cells) < size:
        candidates = [_draw(rng) for _ in range(CANDIDATES)]
        values = [_gain(cell, pairs, levels, len(cells)) for cell in candidates]
        best = candidates[int(np.argmax(values))]
        pairs.update(_pairs(best))
        levels.update(_items(best))
        cells.append(replace(best, id=f"c{len(cells) + 1:03d}"))
    return cells


def _draw(rng: np.random.Generator) -> Cell:
    """Return a cell that makes sense, with random levels."""
    while True:
        chosen = {f: list(v)[int(rng.integers(len(v)))] for f, v in LEVELS.items()}
        cell = Cell(id="", **chosen)
        if why_not(cell) is None:
            return cell


def _items(cell: Cell) -> list[tuple[str, Any]]:
    return [(factor, getattr(cell, factor)) for factor in LEVELS]


def _pairs(cell: Cell) -> list[tuple[Any, ...]]:
    return list(combinations(_items(cell), 2))


def _gain(cell: Cell, pairs: Counter[Any], levels: Counter[Any], size: int) -> float:
    """Return how much a cell adds: new pairs, less what its levels exceed their share by."""
    new = sum(1.0 / (1.0 + pairs[pair]) ** 2 for pair in _pairs(cell))
    surplus = (levels[f, v] - LEVELS[f][v] * size for f, v in _items(cell))
    return new - 2.0 * sum(surplus)


def make() -> list[Cell]:
    """Return all cells."""
    cells = grid()
    known = frontier()
    quarter = round((len(cells) + len(known)) / 4)
    rng = np.random.default_rng([SEED, 1])
    chosen = set(rng.choice(len(cells), quarter, replace=False).tolist())
    return known + [replace(cell, held_out=i in chosen) for i, cell in enumerate(cells)]


def write(cells: Iterable[Cell], path: Path = CELLS) -> None:
    """Write cells to a file."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Cell)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(cell) for cell in cells)


def read(path: Path = CELLS) -> dict[str, Cell]:
    """Return the cells of a file by their ids."""
    kinds = {"n": int, "K": int, "p": int, "N": int, "quality": float}
    flags = ("rare", "held_out")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    typed = (
        {k: v == "True" if k in flags else kinds.get(k, str)(v) for k, v in row.items()}
        for row in rows
    )
    return {row["id"]: Cell(**row) for row in typed}


if __name__ == "__main__":
    write(make())
