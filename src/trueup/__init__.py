"""Regression on LLM labels, trued up with a human-coded sample.

>>> import trueup as tu
>>> data = tu.datasets.load("antibiotics")
>>> study = tu.Study(data, human={"y": "coder"}, llm={"y": ["under_treated"]})
>>> fit = tu.logit("y ~ treated", study)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trueup import datasets, simulate
from trueup.api import (
    absorb,
    glm,
    grid,
    iv,
    logit,
    mean,
    multiverse,
    ols,
    poisson,
    probit,
)
from trueup.corrections.auto import Auto
from trueup.corrections.dsl import DSL
from trueup.corrections.es import ExpectedScore
from trueup.corrections.human import Human
from trueup.corrections.learners import Calibration
from trueup.corrections.naive import Naive
from trueup.corrections.ppi import PPI
from trueup.corrections.pspa import PSPA
from trueup.corrections.ptd import PTD
from trueup.inference.vcov import Vcov
from trueup.study.sampling import Sampling
from trueup.study.study import Study

if TYPE_CHECKING:
    from trueup.diagnostics.agreement import agreement
    from trueup.diagnostics.disagreement import disagreement
    from trueup.diagnostics.error_profile import error_profile
    from trueup.diagnostics.stability import stability
    from trueup.multiverse.alignment import alignment

__version__ = "0.1.0"

#: Functions that come in when they are first used, so that the import stays cheap.
_LATER = {
    "agreement": "trueup.diagnostics.agreement",
    "alignment": "trueup.multiverse.alignment",
    "disagreement": "trueup.diagnostics.disagreement",
    "error_profile": "trueup.diagnostics.error_profile",
    "stability": "trueup.diagnostics.stability",
}

__all__ = [
    "DSL",
    "PPI",
    "PSPA",
    "PTD",
    "Auto",
    "Calibration",
    "ExpectedScore",
    "Human",
    "Naive",
    "Sampling",
    "Study",
    "Vcov",
    "absorb",
    "agreement",
    "alignment",
    "datasets",
    "disagreement",
    "error_profile",
    "glm",
    "grid",
    "iv",
    "logit",
    "mean",
    "multiverse",
    "ols",
    "poisson",
    "probit",
    "simulate",
    "stability",
]


def __getattr__(name: str) -> Any:
    """Import a function of ``_LATER``."""
    if name not in _LATER:
        raise AttributeError(f"module 'trueup' has no attribute {name!r}")
    found = getattr(import_module(_LATER[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List what is there and what comes in when used."""
    return sorted({*globals(), *_LATER})
