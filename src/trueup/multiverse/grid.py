"""The grid: every combination of choices, before anything runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from itertools import product
from typing import Any, cast

import numpy as np
import pandas as pd

from trueup.corrections.base import Correction
from trueup.corrections.registry import as_correction
from trueup.errors import ArgumentError, StudyError, TrueupWarning
from trueup.families.base import Family
from trueup.families.registry import family_for
from trueup.inference.vcov import Vcov, as_vcov
from trueup.multiverse.formulas import expand_formulas
from trueup.multiverse.universe import Universe
from trueup.study.study import Study
from trueup.study.subsets import evaluate_condition, row_positions
from trueup.study.tables import nearest

#: What stands for the annotator of a fit to human labels alone, which uses none.
NO_LLM = "(human)"
Exclude = str | Callable[[dict[str, str]], bool] | None
Corrections = str | Correction | Sequence[str | Correction] | Mapping[str, str | Correction]
Annotators = pd.DataFrame | Mapping[str, Mapping[str, Any]] | None
LLMs = str | Sequence[str | Sequence[str]] | None
#: Columns of the tables that a multiverse gives, which no field of metadata may be called.
RESERVED = (
    *("universe", "llm", "formula", "family", "correction", "subset", "vcov", "term", "estimate"),
    *("std_error", "statistic", "p_value", "conf_low", "conf_high", "df", "simultaneous_low"),
    *("simultaneous_high", "status", "error", "warnings", "seconds"),
)


@dataclass(frozen=True, slots=True)
class Grid:
    """All universes and the names of the dimensions in which they differ or could."""

    universes: tuple[Universe, ...]
    dimensions: tuple[str, ...]
    subsets: Mapping[str, Any]
    """Name of a subset -> query, mask, or None for all rows."""

    def table(self) -> pd.DataFrame:
        """Return one row for each universe, one column for each dimension."""
        rows = [{"universe": u.number, **u.dimensions} for u in self.universes]
        return pd.DataFrame(rows, columns=["universe", *self.dimensions])


def build_grid(
    formulas: str | Sequence[str] | Mapping[str, str],
    study: Study,
    *,
    family: str | Family | Sequence[str] = "ols",
    llm: LLMs = "all",
    corrections: Corrections = ("naive", "human", "auto"),
    subsets: Mapping[str, Any] | None = None,
    vcov: str | Vcov | Sequence[str | Vcov] = "HC3",
    exclude: Exclude = None,
    annotators: Annotators = None,
) -> Grid:
    """Build the grid; see :func:`trueup.multiverse`.

    Raises
    ------
    ArgumentError, FormulaError
        If a name is unknown or stands twice, a condition or formula cannot be read, or no
        universe is left.
    """
    if not isinstance(study, Study):
        raise ArgumentError(f"study must be a tu.Study, got {type(study).__name__}.")
    named_formulas = expand_formulas(formulas)
    families = _families(family)
    sets = _annotator_sets(study, llm)
    methods = _corrections(corrections)
    parts = _subsets(study, subsets)
    options = _vcovs(vcov)
    about = _metadata(study, annotators)
    keys = tuple(dict.fromkeys(key for values in about.values() for key in values))
    dimensions = ("llm", *keys, "formula", "family", "correction", "subset", "vcov")
    # The first by name, so that neither the order of llm= nor that of columns changes a number.
    first = min(name for names in sets.values() for name in names)
    found: dict[tuple[str, ...], Universe] = {}
    for (fname, formula), fam, part, (lname, names), (cname, method), (vname, how) in product(
        named_formulas.items(), families, parts, sets.items(), methods.items(), options.items()
    ):
        if method.name == "naive" and len(names) > 1:
            continue
        alone = _without_llm(method)
        levels = {"llm": NO_LLM if alone else lname}
        for key in keys:
            values = {about[n].get(key, "") for n in names}
            levels[key] = NO_LLM if alone else "+".join(sorted(values))
        levels |= {"formula": fname, "family": fam.name, "correction": cname}
        levels |= {"subset": part, "vcov": vname}
        used = (first,) if alone else names
        universe = Universe(0, used, formula, fam, method, part, how, levels)
        found.setdefault(tuple(levels.values()), universe)
    universes = _keep(list(found.values()), exclude)
    if not universes:
        raise ArgumentError(
            "No universe is left: check exclude=, corrections= and llm= (LLM-only fits take one "
            "LLM at a time)."
        )
    _note_naive(methods, sets)
    numbered = tuple(replace(u, number=i) for i, u in enumerate(universes))
    return Grid(numbered, dimensions, parts)


def _without_llm(correction: Correction) -> bool:
    """Whether a correction uses human labels alone, so that the LLM does not matter."""
    return correction.name == "human" and getattr(correction, "human_fit", "") != "one-step"


def _note_naive(methods: Mapping[str, Correction], sets: Mapping[str, tuple[str, ...]]) -> None:
    joint = [name for name, names in sets.items() if len(names) > 1]
    if joint and any(m.name == "naive" for m in methods.values()):
        warnings.warn(
            f"LLM-only fits take one LLM at a time: there are none for {', '.join(joint[:3])}"
            f"{', ...' if len(joint) > 3 else ''}.",
            TrueupWarning,
            stacklevel=4,
        )


def _subsets(study: Study, subsets: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return name -> rows, after checking that conditions and masks can be read."""
    if subsets is not None and not isinstance(subsets, Mapping):
        raise ArgumentError(
            f"subsets= must map names to rows, got {type(subsets).__name__}: write "
            '{"all": None, "long": "words > 300"}.'
        )
    parts = {"all": None} if subsets is None else dict(subsets)
    if not parts or not all(isinstance(name, str) and name for name in parts):
        raise ArgumentError('subsets= must map names to rows, e.g. {"all": None, "long": "x > 3"}.')
    for name, rows in parts.items():
        if rows is None:
            continue
        if not isinstance(rows, str) and np.ndim(rows) == 0:
            raise ArgumentError(
                f"Subset {name!r} is {rows!r}: give a condition, a mask, positions, or None."
            )
        try:
            row_positions(study, rows)
        except StudyError:
            continue  # without rows its universes fail, each with this reason
        except ArgumentError as error:
            raise ArgumentError(f"Subset {name!r}: {error}") from error
    return parts


