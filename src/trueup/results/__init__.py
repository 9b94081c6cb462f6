"""Room: results, what a user holds after a fit."""

from trueup.results.compare import Comparison
from trueup.results.fit import Fit
from trueup.results.summary import Summary
from trueup.results.wald import WaldTest

__all__ = ["Comparison", "Fit", "Summary", "WaldTest"]
