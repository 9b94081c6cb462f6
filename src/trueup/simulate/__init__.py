"""Room: simulate. Made data whose true answer is known."""

from trueup.simulate.annotators import Annotator
from trueup.simulate.reports import antibiotics, antibiotics_limits
from trueup.simulate.studies import SimulatedStudy, study

__all__ = ["Annotator", "SimulatedStudy", "antibiotics", "antibiotics_limits", "study"]