def _families(family: str | Family | Sequence[str]) -> list[Family]:
    given = (
        list(family) if isinstance(family, Sequence) and not isinstance(family, str) else [family]
    )
    if not given:
        raise ArgumentError("family= is empty: name at least one.")
    out = [family_for(f) if isinstance(f, str) else f for f in given]
    for f in out:
        if isinstance(f, type) or not hasattr(f, "name"):
            raise ArgumentError(
                f"family={f!r} is not a family: use a name such as 'ols' or 'logit', or a list."
            )
    names = [f.name for f in out]
    if len(set(names)) < len(names):
        raise ArgumentError(f"family= has a family twice: {', '.join(names)}. Name each once.")
    return out


def _annotator_sets(study: Study, llm: LLMs) -> dict[str, tuple[str, ...]]:
    """Return name -> annotators: one each, or several used jointly where a list is nested."""
    if llm is not None and not isinstance(llm, Sequence):
        raise ArgumentError(
            f"llm={llm!r} must be 'all', the name of an annotator, a pattern, or a list of these."
        )
    entries = ["all"] if llm is None else [llm] if isinstance(llm, str) else list(llm)
    out: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        if isinstance(entry, str):
            sets: list[tuple[str, ...]] = [(name,) for name in study.resolve(entry)]
        else:
            sets = [_joint_set(study, entry)]
        for names in sets:
            name = "+".join(names)
            if name in out:
                raise ArgumentError(f"llm= has {name!r} twice, by name or pattern: name each once.")
            out[name] = names
    if not out:
        raise ArgumentError("llm= is empty: name at least one annotator.")
    return out


def _joint_set(study: Study, entry: Sequence[str]) -> tuple[str, ...]:
    """Return the annotators of a list within ``llm=``, which are used jointly."""
    names = study.resolve(entry)
    each = [name for one in entry for name in study.resolve(one)]
    twice = [name for name in names if each.count(name) > 1]
    if twice:
        raise ArgumentError(
            f"llm= has {twice[0]!r} twice in one list, by name or pattern: name each once."
        )
    return names


def _corrections(corrections: Corrections) -> dict[str, Correction]:
    if isinstance(corrections, Mapping):
        named = {str(k): as_correction(v) for k, v in corrections.items()}
    else:
        given: Sequence[str | Correction]
        if isinstance(corrections, str) or hasattr(corrections, "estimate"):
            given = [cast(str | Correction, corrections)]
        elif isinstance(corrections, Sequence):
            given = list(corrections)
        else:
            given = [as_correction(corrections)]  # says what it should be
        named = {}
        for c in given:
            name = c if isinstance(c, str) else _readable(as_correction(c))
            if name in named:
                raise ArgumentError(
                    f"corrections= has {name!r} twice: give a mapping of names to corrections."
                )
            named[name] = as_correction(c)
    if not named:
        raise ArgumentError("corrections= is empty: name at least one.")
    return named


def _readable(correction: Correction) -> str:
    """Return the correction with the options that differ from their defaults."""
    changed = []
    options: tuple[Field[Any], ...] = fields(correction) if is_dataclass(correction) else ()
    for f in options:
        value = getattr(correction, f.name)
        if f.default is MISSING or repr(value) != repr(f.default):
            changed.append(f"{f.name}={_short(value)}")
    return f"{type(correction).__name__}({', '.join(changed)})"


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _vcovs(vcov: str | Vcov | Sequence[str | Vcov]) -> dict[str, Vcov]:
    given = list(vcov) if isinstance(vcov, Sequence) and not isinstance(vcov, str) else [vcov]
    out = {v if isinstance(v, str) else repr(v): as_vcov(v) for v in given}
    if len(out) != len(given) or not out:
        raise ArgumentError("vcov= must name at least one kind, each once.")
    return out


