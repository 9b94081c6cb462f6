"""Replications on disk: one file for each cell and batch, filled as methods are asked for.

The data of replication r of a cell depend on the id of the cell and on r alone, so that methods
that are run at different times see the same data. A folder is named after the id and a fingerprint
of the cell: where a cell is changed, its old replications are not mixed with new ones.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from .design import Cell
from .methods import applies, replicate

BATCH = 50


def folder(work: Path, cell: Cell) -> Path:
    """Return the folder of a cell."""
    return work / f"{cell.id}-{cell.fingerprint}"


def missing(work: Path, cell: Cell, batch: int, methods: Sequence[str]) -> list[str]:
    """Return the methods that a batch does not have yet."""
    path = _path(work, cell, batch)
    wanted = [m for m in methods if applies(m, cell)]
    if not path.exists():
        return wanted
    have = set(pd.read_parquet(path, columns=["method"])["method"])
    return [m for m in wanted if m not in have]


def run_batch(work: Path, cell: Cell, batch: int, methods: Sequence[str]) -> int:
    """Run methods on the replications of a batch and add them to its file; return how many ran.

    Results of the same methods that are there already are replaced.
    """
    rows = [
        {"rep": rep, "method": method, **asdict(result)}
        for rep in range(batch * BATCH, (batch + 1) * BATCH)
        for method, result in replicate(cell, rep, methods).items()
    ]
    table = pd.DataFrame(rows)
    path = _path(work, cell, batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        old = pd.read_parquet(path)
        table = pd.concat([old[~old["method"].isin(methods)], table], ignore_index=True)
    half = path.with_suffix(".part")
    table.to_parquet(half, index=False)
    os.replace(half, path)
    return len(rows)


def load(work: Path, cell: Cell) -> pd.DataFrame:
    """Return all replications of a cell; empty where there are none."""
    paths = sorted(folder(work, cell).glob("*.parquet"))
    if not paths:
        return pd.DataFrame()
    return pd.concat([pd.read_parquet(path) for path in paths], ignore_index=True)


def _path(work: Path, cell: Cell, batch: int) -> Path:
    return folder(work, cell) / f"{batch:04d}.parquet"
