"""The folder of results of a plan: tables, manifest and report."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from trueup.errors import PlanError
from trueup.multiverse.multiverse import Multiverse
from trueup.plan.file import Plan, read_plan
from trueup.report.content import software_versions

#: Files of a folder of results.
PLAN, MANIFEST, REPORT = "plan.toml", "manifest.json", "report.html"


def write_results(mv: Multiverse, plan: Plan, out: Path, started: datetime) -> list[Path]:
    """Write estimates, manifest and report; return the files.

    Returns
    -------
    list of Path
        ``estimates.csv`` (every coefficient of every universe), ``estimates.parquet`` where
        pyarrow is installed, ``focus.csv`` (the focal one, with joint intervals), ``plan.toml``,
        ``manifest.json`` and ``report.html``. Where every universe failed, their tables hold the
        reasons.
    """
    table, focal = mv.tidy(all_terms=True), mv.tidy()
    files = [out / "estimates.csv"]
    table.to_csv(files[0], index=False)
    if find_spec("pyarrow") is not None:
        files.append(out / "estimates.parquet")
        table.to_parquet(files[-1], index=False)
    files += [out / "focus.csv", out / PLAN, out / MANIFEST, out / REPORT]
    focal.to_csv(out / "focus.csv", index=False)
    (out / PLAN).write_text(plan.text, encoding="utf-8")
    manifest = {
        "plan": {"path": _seen_from(out, plan.path), "sha256": _sha(plan.text.encode())},
        "data": {"path": _seen_from(out, plan.data), "sha256": _sha(plan.data.read_bytes())},
        "versions": software_versions(),
        "annotators": {a: dict(mv.study.annotator(a).metadata) for a in mv.study.annotators},
        "seed": mv.seed,
        "universes": len(mv.outcomes),
        "failed": int((focal["status"] == "failed").sum()),
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    (out / MANIFEST).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
    mv.report(out / REPORT, title=plan.title or None, plan=plan.text)
    return files


def commonest_failures(mv: Multiverse, most: int = 3) -> list[str]:
    """Return the commonest reasons of failed universes, each with how many gave it."""
    counts = Counter(o.error for o in mv.outcomes if o.status == "failed")
    return [
        f"{n:,} universe{'s' if n > 1 else ''}: {reason}" for reason, n in counts.most_common(most)
    ]


def results_plan(results: Path) -> Plan:
    """Return the plan that a folder of results came from, its data unchanged since.

    Raises
    ------
    PlanError
        If the folder holds no results, or the data have gone or changed.
    """
    try:
        manifest = json.loads((results / MANIFEST).read_text(encoding="utf-8"))
        data, known = results / manifest["data"]["path"], manifest["data"]["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlanError(
            f"{results} holds no results ({MANIFEST}: {error}): run `trueup run` first."
        ) from error
    plan = read_plan(results / PLAN, data=data)
    now = _sha(data.read_bytes())
    if now != known:
        raise PlanError(
            f"The data {data} have changed since the results in {results} were made (SHA-256 "
            f"{known[:12]}..., now {now[:12]}...): run the plan anew into another folder."
        )
    return plan


def _seen_from(folder: Path, path: Path) -> str:
    """Return a path from a folder, so that both may be moved together."""
    try:
        return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
    except ValueError:  # on another drive
        return path.resolve().as_posix()


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