def _metadata(study: Study, annotators: Annotators) -> dict[str, dict[str, str]]:
    """Return what is known of each annotator: pattern fields and the user's own table."""
    out = {a: {k: str(v) for k, v in study.annotator(a).metadata.items()} for a in study.annotators}
    if annotators is not None:
        table = _annotator_table(annotators)
        names = [str(name) for name in table.index]
        unknown = [name for name in names if name not in out]
        if unknown:
            raise ArgumentError(
                f"annotators= describes {', '.join(unknown[:5])}, which the study does not have."
                f"{nearest(unknown[0], list(out))}"
            )
        if len(set(names)) < len(names):
            raise ArgumentError("annotators= describes an annotator twice: give each one row.")
        for name, row in zip(names, table.to_dict("records"), strict=True):
            out[name] |= {str(k): "" if pd.isna(v) else str(v) for k, v in row.items()}
    taken = sorted({key for values in out.values() for key in values if key in RESERVED})
    if taken:
        raise ArgumentError(
            f"Metadata of annotators cannot be called {', '.join(map(repr, taken))}, which are "
            "columns of the results: rename the field of the column pattern, as in "
            "'{model}__{prompt}', or the column of annotators=."
        )
    return out


def _annotator_table(annotators: Any) -> pd.DataFrame:
    """Return one row for each annotator described, named by the index."""
    if isinstance(annotators, Mapping):
        if not all(isinstance(about, Mapping) for about in annotators.values()):
            raise ArgumentError(
                "annotators= as a mapping must give a mapping for each annotator, as in "
                "{'gpt__p1': {'size': 'large'}}."
            )
        return pd.DataFrame.from_dict(
            {str(name): dict(about) for name, about in annotators.items()},
            orient="index",
            dtype=object,
        )
    if not isinstance(annotators, pd.DataFrame):
        raise ArgumentError(
            "annotators= must be a pandas DataFrame with a row for each annotator, or a mapping "
            f"of annotators to mappings, got {type(annotators).__name__}."
        )
    return annotators.set_index("llm") if "llm" in annotators else annotators


def _keep(universes: list[Universe], exclude: Exclude) -> list[Universe]:
    """Return the universes that ``exclude=`` leaves."""
    if exclude is None:
        return universes
    if not isinstance(exclude, str):
        if not callable(exclude):
            raise ArgumentError(
                f"exclude={exclude!r} must be a condition on the dimensions, such as "
                "\"correction == 'dsl'\", or a function of their mapping."
            )
        return [u for u in universes if not _excluded(exclude, dict(u.dimensions))]
    table = pd.DataFrame([dict(u.dimensions) for u in universes])
    try:
        out = evaluate_condition(exclude, list(map(str, table)), lambda names: table[list(names)])
    except ArgumentError as error:
        raise ArgumentError(f"exclude= cannot be evaluated on the dimensions: {error}") from error
    return [u for u, gone in zip(universes, out, strict=True) if not gone]


def _excluded(rule: Callable[[dict[str, str]], bool], levels: dict[str, str]) -> bool:
    try:
        answer = rule(levels)
    except KeyError as error:
        name = str(error.args[0]) if error.args else ""
        raise ArgumentError(
            f"exclude= asks for {name!r}, which is no dimension of the grid.{nearest(name, levels)}"
        ) from error
    except (TypeError, AttributeError, IndexError) as error:
        raise ArgumentError(
            f"exclude= must be a function of one mapping of dimensions to levels; it failed on "
            f"{levels}: {type(error).__name__}: {error}."
        ) from error
    if not isinstance(answer, (bool, np.bool_)):
        raise ArgumentError(f"exclude= must return True or False; for {levels} it gave {answer!r}.")
    return bool(answer)


def specification(universe: Universe, seed: int | None) -> str:
    """Return the text of what is computed: on equal rows, equal texts mean equal numbers."""
    parts = {
        "llm": universe.llm,
        "formula": universe.formula,
        "family": repr(universe.family),
        "correction": repr(universe.correction),
        "vcov": repr(universe.vcov),
        "seed": seed,
    }
    return repr(parts)


def groups(universes: Sequence[Universe]) -> Iterator[list[Universe]]:
    """Yield universes that share a formula, a family and a subset."""
    together: dict[tuple[str, str, str], list[Universe]] = {}
    for u in universes:
        together.setdefault((u.formula, u.family.name, u.subset), []).append(u)
    yield from together.values()
