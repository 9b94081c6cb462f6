"""A plan file: a multiverse that can be written down, and registered, before the data are seen."""

from __future__ import annotations

import ast
import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from trueup.errors import FormulaError, MissingExtraError, PlanError
from trueup.formula.parse import parse
from trueup.multiverse.formulas import OPERATORS, expand_formulas
from trueup.multiverse.multiverse import Multiverse
from trueup.report.content import software_versions
from trueup.study.sampling import Sampling
from trueup.study.study import Study

#: Functions that a formula of a plan may call: formulas of a plan are data from someone else.
TRANSFORMS = (
    "C",
    "I",
    "log",
    "log2",
    "log10",
    "exp",
    "sqrt",
    "abs",
    "scale",
    "center",
    "poly",
    "bs",
    *OPERATORS,
)
_NODES = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.Call,
    ast.keyword,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.List,
    ast.Tuple,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)
_TABLES = ("human", "llm", "sampling", "subsets")
_KEYS: dict[str, tuple[type, ...]] = {
    "data": (str,),
    "formulas": (str, list, dict),
    "family": (str, list),
    "focus": (str,),
    "corrections": (str, list),
    "use": (str, list),
    "vcov": (str, list),
    "exclude": (str,),
    "level": (float, int),
    "seed": (int,),
    "title": (str,),
    "cluster": (str,),
    "weights": (str,),
    "tuned_on": (str,),
    "missing": (str,),
    **dict.fromkeys(_TABLES, (dict,)),
}
_SAMPLING = ("strata", "probability", "unit", "method")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a plan file says, checked."""

    path: Path
    text: str
    data: Path
    formulas: dict[str, str]
    focus: str
    human: Mapping[str, str]
    llm: Mapping[str, Any]
    family: str | list[str] = "ols"
    corrections: list[str] = field(default_factory=lambda: ["naive", "human", "auto"])
    use: str | list[Any] = "all"
    vcov: str | list[str] = "HC3"
    exclude: str | None = None
    level: float = 0.95
    seed: int = 0
    title: str = ""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    subsets: Mapping[str, str | None] | None = None
    study_options: Mapping[str, str] = field(default_factory=dict)


def read_plan(path: str | Path) -> Plan:
    """Read and check a plan file.

    Parameters
    ----------
    path : path
        A TOML file with ``data``, ``formulas``, ``focus``, tables ``[human]`` and ``[llm]``, and
        optionally ``family``, ``corrections``, ``use`` (annotators), ``vcov``, ``exclude``,
        ``level``, ``seed``, ``title``, ``cluster``, ``weights``, ``tuned_on``, ``missing``,
        ``[sampling]`` and ``[subsets]``.

    Returns
    -------
    Plan

    Raises
    ------
    PlanError
        If the file is missing or not TOML, a key is unknown or of the wrong type, the data file
        is missing, or a formula calls what it may not.
    """
    source = Path(path)
    try:
        text = source.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise PlanError(f"The plan {source} cannot be read: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"The plan {source} is not valid TOML: {error}.") from error
    _check_keys(source, content)
    data = source.parent / content["data"]
    if not data.is_file():
        raise PlanError(f"The plan {source} names data {str(data)!r}, which is not there.")
    formulas = content["formulas"]
    named = expand_formulas(formulas)
    for formula in named.values():
        check_formula(formula)
    subsets = content.get("subsets")
    options = ("cluster", "weights", "tuned_on", "missing")
    corrections = content.get("corrections", ["naive", "human", "auto"])
    return Plan(
        path=source,
        text=text,
        data=data,
        formulas=named,
        focus=content["focus"],
        human=content["human"],
        llm=content["llm"],
        family=content.get("family", "ols"),
        corrections=[corrections] if isinstance(corrections, str) else corrections,
        use=content.get("use", "all"),
        vcov=content.get("vcov", "HC3"),
        exclude=content.get("exclude"),
        level=float(content.get("level", 0.95)),
        seed=content.get("seed", 0),
        title=content.get("title", ""),
        sampling=content.get("sampling", {}),
        subsets=None if subsets is None else {k: v or None for k, v in subsets.items()},
        study_options={k: content[k] for k in options if k in content},
    )


def _check_keys(source: Path, content: dict[str, Any]) -> None:
    for key, value in content.items():
        if key not in _KEYS:
            raise PlanError(f"The plan {source} has an unknown key {key!r}.{_near(key, _KEYS)}")
        if not isinstance(value, _KEYS[key]) or isinstance(value, bool):
            kinds = " or ".join(k.__name__ for k in _KEYS[key])
            raise PlanError(
                f"In the plan {source}, {key!r} must be {kinds}, got {type(value).__name__}."
            )
    for key in ("data", "formulas", "focus", "human", "llm"):
        if key not in content:
            raise PlanError(f"The plan {source} lacks {key!r}.")
    for key in content.get("sampling", {}):
        if key not in _SAMPLING:
            raise PlanError(
                f"The plan {source} has an unknown key {key!r} in [sampling]."
                f"{_near(key, _SAMPLING)}"
            )


def _near(key: str, known: Any) -> str:
    near = get_close_matches(key, list(known), n=1, cutoff=0.3)
    return f" Did you mean {near[0]!r}?" if near else f" Known keys: {', '.join(known)}."


def check_formula(formula: str) -> None:
    """Refuse a formula that does more than combine columns by named transforms.

    Raises
    ------
    PlanError
        Showing the piece that is not allowed.

    Examples
    --------
    >>> check_formula("y ~ x + log(words) + C(source)")
    """
    try:
        parsed = parse(formula)
    except FormulaError as error:
        raise PlanError(f"The formula {formula!r} cannot be used in a plan. {error}") from error
    parts = [parsed.outcome, parsed.exogenous, parsed.endogenous, parsed.instruments]
    for part in parts:
        if part:
            _check_part(formula, part)


def _check_part(formula: str, part: str) -> None:
    text = part.replace(":", "*").strip()
    for name in _quoted(text):
        text = text.replace(f"`{name}`", "column")
    if not text or text.startswith(("-", "+")):
        text = f"0 {text}"
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise PlanError(f"The formula {formula!r} cannot be read at {part!r}.") from error
    for node in ast.walk(tree):
        piece = ast.get_source_segment(text, node) or type(node).__name__
        allowed = isinstance(node, _NODES)
        if isinstance(node, ast.Call):
            allowed = isinstance(node.func, ast.Name) and node.func.id in TRANSFORMS
        if isinstance(node, ast.Name) and node.id.startswith("__"):
            allowed = False
        if not allowed:
            raise PlanError(
                f"The formula {formula!r} has {piece!r}, which a plan may not use. Allowed are "
                f"columns, operators and {', '.join(TRANSFORMS)}; compute anything else as a "
                "column of the data."
            )


def _quoted(text: str) -> list[str]:
    return text.split("`")[1::2]


def read_data(path: Path) -> pd.DataFrame:
    """Read the table of a plan: CSV (also compressed) or Parquet."""
    suffixes = "".join(path.suffixes).lower()
    try:
        if suffixes.endswith((".parquet", ".pq")):
            return pd.read_parquet(path)
        separator = "\t" if ".tsv" in suffixes else ","
        return pd.read_csv(path, sep=separator)
    except ImportError as error:
        raise MissingExtraError(
            "Reading Parquet needs pyarrow: pip install 'trueup[arrow]'."
        ) from error
    except (ValueError, OSError) as error:
        raise PlanError(f"The data {path} cannot be read: {error}.") from error


def plan_study(plan: Plan, data: pd.DataFrame) -> Study:
    """Build the study of a plan."""
    return Study(
        data,
        human=dict(plan.human),
        llm=dict(plan.llm),
        sampling=Sampling(**plan.sampling),
        **plan.study_options,  # type: ignore[arg-type]
    )


def write_results(mv: Multiverse, plan: Plan, out: Path, started: datetime) -> list[Path]:
    """Write estimates, manifest and report; return the files."""
    table = mv.tidy(all_terms=True)
    focal = mv.tidy()
    files = [out / "estimates.csv", out / "focus.csv", out / "manifest.json", out / "report.html"]
    table.to_csv(files[0], index=False)
    focal.to_csv(files[1], index=False)
    try:
        table.to_parquet(out / "estimates.parquet", index=False)
        files.insert(1, out / "estimates.parquet")
    except ImportError:
        pass  # Parquet is a convenience: the CSV holds the same
    (out / "plan.toml").write_text(plan.text, encoding="utf-8")
    finished = datetime.now(UTC)
    manifest = {
        "plan": {"path": str(plan.path), "sha256": _sha(plan.text.encode())},
        "data": {"path": str(plan.data), "sha256": _sha(plan.data.read_bytes())},
        "versions": software_versions(),
        "annotators": {a: dict(mv.study.annotator(a).metadata) for a in mv.study.annotators},
        "seed": mv.seed,
        "universes": len(mv.outcomes),
        "failed": int((focal["status"] == "failed").sum()),
        "started": started.isoformat(timespec="seconds"),
        "finished": finished.isoformat(timespec="seconds"),
        "trueup": version("trueup"),
    }
    files[-2].write_text(json.dumps(manifest, indent=2), encoding="utf-8")
    mv.report(files[-1], plan=plan.text)
    return files


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
