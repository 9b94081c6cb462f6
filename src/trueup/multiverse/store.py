"""A folder that keeps results as they come, so that a stopped run can be resumed.

One file for each universe, ``<key>.fit``: a line with the hash of what follows, then arrays in
numpy's npz format, one of which is a JSON record. A file is written under another name and moved
into place whole, so that a killed process loses at most the universes in flight, and processes on
one folder replace each other's files by equal ones.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trueup.corrections.base import Estimate
from trueup.errors import StoreError
from trueup.inference.variance import Influence
from trueup.multiverse.keys import study_fingerprint
from trueup.multiverse.universe import Outcome, Universe
from trueup.study.design import Int
from trueup.study.study import Study

_ARRAYS = ("theta", "vcov", "df", "h", "d", "tuning", "vcov_human", "informative")
_EXTRA = ("phi", "row_inverse", "repeat_theta", "repeat_se")
_MAGIC = b"trueup fit 1 "
MANIFEST = "store.json"
SUFFIX = ".fit"
_PART = ".part"
#: A file is in flight for milliseconds: one as old as this was left by a process that died.
_LEFT_BEHIND_SECONDS = 3600.0


class DamagedEntry(Exception):
    """A file of the store is not what was written there."""


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of results for one study; see :class:`~trueup.multiverse.keys.Keys` for keys."""

    folder: Path

    @classmethod
    def open(cls, folder: str | Path, study: Study) -> Store:
        """Open a folder, making it where it is new.

        Raises
        ------
        StoreError
            If the folder cannot be written, or holds results of other data.
        """
        folder = Path(folder)
        about = {
            "study": study_fingerprint(study),
            "rows": study.n_rows,
            "coded": {v: study.design(v).n_coded for v in study.variables},
        }
        manifest = folder / MANIFEST
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not manifest.exists():
                _place(manifest, json.dumps(about).encode())
            kept = json.loads(manifest.read_text())
            fingerprint = kept["study"]
        except OSError as error:
            raise StoreError(
                f"The store {folder} cannot be used: {error}. Choose a folder that can be written."
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"The store {folder} cannot be used: its {MANIFEST} is damaged. Use another "
                "folder, or delete this one."
            ) from error
        if fingerprint != about["study"]:
            raise StoreError(
                f"The store {folder} holds results of other data: it was made from study "
                f"{_about(kept)}, this is study {_about(about)}. Rows, human labels or the way "
                "rows were drawn differ. Use another folder, or delete this one."
            )
        return cls(folder)

    def read(self, key: str, universe: Universe, positions: Int | None = None) -> Outcome | None:
        """Return a kept result, None where there is none.

        Parameters
        ----------
        key : str
        universe : Universe
            The universe of that key.
        positions : int array, optional
            Rows of its subset, which are not kept for each universe; None for all rows.

        Raises
        ------
        DamagedEntry
            If the file is not what was written: it must be computed anew.
        """
        try:
            content = (self.folder / f"{key}{SUFFIX}").read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DamagedEntry(key) from error
        head, _, body = content.partition(b"\n")
        if head != _MAGIC + _digest(body):
            raise DamagedEntry(key)
        try:
            return _outcome(universe, *_unpacked(body), positions)
        except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise DamagedEntry(key) from error

    def write(self, key: str, outcome: Outcome) -> None:
        """Keep a fitted universe; a failed one is not kept, so that it is tried again.

        Raises
        ------
        StoreError
            If the disk is full or the folder has gone; what was kept before stays.
        """
        if outcome.estimate is None:
            return
        body = _packed(outcome, outcome.estimate)
        try:
            _place(self.folder / f"{key}{SUFFIX}", _MAGIC + _digest(body) + b"\n" + body)
        except OSError as error:
            raise StoreError(
                f"A result cannot be written to the store {self.folder}: {error}. Results so far "
                f"are kept: {_mend(error)} and run again to resume."
            ) from error

    def prepare(self) -> None:
        """Check that results can be written, and clear what dead processes left half-written.

        Raises
        ------
        StoreError
            If the folder cannot be written.
        """
        try:
            handle, name = tempfile.mkstemp(dir=self.folder, suffix=_PART)
            os.close(handle)
            Path(name).unlink()
            old = time.time() - _LEFT_BEHIND_SECONDS
            for part in self.folder.glob(f"*{_PART}"):
                if part.stat().st_mtime < old:
                    part.unlink(missing_ok=True)
        except FileNotFoundError:
            # Another process cleared a file between the listing and the look at it.
            if not self.folder.is_dir():
                raise StoreError(f"The store {self.folder} has gone: run again.") from None
        except OSError as error:
            raise StoreError(
                f"The store {self.folder} cannot be written: {error}. {_mend(error).capitalize()}, "
                "or choose another folder."
            ) from error


def _mend(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "make the folder writable"
    return "free space"


def _about(manifest: dict[str, Any]) -> str:
    coded = manifest.get("coded")
    labels = ", ".join(f"{n} of {v}" for v, n in coded.items()) if isinstance(coded, dict) else "?"
    return f"{manifest['study']} ({manifest.get('rows', '?')} rows, human labels: {labels})"


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _place(path: Path, content: bytes) -> None:
    """Write a file under another name and move it into place, or leave nothing behind."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=_PART)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _packed(outcome: Outcome, estimate: Estimate) -> bytes:
    arrays = {n: getattr(estimate, n) for n in _ARRAYS if getattr(estimate, n) is not None}
    arrays |= {f"extra_{n}": estimate.extra[n] for n in _EXTRA if n in estimate.extra}
    if estimate.influence is not None:
        arrays |= {f"block_{n}": rows for n, rows in estimate.influence.blocks.items()}
    record = {
        "dimensions": dict(outcome.universe.dimensions),
        "terms": list(outcome.terms),
        "warnings": list(outcome.warnings),
        "notes": list(estimate.notes),
        "estimate_warnings": list(estimate.warnings),
        "seconds": outcome.seconds,
        "arrays": sorted(arrays),
    }
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(record).encode(), dtype=np.uint8)
    np.savez(buffer, record=text, **arrays)
    return buffer.getvalue()


def _unpacked(body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the record and the arrays of a file, after checking that they are complete."""
    with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
        held = {name: arrays[name] for name in arrays.files}
    record: dict[str, Any] = json.loads(held.pop("record").tobytes())
    p = len(record["terms"])
    shapes = {"theta": (p,), "vcov": (p, p), "df": (p,)}
    if sorted(held) != record["arrays"] or any(held[n].shape != s for n, s in shapes.items()):
        raise ValueError("arrays are missing or have another shape")
    return record, held


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
