"""Draw the shipped antibiotics data: ``python datasets/antibiotics/build.py``."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from trueup.simulate import antibiotics

HERE = Path(__file__).parent
SEED = 2024
CODED = 500


def main() -> None:
    """Write antibiotics.csv.gz, the same bytes at every run."""
    reports = antibiotics(10_000, seed=SEED)
    drawn = np.random.default_rng(SEED + 1).choice(len(reports), CODED, replace=False)
    coded = reports.index.isin(drawn)
    reports["coder"] = reports["reaction"].where(coded).astype("Int64")
    text = reports.to_csv(index=False, lineterminator="\n")
    # mtime=0: the time of writing is no part of the data.
    (HERE / "antibiotics.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
