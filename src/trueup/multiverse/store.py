"""A folder that keeps results as they come, so that a stopped run can be resumed.

One pair of files for each universe: ``<key>.json`` and ``<key>.npz``, each written under another
name and moved into place, the JSON last. A killed process loses at most the universe in flight, and
two processes on one folder write the same files.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from trueup.corrections.base import Estimate
from trueup.errors import StoreError
from trueup.inference.variance import Influence
from trueup.multiverse.grid import specification
from trueup.multiverse.universe import Outcome, Universe
from trueup.study.design import Int
from trueup.study.study import Study

_ARRAYS = ("theta", "vcov", "df", "h", "d", "tuning", "vcov_human", "informative")
_EXTRA = ("phi", "row_inverse", "repeat_theta", "repeat_se")
_DESIGN = ("coded", "probability", "probability_all", "stratum", "unit", "cluster", "weights")
MANIFEST = "store.json"


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of results for one study."""

    folder: Path
    fingerprint: str
    """Of the study: its data, labels and sampling design."""
    subsets: Mapping[str, str]
    """Name of a subset -> fingerprint of what it means."""

    @classmethod
    def open(cls, folder: str | Path, study: Study, subsets: Mapping[str, Any]) -> Store:
        """Open a folder, making it where it is new.

        Raises
        ------
        StoreError
            If the folder cannot be written, or holds results of other data.
        """
        folder = Path(folder)
        fingerprint = study_fingerprint(study)
        manifest = folder / MANIFEST
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not manifest.exists():
                _place(manifest, json.dumps({"study": fingerprint}).encode())
            kept = json.loads(manifest.read_text())["study"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"The store {folder} cannot be used: {error}. Choose a folder that can be written."
            ) from error
        if kept != fingerprint:
            raise StoreError(
                f"The store {folder} holds results of other data: it was made from study {kept}, "
                f"this is study {fingerprint}. Use another folder, or delete this one."
            )
        return cls(folder, fingerprint, {n: rows_fingerprint(r) for n, r in subsets.items()})

    def key(self, universe: Universe, seed: int | None) -> str:
        """Return the name of a universe's files: changes with all that its numbers depend on."""
        # Deferred: importing joblib is slow, and only what runs many universes needs it.
        from joblib import hash as content_hash

        parts = (
            specification(universe, seed),
            # Arrays and learners within options, which their printed form abbreviates.
            content_hash((universe.family, universe.correction)),
            self.subsets[universe.subset],
            self.fingerprint,
            version("trueup"),
        )
        return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()[:32]

    def read(
        self, universe: Universe, seed: int | None, positions: Int | None = None
    ) -> Outcome | None:
        """Return a kept result, None where there is none or it failed.

        Parameters
        ----------
        universe : Universe
        seed : int, optional
        positions : int array, optional
            Rows of its subset, which are not kept for each universe; None for all rows.
        """
        key = self.key(universe, seed)
        text = self.folder / f"{key}.json"
        if not text.exists():
            return None
        try:
            record = json.loads(text.read_text())
            with np.load(self.folder / f"{key}.npz", allow_pickle=False) as arrays:
                held = {name: arrays[name] for name in arrays.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):
            return None  # half-written by a process that died: compute it again
        if record["spec"] != specification(universe, seed):
            return None
        return _outcome(universe, record, held, positions)

    def write(self, outcome: Outcome, seed: int | None) -> None:
        """Keep a fitted universe; a failed one is not kept, so that it is tried again.

        Raises
        ------
        StoreError
            If the disk is full or the folder has gone; what was kept before stays.
        """
        if outcome.estimate is None:
            return
        key = self.key(outcome.universe, seed)
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
            _place(self.folder / f"{key}.npz", _packed(_arrays(outcome)))
            _place(self.folder / f"{key}.json", json.dumps(record).encode())
        except OSError as error:
            raise StoreError(
                f"A result cannot be written to the store {self.folder}: {error}. Results so far "
                "are kept: free space and run again to resume."
            ) from error


def _packed(arrays: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _place(path: Path, content: bytes) -> None:
    """Write a file under another name and move it into place, or leave nothing behind."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _arrays(outcome: Outcome) -> dict[str, Any]:
    estimate = outcome.estimate
    assert estimate is not None
    out = {n: getattr(estimate, n) for n in _ARRAYS if getattr(estimate, n) is not None}
    out |= {f"extra_{n}": estimate.extra[n] for n in _EXTRA if n in estimate.extra}
    if estimate.influence is not None:
        out |= {f"block_{n}": rows for n, rows in estimate.influence.blocks.items()}
    return out


def _outcome(
    universe: Universe, record: dict[str, Any], held: dict[str, Any], positions: Int | None
) -> Outcome:
    blocks = {n.removeprefix("block_"): a for n, a in held.items() if n.startswith("block_")}
    extra = {n.removeprefix("extra_"): a for n, a in held.items() if n.startswith("extra_")}
    fields: dict[str, Any] = {n: held.get(n) for n in _ARRAYS}
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
        positions=positions,
        warnings=tuple(record["warnings"]),
        seconds=record["seconds"],
    )


def study_fingerprint(study: Study) -> str:
    """Return a hash of a study: all its data, who labelled what, and how rows were drawn."""
    digest = hashlib.sha256()
    contents = study.contents
    for name in contents.table.columns:
        column = contents.table.column(name)[study.positions]
        # The order of categories decides which level is the reference.
        digest.update(repr((name, str(column.dtype), contents.table.categories(name))).encode())
        digest.update(pd.util.hash_array(column).tobytes())
    sampling = contents.sampling
    how = (sampling.strata_columns, sampling.unit, sampling.method)
    described = (dict(contents.human), how, contents.missing, contents.cluster_name)
    digest.update(repr(described).encode())
    for annotator in contents.annotators.values():
        digest.update(repr((annotator.name, dict(annotator.columns))).encode())
    for variable, design in contents.designs.items():
        digest.update(repr((variable, design.draw)).encode())
        for name in _DESIGN:
            array = getattr(design, name)
            digest.update(name.encode())
            digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def rows_fingerprint(rows: Any) -> str:
    """Return what a subset means: its condition, or a hash of its rows."""
    if rows is None or isinstance(rows, str):
        return repr(rows)
    array = np.asarray(rows)
    return hashlib.sha256(f"{array.dtype}".encode() + array.tobytes()).hexdigest()[:32]
