"""Room: study. Who labelled what, and how the coded rows were drawn."""

from trueup.study.design import Draw, SampleDesign
from trueup.study.labels import Annotator, Pattern
from trueup.study.sampling import Sampling
from trueup.study.study import Study
from trueup.study.tables import Table
from trueup.study.values import REFUSED

__all__ = [
    "REFUSED",
    "Annotator",
    "Draw",
    "Pattern",
    "SampleDesign",
    "Sampling",
    "Study",
    "Table",
]
