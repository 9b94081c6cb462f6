"""A folder that keeps results as they come, so that a stopped run can be resumed.

One pair of files for each universe: ``<key>.json`` and ``<key>.npz``, each written under another
name and moved into place, the JSON last. A killed process loses at most the universe in flight, and
two processes on one folder write the same files.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from trueup.corrections.base import Estimate
from trueup.errors import StoreError
from trueup.inference.variance import Influence
from trueup.multiverse.grid import specification, specification_key
from trueup.multiverse.universe import Outcome, Universe
from trueup.study.study import Study

_ARRAYS = ("theta", "vcov", "df", "h", "d", "tuning", "vcov_human", "informative")
_EXTRA = ("phi", "row_inverse", "repeat_theta", "repeat_se")
MANIFEST = "store.json"


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of results for one study."""

    folder: Path
    fingerprint: str

    @classmethod
    def open(cls, folder: Path, fingerprint: str) -> Store:
        """Open a folder, making it where it is new.

        Raises
        ------
        StoreError
            If the folder cannot be written, or holds results of other data.
        """
        manifest = folder / MANIFEST
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not manifest.exists():
                _place(manifest, json.dumps({"study": fingerprint}).encode())
            kept = json.loads(manifest.read_text())["study"]
        except (OSError, ValueError, KeyError) as error:
            raise StoreError(
                f"The store {folder} cannot be used: {error}. Choose a folder that can be written."
            ) from error
        if kept != fingerprint:
            raise StoreError(
                f"The store {folder} holds results of other data: it was made from study {kept}, "
                f"this is study {fingerprint}. Use another folder, or delete this one."
            )
        return cls(folder, fingerprint)

    def _key(self, universe: Universe, seed: int | None) -> str:
        return specification_key(universe, seed, self.fingerprint)

    def read(self, universe: Universe, seed: int | None) -> Outcome | None:
        """Return a kept result, None where there is none or it failed."""
        key = self._key(universe, seed)
        text = self.folder / f"{key}.json"
        if not text.exists():
            return None
        try:
            record = json.loads(text.read_text())
            with np.load(self.folder / f"{key}.npz", allow_pickle=False) as arrays:
                held = {name: arrays[name] for name in arrays.files}
        except (OSError, ValueError, EOFError):
            return None  # half-written by a process that died: compute it again
        if record["spec"] != specification(universe, seed):
            return None
        return _outcome(universe, record, held)

    def write(self, outcome: Outcome, seed: int | None) -> None:
        """Keep a fitted universe; a failed one is not kept, so that it is tried again.

        Raises
        ------
        StoreError
            If the disk is full or the folder has gone; what was kept before stays.
        """
        if outcome.estimate is None:
            return
        key = self._key(outcome.universe, seed)
        record = {
            "spec": specification(outcome.universe, seed),
            "dimensions": dict(outcome.universe.dimensions),
            "terms": list(outcome.terms),
            "warnings": list(outcome.warnings),
            "notes": list(outcome.estimate.notes),
            "estimate_warnings": list(outcome.estimate.warnings),
            "seconds": outcome.seconds,
        }
        try:
            with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".tmp", delete=False) as file:
                np.savez(file, **_arrays(outcome))
            os.replace(file.name, self.folder / f"{key}.npz")
            _place(self.folder / f"{key}.json", json.dumps(record).encode())
        except OSError as error:
            raise StoreError(
                f"A result cannot be written to the store {self.folder}: {error}. Results so far "
                "are kept: free space and run again to resume."
            ) from error


def _place(path: Path, content: bytes) -> None:
    """Write a file under another name and move it into place."""
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
        file.write(content)
    os.replace(file.name, path)


def _arrays(outcome: Outcome) -> dict[str, Any]:
    estimate = outcome.estimate
    assert estimate is not None
    out = {n: getattr(estimate, n) for n in _ARRAYS if getattr(estimate, n) is not None}
    out |= {f"extra_{n}": estimate.extra[n] for n in _EXTRA if n in estimate.extra}
    if estimate.influence is not None:
        out |= {f"block_{n}": rows for n, rows in estimate.influence.blocks.items()}
    if outcome.positions is not None:
        out["positions"] = outcome.positions
    return out


def _outcome(universe: Universe, record: dict[str, Any], held: dict[str, Any]) -> Outcome:
    blocks = {n.removeprefix("block_"): a for n, a in held.items() if n.startswith("block_")}
    extra = {n.removeprefix("extra_"): a for n, a in held.items() if n.startswith("extra_")}
    fields = {n: held.get(n) for n in _ARRAYS}
    estimate = Estimate(
        **fields,
        notes=tuple(record["notes"]),
        warnings=tuple(record["estimate_warnings"]),
        influence=Influence(blocks) if blocks else None,
        extra=extra,
    )
    return Outcome(
        universe=universe,
        status="ok",
        terms=tuple(record["terms"]),
        estimate=estimate,
        positions=held.get("positions"),
        warnings=tuple(record["warnings"]),
        seconds=record["seconds"],
    )


def study_fingerprint(study: Study, subsets: dict[str, Any], version: str) -> str:
    """Return a hash of all data a multiverse may read, its subsets, and the package version."""
    digest = hashlib.sha256(version.encode())
    contents = study.contents
    positions = study.positions
    for name in contents.table.columns:
        column = contents.table.column(name)[positions]
        digest.update(name.encode())
        digest.update(pd.util.hash_array(np.asarray(column)).tobytes())
    described = (contents.human, contents.sampling, contents.missing, contents.cluster_name)
    digest.update(repr(described).encode())
    for annotator in contents.annotators.values():
        digest.update(repr((annotator.name, dict(annotator.columns))).encode())
    for design in contents.designs.values():
        for array in (design.coded, design.probability, design.cluster, design.weights):
            if array is not None:
                digest.update(np.ascontiguousarray(array).tobytes())
    for name, rows in subsets.items():
        digest.update(name.encode())
        digest.update(rows.encode() if isinstance(rows, str) else np.asarray(rows).tobytes())
    return digest.hexdigest()[:16]
