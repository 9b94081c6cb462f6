"""A plan file: a multiverse that can be written down, and registered, before the data are seen."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from trueup.errors import ArgumentError, FormulaError, MissingExtraError, PlanError
from trueup.formula.parse import parse
from trueup.multiverse.formulas import expand_formulas
from trueup.multiverse.multiverse import Multiverse
from trueup.report.content import software_versions
from trueup.study.sampling import Sampling
from trueup.study.study import Study

#: Functions that a formula of a plan may call: formulas of a plan are data from someone else.
TRANSFORMS = ("C", "I", "log", "log2", "log10", "exp", "abs", "scale", "center", "poly", "bs")
#: The largest power in a formula of a plan: a tower of them would never end.
_POWER = 10
#: Cells of a text file that mean "missing". Pandas also takes "None" and "n/a", which are labels.
_MISSING = ("", "NA", "NaN", "nan", "<NA>", "null", "NULL")
#: Files of a folder of results.
PLAN, MANIFEST, REPORT = "plan.toml", "manifest.json", "report.html"
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


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return _text(value) or (isinstance(value, list) and all(map(_text, value)))


def _named(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_text, value.values()))


#: What stands inside the keys that hold several things.
_INSIDE: dict[str, tuple[Callable[[Any], bool], str]] = {
    "formulas": (lambda v: _texts(v) or _named(v), "text, a list of text, or name = text"),
    "family": (_texts, "text, or a list of text"),
    "corrections": (_texts, "text, or a list of text"),
    "vcov": (_texts, "text, or a list of text"),
    "use": (lambda v: _text(v) or all(map(_texts, v)), "annotators, or lists of annotators"),
    "human": (_named, "variable = column"),
    "llm": (
        lambda v: all(_texts(x) or _named(x) for x in v.values()),
        "variable = column pattern, list of columns, or table of annotator = column",
    ),
    "sampling": (lambda v: all(map(_texts, v.values())), "names of columns"),
    "subsets": (_named, 'name = condition, with "" for all rows'),
}


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


def read_plan(path: str | Path, data: Path | None = None) -> Plan:
    """Read and check a plan file.

    Parameters
    ----------
    path : path
        A TOML file with ``data``, ``formulas``, ``focus``, tables ``[human]`` and ``[llm]``, and
        optionally ``family``, ``corrections``, ``use`` (annotators), ``vcov``, ``exclude``,
        ``level``, ``seed``, ``title``, ``cluster``, ``weights``, ``tuned_on``, ``missing``,
        ``[sampling]`` and ``[subsets]``.
    data : Path, optional
        Where the data are, if not where the plan says (seen from its own folder).

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
    data = source.parent / content["data"] if data is None else data
    if not data.is_file():
        raise PlanError(f"The plan {source} names data {str(data)!r}, which is not there.")
    try:
        named = expand_formulas(content["formulas"])
    except (FormulaError, ArgumentError) as error:
        raise PlanError(f"In the plan {source}: {error}") from error
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
    for key, (fits, form) in _INSIDE.items():
        if key in content and not fits(content[key]):
            raise PlanError(f"In the plan {source}, {key!r} must hold {form}: {content[key]!r}.")


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
        if not _allowed(node):
            piece = ast.get_source_segment(text, node) or type(node).__name__
            raise PlanError(
                f"The formula {formula!r} has {piece!r}, which a plan may not use. Allowed are "
                f"columns, operators and {', '.join(TRANSFORMS)}; compute anything else as a "
                "column of the data."
            )


def _allowed(node: ast.AST) -> bool:
    """Whether a piece of an expression may stand in a plan."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in TRANSFORMS
    if isinstance(node, ast.Name):
        return not node.id.startswith("__")
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Pow):
            power = node.right.value if isinstance(node.right, ast.Constant) else None
            return isinstance(power, (int, float)) and abs(power) <= _POWER
        # Arithmetic on text or lists repeats them, in the worst case without end.
        return not any(_is_text_or_list(side) for side in (node.left, node.right))
    return isinstance(node, _NODES)


def _is_text_or_list(node: ast.AST) -> bool:
    text = isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    return text or isinstance(node, (ast.List, ast.Tuple))


def _quoted(text: str) -> list[str]:
    return text.split("`")[1::2]


def read_data(path: Path) -> pd.DataFrame:
    """Read the table of a plan: CSV (also compressed) or Parquet."""
    suffixes = "".join(path.suffixes).lower()
    try:
        if suffixes.endswith((".parquet", ".pq")):
            return pd.read_parquet(path)
        separator = "\t" if ".tsv" in suffixes else ","
        return pd.read_csv(
            path, sep=separator, keep_default_na=False, na_values=list(_MISSING), low_memory=False
        )
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
    """Write estimates, manifest and report; return the files.

    Returns
    -------
    list of Path
        ``estimates.csv`` (every coefficient of every universe), ``estimates.parquet`` where
        pyarrow is installed, ``focus.csv`` (the focal one, with joint intervals), ``plan.toml``,
        ``manifest.json`` and ``report.html``.
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
