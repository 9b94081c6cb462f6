"""The error tree: every message says what is wrong, where, and how to mend it."""

from __future__ import annotations


class TrueupError(Exception):
    """Root of every error that trueup raises on purpose."""


class ArgumentError(TrueupError, ValueError):
    """An argument has a value that cannot be used."""


class StudyError(TrueupError, ValueError):
    """The data table, the human labels or the LLM labels do not fit together."""


class SamplingError(StudyError):
    """The description of how the coded rows were drawn does not fit the data."""


class FormulaError(TrueupError, ValueError):
    """A formula cannot be read, or asks for something that would go wrong silently."""


class FitError(TrueupError, ArithmeticError):
    """A regression cannot be computed from these rows."""


class CollinearityError(FitError):
    """Columns of the design matrix are linear combinations of others."""


class SeparationError(FitError):
    """No finite coefficients exist: the outcome is predicted perfectly."""


class ConvergenceError(FitError):
    """An iteration stopped before it reached its tolerance."""


class CorrectionError(TrueupError, ValueError):
    """A correction does not apply to this study, family or sampling design."""


class StoreError(TrueupError, OSError):
    """A folder of kept results cannot be read or written, or belongs to other data."""


class PlanError(TrueupError, ValueError):
    """A plan file has something wrong."""


class MissingExtraError(TrueupError, ImportError):
    """A feature needs an optional package that is not installed."""


class TrueupWarning(UserWarning):
    """Root of the warnings: the number is computed, but read what is said about it."""


class SmallSampleWarning(TrueupWarning):
    """Too few coded rows carry the correction for the interval to be taken at face value."""


class DesignWarning(TrueupWarning):
    """The sampling design looks different from what was said, or has extreme weights."""
