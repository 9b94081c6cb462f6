"""Read a plan file and check it, and the data and the study that it describes."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pandas as pd

from trueup.errors import ArgumentError, FormulaError, MissingExtraError, PlanError
from trueup.formula.parse import split_formula
from trueup.multiverse.formulas import expand_formulas
from trueup.plan import guard
from trueup.study.sampling import Sampling
from trueup.study.study import Study

#: The largest plan file, in bytes.
_BYTES = 1_000_000
#: Cells of a text file that mean "missing". Pandas also takes "None" and "n/a", which are labels.
_MISSING = ("", "NA", "NaN", "nan", "<NA>", "null", "NULL")
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
        is missing, or a formula or condition calls what it may not (see
        :func:`~trueup.plan.check_formula`) or is too large to be expanded.
    """
    source = Path(path)
    text, content = _read_toml(source)
    _check_keys(source, content)
    data = source.parent / content["data"] if data is None else data
    if not data.is_file():
        raise PlanError(f"The plan {source} names data {str(data)!r}, which is not there.")
    named = _formulas(source, content["formulas"])
    subsets = content.get("subsets")
    _check_conditions(subsets or {}, content.get("exclude"))
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


def _read_toml(source: Path) -> tuple[str, dict[str, Any]]:
    try:
        if source.stat().st_size > _BYTES:
            raise PlanError(f"The plan {source} is larger than {_BYTES:,} bytes: is it a plan?")
        text = source.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except OSError as error:
        raise PlanError(f"The plan {source} cannot be read: {error.strerror or error}.") from error
    except RecursionError as error:
        raise PlanError(f"The plan {source} has lists or tables nested too deeply.") from error
    except ValueError as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise PlanError(f"The plan {source} is not valid TOML: {error}.") from error


def _formulas(source: Path, given: str | list[str] | dict[str, str]) -> dict[str, str]:
    """Return the formulas by name, refused before they are expanded where they are too large."""
    texts = [given] if isinstance(given, str) else list(dict.fromkeys(_values(given)))
    guard.check_size(texts)
    try:
        named = expand_formulas(given, check=split_formula)
    except (FormulaError, ArgumentError) as error:
        raise PlanError(f"In the plan {source}: {error}") from error
    guard.check_total(named.values())
    for formula in named.values():
        guard.check_formula(formula)
    return named


def _values(given: list[str] | dict[str, str]) -> list[str]:
    return list(given.values()) if isinstance(given, dict) else given


def _check_conditions(subsets: Mapping[str, str], exclude: str | None) -> None:
    for name, condition in subsets.items():
        if condition:
            guard.check_condition(condition, f"subset {name!r}")
    if exclude is not None:
        # The dimensions hold text: arithmetic could only repeat it, in the worst case without end.
        guard.check_condition(exclude, "exclude", arithmetic=False)


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
