"""What a result depends on, as a short text: equal texts mean equal numbers.

A store belongs to one study, known by what all universes share (:func:`study_fingerprint`).
Within it a universe is known by its choices and by the columns that it reads (:class:`Keys`), so
that a column that is added or changed touches only the universes that read it.
"""

from __future__ import annotations

import hashlib
import pickle
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd

from trueup.errors import FormulaError, StoreError
from trueup.formula.parse import parse, variables_of
from trueup.multiverse.grid import specification
from trueup.multiverse.universe import Universe
from trueup.study.design import Int, SampleDesign
from trueup.study.study import Study

#: Arrays of a design that say how rows were drawn; clusters and weights are part of the keys.
_DRAWN = ("coded", "probability", "stratum", "stratum_sizes", "unit")
_LENGTH = 32


def study_fingerprint(study: Study) -> str:
    """Return a hash of what all universes share: rows, human labels and how rows were drawn.

    Columns of LLM labels and covariates are no part of it, nor is the order of columns.
    """
    digest = hashlib.sha256(repr(study.n_rows).encode())
    for variable, column in sorted(study.human_columns.items()):
        digest.update(repr((variable, _content(study, column))).encode())
        design = study.design(variable)
        digest.update(repr((design.draw, design.n_units, design.disjoint)).encode())
        for name in _DRAWN:
            digest.update(repr((name, _array(getattr(design, name)))).encode())
    return digest.hexdigest()[:_LENGTH]


class Keys:
    """The keys of universes on one study; each column is hashed once, when it is first needed.

    Parameters
    ----------
    study : Study
    seed : int, optional
    """

    def __init__(self, study: Study, seed: int | None) -> None:
        self._study = study
        self._seed = seed
        self._columns: dict[str, str] = {}
        self._rows: dict[str, str] = {}
        self._variables: dict[str, tuple[str, ...]] = {}
        self._shared = (study_fingerprint(study), self._context(), version("trueup"))

    def key(self, universe: Universe, positions: Int | None) -> str | None:
        """Return the key of a universe, None where its formula cannot be read.

        Parameters
        ----------
        universe : Universe
        positions : int array, optional
            (N_subset,) rows of its subset; None for all rows.

        Raises
        ------
        StoreError
            If its correction cannot be pickled, so that nothing tells its options apart.
        """
        # Deferred: importing joblib is slow, and only what runs many universes needs it.
        from joblib import hash as content_hash

        try:
            reads = self._reads(universe)
        except FormulaError:
            return None
        try:
            # Arrays and learners within options, which their printed form abbreviates.
            options = content_hash((universe.family, universe.correction))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            name = universe.correction.name
            raise StoreError(
                f"Results of correction {name!r} cannot be kept in a store, because it cannot be "
                f"pickled ({error}): define its class at the top of a module, or leave store= out."
            ) from error
        rows = self._subset(universe.subset, positions)
        parts = (specification(universe, self._seed), options, rows, reads, self._shared)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:_LENGTH]

    def _reads(self, universe: Universe) -> tuple[Any, ...]:
        """Return what identifies the contents of all columns that a universe reads."""
        study, levels = self._study, self._study.contents.levels
        if universe.formula not in self._variables:
            self._variables[universe.formula] = variables_of(parse(universe.formula))
        used = self._variables[universe.formula]
        names = {v for v in used if v in study.columns and v not in study.variables}
        if not all(_is_ours(part) for part in (universe.family, universe.correction)):
            names.update(study.columns)  # which of them others read cannot be known
        labels = [
            (v, levels[v], [self._column(study.annotator(a).columns[v]) for a in universe.llm])
            for v in sorted(set(used) & set(study.variables))
        ]
        return ([(name, self._column(name)) for name in sorted(names)], labels)

    def _context(self) -> tuple[Any, ...]:
        """Return the rest of what fits to the whole study or to a part of it may depend on."""
        contents = self._study.contents
        designs: list[SampleDesign] = [self._study.design(v) for v in sorted(contents.human)]
        sampling = contents.sampling
        drawn = [(name, self._column(name)) for name in sampling.columns]
        arrays = ("cluster", "weights", "probability_all")
        return (
            [[_array(getattr(design, name)) for name in arrays] for design in designs],
            (sampling.strata_columns, sampling.unit, sampling.method, drawn),
            (contents.missing, contents.cluster_name is None, contents.n_tuned > 0),
        )

    def _column(self, name: str) -> str:
        if name not in self._columns:
            self._columns[name] = _content(self._study, name)
        return self._columns[name]

    def _subset(self, name: str, positions: Int | None) -> str:
        if name not in self._rows:
            self._rows[name] = _array(positions)
        return self._rows[name]


def _is_ours(part: object) -> bool:
    return type(part).__module__.partition(".")[0] == "trueup"


def _content(study: Study, name: str) -> str:
    """Return a hash of a column's values, their kind and the order of its categories."""
    table = study.contents.table
    column = table.column(name)[study.positions]
    kind = (str(column.dtype), pd.api.types.infer_dtype(column, skipna=True))
    # The order of categories decides which level is the reference.
    digest = hashlib.sha256(repr((kind, table.categories(name))).encode())
    digest.update(pd.util.hash_array(column).tobytes())
    return digest.hexdigest()[:_LENGTH]


def _array(values: Any) -> str:
    if values is None:
        return "none"
    array = np.ascontiguousarray(values)
    return hashlib.sha256(repr(array.dtype).encode() + array.tobytes()).hexdigest()[:_LENGTH]
