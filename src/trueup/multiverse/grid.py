"""The grid: every combination of choices, before anything runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pandas as pd

from trueup.corrections.base import Correction
from trueup.corrections.registry import as_correction
from trueup.errors import ArgumentError
from trueup.families.base import Family
from trueup.families.registry import family_for
from trueup.inference.vcov import Vcov, as_vcov
from trueup.multiverse.formulas import expand_formulas
from trueup.multiverse.universe import Universe
from trueup.study.study import Study

#: What stands for the annotator of a fit to human labels alone, which uses none.
NO_LLM = "(human)"
Exclude = str | Callable[[dict[str, str]], bool] | None
Corrections = str | Sequence[str | Correction] | Mapping[str, str | Correction]
LLMs = str | Sequence[str | Sequence[str]]


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
    annotators: pd.DataFrame | None = None,
) -> Grid:
    """Build the grid; see :func:`trueup.multiverse`."""
    named_formulas = expand_formulas(formulas)
    families = _families(family)
    sets = _annotator_sets(study, llm)
    methods = _corrections(corrections)
    parts = {"all": None} if subsets is None else dict(subsets)
    if not parts or not all(isinstance(name, str) and name for name in parts):
        raise ArgumentError('subsets= must map names to rows, e.g. {"all": None, "long": "x > 3"}.')
    options = _vcovs(vcov)
    extra = _metadata(study, annotators)
    fields = tuple(dict.fromkeys(key for values in extra.values() for key in values))
    dimensions = ("llm", *fields, "formula", "family", "correction", "subset", "vcov")
    universes: list[Universe] = []
    seen: set[str] = set()
    for combination in product(
        named_formulas.items(), families, parts, sets.items(), methods.items(), options.items()
    ):
        (fname, formula), fam, subset, (llm_name, names), (cname, method), (vname, how) = (
            combination
        )
        if method.name == "naive" and len(names) > 1:
            continue
        alone = method.name == "human" and getattr(method, "human_fit", "") != "one-step"
        levels = {"llm": NO_LLM if alone else llm_name}
        for key in fields:
            values = {extra[n].get(key, "") for n in names}
            levels[key] = NO_LLM if alone else "+".join(sorted(values))
        levels |= {"formula": fname, "family": fam.name, "correction": cname}
        levels |= {"subset": subset, "vcov": vname}
        key = repr(levels)
        if key in seen or _excluded(levels, exclude):
            continue
        seen.add(key)
        universes.append(Universe(len(universes), names, formula, fam, method, subset, how, levels))
    if not universes:
        raise ArgumentError("No universe is left: check exclude=, corrections= and llm=.")
    return Grid(tuple(universes), dimensions, parts)


def _families(family: str | Family | Sequence[str]) -> list[Family]:
    if isinstance(family, str):
        return [family_for(family)]
    if isinstance(family, Sequence):
        if not family:
            raise ArgumentError("family= is empty: name at least one.")
        return [family_for(f) if isinstance(f, str) else f for f in family]
    return [family]


def _annotator_sets(study: Study, llm: LLMs) -> dict[str, tuple[str, ...]]:
    """Return name -> annotators: one each, or several used jointly where a list is nested."""
    entries = [llm] if isinstance(llm, str) else list(llm)
    out: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        if isinstance(entry, str):
            out.update({name: (name,) for name in study.resolve(entry)})
            continue
        names = study.resolve(list(entry))
        out["+".join(names)] = names
    if not out:
        raise ArgumentError("llm= is empty: name at least one annotator.")
    return out


def _corrections(corrections: Corrections) -> dict[str, Correction]:
    if isinstance(corrections, Mapping):
        named = {str(k): as_correction(v) for k, v in corrections.items()}
    else:
        given = [corrections] if isinstance(corrections, str) else list(corrections)
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
    kind = type(correction)
    default = kind()
    changed = [
        f"{f}={getattr(correction, f)!r}"
        for f in getattr(kind, "__dataclass_fields__", {})
        if repr(getattr(correction, f)) != repr(getattr(default, f))
    ]
    return f"{kind.__name__}({', '.join(changed)})"


def _vcovs(vcov: str | Vcov | Sequence[str | Vcov]) -> dict[str, Vcov]:
    given = [vcov] if isinstance(vcov, (str, Vcov)) else list(vcov)
    out = {v if isinstance(v, str) else repr(v): as_vcov(v) for v in given}
    if len(out) != len(given) or not out:
        raise ArgumentError("vcov= must name at least one kind, each once.")
    return out


def _metadata(study: Study, annotators: pd.DataFrame | None) -> dict[str, dict[str, str]]:
    """Return what is known of each annotator: pattern fields and the user's own table."""
    out = {a: {k: str(v) for k, v in study.annotator(a).metadata.items()} for a in study.annotators}
    if annotators is None:
        return out
    table = annotators.set_index("llm") if "llm" in annotators else annotators
    unknown = [str(name) for name in table.index if name not in out]
    if unknown:
        raise ArgumentError(
            f"annotators= describes {', '.join(unknown[:5])}, which the study does not have."
        )
    for name, row in table.iterrows():
        out[str(name)] |= {str(k): str(v) for k, v in row.items()}
    return out


def _excluded(levels: dict[str, str], exclude: Exclude) -> bool:
    if exclude is None:
        return False
    if isinstance(exclude, str):
        row = pd.DataFrame([levels])
        try:
            return bool(row.eval(exclude, engine="python").iloc[0])
        except (SyntaxError, NameError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise ArgumentError(
                f"exclude={exclude!r} cannot be evaluated on the dimensions "
                f"{', '.join(levels)}: {error}."
            ) from error
    return bool(exclude(dict(levels)))


def specification(universe: Universe, seed: int | None) -> str:
    """Return the canonical text of a universe: equal texts mean equal numbers."""
    parts = {
        "llm": universe.llm,
        "formula": universe.formula,
        "family": repr(universe.family),
        "correction": repr(universe.correction),
        "subset": universe.subset,
        "vcov": repr(universe.vcov),
        "seed": seed,
    }
    return repr(parts)


def specification_key(universe: Universe, seed: int | None, fingerprint: str) -> str:
    """Return the key under which a store keeps a universe."""
    text = f"{specification(universe, seed)}|{fingerprint}"
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def groups(universes: Sequence[Universe]) -> Iterator[list[Universe]]:
    """Yield universes that share a formula, a family and a subset."""
    together: dict[tuple[str, str, str], list[Universe]] = {}
    for u in universes:
        together.setdefault((u.formula, u.family.name, u.subset), []).append(u)
    yield from together.values()
